"""The loss of a task with several heads: a sample is told from the classes of its own head
alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.loss_around import LossAround
from motley.algorithms.parts import Loss, Targets, Tensors


def other_heads_masked(outputs: Tensor, targets: Tensor, heads: Sequence[int]) -> Tensor:
    """Return outputs ``[..., C]`` that are minus infinity for the classes of other heads than that
    of the target ``[...]``.

    ``heads``: number of each class's head."""
    head = torch.tensor(heads, device=outputs.device)
    return outputs.masked_fill(head != head[targets].unsqueeze(-1), -torch.inf)


@dataclass(frozen=True)
class HeadLoss(LossAround):
    """A loss of classes over the outputs of the sample's head.

    Parameters
    ----------
    base: the loss without heads.
    heads: number of each class's head.

    Example
    -------
    >>> from motley.algorithms.losses import CrossEntropy
    >>> outputs = torch.tensor([[0.0, 0.0, 9.0]])  # the third class has a head of its own
    >>> round(HeadLoss(CrossEntropy(), (0, 0, 1)).loss(outputs, torch.tensor([0]), {}).item(), 6)
    0.693147
    """

    kind: ClassVar[Targets | None] = "classes"
    heads: tuple[int, ...]

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return self.base.loss(other_heads_masked(outputs, targets, self.heads), targets, extra)

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return self.base.gradient(other_heads_masked(outputs, targets, self.heads), targets, extra)


def per_head(loss: Loss, heads: tuple[int, ...]) -> Loss:
    """Return a loss over the outputs of each sample's head; the loss itself for a task with one
    head."""
    return HeadLoss(loss, heads) if heads and not isinstance(loss, HeadLoss) else loss
