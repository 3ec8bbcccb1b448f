"""Measures of runs, computed from their tables alone.

Curves and their ends, time to a target (censored, never dropped), fairness between clients,
participation, costs, and what several seeds say together. The sign convention: a *drop* is how much
worse the end is than the best, so positive is bad whether the metric is an accuracy or a loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Floats
from motley.core.errors import ConfigError
from motley.results.fairness import (
    Fairness,
    Gains,
    by_group,
    client_gains,
    client_metric,
    fairness,
    gains,
    over_samples,
)
from motley.results.load import Run
from motley.results.record import read_note
from motley.results.recorded_metrics import (
    Pooled,
    better_of,
    headline_scope,
    metric_of,
    metrics_of,
    percent_of,
    pooled,
    rows_of,
    written_scope,
)

__all__ = [
    "AXES",
    "Band",
    "Censored",
    "Costs",
    "Curve",
    "Ends",
    "Fairness",
    "Gains",
    "Interval",
    "Participation",
    "Pooled",
    "Shares",
    "Spread",
    "band",
    "best_mu",
    "better_of",
    "by_group",
    "by_validation",
    "choice_notes",
    "client_gains",
    "client_metric",
    "concentration",
    "costs",
    "curve",
    "ends",
    "ends_of",
    "fairness",
    "gains",
    "gini",
    "grouped_notes",
    "headline_scope",
    "interval",
    "level_together",
    "metric_of",
    "metrics_of",
    "note",
    "over_samples",
    "paired",
    "participation",
    "percent_of",
    "pooled",
    "rows_of",
    "ruined",
    "shares",
    "spread",
    "spread_at_end",
    "stepwise",
    "target_spread",
    "to_target",
    "trained",
    "until_target",
    "written_scope",
]

Axis = Literal["round", "selections", "seconds", "paper_seconds", "bits", "paper_bits"]
AXES: dict[str, str] = {
    "round": "round",
    "selections": "selections",
    "seconds": "time_s",
    "paper_seconds": "paper_s",
    "bits": "total_bits",
    "paper_bits": "total_up_paper_bits",
}
"""What a curve may be drawn against, and the column of ``evaluations`` that holds it."""
STABLE = 10
"""*Stable* is the mean of this many last evaluations (arXiv:2508.06692), where all of them are past
half of the run."""


@dataclass(frozen=True)
class Curve:
    """A metric at the evaluations of one run: ``x`` [k] not decreasing, ``y`` [k]."""

    x: Floats
    y: Floats


def curve(
    run: Run,
    axis: Axis = "round",
    metric: str | None = None,
    scope: str | None = None,
    *,
    untrained: bool = True,
) -> Curve:
    """Return the headline metric against rounds, selections, virtual seconds or bits sent;
    evaluations without a number are left out.

    Parameters
    ----------
    metric: another metric.
    scope: another scope with one row per evaluation, e.g. ``"validation"``.
    untrained: whether round 0, the evaluation of the model that no round has trained yet, is among
    them; it may have cost time and bits.

    Raises
    ------
    ConfigError: another axis, or a scope with a row for each client.
    """
    if axis not in AXES:
        raise ConfigError(f"a curve is drawn against one of {', '.join(AXES)}, got {axis!r}")
    rows, column = rows_of(run, metric or metric_of(run)[0], scope or written_scope(run))
    if any(client is not None and client >= 0 for client in rows["client"].to_pylist()):
        raise ConfigError(
            f"got the scope {scope!r}, which has a figure for each client; expected one of all "
            'clients together, e.g. "mean"'
        )
    x = np.asarray(rows[AXES[axis]].to_numpy(), float)
    y = np.asarray(rows[column].to_numpy(), float)
    keep = np.isfinite(y) & np.isfinite(x)
    if not untrained:
        keep &= np.asarray(rows["round"].to_numpy(), float) > 0
    order = np.argsort(x[keep], kind="stable")
    return Curve(x[keep][order], y[keep][order])


@dataclass(frozen=True)
class Ends:
    """The end of a curve: last value, best value, loss since the best, mean and standard deviation
    (n - 1) of the last ten values (of all, where there are fewer), and that mean again as
    ``stable``, NaN where not all ten are past half of the run."""

    final: float
    peak: float
    stable: float
    drop: float
    last_ten: float
    deviation: float


def ends(along: Curve, higher_is_better: bool = True) -> Ends:
    """Return the ends of a curve over rounds, whose last round is the end of the run; NaN if it is
    empty, and a deviation of fewer than two values."""
    values = along.y
    if not len(values):
        return Ends(*[float("nan")] * 6)
    final = float(values[-1])
    peak = float(values.max() if higher_is_better else values.min())
    last = values[-STABLE:]
    mean = float(last.mean())
    deviation = float(last.std(ddof=1)) if len(last) > 1 else float("nan")
    enough = np.count_nonzero(along.x > along.x[-1] / 2) >= STABLE
    drop = peak - final if higher_is_better else final - peak
    return Ends(
        final=final,
        peak=peak,
        stable=mean if enough else float("nan"),
        drop=drop,
        last_ten=mean,
        deviation=deviation,
    )


def by_validation(run: Run) -> float:
    """Return the headline metric at the best round by validation, as the run itself picked it: the
    first with the best value among the evaluations that ``evaluate.every`` asks for, round 0 left
    out; NaN without validation samples."""
    held = curve(run, scope="validation" if written_scope(run) == "global" else "validation_mean")
    every = int((run.config.get("evaluate") or {}).get("every") or 1)
    counts = (held.x > 0) & (held.x % every == 0)
    along = curve(run)
    if not counts.any():
        return float("nan")
    values = held.y[counts] if metric_of(run)[1] else -held.y[counts]
    there = along.y[along.x == held.x[counts][np.argmax(values)]]
    return float(there[0]) if len(there) else float("nan")


def ends_of(run: Run, metric: str | None = None) -> Ends:
    """Return the ends of the run's headline metric (or ``metric``) after round 0, the evaluation of
    the model that no round has trained yet; NaN where there is no other. A run that ended in ruin
    (:func:`ruined`) has its best value alone."""
    run_ends = ends(trained(curve(run, metric=metric)), better_of(run, metric or metric_of(run)[0]))
    none = float("nan")
    return Ends(none, run_ends.peak, *[none] * 4) if ruined(run, metric) else run_ends


def ruined(run: Run, metric: str | None = None, scope: str | None = None) -> bool:
    """Return whether neither the headline metric (or ``metric``) nor the loss is a finite number at
    the last evaluation of a simulation, in the headline's scope or in ``scope``: what it was before
    is not how the run ended."""
    if run.deployed:
        return False
    last = []
    scope = scope or written_scope(run)
    for name in (metric or metric_of(run)[0], "loss"):
        rows, column = rows_of(run, name, scope)
        values = np.asarray(rows[column].to_numpy(), float)
        at = np.asarray(rows["round"].to_numpy())
        last.append(values[at == at.max()] if len(at) else np.zeros(1))
    return not any(np.isfinite(values).any() for values in last)


def spread_at_end(
    values: Sequence[float], runs: Sequence[Run], metric: str | None = None, scope: str = "mean"
) -> Spread:
    """Return mean and standard deviation over seeds of a figure at the end of runs; NaN where one
    of them ended in ruin (:func:`ruined`), for the clients and seeds that are left would flatter
    the method.

    Parameters
    ----------
    values: one for each run.
    metric, scope: by which a run is ruined; a run without such rows is not.
    """
    lost = any(ruined(run, metric, scope) for run in runs)
    return spread([float("nan")] * len(values) if lost else values)


def trained(along: Curve) -> Curve:
    """Return a curve over rounds without its point at 0, the model before training."""
    later = along.x > 0
    return Curve(along.x[later], along.y[later])


@dataclass(frozen=True)
class Censored:
    """A cost that may be censored: ``value`` is exact when ``reached``, else a lower bound."""

    value: float
    reached: bool

    def __str__(self) -> str:
        return f"{self.value:g}" if self.reached else f"> {self.value:g}"


def to_target(along: Curve, target: float, higher_is_better: bool = True) -> Censored:
    """Return the first ``x`` at which the curve is at ``target`` or better; when it never is, its
    last ``x``, censored."""
    hit = np.flatnonzero(along.y >= target if higher_is_better else along.y <= target)
    if len(hit):
        return Censored(float(along.x[hit[0]]), True)
    return Censored(float(along.x[-1]) if len(along.x) else float("nan"), False)


def until_target(
    run: Run, axis: Axis, target: float, *, scope: str | None = None, untrained: bool = True
) -> Censored:
    """Return what a run had spent at its first evaluation with the headline at ``target`` or
    better; one that has no such evaluation counts with all that it spent, censored. ``scope``,
    ``untrained``: as of :func:`curve`."""
    along = curve(run, axis, scope=scope, untrained=untrained)
    until = to_target(along, target, metric_of(run)[1])
    spent = [until.value, *np.asarray(run.column("rounds", AXES[axis])[-1:], float)]
    return until if until.reached else Censored(float(np.fmax.reduce(spent)), False)


def target_spread(costs: Sequence[Censored]) -> Censored:
    """Return the mean over seeds; censored (a lower bound) as soon as one seed is; NaN and censored
    for no seeds."""
    if not costs:
        return Censored(float("nan"), False)
    return Censored(float(np.mean([c.value for c in costs])), all(c.reached for c in costs))


@dataclass(frozen=True)
class Participation:
    """How often each client took part (accepted): ``counts`` [N] in order of id, their standard
    deviation and Gini index, how many took part at all, and the round after which everybody had
    (NaN if that never came)."""

    counts: NDArray[np.int64]
    std: float
    gini: float
    seen: int
    all_seen: float


def participation(run: Run) -> Participation:
    """Return the participation of all clients of the federation, also of those never selected, but
    for those held out."""
    took_part = run.column("clients", "outcome") == "accepted"
    clients = np.asarray(run.column("clients", "client")[took_part], np.int64)
    ids = np.asarray(run.column("federation", "client"), np.int64)
    if len(ids):
        ids = ids[np.asarray(run.column("federation", "held_out"), float) != 1]
    else:
        ids = np.arange(
            max(int(run.config.get("population") or 0), int(clients.max(initial=-1)) + 1)
        )
    ids = np.union1d(ids, clients)
    counts = np.bincount(np.searchsorted(ids, clients), minlength=len(ids)).astype(np.int64)
    seen = int(np.count_nonzero(counts))
    first = np.unique(clients, return_index=True)[1]  # rows lie in order of rounds
    rounds = np.asarray(run.column("clients", "round")[took_part], float)
    all_seen = float(rounds[first].max()) if seen and seen == len(counts) else float("nan")
    return Participation(
        counts=counts,
        std=float(counts.std()) if len(counts) else float("nan"),
        gini=gini(counts),
        seen=seen,
        all_seen=all_seen,
    )


def concentration(run: Run) -> Curve:
    """Return the coefficient of variation of the selection probabilities in each round, 0 when all
    are equal.

    Rules that draw by explicit probabilities note it as ``cv_probability``; for others the curve is
    empty.
    """
    return note(run, "cv_probability")


def note(run: Run, name: str) -> Curve:
    """Return one of the notes of ``rounds`` as a curve over the rounds that have it,
    ``note(run, "max_probability")``; an empty one where none has."""
    return _note(run, _notes(run), name)


def grouped_notes(run: Run) -> dict[str, dict[str, Curve]]:
    """Return the notes of all rounds, grouped by the head of their names: head -> name -> curve.

    ``{"component": {"value": ..., "fairness": ...}}`` of notes ``component.value`` and
    ``component.fairness``.
    """
    notes = _notes(run)
    curves: dict[str, dict[str, Curve]] = {}
    for name in dict.fromkeys(name for note in notes for name in note if "." in name):
        head, _, tail = name.partition(".")
        curves.setdefault(head, {})[tail] = _note(run, notes, name)
    return curves


def choice_notes(run: Run) -> dict[str, Curve]:
    """Return what the rule noted of the clients that it chose (table ``choices``): name -> mean
    over the chosen, of each round in which any has the number."""
    choices = run.tables.get("choices")
    if choices is None or not choices.num_rows:
        return {}
    means = choices.drop_null().group_by(["name", "round"]).aggregate([("value", "mean")])
    curves: dict[str, Curve] = {}
    for name in dict.fromkeys(choices["name"].to_pylist()):
        of_name = means.filter(pc.equal(means["name"], name)).sort_by("round")
        rounds, values = (of_name[column].to_numpy() for column in ("round", "value_mean"))
        curves[name] = Curve(rounds.astype(float), values)
    return curves


def _notes(run: Run) -> list[dict[str, float]]:
    return [
        read_note(text, run.directory) if text else {}
        for text in run.tables["rounds"]["notes"].to_pylist()
    ]


def _note(run: Run, notes: Sequence[Mapping[str, float]], name: str) -> Curve:
    noted = np.array([name in note for note in notes], bool)
    values = np.array([note[name] for note in notes if name in note], float)
    return Curve(np.asarray(run.column("rounds", "round"), float)[noted], values)


@dataclass(frozen=True)
class Shares:
    """How much of its update each client may send, in the rounds in which not everybody may send
    all of it; one entry per client sent out. ``theta`` the share; ``mbps`` its uplink; ``wanted``
    what its score alone would have given, ``theta_t S_k / mean S`` over those sent out with it (NaN
    without scores); ``budget`` theta_t.

    ``ceiling`` is the share that a Mb/s carries, where the tables prove that there is such a
    ceiling: those who got less than wanted, three at least, got it in proportion to their uplinks.
    NaN elsewhere.
    """

    theta: Floats
    mbps: Floats
    wanted: Floats
    budget: Floats
    ceiling: float


def shares(run: Run) -> Shares:
    """Return the shares of updates sent; empty where all clients send everything."""
    theta, mbps, score, sent_s = (
        np.asarray(run.column("clients", c), float)
        for c in ("theta", "up_mbps", "score", "start_s")
    )
    at = run.column("clients", "round")
    rounds = run.column("rounds", "round")
    budgets = np.asarray(run.column("rounds", "budget"), float)
    keep = np.isin(at, np.unique(at[theta < 1])) & np.isin(at, rounds) & np.isfinite(theta)
    theta = theta[keep]
    mbps = mbps[keep]
    score = score[keep]
    sent_s = sent_s[keep]
    at = at[keep]
    order = np.argsort(rounds)
    budget = budgets[order][np.searchsorted(rounds[order], at)]
    _, cohort = np.unique(sent_s, return_inverse=True)
    mean = np.bincount(cohort, score) / np.bincount(cohort) if len(cohort) else np.empty(0)
    wanted = budget * np.divide(
        score, mean[cohort], out=np.ones(len(score)), where=mean[cohort] != 0
    )
    # 1e-6: what was given as asked differs from it by rounding, and was not held back.
    held = theta < np.minimum(wanted, 1.0) * (1 - 1e-6)
    carried = (theta / mbps)[held]
    proven = (
        len(carried) > 2 and np.ptp(carried) <= 1e-3 * carried.mean() and np.ptp(mbps[held]) > 0
    )
    return Shares(
        theta=theta,
        mbps=mbps,
        wanted=wanted,
        budget=budget,
        ceiling=float(carried.mean()) if proven else float("nan"),
    )


def gini(counts: ArrayLike) -> float:
    """Return the Gini index of non-negative counts: 0 all alike, towards 1 all in one; NaN for
    none, 0 for only zeros."""
    x = np.sort(np.asarray(counts, float))
    if not len(x):
        return float("nan")
    total = x.sum()
    if total:
        return float(
            2 * np.sum(np.arange(1, len(x) + 1) * x) / (len(x) * total) - (len(x) + 1) / len(x)
        )
    return 0.0


@dataclass(frozen=True)
class Costs:
    """The costs of a run up to its last round. Bits as in the ledger; ``wall_s`` is measured, the
    other seconds are virtual.

    Parameters
    ----------
    local_steps: that clients were asked for whose dispatch ended, also of those that came late or
    dropped out.
    dispatched: clients sent out, also those still in flight.
    """

    rounds: int
    selections: float
    time_s: float
    paper_s: float
    total_bits: float
    paper_bits: float
    down_bits: float
    up_bits: float
    probe_bits: float
    local_steps: int
    dispatched: int
    accepted: int
    late: int
    dropped: int
    rejected: int
    wall_s: float


def costs(run: Run) -> Costs:
    """Return the sums over a run's rounds; rounds without timings count as 0 s."""

    def total(table: str, column: str) -> float:
        return float(np.nansum(np.asarray(run.column(table, column), float)))

    def last(column: str) -> float:
        values = np.asarray(run.column("rounds", column), float)
        return float(values[-1]) if len(values) else float("nan")

    outcome = run.column("clients", "outcome")
    return Costs(
        rounds=run.tables["rounds"].num_rows,
        selections=last("selections"),
        time_s=last("time_s"),
        paper_s=last("paper_s"),
        total_bits=last("total_bits"),
        paper_bits=last("total_up_paper_bits"),
        down_bits=total("rounds", "down_bits"),
        up_bits=total("rounds", "up_bits"),
        probe_bits=total("rounds", "probe_down_bits") + total("rounds", "probe_up_bits"),
        local_steps=int(total("clients", "local_steps")),
        dispatched=max(int(total("rounds", "selected")), len(outcome)),  # some records lack it
        **{
            kind: int(np.sum(outcome == kind))
            for kind in ("accepted", "late", "dropped", "rejected")
        },
        wall_s=total("timings", "wall_s"),
    )


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (n - 1; NaN for one seed) over ``n`` seeds; ``each``: the
    number of every run, in order."""

    mean: float
    std: float
    n: int
    each: tuple[float, ...] = field(default=(), repr=False, compare=False)


def spread(values: ArrayLike) -> Spread:
    """Return mean and standard deviation over seeds; seeds without a number are left out."""
    each = np.asarray(values, float)
    finite = each[np.isfinite(each)]
    std = float(finite.std(ddof=1)) if len(finite) > 1 else float("nan")
    return Spread(
        float(finite.mean()) if len(finite) else float("nan"),
        std,
        len(finite),
        tuple(each.tolist()),
    )


@dataclass(frozen=True)
class Interval:
    """Mean (of differences, or over seeds) with its two-sided t interval over ``n`` pairs or seeds;
    NaN bounds for fewer than two, and for differences that are all equal."""

    mean: float
    low: float
    high: float
    n: int


def interval(over_seeds: Spread, level: float = 0.95) -> Interval:
    """Return the mean over seeds with the two-sided t interval of this mean."""
    mean = over_seeds.mean
    n = over_seeds.n
    if n < 2:
        return Interval(mean, float("nan"), float("nan"), n)
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, 0.5 + level / 2)) * over_seeds.std / np.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def level_together(comparisons: int, level: float = 0.95) -> float:
    """Return the level of each of several intervals that hold all together with ``level``, whatever
    their variances and correlations are: ``1 - (1 - level) / comparisons`` (Bonferroni)."""
    return 1 - (1 - level) / max(comparisons, 1)


def paired(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Interval:
    """Return the interval of ``a - b`` paired by seed: entry i of both comes from the same seed.

    Differences that are all equal have NaN bounds: a t interval of width 0 would claim certainty
    from two runs that happen to differ by as many test samples.

    Raises
    ------
    ConfigError: unequal lengths, or a level outside (0, 1).
    """
    x = np.asarray(a, float)
    y = np.asarray(b, float)
    if x.shape != y.shape:
        raise ConfigError(
            f"a paired interval needs the same seeds on both sides, got {x.size} and {y.size} "
            "values"
        )
    if not 0 < level < 1:
        raise ConfigError(f"level must lie between 0 and 1, got {level}")
    difference = interval(spread(x - y), level)
    # Differences that are one number but for rounding have no deviation to speak of: an interval of
    # 1e-17 would call any difference proven.
    rounding = 1e-9 * max(np.nanmax(np.abs([x, y]), initial=0.0), abs(difference.mean))
    if difference.n > 1 and np.nanmax(x - y) - np.nanmin(x - y) <= rounding:
        return Interval(difference.mean, float("nan"), float("nan"), difference.n)
    return difference


def stepwise(along: Curve, grid: ArrayLike) -> Floats:
    """Return the curve on ``grid`` [g]: the value of the last evaluation at or before each point,
    NaN before the first."""
    points = np.asarray(grid, float)
    at = np.searchsorted(along.x, points, side="right") - 1
    if not len(along.x):
        return np.full(len(points), np.nan)
    return np.where(at >= 0, along.y[np.maximum(at, 0)], np.nan)


@dataclass(frozen=True)
class Band:
    """Several seeds on one axis: ``x``, ``mean``, ``low`` and ``high`` (mean -+ one standard
    deviation), all [g]."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    n: int


