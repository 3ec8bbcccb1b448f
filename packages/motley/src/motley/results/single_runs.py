"""The section of a report that lists every run alone, with the address of its folder or report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from motley.results import measures
from motley.results.blocks import Section, Table, TableCell, TableRow
from motley.results.labels import clock
from motley.results.load import Run
from motley.results.summary import MB, short_number

__all__ = ["run_address", "single_runs"]


def single_runs(groups: Mapping[str, Sequence[Run]], folder: Path) -> Section:
    """Return a table with a row for each run.

    Parameters
    ----------
    groups: label -> runs. folder: of the report, from which the addresses of runs go on.
    """
    first = next(iter(groups.values()))[0]
    metric = measures.metric_of(first)[0]
    percent = measures.percent_of(first)
    rows = []
    for i, (label, runs) in enumerate(groups.items()):
        for run in runs:
            end = measures.ends_of(run)
            spent = measures.costs(run)
            numbers = (
                percent * end.final,
                percent * end.peak,
                spent.time_s / 3600,
                spent.total_bits / MB,
                spent.wall_s,
            )
            cells = [
                TableCell(str(run.seed), run.seed),
                TableCell(
                    str(run.meta.get("run_id") or run.directory.name), link=run_address(run, folder)
                ),
                TableCell(
                    f"{_rounds(run)}{'' if run.finished else ', not finished'}", spent.rounds
                ),
                *(TableCell(short_number(number), number) for number in numbers),
            ]
            rows.append(TableRow(label, cells, i))
    unit = " (%)" if percent > 1 else ""
    heads = (
        "method",
        "seed",
        "run",
        "rounds",
        f"final {metric}{unit}",
        f"peak {metric}{unit}",
        f"{clock(groups)} hours",
    )
    return Section(
        "Each run",
        [Table((*heads, "traffic, all (MB)", "wall time (s)"), rows)],
        folded=len(rows) > 1,
    )


def _rounds(run: Run) -> str:
    """Return how many rounds a run has, and of how many where it goes on."""
    done = run.tables["rounds"].num_rows
    planned = (run.config.get("stop") or {}).get("rounds")
    return str(done) if run.finished or not planned else f"{done} of {planned}"


def run_address(run: Run, folder: Path) -> str:
    """Return the address of a run's own report, where it has one, else of its folder, from another
    folder; "" where there is none."""
    own = run.directory / "report.html"
    target = own if own.is_file() and own.parent.resolve() != folder.resolve() else run.directory
    if not target.exists():
        return ""
    relative = Path(os.path.relpath(target.resolve(), folder.resolve())).as_posix()
    return quote(relative if target == own else f"{relative}/")
