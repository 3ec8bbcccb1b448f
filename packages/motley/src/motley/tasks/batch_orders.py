"""Orders of batches of your own, for ``own_task(..., batches=...)``: which of a client's samples
each of its local steps uses, through the whole run.

Without one, every round begins a new pass over the samples (:mod:`motley.engines.batches`). Other
codes go on where the last round stopped (:class:`Carried`), some with the numbers that torch's
``DataLoader`` draws (:class:`TorchLoaders`).

>>> first = itertools.islice(Carried((5, 3), 2)(0, 0), 6)
>>> [len(batch) for batch in first]
[2, 2, 1, 2, 2, 1]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from motley.core.arrays import Ints
from motley.core.errors import DataError
from motley.core.keys import Key

BatchOrder = Callable[[int, int], Iterable[Sequence[int] | Ints]]
"""A function of the run's seed and a client that yields, for one local step after the other, the
positions of its batch among the client's training samples."""


@dataclass(frozen=True)
class Carried:
    """Passes without replacement that go on across rounds, the last short batch of a pass kept.

    Parameters
    ----------
    sizes: training samples of each client.
    batch_size: samples of a step.
    """

    sizes: tuple[int, ...]
    batch_size: int

    def __call__(self, seed: int, client: int) -> Iterator[Ints]:
        """Yield the batches of a client without end."""
        key = Key(seed).fold("batches").fold("carried", client)
        for number in itertools.count():
            order = key.fold(number).numpy().permutation(self.sizes[client])
            yield from _cut(order, self.batch_size)


@dataclass(frozen=True)
class TorchLoaders:
    """The batches of ``DataLoader(..., batch_size, shuffle=True)``, one for each client, after
    ``torch.manual_seed(seed)``; an iterator that is used up is made anew, and goes on across
    rounds. Torch's generator is shared, so the clients' batches depend on whose turn it is.

    Parameters
    ----------
    sizes: training samples of each client.
    batch_size: samples of a step.
    steps: batches that a client takes in its turn.
    turns: the clients that take turns, in order; empty: all of them, again and again.
    made_before: whether the loaders' first iterators were made before the seed was set, so that
    what making one draws is not drawn after it.
    first_seeds: of the first pass of each client, drawn before the seed was set, where the loaders
    have workers, which fetch batches ahead; empty: drawn when the first batch is taken.
    """

    sizes: tuple[int, ...]
    batch_size: int
    steps: int
    turns: tuple[int, ...] = ()
    made_before: bool = False
    first_seeds: tuple[int, ...] = ()

    def __call__(self, seed: int, client: int) -> Iterator[Ints]:
        """Yield the batches of a client, as long as it has turns."""
        drawn = _drawn(self, seed)
        for at in itertools.count():
            if not drawn.reach(client, at):
                return
            yield drawn.batches[client][at]


class _Drawn:
    """The batches that loaders have drawn so far, by client."""

    def __init__(self, loaders: TorchLoaders, seed: int) -> None:
        everybody = [client for client, size in enumerate(loaders.sizes) if size]
        self.loaders = loaders
        self.generator = torch.Generator().manual_seed(seed)
        self.turns = iter(loaders.turns or itertools.cycle(everybody))
        self.batches: list[list[Ints]] = [[] for _ in loaders.sizes]
        self.left: list[list[Ints]] = [[] for _ in loaders.sizes]
        self.fresh = [loaders.made_before] * len(loaders.sizes)
        for client, first in enumerate(loaders.first_seeds):
            self.left[client] = self._pass(client, first)
            self.fresh[client] = False

    def reach(self, client: int, at: int) -> bool:
        """Let turns pass until a client has its batch number ``at``; return whether it comes."""
        while len(self.batches[client]) <= at:
            turn = next(self.turns, None)
            if turn is None:
                return False
            for _ in range(self.loaders.steps):
                self.batches[turn].append(self._next(turn))
        return True

    def _next(self, client: int) -> Ints:
        """Return the next batch of a client's loader."""
        left = self.left[client]
        if not left:
            if not self.fresh[client]:
                drawn_number(self.generator)  # the iterator's seed for workers
            self.fresh[client] = False
            left = self.left[client] = self._pass(client, drawn_number(self.generator))
        return left.pop(0)

    def _pass(self, client: int, seed: int) -> list[Ints]:
        """Return the batches of a pass whose sampler has drawn this seed."""
        own = torch.Generator().manual_seed(seed)
        order = torch.randperm(self.loaders.sizes[client], generator=own).numpy()
        return list(_cut(order, self.loaders.batch_size))


@lru_cache(maxsize=64)
def _drawn(loaders: TorchLoaders, seed: int) -> _Drawn:
    return _Drawn(loaders, seed)


def drawn_number(generator: torch.Generator) -> int:
    """Return the next int64 that a loader or its sampler draws as a seed."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _cut(order: Ints, size: int) -> Iterator[Ints]:
    return (order[first : first + size] for first in range(0, len(order), size))


def batches_of(
    order: BatchOrder, seed: int, client: int, steps: range, examples: int
) -> list[Ints]:
    """Return the batches of these steps of a client, one after another, int64 each.

    Raises
    ------
    DataError: the order ends before, or has a batch that is empty or not of the client's samples.
    """
    batches = [
        np.asarray(batch, dtype=np.int64)
        for batch in itertools.islice(order(seed, client), steps.start, steps.stop)
    ]
    if len(batches) < len(steps):
        raise DataError(
            f"the order of batches ends after {steps.start + len(batches)} local steps of client "
            f"{client}, and {steps.stop} are needed; let it yield a batch for every step"
        )
    for number, batch in enumerate(batches, steps.start):
        if batch.ndim != 1 or not len(batch) or batch.min() < 0 or batch.max() >= examples:
            raise DataError(
                f"the order of batches has {batch.tolist()} at step {number} of client {client}; "
                f"expected positions from 0 to {examples - 1}"
            )
    return batches
