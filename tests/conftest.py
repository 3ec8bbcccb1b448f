"""For all tests: property tests never assert a time, and find the same cases everywhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("motley", deadline=None, derandomize=True)
settings.load_profile("motley")


@pytest.fixture
def forget_names() -> Iterator[None]:
    """Take away the names of components that a test registers or imports."""
    yield
    from motley.experiments import registry

    for names in map(registry.catalogue, registry.KINDS):
        for name in names._classes:
            del names.targets[name]
        names._classes.clear()
