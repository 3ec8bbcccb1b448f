"""The base of losses that wrap another loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import JobContext, Loss, Tensors
from motley.core.components import overrides
from motley.tasks.own_loss import Over


@dataclass(frozen=True)
class LossAround(Loss):
    """A loss that is ``base`` until a subclass changes something; what ``base`` prepares of a
    client's samples reaches it."""

    base: Loss

    @property
    @override
    def prepares(self) -> bool:
        return overrides(self, LossAround, "prepare") or self.base.prepares

    @property
    @override
    def over(self) -> Over:
        return self.base.over

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return self.base.loss(outputs, targets, extra)

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
