"""The tables of a report on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from motley.core.untrusted import printable
from motley.results import blocks, tables
from motley.results.besides import Besides
from motley.results.by_architecture import by_architecture
from motley.results.labels import group_runs
from motley.results.load import Run
from motley.results.method_rows import target_of
from motley.results.recorded_metrics import common_metric

if TYPE_CHECKING:
    from rich.table import Table

    from motley.results.tables import MethodTable

_COLOURS = {"good": "green", "bad": "red", "": ""}


def terminal_tables(
    runs: Sequence[Run], target: float | None = None, plain_intervals: bool = False
) -> list[Table]:
    """Return the tables that there is something for: ends and costs, differences to the reference,
    all metrics, widths, fairness, gains, new clients, costs to the target (``target``, else the
    experiment's), each architecture, what differs beside the method, and what is left of
    differences without it.

    Parameters
    ----------
    plain_intervals: as for :func:`motley.report`.

    Raises
    ------
    ConfigError: the runs are measured in different metrics, or ``target`` is no value of theirs.
    """
    if not runs:
        return []
    common_metric(runs)
    groups = group_runs(runs, plain_intervals=plain_intervals)
    target = target_of(runs[0], target)
    method_tables = (
        tables.summary(groups),
        tables.pairs(groups),
        tables.metrics(groups),
        tables.widths(groups),
        tables.fairness(groups),
        tables.gains(groups),
        tables.new_clients(groups),
        None if target is None else tables.to_target(groups, target),
    )
    shown = [terminal_table(table) for table in method_tables if table is not None]
    beside = Besides(groups, [run for run in runs if run.control])
    pages = {
        "by architecture": by_architecture(groups),
        "besides the method": beside.table(),
        "what is left of the difference": beside.left_table(),
    }
    return shown + [block_table(table, title) for title, table in pages.items() if table]


def terminal_table(content: MethodTable) -> Table:
    """Return a table of methods for the terminal."""
    from rich.text import Text

    table = _titled(content.title)
    table.caption = Text(content.remark) if content.remark else None
    table.add_column("method", overflow="fold", min_width=12)
    for column in content.terminal:
        table.add_column(column.terminal_head(content.compared), justify="right", no_wrap=True)
    for label, row in content.shown:
        texts = (label, *(column.terminal_cell(row) for column in content.terminal))
        table.add_row(*(Text(printable(text)) for text in texts))
    return table


def block_table(content: blocks.Table, title: str) -> Table:
    """Return any table of a page for the terminal, its note below it."""
    from rich.text import Text

    table = _titled(title)
    note = Text(printable(content.note), style="table.caption")
    table.caption = note if content.note else None
    heads = [Text(printable(head), style="table.header") for head in content.heads]
    table.add_column(heads[0], overflow="fold", min_width=12)
    for i, head in enumerate(heads[1:]):
        words = content.words(i)
        table.add_column(
            head,
            justify="left" if words else "right",
            overflow="fold" if words else "ellipsis",
        )
    for row in content.rows:
        cells = (
            Text(printable(cell.whole), style="bold" if cell.best else _COLOURS[cell.tone])
            for cell in row.cells
        )
        table.add_row(Text(printable(row.label)), *cells)
    return table


def _titled(title: str) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(printable(title), style="table.title"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.caption_justify = "left"
    return table
