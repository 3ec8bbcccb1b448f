"""Symmetric cross-entropy, RHFL's local loss.

Wang, Ma, Chen, Luo, Yi, Bailey: *Symmetric Cross Entropy for Robust Learning with Noisy Labels*,
ICCV 2019; as used by Fang, Ye: *Robust Federated Learning With Noisy and Heterogeneous Clients*,
CVPR 2022. With ``p = softmax(outputs)`` and the label y:

    L = weight CE + RCE,    CE = -log p_y,
    RCE = -sum_c p_c log onehot(y)_c = 9.210340 (1 - p_y)    for log 0 := log 1e-4

The gradient by the outputs is ``(weight + 9.210340 p_y) (p - onehot(y))``.

Deviations and readings
-----------------------
READING: p is not bounded from below.

>>> import torch
>>> outputs = torch.tensor([[0.7, 0.2, 0.1]]).double().log()
>>> round(SymmetricLoss().loss(outputs, torch.tensor([0]), {}).item(), 6)
2.79877
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Loss, Targets, Tensors
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite

PAPER = cite("wang2019symmetric")
LOG_ZERO = math.log(1e-4)
"""Value used for the logarithm of 0."""


@dataclass(frozen=True)
class SymmetricLoss(Loss):
    """Cross-entropy times ``weight`` (0.1; RHFL's lambda) and reverse cross-entropy; outputs
    ``[..., B, C]``, targets ``[..., B]``."""

    paper: ClassVar[Paper | None] = PAPER
    kind: ClassVar[Targets | None] = "classes"
    weight: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight < float("inf"):
            raise ConfigError(
                f"got weight = {self.weight}; expected a number of at least 0, e.g. 0.1"
            )

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        own = outputs.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        return -self.weight * own - LOG_ZERO * (1.0 - own.exp())

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        p = outputs.softmax(-1)
        index = targets.unsqueeze(-1)
        steep = self.weight - LOG_ZERO * p.gather(-1, index)
        return (steep * p).scatter_add_(-1, index, -steep)
