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
        """Totals by part name; a part with no weight at all under ``divide = "weight"`` folds to zero."""
        total: dict[str, Tensor] = {}
        folds: dict[str, Fold] = {}
        weight, count = 0.0, 0
        for upload in uploads:
            weight, count = weight + upload.weight, count + 1
            for name, (value, fold) in upload.parts.items():
                folds[name] = fold
                if fold == "max":
                    total[name] = torch.maximum(total[name], value) if name in total else value.clone()
                    continue
                factor = 1.0 if fold == "sum" else upload.weight
                if name not in total:
                    total[name] = torch.zeros_like(value, dtype=torch.float64)
                total[name].add_(value, alpha=factor)
        by = {"weight": weight, "count": float(count), "none": 1.0}[divide]
        for name, fold in folds.items():
            divisor = {"mean": by, "convex": weight, "sum": 1.0, "max": 1.0}[fold]
            if divisor not in (0.0, 1.0):
                total[name] /= divisor
        return total
