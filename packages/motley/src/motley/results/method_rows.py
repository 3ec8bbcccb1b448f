"""A method over its seeds: the numbers that columns show, made of the tables of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite, nan
from typing import Literal

import numpy as np
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.results import measures
from motley.results.aspects import ComparedMethod, pairs_of
from motley.results.load import Run
from motley.results.measures import Censored, Spread
from motley.results.method_groups import plain_intervals, reference_of
from motley.results.new_clients import served_new
from motley.results.recorded_metrics import metric_in_text

_AXES: dict[str, measures.Axis] = {
    "rounds": "round",
    "selections": "selections",
    "time_s": "seconds",
    "paper_bits": "paper_bits",
    "total_bits": "bits",
}
"""Costs of whole runs that are also known up to each evaluation, and the axis of a curve that they
are."""


@dataclass(frozen=True)
class Until:
    """A cost up to a target, of each seed, in units of ``size``: a lower bound where the seed never
    reached it."""

    each: tuple[Censored, ...]
    size: float = 1.0

    @property
    def mean(self) -> Censored:
        """The mean over seeds, a lower bound as soon as one seed's is."""
        mean = measures.target_spread(self.each)
        return Censored(mean.value / self.size, mean.reached)

    @property
    def spread(self) -> Spread:
        """Mean and deviation over seeds."""
        return measures.spread([until.value / self.size for until in self.each])


class MethodRow:
    """A method over its seeds. Nothing is computed before it is asked for.

    Parameters
    ----------
    label: of the method.
    runs: one per seed, one at least.
    """

    def __init__(self, label: str, runs: Sequence[Run]) -> None:
        self.label = label
        self.runs = runs
        self.seeds = tuple(run.seed for run in runs)
        self.percent = measures.percent_of(runs[0])

    @cached_property
    def _ends(self) -> list[measures.Ends]:
        return [measures.ends_of(run) for run in self.runs]

    @cached_property
    def _by_validation(self) -> list[float]:
        return [measures.by_validation(run) for run in self.runs]

    @cached_property
    def spent(self) -> tuple[measures.Costs, ...]:
        """The costs of each run."""
        return tuple(measures.costs(run) for run in self.runs)

    @cached_property
    def _served(self) -> list[measures.Fairness]:
        better = measures.metric_of(self.runs[0])[1]
        return [
            measures.fairness(self.percent * measures.client_metric(run), better)
            for run in self.runs
        ]

    @cached_property
    def _took_part(self) -> list[measures.Participation]:
        return [measures.participation(run) for run in self.runs]

    def end(self, kind: str) -> Spread:
        """Return the ``final``, ``peak``, ``stable``, ``drop`` or ``by_validation`` of the headline
        metric, in percent where it is a share; no *stable* where a seed has none, and no end but
        the peak where a seed ended in ruin."""
        if kind == "by_validation":
            values = self._by_validation
        else:
            values = [getattr(end, kind) for end in self._ends]
        scaled = [self.percent * value for value in values]
        over_all = kind == "stable" or (kind in ("final", "drop") and bool(self.ruined))
        return _of_all(scaled) if over_all else measures.spread(scaled)

    @cached_property
    def ruined(self) -> list[int]:
        """The seeds of the runs that ended in ruin."""
        return [run.seed for run in self.runs if measures.ruined(run)]

    def cost(self, kind: str, size: float = 1.0) -> Spread | Until:
        """Return a field of :class:`motley.results.measures.Costs` over ``size``."""
        return measures.spread([getattr(costs, kind) / size for costs in self.spent])

    def served(self, kind: str) -> Spread:
        """Return a field of :class:`motley.results.measures.Fairness` at the last evaluation that
        has clients, in percent where the metric is a share."""
        return measures.spread_at_end([getattr(served, kind) for served in self._served], self.runs)

    def took_part(self, kind: str) -> Spread:
        """Return a field of :class:`motley.results.measures.Participation`; the round after which
        all were seen only where every seed has one."""
        values = [getattr(participation, kind) for participation in self._took_part]
        return _of_all(values) if kind == "all_seen" else measures.spread(values)

    def new_clients(self, epochs: int) -> tuple[Spread, Spread]:
        """Return the mean over new clients after epochs of adaptation, and that of their worst
        tenth."""
        return served_new(self.runs, epochs)

    @cached_property
    def liars(self) -> Spread:
        """The share of those sent out that lied, in percent."""
        return measures.spread([100.0 * _liar_share(run) for run in self.runs])

    @property
    def concentration(self) -> float:
        """The mean over rounds, then seeds, of the deviation over mean of the rule's
        probabilities; NaN where it does not draw by any."""
        drawn = [np.mean(c.y) for c in map(measures.concentration, self.runs) if len(c.y)]
        return float(np.mean(drawn)) if drawn else nan

    def milliseconds(self, kind: str) -> float:
        """Return the mean of a column of ``timings`` over the rounds of all seeds, in ms; NaN where
        nothing was timed."""
        seconds = np.concatenate(
            [np.asarray(run.column("timings", kind), float) for run in self.runs]
        )
        return 1e3 * float(np.nanmean(seconds)) if np.isfinite(seconds).any() else nan


