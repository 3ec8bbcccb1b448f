"""How each column of a table became model inputs, in words: what inspections and reports show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from motley.core.untrusted import shortened
from motley.tasks.task import Federation
from motley_data.raw_table import ColumnReading, RawColumn, TableReading
from motley_data.table_preparation import NumberColumn, TablePreparation, WordColumn

_CELL = 80
_WORDS = 3


@dataclass(frozen=True)
class ColumnTable:
    """A row of texts for each column, those that were not understood first.

    Parameters
    ----------
    rows: name, type, values seen, gaps, what it becomes, and an example.
    remarks: sentences about rows, labels and clients.
    """

    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"rows": [list(row) for row in self.rows], "remarks": list(self.remarks)}


def column_table(federation: Federation) -> ColumnTable | None:
    """Return how the columns of a federation's table were read; None where it was no table."""
    reading = federation.reading
    if not isinstance(reading, TableReading):
        return None
    prepared = federation.preparation
    columns: Mapping[str, NumberColumn | WordColumn] = {}
    own = False
    if isinstance(prepared, TablePreparation):
        columns = {column.name: column for column in prepared.columns}
        own = prepared.clients
    unread = [(name, "no input", "", "", why, "") for name, why in reading.unread]
    read = [_row(column, columns.get(column.name), own) for column in reading.columns]
    return ColumnTable((*unread, *read), _remarks(reading))


def _remarks(reading: TableReading) -> tuple[str, ...]:
    """Return what readers should know beside the columns."""
    of_columns = [
        f"column {column.name!r}: {column.remark}" for column in reading.columns if column.remark
    ]
    return (*reading.remarks, *of_columns)


def _row(
    reading: ColumnReading, column: NumberColumn | WordColumn | None, own: bool
) -> tuple[str, ...]:
    """Return the texts of one column; ``own``: clients have statistics of their own."""
    becomes, after = _becomes(reading, column, own)
    example = f"{reading.example} -> {after}" if reading.example and after else reading.example
    cells = (reading.name, reading.kind, reading.seen, f"{reading.gaps:,}", becomes, example)
    return tuple(shortened(cell, _CELL) for cell in cells)


def _becomes(
    reading: ColumnReading, column: NumberColumn | WordColumn | None, own: bool
) -> tuple[str, str]:
    """Return what a column becomes, and what its example becomes."""
    gap = "" if not reading.gaps else "; a gap is "
    if isinstance(column, NumberColumn):
        if own:
            filled = gap and f"{gap}what the client fills in"
            return f"minus the client's mean, divided by its deviation{filled}", ""
        mean, deviation, fill = (
            float(values[0]) for values in (column.mean, column.deviation, column.fill)
        )
        shown = f"{(reading.value - mean) / deviation:.4g}"
        filled = gap and f"{gap}{fill:.4g}"
        if (mean, deviation) == (0.0, 1.0):
            return f"itself{filled}", shown
        return f"minus {mean:.4g}, divided by {deviation:.4g}{filled}", shown
    if isinstance(column, WordColumn):
        names = column.inputs()
        more = f" and {len(names) - _WORDS} more" if len(names) > _WORDS else ""
        filled = gap and f"{gap}{column.fill}"
        one_row = np.zeros(1, np.int64)
        raw = RawColumn(reading.name, np.array([reading.value]), reading.words)
        encoded = column.encode(raw, one_row)[0]
        after = names[int(encoded.argmax())] if encoded.any() else "no input"
        return f"1 at one of {', '.join(names[:_WORDS])}{more}{filled}", after
    return "itself", f"{reading.value:.4g}"
