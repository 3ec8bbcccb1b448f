"""Which samples each local step sees: drawn before training, the same for every engine.

Every epoch is a permutation of the client's own samples, from the job's ``batches`` stream; the last short batch of an epoch is
kept (and with ``LocalWork.drop_single`` a last batch of one sample is left out when there are others). Fewer steps see the
same batches as the first of many: cutting a job short changes nothing before the cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from motley.core.arrays import Ints
from motley.core.keys import Key
from motley.core.work import LocalWork

__all__ = ["BatchPlan"]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batches of one job.

    Parameters
    ----------
    order: int64 ``[T]``, positions among the client's own samples, step after step.
    bounds: int64 ``[steps + 1]``: step s sees ``order[bounds[s] : bounds[s + 1]]``.

    Example
    -------
    >>> plan = BatchPlan.draw(Key(0).fold("batches"), examples=5, work=LocalWork(batch_size=2, epochs=2), steps=6)
    >>> plan.sizes.tolist(), sorted(plan.order[:5].tolist())
    ([2, 2, 1, 2, 2, 1], [0, 1, 2, 3, 4])
    """

    order: Ints
    bounds: Ints

    @classmethod
    def draw(cls, key: Key, examples: int, work: LocalWork, steps: int) -> BatchPlan:
        """The first ``steps`` batches of a client with ``examples`` samples; empty when either is 0."""
        bounds, used = _bounds(examples, work, steps)
        epochs = -(-int(bounds[-1]) // used) if used else 0
        orders = np.broadcast_to(np.arange(examples), (epochs, examples)).copy()
        key.numpy().permuted(orders, axis=1, out=orders)
        return cls(orders[:, :used].reshape(-1)[: bounds[-1]], bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, step: int) -> Ints:
        return self.order[self.bounds[step] : self.bounds[step + 1]]

    @property
    def sizes(self) -> Ints:
        """Samples in each step's batch, ``[steps]``."""
        return np.diff(self.bounds)


@lru_cache(maxsize=4096)
def _bounds(examples: int, work: LocalWork, steps: int) -> tuple[Ints, int]:
    """Where each batch begins, and how many samples of a permutation an epoch uses."""
    batches = int(work.batches(examples))
    if not batches or not steps:
        return np.zeros(1, np.int64), 0
    sizes = np.full(batches, work.batch_size)
    sizes[-1] = min(work.batch_size, examples - work.batch_size * (batches - 1))
    bounds = np.concatenate([[0], np.cumsum(np.resize(sizes, steps))])
    bounds.flags.writeable = False
    return bounds, int(sizes.sum())
