"""The batches of several clients on one tape, so that a step of all of them is one slice.

Clients are ordered by planned steps, longest first; step s then concerns the prefix of clients that still have one. Within a
step every client gets as many places as the largest batch of that step; places beyond a client's own batch repeat its
first sample with weight 0, so they change nothing for it and touch nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Ints
from motley.engines.batches import BatchPlan

__all__ = ["BatchSchedule"]


@dataclass(frozen=True)
class BatchSchedule:
    """What c clients see, step after step.

    Parameters
    ----------
    places: int64 ``[T]``, sample of each place (positions in the training rows of everybody), steps outermost, then clients.
    weight: float64 ``[T]``, 1 over the size of the client's batch; 0 beyond it. owner: int64 ``[T]``, client index.
    offsets: int64 ``[S + 1]``, where each step begins. active: int64 ``[S]``, clients in each step. width: int64 ``[S]``,
    places per client in each step. even: bool ``[S]``, whether every client fills its places.
    """

    places: Ints
    weight: NDArray[np.float64]
    owner: Ints
    offsets: Ints
    active: Ints
    width: Ints
    even: NDArray[np.bool_]

    @classmethod
    def of(cls, plans: Sequence[BatchPlan], starts: Ints) -> BatchSchedule:
        """From the clients' plans, longest first, and where each client's samples begin.

        Example
        -------
        >>> plans = [BatchPlan(np.arange(3), np.array([0, 2, 3])), BatchPlan(np.arange(1), np.array([0, 1]))]
        >>> tape = BatchSchedule.of(plans, np.array([0, 10]))
        >>> tape.places.tolist(), tape.weight.tolist(), tape.active.tolist()
        ([0, 1, 10, 10, 2], [0.5, 0.5, 1.0, 0.0, 1.0], [2, 1])
        """
        steps = len(plans[0]) if plans else 0
        sizes = np.zeros((steps, len(plans)), np.int64)
        for i, plan in enumerate(plans):
            sizes[: len(plan), i] = plan.sizes
        width = sizes.max(axis=1, initial=0)
        places = np.zeros((steps, len(plans), int(width.max(initial=0))), np.int64)
        for i, plan in enumerate(plans):
            own = places[: len(plan), i]
            own[...] = plan.order[0] if len(plan) else 0
            own[np.arange(own.shape[1]) < plan.sizes[:, None]] = plan.order
            own += starts[i]
        return cls._flatten(places, sizes, width)

    @classmethod
    def _flatten(cls, places: Ints, sizes: Ints, width: Ints) -> BatchSchedule:
        active = (sizes > 0).sum(axis=1)
        count = np.where(sizes > 0, width[:, None], 0)
        inside = np.arange(places.shape[2]) < count[:, :, None]
        filled = np.arange(places.shape[2]) < sizes[:, :, None]
        weight = filled / np.maximum(sizes, 1)[:, :, None]
        owner = np.broadcast_to(np.arange(places.shape[1])[:, None], places.shape)
        even = ((sizes == width[:, None]) | (sizes == 0)).all(axis=1)
        offsets = np.concatenate([[0], np.cumsum(active * width)])
        return cls(places[inside], weight[inside], owner[inside], offsets, active, width, even)

    def __len__(self) -> int:
        return len(self.active)
