"""Timelines: when each client that was sent out received, computed and delivered. Columns, in virtual seconds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Floats, Ids

__all__ = ["Timelines"]


@dataclass(frozen=True)
class Timelines:
    """One row per client sent out.

    Parameters
    ----------
    client, dispatch, version, steps: int64 ``[n]``; version is the model version the client works on.
    start_s, downloaded_s, computed_s, arrives_s: float64 ``[n]``, virtual seconds since the start of the run. A dropped client
    never arrives: ``arrives_s`` is the moment it is gone (and nothing is delivered).
    dropped: bool ``[n]``.
    """

    client: Ids
    dispatch: Ids
    version: Ids
    steps: Ids
    start_s: Floats
    downloaded_s: Floats
    computed_s: Floats
    arrives_s: Floats
    dropped: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.client)

    def __getitem__(self, which: ArrayLike | slice) -> Timelines:
        at: Any = which if isinstance(which, slice) else np.asarray(which)
        return Timelines(*(getattr(self, f.name)[at] for f in fields(self)))

    @classmethod
    def empty(cls) -> Timelines:
        """Nobody."""
        ints, floats = np.zeros(0, np.int64), np.zeros(0)
        return cls(ints, ints, ints, ints, floats, floats, floats, floats, np.zeros(0, bool))

    @classmethod
    def concat(cls, first: Timelines, second: Timelines) -> Timelines:
        """Rows of the first, then of the second."""
        return cls(*(np.concatenate([getattr(first, f.name), getattr(second, f.name)]) for f in fields(cls)))
