"""The clients that the data itself has: writers, users, hospitals. Nothing is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from motley.core.arrays import Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.base import Partition, Partitioned
from motley.world.partition.assignment import by_owner

__all__ = ["ByWriter"]


@dataclass(frozen=True)
class ByWriter(Partition):
    """One client per group of the data, in ascending order of the groups' numbers."""

    fixes_population: ClassVar[bool] = True

    def fixed_population(self, groups: Ids | None) -> int:
        """The number of groups that occur."""
        if groups is None:
            raise ConfigError(
                'by_writer needs data that says who made each sample (as FEMNIST), this does not; use "iid" or "dirichlet"',
                "partition.name",
            )
        return len(np.unique(groups))

    def split(self, key: Key, labels: Ids, population: int, groups: Ids | None = None) -> Partitioned:
        """One part per group. ``population`` is the number of groups, or 0 where nobody said."""
        clients = self.fixed_population(groups)
        if population not in (0, clients):
            raise ConfigError(
                f"got {population}, the data has {clients} writers; leave population out or set {clients}", "population"
            )
        owner = np.unique(np.asarray(groups), return_inverse=True)[1].astype(np.int64)
        return Partitioned(by_owner(owner, clients), {"by_writer": f"{clients} clients, one per writer of the data"})
