"""One row of measures per method, for reports and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import TYPE_CHECKING, Literal

from motley.core.errors import ConfigError
from motley.core.untrusted import printable
from motley.results import measures
from motley.results.labels import clock, group_runs
from motley.results.lies import liar_share
from motley.results.load import Run
from motley.results.measures import Spread
from motley.results.widths import width_rows

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "JUDGED",
    "NO_STABLE",
    "Difference",
    "End",
    "MethodRow",
    "MetricRow",
    "Reached",
    "differences",
    "method_rows",
    "metric_rows",
    "metrics_table",
    "plus_minus",
    "reached",
    "served_table",
    "short_number",
    "shows_selections",
    "summary_table",
    "target_of",
    "target_table",
    "terminal_table",
    "widths_table",
    "with_decimals",
]

MB = 8e6
"""Bits in a megabyte (decimal, as the papers count)."""
REFERENCES = ("uniform", "fedavg")
"""What a method is compared with, where it is among the runs."""


@dataclass(frozen=True)
class MethodRow:
    """A method over its seeds. Ends and the clients' own figures (at the last evaluation that has
    clients) are in percent where the metric is an accuracy, and so is ``liars``, the share of those
    sent out that lied; traffic is in MB."""

    label: str
    seeds: tuple[int, ...]
    final: Spread
    peak: Spread
    stable: Spread
    drop: Spread
    by_validation: Spread
    client_mean: Spread
    worst_decile: Spread
    variance: Spread
    deviation: Spread
    participation_std: Spread
    liars: Spread
    hours: Spread
    traffic_mb: Spread
    paper_mb: Spread
    wall_s: Spread
    costs: tuple[measures.Costs, ...]


def method_rows(groups: Mapping[str, Sequence[Run]]) -> list[MethodRow]:
    """Return one row per method of ``groups`` (label to runs), in their order."""
    return [_row(label, runs) for label, runs in groups.items()]


def _row(label: str, runs: Sequence[Run]) -> MethodRow:
    better = measures.metric_of(runs[0])[1]
    percent = measures.percent_of(runs[0])
    ends = [measures.ends_of(run) for run in runs]
    spent = tuple(measures.costs(run) for run in runs)
    served = [measures.fairness(percent * measures.client_metric(run), better) for run in runs]

    def end(kind: str) -> Spread:
        values = [percent * getattr(e, kind) for e in ends]
        whole = kind != "stable" or all(map(isfinite, values))  # no mean over some of the seeds
        return measures.spread(values if whole else [float("nan")] * len(values))

    def cost(kind: str, unit: float) -> Spread:
        return measures.spread([getattr(c, kind) / unit for c in spent])

    return MethodRow(
        label=label,
        seeds=tuple(run.seed for run in runs),
        final=end("final"),
        peak=end("peak"),
        stable=end("stable"),
        drop=end("drop"),
        by_validation=measures.spread([percent * measures.by_validation(run) for run in runs]),
        client_mean=measures.spread([one.mean for one in served]),
        worst_decile=measures.spread([one.worst_decile for one in served]),
        variance=measures.spread([one.variance for one in served]),
        deviation=measures.spread([one.deviation for one in served]),
        participation_std=measures.spread([measures.participation(run).std for run in runs]),
        liars=measures.spread([100.0 * liar_share(run) for run in runs]),
        hours=cost("time_s", 3600),
        traffic_mb=cost("total_bits", MB),
        paper_mb=cost("paper_bits", MB),
        wall_s=cost("wall_s", 1),
        costs=spent,
    )


@dataclass(frozen=True)
class MetricRow:
    """One metric of a method over its seeds, shares in percent: at the end and at its best in the
    headline's scope, then at the end over all clients' test samples and over the worst tenth of the
    clients. ``undefined``: for how many clients it is (a mean)."""

    metric: str
    numbers: tuple[Spread, Spread, Spread, Spread]
    undefined: float


def metric_rows(runs: Sequence[Run]) -> list[MetricRow]:
    """Return a row for each metric of a method's runs, the headline first; none where the headline
    is the only one."""
    names = measures.metrics_of(runs[0])
    found = []
    for name in names if len(names) > 1 else ():
        percent = measures.percent_of(runs[0], name)
        better = measures.better_of(runs[0], name)
        ends = [measures.ends_of(run, name) for run in runs]
        served = [
            measures.fairness(percent * measures.client_metric(run, name), better) for run in runs
        ]
        pooled = [measures.pooled(run, name) for run in runs]
        columns = (
            [percent * end.final for end in ends],
            [percent * end.peak for end in ends],
            [percent * one.value for one in pooled],
            [one.worst_decile for one in served],
        )
        spreads = tuple(measures.spread(column) for column in columns)
        undefined = measures.spread([one.undefined for one in pooled]).mean
        found.append(MetricRow(name, spreads, undefined))  # type: ignore[arg-type]
    return found


@dataclass(frozen=True)
class Difference:
    """A method against ``base`` at one end of their curves, paired by seed; in percentage points
    where the metric is an accuracy."""

    label: str
    base: str
    end: End
    interval: measures.Interval
    verdict: Literal["better", "worse", "no clear difference"]


End = Literal["stable", "final"]
"""The end of a curve by which methods are compared."""
JUDGED: Mapping[End, str] = {
    "stable": "mean of the last ten evaluations",
    "final": "last evaluation",
}
"""It in words."""
NO_STABLE = "no stable value (–) where a run has fewer than ten evaluations past its half"


def differences(groups: Mapping[str, Sequence[Run]], base: str | None = None) -> list[Difference]:
    """Return every method against ``base`` (None: :data:`REFERENCES`, else the first), by *stable*
    where every finished run has it, else by *final*.

    Methods without two seeds that are finished in both are left out.
    """
    first = next(iter(groups.values()))[0]
    better = measures.metric_of(first)[1]
    percent = measures.percent_of(first)
    found_ends = {
        label: {run.seed: measures.ends_of(run) for run in runs if run.finished}
        for label, runs in groups.items()
    }
    known = [one for each in found_ends.values() for one in each.values() if isfinite(one.final)]
    end: End = "stable" if all(isfinite(one.stable) for one in known) else "final"
    ends = {
        label: {seed: percent * getattr(one, end) for seed, one in each.items()}
        for label, each in found_ends.items()
    }
    base = base or next((label for label in ends if label in REFERENCES), next(iter(ends)))
    if base not in ends:
        raise ConfigError(f"got {base!r}; expected one of the methods: {', '.join(ends)}", "base")
    found = []
    for label in (label for label in ends if label != base):
        seeds = sorted(ends[base].keys() & ends[label].keys())
        got = measures.paired([ends[label][s] for s in seeds], [ends[base][s] for s in seeds])
        if got.n > 1:
            sure: Literal["better", "worse"] = "better" if (got.mean > 0) == better else "worse"
            found.append(
                Difference(
                    label,
                    base,
                    end,
                    got,
                    "no clear difference" if got.low <= 0 <= got.high else sure,
                )
            )
    return found


@dataclass(frozen=True)
class Reached:
    """The costs of a method to reach a target, in rounds, selections, virtual hours and MB: how
    many of its ``runs`` reached it, and means over seeds, which are lower bounds as soon as one run
    did not."""

    seeds: int
    runs: int
    rounds: measures.Censored
    selections: measures.Censored
    hours: measures.Censored
    paper_mb: measures.Censored
    traffic_mb: measures.Censored


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


def reached(runs: Sequence[Run], target: float) -> Reached:
    """Return the costs of one method's runs up to their first evaluation on ``target``."""
    better = measures.metric_of(runs[0])[1]

    def cost(axis: measures.Axis, unit: float) -> measures.Censored:
        mean = measures.target_spread(
            [measures.to_target(measures.curve(run, axis), target, better) for run in runs]
        )
        return measures.Censored(mean.value / unit, mean.reached)

    there = sum(measures.to_target(measures.curve(run), target, better).reached for run in runs)
    counts = cost("round", 1), cost("selections", 1)
    return Reached(
        there, len(runs), *counts, cost("seconds", 3600), cost("paper_bits", MB), cost("bits", MB)
    )


