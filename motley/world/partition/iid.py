"""Everybody draws from the same bag: shuffled rows, sizes as even as can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motley.core.arrays import Ids
from motley.core.keys import Key
from motley.world.base import Partition, Partitioned
from motley.world.partition.assignment import by_owner, check, even_sizes

__all__ = ["IID"]


@dataclass(frozen=True)
class IID(Partition):
    """Independent and identically distributed: all n samples are used, client sizes differ by at most one."""

    def split(self, key: Key, labels: Ids, population: int, groups: Ids | None = None) -> Partitioned:
        """Shuffle and cut; labels are only counted."""
        n = len(check(np.zeros(len(labels), np.int64), population))
        owner = np.empty(n, np.int64)
        owner[key.numpy().permutation(n)] = np.repeat(np.arange(population), even_sizes(n, population))
        return Partitioned(by_owner(owner, population))
