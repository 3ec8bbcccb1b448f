"""Work on threads: results in the order of the items, on any number of cores."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from motley.core import side_by_side as side_by_side_module
from motley.core.keys import Key
from motley.core.side_by_side import by_rows, never_falls, side_by_side


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_results_come_in_the_order_of_the_items(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first item takes longest."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    threads = set()

    def work(number: int) -> int:
        threads.add(threading.get_ident())
        time.sleep(0.02 * (number == 0))
        return number**2

    assert list(side_by_side(work, range(5))) == [0, 1, 4, 9, 16]
    assert list(side_by_side(work, [])) == []
    assert (threading.get_ident() in threads) is (cores == 1)


def test_an_error_reaches_the_caller() -> None:
    def work(number: int) -> int:
        return 1 // number

    with pytest.raises(ZeroDivisionError):
        list(side_by_side(work, [1, 0]))


@pytest.mark.parametrize("count", [7, 8, 9, 33])
def test_random_numbers_are_the_same_in_blocks_and_on_threads(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = Key(3).fold("demo")
    ids = np.arange(count)[::-1] * 5
    expected = [key.uniform([number], 2)[0] for number in ids]
    normal = [key.normal([number])[0] for number in ids]
    monkeypatch.setattr(side_by_side_module, "_BLOCK", 4)
    monkeypatch.setattr(side_by_side_module, "_SHARE", 8)
    assert (key.uniform(ids, 2) == expected).all()
    assert (key.normal(ids) == normal).all()


@pytest.mark.parametrize("count", [0, 1, 4, 5, 33])
def test_rows_are_filled_in_blocks_of_any_type(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side_module, "_BLOCK", 4)
    monkeypatch.setattr(side_by_side_module, "_SHARE", 8)
    longest = []

    def odd(some: np.ndarray) -> np.ndarray:
        longest.append(len(some))
        return some % 2 == 1

    found = by_rows(odd, np.arange(count), np.bool_)
    assert found.dtype == bool
    assert found.tolist() == [bool(number % 2) for number in range(count)]
    assert max(longest) <= 4


@pytest.mark.parametrize("place", [None, 0, 3, 4, 11])
def test_a_fall_is_seen_within_blocks_and_between_them(
    place: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of four: the pairs 3 and 4, and 11 and 12, lie in two of them."""
    monkeypatch.setattr(side_by_side_module, "_SHARE", 4)
    values = np.repeat(np.arange(7), 2)[:13]
    if place is not None:
        values[place] = values[place + 1] + 1
    assert never_falls(values) is (place is None)
    assert never_falls(values[:0])
    assert never_falls(values[:1])
