"""Test rows that are not drawn one by one: the last of each client's in time, or whole groups of
rows.

``test={"last": 0.2, "by": "time"}`` tests on the last fifth of each client's rows,
``test={"groups": 0.2, "by": "patient"}`` on whole groups with about a fifth of them.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Ids
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.untrusted import shortened
from motley.tasks.divided_rows import DividedRows
from motley.tasks.origin import Origin, row_of
from motley.tasks.task import Dataset
from motley_data.raw_table import decoded, trimmed
from motley_data.row_times import ORDER
from motley_data.spellings import (
    DateOrder,
    Spelling,
    date_form,
    date_number,
    readable_orders,
    shape_of,
)
from motley_data.table_options import TableOptions

_LINE = 'test={"last": 0.2, "by": "time"}'
_ISO = re.compile(r"\d{4}(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d+)?)?)?)?)?)?")
"""Dates and times of ISO 8601 without a UTC offset."""


@dataclass(frozen=True)
class RowSplit:
    """Which of each client's rows test.

    Parameters
    ----------
    kind: ``last``: the last in time; ``groups``: whole groups, drawn at random.
    share: of the rows, at least.
    by: what time or which group a row is of: a column, :data:`ORDER`, or an array.
    """

    kind: Literal["last", "groups"]
    share: float
    by: Any


def row_split(test: Any) -> RowSplit | None:
    """Return the split that a mapping says; None for anything else.

    Raises
    ------
    ConfigError: keys that are unknown or missing, or a share out of range.
    """
    allowed = ("last", "groups", "by")
    if not isinstance(test, Mapping) or not set(allowed) & set(test):
        return None
    for key in test:
        if key not in allowed:
            raise ConfigError(
                f"test: got {key!r}{suggest(str(key), allowed)}; expected {_LINE}, or "
                'test={"groups": 0.2, "by": "patient"}'
            )
    if ("last" in test) == ("groups" in test) or "by" not in test:
        raise ConfigError(
            f"test: got {', '.join(map(str, test))}; expected one of last and groups, and by, the "
            f"column that says when a row is of or of which group: {_LINE}; rows that come in "
            'their order in time: "by": "order"'
        )
    kind: Literal["last", "groups"] = "last" if "last" in test else "groups"
    share = test[kind]
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise ConfigError(f"test: got {kind} = {share!r}; expected a share above 0 and below 1")
    return RowSplit(kind, float(share), test["by"])


def with_divided_rows(
    dataset: Dataset, split: RowSplit, by: Sequence[NDArray[Any]], options: TableOptions
) -> Dataset:
    """Return the data set with what its rows are divided by.

    Parameters
    ----------
    by: what time, or which group, each row is of, as arrays that follow each other.
    options: how numbers and dates are written.

    Raises
    ------
    DataError: not one per row, or one that is missing, or neither a number nor a date; groups of a
    client that differ in blanks, capitals or the spelling of a number alone.
    """
    arrays = [np.asarray(part) for part in by]
    if not all(array.ndim for array in arrays):
        raise DataError(
            f"test: by has {len(arrays)} numbers or words; expected an array for each client"
        )
    values = np.concatenate(arrays)
    origin = Origin.of_clients("the data", dataset.groups, dataset.client_names, "its samples")
    if values.shape != (len(dataset.y),):
        raise DataError(
            f"test: by has the shape {list(values.shape)} for {len(dataset.y)} samples; expected "
            "one per sample"
        )
    spelling = options.spelling(split.by if isinstance(split.by, str) else "")
    ranks = _ranked(values, split.kind == "last", origin, spelling)
    if split.kind == "groups" and values.dtype.kind in "OUS":
        owner = np.zeros_like(ranks) if dataset.groups is None else dataset.groups
        _refuse_variants(values.astype(str), ranks, owner)
    return dataclasses.replace(dataset, divided=DividedRows(split.kind, split.share, ranks))


def options_without(split: RowSplit | None, options: TableOptions) -> TableOptions:
    """Return options that do not leave out the column by which rows are divided: it is no input
    anyhow."""
    if split is None or split.by not in options.drop:
        return options
    return dataclasses.replace(
        options, drop=tuple(name for name in options.drop if name != split.by)
    )


def times_of(
    inputs: Any, split: RowSplit | None, count: int, where: str
) -> tuple[Any, NDArray[Any]]:
    """Return inputs without the column by which rows are divided, and its values ``[count]``; whole
    numbers for rows that come in their order, or the array given; ``[0]`` where nothing divides.

    Parameters
    ----------
    inputs: an array or an Arrow table.
    where: it, for messages.

    Raises
    ------
    DataError: no such column, or a column of an array.
    """
    if split is None:
        return inputs, np.empty(0, np.int64)
    if not isinstance(split.by, str):
        return inputs, np.asarray(split.by)
    columns = list(getattr(inputs, "column_names", ()))
    if split.by in columns:
        times = decoded(inputs.column(split.by), split.by, where).to_numpy()
        return inputs.drop_columns([split.by]), times
    if split.by == ORDER:
        return inputs, np.arange(count)
    near = suggest(split.by, columns)
    has = f"has no column {split.by!r}{near} beside the label and the clients; the others: "
    if columns:
        raise DataError(f"{where} {has}{', '.join(columns)}")
    raise DataError(
        f"test: got {split.by!r} as the name of a column, and {where} has none; give an "
        'array, or "by": "order" where rows come in their order in time'
    )


def _ranked(values: NDArray[Any], in_time: bool, origin: Origin, spelling: Spelling) -> Ids:
    """Return a whole number of each time or group, in the order of times."""
    if values.dtype.kind in "OUS":
        gone = np.array(
            [value is None or value != value or str(value).strip() == "" for value in values]
        )
        if not gone.any() and in_time:
            values = _times(values, origin, spelling)
        elif not gone.any():
            values = values.astype(str)
    else:
        gone = np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values.astype(float))
    if gone.any():
        raise DataError(
            f"{row_of(origin, int(gone.argmax()))}: the {'time' if in_time else 'group'} by which "
            f"rows are divided is missing (in {int(gone.sum())} of {len(gone)} rows); fill or drop "
            "these rows"
        )
    return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)


def _refuse_variants(words: NDArray[Any], ranks: Ids, owner: NDArray[Any]) -> None:
    """Refuse groups of a client that may be one group in several spellings: its rows would lie on
    both sides of the split."""
    distinct = np.unique(words)
    spellings: dict[tuple[int, Any], set[str]] = {}
    for client, rank in np.unique(np.stack([owner, ranks], axis=1), axis=0).tolist():
        word = str(distinct[rank])
        spellings.setdefault((client, _plain(word)), set()).add(word)
    same = sorted({word for group in spellings.values() if len(group) > 1 for word in group})
    if same:
        listed = shortened(", ".join(map(repr, same)), 200)
        raise DataError(
            "test: groups differ in blanks, capitals or the spelling of numbers alone, and rows of "
            f"one would train and test: {listed}; write each in one spelling, or different names"
        )


def _plain(word: str) -> str | Decimal:
    """Return a text without what spellings of one name differ in; a number as such."""
    seen = "".join(letter for letter in word if unicodedata.category(letter) != "Cf")
    plain = trimmed(seen).casefold()
    try:
        number = Decimal(plain)
    except InvalidOperation:
        return plain
    return number if number.is_finite() else plain


def _times(values: NDArray[Any], origin: Origin, spelling: Spelling) -> NDArray[Any]:
    """Return words that are numbers or dates as such: dates of ISO 8601, or in the order that
    options say.

    Raises
    ------
    DataError: a word that is neither, or is of another form than the first.
    """
    words, at = np.unique([str(value).strip() for value in values.tolist()], return_inverse=True)
    numbers = [dataclasses.replace(spelling, dates="").number(word) for word in words.tolist()]
    if not np.isnan(numbers).any():
        return np.asarray(numbers)[at]
    if all(map(_ISO.fullmatch, words.tolist())):
        return words.astype("datetime64[ns]")[at]
    order: DateOrder = spelling.dates or "year first"
    first = str(words[at[0]])
    for row in sorted(np.unique(at, return_index=True)[1].tolist()):
        word = str(words[at[row]])
        read = date_number(word, order) is not None and (spelling.dates or re.match(r"\d{4}", word))
        if not read:
            raise DataError(
                f"{row_of(origin, row)}: got {word!r} as a time; expected numbers, or dates like "
                f"2024-05-31 or 2024-05-31T18:00{_line_of(words.tolist(), word)}"
            )
        if date_form(word, order) != date_form(first, order):
            raise DataError(
                f"{row_of(origin, row)}: got {word!r} as a time, and {first!r} is "
                f"{date_form(first, order)}; write all of them in one form"
            )
    return np.array([date_number(word, order) for word in words.tolist()])[at]


def _line_of(words: list[str], word: str) -> str:
    """Return the option that reads times in another spelling; nothing where none does."""
    orders = readable_orders(words)
    keys: list[tuple[str, str]] = [("dates", order) for order in orders]
    if not orders and "decimal ," in shape_of(word)[0]:
        keys = [("decimal", ",")]
    if not keys:
        return ""
    lines = " or ".join(f'{key} = "{value}"' for key, value in keys)
    python = f'{{"scale": "none", "{keys[0][0]}": "{keys[0][1]}"}}'
    return f"; write {lines}, as they are meant (in Python table={python})"
