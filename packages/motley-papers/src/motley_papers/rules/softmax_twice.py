"""Cross-entropy of outputs that are a softmax already, as in the multi-layer perceptron of Flower's
baseline ``heterofl`` (adap/flower ``fdef7af``, ``heterofl/models.py``): the network ends in a
softmax, and torch's cross-entropy takes another one of it.

    p = softmax(outputs),   loss = log sum_c exp(p_c) - p_y

It cannot fall below ``log(1 + (C - 1) / e)``, 1.461150 of ten classes, where plain cross-entropy
has 0, and its gradient vanishes with p near any corner, right or wrong. Predictions are the same.

Worked
------
Outputs (0, 0), class 0: p = (1/2, 1/2), loss = log 2; by p the gradient is (-1/2, 1/2), and by the
outputs p (q - p.q) = (-1/4, 1/4), half of plain cross-entropy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Loss, Targets, Tensors


@dataclass(frozen=True)
class SoftmaxTwice(Loss):
    """Cross-entropy ``-log softmax(softmax(outputs))[target]``; outputs ``[..., B, C]``, targets
    int64 ``[..., B]``."""

    kind: ClassVar[Targets | None] = "classes"

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        p = outputs.softmax(-1)
        return p.logsumexp(-1) - p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        p = outputs.softmax(-1)
        by_p = p.softmax(-1)
        index = targets.unsqueeze(-1)
        by_p = by_p.scatter_add(-1, index, torch.full_like(p[..., :1], -1.0))
        return p * (by_p - (p * by_p).sum(-1, keepdim=True))