def shows_selections(groups: Mapping[str, Sequence[Run]]) -> bool:
    """Return whether a run selected more or less often than once a round, so that tables count
    both."""
    spent = [measures.costs(run) for runs in groups.values() for run in runs]
    return any(isfinite(one.selections) and one.selections != one.rounds for one in spent)


def short_number(value: float, like: float | None = None) -> str:
    """Format with about four significant digits, thousands apart: ``86.93``, ``1 204``, ``0.012``;
    a dash for no number.

    ``like``: another number whose count of decimals is taken, so that a mean and its spread line
    up.
    """
    if not isfinite(value):
        return "–"
    size = abs(value if like is None else like)
    if 0 < size < 1e-4:
        return f"{value:.1e}"
    digits = (
        0
        if size >= 1000
        else 1
        if size >= 100
        else 2
        if size >= 1 or size == 0
        else max(3, 1 - floor(log10(size)))
    )
    return with_decimals(value, digits)


def with_decimals(value: float, digits: int) -> str:
    """Format with so many decimals, thousands apart: ``1 204.5``."""
    return f"{value:,.{digits}f}".replace(",", "\u202f")


def plus_minus(spread: Spread, digits: int | None = None) -> str:
    """Format ``mean ± standard deviation over seeds``; the mean alone for one seed. ``digits``:
    decimals."""
    if digits is not None and isfinite(spread.mean):
        return with_decimals(spread.mean, digits) + (
            f" ± {with_decimals(spread.std, digits)}" if isfinite(spread.std) else ""
        )
    return short_number(spread.mean) + (
        f" ± {short_number(spread.std, spread.mean)}" if isfinite(spread.std) else ""
    )


