"""For all tests: property tests never assert a time, and find the same cases everywhere; nobody
waits for a disk, nor for pictures that no test looks at."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import settings

settings.register_profile("motley", deadline=None, derandomize=True)
settings.load_profile("motley")


def pytest_make_collect_report() -> None:
    """Collecting tests makes millions of objects that stay, and hardly any garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave modules and tests out of Python's searches for cycles: they stay until the end."""
    gc.enable()
    gc.freeze()


@pytest.fixture
def forget_names() -> Iterator[None]:
    """Take away the names of components that a test registers or imports."""
    yield
    from motley.experiments import registry

    for names in map(registry.catalogue, registry.KINDS):
        for name in names._classes:
            del names.targets[name]
        names._classes.clear()


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disk_and_git(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Folders of tests need not survive a power cut; tests of power cuts look at the calls
    (tests/motley/resume/power_cut.py). Every run asks git twice, which takes as long as a tenth of
    a small run: ask once a folder. Private runs enter no ledger of the user's, and divisions no
    cache."""
    from motley.experiments import store

    source_commit = store.source_commit
    commit_of = cache(lambda folder: source_commit())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTLEY_STATE", str(tmp_path_factory.mktemp("state")))
        patch.setenv("MOTLEY_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(os, "fsync", lambda file: None)
        patch.setattr(store, "source_commit", lambda: commit_of(os.getcwd()))
        yield


@pytest.fixture
def drawn() -> None:
    """A test that looks at pictures asks for this; in all others they are empty."""


@pytest.fixture(autouse=True)
def no_drawing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are built as ever and left empty: to draw them takes most of the time of a report (a
    second or two)."""
    if "drawn" not in request.fixturenames:
        from motley_report import figures

        empty = (
            '<svg xmlns="http://www.w3.org/2000/svg" width="9pt" height="9pt" viewBox="0 0 9 9"/>'
        )
        monkeypatch.setattr(figures, "draw", lambda figure, kind: empty.encode())
