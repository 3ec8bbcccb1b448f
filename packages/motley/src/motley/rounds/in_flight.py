"""Dispatches in flight: the clients that were sent out, their timelines, and what is remembered of
each, row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Bools, Floats, Ints
from motley.timing.timeline import Timelines
from motley.transport.ledger import VALUE_BITS

DISPATCH_COLUMNS: Mapping[str, type] = {
    "draw_index": np.int64,  # of the state when the client was sent out
    "model_updates": np.int64,  # model updates that had been made then
    "examples": np.int64,
    "lr": np.float64,
    "weight": np.float64,  # raw weight of its update
    "score": np.float64,  # the selector's score, NaN where it gives none
    "bits_down": np.int64,
    "bits_up": np.int64,
    "paper_bits": np.int64,
    "paper_arrives_s": np.float64,  # when its upload arrives by the papers' account of time
    "theta": np.float64,  # share of its update that may be uploaded
    "budget": np.float64,  # mean share in its round
    "up_mbps": np.float64,
    "width": np.float64,  # share of the model's width, or of the ranks, that it was sent
    "rehearsal": np.bool_,
    "factor": np.float64,  # on the update it sends, of simulated corruption; 1: none
}


@dataclass(frozen=True)
class InFlight:
    """Timelines ``[n]`` and, for each, the columns of :data:`DISPATCH_COLUMNS`."""

    timelines: Timelines
    columns: Mapping[str, NDArray[Any]]

    @classmethod
    def empty(cls) -> InFlight:
        """Return a table without rows."""
        return cls(
            Timelines.empty(),
            {name: np.zeros(0, dtype) for name, dtype in DISPATCH_COLUMNS.items()},
        )

    def __len__(self) -> int:
        return len(self.timelines)

    def staleness(self, model_updates: int) -> Ints:
        """Return how often the model has changed since each was sent out, ``[n]``;
        ``model_updates``: changes until now."""
        changes: Ints = model_updates - self.columns["model_updates"]
        return changes

    def plus(self, timelines: Timelines, columns: Mapping[str, ArrayLike]) -> InFlight:
        """Return the table with new rows at its end; a single number in ``columns`` stands for all
        of them."""
        held = len(self)
        joined = {}
        for name, dtype in DISPATCH_COLUMNS.items():
            column: NDArray[Any] = np.empty(held + len(timelines), dtype)
            column[:held] = self.columns[name]
            column[held:] = columns[name]
            joined[name] = column
        return InFlight(Timelines.concat(self.timelines, timelines), joined)

    def take(self, rows: NDArray[np.int64]) -> InFlight:
        """Return these rows, in this order."""
        return InFlight(
            self.timelines[rows], {name: column[rows] for name, column in self.columns.items()}
        )


@dataclass(frozen=True)
class Landed:
    """The dispatches that end with a server step, in order of client id.

    Parameters
    ----------
    dispatches: ``[n]`` rows.
    outcome: int8 ``[n]``, values of :class:`~motley.core.records.Outcome`.
    sent: bool ``[n]``, whether any of an upload was sent, which is billed by the columns
    ``bits_up`` and ``paper_bits``.
    scale: ``[n]`` staleness factors, None for none.
    mix: whether uploads are mixed in as models (FedAsync).
    """

    dispatches: InFlight
    outcome: NDArray[np.int8]
    sent: Bools
    scale: Floats | None = None
    mix: bool = False

    def __len__(self) -> int:
        return len(self.dispatches)

    def without(self, unsent: Mapping[int, int]) -> Landed:
        """Return the same with uploads that are so many numbers shorter, by row."""
        columns = {**self.dispatches.columns}
        for name in ("bits_up", "paper_bits"):
            columns[name] = columns[name].copy()
            for row, numbers in unsent.items():
                columns[name][row] -= VALUE_BITS * numbers
        dispatches = dataclasses.replace(self.dispatches, columns=columns)
        return dataclasses.replace(self, dispatches=dispatches)
