"""The section of a report about real clients: how long rounds and clients took, what travelled, and
what went wrong.

``groups`` maps a method's label to its runs (one per seed), as in :mod:`motley_report.plots`;
simulations among them are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from motley.results import measures
from motley.results.blocks import (
    DASH,
    Picture,
    Section,
    SideBySide,
    Table,
    TableCell,
    TableRow,
    Text,
    non_empty,
)
from motley.results.load import Run
from motley.results.measures import Curve
from motley.results.method_groups import method_numbers
from motley.results.number_text import MB, short_number
from motley_report.figures import (
    NARROW,
    colour,
    dash,
    mark,
    new_figure,
    styled,
    to_svg,
    whole_numbers,
)

Groups = Mapping[str, Sequence[Run]]
MOST = 50
"""Rows of a table of clients or incidents; the rest is counted below it."""
BAD = ("lost", "rejected", "refused", "changed", "set aside")
"""Events that a reader should see first."""
STYLES: Mapping[str, Any] = {
    "": {},
    "down": {"linewidth": 4.0, "alpha": 0.35},
    "up": {"linewidth": 1.4},
}
"""How kinds of lines are drawn: equal ones lie on each other, and both are seen."""
LATE = "answered late"
"""What a client that is not waited for any more does in the ordinary course of deadlines; counted
by client, not listed."""


def real_clients(groups: Groups) -> Section:
    """Return the section on the clients of deployments; empty where all runs are simulations."""
    real = {label: [run for run in runs if run.deployed] for label, runs in groups.items()}
    runs = [run for members in real.values() for run in members]
    if not runs:
        return Section("The clients", [])
    note = (
        "Wall time from sending a round out to the server's step, and the bytes of all "
        "messages meanwhile."
    )
    each = [
        Section(
            f"{label}, seed {run.seed}" if len(runs) > 1 else "",
            non_empty(clients(run), *_went_wrong(run)),
        )
        for label, members in real.items()
        for run in members
    ]
    return Section(
        "How the clients did",
        [Text(note, note=True), SideBySide([round_seconds(real), round_traffic(real)]), *each],
    )


# ----------------------------------------------------------------------------------- round by round


def round_seconds(groups: Groups) -> Picture:
    """Draw how long each round took, mean over seeds."""
    return _by_round(
        groups=groups,
        name="durations",
        title="How long a round took",
        kinds=(("", _seconds),),
        units=("seconds", "minutes", "hours"),
        sizes=(1, 60, 3600),
    )


def round_traffic(groups: Groups) -> Picture:
    """Draw what travelled in each round, mean over seeds: down (pale and wide) and up, probes
    included."""
    kinds = (
        ("down", _bits("down_bits", "probe_down_bits")),
        ("up", _bits("up_bits", "probe_up_bits")),
    )
    return _by_round(
        groups=groups,
        name="round-traffic",
        title="What travelled in a round",
        kinds=kinds,
        units=("kB", "MB", "GB"),
        sizes=(8e3, 8e6, 8e9),
    )


def _seconds(run: Run) -> Curve:
    start, end = (np.asarray(run.column("rounds", name), float) for name in ("start_s", "time_s"))
    return Curve(np.asarray(run.column("rounds", "round"), float), end - start)


def _bits(*columns: str) -> Callable[[Run], Curve]:
    def curve(run: Run) -> Curve:
        bits = [np.nan_to_num(np.asarray(run.column("rounds", name), float)) for name in columns]
        return Curve(np.asarray(run.column("rounds", "round"), float), np.sum(bits, axis=0))

    return curve


def _by_round(
    groups: Groups,
    name: str,
    title: str,
    kinds: Sequence[tuple[str, Callable[[Run], Curve]]],
    units: Sequence[str],
    sizes: Sequence[float],
) -> Picture:
    """Draw curves over rounds, from 0, in the largest unit that the highest value fills twice."""
    drawn = [
        (i, kind, measures.band([of(run) for run in runs]))
        for i, runs in zip(method_numbers(groups), groups.values(), strict=True)
        for kind, of in kinds
        if runs
    ]
    highest = max((float(np.nanmax(band.mean)) for _, _, band in drawn if len(band.x)), default=0.0)
    unit = max((k for k, size in enumerate(sizes) if highest >= 2 * size), default=0)
    with styled():
        figure = new_figure(NARROW, 3.0)
        axes = figure.add_subplot()
        for i, kind, band in drawn:
            line = axes.plot(
                band.x, band.mean / sizes[unit], color=colour(i), linestyle=dash(i), **STYLES[kind]
            )[0]
            line.set_marker("o" if len(band.x) < 2 else "")
            mark(line, i)
        axes.set(xlabel="round", ylabel=units[unit], title=title)
        axes.set_ylim(0, 1.1 * highest / sizes[unit] or 1.0)
        axes.margins(x=0.01)
        whole_numbers(axes)
        if kinds[0][0]:
            _name_kinds(axes, [kind for kind, _ in kinds])
        return to_svg(figure, name, f"{title}: {', '.join(groups)}")


def _name_kinds(axes: Any, kinds: Sequence[str]) -> None:
    """Add a legend of the kinds of lines, which have one style for all methods."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color="#555555", **STYLES[kind]) for kind in kinds]
    axes.legend(lines, kinds, frameon=False, fontsize=8, loc="best", ncols=len(kinds))


