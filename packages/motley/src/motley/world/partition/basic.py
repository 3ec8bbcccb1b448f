"""Three simple partitions: even random parts, the data's own clients, and shards of the sorted
data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.interfaces import Partition, Partitioned
from motley.world.partition.assignment import by_owner, check, even_sizes, pools_of


@dataclass(frozen=True)
class IID(Partition):
    """Independent and identically distributed clients: samples are shuffled, and each client gets
    its number of them.

    Parameters
    ----------
    sizes: samples of each client, with those it tests on; samples beyond their sum belong to
    nobody. Empty: all samples, and sizes that differ by at most one.

    Example
    -------
    >>> IID(sizes=(5, 1, 2)).split(Key(0), np.zeros(10, np.int64), 3).rows.sizes.tolist()
    [5, 1, 2]
    """

    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.sizes):
            raise ConfigError(
                f"sizes: got {min(self.sizes)}; expected at least 1 sample for each client"
            )

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        n = len(check(np.zeros(len(labels), np.int64), population))  # labels are only counted
        sizes = np.array(self.sizes, np.int64) if self.sizes else even_sizes(n, population)
        if len(sizes) != population:
            raise ConfigError(
                f"got {len(sizes)} sizes and population = {population}; write population = "
                f"{len(sizes)}, or a size for each client",
                "partition.sizes",
            )
        if sizes.sum() > n:
            raise ConfigError(
                f"got sizes of together {sizes.sum()} samples, and the data has {n}; expected at "
                "most as many",
                "partition.sizes",
            )
        owner = np.full(n, -1, np.int64)
        owner[key.numpy().permutation(n)[: sizes.sum()]] = np.repeat(np.arange(population), sizes)
        unused = n - int(sizes.sum())
        notes = {"iid": f"{unused} of {n} samples belong to no client"} if unused else {}
        return Partitioned(by_owner(owner, population), notes)


@dataclass(frozen=True)
class ByWriter(Partition):
    """The data's own clients (writers, users, hospitals): one per group, in ascending order of the
    groups' numbers."""

    @override
    def fixed_population(self, groups: Ids | None) -> int:
        if groups is None:
            raise ConfigError(
                "by_writer needs data that says who made each sample (as FEMNIST), this does not; "
                'use "iid" or "dirichlet"',
                "partition.name",
            )
        return len(np.unique(groups))

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        """Return one part per group; ``population`` is the number of groups, or 0 if it was not
        given."""
        clients = self.fixed_population(groups)
        if population not in (0, clients):
            raise ConfigError(
                f"got {population}, the data has {clients} clients; leave population out or set "
                f"{clients}",
                "population",
            )
        owner = np.unique(np.asarray(groups), return_inverse=True)[1].astype(np.int64)
        return Partitioned(
            by_owner(owner, clients),
            {"by_writer": f"{clients} clients, those that the data name"},
        )


@dataclass(frozen=True)
class Shards(Partition):
    """The pathological split of McMahan et al. (AISTATS 2017): 200 shards of 300 digits, two per
    client.

    Samples are sorted by class (shuffled within a class), cut into ``K * shards`` consecutive
    shards, and every client gets ``shards`` of them at random. Shard sizes differ by at most one if
    n does not divide evenly, so all samples are used. If a shard is no larger than a class, a
    client has at most ``2 * shards`` classes; if class sizes are multiples of the shard size, at
    most ``shards``.

    Parameters
    ----------
    shards: number per client.

    Example
    -------
    >>> labels = np.repeat(np.arange(10), 60)
    >>> split = Shards(2).split(Key(0), labels, 10)
    >>> max(len(np.unique(labels[part])) for part in split.rows)
    2
    """

    uses_classes: ClassVar[bool] = True
    shards: int = 2

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise ConfigError(f"got shards = {self.shards}; expected at least 1 per client")

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        labels = check(labels, population)
        rng = key.numpy()
        pieces = population * self.shards
        if pieces > len(labels):
            raise ConfigError(
                f"{population} clients with {self.shards} shards each need {pieces} samples, the "
                f"data has {len(labels)}; set shards to at most {len(labels) // population}",
                "partition.shards",
            )
        dealt = rng.permutation(pieces) // self.shards
        owner = np.empty(len(labels), np.int64)
        owner[np.concatenate(pools_of(labels, rng))] = np.repeat(
            dealt, even_sizes(len(labels), pieces)
        )
        note = f"{pieces} shards of {len(labels) / pieces:g} samples, {self.shards} per client"
        return Partitioned(by_owner(owner, population), {"shards": note})
