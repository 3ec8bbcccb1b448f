"""Losses where a sample has a class per position (language models): the mean of a loss for classes
over the sample's positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from motley.algorithms.loss_around import LossAround
from motley.algorithms.parts import JobContext, Loss, Tensors
from motley.tasks.task import IGNORED, Targets


@dataclass(frozen=True)
class PositionMean(LossAround):
    """The mean of a loss for classes over the positions of a sample; outputs ``[..., B, T, C]``,
    targets ``[..., B, T]``.

    Positions whose target is :data:`~motley.tasks.task.IGNORED` (-100) do not count.

    Parameters
    ----------
    base: the loss of one position.

    Example
    -------
    >>> import torch
    >>> from motley.algorithms.losses import CrossEntropy
    >>> outputs = torch.tensor([[[0.5, 0.5], [0.2, 0.8], [0.3, 0.7]]]).log()
    >>> targets = torch.tensor([[0, 1, -100]])
    >>> [round(x, 6) for x in PositionMean(CrossEntropy()).loss(outputs, targets, {}).tolist()]
    [0.458145]
    """

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        share = _shares(targets, outputs)
        return (self.base.loss(outputs, targets.clamp(min=0), extra) * share).sum(-1)

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        share = _shares(targets, outputs)
        return self.base.gradient(outputs, targets.clamp(min=0), extra) * share.unsqueeze(-1)

    @override
    def prepare(
        self,
        context: JobContext,
        forward: Callable[[Tensor], Tensor],
        inputs: Tensor,
        targets: Tensor,
    ) -> Tensors:
        return self.base.prepare(context, forward, inputs, targets.clamp(min=0))


def _shares(targets: Tensor, outputs: Tensor) -> Tensor:
    """Return the weight of each position in its sample's mean, ``[..., B, T]``."""
    counted = (targets != IGNORED).to(outputs.dtype)
    return counted / counted.sum(-1, keepdim=True).clamp(min=1)


def per_position(loss: Loss, targets: Targets) -> Loss:
    """Return the loss of a whole sample: of a class per position the mean over positions, else the
    loss itself."""
    return PositionMean(loss) if targets == "positions" and loss.kind == "classes" else loss
