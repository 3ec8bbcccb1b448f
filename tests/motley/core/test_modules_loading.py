"""The garbage collector is off while modules are imported, and passes over them later."""

from __future__ import annotations

import gc

import pytest

from motley.core.modules_loading import collector_off, modules_loading


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call of ``gc.freeze``, whether the collector was on."""
    calls: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(gc.isenabled()))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(calls))
    monkeypatch.setattr("motley.core.modules_loading._passed_over", False)
    return calls


def test_the_collector_is_off_inside_and_on_afterwards(frozen: list[bool]) -> None:
    with modules_loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert frozen == [False]


def test_objects_are_passed_over_once(frozen: list[bool]) -> None:
    """What is garbage by then would else stay for ever."""
    for _ in range(2):
        with modules_loading():
            pass
    assert frozen == [False]
    with modules_loading():
        assert gc.isenabled()


def test_objects_that_others_froze_are_counted_once(
    frozen: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python counts them one by one."""
    counted: list[int] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(7) or 7)
    for _ in range(2):
        with modules_loading():
            assert gc.isenabled()
    assert (counted, frozen) == ([7], [])


def test_the_collector_is_on_after_an_error_and_off_where_it_was_off() -> None:
    inside: list[bool] = []
    with pytest.raises(ValueError, match="an error"), collector_off():
        _refuse(inside)
    assert inside == [False]
    assert gc.isenabled()
    with collector_off():
        with collector_off():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def _refuse(collecting: list[bool]) -> None:
    collecting.append(gc.isenabled())
    raise ValueError("an error")
