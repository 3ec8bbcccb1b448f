"""Sheets of an Excel file as rows of cells, with what their grid does not show: merged cells,
hidden rows and columns, formulas without values."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_MARKED = re.compile(rb'<mergeCell |<f[ >/]|<(?:row|col) [^>]*hidden="(?:1|true)"')
_PART = 2**24
_OVERLAP = 200
"""Bytes of a part that are looked at again with the next one, for a mark may be cut."""


class Sheet(NamedTuple):
    """The cells of a sheet.

    Parameters
    ----------
    rows: of cells, None for an empty one.
    remarks: what readers of results should know.
    formula: the first cell with a formula that has no value, e.g. ``D2``; empty: there is none.
    """

    rows: list[Sequence[Any]]
    remarks: tuple[str, ...] = ()
    formula: str = ""


def read_sheets(path: Path, header_rows: int) -> dict[str, Sheet]:
    """Return the sheets of an Excel file by name. Cells of a column that are merged below the heads
    all have their value, as those of a row have within ``header_rows``, where these are several.

    Raises
    ------
    ImportError: openpyxl is not installed.
    """
    import openpyxl

    marked = _is_marked(path)
    book = openpyxl.load_workbook(path, read_only=not marked, data_only=True)
    try:
        if not marked:
            return {
                sheet.title: Sheet(list(sheet.iter_rows(values_only=True)))
                for sheet in book.worksheets
            }
        formulas = openpyxl.load_workbook(path, data_only=False)
        return {
            sheet.title: _sheet(sheet, formulas[sheet.title], header_rows)
            for sheet in book.worksheets
        }
    finally:
        book.close()


def _is_marked(path: Path) -> bool:
    """Return whether a sheet has merged or hidden cells or formulas, which only a reader that holds
    the whole file in memory shows."""
    with zipfile.ZipFile(path) as parts:
        for name in parts.namelist():
            if not name.startswith("xl/worksheets/"):
                continue
            with parts.open(name) as part:
                before = b""
                while block := part.read(_PART):
                    if _MARKED.search(before + block):
                        return True
                    before = block[-_OVERLAP:]
    return False


def _sheet(values: Any, formulas: Any, header_rows: int) -> Sheet:
    """Return a sheet of which openpyxl has read the values, and the formulas."""
    rows = [list(row) for row in values.iter_rows(values_only=True)]
    written = formulas.iter_rows()
    without = next(
        (
            cell.coordinate
            for row, cells in zip(rows, written, strict=False)
            for value, cell in zip(row, cells, strict=False)
            if value is None and cell.data_type == "f"
        ),
        "",
    )
    filled: list[str] = []
    wide: list[str] = []
    for area in values.merged_cells.ranges:
        value = rows[area.min_row - 1][area.min_col - 1]
        down = area.min_col == area.max_col and area.min_row > header_rows
        across = area.min_row == area.max_row <= header_rows and header_rows > 1
        for row in rows[area.min_row - 1 : area.max_row] if down or across else ():
            row[area.min_col - 1 : area.max_col] = [value] * (area.max_col - area.min_col + 1)
        if down:
            filled.append(area.coord)
        elif not across and area.min_row > header_rows:
            wide.append(area.coord)
    parts = (values.row_dimensions, values.column_dimensions)
    hidden = [sum(bool(one.hidden) for one in part.values()) for part in parts]
    remarks = []
    if filled:
        remarks.append(f"each of the merged cells {_some(filled)} has their value")
    if wide:
        remarks.append(f"of the merged cells {_some(wide)} the first has the value, others none")
    for count, kind in zip(hidden, ("rows", "columns"), strict=True):
        if count:
            remarks.append(f"{count} {kind} are hidden in the sheet, and read like all others")
    return Sheet([tuple(row) for row in rows], tuple(remarks), without)


def _some(areas: Sequence[str]) -> str:
    more = f" and {len(areas) - 1} more areas" if len(areas) > 1 else ""
    return f"{areas[0]}{more}"
