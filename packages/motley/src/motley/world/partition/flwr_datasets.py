"""The partitioners of ``flwr_datasets`` 0.6 that draw, row for row, without that package.

    dirichlet      ``DirichletPartitioner``: class by class, from a stream that goes on, q ~
                   Dir(alpha 1_K); with ``balanced`` (its ``self_balancing``) q_k = 0 for clients
                   with more than n / K rows, q / sum q; the class's rows, as they stand, are cut at
                   floor(cumsum(q) n_c). All of it again until every client has ``min_size`` rows,
                   ten more draws at most
    pathological   ``PathologicalPartitioner``: ``labels`` classes of each client, drawn without
                   replacement (``random``), the first of them client i's i mod C and the others one
                   by one (``first-deterministic``), or i, i + 1, ... mod C (``deterministic``);
                   each class's rows, as they stand, are cut evenly among its clients

Both draw from ``numpy.random.default_rng(seed)``. Rows stand as the partitioner gets them: a
``FederatedDataset`` shuffles the data set first, unless it has ``shuffle=False``. Their shuffle of
each client's rows changes nothing here.
:func:`motley.from_flower` takes any partitioner object of the package.

Deviation: where the balance leaves no client for a class, theirs divides by 0; here it is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.interfaces import Partition, Partitioned
from motley.world.partition.assignment import by_owner, check, even_sizes, note_unused

_MOST_DRAWS = 11


@dataclass(frozen=True)
class FlwrDirichlet(Partition):
    """``flwr_datasets``' ``DirichletPartitioner``, row for row.

    Parameters
    ----------
    alpha: concentration, above 0.
    balanced: its ``self_balancing``.
    min_size: its ``min_partition_size``.
    seed: its own, at least 0.
    """

    uses_classes: ClassVar[bool] = True
    alpha: float = 0.5
    balanced: bool = True
    min_size: int = 10
    seed: int = 42

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise ConfigError(f"got alpha = {self.alpha}; expected a finite number above 0")
        _check_seed(self.seed)

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        labels = check(labels, population, max(self.min_size, 1))
        rng = np.random.Generator(np.random.PCG64(self.seed))
        for _ in range(_MOST_DRAWS):
            owner = self._drawn(rng, labels, population)
            if np.bincount(owner, minlength=population).min() >= self.min_size:
                return Partitioned(by_owner(owner, population))
        raise ConfigError(
            f"in {_MOST_DRAWS} draws some client always had fewer than min_size = {self.min_size} "
            "rows; give a larger alpha, a smaller min_size or fewer clients",
            "partition",
        )

    def _drawn(self, rng: np.random.Generator, labels: Ints, population: int) -> Ints:
        """Return the owner of each row ``[n]`` in one draw."""
        owner = np.empty(len(labels), np.int64)
        sizes = np.zeros(population, np.int64)
        for c in np.unique(labels):
            rows = np.flatnonzero(labels == c)
            shares = rng.dirichlet(np.full(population, self.alpha))
            if self.balanced:
                shares = np.where(sizes > len(labels) / population, 0.0, shares)
                if not shares.sum() > 0:
                    raise ConfigError(
                        "every client that drew a share of a class has more than n / K rows; give "
                        "a larger alpha, or write balanced = false",
                        "partition",
                    )
                shares = shares / sum(shares.tolist())
            ends = (np.cumsum(shares) * len(rows)).astype(np.int64)
            ends[-1] = len(rows)
            counts = np.diff(ends, prepend=0)
            owner[rows] = np.repeat(np.arange(population), counts)
            sizes += counts
        return owner


@dataclass(frozen=True)
class FlwrPathological(Partition):
    """``flwr_datasets``' ``PathologicalPartitioner``, row for row.

    Parameters
    ----------
    labels: its ``num_classes_per_partition``.
    mode: its ``class_assignment_mode``.
    seed: its own, at least 0.
    """

    uses_classes: ClassVar[bool] = True
    labels: int = 2
    mode: Literal["random", "first-deterministic", "deterministic"] = "random"
    seed: int = 42

    def __post_init__(self) -> None:
        if self.labels < 1:
            raise ConfigError(f"got labels = {self.labels}; expected at least 1 class per client")
        if self.mode not in ("random", "first-deterministic", "deterministic"):
            raise ConfigError(
                f"got mode = {self.mode!r}; expected 'random', 'first-deterministic' or "
                "'deterministic'"
            )
        _check_seed(self.seed)

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        labels = check(labels, population)
        values, at = np.unique(labels, return_inverse=True)
        if self.labels > len(values):
            raise ConfigError(
                f"got labels = {self.labels}, the data has {len(values)} classes", "partition"
            )
        held = self._held(np.random.Generator(np.random.PCG64(self.seed)), values, population)
        owner = np.full(len(labels), -1, np.int64)
        for c in range(len(values)):
            holders = np.flatnonzero(held[:, c])
            rows = np.flatnonzero(at == c)
            if len(holders) > len(rows):
                raise ConfigError(
                    f"{len(holders)} clients have class {values[c]}, of which there are "
                    f"{len(rows)} rows; give fewer clients or labels",
                    "partition",
                )
            if len(holders):
                owner[rows] = np.repeat(holders, even_sizes(len(rows), len(holders)))
        note = f"every client has {self.labels} of {len(values)} classes{note_unused(owner)}"
        return Partitioned(by_owner(owner, population), {"flwr_pathological": note})

    def _held(self, rng: np.random.Generator, values: Ints, population: int) -> Bools:
        """Return whether each client has each class ``[K, C]``."""
        classes = len(values)
        held = np.zeros((population, classes), bool)
        for client in range(population):
            if self.mode == "random":
                held[client, rng.choice(classes, size=self.labels, replace=False)] = True
            elif self.mode == "deterministic":
                held[client, (client + np.arange(self.labels)) % classes] = True
            else:
                held[client, client % classes] = True
                while held[client].sum() < self.labels:
                    held[client, rng.choice(classes, size=1)[0]] = True
        return held


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise ConfigError(f"got seed = {seed}; expected at least 0")
