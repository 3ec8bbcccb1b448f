"""The plain losses, with their gradients by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from motley.algorithms.base import Loss, Targets, Tensors

__all__ = ["CrossEntropy", "HalfSquaredError"]


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """``-log softmax(outputs)[target]``; outputs ``[..., B, C]``, targets int64 ``[..., B]``.

    Written over the transposed outputs: with few classes, torch's softmax is several times faster along samples.
    """

    kind: ClassVar[Targets | None] = "classes"

    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Per-sample loss, the shape of ``targets``."""
        return -outputs.mT.log_softmax(-2).gather(-2, targets.unsqueeze(-2)).squeeze(-2)

    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """``softmax(outputs) - onehot(target)``."""
        out = outputs.mT.softmax(-2)
        index = targets.unsqueeze(-2)
        return out.scatter_add_(-2, index, outputs.new_full((1,), -1.0).expand(index.shape)).mT


@dataclass(frozen=True)
class HalfSquaredError(Loss):
    """``||outputs - target||^2 / 2``; outputs and targets ``[..., d]``."""

    kind: ClassVar[Targets | None] = "numbers"

    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Per-sample loss ``[...]``."""
        return (outputs - targets).square().sum(-1) / 2

    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """``outputs - target``."""
        return outputs - targets
