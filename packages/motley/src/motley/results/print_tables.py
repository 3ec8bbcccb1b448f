"""The tables of a report for print: every number with its unit and, over seeds, with its interval.

``groups`` maps a method's label to its runs, as in :mod:`motley.results.plots`. A table of what the
runs do not hold is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import isfinite

from motley.core.csv_text import csv_text
from motley.results import measures
from motley.results.best import BOLD, best_rows
from motley.results.gains import LEAST, gain_rows
from motley.results.labels import clock, clock_in_words
from motley.results.load import Run
from motley.results.measures import Censored, Interval, Spread
from motley.results.new_clients import adapted_epochs, served_new
from motley.results.summary import (
    JUDGED,
    MB,
    NO_STABLE,
    MethodRow,
    differences,
    method_rows,
    metric_rows,
    shows_selections,
    target_of,
)

__all__ = ["PrintTable", "as_csv", "print_tables"]

Groups = Mapping[str, Sequence[Run]]
Value = Interval | Censored | str
"""A mean with its interval; a mean that may be a lower bound; words."""
ENDS = {
    "final": "Final",
    "by_validation": "By validation",
    "peak": "Peak",
    "stable": "Stable",
    "drop": "Drop",
}
SERVED = {
    "client_mean": "Mean",
    "worst_decile": "Worst tenth",
    "variance": "Variance",
    "deviation": "Deviation",
}


@dataclass(frozen=True)
class PrintTable:
    """A table for print.

    Parameters
    ----------
    name: of its file. caption: what the numbers are and how their intervals were made. heads: title
    and unit of each column of cells.
    rows: label and cells of each method. best: column -> rows whose numbers are bold.
    """

    name: str
    caption: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[Value]]]
    best: Mapping[int, Set[int]]


def print_tables(groups: Groups, target: float | None = None) -> list[PrintTable]:
    """Return the tables that there is something for: ``summary``, ``metrics``, ``costs``,
    ``served``, ``gains``, ``new_clients``, ``target``, ``differences``."""
    methods = method_rows(groups)
    found = (
        _summary(groups, methods),
        _metrics(groups, methods),
        _costs(groups, methods),
        _served(groups, methods),
        _gains(groups),
        _new_clients(groups),
        _target(groups, target),
        _differences(groups),
    )
    return [table for table in found if table is not None]


def as_csv(table: PrintTable) -> str:
    """Return the table as CSV in full precision: for each column its mean, the bounds of its
    interval and its number of seeds; a lower bound has ``>`` in a column of its own."""
    columns = list(zip(*(cells for _, cells in table.rows), strict=True))
    heads = ["method"]
    for (title, unit), column in zip(table.heads, columns, strict=True):
        heads += _csv_heads(f"{title} ({unit})" if unit else title, column)
    rows = [heads]
    for label, cells in table.rows:
        row = [label]
        for cell, column in zip(cells, columns, strict=True):
            row += _csv_cells(cell, len(_csv_heads("", column)))
        rows.append(row)
    return csv_text(rows)


def _csv_heads(name: str, column: Sequence[Value]) -> list[str]:
    if all(isinstance(cell, str) for cell in column):
        return [name]
    bounds = [f"{name}, bound"] if any(isinstance(cell, Censored) for cell in column) else []
    return [name, *bounds, f"{name}, 95% low", f"{name}, 95% high", f"{name}, seeds"]


def _csv_cells(cell: Value, width: int) -> list[str]:
    if isinstance(cell, str):
        return [cell]
    if isinstance(cell, Censored):
        return [_exact(cell.value), ">" if isfinite(cell.value) else "", "", "", ""]
    bound = [""] if width == 5 else []
    return [_exact(cell.mean), *bound, _exact(cell.low), _exact(cell.high), str(cell.n)]


def _exact(value: float) -> str:
    return repr(float(value)) if isfinite(value) else ""


def _summary(groups: Groups, methods: Sequence[MethodRow]) -> PrintTable:
    run = next(iter(groups.values()))[0]
    metric, better = measures.metric_of(run)
    where = (
        "averaged over the clients' own test sets"
        if measures.written_scope(run) == "mean"
        else "on the global test set"
    )
    percent = measures.percent_of(run) > 1
    ends = {
        kind: title
        for kind, title in ENDS.items()
        if kind != "by_validation" or any(m.by_validation.n for m in methods)
    }
    units = {
        kind: "%" if percent and kind != "drop" else "points" if percent else "" for kind in ends
    }
    validated = (
        " By validation: at the round that is best on the clients' validation samples."
        if "by_validation" in ends
        else ""
    )
    lacking = "" if all(method.stable.n for method in methods) else f"; {NO_STABLE}"
    caption = (
        f"{metric.capitalize()} {where}. Final: last evaluation; peak: the best; stable: mean of "
        f"the last ten evaluations{lacking}; drop: how much worse the final is than the "
        f"peak.{validated} The untrained model (round 0) never counts. "
        f"{_how(methods)}{_bold(methods)}"
    )
    rows = [(method.label, [_of(getattr(method, kind)) for kind in ends]) for method in methods]
    best = _best(methods, ends, {kind: better and kind != "drop" for kind in ends})
    return PrintTable(
        "summary", caption, [(title, units[kind]) for kind, title in ends.items()], rows, best
    )


def _metrics(groups: Groups, methods: Sequence[MethodRow]) -> PrintTable | None:
    rows: list[tuple[str, list[Value]]] = [
        (
            label,
            [
                row.metric + (" (%)" if measures.percent_of(runs[0], row.metric) > 1 else ""),
                *map(_of, row.numbers),
            ],
        )
        for label, runs in groups.items()
        for row in metric_rows(runs)
    ]
    caption = (
        "All metrics, in the unit beside the name, without one where there is none. Final: last "
        "evaluation; peak: the best; pooled: over the test samples of all clients together; worst "
        f"tenth: mean over the worst-served tenth of the clients. {_how(methods)}"
    )
    heads = [("Metric", ""), ("Final", ""), ("Peak", ""), ("Pooled", ""), ("Worst tenth", "")]
    return PrintTable("metrics", caption, heads, rows, {}) if rows else None


def _costs(groups: Groups, methods: Sequence[MethodRow]) -> PrintTable:
    caption = (
        f"Costs of whole runs. {clock_in_words(groups)} Uplink: 32 bits for each value sent up, as "
        "papers count; traffic: all that travels, downloads and probes included; 1 MB is 8 million "
        "bits. Participation: standard deviation of the clients' counts of rounds taken part in. "
        f"{_how(methods)}"
    )
    time = clock(groups)
    asked = shows_selections(groups)
    # a deployment's hours are that already
    measured = [] if time == "wall" else [("Wall time", "s")]
    heads = [
        ("Rounds", "count"),
        *([("Selections", "count")] if asked else []),
        (f"{time.capitalize()} time", "h"),
        ("Uplink", "MB"),
        ("Traffic", "MB"),
        *measured,
    ]
    heads.append(("Participation", "rounds"))
    rows = []
    for method in methods:
        wall = [method.wall_s] if measured else []
        spent = (method.hours, method.paper_mb, method.traffic_mb, *wall, method.participation_std)
        counts = [measures.spread([one.rounds for one in method.costs])]
        counts += [measures.spread([one.selections for one in method.costs])] if asked else []
        rows.append((method.label, [_of(one) for one in (*counts, *spent)]))
    return PrintTable("costs", caption, heads, rows, {})


def _served(groups: Groups, methods: Sequence[MethodRow]) -> PrintTable | None:
    known = [method for method in methods if method.client_mean.n]
    if not known:
        return None
    run = next(iter(groups.values()))[0]
    metric, better = measures.metric_of(run)
    units = ("%", "%", "%^2", "points") if measures.percent_of(run) > 1 else ("", "", "", "")
    caption = (
        f"The clients' own {metric} at the last evaluation of every client: mean over clients, "
        "mean over the worst-served tenth of them, variance and standard deviation over clients. "
        f"{_how(known)}{_bold(known)}"
    )
    rows = [(method.label, [_of(getattr(method, kind)) for kind in SERVED]) for method in known]
    best = _best(known, SERVED, dict(zip(SERVED, (better, better, False, False), strict=True)))
    return PrintTable("served", caption, list(zip(SERVED.values(), units, strict=True)), rows, best)


def _gains(groups: Groups) -> PrintTable | None:
    run = next(iter(groups.values()))[0]
    found = gain_rows(groups)
    unit = "points" if measures.percent_of(run) > 1 else ""
    caption = (
        f"What each client's own {measures.metric_of(run)[0]} gains over local training alone "
        "(same data, model, seed and local work) or over the method's own shared model: share of "
        "clients that are better off, equal ones half, median and worst gain. Clients with fewer "
        f"than {LEAST} test samples are left out. {_how(method_rows(groups))}"
    )
    heads = [
        ("Over", ""),
        ("Better off", "%"),
        ("Median gain", unit),
        ("Worst gain", unit),
        ("Clients", ""),
        ("Left out", ""),
    ]
    rows: list[tuple[str, list[Value]]] = [
        (
            row.label,
            [
                row.over,
                _of(row.share),
                _of(row.median),
                _of(row.worst),
                f"{row.clients:g}",
                f"{row.left_out:g}",
            ],
        )
        for row in found
    ]
    return PrintTable("gains", caption, heads, rows, {}) if rows else None


def _new_clients(groups: Groups) -> PrintTable | None:
    run = next(iter(groups.values()))[0]
    epochs = sorted(
        {number for runs in groups.values() for run in runs for number in adapted_epochs(run)}
    )
    unit = "%" if measures.percent_of(run) > 1 else ""
    caption = (
        f"{measures.metric_of(run)[0].capitalize()} of clients that no round asked, on their own "
        "test samples, with the model that they receive (0 epochs) and after adapting it to their "
        f"own training samples. {_how(method_rows(groups))}"
    )
    rows: list[tuple[str, list[Value]]] = [
        (label, [_of(served_new(runs, number)[0]) for number in epochs])
        for label, runs in groups.items()
    ]
    heads = [(f"{number} epoch{'' if number == 1 else 's'}", unit) for number in epochs]
    return PrintTable("new_clients", caption, heads, rows, {}) if epochs else None


def _target(groups: Groups, target: float | None) -> PrintTable | None:
    run = next(iter(groups.values()))[0]
    target = target_of(run, target)
    if target is None:
        return None
    metric, better = measures.metric_of(run)
    name = f"{100 * target:g} %" if measures.percent_of(run) > 1 else f"{target:g}"
    selections: list[tuple[measures.Axis, float]] = (
        [("selections", 1.0)] if shows_selections(groups) else []
    )
    axes: list[tuple[measures.Axis, float]] = [
        ("round", 1.0),
        *selections,
        ("seconds", 3600.0),
        ("paper_bits", MB),
        ("bits", MB),
    ]
    rows: list[tuple[str, list[Value]]] = []
    for label, runs in groups.items():
        ways = [
            [measures.to_target(measures.curve(one, axis), target, better) for one in runs]
            for axis, _ in axes
        ]
        there = sum(way.reached for way in ways[0])
        cells = [_to_target(way, unit) for way, (_, unit) in zip(ways, axes, strict=True)]
        rows.append((label, [f"{there} of {len(runs)}", *cells]))
    caption = (
        f"Cost to the first evaluation with {metric} {name} or better. A seed that never got there "
        "counts with all it spent, and the mean is then only a lower bound (>), without an "
        f"interval. {_how(method_rows(groups))}"
    )
    heads = [
        ("Reached", "seeds"),
        ("Rounds", "count"),
        *([("Selections", "count")] if selections else []),
        (f"{clock(groups).capitalize()} time", "h"),
        ("Uplink", "MB"),
        ("Traffic", "MB"),
    ]
    return PrintTable("target", caption, heads, rows, {})


def _to_target(way: Sequence[Censored], unit: float) -> Value:
    mean = measures.target_spread(way)
    if not mean.reached:
        return Censored(mean.value / unit, False)
    return _of(measures.spread([one.value / unit for one in way]))


def _differences(groups: Groups) -> PrintTable | None:
    found = differences(groups)
    if not found:
        return None
    run = next(iter(groups.values()))[0]
    metric = measures.metric_of(run)[0]
    end = found[0].end
    caption = (
        f"{end.capitalize()} {metric} ({JUDGED[end]}) against {found[0].base}: mean difference "
        "over finished runs paired by seed, with half of the two-sided 95 % interval of Student's "
        "t of that mean after the plus-minus sign."
    )
    heads = [
        ("Difference", "points" if measures.percent_of(run) > 1 else ""),
        ("Pairs", "seeds"),
        ("Verdict", ""),
    ]
    rows: list[tuple[str, list[Value]]] = [
        (one.label, [one.interval, str(one.interval.n), one.verdict]) for one in found
    ]
    return PrintTable("differences", caption, heads, rows, {})


def _of(over_seeds: Spread) -> Interval:
    return measures.interval(over_seeds)


def _best(
    methods: Sequence[MethodRow], kinds: Iterable[str], higher: Mapping[str, bool]
) -> dict[int, Set[int]]:
    """Return the rows that are bold in each column, a column of each kind."""
    seeds = [method.seeds for method in methods]
    found = (
        best_rows([getattr(method, kind) for method in methods], seeds, higher[kind])
        for kind in kinds
    )
    return {column: rows for column, rows in enumerate(found) if rows}


def _bold(methods: Sequence[MethodRow]) -> str:
    """Return the sentence about bold numbers, where methods are compared."""
    return f" {BOLD}" if len(methods) > 1 else ""


def _how(methods: Sequence[MethodRow]) -> str:
    """Return the sentence about intervals."""
    counts = sorted({len(method.seeds) for method in methods})
    if counts[-1] < 2:
        return "One seed: there is no interval."
    seeds = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    single = " A method with one seed has no interval." if counts[0] < 2 else ""
    return (
        f"Means over {seeds} seeds; after the plus-minus sign, half of the 95 % t interval of "
        f"the mean (two-sided).{single}"
    )
