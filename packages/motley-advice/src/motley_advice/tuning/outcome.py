"""What a study found: trials, the chosen values of each method, and its test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.csv_text import csv_text
from motley.experiments.config import Experiment
from motley.results import measures
from motley.results.load import Run
from motley_advice.tuning.objectives import Objective, ObjectiveValue, mean_value
from motley_advice.tuning.plan import MethodPlan, TuningPlan


@dataclass(frozen=True)
class StepResult:
    """A trial up to one end of successive halving: its objectives on validation samples, each the
    mean over runs, and the share of a whole run that was computed, summed over the runs."""

    objectives: tuple[ObjectiveValue, ...]
    share: float

    def record(self) -> dict[str, Any]:
        """Return JSON values; NaN as None."""
        values = [
            [value.value if isfinite(value.value) else None, value.reached, value.order]
            for value in self.objectives
        ]
        return {"objectives": values, "share": self.share}

    @classmethod
    def of(cls, record: dict[str, Any]) -> StepResult:
        """Return the result of a record."""
        values = [
            ObjectiveValue(nan if v is None else v, reached, order)
            for v, reached, order in record["objectives"]
        ]
        return cls(tuple(values), record["share"])


@dataclass(frozen=True)
class TuningTrial:
    """One trial: its number, its values, and its results up to each end of successive halving to
    which it went."""

    number: int
    values: dict[str, Any]
    steps: tuple[StepResult, ...]

    @property
    def last(self) -> StepResult:
        """The result of the longest run."""
        return self.steps[-1]

    @property
    def run_equivalents(self) -> float:
        """What the trial cost, with one run to its end as the unit."""
        return self.last.share


@dataclass(frozen=True)
class TunedMethod:
    """A method with its chosen values: ``best`` is the trial they come from, ``test`` its runs with
    the test seeds (experiments after each other, in order of seeds)."""

    plan: MethodPlan
    trials: tuple[TuningTrial, ...]
    best: TuningTrial
    test: tuple[Run, ...]

    @property
    def label(self) -> str:
        """The method's label."""
        return self.plan.label

    @property
    def values(self) -> dict[str, Any]:
        """The chosen values by key."""
        return self.best.values

    @property
    def changes(self) -> dict[str, Any]:
        """The keys that make the method, and the chosen values: for
        :meth:`motley.Experiment.replace` or ``over``."""
        return {**self.plan.changes, **self.values}

    @property
    def run_equivalents(self) -> float:
        """What all trials cost, with one run to its end as the unit."""
        return sum(trial.run_equivalents for trial in self.trials)


@dataclass(frozen=True)
class TuningResult:
    """A finished study.

    Parameters
    ----------
    plan: what was asked.
    methods: in the order given.
    directory: the study's folder.
    """

    plan: TuningPlan
    methods: tuple[TunedMethod, ...]
    directory: Path

    def title(self, objective: Objective) -> str:
        """Return the name of an objective; of the headline, that of the task's metric where a run
        says it."""
        run = next((run for method in self.methods for run in method.test), None)
        if str(objective) == "headline" and run is not None:
            return measures.metric_of(run)[0]
        return str(objective)

    def tested(self, method: TunedMethod, objective: Objective) -> list[ObjectiveValue]:
        """Return an objective on test samples for each test seed, the mean over experiments."""
        seeds = self.plan.test_seeds
        by_seed = [[run for run in method.test if run.seed == seed] for seed in seeds]
        return [mean_value([objective.measured(run, "test") for run in runs]) for runs in by_seed]

    def difference(self, method: TunedMethod, objective: Objective) -> measures.Interval:
        """Return the difference to the first method on test samples, paired by seed, with its
        interval, which holds with 95 % together with all others (:attr:`comparisons`); NaN where a
        seed of either has no number, or missed its target."""
        if not self._comparable(method, objective):
            return measures.Interval(nan, nan, nan, 0)
        ours, theirs = (
            [value.value for value in self.tested(each, objective)]
            for each in (method, self.methods[0])
        )
        return measures.paired(ours, theirs, measures.level_together(self.comparisons))

    @cached_property
    def comparisons(self) -> int:
        """How many differences to the first method have an interval, of all methods and
        objectives."""
        pairs = [(method, goal) for method in self.methods[1:] for goal in self.plan.objectives]
        return (
            sum(self._comparable(*pair) for pair in pairs) if len(self.plan.test_seeds) > 1 else 0
        )

    def _comparable(self, method: TunedMethod, objective: Objective) -> bool:
        """Return whether every test seed of a method and of the first has a number."""
        tested = (self.tested(tuned, objective) for tuned in (method, self.methods[0]))
        return all(value.reached and isfinite(value.value) for each in tested for value in each)


def share_of(run: Run, base: Experiment) -> float:
    """Return the share that a run computed of a whole one: of its rounds, else of its virtual
    hours, else all."""
    cost = measures.costs(run)
    stop = base.stop
    if stop.rounds:
        return cost.rounds / stop.rounds
    return min(1.0, cost.time_s / 3600 / stop.virtual_hours) if stop.virtual_hours else 1.0


def best_of(trials: Sequence[TuningTrial], rung: int) -> list[TuningTrial]:
    """Return the trials that were run up to a rung, best first: by the sum of their ranks in all
    objectives, then by the first, then by number."""
    there = [trial for trial in trials if len(trial.steps) > rung]
    orders = np.array([[value.order for value in trial.steps[rung].objectives] for trial in there])
    ranks = [
        sum(int((orders[:, j] < orders[i, j]).sum()) for j in range(orders.shape[1]))
        for i in range(len(there))
    ]
    order = sorted(range(len(there)), key=lambda i: (ranks[i], orders[i, 0], there[i].number))
    return [there[i] for i in order]


def better_before(method: TunedMethod) -> tuple[TuningTrial, int] | None:
    """Return the trial with the best first objective before the end of whole runs, and the rung
    where it was; None where the chosen trial's own end is as good."""
    rungs = [
        (trial, rung)
        for trial in method.trials
        for rung in range(len(method.best.steps) - 1)
        if rung < len(trial.steps)
    ]
    if not rungs:
        return None
    trial, rung = min(rungs, key=lambda pair: pair[0].steps[pair[1]].objectives[0].order)
    better = trial.steps[rung].objectives[0].order < method.best.last.objectives[0].order
    return (trial, rung) if better else None


def trials_csv(result: TuningResult) -> str:
    """Return all trials as CSV: a row per method, trial and end of successive halving."""
    keys = list(dict.fromkeys(key for method in result.methods for key in method.plan.spaces))
    names = [result.title(objective) for objective in result.plan.objectives]
    reached = (f"{name} reached" for name in names)
    rows: list[Sequence[object]] = [
        ["method", "trial", *keys, "share_of_run", *names, *reached, "run_equivalents", "chosen"]
    ]
    for method in result.methods:
        for trial in method.trials:
            for rung, step in enumerate(trial.steps):
                chosen = trial.number == method.best.number and step is trial.last
                rows.append(
                    [
                        method.label,
                        trial.number,
                        *(trial.values.get(key, "") for key in keys),
                        result.plan.halving.shares[rung],
                        *(
                            "diverged" if value.diverged else repr(value.value)
                            for value in step.objectives
                        ),
                        *(int(value.reached) for value in step.objectives),
                        f"{step.share:.6g}",
                        int(chosen),
                    ]
                )
    return csv_text(rows)
