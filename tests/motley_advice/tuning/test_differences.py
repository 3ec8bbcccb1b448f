"""The differences that a study shows: paired by test seed, their intervals together."""

from math import nan
from pathlib import Path
from types import SimpleNamespace

import pytest

from motley.results.measures import paired
from motley_advice.tuning.objectives import DIVERGED, ObjectiveValue
from motley_advice.tuning.outcome import TuningResult
from motley_advice.tuning.results import results_table

GAINS = {"first": (0, 0, 0), "sure": (10, 12, 14), "near": (8, 12, 16), "lost": (1, 2, None)}


class Goal:
    """An objective whose value a run carries; None is a missed target."""

    unit = ""

    def measured(self, run, part):
        return ObjectiveValue(float(run.value or 0), reached=run.value is not None, order=0.0)

    def __str__(self):
        return "points"


def study(*labels):
    """A study with three test seeds of these methods."""
    goal = Goal()
    step = SimpleNamespace(objectives=(ObjectiveValue(0.0, reached=True, order=0.0),))
    methods = tuple(
        SimpleNamespace(
            label=label,
            values={},
            run_equivalents=1.0,
            best=SimpleNamespace(last=step),
            test=[SimpleNamespace(seed=s, value=v) for s, v in enumerate(GAINS[label])],
        )
        for label in labels
    )
    plan = SimpleNamespace(test_seeds=(0, 1, 2), objectives=(goal,))
    return TuningResult(plan, methods, Path("study"))


def test_intervals_hold_together_over_the_differences_that_there_are():
    """Two of three methods have one: t(1 - .05 / 4, 2) = 6.205347, times 2 / sqrt(3) is 7.1653."""
    found = study("first", "sure", "near", "lost")
    assert found.comparisons == 2
    got = found.difference(found.methods[1], found.plan.objectives[0])
    assert (got.mean, got.low) == pytest.approx((12, 12 - 7.1653), abs=1e-4)
    assert found.difference(found.methods[3], found.plan.objectives[0]).n == 0
    table = results_table(found)
    assert "The 95 % intervals of the 2 comparisons hold together (Bonferroni)." in table.note
    assert table.rows[1].cells[3].text == "+12.0000 (+4.8347 to +19.1653)"


def test_of_one_difference_there_is_nothing_to_say():
    found = study("first", "sure")
    got = found.difference(found.methods[1], found.plan.objectives[0])
    assert got == paired([10, 12, 14], [0, 0, 0])
    assert "together" not in results_table(found).note


def test_a_mean_of_which_a_seed_missed_the_target_has_no_interval():
    """Seeds 1, 2 and a missed 0 have the mean 1, a lower bound; one that diverged has no mean."""
    table = results_table(study("first", "sure", "lost"))
    tested = [row.cells[2].text for row in table.rows[1:]]
    assert tested == ["12.0000 (7.0317 to 16.9683)", "> 1.0000"]
    found = study("first", "lost")
    found.plan.objectives[0].measured = lambda run, part: (
        ObjectiveValue(nan, reached=False, order=DIVERGED)
        if run.value is None
        else ObjectiveValue(float(run.value), reached=True, order=0.0)
    )
    assert results_table(found).rows[1].cells[2].text == "diverged"
