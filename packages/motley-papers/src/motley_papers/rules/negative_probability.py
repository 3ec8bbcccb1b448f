"""The loss of the multi-layer perceptron of AshwinRJ/Federated-Learning-PyTorch ``26eaec4``
(``src/models.py``, line 24, and ``src/update.py``, line 34), and of Ji's code until ``5ffe3e3``:
the network ends in a softmax, and torch's ``NLLLoss``, meant for logarithms, takes the
probabilities.

    p = softmax(outputs),   loss = -p_y

It lies between -1 and 0. Its gradient is that of cross-entropy times p_y, so a sample that is far
from right moves the weights hardly at all. Predictions are the same.

Worked
------
Outputs (0, 0), class 0: p = (1/2, 1/2), loss = -1/2, gradient 1/2 (-1/2, 1/2) = (-1/4, 1/4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Loss, Targets, Tensors


@dataclass(frozen=True)
class NegativeProbability(Loss):
    """The probability of the target with a minus, ``-softmax(outputs)[target]``; outputs
    ``[..., B, C]``, targets int64 ``[..., B]``."""

    kind: ClassVar[Targets | None] = "classes"

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return -outputs.softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        p = outputs.softmax(-1)
        index = targets.unsqueeze(-1)
        own = p.gather(-1, index)
        return (own * p).scatter_add(-1, index, -own)
