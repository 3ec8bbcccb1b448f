"""Adam on one flat vector, for optimization at the server (Kingma, Ba: *Adam: A Method for
Stochastic Optimization*, ICLR 2015)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_BETA1 = 0.9
_BETA2 = 0.999
_TINY = 1e-8


class FlatAdam(NamedTuple):
    """Adam's state: the moments of the gradient and the number of steps; every step returns the
    next state.

    Example
    -------
    >>> adam = FlatAdam.fresh(torch.zeros(2))
    >>> w, adam = adam.step(torch.zeros(2), torch.tensor([3.0, -0.1]), lr=0.5)
    >>> [round(value, 4) for value in w.tolist()]
    [-0.5, 0.5]
    """

    mean: Tensor
    square: Tensor
    steps: int = 0

    @classmethod
    def fresh(cls, like: Tensor) -> FlatAdam:
        """Return the state before the first step."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def step(self, w: Tensor, g: Tensor, lr: float) -> tuple[Tensor, FlatAdam]:
        """Return ``w - lr m^ / (sqrt(v^) + 1e-8)`` with bias-corrected moments, and the next
        state."""
        t = self.steps + 1
        mean = torch.lerp(self.mean, g, 1.0 - _BETA1)
        square = (_BETA2 * self.square).addcmul_(g, g, value=1.0 - _BETA2)
        deviation = (square / (1.0 - _BETA2**t)).sqrt_().add_(_TINY)
        return torch.addcdiv(w, mean, deviation, value=-lr / (1.0 - _BETA1**t)), FlatAdam(
            mean, square, t
        )


def clipped(g: Tensor, norm: float) -> Tensor:
    """Return ``g min(1, norm / ||g||)``."""
    length = float(g.norm())
    return g * (norm / length) if length > norm else g
