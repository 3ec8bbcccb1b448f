"""Concept shift: the same features have different labels at different clients (INTERPRETATION).

Every client belongs to one of J clusters, drawn uniformly. Cluster 0 keeps its labels; in cluster j
> 0 the label of class y is ``pi_j(y)``, where ``pi_j`` swaps ``floor(share C / 2)`` disjoint pairs
of classes. These labels are not noise: they hold for training, validation and the client's own test
samples. One model cannot fit all clusters, so the highest global accuracy falls: report by cluster,
and on the clients' own test sets instead of a common one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.draws import check_share
from motley.world.interfaces import ConceptShift


@dataclass(frozen=True)
class NoConceptShift(ConceptShift):
    """All clients have the same labels."""

    @override
    def tables(self, key: Key, classes: int) -> Ints:
        return np.arange(classes)[None]


@dataclass(frozen=True)
class ClassSwap(ConceptShift):
    """Clusters of clients, each with its own pairs of classes swapped.

    Parameters
    ----------
    clusters: J, at least 2.
    share: of the classes that a cluster swaps, in (0, 1].

    Example
    -------
    >>> ClassSwap(2, share=1.0).tables(Key(0), 2).tolist()
    [[0, 1], [1, 0]]
    """

    clusters: int = 2
    share: float = 0.5

    def __post_init__(self) -> None:
        if self.clusters < 2:
            raise ConfigError(
                f'got clusters = {self.clusters}; expected at least 2 (1 is concept_shift = "none")'
            )
        check_share("share", self.share, zero=False)

    @override
    def group(self, key: Key, ids: Ids) -> Ints:
        return (key.fold("cluster").uniform(ids)[:, 0] * self.clusters).astype(np.int64)

    @override
    def tables(self, key: Key, classes: int) -> Ints:
        """Return ``pi_j`` as rows ``[J, C]``."""
        moved = [
            swapped(key.fold("pairs", j), self.share, classes) for j in range(1, self.clusters)
        ]
        return np.stack([np.arange(classes), *moved])


def swapped(key: Key, share: float, classes: int) -> Ints:
    """Return a table ``[C]`` that swaps ``floor(share C / 2)`` disjoint pairs of classes.

    Raises
    ------
    ConfigError: there is not even one pair.
    """
    # 1e-6: rounding must not lose the last pair.
    pairs = int(np.floor(share * classes / 2 + 1e-6))
    if not pairs:
        raise ConfigError(
            f"got share = {share}, which swaps no pair of {classes} classes; expected at least "
            f"{2 / classes:g}"
        )
    first, second = key.numpy().permutation(classes)[: 2 * pairs].reshape(2, pairs)
    table = np.arange(classes)
    table[first], table[second] = second, first
    return table
