"""The plain losses, with closed forms of their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import softplus
from typing_extensions import override

from motley.algorithms.base import Loss, Targets, Tensors

__all__ = ["BinaryCrossEntropy", "CrossEntropy", "HalfSquaredError"]


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross-entropy ``-log softmax(outputs)[target]``; outputs ``[..., B, C]``, targets int64 ``[..., B]``.

    Written over the transposed outputs: with few classes, torch's softmax is several times faster along samples.
    """

    kind: ClassVar[Targets | None] = "classes"

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return -outputs.mT.log_softmax(-2).gather(-2, targets.unsqueeze(-2)).squeeze(-2)

    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Return ``softmax(outputs) - onehot(target)``."""
        out = outputs.mT.softmax(-2)
        index = targets.unsqueeze(-2)
        return out.scatter_add_(-2, index, outputs.new_full((1,), -1.0).expand(index.shape)).mT


@dataclass(frozen=True)
class HalfSquaredError(Loss):
    """Half the squared error, ``||outputs - target||^2 / 2``; outputs and targets ``[..., d]``."""

    kind: ClassVar[Targets | None] = "numbers"

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return (outputs - targets).square().sum(-1) / 2

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return outputs - targets


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Binary cross-entropy of logits, the mean over labels; outputs ``[..., B, C]``, targets 0 or 1 ``[..., B, C]``.

    Of a label with output z and target y it is ``log(1 + e^z) - y z``.
    """

    kind: ClassVar[Targets | None] = "multilabel"

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return (softplus(outputs) - targets * outputs).mean(-1)

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return (outputs.sigmoid() - targets) / outputs.shape[-1]
