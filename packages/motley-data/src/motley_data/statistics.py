"""Statistics of the training rows of a table: what each client measures, their sums, and the
preparation that follows from them.

Under ``scale = "federated"`` every client sends once, for its training rows: their number; for each
column of numbers the number of entries, their sum, and the sum of their squared distances from the
client's own mean; for each column of words the count of each word. Sums over clients then give what
pooled rows give. Distances are squared around the client's mean because the sum of the squares
themselves loses all digits where a mean is large beside its deviation:

    n = sum n_k;  m = sum s_k / n;  Q = sum Q_k + sum n_k (s_k / n_k - m)^2
    (Chan, Golub, LeVeque, 1983)

Counts and sums are 64 bits each, a word is its UTF-8 bytes and a closing one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.client_names import client_in_words
from motley.core.errors import DataError
from motley.tasks.preparation import FittedTable, Preparation, StatisticsTraffic, UnfittedTable
from motley_data.raw_table import RawColumn, RawTable
from motley_data.table_options import TableOptions
from motley_data.table_preparation import (
    NumberColumn,
    TablePreparation,
    WordColumn,
    table_preparation,
)

_BITS = 64
"""Bits of a count or a sum, which travel in double precision."""


@dataclass(frozen=True)
class MeasuredTable(UnfittedTable):
    """A table whose training rows are measured."""

    raw: RawTable

    @property
    @override
    def by_client(self) -> bool:
        return self.raw.options.scale == "client"

    @override
    def fit(
        self,
        rows: Ints,
        owner: Ids,
        train: Bools,
        population: int,
        names: Sequence[str] = (),
        whose: Ids | None = None,
    ) -> FittedTable:
        fitted, traffic = fit(self.raw, rows, owner, train, population=population, names=names)
        return FittedTable(fitted.inputs(self.raw, whose), fitted, traffic)

    @override
    def inputs_of(self, values: Tensor, preparation: Preparation) -> Tensor:
        if not isinstance(preparation, TablePreparation):
            raise TypeError(f"got {type(preparation).__name__}; expected what fit returned")
        columns = (
            column._replace(values=values[:, j].numpy())
            for j, column in enumerate(self.raw.columns)
        )
        return preparation.inputs(tuple(columns))


class ClientSums(NamedTuple):
    """What clients tell of a column of numbers, ``[K]`` each: training rows, entries, their sum,
    and their squared distances from the client's mean, summed."""

    rows: Floats
    entries: Floats
    total: Floats
    squares: Floats


def client_sums(values: Floats, owner: Ids, population: int) -> ClientSums:
    """Return the sums of every client; ``values`` ``[n]`` with NaN for gaps, ``owner`` ``[n]``."""
    there = ~np.isnan(values)
    mine = owner[there]
    present = values[there]
    count = np.bincount(mine, minlength=population).astype(np.float64)
    total = np.bincount(mine, present, population)
    distance = present - (total / np.maximum(count, 1.0))[mine]
    rows = np.bincount(owner, minlength=population).astype(np.float64)
    squares = np.bincount(mine, distance**2, population)
    return ClientSums(rows, count, total.astype(np.float64), squares.astype(np.float64))


def pooled(sums: ClientSums) -> ClientSums:
    """Return the sums of all clients together, ``[1]`` each."""
    count = sums.entries.sum()
    total = sums.total.sum()
    own = sums.total / np.maximum(sums.entries, 1.0)
    squares = sums.squares.sum() + (sums.entries * (own - total / max(count, 1.0)) ** 2).sum()
    return ClientSums(*(np.array([value]) for value in (sums.rows.sum(), count, total, squares)))


def fit(
    table: RawTable,
    rows: Ints,
    owner: Ids,
    train: Bools,
    population: int,
    names: Sequence[str] = (),
) -> tuple[TablePreparation, StatisticsTraffic]:
    """Return the preparation of a table by its training rows, and what their exchange costs.

    Parameters
    ----------
    rows, owner: ``[m]`` the rows that clients hold, and whose they are.
    train: ``[m]`` which of them train.
    names: of the clients.

    Raises
    ------
    DataError: a column without an entry to measure.
    """
    at = rows[train]
    mine = owner[train]
    own = table.options.scale == "client"
    down = 0
    up = np.zeros(population, np.int64)
    columns: list[NumberColumn | WordColumn] = []
    for raw in table.columns:
        values = RawColumn(raw.name, raw.values[at], raw.words)
        if raw.words is None:
            sums = client_sums(values.values, mine, population)
            _refuse_empty(raw.name, sums, table, names)
            columns.append(_numbers(values, sums, mine, table.options))
            if not own:
                down = down + 2 * _BITS
                up = up + 3 * _BITS
        else:
            words = _words(values, table.options, str(table.where))
            columns.append(words)
            down += sum(
                _word_bits(word)
                for word in (*words.categories, *(["other"] if words.other else []), words.fill)
            )
            up += _count_bits(values, mine, population)
    if not own and any(raw.words is None for raw in table.columns):
        up += _BITS  # the number of rows
    # a client without training rows sends nothing
    up = np.where(np.bincount(mine, minlength=population) > 0, up, 0)
    return table_preparation(table, columns, own), StatisticsTraffic(down, up)


