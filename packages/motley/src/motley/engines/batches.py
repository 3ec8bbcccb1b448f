"""Which samples each local step uses, drawn before training, the same for every engine; for one
client and for several at once.

Every epoch is a permutation of the client's own samples, from the job's ``batches`` stream; the
last short batch of an epoch is kept (with ``LocalWork.drop_single``, a last batch of one sample is
left out when there are others). A job with fewer steps uses the same batches as the first steps of
a longer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Ints
from motley.core.keys import Key
from motley.core.work import LocalWork


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batches of one job.

    Parameters
    ----------
    order: int64 ``[T]``, positions among the client's own samples, step after step.
    bounds: int64 ``[steps + 1]``; step s uses ``order[bounds[s] : bounds[s + 1]]``.

    Example
    -------
    >>> work = LocalWork(batch_size=2, epochs=2)
    >>> plan = BatchPlan.draw(Key(0).fold("batches"), examples=5, work=work, steps=6)
    >>> plan.sizes.tolist(), sorted(plan.order[:5].tolist())
    ([2, 2, 1, 2, 2, 1], [0, 1, 2, 3, 4])
    """

    order: Ints
    bounds: Ints

    @classmethod
    def draw(cls, key: Key, examples: int, work: LocalWork, steps: int) -> BatchPlan:
        """Draw the first ``steps`` batches of a client with ``examples`` samples; an empty plan
        when either is 0."""
        bounds, used = _bounds(examples, work, steps)
        epochs = -(-int(bounds[-1]) // used) if used else 0
        # a copy, for rows that are broadcast share one memory, and each is shuffled in place
        orders = np.broadcast_to(np.arange(examples), (epochs, examples)).copy()
        key.numpy().permuted(orders, axis=1, out=orders)
        return cls(orders[:, :used].reshape(-1)[: bounds[-1]], bounds)

    @classmethod
    def of(cls, batches: Sequence[Ints]) -> BatchPlan:
        """Return the plan of these batches, each the positions of a step's samples."""
        sizes = [len(batch) for batch in batches]
        order = np.concatenate([np.zeros(0, np.int64), *batches])
        return cls(order, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, step: int) -> Ints:
        return self.order[self.bounds[step] : self.bounds[step + 1]]

    @property
    def sizes(self) -> Ints:
        """Number of samples in each step's batch, ``[steps]``."""
        return np.diff(self.bounds)


@lru_cache(maxsize=4096)
def _bounds(examples: int, work: LocalWork, steps: int) -> tuple[Ints, int]:
    """Return where each batch begins, and how many samples of a permutation an epoch uses."""
    batches = int(work.batches(examples))
    if not batches or not steps:
        return np.zeros(1, np.int64), 0
    sizes = np.full(batches, work.batch_size)
    sizes[-1] = min(work.batch_size, examples - work.batch_size * (batches - 1))
    bounds = np.concatenate([[0], np.cumsum(np.resize(sizes, steps))])
    # the cache gives one array to all that ask
    bounds.flags.writeable = False
    return bounds, int(sizes.sum())


@dataclass(frozen=True)
class BatchSchedule:
    """The batches of c clients that train together, flattened so that one step of all of them is
    one slice.

    Clients are ordered by planned steps, longest first; step s concerns the first ``active[s]``
    clients. Within a step every client has as many places as the step's largest batch; places
    beyond a client's own batch repeat the client's first sample with weight 0.

    Parameters
    ----------
    places: int64 ``[T]``, sample of each place (position in the samples of all c clients), steps
    outermost, then clients.
    weight: float64 ``[T]``, 1 over the size of the client's batch; 0 beyond the batch.
    owner: int64 ``[T]``, client index.
    offsets: int64 ``[S + 1]``, where each step begins.
    active: int64 ``[S]``, clients in each step.
    width: int64 ``[S]``, places per client in each step.
    even: bool ``[S]``, whether every client fills its places.
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
        """Build the schedule from the clients' plans, longest first, and the position at which each
        client's samples begin.

        Example
        -------
        >>> longer = BatchPlan(np.arange(3), np.array([0, 2, 3]))
        >>> shorter = BatchPlan(np.arange(1), np.array([0, 1]))
        >>> schedule = BatchSchedule.of([longer, shorter], np.array([0, 10]))
        >>> schedule.places.tolist(), schedule.weight.tolist(), schedule.active.tolist()
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
        return cls(
            places[inside],
            weight=weight[inside],
            owner=owner[inside],
            offsets=offsets,
            active=active,
            width=width,
            even=even,
        )

    def __len__(self) -> int:
        return len(self.active)
