"""The amount of a client's local work in batches, epochs and steps, shared by the planner and the
engines."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Ints
from motley.core.errors import ConfigError

FORWARD = 1.0 / 3.0
"""A forward pass over a batch, as a share of a local step on it (the backward pass costs twice the
forward)."""


@dataclass(frozen=True, slots=True)
class LocalWork:
    """The local work of a round: a number of ``epochs`` over the client's data, or a number of
    ``steps``.

    Parameters
    ----------
    batch_size: samples per step; the last short batch of an epoch is kept.
    epochs: passes over the client's data; None if ``steps`` is given.
    steps: steps independent of the client's size, with as many passes over the data as needed; None
    if ``epochs`` is given.
    max_steps: upper limit on either.
    drop_single: drop a last batch of one sample if the client has at least two batches (models of
        which torch refuses a batch of one in training); nothing is dropped with ``batch_size = 1``.
    client_batch_sizes: int64 ``[K]``, samples per step of each client, where not all can hold
    ``batch_size``; None: all can.
    micro_batch: the most samples that pass through the model at a time; the gradients of a step's
    parts add up to that of its batch. None: all.
    """

    batch_size: int
    epochs: int | None = None
    steps: int | None = None
    max_steps: int | None = None
    drop_single: bool = False
    client_batch_sizes: Ints | None = field(default=None, compare=False)
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ConfigError("give either epochs or steps, not both and not neither", "local")
        for name in ("batch_size", "epochs", "steps", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"got {value}; expected at least 1", f"local.{name}")

    def of(self, client: int) -> LocalWork:
        """Return the work of one client, whose ``batch_size`` is what it can hold."""
        sizes = self.client_batch_sizes
        if sizes is None:
            return self
        return dataclasses.replace(self, batch_size=int(sizes[client]), client_batch_sizes=None)

    def batches(self, examples: ArrayLike, clients: Ints | None = None) -> NDArray[np.int64]:
        """Return the number of batches in one epoch of clients with so many samples; without
        ``clients`` in batches of ``batch_size``."""
        n = np.asarray(examples, dtype=np.int64)
        sizes = self.client_batch_sizes
        full, remainder = np.divmod(
            n, self.batch_size if sizes is None or clients is None else sizes[clients]
        )
        begun = remainder > 0
        if self.drop_single:
            begun &= (remainder > 1) | (full < 1)
        return full + begun

    def total(self, examples: ArrayLike, clients: Ints | None = None) -> NDArray[np.int64]:
        """Return the number of local steps in a whole round; 0 for a client without samples.
        ``clients``: as in :meth:`batches`."""
        per_epoch = self.batches(examples, clients)
        if self.epochs is not None:
            steps = per_epoch * self.epochs
        else:
            steps = np.where(per_epoch > 0, self.steps or 0, 0)
        return steps if self.max_steps is None else np.minimum(steps, self.max_steps)
