"""The base of losses that add to another loss a term of the model's features, the inputs of its
last linear layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import JobContext, Loss, Tensors

__all__ = ["FeatureLoss"]


@dataclass(frozen=True)
class FeatureLoss(Loss):
    """A loss ``base`` plus a term of features, which subclasses add in :meth:`compare`; probes
    measure ``base`` alone."""

    whole_model: ClassVar[bool] = True
    base: Loss

    @property
    @override
    def prepares(self) -> bool:
        return self.base.prepares

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return self.base.loss(outputs, targets, extra)

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return self.base.gradient(outputs, targets, extra)

    @override
    def prepare(
        self,
        context: JobContext,
        forward: Callable[[Tensor], Tensor],
        inputs: Tensor,
        targets: Tensor,
    ) -> Tensors:
        return self.base.prepare(context, forward, inputs, targets)

    @override
    def within(self) -> Loss:
        return self.base.within()
