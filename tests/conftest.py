"""For all tests: property tests never assert a time, and find the same cases everywhere; nobody waits for a disk."""

from __future__ import annotations

import os
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


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of tests need not survive a power cut; tests of power cuts look at the calls (tests/resume/power_cut.py)."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
