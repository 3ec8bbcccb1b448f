"""Dominant-class skew of strength psi, as in HeteRo-Select v2.

Two readings, because the text of the paper and its released code differ:

``code`` (default, for reproduction): every client has a dominant class drawn uniformly with
replacement; it wants ``floor(psi n_per)`` samples of it and
``max(1, floor((n_per - n_dom) / (C - 1)))`` of each other class, ``n_per = floor(n / K)``. Classes
are assigned in order of the clients without replacement, and clients get less of a class that runs
out: late clients of a popular dominant class are small. psi = 0 is *not* iid: every client misses
one class; iid in this family is psi = 1/C.

``clean`` (INTERPRETATION): dominant classes are balanced over the clients; sizes are even; labels
are drawn from the mixture (psi on the dominant class, the rest uniform), and a class that has run
out is replaced by the rest of the mixture.

Worked
------
n_per = 500, psi = .4: 200 + 9 * 33 = 497 samples. Smallest and mean client of ``code``, seed 42, K
= 100, n = 50,000: 270 and 489.80 at psi = 0; 248 and 490.16 at .2; 165 and 475.12 at .4; 110 and
460.08 at .6; 55 and 445.04 at .8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.world.interfaces import Partition, Partitioned
from motley.world.partition.assignment import assign, by_owner, check, even_sizes, pools_of
from motley.world.partition.mixture import draw_counts


@dataclass(frozen=True)
class Psi(Partition):
    """Every client has a dominant class.

    Parameters
    ----------
    psi: share of the dominant class, in [0, 1].
    variant: ``code`` or ``clean``, see the module.
    """

    paper: ClassVar[Paper] = cite("masud2026heteroselect")
    uses_classes: ClassVar[bool] = True
    psi: float = 0.4
    variant: Literal["code", "clean"] = "code"

    def __post_init__(self) -> None:
        if not 0 <= self.psi <= 1:
            raise ConfigError(f"got psi = {self.psi}; expected a share in [0, 1]")
        if self.variant not in ("code", "clean"):
            raise ConfigError(f"got variant = {self.variant!r}; expected 'code' or 'clean'")

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        """Return disjoint parts; ``code`` leaves samples unused, ``clean`` uses all."""
        labels = check(labels, population)
        rng = key.numpy()
        pools = pools_of(labels, rng)
        available = np.array([len(rows) for rows in pools])
        if len(pools) < 2:
            raise ConfigError(
                f"psi needs at least 2 classes, the data has {len(pools)}", "partition"
            )
        if self.variant == "code":
            dominant = rng.integers(len(pools), size=population)
            counts = released_counts(self.psi, dominant, len(labels) // population, available)
        else:
            counts = draw_counts(
                rng,
                even_sizes(len(labels), population),
                self._mixtures(rng, population, len(pools)),
                available,
            )
        sizes = counts.sum(axis=1)
        note = (
            f"client sizes {sizes.min()} to {sizes.max()}, {len(labels) - sizes.sum()} of "
            f"{len(labels)} samples unused"
        )
        return Partitioned(by_owner(assign(pools, counts, len(labels)), population), {"psi": note})

    def _mixtures(self, rng: np.random.Generator, population: int, classes: int) -> Floats:
        """Return class probabilities ``[K, C]``; the numbers of clients per dominant class differ
        by at most one."""
        mixtures = np.full((population, classes), (1 - self.psi) / (classes - 1))
        mixtures[np.arange(population), rng.permutation(population) % classes] = self.psi
        return mixtures


def released_counts(psi: float, dominant: Ints, per_client: int, available: Ints) -> Ints:
    """Return how many samples of each class the released code gives each client, ``[K, C]``.

    Parameters
    ----------
    dominant: class of each client ``[K]``, in the order in which samples are assigned.
    per_client: ``floor(n / K)``.
    available: samples of each class ``[C]``.
    """
    clients = len(dominant)
    classes = len(available)
    favoured = int(np.floor(psi * per_client + 1e-6))
    wanted = np.full((clients, classes), max(1, (per_client - favoured) // (classes - 1)), np.int64)
    wanted[np.arange(clients), dominant] = favoured
    cumulative = np.minimum(np.cumsum(wanted, axis=0), available)
    return np.diff(cumulative, axis=0, prepend=0)
