"""Tables as the text of CSV files that a spreadsheet program only shows.

Such a program takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula, which can
read other cells and open addresses, and labels of runs and names of classes may come from a
stranger. An apostrophe before such a sign makes the cell text; a number stays one. A program whose
separator is another than the comma begins a cell inside a text, too. :func:`csv_rows` takes the
apostrophes away.

>>> csv_text([["method", "gain"], ["=HYPERLINK(cell)", "-3.5"]])
"method,gain\\n'=HYPERLINK(cell),-3.5\\n"
>>> list(csv_rows("method,gain\\n'=HYPERLINK(cell),-3.5\\n"))
[{'method': '=HYPERLINK(cell)', 'gain': '-3.5'}]
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence

# OWASP's signs and their wide forms, where a cell begins by any usual separator; and what leads a
# cell unseen
_FORMULA = re.compile("(?:^|(?<=[;\t\r\n]))(?='*[=+\\-@\uff1d\uff0b\uff0d\uff20])|^(?='*[\t\r\n])")
_MADE_TEXT = re.compile(_FORMULA.pattern.replace("(?='*", "'(?='*"))
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf|nan)|-")


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows, the first with the columns' names, as the text of a CSV file."""
    return "".join(",".join(map(_quoted, row)) + "\n" for row in rows)


def csv_rows(text: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a text that :func:`csv_text` wrote, by column."""
    table = csv.reader(io.StringIO(text))
    heads = [_meant(cell) for cell in next(table, [])]
    plain = "'" not in text  # as are most tables of numbers: nothing to take away
    for row in table:
        if row:
            cells = row if plain else [_meant(cell) for cell in row]
            yield dict(zip(heads, cells, strict=False))


def _quoted(cell: object) -> str:
    text = "" if cell is None else str(cell)
    if not _NUMBER.fullmatch(text):
        text = _FORMULA.sub("'", text)
    # csv.writer leaves a lone "\r" bare, which ends a line
    quote = any(sign in text for sign in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if quote else text


def _meant(cell: str) -> str:
    return _MADE_TEXT.sub("", cell) if "'" in cell else cell