def summary_table(runs: Sequence[Run]) -> Table:
    """Return the methods of ``runs`` as a table for the terminal: one decimal, so that it fits 100
    columns."""
    groups = group_runs(runs)
    metric = measures.metric_of(runs[0])[0] if runs else "accuracy"
    percent = bool(runs) and measures.percent_of(runs[0]) > 1
    unit = " in %" if percent else ""
    seeds = len({run.seed for run in runs})
    spread = f", mean ± deviation over {seeds} seeds" if seeds > 1 else ""
    title = f"{runs[0].name if runs else 'no runs'}: {metric}{unit}{spread}"
    digits = 1 if percent else None
    cells = []
    rows = method_rows(groups)
    time = clock(groups)
    measured = ["wall s"] if time != "wall" else []  # a deployment's hours are that already
    validated = any(row.by_validation.n for row in rows)
    lies = any(row.liars.n for row in rows)
    for row in rows:
        numbers = (
            row.final,
            *([row.by_validation] if validated else []),
            row.peak,
            row.stable,
            row.drop,
            row.participation_std,
            *([row.liars] if lies else []),
        )
        spent = [
            short_number(number.mean)
            for number in (row.hours, row.traffic_mb, *([row.wall_s] if measured else []))
        ]
        cells.append((row.label, [*(plus_minus(number, digits) for number in numbers), *spent]))
    kinds = (
        "final",
        *(["by validation"] if validated else []),
        "peak",
        "stable",
        "drop",
        "took part std",
    )
    kinds = (*kinds, *(["liars %"] if lies else []))
    caption = NO_STABLE if rows and not all(row.stable.n for row in rows) else ""
    return terminal_table(title, (*kinds, f"{time} h", "MB", *measured), cells, caption)


