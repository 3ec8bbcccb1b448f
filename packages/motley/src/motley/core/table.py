"""A table with one row per client and float columns, which grows when new clients appear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class ClientTable:
    """An immutable table of clients: writing returns a new table.

    Parameters
    ----------
    defaults: column -> the value for a client that has no row.
    ids: int64 ``[n]``, sorted, distinct.
    columns: column -> float64 ``[n]`` or ``[n, d]``.

    Example
    -------
    >>> table = ClientTable({"count": 0.0}).add("count", [7, 3])
    >>> table.get("count", [3, 4, 7]).tolist()
    [1.0, 0.0, 1.0]
    """

    defaults: Mapping[str, float]
    ids: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def _rows(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_] | bool]:
        """Return the positions of ``ids`` in the table and whether each is present."""
        n = len(self.ids)
        if n and self.ids[0] == 0 and self.ids[-1] == n - 1:  # dense: the id is the row
            inside = (ids >= 0) & (ids < n)
            return (ids, True) if inside.all() else (np.where(inside, ids, 0), inside)
        # few gaps: looked up faster than searched
        if n and len(ids) > n // 8 and self.ids[0] >= 0 and self.ids[-1] < 4 * n:
            inside = (ids >= 0) & (ids < len(self._places))
            at = self._places[ids if inside.all() else np.where(inside, ids, 0)]
            present = inside & (at >= 0)
            return (at, True) if present.all() else (np.maximum(at, 0), present)
        at = np.searchsorted(self.ids, ids)
        at = np.minimum(at, max(n - 1, 0))
        return at, (self.ids[at] == ids) if n else np.zeros(len(ids), bool)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """The row of every number up to the largest id, -1 where no client has this number."""
        places = np.full(self.ids[-1] + 1, -1)
        places[self.ids] = np.arange(len(self.ids))
        return places

    def _with(self, columns: Mapping[str, NDArray[np.float64]]) -> ClientTable:
        """Return a table of the same clients, which has no need to look for their rows again."""
        table = ClientTable(self.defaults, self.ids, columns)
        if "_places" in self.__dict__:
            table.__dict__["_places"] = self._places
        return table

    def get(self, name: str, ids: ArrayLike) -> NDArray[np.float64]:
        """Return a column at these ids, ``[len(ids)]`` or ``[len(ids), d]``, read-only; the default
        for clients without a row.

        Reading all clients of the table copies nothing. A column that was never written is
        ``[len(ids)]``.

        Raises
        ------
        KeyError: no such column.
        """
        wanted = np.atleast_1d(np.asarray(ids, dtype=np.int64))
        default = self.defaults[name]
        column = self.columns.get(name)
        if column is None:
            out = np.full(len(wanted), default)
        elif not len(self.ids):
            out = np.full((len(wanted), *column.shape[1:]), default)
        elif len(wanted) == len(self.ids) and np.array_equal(wanted, self.ids):
            out = column.view()
        else:
            at, present = self._rows(wanted)
            out = column[at]
            if present is not True:
                out[~np.asarray(present)] = default
        out.flags.writeable = False
        return out

    def grow(self, ids: ArrayLike) -> ClientTable:
        """Return the table with rows for these ids added."""
        wanted = np.atleast_1d(np.asarray(ids, dtype=np.int64))
        if len(self.ids):
            _, present = self._rows(wanted)
            if present is True or np.asarray(present).all():
                return self
        grown = ClientTable(self.defaults, _union(self.ids, wanted))
        old, _ = grown._rows(self.ids)
        columns = {}
        for name, column in self.columns.items():
            wider = np.full((len(grown), *column.shape[1:]), self.defaults[name])
            wider[old] = column
            columns[name] = wider
        return grown._with(columns)

    def put(
        self, ids: ArrayLike, values: Mapping[str, ArrayLike], keep_nan: bool = False
    ) -> ClientTable:
        """Return the table with columns written at distinct ids. A NaN keeps the old value, unless
        ``keep_nan``.

        The first write determines the width of a column; one number per client is written to every
        entry of a row.

        Raises
        ------
        KeyError: a column that has no default. ValueError: another width than the column's.
        """
        wanted = np.atleast_1d(np.asarray(ids, dtype=np.int64))
        grown = self.grow(wanted)
        all_rows = len(wanted) == len(grown.ids) and np.array_equal(wanted, grown.ids)
        at = grown._rows(wanted)[0] if len(wanted) and not all_rows else wanted
        columns = dict(grown.columns)
        for name, value in values.items():
            new = np.asarray(value, dtype=np.float64)
            new = np.broadcast_to(new, (len(wanted), *new.shape[1:]))
            old = columns.get(name)
            if old is not None and new.ndim < old.ndim:
                new = new[:, None]
            if old is None:
                column = np.full((len(grown.ids), *new.shape[1:]), self.defaults[name])
            else:
                column = old.copy()
            if all_rows:  # nothing is looked up, and no value waits beside the column
                np.copyto(column, new, where=True if keep_nan else ~np.isnan(new))
            else:
                column[at] = new if keep_nan else np.where(np.isnan(new), column[at], new)
            columns[name] = column
        return grown._with(columns)

    def add(self, name: str, ids: ArrayLike, amount: ArrayLike = 1.0) -> ClientTable:
        """Return the table with ``amount`` added to one column at distinct ids."""
        return self.put(ids, {name: self.get(name, ids) + np.asarray(amount, dtype=np.float64)})


def _union(old: NDArray[np.int64], new: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct ids of both, sorted; ``old`` is."""
    if not len(old) and bool((new[1:] > new[:-1]).all()):
        return new.copy()
    both: NDArray[np.int64] = np.concatenate([old, new])
    if both.min() >= 0 and both.max() < 4 * len(both):  # few gaps: marked faster than sorted
        held = np.zeros(both.max() + 1, bool)
        held[both] = True
        return np.flatnonzero(held)
    both.sort(kind="stable")  # which merges what is sorted already
    first = np.ones(len(both), bool)
    first[1:] = both[1:] != both[:-1]
    return np.asarray(both[first])
