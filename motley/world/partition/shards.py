"""Shards of sorted data: the pathological split of McMahan et al. (AISTATS 2017), 200 shards of 300 digits, two per client.

Samples are sorted by class (shuffled within a class), cut into ``K * shards`` consecutive shards, and every client is dealt
``shards`` of them at random. Shard sizes differ by at most one where n does not divide evenly, so all samples are used. Where a
shard is no larger than a class, a client has at most ``2 * shards`` classes; where class sizes are multiples of the shard's, at
most ``shards``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motley.core.arrays import Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.base import Partition, Partitioned
from motley.world.partition.assignment import by_owner, check, even_sizes, pools_of

__all__ = ["Shards"]


@dataclass(frozen=True)
class Shards(Partition):
    """Consecutive pieces of the data sorted by class.

    Parameters
    ----------
    shards: pieces per client.

    Example
    -------
    >>> labels = np.repeat(np.arange(10), 60)
    >>> split = Shards(2).split(Key(0), labels, 10)
    >>> max(len(np.unique(labels[part])) for part in split.rows)
    2
    """

    shards: int = 2

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise ConfigError(f"got shards = {self.shards}; expected at least 1 per client")

    def split(self, key: Key, labels: Ids, population: int, groups: Ids | None = None) -> Partitioned:
        """All n samples, disjoint."""
        labels, rng = check(labels, population), key.numpy()
        pieces = population * self.shards
        if pieces > len(labels):
            raise ConfigError(
                f"{population} clients with {self.shards} shards each need {pieces} samples, the data has {len(labels)};"
                f" set shards to at most {len(labels) // population}",
                "partition.shards",
            )
        dealt = rng.permutation(pieces) // self.shards
        owner = np.empty(len(labels), np.int64)
        owner[np.concatenate(pools_of(labels, rng))] = np.repeat(dealt, even_sizes(len(labels), pieces))
        note = f"{pieces} shards of {len(labels) / pieces:g} samples, {self.shards} per client"
        return Partitioned(by_owner(owner, population), {"shards": note})
