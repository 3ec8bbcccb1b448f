"""The tables of a report for print: every number with its unit and, over seeds, with its interval.

``groups`` maps a method's label to its runs, as in :mod:`motley_report.plots`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import isfinite

from motley.core.csv_text import csv_text
from motley.results import tables
from motley.results.load import Run
from motley.results.measures import Censored, Interval
from motley.results.method_rows import target_of
from motley.results.tables import MethodTable

Groups = Mapping[str, Sequence[Run]]
Value = Interval | Censored | str
"""A mean with its interval; a mean that may be a lower bound; words."""


@dataclass(frozen=True)
class PrintTable:
    """A table for print.

    Parameters
    ----------
    name: of its file.
    caption: what the numbers are and how their intervals were made.
    heads: title and unit of each column of cells.
    rows: label and cells of each method.
    best: column -> rows whose numbers are bold.
    together: how many intervals of a column hold together, with 95 %.
    """

    name: str
    caption: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[Value]]]
    best: Mapping[int, Set[int]]
    together: int = 1


def print_tables(groups: Groups, target: float | None = None) -> list[PrintTable]:
    """Return the tables that there is something for: ``summary``, ``metrics``, ``costs``,
    ``served``, ``gains``, ``new_clients``, ``target``, ``differences``."""
    target = target_of(next(iter(groups.values()))[0], target)
    method_tables = (
        tables.summary(groups),
        tables.metrics(groups),
        tables.costs(groups),
        tables.fairness(groups),
        tables.gains(groups),
        tables.new_clients(groups),
        None if target is None else tables.to_target(groups, target),
        tables.pairs(groups),
    )
    return [print_table(table) for table in method_tables if table is not None]


def print_table(table: MethodTable) -> PrintTable:
    """Return a table of methods for print."""
    return PrintTable(
        name=table.name,
        caption=table.caption,
        heads=[column.print_head(table.compared) for column in table.printed],
        rows=[
            (label, [column.print_cell(row) for column in table.printed])
            for label, row in table.shown
        ],
        best=table.bold,
        together=table.together,
    )


def as_csv(table: PrintTable) -> str:
    """Return the table as CSV in full precision: for each column its mean, the bounds of its
    interval and its number of seeds; a lower bound has ``>`` in a column of its own. Heads of
    bounds say of how many intervals that hold together they are."""
    columns = list(zip(*(cells for _, cells in table.rows), strict=True))
    heads = ["method"]
    for (title, unit), column in zip(table.heads, columns, strict=True):
        heads += _csv_heads(f"{title} ({unit})" if unit else title, column, table.together)
    rows = [heads]
    for label, cells in table.rows:
        row = [label]
        for cell, column in zip(cells, columns, strict=True):
            row += _csv_cells(cell, len(_csv_heads("", column)))
        rows.append(row)
    return csv_text(rows)


def _csv_heads(name: str, column: Sequence[Value], together: int = 1) -> list[str]:
    if all(isinstance(cell, str) for cell in column):
        return [name]
    bounds = [f"{name}, bound"] if any(isinstance(cell, Censored) for cell in column) else []
    joint = f" ({together} together)" if together > 1 else ""
    ends = [f"{name}, 95% {end}{joint}" for end in ("low", "high")]
    return [name, *bounds, *ends, f"{name}, seeds"]


def _csv_cells(cell: Value, width: int) -> list[str]:
    if isinstance(cell, str):
        return [cell]
    if isinstance(cell, Censored):
        return [_exact(cell.value), ">" if isfinite(cell.value) else "", "", "", ""]
    bound = [""] if width == 5 else []
    return [_exact(cell.mean), *bound, _exact(cell.low), _exact(cell.high), str(cell.n)]


def _exact(value: float) -> str:
    return repr(float(value)) if isfinite(value) else ""
