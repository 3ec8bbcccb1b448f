"""How long runs will still take: by hand, and corrected by every round."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from motley.experiments import progress
from motley.experiments.config import Experiment
from motley.experiments.forecast import Pace, left_s
from motley.experiments.progress import ProgressBars, ProgressLog
from motley.rounds.run_config import RoundSummary

EXPERIMENT = Experiment(
    population=6, cohort=2, stop={"rounds": 10}, task="quadratic", partition="by_writer"
)


def after(*rounds_at_s: float, planned: int | None = 10, first: int = 1, **moments: float) -> Pace:
    """A run that began at 0 s, was built after 2 s, and whose rounds were done at these moments."""
    pace = Pace(planned, begun_s=0.0, built_s=2.0, **moments)
    for number, now_s in enumerate(rounds_at_s, first):
        pace.done(number, now_s)
    return pace


def test_the_first_round_is_timed_without_what_was_built_before_it() -> None:
    """One round in 3 s, within a half: 2 + 10 * 3 * (0.5 or 1.5) = 17 or 47 s, of which 5 are
    over."""
    assert left_s([after(5.0)], 5.0) == (12.0, 42.0)


def test_more_rounds_correct_and_narrow_it() -> None:
    """The first round was slow: four in 8 s, within 0.5 / sqrt(4): 2 + 20 * (0.75 or 1.25) = 17 or
    27 s, of which 10 are over."""
    assert left_s([after(5.0, 6.0, 8.0, 10.0)], 10.0) == (7.0, 17.0)


def test_a_run_that_goes_on_again_counts_its_own_rounds() -> None:
    """Rounds 7 and 8 of 10 took 2 s: four rounds from the seventh on, 2 + 4 (1 -+ 0.5 / sqrt 2)."""
    low, high = left_s([after(3.0, 4.0, first=7)], 4.0) or (math.nan, math.nan)
    assert (low, high) == pytest.approx((2.0 - 4 * 0.5 / 2**0.5, 2.0 + 4 * 0.5 / 2**0.5))


def test_runs_that_have_not_begun_take_between_the_shortest_and_the_longest() -> None:
    """Two ended after 20 and 30 s, one was loaded, and goes for nothing; two wait: 40 to 60 s one
    after the other."""
    ended = [
        after(20.0, ended_s=20.0),
        after(30.0, ended_s=30.0),
        Pace(10, begun_s=0.0, ended_s=0.1),
    ]
    waiting = [Pace(10), Pace(10)]
    assert left_s([*ended, *waiting], 30.0) == (40.0, 60.0)
    # both at once: all that is left is shared
    going = [Pace(10, begun_s=30.0), Pace(10, begun_s=30.0)]
    assert left_s([*ended, *going, *waiting], 30.0) == (40.0, 60.0)


@pytest.mark.parametrize(
    "paces",
    [[Pace(10)], [Pace(10, begun_s=0.0)], [after(3.0, planned=None)], [after(20.0, ended_s=20.0)]],
    ids=range(4),
)
def test_nothing_is_said_before_a_round_or_without_an_end_or_at_the_end(paces: list[Pace]) -> None:
    assert left_s(paces, 3.0) is None


@pytest.mark.parametrize("kind", [ProgressBars, ProgressLog])
def test_a_display_says_the_range_of_all_runs(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of ten rounds; the first round of one took 3 s after 2 s of preparations: 17 to 47 s
    for each, 5 are over."""
    now = [0.0]
    monkeypatch.setattr(
        progress, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])})
    )
    out = io.StringIO()
    shown = kind(
        [EXPERIMENT] * 2,
        ["a", "b"],
        Console(file=out, force_terminal=True, width=120, color_system=None),
    )
    shown.start(0)
    assert shown.left() == ""
    now[0] = 2.0
    shown.run(0).begin("loss", lambda: "")
    now[0] = 5.0
    shown.run(0).round(
        RoundSummary(round=1, time_s=1.0, accepted=2, train_loss=1.0, score=0.5, selections=1)
    )
    assert shown.left() == "29 to 89 s left"
