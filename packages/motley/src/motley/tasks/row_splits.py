"""Test rows that are not drawn one by one: the last of each client's in time, or whole groups of
rows; and the refusal to draw windows of a series at random.

``test={"last": 0.2, "by": "time"}`` tests on the last fifth of each client's rows,
``test={"groups": 0.2, "by": "patient"}`` on whole groups with about a fifth of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Bools, Ids
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.keys import Key
from motley.tasks.origin import Origin, row_of
from motley.tasks.task import Dataset

__all__ = ["ORDER", "RowSplit", "check_no_windows", "row_split", "with_test_rows"]

ORDER = "order"
"""``by`` of rows that come in their order in time."""
_LINE = 'test={"last": 0.2, "by": "time"}'
_LOOKED_AT = 32
"""Consecutive rows of a client that are looked at for windows of a series."""
_FEWEST = 5


@dataclass(frozen=True)
class RowSplit:
    """Which of each client's rows test.

    Parameters
    ----------
    kind: ``last``: the last in time; ``groups``: whole groups, drawn at random. share: of the rows,
    at least. by: what time or which group a row is of: a column, :data:`ORDER`, or an array.
    """

    kind: Literal["last", "groups"]
    share: float
    by: Any


def row_split(test: Any, validation: float) -> RowSplit | None:
    """Return the split that a mapping says; None for anything else.

    Raises
    ------
    ConfigError: keys that are unknown or missing, a share out of range, or validation rows, which
    would be drawn at random.
    """
    if not isinstance(test, Mapping) or not ({"last", "groups", "by"} & set(test)):
        return None
    allowed = ("last", "groups", "by")
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
    if validation:
        raise ConfigError(
            f"validation: got {validation} beside test by {kind}; it is drawn at random: leave it "
            "out"
        )
    return RowSplit(kind, float(share), test["by"])


def with_test_rows(
    dataset: Dataset, split: RowSplit, by: Sequence[NDArray[Any]], key: Key
) -> Dataset:
    """Return the data set with a test half.

    Parameters
    ----------
    by: what time, or which group, each row is of, as arrays that follow each other. key: draws
    groups.

    Raises
    ------
    DataError: not one per row, one that is missing or neither a number nor a date, or a client
    whose rows cannot be divided.
    """
    values = np.concatenate([np.asarray(one) for one in by])
    origin = Origin.of_clients("the data", dataset.groups, dataset.client_names, "its samples")
    if values.shape != (len(dataset.y),):
        raise DataError(
            f"test: by has the shape {list(values.shape)} for {len(dataset.y)} samples; expected "
            "one per sample"
        )
    ranks = _ranked(values, split.kind == "last", origin)
    owner = np.zeros(len(ranks), np.int64) if dataset.groups is None else dataset.groups
    test = np.zeros(len(ranks), bool)
    order = np.argsort(owner, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1):
        mine = ranks[rows]
        chosen = (
            _last(mine, split.share)
            if split.kind == "last"
            else _whole_groups(mine, split.share, key.fold("groups", int(owner[rows[0]])))
        )
        if chosen.all():
            raise DataError(
                f"{row_of(origin, int(rows[0]))}: all rows of this client are of one "
                f"{'time' if split.kind == 'last' else 'group'}, so that none could train; leave "
                "the client out, or divide by another column"
            )
        test[rows] = chosen
    said = (
        f"the last {split.share:g} of each client's rows in time"
        if split.kind == "last"
        else f"whole groups with {split.share:g} of each client's rows"
    )
    return dataclasses.replace(dataset, test=test, notes={**dataset.notes, "split": said})


def _ranked(values: NDArray[Any], in_time: bool, origin: Origin) -> Ids:
    """Return a whole number of each time or group, in the order of times."""
    if values.dtype.kind in "OUS":
        gone = np.array([one is None or one != one or str(one).strip() == "" for one in values])
        if not gone.any() and in_time:
            values = _dates(values, origin)
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


def _dates(values: NDArray[Any], origin: Origin) -> NDArray[Any]:
    """Return words that are numbers or dates of ISO 8601 as such.

    Raises
    ------
    DataError: a word that is neither.
    """
    for kind in ("float64", "datetime64[ns]"):
        try:
            found: NDArray[Any] = values.astype(str).astype(kind)
        except ValueError:
            continue
        return found
    for row, word in enumerate(values):
        try:
            np.datetime64(str(word))
        except ValueError:
            raise DataError(
                f"{row_of(origin, row)}: got {str(word)!r} as a time; expected numbers, or dates "
                "like 2024-05-31 or 2024-05-31T18:00"
            ) from None
    raise DataError("test: the times by which rows are divided are of several forms")


def _last(ranks: Ids, share: float) -> Bools:
    """Return which rows are the last: at least ``share`` of them, and all of the same time."""
    count = math.ceil(share * len(ranks) - 1e-6)
    border = np.sort(ranks)[len(ranks) - count]
    return np.asarray(ranks >= border)


def _whole_groups(groups: Ids, share: float, key: Key) -> Bools:
    """Return which rows are of the groups drawn: as many groups as ``share`` of the rows needs,
    never all."""
    names, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(names) < 2:
        return np.ones(len(groups), bool)
    drawn = np.argsort(key.uniform(np.arange(len(names)))[:, 0])
    enough = int(np.searchsorted(np.cumsum(sizes[drawn]), share * len(groups) - 1e-6)) + 1
    return np.isin(number, drawn[: min(enough, len(names) - 1)])


def check_no_windows(dataset: Dataset) -> None:
    """Refuse to draw test rows at random from windows of a series that overlap: a test row would
    lie within rows that train.

    Looked at are the first rows of the first clients, whether each is the one before it, moved on.

    Raises
    ------
    DataError: the samples are such windows.
    """
    owner = np.zeros(len(dataset.y), np.int64) if dataset.groups is None else dataset.groups
    for client in np.unique(owner[: 4 * _LOOKED_AT])[:3]:
        rows = np.flatnonzero(owner == client)[:_LOOKED_AT]
        x = dataset.x[rows].numpy()
        if len(rows) >= _FEWEST and _moves_on(x):
            origin = Origin.of_clients("", dataset.groups, dataset.client_names, "its samples")
            raise DataError(
                f"{row_of(origin, int(rows[1]))}: each sample is the one before it moved on, a "
                "window of a series, and drawn at random most test samples would lie within "
                f"training samples; write {_LINE}, or, where samples come in their order in time, "
                'test={"last": 0.2, "by": "order"}'
            )


def _moves_on(x: NDArray[Any]) -> bool:
    """Return whether each row ``[n, ...]`` repeats the one before it but for a few steps at an end,
    along its first or its last axis."""
    if x.ndim < 2 or len(np.unique(x.reshape(len(x), -1), axis=0)) < len(x):
        return False
    return any(_overlaps(np.moveaxis(x, axis, 1)) for axis in {1, x.ndim - 1})


def _overlaps(x: NDArray[Any]) -> bool:
    length = x.shape[1]
    for step in range(1, min(length // 2, 16) + 1):
        if length - step < 2:
            break
        for first, second in ((x[:-1, step:], x[1:, :-step]), (x[:-1, :-step], x[1:, step:])):
            if np.array_equal(first, second):
                return True
    return False
