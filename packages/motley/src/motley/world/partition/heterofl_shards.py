"""The partitions of HeteroFL's code, client by client, as Flower's baseline ``heterofl`` has them.

Diao, Ding, Tarokh: *HeteroFL*, ICLR 2021 (arXiv:2010.01264); adap/flower ``fdef7af``,
``baselines/heterofl``. K clients, C classes, ``shards`` a client.

    shards  each class is cut, in file order, into ``S = floor(shards K / C)`` shards, the r rows
            left over going to the first r of them; the labels 0..C-1, S times over, are permuted
            and ``shards`` of them go to each client in turn. A client takes one shard of each
            *different* label that it got, always the one at the same draw among those left
    iid     a permutation of all rows, cut into K equal parts

Both permutations are ``torch.randperm`` from a generator of that seed; the draw of a shard begins
with the seed again each time. A client that got a label twice has one shard of it, so some shards
belong to nobody (the notes count their rows).

Deviations: K must divide n under ``iid`` and ``shards K`` must be a multiple of C, where the code
fails otherwise.

Worked
------
C = 2, K = 2, shards = 2, labels 0 0 0 1 1 1: S = 2, the shards of class 0 are rows (0, 2) and (1),
those of class 1 rows (3, 5) and (4). Seed 42 permutes four places to 2 3 0 1, and so the labels
0 1 0 1 to 0 1 0 1. Of two shards it takes the first: client 0 has rows 0, 2, 3, 5, client 1 the
others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.world.interfaces import Partition, Partitioned
from motley.world.partition.assignment import by_owner, check


@dataclass(frozen=True)
class ReleasedShards(Partition):
    """A partition of a released code, repeated client by client: shards, or rows alike.

    Parameters
    ----------
    kind: ``shards``, or ``iid``, rows alike.
    shards: of each client under ``shards``.
    seed: of the partition, from 0 to 2^32 - 1.
    """

    kind: Literal["shards", "iid"] = "shards"
    shards: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("shards", "iid"):
            raise ConfigError(f"got kind = {self.kind!r}; expected 'shards' or 'iid'")
        if self.shards < 1:
            raise ConfigError(f"got shards = {self.shards}; expected at least 1 per client")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"got seed = {self.seed}; expected 0 to {2**32 - 1}")

    @property
    @override
    def uses_classes(self) -> bool:
        return self.kind == "shards"

    @property
    @override
    def in_file_order(self) -> bool:
        return self.kind == "iid"


@dataclass(frozen=True)
class HeteroFLShards(ReleasedShards):
    """HeteroFL's partitions, client by client.

    Parameters
    ----------
    kind: ``shards`` or ``iid``, see the module.
    shards: labels that each client is dealt under ``shards``.
    seed: of the partition, from 0 to 2^32 - 1; the code's is 42.
    """

    paper: ClassVar[Paper] = cite("diao2021heterofl")
    seed: int = 42

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        if self.kind == "iid":
            return self._iid(len(check(np.zeros(len(labels), np.int64), population)), population)
        labels = check(labels, population)
        classes = int(labels.max()) + 1
        per_class, rest = divmod(self.shards * population, classes)
        if rest or np.bincount(labels).min() < per_class:
            raise ConfigError(
                f"{population} clients with {self.shards} shards each and {classes} classes need a "
                f"whole number of shards a class and a row for each of them; got "
                f"{self.shards * population / classes:g} a class",
                "partition.shards",
            )
        dealt = np.tile(np.arange(classes), per_class)
        dealt = dealt[torch_permutation(len(dealt), self.seed)].reshape(population, -1)
        left = [_cut_in_file_order(np.flatnonzero(labels == c), per_class) for c in range(classes)]
        owner = np.full(len(labels), -1, np.int64)
        for client, own in enumerate(dealt):
            for label in np.unique(own):
                shards = left[label]
                owner[shards.pop(int(torch_permutation(len(shards), self.seed)[0]))] = client
        nobody = np.count_nonzero(owner < 0)
        note = (
            f"{per_class} shards a class; {nobody} of {len(labels)} samples are in shards of nobody"
        )
        return Partitioned(by_owner(owner, population), {"heterofl": note})

    def _iid(self, n: int, population: int) -> Partitioned:
        if n % population:
            raise ConfigError(
                f"got {n} rows and {population} clients; expected a number of clients that divides "
                'them, or write partition = "iid"',
                "population",
            )
        owner = np.empty(n, np.int64)
        owner[torch_permutation(n, self.seed)] = np.repeat(np.arange(population), n // population)
        return Partitioned(by_owner(owner, population))


def _cut_in_file_order(rows: Ints, shards: int) -> list[Ints]:
    """Return a class's rows as so many shards: equal ones in order, and then one row each of what
    is left over at the end."""
    each = len(rows) // shards
    whole = rows[: each * shards].reshape(shards, each)
    left_over = rows[each * shards :]
    return [np.append(part, left_over[i : i + 1]) for i, part in enumerate(whole)]


def torch_permutation(n: int, seed: int) -> Ints:
    """Return ``torch.randperm(n)`` of a CPU generator with that seed, ``[n]``, without torch: both
    are MT19937, and place i is exchanged with one of the places from i on.

    >>> torch_permutation(5, 42).tolist()
    [2, 4, 3, 0, 1]
    """
    order = list(range(n))
    words = np.random.RandomState(seed).randint(0, 2**32, size=max(n - 1, 0), dtype=np.uint32)
    for i, word in enumerate(words.tolist()):
        other = i + word % (n - i)
        order[i], order[other] = order[other], order[i]
    return np.array(order, np.int64)
