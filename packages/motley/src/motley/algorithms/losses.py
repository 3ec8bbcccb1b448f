"""The plain losses, with closed forms of their gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus
from typing_extensions import override

from motley.algorithms.parts import Loss, Targets, Tensors
from motley.core.errors import ConfigError


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross-entropy ``-log softmax(outputs)[target]``; outputs ``[..., B, C]``, targets int64
    ``[..., B]``.

    With class weights w and smoothing s, and p the softmax, a sample of class y has the loss
    ``(1 - s) w_y (-log p_y) + s / C sum_c w_c (-log p_c)``; it is not divided by the weights of a
    batch.

    Parameters
    ----------
    class_weights: weight of each class ``[C]``, at least 0; all 1 if left out.
    label_smoothing: s, in [0, 1).
    """

    # Written over the transposed outputs: with few classes, torch's softmax is several times faster
    # along samples.
    kind: ClassVar[Targets | None] = "classes"
    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ConfigError(
                f"label_smoothing: got {self.label_smoothing}; expected a share of at least 0 and "
                "below 1, e.g. 0.1"
            )
        if any(not 0.0 <= weight < math.inf for weight in self.class_weights) or (
            self.class_weights and not any(self.class_weights)
        ):
            raise ConfigError(
                f"class_weights: got {list(self.class_weights)}; expected finite numbers of at "
                "least 0, not all 0"
            )

    @override
    def refuses_targets(self, targets: Targets, classes: int | None) -> str | None:
        wrong = len(self.class_weights) not in (0, classes)
        weights = (
            f"class_weights has {len(self.class_weights)} numbers, and there are {classes} "
            "classes; give one for each"
        )
        return super().refuses_targets(targets, classes) or (weights if wrong else None)

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        logs = outputs.mT.log_softmax(-2)
        own = -logs.gather(-2, targets.unsqueeze(-2)).squeeze(-2)
        weights = self._weights(outputs)
        if weights is not None:
            own = own * weights[targets]
        if self.label_smoothing:
            each = logs.mean(-2) if weights is None else (logs * weights.unsqueeze(-1)).mean(-2)
            own = (1.0 - self.label_smoothing) * own - self.label_smoothing * each
        return own

    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Return ``softmax(outputs) - onehot(target)``, weighted and smoothed."""
        out = outputs.mT.softmax(-2)
        index = targets.unsqueeze(-2)
        weights = self._weights(outputs)
        if weights is None and not self.label_smoothing:
            return out.scatter_(-2, index, -1.0, reduce="add").mT
        class_weights = outputs.new_ones(outputs.shape[-1]) if weights is None else weights
        sharp = (1.0 - self.label_smoothing) * class_weights[index]
        even = self.label_smoothing / len(class_weights) * class_weights
        out = out * (sharp + even.sum()) - even.unsqueeze(-1)
        return out.scatter_add_(-2, index, -sharp).mT

    def _weights(self, outputs: Tensor) -> Tensor | None:
        return outputs.new_tensor(self.class_weights) if self.class_weights else None


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
class Huber(Loss):
    """Huber's loss, summed over outputs: ``r^2 / 2`` of a residual r up to ``delta``,
    ``delta (|r| - delta / 2)`` beyond.

    Parameters
    ----------
    delta: residual from which the loss is linear, above 0.
    """

    kind: ClassVar[Targets | None] = "numbers"
    delta: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.delta < math.inf:
            raise ConfigError(f"got delta = {self.delta}; expected a number above 0, e.g. 1.0")

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        size = (outputs - targets).abs()
        return torch.where(
            size <= self.delta, size.square() / 2, self.delta * (size - self.delta / 2)
        ).sum(-1)

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return (outputs - targets).clamp(-self.delta, self.delta)


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Binary cross-entropy of logits, the mean over labels; outputs ``[..., B, C]``, targets 0 or 1
    ``[..., B, C]``.

    Of a label with output z and target y it is ``log(1 + e^z) - y z``. Two classes, int64
    ``[..., B]``, may be targets, too: z is then the one output ``[..., B, 1]``, or the second less
    the first.
    """

    kind: ClassVar[Targets | None] = "multilabel"

    @override
    def refuses_targets(self, targets: Targets, classes: int | None) -> str | None:
        if (targets, classes) == ("classes", 2):
            return None
        return super().refuses_targets(targets, classes)

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        if targets.is_floating_point():
            return (softplus(outputs) - targets * outputs).mean(-1)
        z = outputs[..., -1] - (outputs[..., 0] if outputs.shape[-1] > 1 else 0.0)
        return softplus(z) - targets * z

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        if targets.is_floating_point():
            return (outputs.sigmoid() - targets) / outputs.shape[-1]
        return super().gradient(outputs, targets, extra)
