"""Lines of a text with separators that are no rows of its table: comments, titles, totals and
notes."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.arrays import Bools, Ints
from motley.core.errors import DataError

_FOOTER = b"motley.footer"
"""Of an Arrow table's metadata: its last row, where that may be no row of data."""
_ROWS = b"motley.rows"
"""Of an Arrow table's metadata: the number of each row in its file, where some were left out."""
_TOTAL = re.compile(
    r"(?:(?:(?:grand|sub)[ -]?)?totals?|total général|totale|totaal|sum|summe|somme|insgesamt|"
    r"gesamt(?:summe)?|zwischensumme|mean|average|avg\.?|mittelwert|durchschnitt|moyenne)\s*[:=]?"
    r"|(?:source|quelle|notes?|anmerkung|hinweis|legende?|stand)\s*:.*",
    re.IGNORECASE,
)
_LONGEST = 60
"""Characters of a line that a message shows."""


def without_comments(data: bytes, marks: Sequence[str]) -> bytes:
    """Return a text in UTF-8 without the lines that begin with one of some marks."""
    begins = tuple(mark.encode() for mark in marks)
    data = data.removeprefix(b"\xef\xbb\xbf")
    return b"".join(line for line in data.splitlines(True) if not line.startswith(begins))


def without_heads(table: Any) -> tuple[Any, int]:
    """Return an Arrow table of texts without rows that repeat the names of all columns, as texts
    put behind one another have them, and their number."""
    import pyarrow.compute as pc

    if table.num_columns < 2:
        return table, 0
    repeats = None
    for name, column in zip(table.column_names, table.columns, strict=True):
        same = pc.equal(pc.utf8_trim(column, characters="\ufeff \t"), name)
        repeats = same if repeats is None else pc.and_(repeats, same)
        if not pc.any(repeats).as_py():
            return table, 0
    return kept_rows(table, ~np.asarray(repeats)), int(pc.sum(repeats).as_py())


def kept_rows(table: Any, kept: Bools) -> Any:
    """Return the rows of an Arrow table that are kept, ``[n]``, with their numbers in the file."""
    if kept.all():
        return table
    numbers = np.flatnonzero(kept) if (before := file_rows(table)) is None else before[kept]
    return with_file_rows(table.filter(kept), numbers)


def with_file_rows(table: Any, numbers: Ints) -> Any:
    """Return an Arrow table that carries the number of each row in its file, from 0."""
    noted = {**(table.schema.metadata or {}), _ROWS: numbers.astype(np.int64).tobytes()}
    return table.replace_schema_metadata(noted)


def file_rows(table: Any) -> Ints | None:
    """Return the number of each row of an Arrow table in its file, from 0; None where no row was
    left out."""
    noted = (table.schema.metadata or {}).get(_ROWS)
    numbers = None if noted is None else np.frombuffer(noted, np.int64)
    return None if numbers is None or len(numbers) != len(table) else numbers


def comment_line(marks: Sequence[str], mark: str) -> str:
    """Return the option that leaves out lines that begin with one more mark than now."""
    listed = [json.dumps(character, ensure_ascii=False) for character in (*marks, mark)]
    return f"comment = {listed[0] if len(listed) == 1 else '[' + ', '.join(listed) + ']'}"


def title_row(path: Path, cell: str, width: int, marks: Sequence[str]) -> DataError:
    """Return the error that the first row has one cell, as a title has, and others more."""
    return DataError(
        f'{path}: the first row has one cell, "{cell}", and others have up to {width}; write '
        f"{comment_line(marks, cell)} if it is none of the table"
    )


def uneven_line(path: Path, data: bytes, sep: str, marks: Sequence[str]) -> DataError | None:
    """Return the error that a line has another number of columns than most; None where all have
    the same.

    Parameters
    ----------
    data: the text in UTF-8.
    marks: of comments.
    """
    lines = data.decode("utf-8-sig", errors="replace").splitlines(keepends=True)
    reader = csv.reader(lines, delimiter=sep)
    try:
        widths = [(reader.line_num, len(row)) for row in reader if row]
    except csv.Error:
        return None
    usual = Counter(width for _, width in widths).most_common(1)[0][0]
    odd = next(((number, width) for number, width in widths if width != usual), None)
    if odd is None:
        return None
    number, width = odd
    line = lines[number - 1].rstrip("\r\n")
    mark = "#" if line.startswith("#") else line[:_LONGEST]
    advice = f"give it {usual}"
    names = number == widths[0][0] and width > 1 and width == usual - 1
    if mark == "#" or (not names and sum(row.startswith(mark) for row in lines) == 1):
        advice = f"write {comment_line(marks, mark)} if it is none of the table, or {advice}"
    return DataError(
        f"{path}: line {number} has {width} {'column' if width == 1 else 'columns'}, and most have "
        f'{usual}: "{line[:_LONGEST]}"; {advice}'
    )


def footer_of(table: Any, last_line: str, sep: str) -> dict[bytes, bytes]:
    """Return what an Arrow table's metadata say of a last row that is a total or a note: one that
    has a word like "Total" in a column where no other row has one. Empty where it is none.

    Parameters
    ----------
    last_line: of the text, from which a comment's mark is taken.
    sep: what divides its columns; both empty for a sheet.
    """
    import pyarrow.compute as pc

    for at, name in enumerate(table.column_names) if len(table) else ():
        column = table.column(at)
        word = column[-1].as_py()
        last = len(table)
        while last and _is_total(column[last - 1].as_py()):
            last -= 1
        values = pc.drop_null(column.slice(0, last).unique()).to_pylist()
        if last == len(table) or not values or any(map(_is_total, values)):
            continue
        mark = word
        if sep:
            end = last_line.find(word) + len(word)
            end += last_line[end:].startswith('"')
            mark = last_line[: end + len(sep)]
        elif any(table.column(before)[-1].as_py() is not None for before in range(at)):
            mark = ""
        numbers = file_rows(table)
        row = len(table) if numbers is None else int(numbers[-1]) + 1
        footer = {"column": name, "word": word.strip(), "row": row, "mark": mark}
        return {_FOOTER: json.dumps(footer).encode()}
    return {}


def _is_total(cell: object) -> bool:
    return isinstance(cell, str) and _TOTAL.fullmatch(cell.strip()) is not None


def refuse_footer(table: Any, where: str, rename: Mapping[str, str], marks: Sequence[str]) -> None:
    """Refuse a text or sheet whose last row is a total or a note and no row of data.

    Parameters
    ----------
    rename: words that are named here are no such rows.
    marks: of comments.

    Raises
    ------
    DataError: has the line that leaves the row out, and the one that keeps it.
    """
    stored = (table.schema.metadata or {}).get(_FOOTER)
    if stored is None:
        return
    footer = json.loads(stored)
    word = footer["word"]
    if word in rename:
        return
    line = comment_line(marks, footer["mark"]) if footer["mark"] else "the sheet without it"
    raise DataError(
        f'{where}: the last row ({footer["row"]:,}) has "{word}" in column {footer["column"]!r}, '
        f"as a total or a note has; write {line} to leave it out, or rename = "
        f'{{ "{word}" = "{word}" }} if it is a row of data'
    )
