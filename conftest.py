"""For tests and examples: examples are looked for where there are some."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Leave out files without an example: to import them all and to look through all that is in
    them takes half a second."""
    collectors = yield
    if b">>>" in file_path.read_bytes():
        return collectors
    return [each for each in collectors if not isinstance(each, DoctestModule)]
