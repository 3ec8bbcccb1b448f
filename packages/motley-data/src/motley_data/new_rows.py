"""New rows of a table, which are read as the rows that a model was trained on, or refused: what a
number is was decided by those."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from motley.core.errors import DataError
from motley.tasks.origin import row_of
from motley_data.column_spelling import NumberStyle, TextColumn, is_text
from motley_data.raw_table import (
    RawColumn,
    decoded,
    read_column,
    text_column,
)
from motley_data.table_files import separators_of
from motley_data.table_options import TableOptions

_THREE_DIGITS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+")


def new_numbers(
    table: Any,
    name: str,
    form: str,
    options: TableOptions,
    separators: Mapping[str, bool],
    where: str,
) -> RawColumn:
    """Return a column of new rows, an Arrow table, as numbers.

    Parameters
    ----------
    form: of the column in the rows that trained, empty: plain numbers.
    options: how those were written.
    separators: of their texts, and whether each one's decimal mark is certain.
    where: the new rows, for messages.

    Raises
    ------
    DataError: a text that is no number as those rows write it, an entry of another form, or a
    number that would be another one by the usual decimal mark of the text.
    """
    column = decoded(table.column(name), name, where)
    if not is_text(column.type):
        raw = read_column(column=column, name=name, kind="numbers", options=options, where=where)
        there = ~np.isnan(raw.values) & (raw.values != 0)
        if there.any() and not _same(raw.form, form):
            row = int(there.argmax())
            raise _other_form(
                name=name,
                row=row,
                word=str(column[row].as_py()),
                form=form,
                options=options,
                where=where,
            )
        return raw
    texts = text_column(column, name, options)
    texts.forget(np.isin(texts.numbers, options.absent_numbers))
    spelling = options.spelling(name)
    words = zip(texts.distinct, texts.absent, strict=True)
    booleans = {word.lower() for word, absent in words if not absent} <= {"true", "false"}
    for at, word in enumerate(texts.distinct):
        if texts.absent[at] or booleans:
            continue
        number = texts.numbers[at]
        if np.isnan(number) or (number != 0 and not _same(spelling.form(word), form)):
            row = texts.first(np.arange(len(texts.distinct)) == at)[0]
            raise _other_form(
                name=name, row=row, word=word, form=form, options=options, where=where
            )
    if not form:
        _refuse_doubt(
            column=texts, table=table, options=options, separators=separators, where=where
        )
    return read_column(column=column, name=name, kind="numbers", options=options, where=where)


def _same(form: str, trained: str) -> bool:
    """Return whether an entry is of the form of the rows that trained; times of a typed column are
    of each form of times."""
    times = [kind for kind in (form, trained) if kind.startswith(("a time", "a duration"))]
    return form == trained or (len(times) == 2 and "a time" in times)


def _other_form(
    name: str, row: int, word: str, form: str, options: TableOptions, where: str
) -> DataError:
    """Return the error that an entry is not what those of the rows that trained are."""
    spelling = options.spelling(name)
    held = form or "a number"
    if held.startswith("a date"):
        held = f"{held}, {options.dates}"
    elif not form:
        marks = {".": "point", ",": "comma"}
        held += f" with a decimal {marks[spelling.decimal]}"
        held += f' and "{spelling.thousands}" between thousands' if spelling.thousands else ""
    also = "" if form else f', or give numbers, e.g. [{{"{name}": 1234.5}}]'
    return DataError(
        f'{row_of(where, row)}: got "{word}" in column {name!r}, where the rows that trained have '
        f"{held}; write it so{also}, or leave it empty where it is missing"
    )


def _refuse_doubt(
    column: TextColumn,
    table: Any,
    options: TableOptions,
    separators: Mapping[str, bool],
    where: str,
) -> None:
    """Refuse ``1.234`` in a text with semicolons, where the rows that trained had other separators
    and decimal points, and nothing else in the text shows its decimal mark; and the reverse."""
    spelling = options.spelling(column.name)
    sep = separators_of(table)
    usual = {";": ",", ",": "."}.get(sep, spelling.decimal)
    style = NumberStyle(table)
    shown = style.points if spelling.decimal == "." else style.decimal_commas
    if usual == spelling.decimal or shown or (separators or {",": True}).get(sep):
        return
    there = np.array(
        [
            not gone and _THREE_DIGITS.fullmatch(word) is not None
            for word, gone in zip(column.distinct, column.absent, strict=True)
        ],
        bool,
    )
    if there.any():
        row, word = column.first(there)
        number = spelling.number(word)
        raise DataError(
            f'{row_of(where, row)}: got "{word}" in column {column.name!r} of a text divided by '
            f'"{sep}", whose usual decimal mark is "{usual}", and the rows that trained have '
            f'"{spelling.decimal}"; if it is {number:.15g}, give numbers, e.g. '
            f'[{{"{column.name}": {number:.15g}}}], or write the text as those rows were'
        )
