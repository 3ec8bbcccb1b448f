"""How long runs will still take, from what their rounds took so far: a range, which narrows with
every round.

    whole_i = built_i + (rounds_i) (seconds of the rounds seen) / (rounds seen)
              seconds of run i, known from its first round on
    e_i     = max(0.1, 0.5 / sqrt(rounds seen));  0 for a run that has ended

A run that goes on has ``whole_i - elapsed_i`` left, within ``1 -+ e_i``; one that has not begun
takes between the shortest and the longest of the known ones. Runs share the machine as those do
that go on now. Seconds are wall seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Pace:
    """What is known of the time that one run takes.

    Parameters
    ----------
    rounds: planned; None where the run ends by something else.
    begun_s, built_s, last_s, ended_s: moments, NaN before: when it began, when its first round
    began, when its last round so far was done, when it ended.
    first, last: numbers of the first and the last round that this process has seen; 0 before.
    """

    rounds: int | None
    begun_s: float = math.nan
    built_s: float = math.nan
    last_s: float = math.nan
    ended_s: float = math.nan
    first: int = 0
    last: int = 0

    def done(self, number: int, now_s: float) -> None:
        """Take in that a round is done."""
        self.first = self.first or number
        self.last = number
        self.last_s = now_s

    @property
    def going(self) -> bool:
        """Whether the run has begun and not ended."""
        return math.isfinite(self.begun_s) and not math.isfinite(self.ended_s)

    def whole_s(self) -> tuple[float, float] | None:
        """Return the least and the most seconds from begin to end; None where nothing is known: no
        round was seen."""
        if not self.last:
            return None
        if math.isfinite(self.ended_s):
            return (self.ended_s - self.begun_s,) * 2
        if self.rounds is None:
            return None
        seen = self.last - self.first + 1
        total = (self.rounds - self.first + 1) * (self.last_s - self.built_s) / seen
        error = max(0.1, 0.5 / math.sqrt(seen))
        return tuple(self.built_s - self.begun_s + total * (1 + sign * error) for sign in (-1, 1))  # type: ignore[return-value]


def left_s(paces: Sequence[Pace], now_s: float) -> tuple[float, float] | None:
    """Return the least and the most seconds until all runs have ended; None where that cannot be
    told.

    >>> # 4 rounds in 4 s, within a quarter
    >>> pace = Pace(100, begun_s=0.0, built_s=2.0, last_s=6.0, first=1, last=4)
    >>> left_s([pace], 6.0)
    (71.0, 121.0)
    """
    totals = {
        number: total for number, pace in enumerate(paces) if (total := pace.whole_s()) is not None
    }
    going = [number for number, pace in enumerate(paces) if pace.going]
    waiting = sum(not math.isfinite(pace.begun_s) for pace in paces)
    if not totals or (not going and not waiting):
        return None
    ends = []
    for at, extreme in enumerate((min, max)):
        estimate = extreme(total[at] for total in totals.values())
        left = [
            max(0.0, totals.get(n, (estimate, estimate))[at] - (now_s - paces[n].begun_s))
            for n in going
        ]
        ends.append(max([*left, (sum(left) + waiting * estimate) / max(len(going), 1)]))
    return ends[0], ends[1]


def range_in_words(low_s: float, high_s: float) -> str:
    """Return a range of seconds in words.

    >>> ranges = ((20.0, 50.0), (200.0, 3000.0), (3000.0, 9000.0), (70.0, 80.0))
    >>> print(*(range_in_words(low, high) for low, high in ranges), sep=", ")
    20 to 50 s, 3 to 50 minutes, 0.8 to 2.5 hours, 70 to 80 s
    """
    units = ((1, "s", 0), (60, "minutes", 0), (3600, "hours", 1))
    unit, name, digits = next((unit for unit in units if high_s < 90 * unit[0]), units[-1])
    low, high = (f"{value / unit:.{digits}f}" for value in (low_s, high_s))
    return f"{low} to {high} {name}" if low != high else f"about {high} {name}"
