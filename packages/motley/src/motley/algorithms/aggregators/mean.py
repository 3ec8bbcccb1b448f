"""The weighted mean, computed as uploads come in: sums in float64, added in the order of a fixed
tree (:mod:`motley.algorithms.aggregators.sum_tree`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.sum_tree import SumTree
from motley.algorithms.parts import Aggregator, BlockRun, Fold, Upload
from motley.algorithms.weights import Divide


@dataclass
class Sums:
    """Weighted sums by part name, the way each part is aggregated, and the sums of weights for the
    division, of ``covered`` parts for each coordinate."""

    parts: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    folds: dict[str, Fold] = field(default_factory=dict)
    weight: float = 0.0
    positive: float = 0.0
    count: int = 0

    def join(self, later: Sums) -> None:
        """Add the sums of later uploads to these, in place."""
        self.weight = self.weight + later.weight
        self.positive = self.positive + later.positive
        self.count += later.count
        self.folds |= later.folds
        for name, value in later.parts.items():
            if name not in self.parts:
                self.parts[name] = value
            elif later.folds[name] == "max":
                self.parts[name] = torch.maximum(self.parts[name], value)
            else:
                self.parts[name].add_(value)
        for name, weight in later.weights.items():
            if name in self.weights:
                self.weights[name].add_(weight)
            else:
                self.weights[name] = weight


@dataclass(frozen=True)
class Mean(Aggregator):
    """The weighted sum ``sum_k a_k part_k``, divided as the weighting says
    (``upload_visibility = "sum"``).

    ``convex`` parts ignore negative weights. Where no weight is left, ``mean`` parts are zero and
    ``convex`` parts are left out. Of a ``covered`` part every coordinate is divided by the weights
    of the clients that hold it; one that nobody holds is a negative zero, so that ``x + total``
    keeps it bit for bit. A coordinate of a ``convex`` part that nobody holds is NaN.
    """

    upload_visibility: ClassVar[Literal["sum", "each"]] = "sum"
    plain_sum: ClassVar[bool] = True
    joins: ClassVar[bool] = True

    @override
    def init(self) -> Any:
        return SumTree(Sums)

    @override
    def add(self, total: Any, upload: Upload) -> Any:
        tree: SumTree[Sums] = total
        sums = tree.at(upload.position)
        share = max(upload.weight * upload.scale, 0.0)
        sums.weight = sums.weight + upload.weight
        sums.positive = sums.positive + share
        sums.count = sums.count + 1
        for name, (value, fold, held) in upload.parts.items():
            sums.folds[name] = fold
            if fold == "max":
                sums.parts[name] = (
                    torch.maximum(sums.parts[name], value) if name in sums.parts else value.clone()
                )
                continue
            if name not in sums.parts:
                sums.parts[name] = torch.zeros_like(value, dtype=torch.float64)
            weight = {"sum": 1.0, "weighted_sum": upload.own_weight, "convex": share}.get(
                fold, upload.weight
            )
            if fold == "covered" or held is not None:
                _cover(sums, name, held, weight)
            value = value if held is None else value * held
            sums.parts[name].add_(value, alpha=weight)
        return tree

    @override
    def partial(self, total: Any) -> Any:
        tree: SumTree[Sums] = total
        return tree.folded()

    @override
    def join(self, total: Any, run: BlockRun, partial: Any) -> Any:
        tree: SumTree[Sums] = total
        if partial is not None:
            tree.put(run, partial)
        return tree

    @override
    def finish(self, total: Any, divide: Divide) -> dict[str, Tensor]:
        tree: SumTree[Sums] = total
        return self.divided(tree.folded() or Sums(), divide)

    def divided(self, sums: Sums, divide: Divide) -> dict[str, Tensor]:
        """Return the totals by part name of all uploads' sums, which are used up."""
        by = {"weight": sums.weight, "count": float(sums.count), "none": 1.0}[divide]
        for name, fold in sums.folds.items():
            if name in sums.weights:
                weight = sums.weights[name]
                nobody = -0.0 if fold == "covered" else math.nan
                sums.parts[name] = torch.where(weight == 0, nobody, sums.parts[name] / weight)
                continue
            divisor = {"mean": by, "convex": sums.positive}.get(fold, 1.0)
            if divisor not in (0.0, 1.0):
                sums.parts[name] /= divisor
        return {
            name: value
            for name, value in sums.parts.items()
            if sums.positive or sums.folds[name] != "convex"
        }


def _cover(sums: Sums, name: str, held: Tensor | None, weight: float) -> None:
    """Add a client's weight at the coordinates that it holds."""
    if name not in sums.weights:
        sums.weights[name] = torch.zeros_like(sums.parts[name])
    sums.weights[name].add_(1.0 if held is None else held, alpha=weight)
