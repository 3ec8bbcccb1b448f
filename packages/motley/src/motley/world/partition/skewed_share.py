"""A share of the clients has skewed labels, the others do not: FLASH's "30 % non-IIDness".

``ceil(share K)`` clients, chosen by the key, have 80 % of their samples from one class and 20 %
uniformly from the others; the other clients draw uniformly over all classes. All have
``floor(n / K)`` samples.

INTERPRETATION (the paper does not say how samples are allotted): skewed clients are served first,
their classes cycle through a random order of all classes, and samples of a class that has run out
are replaced by the most frequent class then; the notes count those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.world.interfaces import Partition, Partitioned
from motley.world.partition.assignment import assign, by_owner, check, pools_of


@dataclass(frozen=True)
class SkewedShare(Partition):
    """A share of the clients has a dominant class.

    Parameters
    ----------
    share: share of clients that are skewed, in [0, 1] (FLASH: 0.3).
    dominant: share of their one class, in [0, 1].
    """

    paper: ClassVar[Paper] = cite("chang2024flash")
    uses_classes: ClassVar[bool] = True
    share: float = 0.3
    dominant: float = 0.8

    def __post_init__(self) -> None:
        for name in ("share", "dominant"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected a share in [0, 1]")

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        """Return disjoint parts of equal size; at most K - 1 samples are unused."""
        labels = check(labels, population)
        rng = key.numpy()
        pools = pools_of(labels, rng)
        if len(pools) < 2:
            raise ConfigError(
                f"skewed_share needs at least 2 classes, the data has {len(pools)}", "partition"
            )
        order = rng.permutation(population)
        skewed = math.ceil(self.share * population - 1e-6)
        classes = rng.permutation(len(pools))
        left = np.array([len(rows) for rows in pools])
        counts = np.zeros((population, len(pools)), np.int64)
        moved = 0
        for turn, client in enumerate(order):
            favourite = int(classes[turn % len(classes)]) if turn < skewed else None
            wanted = self._wanted(rng, favourite, len(labels) // population, len(pools))
            counts[client], short = served(wanted, left)
            left -= counts[client]
            moved += short
        rows = by_owner(assign(pools, counts, len(labels), order), population)
        note = (
            f"{skewed} of {population} clients skewed; {moved} samples of classes that had run "
            "out were replaced"
        )
        return Partitioned(rows, {"skewed_share": note})

    def _wanted(
        self, rng: np.random.Generator, favourite: int | None, size: int, classes: int
    ) -> Ints:
        """Return the number of samples wanted of each class ``[C]``."""
        chances = np.full(classes, 1.0 / classes)
        if favourite is None:
            return rng.multinomial(size, chances)
        first = round(self.dominant * size)
        chances[:] = 1.0 / (classes - 1)
        chances[favourite] = 0.0
        wanted = rng.multinomial(size - first, chances / chances.sum())
        wanted[favourite] = first
        return wanted


def served(wanted: Ints, left: Ints) -> tuple[Ints, int]:
    """Return a client's samples of each class ``[C]``, and how many are of another class than
    wanted."""
    taken = np.minimum(wanted, left)
    short = int(wanted.sum() - taken.sum())
    for _ in range(short):
        taken[np.argmax(left - taken)] += 1
    return taken, short