def _liar_share(run: Run) -> float:
    """Return which share of the clients that were sent out lied; NaN where the world has no
    dishonest clients."""
    liars = measures.note(run, "liars")
    rounds, selected = (
        np.asarray(run.column("rounds", name), float) for name in ("round", "selected")
    )
    chosen = float(np.nansum(selected[np.isin(rounds, liars.x)]))
    return float(liars.y.sum()) / chosen if chosen else float("nan")


def method_rows(groups: Mapping[str, Sequence[Run]]) -> list[MethodRow]:
    """Return one row per method of ``groups`` (label to runs), in their order."""
    return [MethodRow(label, runs) for label, runs in groups.items()]


def _of_all(values: Sequence[float]) -> Spread:
    """Return mean and deviation; NaN where a seed has no number, for they would be those of other
    seeds than elsewhere."""
    return measures.spread(values if all(map(isfinite, values)) else [nan] * len(values))


class TargetRow(MethodRow):
    """A method whose costs are those up to its first evaluation on ``target``."""

    def __init__(self, label: str, runs: Sequence[Run], target: float) -> None:
        super().__init__(label, runs)
        self.target = target

    @override
    def cost(self, kind: str, size: float = 1.0) -> Until:
        """Return rounds, selections, ``time_s``, ``paper_bits`` or ``total_bits`` up to the target,
        over ``size``."""
        each = [measures.until_target(run, _AXES[kind], self.target) for run in self.runs]
        return Until(tuple(each), size)

    @property
    def there(self) -> int:
        """How many of the runs reached the target."""
        return sum(until.reached for until in self.cost("rounds").each)


@dataclass(frozen=True)
class MetricRow:
    """One metric of a method over its seeds, shares in percent: at the end and at its best in the
    headline's scope, then at the end over all clients' test samples and over the worst tenth of the
    clients. ``undefined``: for how many clients it is (a mean)."""

    metric: str
    numbers: tuple[Spread, Spread, Spread, Spread]
    undefined: float
    percent: float = 1.0

    @property
    def named(self) -> str:
        """The metric with its unit."""
        name = metric_in_text(self.metric)
        return f"{name} (%)" if self.percent > 1 else name


def metric_rows(runs: Sequence[Run]) -> list[MetricRow]:
    """Return a row for each metric of a method's runs, the headline first; none where the headline
    is the only one."""
    names = measures.metrics_of(runs[0])
    rows = []
    for name in names if len(names) > 1 else ():
        percent = measures.percent_of(runs[0], name)
        better = measures.better_of(runs[0], name)
        ends = [measures.ends_of(run, name) for run in runs]
        served = [
            measures.fairness(percent * measures.client_metric(run, name), better) for run in runs
        ]
        pooled = [measures.pooled(run, name) for run in runs]
        at_end = partial(
            measures.spread_at_end, runs=runs, metric=name, scope=measures.written_scope(runs[0])
        )
        spreads = (
            at_end([percent * end.final for end in ends]),
            measures.spread([percent * end.peak for end in ends]),
            at_end([percent * mean.value for mean in pooled]),
            at_end([served_run.worst_decile for served_run in served]),
        )
        undefined = measures.spread([mean.undefined for mean in pooled]).mean
        rows.append(MetricRow(name, spreads, undefined, percent))
    return rows


@dataclass(frozen=True)
class Difference:
    """A method against ``base`` at one end of their curves, paired by seed; in percentage points
    where the metric is an accuracy."""

    label: str
    base: str
    end: End
    interval: measures.Interval
    percent: float
    verdict: Verdict


Verdict = Literal["better", "worse", "no clear difference", "not estimable"]
End = Literal["stable", "final"]
"""The end of a curve by which methods are compared."""
JUDGED: Mapping[End, str] = {
    "stable": "mean of the last ten evaluations",
    "final": "last evaluation",
}
"""It in words."""
NO_STABLE = "no stable value (–) where a run has fewer than ten evaluations past its half"


