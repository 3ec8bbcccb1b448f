"""Ragged arrays: one array of values and the position at which each client's part begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ragged:
    """A list of arrays in one: ``values[offsets[k] : offsets[k + 1]]`` belongs to client ``k``.

    Parameters
    ----------
    offsets: int64 ``[K + 1]``, non-decreasing, from 0.
    values: int64 ``[offsets[-1]]``, row numbers of a data set.
    """

    offsets: NDArray[np.int64]
    values: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[NDArray[np.int64]]) -> Ragged:
        """Return the ragged array of one array per client."""
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        if len(parts):
            values = np.concatenate([np.asarray(part, np.int64) for part in parts])
        else:
            values = np.zeros(0, np.int64)
        return cls(offsets, values)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> NDArray[np.int64]:
        return self.values[self.offsets[client] : self.offsets[client + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return (self[client] for client in range(len(self)))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of values per client, ``[K]``, read-only."""
        # zeros that nobody wrote take no memory
        sizes = np.diff(self.offsets) if self.offsets[-1] else np.zeros(len(self), np.int64)
        sizes.flags.writeable = False
        return sizes

    @property
    def owner(self) -> NDArray[np.int64]:
        """The client of each value, ``[len(values)]``."""
        return np.repeat(np.arange(len(self)), self.sizes)
