"""The weighted mean, streaming: one accumulator in float64, uploads in order of client id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from motley.algorithms.base import Aggregator, Fold, Upload

__all__ = ["Mean"]


@dataclass(frozen=True)
class Mean(Aggregator):
    """``sum_k a_k part_k``, divided as the weighting wants it. Only the sum is ever needed (``sees = "sum"``)."""

    def fold(self, uploads: Iterable[Upload], divide: Literal["weight", "count", "none"]) -> dict[str, Tensor]:
        """Totals by part name. ``convex`` parts know no negative weights; where no weight is left, ``mean`` parts fold to zero and
        ``convex`` parts are left out."""
        total: dict[str, Tensor] = {}
        folds: dict[str, Fold] = {}
        weight, positive, count = 0.0, 0.0, 0
        for upload in uploads:
            share = max(upload.weight * upload.scale, 0.0)
            weight, positive, count = weight + upload.weight, positive + share, count + 1
            for name, (value, fold) in upload.parts.items():
                folds[name] = fold
                if fold == "max":
                    total[name] = torch.maximum(total[name], value) if name in total else value.clone()
                    continue
                factor = {"sum": 1.0, "convex": share, "mean": upload.weight}[fold]
                if name not in total:
                    total[name] = torch.zeros_like(value, dtype=torch.float64)
                total[name].add_(value, alpha=factor)
        by = {"weight": weight, "count": float(count), "none": 1.0}[divide]
        for name, fold in folds.items():
            divisor = {"mean": by, "convex": positive, "sum": 1.0, "max": 1.0}[fold]
            if divisor not in (0.0, 1.0):
                total[name] /= divisor
        return {name: value for name, value in total.items() if positive or folds[name] != "convex"}