def differences(groups: Mapping[str, Sequence[Run]]) -> list[Difference]:
    """Return every method against its reference (:func:`references`), by *stable* where every
    finished run has it, else by *final*. The intervals hold together
    (:func:`~motley.results.measures.level_together`), unless ``groups`` asks for plain ones.

    Methods without two seeds that are finished in both are left out.
    """
    first = next(iter(groups.values()))[0]
    better = measures.metric_of(first)[1]
    percent = measures.percent_of(first)
    found_ends = {
        label: {run.seed: measures.ends_of(run) for run in runs if run.finished}
        for label, runs in groups.items()
    }
    finite = [
        run_ends
        for each in found_ends.values()
        for run_ends in each.values()
        if isfinite(run_ends.final)
    ]
    end: End = "stable" if all(isfinite(run_ends.stable) for run_ends in finite) else "final"
    ends = {
        label: {seed: percent * getattr(run_ends, end) for seed, run_ends in each.items()}
        for label, each in found_ends.items()
    }
    bases = references(groups)
    common = {
        label: [
            seed
            for seed in sorted(ends[label])
            if isfinite(ends[label][seed] - ends[base].get(seed, nan))
        ]
        for label, base in bases.items()
    }
    compared = {label: seeds for label, seeds in common.items() if len(seeds) > 1}
    level = measures.level_together(1 if plain_intervals(groups) else len(compared))
    compared_rows = []
    for label, seeds in compared.items():
        base = bases[label]
        ours, theirs = ([ends[method][seed] for seed in seeds] for method in (label, base))
        interval = measures.paired(ours, theirs, level)
        compared_rows.append(
            Difference(
                label=label,
                base=base,
                end=end,
                interval=interval,
                percent=percent,
                verdict=_verdict(interval, better),
            )
        )
    return compared_rows


def references(groups: Mapping[str, Sequence[Run]]) -> dict[str, str]:
    """Return the label of each method that is compared -> that of its reference, which has the same
    data, clients and devices. Where these alone differ (:func:`only_worlds_differ`), it is one
    reference for all."""
    base = reference_of(groups)
    if only_worlds_differ(groups):
        return {label: base for label in groups if label != base}
    pairs = pairs_of(_compared_methods(groups), base)
    return {pair.method.label: pair.reference.label for pair in pairs if not pair.world}


def only_worlds_differ(groups: Mapping[str, Sequence[Run]]) -> bool:
    """Return whether all methods are one method on several data, clients or devices, which are then
    what is compared."""
    methods = _compared_methods(groups)
    first = methods[0]
    return any(method.world != first.world for method in methods) and all(
        method.same_algorithm(first) and not method.differing(first) for method in methods
    )


def not_compared(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return the sentence about the methods on data, clients or devices that no other method has;
    empty where each has another beside it."""
    bases = references(groups)
    alone = [label for label in groups if label not in {*bases, *bases.values()}]
    if not alone or len(groups) < 2:
        return ""
    verb = "is" if len(alone) == 1 else "are"
    return (
        f"{'; '.join(alone)} {verb} not compared: no other method has the same data, clients and "
        "devices."
    )


def ruined_seeds(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return the sentence about the runs that ended in ruin and are in no pair; empty without."""
    rows = [row for row in method_rows(groups) if row.ruined]
    if not rows:
        return ""
    named = "; ".join(f"{row.label}, seed {', '.join(map(str, row.ruined))}" for row in rows)
    return (
        f"In no pair, for their loss was not finite at the end: {named}. What is left flatters "
        "such a method."
    )


def _compared_methods(groups: Mapping[str, Sequence[Run]]) -> list[ComparedMethod]:
    return [
        ComparedMethod.of(label, runs[0].config, bool(runs[0].meta.get("personal")))
        for label, runs in groups.items()
    ]


def _verdict(interval: measures.Interval, higher_is_better: bool) -> Verdict:
    if not isfinite(interval.low):
        return "not estimable" if interval.mean else "no clear difference"
    if interval.low <= 0 <= interval.high:
        return "no clear difference"
    return "better" if (interval.mean > 0) == higher_is_better else "worse"


def all_alike(compared: Sequence[Difference]) -> str:
    """Return the sentence about the differences that have no interval; empty where all have one."""
    labels = [difference.label for difference in compared if not isfinite(difference.interval.low)]
    if not labels:
        return ""
    return (
        f"No interval of {'; '.join(labels)} can be estimated: all seeds differ by the same, which "
        "happens by chance where few seeds are tested on few samples; add seeds."
    )


def intervals_in_words(comparisons: int, plain: bool = False) -> str:
    """Return the sentence that says of how many comparisons the intervals of a table hold together,
    or that they do not (``plain``); empty for one comparison, of which there is nothing to say."""
    if comparisons < 2:
        return ""
    if plain:
        return (
            f"Plain 95 % intervals, each of one comparison alone: of {comparisons}, one or more "
            "miss more often than 5 %."
        )
    return f"The 95 % intervals of the {comparisons} comparisons hold together (Bonferroni)."


def target_of(run: Run, target: float | None = None) -> float | None:
    """Return ``target``, else the run's own ``stop.target``, else None.

    Raises
    ------
    ConfigError: no share, where the metric is an accuracy; not positive.
    """
    metric = measures.metric_of(run)[0]
    if target is None:
        own = ((run.config.get("stop") or {}).get("target") or {}).get(metric)
        return None if own is None else float(own)
    share = measures.percent_of(run) > 1
    if not 0 < target <= (1.0 if share else float("inf")):
        wanted = "a share above 0 and at most 1, e.g. 0.9" if share else "a positive number"
        raise ConfigError(f"got {target:g} for {metric}; expected {wanted}", "target")
    return float(target)
