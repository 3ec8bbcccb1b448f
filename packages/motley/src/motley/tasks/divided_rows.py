"""Test rows that are not drawn one by one: the last of each client's in time, or whole groups of
rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from motley.core.arrays import Bools, Ids, Ints
from motley.core.errors import DataError
from motley.core.keys import Key
from motley.tasks.origin import Origin


@dataclass(frozen=True)
class DividedRows:
    """By what each client's rows are divided into those that train and those that test.

    Parameters
    ----------
    kind: ``last``: the last in time test; ``groups``: whole groups, drawn at random.
    share: of each client's rows, at least.
    ranks: int64 ``[n]``, a number of each row's time, in the order of times, or of its group.
    """

    kind: Literal["last", "groups"]
    share: float
    ranks: Ints

    @property
    def in_words(self) -> str:
        """Which rows test, for readers of the results."""
        if self.kind == "last":
            return f"the last {self.share:g} of each client's rows in time"
        return f"whole groups with {self.share:g} of each client's rows"

    def test(self, rows: Ints, owner: Ids, key: Key, origin: Origin) -> Bools:
        """Return which of these rows test, ``[len(rows)]``.

        Parameters
        ----------
        rows: of the data set.
        owner: the client of each.
        key: draws groups, of each client by its own number.
        origin: of the data set's rows, for messages.

        Raises
        ------
        DataError: a client whose rows are all of one time or group.
        """
        test = np.zeros(len(rows), bool)
        order = np.argsort(owner, kind="stable")
        for mine in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1):
            ranks = self.ranks[rows[mine]]
            if self.kind == "last":
                chosen = _last(ranks, self.share)
            else:
                chosen = _whole_groups(ranks, self.share, key.fold("groups", int(owner[mine[0]])))
            if chosen.all():
                unit = "time" if self.kind == "last" else "group"
                raise DataError(
                    f"{origin.row(int(rows[mine[0]]))}: all rows of this client are of one {unit}, "
                    "so that none could train; leave the client out, or divide by another column"
                )
            test[mine] = chosen
        return test


def _last(ranks: Ints, share: float) -> Bools:
    """Return which rows are the last: at least ``share`` of them, and all of the same time."""
    count = math.ceil(share * len(ranks) - 1e-6)
    border = np.sort(ranks)[len(ranks) - count]
    return np.asarray(ranks >= border)


def _whole_groups(groups: Ints, share: float, key: Key) -> Bools:
    """Return which rows are of the groups drawn: as many groups as ``share`` of the rows needs,
    never all."""
    names, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(names) < 2:
        return np.ones(len(groups), bool)
    drawn = np.argsort(key.uniform(np.arange(len(names)))[:, 0])
    enough = int(np.searchsorted(np.cumsum(sizes[drawn]), share * len(groups) - 1e-6)) + 1
    return np.isin(number, drawn[: min(enough, len(names) - 1)])
