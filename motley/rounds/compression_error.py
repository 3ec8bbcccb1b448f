"""What does not arrive: the error of uploads that are cut short, as the allocator has it and if everybody sent the same share.

    aggregate    || sum_k w_k (v_k - C(v_k, theta_k)) ||^2           w_k the round's weights, summing to 1
    clients      mean of || v_k - C(v_k, theta_k) ||^2

once with the shares ``theta_k`` that were allocated, once with their mean for everybody: the same number of values in all (but for
rounding to whole ones). HeteRo-Select v2's Theorem IV.2 says that the first is smaller under shares by score.

Symbols: ``v_k`` update and error memory, ``C`` the compressor's decoded output. Nothing is measured where all shares are equal.

Deviations and readings
-----------------------
* The theorem is about top-k; any compressor that listens to a share is measured alike.
* READING the sums are over the uploads that came, the ``w_k`` the round's weights over their sum.
* READING both errors are of the same ``v_k``: those of the run, whose memory grew under the shares that were allocated.
* Curvature that was not measured, for a client that may send everything, is none under the uniform share either.
* EF21's clients send changes of a vector that the server keeps, with no weight of the round: left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.transport.packet import Packet

__all__ = ["CompressionError"]

KINDS = ("as_allocated", "uniform")


class CompressionError:
    """The errors of one server step, added up as uploads pass."""

    def __init__(self) -> None:
        self._sums: list[Tensor] = []  # of weighted errors [D], one of each kind
        self._squares = np.zeros(2)
        self._weight, self._count = 0.0, 0

    def among(self, theta: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        """These uploads come next; ``theta``, ``weight`` ``[n]``: what each may send, and how much it counts."""
        self._even = float(theta.mean()) if len(theta) and np.ptp(theta) > 0 else None
        self._weights = weight

    def take(self, i: int, v: Tensor, update: Tensor, cut: Callable[[float], Packet]) -> None:
        """The ``i``-th of them, what of it arrived, and what another share would have left of it."""
        if self._even is None:
            return
        weight, whole = float(self._weights[i]), v.detach().cpu().double()
        errors = [whole - arrived.cpu().double() for arrived in (update, cut(self._even).dense())]
        self._squares += [float(error @ error) for error in errors]
        self._sums = self._sums or [torch.zeros_like(whole) for _ in KINDS]
        for total, error in zip(self._sums, errors, strict=True):
            total.add_(error, alpha=weight)
        self._weight, self._count = self._weight + weight, self._count + 1

    def notes(self) -> Mapping[str, float]:
        """``error.*`` of the aggregate and ``client_error.*``; empty where nothing was measured."""
        out = {
            f"client_error.{kind}": square / self._count
            for kind, square in zip(KINDS, self._squares, strict=True)
            if self._count
        }
        aggregate = [total / self._weight for total in self._sums] if self._weight else []
        return {**{f"error.{kind}": float(one @ one) for kind, one in zip(KINDS, aggregate, strict=False)}, **out}
