"""The tables of a report: each function takes runs grouped by method and returns one
:class:`motley.results.blocks.Table`.

``groups`` maps a method's label to its runs, as in :mod:`motley.results.plots`. A table of what the
runs do not hold is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from motley.results import measures
from motley.results.best import BOLD, best_rows
from motley.results.blocks import DASH, Table, TableCell, TableRow
from motley.results.gains import LEAST, gain_rows
from motley.results.labels import clock, clock_in_words
from motley.results.lies import liar_share
from motley.results.load import Run
from motley.results.measures import Spread
from motley.results.new_clients import adapted_epochs, served_new
from motley.results.summary import (
    JUDGED,
    MB,
    NO_STABLE,
    differences,
    method_rows,
    metric_rows,
    plus_minus,
    reached,
    short_number,
    shows_selections,
    with_decimals,
)
from motley.results.widths import width_rows

__all__ = [
    "by_kind",
    "costs",
    "fairness",
    "gains",
    "new_clients",
    "pairs",
    "participation",
    "phases",
    "summary",
    "to_target",
    "whole",
    "widths",
]

Groups = Mapping[str, Sequence[Run]]
COUNTS = (
    "rounds",
    "selections",
    "dispatched",
    "accepted",
    "late",
    "dropped",
    "rejected",
    "local_steps",
)
AMOUNTS = (
    ("down_bits", MB),
    ("up_bits", MB),
    ("probe_bits", MB),
    ("time_s", 3600.0),
    ("wall_s", 1.0),
)
PHASES = ("select_s", "measure_s", "plan_s", "train_s", "aggregate_s", "evaluate_s", "write_s")


def summary(groups: Groups) -> Table:
    """Return the end and the costs of each method; ends are bold by
    :data:`~motley.results.best.BOLD`."""
    rows = []
    methods = method_rows(groups)
    time = clock(groups)
    better = measures.metric_of(next(iter(groups.values()))[0])[1]
    measured = ["wall time (s)"] if time != "wall" else []  # a deployment's hours are that already
    validated = any(method.by_validation.n for method in methods)
    kinds = ("final", *(["by_validation"] if validated else []), "peak", "stable", "drop")
    columns = {kind: [getattr(method, kind) for method in methods] for kind in kinds}
    seeds = [method.seeds for method in methods]
    best = {
        kind: best_rows(column, seeds, better and kind != "drop")
        for kind, column in columns.items()
    }
    for i, method in enumerate(methods):
        ends = [
            TableCell(plus_minus(columns[kind][i]), columns[kind][i].mean, i in best[kind])
            for kind in kinds
        ]
        spent = (
            method.hours,
            method.paper_mb,
            method.traffic_mb,
            *([method.wall_s] if measured else []),
        )
        rows.append(
            TableRow(
                method.label,
                [*ends, _spread(method.participation_std), *(_number(s.mean) for s in spent)],
                i,
            )
        )
    heads = (
        "method",
        *(kind.replace("_", " ") for kind in kinds),
        "participation std",
        f"{time} hours",
    )
    lacking = not all(method.stable.n for method in methods)
    note = " ".join(
        [*([BOLD] if len(rows) > 1 else []), *([f"There is {NO_STABLE}."] if lacking else [])]
    )
    return Table((*heads, "uplink, papers (MB)", "traffic, all (MB)", *measured), rows, note)


def pairs(groups: Groups, base: str | None = None) -> Table | None:
    """Return every method against the reference, see :func:`motley.results.summary.differences`;
    None without two common seeds."""
    first = next(iter(groups.values()))[0]
    metric = measures.metric_of(first)[0]
    digits = "+.2f" if measures.percent_of(first) > 1 else "+.3g"
    tones: dict[str, Literal["good", "bad"]] = {"better": "good", "worse": "bad"}
    found = differences(groups, base)
    rows = []
    if not found:
        return None
    end = found[0].end
    for one in found:
        got = one.interval
        difference = f"{got.mean:{digits}}"
        interval = f"{got.low:{digits}} to {got.high:{digits}}"
        cells = [
            TableCell(_minus(difference), got.mean),
            TableCell(_minus(interval), got.low),
            TableCell(str(got.n), got.n),
        ]
        cells.append(TableCell(one.verdict, tone=tones.get(one.verdict, "")))
        rows.append(TableRow(one.label, cells, list(groups).index(one.label)))
    note = (
        "Finished runs, paired by seed: whatever two methods have in common (partition, devices, "
        "first model) is drawn alike. Student's t interval of the mean difference. "
        f"{end.capitalize()}: {JUDGED[end]}."
    )
    heads = (
        f"{end} {metric} against {found[0].base}",
        "difference",
        "95% interval",
        "seeds",
        "verdict",
    )
    return Table(heads, rows, note)


def to_target(groups: Groups, target: float) -> Table:
    """Return rounds, selections (where there was not one a round), hours and traffic to the target,
    means over seeds; a lower bound where a seed never reached it."""
    rows = []
    asked = shows_selections(groups)
    for i, (label, runs) in enumerate(groups.items()):
        way = reached(runs, target)
        cells = [TableCell(f"{way.seeds} of {way.runs}", way.seeds)]
        counts = (way.rounds, way.selections) if asked else (way.rounds,)
        for cost in (*counts, way.hours, way.paper_mb, way.traffic_mb):
            text = (
                whole(cost.value)
                if cost in counts and np.isfinite(cost.value)
                else short_number(cost.value)
            )
            cells.append(TableCell(text if cost.reached else f"> {text}", cost.value))
        rows.append(TableRow(label, cells, i))
    counted = ("rounds", "selections") if asked else ("rounds",)
    heads = (
        "method",
        "seeds that got there",
        *counted,
        f"{clock(groups)} hours",
        "uplink, papers (MB)",
        "traffic, all (MB)",
    )
    note = (
        "Means over seeds, at the first evaluation on target. A seed that never got there counts "
        "with all it spent, and the mean is then only a lower bound (>)."
    )
    return Table(heads, rows, note)


def participation(groups: Groups) -> Table:
    """Return measures of participation and the time of selection, means over seeds; of liars, where
    a run has them."""
    lies = any(np.isfinite(liar_share(run)) for runs in groups.values() for run in runs)
    heads = (
        "std of counts",
        "Gini",
        "clients seen",
        "all seen after round",
        "cv of probabilities",
        "choosing (ms a round)",
        *(["sent out to liars (%)"] if lies else []),
    )
    rows = []
    for i, (label, runs) in enumerate(groups.items()):
        each = [measures.participation(run) for run in runs]
        evenness = [
            float(np.mean([getattr(p, kind) for p in each]))
            for kind in ("std", "gini", "seen", "all_seen")
        ]
        lied = [liar_share(run) for run in runs]
        drawn = [np.mean(c.y) for c in map(measures.concentration, runs) if len(c.y)]
        select = np.concatenate(
            [np.asarray(run.column("timings", "select_s"), float) for run in runs]
        )
        took = 1e3 * float(np.nanmean(select)) if np.isfinite(select).any() else float("nan")
        values = [
            *evenness,
            float(np.mean(drawn)) if drawn else float("nan"),
            took,
            100.0 * float(np.mean(lied)),
        ][: len(heads)]
        digits = (".2f", ".2f", ".0f", ".0f", ".2f", ".2f", ".1f")[: len(heads)]
        cells = [
            TableCell(f"{v:{d}}" if np.isfinite(v) else DASH, v)
            for v, d in zip(values, digits, strict=True)
        ]
        rows.append(TableRow(label, cells, i))
    note = (
        "Means over seeds. cv of probabilities: standard deviation over mean of the probabilities "
        f"the rule drew by, mean over rounds ({DASH} where it does not draw by probabilities). "
        "Choosing: wall time of the rule itself, without what its probes measured."
    )
    return Table(("method", *heads), rows, note)


def fairness(groups: Groups) -> Table | None:
    """Return the fairness between clients at the end; None where no client was evaluated."""
    metric = _named(next(iter(groups.values()))[0])
    rows = [
        TableRow(
            method.label,
            [
                _spread(s)
                for s in (
                    method.client_mean,
                    method.worst_decile,
                    method.variance,
                    method.deviation,
                )
            ],
            i,
        )
        for i, method in enumerate(method_rows(groups))
        if method.client_mean.n
    ]
    note = (
        f"The clients' own {metric} at the last evaluation of every client. Worst tenth: the mean "
        "over the worst-served tenth of the clients."
    )
    return (
        Table(("method", "mean", "worst tenth", "variance", "deviation"), rows, note)
        if rows
        else None
    )


def gains(groups: Groups) -> Table | None:
    """Return what clients gain over local training alone and over the shared model; None where
    neither is known."""
    run = next(iter(groups.values()))[0]
    unit = "points" if measures.percent_of(run) > 1 else measures.metric_of(run)[0]
    rows = [
        TableRow(
            row.label,
            [
                TableCell(row.over),
                _spread(row.share),
                _spread(row.median),
                _spread(row.worst),
                _number(row.clients),
                _number(row.left_out),
            ],
            list(groups).index(row.label),
        )
        for row in gain_rows(groups)
    ]
    note = (
        f"Each client's own {_named(run)} at the last evaluation against its figure under local "
        "training alone (same data, model, seed and local work), and against its figure with the "
        "method's own shared model; equal ones count half. Left out: clients with fewer than "
        f"{LEAST} test samples."
    )
    heads = (
        "method",
        "over",
        "clients better off (%)",
        f"median gain ({unit})",
        f"worst gain ({unit})",
        "clients",
        "left out",
    )
    return Table(heads, rows, note) if rows else None


def new_clients(groups: Groups) -> Table | None:
    """Return the figures of new clients by epochs of adaptation; None where no clients were held
    out."""
    run = next(iter(groups.values()))[0]
    rows = []
    epochs = sorted(
        {number for runs in groups.values() for run in runs for number in adapted_epochs(run)}
    )
    for i, (label, runs) in enumerate(groups.items()):
        found = [served_new(runs, number) for number in epochs]
        rows.append(TableRow(label, [_spread(spread) for pair in found for spread in pair], i))
    note = (
        f"{_named(run).capitalize()} of the clients that no round asked, on their own test samples "
        "at the end: with the model that they receive (0 epochs), and after adapting it to their "
        "own training samples. Worst tenth: of these clients."
    )
    heads = [
        f"{word} {number} epoch{'' if number == 1 else 's'}"
        for number in epochs
        for word in ("after", "worst tenth,")
    ]
    return Table(("method", *heads), rows, note) if epochs else None


def by_kind(groups: Groups, column: Literal["domain", "cluster"]) -> Table | None:
    """Return the clients' own metric per domain of features or cluster of concepts, means over
    seeds; None for one kind."""
    metric = _named(next(iter(groups.values()))[0])
    percent = measures.percent_of(next(iter(groups.values()))[0])
    each = {
        label: [measures.by_group(run, column) for run in runs] for label, runs in groups.items()
    }
    kinds = sorted({kind for runs in each.values() for one in runs for kind in one})
    rows = []
    for i, (label, runs) in enumerate(each.items()):
        spreads = [
            measures.spread([percent * one.get(kind, float("nan")) for one in runs])
            for kind in kinds
        ]
        rows.append(TableRow(label, [_spread(s) for s in spreads], i))
    note = (
        f"The clients' own {metric} at the last evaluation, averaged over the clients of each "
        f"{column}."
    )
    return (
        Table(("method", *(f"{column} {kind}" for kind in kinds)), rows, note)
        if len(kinds) > 1
        else None
    )


def costs(groups: Groups) -> Table:
    """Return means over seeds: rounds, selections (where there was not one a round), clients
    dispatched and their outcomes, local steps, traffic by direction, time."""
    rows = []
    time = clock(groups)
    measured = ["wall time (s)"] if time != "wall" else []
    counted = (
        COUNTS if shows_selections(groups) else [kind for kind in COUNTS if kind != "selections"]
    )
    for i, (label, runs) in enumerate(groups.items()):
        spent = [measures.costs(run) for run in runs]
        counts = [float(np.mean([getattr(c, kind) for c in spent])) for kind in counted]
        amounts = [
            float(np.mean([getattr(c, kind) for c in spent])) / unit
            for kind, unit in (AMOUNTS if measured else AMOUNTS[:-1])
        ]
        rows.append(
            TableRow(label, [*(TableCell(whole(n), n) for n in counts), *map(_number, amounts)], i)
        )
    heads = (
        *(kind.replace("_", " ").replace("dispatched", "sent out") for kind in counted),
        "down (MB)",
        "up (MB)",
        "probes (MB)",
    )
    note = (
        f"Means over seeds. {clock_in_words(groups)} The papers' "
        "uplink counts 32 bits for each value sent up; all traffic also counts downloads, probes "
        "and what clients tell at enrolment; a probed client that is then chosen holds the model "
        "already, so its download is among the probes. 1 MB is 8 million bits."
    )
    return Table(("method", *heads, f"{time} hours", *measured), rows, note)


def phases(groups: Groups) -> Table | None:
    """Return the measured milliseconds a round spends in each phase, mean over rounds and seeds;
    None where nothing was timed."""
    rows = []
    for i, (label, runs) in enumerate(groups.items()):
        columns = [
            np.concatenate([np.asarray(run.column("timings", kind), float) for run in runs])
            for kind in (*PHASES, "wall_s")
        ]
        known = [
            1e3 * float(np.nanmean(c)) if np.isfinite(c).any() else float("nan") for c in columns
        ]
        if np.isfinite(known).any():
            rows.append(TableRow(label, [_number(v) for v in known], i))
    heads = ("method", *(name.removesuffix("_s") for name in PHASES), "whole round")
    return Table(heads, rows) if rows else None


def whole(number: float) -> str:
    """Format a count (or the mean of counts) with thin spaces between thousands and no idle
    decimals."""
    return with_decimals(number, 1).removesuffix(".0")


def _spread(spread: Spread) -> TableCell:
    return TableCell(plus_minus(spread), spread.mean)


def _number(value: float) -> TableCell:
    return TableCell(short_number(value), value)


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _named(run: Run, metric: str | None = None) -> str:
    name = metric or measures.metric_of(run)[0]
    return f"{name} (%)" if measures.percent_of(run, name) > 1 else name


def metrics(groups: Groups) -> Table | None:
    """Return the end of every metric of each method; None where the headline is the only one."""
    rows = [
        TableRow(
            label,
            [
                TableCell(_named(runs[0], row.metric)),
                *map(_spread, row.numbers),
                _number(row.undefined),
            ],
            i,
        )
        for i, (label, runs) in enumerate(groups.items())
        for row in metric_rows(runs)
    ]
    note = (
        "After the last round, mean ± standard deviation over seeds. Pooled: over the test samples "
        "of all clients together. Undefined: for how many clients the metric is (the AUROC of one "
        "class); they are left out of means over clients."
    )
    heads = ("method", "metric", "end", "peak", "pooled", "worst tenth", "undefined")
    return Table(heads, rows, note) if rows else None


def widths(groups: Groups) -> Table | None:
    """Return the end of each method at each width; None where clients train whole models."""
    first = next(iter(groups.values()))[0]
    rows = [
        TableRow(label, [TableCell(row.width), _spread(row.value)], i)
        for i, (label, runs) in enumerate(groups.items())
        for row in width_rows(runs)
    ]
    note = (
        "After the last round, mean ± standard deviation over seeds. A width is the share of every "
        "hidden layer's units, 1 the whole model, each examined for everybody; at the end every "
        "client at its own width, mean over clients."
    )
    return Table(("method", "width", _named(first)), rows, note) if rows else None
