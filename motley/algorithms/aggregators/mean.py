"""The weighted mean, computed as uploads come in: one accumulator in float64, uploads in order of client id."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.base import Aggregator, Fold, Upload
from motley.algorithms.weights import Divide

__all__ = ["Mean"]


@dataclass
class _Sums:
    """Weighted sums by part name, the way each part is aggregated, and the sums of weights for the division."""

    parts: dict[str, Tensor] = field(default_factory=dict)
    folds: dict[str, Fold] = field(default_factory=dict)
    weight: float = 0.0
    positive: float = 0.0
    count: int = 0


@dataclass(frozen=True)
class Mean(Aggregator):
    """The weighted sum ``sum_k a_k part_k``, divided as the weighting says (``upload_visibility = "sum"``).

    ``convex`` parts ignore negative weights. Where no weight is left, ``mean`` parts are zero and ``convex`` parts are left out.
    """

    @override
    def init(self) -> Any:
        return _Sums()

    @override
    def add(self, total: Any, upload: Upload) -> Any:
        sums: _Sums = total
        share = max(upload.weight * upload.scale, 0.0)
        sums.weight, sums.positive, sums.count = sums.weight + upload.weight, sums.positive + share, sums.count + 1
        for name, (value, fold) in upload.parts.items():
            sums.folds[name] = fold
            if fold == "max":
                sums.parts[name] = torch.maximum(sums.parts[name], value) if name in sums.parts else value.clone()
                continue
            if name not in sums.parts:
                sums.parts[name] = torch.zeros_like(value, dtype=torch.float64)
            sums.parts[name].add_(value, alpha={"sum": 1.0, "convex": share, "mean": upload.weight}[fold])
        return sums

    @override
    def finish(self, total: Any, divide: Divide) -> dict[str, Tensor]:
        sums: _Sums = total
        by = {"weight": sums.weight, "count": float(sums.count), "none": 1.0}[divide]
        for name, fold in sums.folds.items():
            divisor = {"mean": by, "convex": sums.positive, "sum": 1.0, "max": 1.0}[fold]
            if divisor not in (0.0, 1.0):
                sums.parts[name] /= divisor
        return {name: value for name, value in sums.parts.items() if sums.positive or sums.folds[name] != "convex"}