def band(curves: Sequence[Curve]) -> Band:
    """Return mean and spread over seeds, on the part of the axis that all of them cover."""
    curves = [c for c in curves if len(c.x)]
    if not curves:
        none = np.empty(0)
        return Band(x=none, mean=none, low=none, high=none, n=0)
    grid = np.unique(np.concatenate([c.x for c in curves]))
    grid = grid[(grid >= max(c.x[0] for c in curves)) & (grid <= min(c.x[-1] for c in curves))]
    values = np.stack([stepwise(c, grid) for c in curves])
    mean = values.mean(axis=0)
    std = values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(grid))
    return Band(x=grid, mean=mean, low=mean - std, high=mean + std, n=len(curves))


def best_mu(run: Run) -> Curve:
    """Return the proximal weight that HeteRo-Select v1's Lemma A.4 calls best, at each diagnosed
    round.

    ``mu* = E lr (G^2 + B_sel^2) / ||w_0 - w*||^2`` with E local steps; the paper finds 0.09 to 0.11
    at E = 2 and lr 0.01. Empty where nothing was diagnosed, or clients had no common ``E lr``;
    infinite where the model never moved.

    READING: w* is the model after the last diagnosed round, G and B_sel are those of the round
    (the larger of ``diversity.G2`` and ``diversity.G2_batches``, ``diversity.B2_selected``).

    >>> import json
    >>> import pyarrow as pa
    >>> from pathlib import Path
    >>> told = {"diversity.G2": 3.0, "diversity.B2_selected": 1.0, "local_rate": 0.02}
    >>> told["moved_squared"] = 0.8
    >>> rounds = pa.table({"round": [1, 2], "notes": [json.dumps(told), None]})
    >>> best_mu(Run(Path("."), {}, {"rounds": rounds})).y.round(6).tolist()
    [0.1]
    """
    moved = note(run, "moved_squared")
    rate = note(run, "local_rate")
    square = note(run, "diversity.G2")
    batches = note(run, "diversity.G2_batches")
    spread = note(run, "diversity.B2_selected")
    at = np.intersect1d(rate.x, np.intersect1d(square.x, spread.x))
    if not len(at) or not len(moved.x):
        return Curve(np.empty(0), np.empty(0))
    rates, bound, distance = (curve.y[np.isin(curve.x, at)] for curve in (rate, square, spread))
    if len(batches.x):
        bound = np.maximum(bound, batches.y[np.isin(batches.x, at)])
    with np.errstate(divide="ignore", invalid="ignore"):
        return Curve(at, rates * (bound + distance) / moved.y[-1])
