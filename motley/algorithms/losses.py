"""The plain losses, with their gradients by hand."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from motley.algorithms.base import Loss, Tensors

__all__ = ["CrossEntropy", "HalfSquaredError"]


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """``-log softmax(outputs)[target]``; outputs ``[..., C]``, targets int64 ``[...]``."""

    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Per-sample loss, the shape of ``targets``."""
        flat = F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none")
        return flat.view(targets.shape)

    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """``softmax(outputs) - onehot(target)``."""
        out = outputs.softmax(-1)
        index = targets.unsqueeze(-1)
        return out.scatter_add_(-1, index, outputs.new_full((1,), -1.0).expand(index.shape))


@dataclass(frozen=True)
class HalfSquaredError(Loss):
    """``||outputs - target||^2 / 2``; outputs and targets ``[..., d]``."""

    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Per-sample loss ``[...]``."""
        return (outputs - targets).square().sum(-1) / 2

    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """``outputs - target``."""
        return outputs - targets
