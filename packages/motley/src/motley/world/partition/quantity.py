"""Quantity skew: clients of very different sizes.

``law = "dirichlet"`` (default, NIID-Bench): sizes follow ``q ~ Dir(beta 1_K)``, cut points
``floor(cumsum(q) n)``; drawn again until the smallest client has ``min_size`` samples.
``law = "log_normal"`` (FedDyn): ``n_k`` proportional to ``exp(sigma Z_k)``.

All clients have the same label mixture (shuffled rows) unless ``alpha`` is given: then client k
draws its n_k samples from its own ``pi_k ~ Dir(alpha 1_C)`` (the law per client with these sizes,
FedDyn's unbalanced split): both skews at once, each with its own strength.

Deviations: NIID-Bench redraws without limit; here ten redraws, then samples move one at a time from
the largest clients, and the notes say so. FedDyn corrects rounding on one client; here no size is
off by more than one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.draws import check_positive
from motley.world.interfaces import Partition, Partitioned
from motley.world.partition.assignment import (
    REDRAWS,
    assign,
    by_owner,
    check,
    cut,
    pools_of,
    topped_up,
)
from motley.world.partition.mixture import draw_counts


@dataclass(frozen=True)
class Quantity(Partition):
    """Clients have different numbers of samples.

    Parameters
    ----------
    law: ``dirichlet`` or ``log_normal``, see the module.
    beta: concentration of the Dirichlet law, above 0; small values are unequal.
    sigma: deviation of the logarithm of the log-normal law.
    alpha: additional label skew; None: none.
    min_size: samples every client has at least.

    Example
    -------
    >>> split = Quantity(beta=0.5).split(Key(0), np.repeat(np.arange(2), 500), 10)
    >>> int(split.rows.sizes.sum()), bool(split.rows.sizes.min() >= 10)
    (1000, True)
    """

    law: Literal["dirichlet", "log_normal"] = "dirichlet"
    beta: float = 0.5
    sigma: float = 0.3
    alpha: float | None = None
    min_size: int = 10

    def __post_init__(self) -> None:
        if self.law not in ("dirichlet", "log_normal"):
            raise ConfigError(f"got law = {self.law!r}; expected 'dirichlet' or 'log_normal'")
        check_positive("beta", self.beta, "(0.1 is very unequal, 100 nearly equal)")
        check_positive("sigma", self.sigma, "(of the logarithm)", zero=True)
        if self.alpha is not None:
            check_positive("alpha", self.alpha, "(0.1 is strong label skew), or none")
        if self.min_size < 0:
            raise ConfigError(f"got min_size = {self.min_size}; expected 0 or more samples")

    @property
    @override
    def uses_classes(self) -> bool:
        return self.alpha is not None

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        """Return disjoint parts of all n samples; every client has at least ``min_size``."""
        n = len(labels)
        labels = check(
            np.zeros(n, np.int64) if self.alpha is None else labels,
            population,
            max(self.min_size, 1),
        )
        sizes, note = self._sizes(key, n, population)
        rng = key.fold("rows").numpy()
        if self.alpha is None:
            owner = np.repeat(np.arange(population), sizes)[rng.permutation(n)]
        else:
            pools = pools_of(labels, rng)
            mixtures = rng.dirichlet(np.full(len(pools), self.alpha), population)
            owner = assign(
                pools, draw_counts(rng, sizes, mixtures, np.array([len(rows) for rows in pools])), n
            )
        return Partitioned(
            by_owner(owner, population),
            {"quantity": f"client sizes {sizes.min()} to {sizes.max()}{note}"},
        )

    def _sizes(self, key: Key, n: int, population: int) -> tuple[Ints, str]:
        """Return samples per client ``[K]``, and a note on how the minimum was reached."""
        for redraws in range(REDRAWS + 1):
            sizes = cut(self._shares(key.fold(redraws).numpy(), population), n)
            if sizes.min() >= self.min_size:
                return sizes, f", redrawn {redraws} times" if redraws else ""
        moved = int(np.maximum(self.min_size - sizes, 0).sum())
        note = (
            f", after {REDRAWS} redraws {moved} samples were moved from the largest to those "
            f"with fewer than {self.min_size}"
        )
        return topped_up(sizes, self.min_size), note

    def _shares(self, rng: np.random.Generator, population: int) -> Floats:
        """Return the clients' shares of the samples ``[K]``, together 1."""
        if self.law == "dirichlet":
            return rng.dirichlet(np.full(population, self.beta))
        weights = np.exp(self.sigma * rng.standard_normal(population))
        return np.asarray(weights / weights.sum(), np.float64)
