"""The partitions of Ji's code of federated averaging, client by client; copies of it are in many
other codes, AshwinRJ/Federated-Learning-PyTorch among them.

shaoxiongji/federated-learning ``5a9da1a``, ``utils/sampling.py``;
AshwinRJ/Federated-Learning-PyTorch ``26eaec4``, ``src/sampling.py`` and ``src/update.py``. K
clients, n rows.

    shards  rows sorted by class are cut into ``shards K`` shards of ``floor(n / (shards K))`` rows;
            each client in turn draws ``shards`` of those that are left
    iid     each client in turn draws ``floor(n / K)`` of the rows that are left
    kept    a client keeps the first ``floor(kept m)`` of its m rows: all in Ji's code, 0.8 in
            AshwinRJ's, whose other rows validate and test. Under ``shards`` these are the first
            shard and a part of the second, so labels come 5 to 3

Draws are ``numpy.random.RandomState(seed).choice`` without replacement. A client's shards, or rows
under ``iid``, and what is left stand in the order in which CPython lists a set of whole numbers.
Neither code seeds NumPy, so its own clients cannot be had again; these are those it has after
``numpy.random.seed(seed)``.

Deviation: rows of one class stay in file order, where the codes sort by NumPy's quicksort, whose
ties depend on the version and the processor.

Worked
------
Labels 0 0 1 1 2 2 3 3, K = 2, shards = 2: shards of two rows. Seed 0 draws 2 and 3 of 0, 1, 2, 3,
then 1 and 0 of what is left: client 0 has rows 4, 5, 6, 7, client 1 rows 0, 1, 2, 3, and with
``kept = 0.8`` the first three of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.interfaces import Partitioned
from motley.world.partition.assignment import by_owner, check
from motley.world.partition.heterofl_shards import ReleasedShards


@dataclass(frozen=True)
class JiShards(ReleasedShards):
    """The partitions of Ji's code of federated averaging, client by client.

    Parameters
    ----------
    kind: ``shards`` or ``iid``, see the module.
    shards: of each client under ``shards``.
    seed: of the partition, from 0 to 2^32 - 1; the codes set none.
    kept: share of its rows that a client keeps, the first ones in its own order.
    """

    kept: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.kept <= 1.0:
            raise ConfigError(f"got kept = {self.kept}; expected above 0 and at most 1, e.g. 0.8")

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        n = len(labels)
        if self.kind == "iid":
            check(np.zeros(n, np.int64), population)
            blocks = np.arange(n)[:, None]
            drawn = _drawn_in_turn(n, population, each=n // population, seed=self.seed)
        else:
            labels = check(labels, population, min_size=self.shards)
            cut = self.shards * population
            size = n // cut
            blocks = np.argsort(labels, kind="stable")[: cut * size].reshape(cut, size)
            drawn = _drawn_in_turn(cut, population, each=self.shards, seed=self.seed)
        owner = np.full(n, -1, np.int64)
        for client, numbers in enumerate(drawn):
            rows = blocks[numbers].ravel()
            owner[rows[: int(self.kept * len(rows))]] = client
        nobody = np.count_nonzero(owner < 0)
        note = f"{nobody} of {n} samples are of nobody"
        return Partitioned(by_owner(owner, population), {"ji_shards": note} if nobody else {})


def _drawn_in_turn(numbers: int, population: int, each: int, seed: int) -> list[list[int]]:
    """Return which of 0 .. numbers - 1 each client draws, in its own order."""
    rng = np.random.RandomState(seed)
    left = list(range(numbers))
    out = []
    for _ in range(population):
        # sets as the codes have them: their order is that of a client's rows and of what is left
        own = set(rng.choice(left, each, replace=False).tolist())
        left = list(set(left) - own)
        out.append(list(own))
    return out
