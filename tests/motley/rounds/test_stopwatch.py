"""The stopwatch, with a clock that the test sets."""

from __future__ import annotations

import pytest

from motley.rounds import stopwatch
from motley.rounds.stopwatch import Stopwatch


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(stopwatch, "time", found)
    return found


def test_an_inner_part_stops_the_outer_one(clock: Clock) -> None:
    watch = Stopwatch()
    clock.now = 1.0
    with watch("train"):
        clock.now = 3.0
        with watch("write"):
            clock.now = 7.0
        clock.now = 8.0
    clock.now = 20.0
    assert watch.lap() == {"train": 3.0, "write": 4.0}
    assert watch.lap() == {}


def test_the_producer_of_items_is_timed_and_their_use_is_not(clock: Clock) -> None:
    def items():
        for item in range(2):
            clock.now += 0.25
            yield item

    watch = Stopwatch()
    for _ in watch.iterate("train", items()):
        clock.now += 10.0
    assert watch.lap() == {"train": 0.5}