# --------------------------------------------------------------------------------- client by client


HEADS = (
    "client",
    "asked",
    "accepted",
    "late",
    "came late",
    "lost",
    "rejected",
    "whole (s)",
    "work (s)",
    "way (s)",
    "down (MB)",
    "up (MB)",
    "last accepted in round",
)
COLUMNS = (
    "client",
    "round",
    "outcome",
    "download_s",
    "compute_s",
    "upload_s",
    "bits_down",
    "bits_up",
)


def clients(run: Run) -> Table | None:
    """Return how often each client was asked and what became of it, its usual times and its bytes;
    None where nobody was asked."""
    columns = {name: run.column("clients", name) for name in COLUMNS}
    if not len(columns["client"]):
        return None
    late = Counter(
        row["client"] for row in run.tables["incidents"].to_pylist() if row["event"] == LATE
    )
    client_ids = np.union1d(
        np.asarray(run.column("federation", "client"), int), np.asarray(columns["client"], int)
    ).tolist()
    unused = Counter(columns["client"][columns["outcome"] != "accepted"].tolist())
    shown = sorted(sorted(client_ids, key=lambda client: -unused[client])[:MOST])
    rows = []
    for client in shown:
        mine = columns["client"] == client
        rows.append(
            _client_row(
                run.client_name(client),
                {name: column[mine] for name, column in columns.items()},
                late[client],
            )
        )
    if len(client_ids) > MOST:
        not_shown = (
            f" Of {len(client_ids)} clients the {MOST} with most uploads that were not used are "
            "shown."
        )
    else:
        not_shown = ""
    note = (
        "Late: the server had made its step without it; came late: how many of these came "
        "afterwards, whose bytes are in that round's traffic only. Lost: no upload came. Times are "
        "medians of accepted answers: work as the client says, the way there and back, waiting "
        f"for messages included; in a Flower strategy only the whole is known.{not_shown}"
    )
    return Table(HEADS, rows, note)


def _client_row(client: str, mine: Mapping[str, Any], late: int) -> TableRow:
    accepted, lost, rejected = (
        mine["outcome"] == kind for kind in ("accepted", "dropped", "rejected")
    )
    counts = [
        len(accepted),
        accepted.sum(),
        (mine["outcome"] == "late").sum(),
        late,
        lost.sum(),
        rejected.sum(),
    ]
    down_s, work_s, up_s = (
        np.asarray(mine[name], float)[accepted] for name in ("download_s", "compute_s", "upload_s")
    )
    way_s = down_s + up_s
    whole_s = np.nan_to_num(down_s) + work_s + np.nan_to_num(up_s)
    seconds = [
        _median(whole_s),
        _median(np.where(np.isfinite(way_s), work_s, np.nan)),
        _median(way_s),
    ]
    traffic = [
        float(np.nansum(np.asarray(mine[name], float))) / MB for name in ("bits_down", "bits_up")
    ]
    last = float(mine["round"][accepted].max()) if accepted.any() else float("nan")
    cells = [
        TableCell(str(n), float(n), tone="bad" if k >= 4 and n else "")
        for k, n in enumerate(counts)
    ]
    cells += [TableCell(short_number(value), value) for value in (*seconds, *traffic)]
    return TableRow(client, [*cells, TableCell(f"{last:.0f}" if np.isfinite(last) else DASH, last)])


def _median(values: Any) -> float:
    return float(np.nanmedian(values)) if np.isfinite(values).any() else float("nan")


def _went_wrong(run: Run) -> list[Section]:
    table = incidents(run)
    return [
        Section(
            "What went wrong",
            [table or Text("No client was lost, and nothing was rejected.", note=True)],
        )
    ]


def incidents(run: Run) -> Table | None:
    """Return who was lost, when and why, the newest first; uploads that came late are left out.
    None where there was nothing."""
    rows = [row for row in run.tables["incidents"].to_pylist() if row["event"] != LATE]
    if not rows:
        return None
    shown = []
    for row in reversed(rows[-MOST:]):
        event = TableCell(row["event"], tone="bad" if row["event"] in BAD else "")
        when = [
            TableCell(str(row["round"]), row["round"]),
            TableCell(f"{row['time_s']:.0f}", row["time_s"]),
        ]
        shown.append(
            TableRow(
                run.client_name(row["client"]),
                [event, TableCell(row["reason"]), *when, TableCell(row["at"] or "")],
            )
        )
    note = "Wall seconds since the deployment began; the server's date and time in UTC."
    if len(rows) > MOST:
        note += f" The last {MOST} of {len(rows)}; all are in the table incidents."
    return Table(("client", "what", "why", "round", "second", "date and time"), shown, note)
