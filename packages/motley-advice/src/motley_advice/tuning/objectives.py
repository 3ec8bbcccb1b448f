"""Objectives: what a trial is judged by, on validation samples, and the same measured on test
samples at the end.

``accuracy`` (or another metric of the task), ``worst_tenth``, ``time_to:0.8`` in virtual seconds,
``traffic_to:0.8`` in MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Literal

import numpy as np

from motley.core.errors import ConfigError, suggest
from motley.results import measures
from motley.results.fairness import client_values
from motley.results.load import Run
from motley.results.number_text import MB

DIVERGED = 1e12
"""Order of a trial without a number, or with a larger loss than this: behind every other."""
MISSED = 1e9
"""Order of a trial that missed its target by nothing: behind every one that reached it."""
_FARTHER = 1e-3
"""How much larger, as a share, the order of a missed target is at most, whatever its distance: runs
that missed are counted first, and losses in any unit lie before those that diverged."""
Samples = Literal["validation", "test"]
_COSTS = {"time_to": ("seconds", 1.0, "s"), "traffic_to": ("bits", MB, "MB")}


@dataclass(frozen=True)
class ObjectiveValue:
    """What one objective is in one run, or in the mean of several.

    Parameters
    ----------
    value: the metric, or the cost up to the target; NaN where training diverged.
    reached: whether there is a target that was missed (False), so that ``value`` is a lower bound.
    order: what is compared; smaller is better.
    """

    value: float
    reached: bool
    order: float

    @property
    def diverged(self) -> bool:
        """Whether training gave no number."""
        return self.order >= DIVERGED


@dataclass(frozen=True)
class Objective:
    """What is compared. ``metric``: None for the task's headline. ``target``: of a cost, as a share
    where the metric is one."""

    kind: Literal["metric", "worst_tenth", "time_to", "traffic_to"] = "metric"
    metric: str | None = None
    target: float = nan

    def __str__(self) -> str:
        if self.kind in _COSTS:
            return f"{self.kind}:{self.target:g}"
        return self.metric or self.kind.replace("metric", "headline")

    @property
    def unit(self) -> str:
        """Unit of a cost; empty for a metric."""
        return _COSTS[self.kind][2] if self.kind in _COSTS else ""

    def measured(self, run: Run, samples: Samples) -> ObjectiveValue:
        """Return the objective of a run: a metric in the mean of its last ten evaluations, the
        worst tenth of clients at its last evaluation, a cost up to the first evaluation at the
        target. Of a run that ended in ruin the first two are no number."""
        better = measures.better_of(run, self.metric or measures.metric_of(run)[0])
        if self.kind in _COSTS:
            return self._cost(run, samples, better)
        if measures.ruined(run, self.metric, _scope(run, samples)):
            return ObjectiveValue(nan, True, DIVERGED)
        if self.kind == "worst_tenth":
            clients = client_values(run, "client" if samples == "test" else "validation_client")
            value = measures.fairness(clients, better).worst_decile
        else:
            value = measures.ends(self._curve(run, samples, "round"), better).last_ten
        order = -value if better else value
        if order < DIVERGED:
            return ObjectiveValue(value, True, order)
        return ObjectiveValue(nan, True, DIVERGED)

    def _curve(self, run: Run, samples: Samples, axis: measures.Axis) -> measures.Curve:
        along = measures.curve(run, axis, self.metric, _scope(run, samples))
        return measures.trained(along) if axis == "round" else along

    def _cost(self, run: Run, samples: Samples, better: bool) -> ObjectiveValue:
        axis, scale, _ = _COSTS[self.kind]
        along = self._curve(run, samples, axis)  # type: ignore[arg-type]
        if not len(self._curve(run, samples, "round").y):
            return ObjectiveValue(nan, False, DIVERGED)
        cost = measures.until_target(
            run,
            axis,  # type: ignore[arg-type]
            self.target,
            scope=_scope(run, samples),
        )
        best = float(along.y.max() if better else along.y.min())
        distance = abs(self.target - best)
        return ObjectiveValue(
            cost.value / scale,
            cost.reached,
            cost.value / scale
            if cost.reached
            else MISSED * (1 + _FARTHER * distance / (1 + distance)),
        )


def _scope(run: Run, samples: Samples) -> str:
    """Return the scope of the headline, on test or on validation samples."""
    scope = measures.written_scope(run)
    if samples == "test":
        return scope
    return "validation" if scope == "global" else "validation_mean"


def mean_value(values: Sequence[ObjectiveValue]) -> ObjectiveValue:
    """Return the mean over runs: diverged where one did; a lower bound where one missed the target,
    and then ordered by how many runs missed it, and by how far."""
    mean = float(np.mean([value.value for value in values]))
    if any(value.diverged for value in values):
        return ObjectiveValue(nan, False, DIVERGED)
    if all(value.reached for value in values):
        return ObjectiveValue(mean, True, float(np.mean([value.order for value in values])))
    return ObjectiveValue(
        mean, False, float(np.sum([value.order for value in values if not value.reached]))
    )


def parse_objective(text: str) -> Objective:
    """Return the objective of a text.

    Raises
    ------
    ConfigError: a cost without a target, or a name that is no word.

    Example
    -------
    >>> str(parse_objective("time_to:0.8")), parse_objective("accuracy").metric
    ('time_to:0.8', 'accuracy')
    """
    kind, colon, target = (piece.strip() for piece in str(text).partition(":"))
    if kind in _COSTS:
        try:
            number = float(target)
        except ValueError:
            number = nan
        if not isfinite(number):
            raise ConfigError(
                f"got {text!r}; expected a target after a colon, e.g. {kind}:0.8", "objective"
            )
        return Objective("time_to" if kind == "time_to" else "traffic_to", None, number)
    if colon:
        near = suggest(kind, _COSTS)
        raise ConfigError(
            f"got {text!r}{near}; expected a metric, worst_tenth, time_to:0.8 or traffic_to:0.8",
            "objective",
        )
    if kind == "worst_tenth":
        return Objective("worst_tenth")
    return Objective("metric", None if kind == "headline" else kind)
