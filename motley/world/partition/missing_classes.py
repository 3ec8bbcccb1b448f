"""Every client lacks some classes: CIFAR-100 with 40 of 100, Tiny-ImageNet with 80 of 200 (optimisation-and-compression D4).

Each client draws the set of its missing classes uniformly. Two readings of what it gets of the others:

``disjoint`` (default): the samples of a class are split evenly among the clients that have it. No sample is in two places, sizes
differ, and a class that nobody has is left over (the notes count those).

``code`` (as HeteRo-Select v2 was released): every client draws ``floor(n_c / K)`` samples of each of its classes without
replacement, but nothing leaves the pool, so clients overlap: 60 * 5 = 300 samples each with CIFAR-100 and K = 100, 30,000 draws
from 50,000 images. An image may then train one client and test another: it wants ``split.test = "global"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.world.base import Partition, Partitioned
from motley.world.partition.assignment import assign, by_owner, check, note_unused, pools_of, shared_evenly

__all__ = ["MissingClasses"]


@dataclass(frozen=True)
class MissingClasses(Partition):
    """Some classes missing at every client.

    Parameters
    ----------
    missing: classes that each client lacks, fewer than there are. variant: ``disjoint`` or ``code``, see the module.

    Example
    -------
    >>> labels = np.repeat(np.arange(4), 30)
    >>> split = MissingClasses(1).split(Key(0), labels, 6)
    >>> [len(np.unique(labels[part])) for part in split.rows]
    [3, 3, 3, 3, 3, 3]
    """

    missing: int
    variant: Literal["disjoint", "code"] = "disjoint"

    def __post_init__(self) -> None:
        if self.missing < 0:
            raise ConfigError(f"got missing = {self.missing}; expected a number of classes, at least 0")
        if self.variant not in ("disjoint", "code"):
            raise ConfigError(f"got variant = {self.variant!r}; expected 'disjoint' or 'code'")

    def split(self, key: Key, labels: Ids, population: int, groups: Ids | None = None) -> Partitioned:
        """``disjoint``: all samples of the classes that somebody has; ``code``: equal shares that overlap."""
        labels, rng = check(labels, population), key.numpy()
        pools = pools_of(labels, rng)
        classes = len(pools)
        if self.missing >= classes:
            raise ConfigError(
                f"got missing = {self.missing}, the data has {classes} classes; expected at most {classes - 1}", "partition"
            )
        order = rng.random((population, classes)).argsort(axis=1)
        held = np.ones((population, classes), bool)
        np.put_along_axis(held, order[:, : self.missing], False, axis=1)
        note = f"every client has {classes - self.missing} of {classes} classes"
        if self.variant == "code":
            rows = overlapping(rng, held, pools)
            used = len(np.unique(rows.values))
            note = f"{note}; clients overlap: {len(rows.values)} draws, {used} of {len(labels)} samples used"
            return Partitioned(rows, {"missing_classes": note}, overlap=True)
        counts = shared_evenly(rng, held, np.array([len(rows) for rows in pools]))
        owner = assign(pools, counts, len(labels))
        return Partitioned(by_owner(owner, population), {"missing_classes": f"{note}{note_unused(owner)}"})


def overlapping(rng: np.random.Generator, held: NDArray[np.bool_], pools: list[Ids]) -> Ragged:
    """``floor(n_c / K)`` rows of each class held, drawn for each client from the whole class.

    Raises
    ------
    ConfigError: a client would get nothing.
    """
    population = len(held)
    owners, rows = [], []
    for c, pool in enumerate(pools):
        who, each = np.flatnonzero(held[:, c]), len(pool) // population
        for client in who if each else ():
            owners.append(np.full(each, client))
            rows.append(rng.choice(pool, each, replace=False))
    owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    sizes = np.bincount(owner, minlength=population)
    if not sizes.all():
        fits = min(len(pool) for pool in pools)
        raise ConfigError(
            f"variant 'code' gives a client floor(n_c / {population}) samples of a class, which leaves some without any;"
            f" set population to at most {fits}, or use variant 'disjoint'",
            "partition",
        )
    values = np.concatenate(rows)
    order = np.lexsort((values, owner))
    return Ragged(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), values[order].astype(np.int64))