def _refuse_empty(name: str, sums: ClientSums, table: RawTable, names: Sequence[str]) -> None:
    """Refuse a column of numbers without an entry to measure, of a client or of all."""
    own = table.options.scale == "client"
    each = sums if own else pooled(sums)
    empty = np.flatnonzero((each.entries == 0) & (each.rows > 0))
    if len(empty):
        whose = (
            f"{client_in_words(int(empty[0]), names)} has no value" if own else "there is no value"
        )
        remedy = f'drop = ["{name}"]' + (', or scale = "federated"' if own else "")
        raise DataError(
            f"{table.where}: {whose} of column {name!r} in its training rows; write {remedy}"
        )


def _numbers(
    column: RawColumn, sums: ClientSums, owner: Ids, options: TableOptions
) -> NumberColumn:
    """Return what fills and scales a column of numbers: means and deviations of its training rows
    after filling."""
    population = len(sums.rows)
    sums = sums if options.scale == "client" else pooled(sums)
    count = np.maximum(sums.entries, 1.0)
    rows = np.maximum(sums.rows, 1.0)
    own_mean = sums.total / count
    fill = _medians(column.values, owner, population) if options.impute == "median" else own_mean
    gaps = sums.rows - sums.entries
    mean = (sums.total + gaps * fill) / rows
    squares = sums.squares + sums.entries * (own_mean - mean) ** 2 + gaps * (fill - mean) ** 2
    variance = squares / rows
    noise = np.finfo(np.float64).eps * rows * (variance + np.finfo(np.float64).eps * rows * mean**2)
    return NumberColumn(column.name, fill, mean, np.where(variance > noise, np.sqrt(variance), 1.0))


def _medians(values: Floats, owner: Ids, population: int) -> Floats:
    """Return the median of each client's entries; 0 for a client without any."""
    there = ~np.isnan(values)
    present = values[there]
    mine = owner[there]
    ends = np.cumsum(np.bincount(mine, minlength=population))[:-1]
    parts = np.split(present[np.argsort(mine, kind="stable")], ends)
    return np.array([np.median(part) if len(part) else 0.0 for part in parts])


def _words(column: RawColumn, options: TableOptions, where: str) -> WordColumn:
    """Return the categories of a column of words: all, or the most frequent ones, ties in
    alphabetical order."""
    words = column.words or ()
    gone = np.isnan(column.values)
    counts = dict(
        zip(
            words,
            np.bincount(column.values[~gone].astype(np.int64), minlength=len(words)).tolist(),
            strict=True,
        )
    )
    if not any(counts.values()) and (options.missing == "most_frequent" or not gone.any()):
        raise DataError(
            f"{where}: there is no value of column {column.name!r} in its training rows; write "
            f'drop = ["{column.name}"]'
        )
    if options.missing == "category":
        fill = "missing"
    else:
        fill = min(counts, key=lambda word: (-counts[word], word))
    counts[fill] = counts.get(fill, 0) + int(gone.sum())
    ranked = sorted(
        (word for word in counts if counts[word]), key=lambda word: (-counts[word], word)
    )
    has_other = len(ranked) > options.categories
    return WordColumn(
        column.name,
        tuple(sorted(ranked[: options.categories - 1] if has_other else ranked)),
        has_other,
        fill,
    )


def _count_bits(column: RawColumn, owner: Ids, population: int) -> Ints:
    """Return the bits ``[K]`` of each client's words with their counts; a gap counts as an empty
    word."""
    sizes = np.array([_word_bits(word) for word in (*(column.words or ()), "")], np.int64) + _BITS
    code = np.where(np.isnan(column.values), len(sizes) - 1, column.values).astype(np.int64)
    pairs = np.unique(owner * len(sizes) + code)
    out: Ints = np.bincount(pairs // len(sizes), sizes[pairs % len(sizes)], population).astype(
        np.int64
    )
    return out


def _word_bits(word: str) -> int:
    """Return the bits of a word on the wire."""
    return 8 * (len(word.encode()) + 1)
