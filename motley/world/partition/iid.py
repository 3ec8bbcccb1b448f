"""Everybody draws from the same bag: shuffled rows, sizes as even as can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.world.base import Ids, Partition, Partitioned
from motley.world.partition.deal import check, even_sizes

__all__ = ["IID"]


@dataclass(frozen=True)
class IID(Partition):
    """Independent and identically distributed: all n samples are used, client sizes differ by at most one."""

    def split(self, key: Key, labels: Ids, population: int, groups: Ids | None = None) -> Partitioned:
        """Shuffle and cut; labels are only counted."""
        n = len(check(np.zeros(len(labels), np.int64), population))
        ends = np.cumsum(even_sizes(n, population))
        return Partitioned(Ragged.of([np.sort(rows) for rows in np.split(key.numpy().permutation(n), ends[:-1])]))
