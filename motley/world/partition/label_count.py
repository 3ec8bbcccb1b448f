"""So many labels per client, NIID-Bench's "#C = k" (optimisation-and-compression D6).

Client i has class ``i mod C`` and ``labels - 1`` others drawn at random, all different; the samples of each class are split evenly
among the clients that have it. With fewer clients than classes a class may have nobody: it is left over, and the notes say so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motley.core.arrays import Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.base import Partition, Partitioned
from motley.world.partition.assignment import assign, by_owner, check, note_unused, pools_of, shared_evenly

__all__ = ["LabelCount"]


@dataclass(frozen=True)
class LabelCount(Partition):
    """The same number of labels at every client.

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

    labels: int = 2

    def __post_init__(self) -> None:
        if self.labels < 1:
            raise ConfigError(f"got labels = {self.labels}; expected at least 1 class per client")

    def split(self, key: Key, labels: Ids, population: int, groups: Ids | None = None) -> Partitioned:
        """Disjoint parts; all samples of the classes that somebody has."""
        labels, rng = check(labels, population), key.numpy()
        pools = pools_of(labels, rng)
        classes = len(pools)
        if self.labels > classes:
            raise ConfigError(f"got labels = {self.labels}, the data has {classes} classes", "partition.labels")
        drawn = rng.random((population, classes))
        drawn[np.arange(population), np.arange(population) % classes] = -1.0  # always among the first
        held = np.zeros((population, classes), bool)
        np.put_along_axis(held, drawn.argsort(axis=1)[:, : self.labels], True, axis=1)
        counts = shared_evenly(rng, held, np.array([len(rows) for rows in pools]))
        owner = assign(pools, counts, len(labels))
        note = f"every client has {self.labels} of {classes} classes{note_unused(owner)}"
        return Partitioned(by_owner(owner, population), {"label_count": note})
