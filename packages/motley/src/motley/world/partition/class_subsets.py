"""Partitions in which every client has only some of the classes: a given number of them, or all but
a given number.

``label_count`` is NIID-Bench's "#C = k". Client i
has class ``i mod C`` and ``labels - 1`` others drawn at random, all different; the samples of each
class are divided evenly among its clients. With fewer clients than classes a class may have no
client: its samples are unused, and the notes count them.

``missing_classes``: CIFAR-100 without 40 of 100
classes, Tiny-ImageNet without 80 of 200. Each client draws the set of its missing classes
uniformly. Two readings of its share of the others:

* ``disjoint`` (default): the samples of a class are divided evenly among its clients. No sample is
  at two clients, sizes differ, and a class that no client has is unused (the notes count its
  samples).
* ``code`` (as HeteRo-Select v2 was released): every client draws ``floor(n_c / K)`` samples of each
  of its classes without replacement, but from the whole class, so clients overlap: 60 * 5 = 300
  samples each with CIFAR-100 and K = 100, 30,000 draws from 50,000 images. An image may then train
  one client and test another, so it needs ``split.test = "global"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.core.ragged import Ragged
from motley.world.interfaces import Partition, Partitioned
from motley.world.partition.assignment import (
    assign,
    by_owner,
    check,
    note_unused,
    pools_of,
    shared_evenly,
)


@dataclass(frozen=True)
class LabelCount(Partition):
    """Every client has the same number of classes.

    Parameters
    ----------
    labels: classes of each client, at least 1 and at most all.

    Example
    -------
    >>> labels = np.repeat(np.arange(5), 40)
    >>> split = LabelCount(2).split(Key(0), labels, 10)
    >>> [len(np.unique(labels[part])) for part in split.rows]
    [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    """

    paper: ClassVar[Paper] = cite("li2022niidbench")
    uses_classes: ClassVar[bool] = True
    labels: int = 2

    def __post_init__(self) -> None:
        if self.labels < 1:
            raise ConfigError(f"got labels = {self.labels}; expected at least 1 class per client")

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        """Return disjoint parts with all samples of the classes that any client has."""
        labels = check(labels, population)
        rng = key.numpy()
        pools = pools_of(labels, rng)
        classes = len(pools)
        if self.labels > classes:
            raise ConfigError(
                f"got labels = {self.labels}, the data has {classes} classes", "partition.labels"
            )
        drawn = rng.random((population, classes))
        # always among the first
        drawn[np.arange(population), np.arange(population) % classes] = -1.0
        held = np.zeros((population, classes), bool)
        np.put_along_axis(held, drawn.argsort(axis=1)[:, : self.labels], True, axis=1)
        counts = shared_evenly(rng, held, np.array([len(rows) for rows in pools]))
        owner = assign(pools, counts, len(labels))
        note = f"every client has {self.labels} of {classes} classes{note_unused(owner)}"
        return Partitioned(by_owner(owner, population), {"label_count": note})


@dataclass(frozen=True)
class MissingClasses(Partition):
    """Every client lacks the same number of classes.

    Parameters
    ----------
    missing: number of classes that each client lacks, fewer than there are.
    variant: ``disjoint`` or ``code``, see the module.

    Example
    -------
    >>> labels = np.repeat(np.arange(4), 30)
    >>> split = MissingClasses(1).split(Key(0), labels, 6)
    >>> [len(np.unique(labels[part])) for part in split.rows]
    [3, 3, 3, 3, 3, 3]
    """

    uses_classes: ClassVar[bool] = True
    missing: int
    variant: Literal["disjoint", "code"] = "disjoint"

    def __post_init__(self) -> None:
        if self.missing < 0:
            raise ConfigError(
                f"got missing = {self.missing}; expected a number of classes, at least 0"
            )
        if self.variant not in ("disjoint", "code"):
            raise ConfigError(f"got variant = {self.variant!r}; expected 'disjoint' or 'code'")

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        """Return disjoint parts with all samples of the classes that any client has, or (``code``)
        overlapping equal parts."""
        labels = check(labels, population)
        rng = key.numpy()
        pools = pools_of(labels, rng)
        classes = len(pools)
        if self.missing >= classes:
            raise ConfigError(
                f"got missing = {self.missing}, the data has {classes} classes; expected at most "
                f"{classes - 1}",
                "partition",
            )
        order = rng.random((population, classes)).argsort(axis=1)
        held = np.ones((population, classes), bool)
        np.put_along_axis(held, order[:, : self.missing], False, axis=1)
        note = f"every client has {classes - self.missing} of {classes} classes"
        if self.variant == "code":
            rows = overlapping(rng, held, pools)
            used = len(np.unique(rows.values))
            note = (
                f"{note}; clients overlap: {len(rows.values)} draws, {used} of {len(labels)} "
                "samples used"
            )
            return Partitioned(rows, {"missing_classes": note}, overlap=True)
        counts = shared_evenly(rng, held, np.array([len(rows) for rows in pools]))
        owner = assign(pools, counts, len(labels))
        return Partitioned(
            by_owner(owner, population), {"missing_classes": f"{note}{note_unused(owner)}"}
        )


def overlapping(rng: np.random.Generator, held: Bools, pools: list[Ints]) -> Ragged:
    """Return ``floor(n_c / K)`` rows of each class that a client has, drawn for each client from
    the whole class.

    Raises
    ------
    ConfigError: a client would get no rows.
    """
    population = len(held)
    owners = []
    rows = []
    for c, pool in enumerate(pools):
        holders = np.flatnonzero(held[:, c])
        each = len(pool) // population
        for client in holders if each else ():
            owners.append(np.full(each, client))
            rows.append(rng.choice(pool, each, replace=False))
    owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    sizes = np.bincount(owner, minlength=population)
    if not sizes.all():
        fits = min(len(pool) for pool in pools)
        raise ConfigError(
            f"variant 'code' gives a client floor(n_c / {population}) samples of a class, which "
            f"leaves some without any; set population to at most {fits}, or use variant 'disjoint'",
            "partition",
        )
    values = np.concatenate(rows)
    order = np.lexsort((values, owner))
    return Ragged(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), values[order].astype(np.int64)
    )