def served_table(runs: Sequence[Run]) -> Table | None:
    """Return the fairness between clients as a second table for the terminal; None where they were
    not evaluated."""
    rows = [row for row in method_rows(group_runs(runs)) if row.client_mean.n]
    if not rows:
        return None
    percent = measures.percent_of(runs[0]) > 1
    title = f"the clients' own {measures.metric_of(runs[0])[0]}" + (" in %" if percent else "")
    digits = 1 if percent else None
    cells = [
        (
            row.label,
            [
                plus_minus(getattr(row, kind), digits)
                for kind in ("client_mean", "worst_decile", "variance", "deviation")
            ],
        )
        for row in rows
    ]
    return terminal_table(title, ("mean", "worst tenth", "variance", "deviation"), cells)


def metrics_table(runs: Sequence[Run]) -> Table | None:
    """Return the end of every metric as a further table for the terminal; None where the headline
    is the only one."""
    cells = []
    for label, members in group_runs(runs).items():
        for row in metric_rows(members):
            percent = measures.percent_of(members[0], row.metric) > 1
            numbers = [plus_minus(number, 1 if percent else None) for number in row.numbers]
            undefined = short_number(row.undefined) if row.undefined else "0"
            cells.append((label, [row.metric + (" %" if percent else ""), *numbers, undefined]))
    heads = ("metric", "end", "peak", "pooled", "worst tenth", "undefined")
    return terminal_table("all metrics", heads, cells) if cells else None


def widths_table(runs: Sequence[Run]) -> Table | None:
    """Return the end at each width as a further table for the terminal; None where clients train
    whole models."""
    percent = bool(runs) and measures.percent_of(runs[0]) > 1
    cells = [
        (label, [row.width, plus_minus(row.value, 1 if percent else None)])
        for label, members in group_runs(runs).items()
        for row in width_rows(members)
    ]
    title = (
        f"{measures.metric_of(runs[0])[0]}{' in %' if percent else ''} at each width"
        if cells
        else ""
    )
    return terminal_table(title, ("width", "end"), cells) if cells else None


def target_table(runs: Sequence[Run], target: float | None = None) -> Table | None:
    """Return the costs to the target (``target``, else the experiment's) as a third table; None
    without a target."""
    target = target_of(runs[0], target) if runs else None
    if target is None:
        return None
    percent = measures.percent_of(runs[0]) > 1
    title = f"until {f'{100 * target:g}%' if percent else f'{target:g}'}"
    groups = group_runs(runs)
    asked = ("selections",) if shows_selections(groups) else ()
    cells = [
        (label, _reached_cells(reached(members, target), bool(asked)))
        for label, members in groups.items()
    ]
    return terminal_table(
        title,
        (
            "got there",
            "rounds",
            *asked,
            f"{clock(groups)} h",
            "uplink, papers MB",
            "all traffic MB",
        ),
        cells,
    )


def terminal_table(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], caption: str = ""
) -> Table:
    """Return a table for the terminal: a row per method, of its label and its cells; the
    ``caption`` stands below it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(printable(title), style="table.title"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.caption = Text(caption) if caption else None
    table.caption_justify = "left"
    table.add_column("method", overflow="fold", min_width=12)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for label, cells in rows:
        table.add_row(*(Text(printable(text)) for text in (label, *cells)))
    return table


def _reached_cells(found: Reached, selections: bool) -> list[str]:
    """Return the cells of a :class:`Reached`."""
    counts = (found.rounds, found.selections) if selections else (found.rounds,)
    rest = (found.hours, found.paper_mb, found.traffic_mb)
    texts = [(one, f"{one.value:.0f}" if isfinite(one.value) else "–") for one in counts]
    texts += [(cost, short_number(cost.value)) for cost in rest]
    return [
        f"{found.seeds} of {found.runs}",
        *(text if cost.reached else f"> {text}" for cost, text in texts),
    ]
