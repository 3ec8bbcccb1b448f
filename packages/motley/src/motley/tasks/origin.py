"""Where a row of a data set came from, in words: its client by name, and its number, counted from
1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ints
from motley.core.client_names import client_in_words


def _unnamed(client: int) -> str:
    return client_in_words(client, ())


@dataclass(frozen=True, eq=False)
class Origin:
    """The rows of a data set as their owner knows them; as text, the whole.

    Parameters
    ----------
    where: the whole, e.g. a file.
    owner: ``[n]``, the client of each row; None: rows have none.
    client: a client in words.
    parts: what each client's own file or samples are called, where rows are counted within these;
    empty: within the whole.
    numbers: ``[n]``, the number of each row there, from 0, where some rows were left out; None: no
    row was.

    Example
    -------
    >>> Origin.of_clients("all.csv", np.array([0, 1, 1]), ["hosp_A", "hosp_B"]).row(2)
    'client hosp_B, row 3 of all.csv'
    >>> Origin("the files", np.array([0, 1, 1]), parts="its file").row(2)
    'client 1, row 2 of its file'
    >>> Origin("all.csv", numbers=np.array([0, 2, 3])).row(1)
    'row 3 of all.csv'
    """

    where: str
    owner: Ints | None = None
    client: Callable[[int], str] = _unnamed
    parts: str = ""
    numbers: Ints | None = None

    @classmethod
    def of_clients(
        cls, where: str, owner: Ints | None, names: Sequence[str], parts: str = ""
    ) -> Origin:
        """Return the origin of rows whose clients have names, which may be empty."""
        return cls(where, owner, partial(client_in_words, names=names), parts)

    @override
    def __str__(self) -> str:
        return self.where

    def row(self, row: int) -> str:
        """Return a row in words; ``row`` is counted from 0."""
        if self.owner is None:
            return f"row {self.number(row)} of {self.where}"
        client = int(self.owner[row])
        return f"{self.client(client)}, row {self.number(row)} of {self.parts or self.where}"

    def number(self, row: int) -> int:
        """Return the number of a row, counted from 1, where its owner counts it."""
        if self.numbers is not None:
            return int(self.numbers[row]) + 1
        if self.parts and self.owner is not None:
            return int(np.count_nonzero(self.owner[:row] == self.owner[row])) + 1
        return row + 1


def number_of_row(where: str | Origin, row: int) -> int:
    """Return the number of a row of what a message is about, counted from 1."""
    return where.number(row) if isinstance(where, Origin) else row + 1


def row_of(where: str | Origin, row: int) -> str:
    """Return a row of what a message is about in words; ``row`` is counted from 0."""
    return (where if isinstance(where, Origin) else Origin(where)).row(row)
