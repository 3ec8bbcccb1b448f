"""FLASH's noise-robust local loss.

Chang, Ahmed, Krishnamurthy, Guler, Swami, Oymak, Roy-Chowdhury: *FLASH: Federated Learning Across
Simultaneous Heterogeneities*, arXiv:2402.08769, 2024.

With ``p = softmax(outputs)``, the client's possibly noisy label y, and soft pseudo labels
``z = p(a; w^t)`` that the received global model gives the sample before the first local step:

    L = CE(y) + alpha CE(z) + beta RCE(y)
    CE(y) = -log p_y,    CE(z) = -sum_c z_c log p_c,
    RCE(y) = -sum_c p_c log onehot(y)_c = 4 (1 - p_y)

for ``log 0 := -4``. No gradient goes through z. The gradient by the outputs is
``(1 + 4 beta p_y) (p - onehot(y)) + alpha (p - z)``.

Symbols: ``alpha``, ``beta`` as there; ``extra["pseudo"]`` is z, one row per training sample, from
one forward pass over the client's data in eval mode.

Deviations and readings
-----------------------
READING: the defaults 0.1 and 4 are the first pair that the paper tries on CIFAR-10, for it names no
winner; on FEMNIST take 1 and 8. As an algorithm it is plain averaging of clients that train with
this loss; under another algorithm write ``loss = "flash_robust"``.
INTERPRETATION: in a probe the measured model *is* the received one, so z is its own softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Algorithm, JobContext, Loss, Method, Targets, Tensors
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite

PAPER = cite("chang2024flash")
LOG_ZERO = -4.0
"""The paper's A, its value for the logarithm of 0."""


@dataclass(frozen=True)
class FlashRobust(Loss):
    """Cross-entropy to labels and to pseudo labels plus reverse cross-entropy; outputs
    ``[..., B, C]``, int64 targets ``[..., B]``.

    Parameters
    ----------
    alpha: weight of the cross-entropy to the pseudo labels.
    beta: weight of the reverse cross-entropy. Both at least 0.

    Example
    -------
    >>> import torch
    >>> p, z = torch.tensor([[[0.7, 0.2, 0.1]], [[0.6, 0.3, 0.1]]], dtype=torch.float64)
    >>> round(FlashRobust().loss(p.log(), torch.tensor([0]), {"pseudo": z}).item(), 6)
    5.249384
    """

    paper: ClassVar[Paper | None] = PAPER
    kind: ClassVar[Targets | None] = "classes"
    alpha: float = 0.1
    beta: float = 4.0

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not 0.0 <= value < float("inf"):
                raise ConfigError(
                    f"{name}: got {value}; expected a weight of at least 0, e.g. alpha = 0.1, beta "
                    "= 4.0"
                )

    def prepare(
        self,
        context: JobContext,
        forward: Callable[[Tensor], Tensor],
        inputs: Tensor,
        targets: Tensor,
    ) -> Tensors:
        """Return ``{"pseudo": [n, C]}``, the received model's class probabilities."""
        return {"pseudo": forward(inputs).softmax(-1)}

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        logs = outputs.log_softmax(-1)
        z = self._pseudo(outputs, extra)
        own = logs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        return -own - self.alpha * (z * logs).sum(-1) - self.beta * LOG_ZERO * (1.0 - own.exp())

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        p = outputs.softmax(-1)
        index = targets.unsqueeze(-1)
        steep = 1.0 - self.beta * LOG_ZERO * p.gather(-1, index)
        out = steep * p
        out.scatter_add_(-1, index, -steep)
        return out.add_(p - self._pseudo(outputs, extra), alpha=self.alpha)

    @staticmethod
    def _pseudo(outputs: Tensor, extra: Tensors) -> Tensor:
        return extra["pseudo"] if extra else outputs.detach().softmax(-1)


@dataclass(frozen=True)
class RobustTraining(Method):
    """FLASH's local training under plain averaging: options ``alpha`` (0.1) and ``beta`` (4) of the
    noise-robust loss."""

    paper: ClassVar[Paper] = PAPER
    alpha: float = 0.1
    beta: float = 4.0

    def __post_init__(self) -> None:
        FlashRobust(self.alpha, self.beta)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(loss=FlashRobust(self.alpha, self.beta))
