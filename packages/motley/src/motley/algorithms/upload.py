"""Uploads: named tensors, and for each of them how the server aggregates it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from torch import Tensor

BLOCK = 8
"""Consecutive positions whose uploads are summed one after the other; blocks are then added in
pairs (docs/methods/index.md#sums)."""

Fold = Literal["mean", "sum", "weighted_sum", "convex", "max", "covered"]
UPDATES: frozenset[Fold] = frozenset({"mean", "sum", "weighted_sum", "covered"})
"""The folds of what papers count as the update; buffers are counted beside it."""


class Part(NamedTuple):
    """One tensor of an upload and how it is aggregated: ``mean`` with the round's weights (which
    need not sum to 1), ``sum`` unweighted, ``weighted_sum`` with the clients' own weights and not
    divided, ``convex`` with the weights normalized (buffers), ``max`` element-wise (integer
    buffers), ``covered`` as the weighted mean of each coordinate over the clients that hold it.

    Parameters
    ----------
    held: bool, in the value's shape, which coordinates of a ``covered`` or ``convex`` part the
    client holds; None: all of them. Set for all uploads of a ``convex`` part or for none.
    """

    value: Tensor
    fold: Fold
    held: Tensor | None = None


Parts = Mapping[str, Part]


class Upload(NamedTuple):
    """The upload of one accepted client and its raw weight in this round.

    Parameters
    ----------
    parts: the tensors by name.
    weight: raw weight.
    client: id of the client, for rules that keep a state by client.
    scale: staleness factor; the update has been multiplied by it already, the weights of ``convex``
    parts have not.
    position: among the uploads that a step asks for, from 0, which fixes the order of sums; an
    upload that cannot be used leaves its position empty. -1: the position after the last.
    own_weight: of the client under the run's weighting, whoever else takes part and however often
    it was drawn: its samples, or 1 (:func:`motley.algorithms.weights.own_weights`).
    """

    parts: Parts
    weight: float
    scale: float = 1.0
    client: int = -1
    position: int = -1
    own_weight: float = 1.0


class BlockRun(NamedTuple):
    """An aligned run of blocks, a node of the binary tree in which sums are added.

    Parameters
    ----------
    level: the run has ``2 ** level`` blocks.
    number: of the run among those of its level, from 0.
    """

    level: int
    number: int

    @property
    def positions(self) -> range:
        """The positions that the run covers; those beyond the last upload are empty."""
        length = BLOCK << self.level
        return range(self.number * length, (self.number + 1) * length)
