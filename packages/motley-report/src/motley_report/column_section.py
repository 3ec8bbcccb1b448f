"""The section that says how each column of a table was read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from motley.core.errors import DataError
from motley.results.blocks import Block, BulletList, Section, Table, TableCell, TableRow
from motley.results.load import Run
from motley.results.marks import checked
from motley.results.record import read_json

_HEADS = ("column", "read as", "values seen", "gaps", "becomes", "example")


def column_section(rows: Sequence[Sequence[str]], remarks: Sequence[str], of: str = "") -> Section:
    """Return the section on how columns were read.

    Parameters
    ----------
    rows: name, type, values seen, gaps, what it becomes and an example, of each column.
    remarks: sentences about rows, labels and clients.
    of: the label of the data, where there are several.
    """
    cells = [TableRow(row[0] or "(no name)", [TableCell(text) for text in row[1:]]) for row in rows]
    blocks: list[Block] = [BulletList(remarks)] if remarks else []
    title = "How each column was read"
    return Section(f"{title}: {of}" if of else title, [*blocks, Table(_HEADS, cells)])


def columns_of_runs(groups: Mapping[str, Sequence[Run]]) -> list[Section]:
    """Return how the columns of the tables that methods (label to runs) were trained on were read;
    once where all were trained on the same."""
    first_runs: dict[str, tuple[str, dict[str, Any]]] = {}
    for label, runs in groups.items():
        read = _saved(runs[0])
        if read is not None:
            first_runs.setdefault(json.dumps(read, sort_keys=True), (label, read))
    several = len(first_runs) > 1
    return [
        column_section(read["rows"], read["remarks"], label if several else "")
        for label, read in first_runs.values()
    ]


def _saved(run: Run) -> dict[str, Any] | None:
    """Return what a run's folder says of the columns; None where it says nothing."""
    path = run.directory / "preparation.json"
    if not path.is_file():
        return None
    try:
        read = read_json(checked(run.directory, run.meta, path.name)).get("read")
        rows = [[str(text) for text in row] for row in read["rows"]]
        remarks = [str(text) for text in read["remarks"]]
    except (DataError, AttributeError, KeyError, TypeError):  # whoever predicts says what is wrong
        return None
    return {"rows": rows, "remarks": remarks} if all(len(r) == len(_HEADS) for r in rows) else None
