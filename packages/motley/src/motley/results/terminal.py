"""The tables of a report on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from motley.core.untrusted import printable
from motley.results import tables
from motley.results.labels import group_runs
from motley.results.load import Run
from motley.results.method_rows import target_of

if TYPE_CHECKING:
    from rich.table import Table

    from motley.results.tables import MethodTable

__all__ = ["terminal_table", "terminal_tables"]


def terminal_tables(runs: Sequence[Run], target: float | None = None) -> list[Table]:
    """Return the tables that there is something for: ends and costs, all metrics, widths, fairness,
    gains, new clients, costs to the target (``target``, else the experiment's).

    Raises
    ------
    ConfigError: ``target`` is no value of the metric.
    """
    if not runs:
        return []
    groups = group_runs(runs)
    target = target_of(runs[0], target)
    found = (
        tables.summary(groups),
        tables.metrics(groups),
        tables.widths(groups),
        tables.fairness(groups),
        tables.gains(groups),
        tables.new_clients(groups),
        None if target is None else tables.to_target(groups, target),
    )
    return [terminal_table(table) for table in found if table is not None]


def terminal_table(found: MethodTable) -> Table:
    """Return a table of methods for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(printable(found.title), style="table.title"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.caption = Text(found.remark) if found.remark else None
    table.caption_justify = "left"
    table.add_column("method", overflow="fold", min_width=12)
    for column in found.terminal:
        table.add_column(column.terminal_head(found.compared), justify="right", no_wrap=True)
    for label, row in found.shown:
        texts = (label, *(column.terminal_cell(row) for column in found.terminal))
        table.add_row(*(Text(printable(text)) for text in texts))
    return table
