"""Label skew by Dirichlet draws, in the two variants that share the name.

``per_class`` (default): every class is divided among the clients by ``q ~ Dir(alpha 1_K)``; sizes
vary too. With ``mask`` a client that already holds n/K samples gets no samples of later classes
(NIID-Bench, Flower, MOON, FedDF), and if that leaves nobody, the unmasked q counts; classes go in
ascending order.

``per_client``: sizes are equal and client k draws its samples from its own
``pi_k ~ Dir(alpha 1_C)`` (Hsu et al., FedDyn, Flower's inner Dirichlet); a class that is used up
leaves all mixtures. The two distributions differ: here sizes are controlled, there they vary.

Deviations: NIID-Bench redraws without limit until the smallest client has ``min_size`` samples,
Flower gives up after ten draws.
Here: ten redraws, then samples move one at a time from the largest client; the notes say which.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.interfaces import Partition, Partitioned
from motley.world.partition.assignment import (
    REDRAWS,
    assign,
    by_owner,
    check,
    cut,
    even_sizes,
    pools_of,
)
from motley.world.partition.mixture import draw_counts


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Label skew by Dirichlet draws.

    Parameters
    ----------
    alpha: concentration, above 0; small means few classes per client.
    law: ``per_class`` or ``per_client``, see the module.
    mask: whether to use the balance mask of the per-class variant.
    min_size: samples every client has at least.
    """

    uses_classes: ClassVar[bool] = True
    alpha: float = 0.5
    law: Literal["per_class", "per_client"] = "per_class"
    mask: bool = False
    min_size: int = 10

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise ConfigError(
                f"got alpha = {self.alpha}; expected a finite number above 0 (0.1 is strong skew, "
                "100 nearly none)"
            )
        if self.law not in ("per_class", "per_client"):
            raise ConfigError(f"got law = {self.law!r}; expected 'per_class' or 'per_client'")
        if self.mask and self.law != "per_class":
            raise ConfigError(
                'mask balances the per-class law; set law = "per_class" or leave mask out'
            )
        if self.min_size < 0:
            raise ConfigError(f"got min_size = {self.min_size}; expected 0 or more samples")

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        """Return disjoint parts of all n samples; every client has at least ``min_size``."""
        labels = check(labels, population, max(self.min_size, 1))
        if self.law == "per_client":
            owner = self._per_client(key.numpy(), labels, population)
            return Partitioned(by_owner(owner, population))
        for redraws in range(REDRAWS + 1):
            owner = self._per_class(key.fold(redraws).numpy(), labels, population)
            if np.bincount(owner, minlength=population).min() >= self.min_size:
                note = f"redrawn {redraws} times until every client had {self.min_size} samples"
                return Partitioned(
                    by_owner(owner, population), {"min_size": note} if redraws else {}
                )
        moved = fill_up(key.fold("fill").numpy(), owner, population, self.min_size)
        note = (
            f"after {REDRAWS} redraws {moved} samples were moved, one at a time, from the "
            "client that was largest then"
        )
        return Partitioned(
            by_owner(owner, population),
            {"min_size": f"{note} to clients with fewer than {self.min_size}"},
        )

    def _per_class(self, rng: np.random.Generator, labels: Ints, population: int) -> Ints:
        """Return the owner of each row ``[n]``: one Dirichlet cut per class."""
        sizes = np.zeros(population, np.int64)
        pools = pools_of(labels, rng)
        counts = np.empty((population, len(pools)), np.int64)
        for c, rows in enumerate(pools):
            share = rng.dirichlet(np.full(population, self.alpha))
            free = np.where(sizes >= len(labels) / population, 0.0, share) if self.mask else share
            share = free / free.sum() if free.sum() > 0 else share
            counts[:, c] = cut(share, len(rows))
            sizes += counts[:, c]
        return assign(pools, counts, len(labels))

    def _per_client(self, rng: np.random.Generator, labels: Ints, population: int) -> Ints:
        """Return the owner of each row ``[n]``: one Dirichlet mixture per client."""
        pools = pools_of(labels, rng)
        mixtures = rng.dirichlet(np.full(len(pools), self.alpha), population)
        available = np.array([len(rows) for rows in pools])
        counts = draw_counts(rng, even_sizes(len(labels), population), mixtures, available)
        return assign(pools, counts, len(labels))


def fill_up(rng: np.random.Generator, owner: Ints, population: int, min_size: int) -> int:
    """Move rows in ``owner`` until every client has ``min_size``, and return how many moved.

    Each is a random row of the client that is largest then. Requires
    ``population * min_size <= len(owner)``: then the largest client is always above
    ``min_size``."""
    shuffled = rng.permutation(len(owner))
    rows = shuffled[np.argsort(owner[shuffled], kind="stable")]
    sizes = np.bincount(owner, minlength=population)
    starts = np.cumsum(sizes) - sizes
    largest = [(-int(size), client) for client, size in enumerate(sizes)]
    heapq.heapify(largest)
    poor = np.repeat(np.arange(population), np.maximum(min_size - sizes, 0))
    for taker in poor:
        size, giver = heapq.heappop(largest)
        heapq.heappush(largest, (size + 1, giver))
        owner[rows[starts[giver] - size - 1]] = taker
    return len(poor)
