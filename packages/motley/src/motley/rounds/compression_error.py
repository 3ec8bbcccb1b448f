"""What compression loses of the uploads of one server step, measured where diagnostics ask for
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from motley.core.arrays import Floats, Ids
from motley.transport.packet import Packet

KINDS = ("as_allocated", "uniform")


class CompressionError:
    """The error of compressed uploads in one server step, under the allocated shares and if
    everybody sent the same share.

        aggregate    || sum_k w_k (v_k - C(v_k, theta_k)) ||^2
                     w_k the round's weights, summing to 1
        clients      mean of || v_k - C(v_k, theta_k) ||^2
        linear       mean of (1 - theta_k) || v_k ||^2
        weighted     sum_k w_k || v_k - C(v_k, theta_k) ||^2
                     bounds the aggregate's, by Jensen

    once with the shares ``theta_k`` that were allocated, once with their mean for all clients: the
    same number of values in all (up to rounding). HeteRo-Select v2's Theorem IV.2 (Eq. 16) says of
    the clients' errors, whose sum it prints, that they are at most as large under shares by score.
    That holds where clients of large shares have large updates, which the linear errors tell, and
    an error falls in proportion to the share, as top-k's does not: the largest values go first, so
    the same share for all is best where updates are alike. ``v_k`` is the update with the error
    memory, ``C`` the compressor's decoded output. Nothing is measured where all shares are equal.

    Deviations and readings
    -----------------------
    * The theorem is about top-k; any compressor that takes a share is measured alike.
    * READING the sums are over the uploads that arrived, the ``w_k`` the round's weights over their
      sum.
    * READING both errors are of the same ``v_k``: those of the run, whose memory grew under the
      shares that were allocated.
    * Curvature that was not measured, for a client that may send everything, is none under the
      uniform share either.
    * EF21's clients send changes of a vector that the server keeps, with no weight of the round:
      left out.
    """

    def __init__(self) -> None:
        self._sums: list[Tensor] = []  # weighted errors [D], one of each kind
        self._squares = np.zeros(2)
        self._weighted = np.zeros(2)
        self._linear = np.zeros(2)
        self._weight = 0.0
        self._count = 0
        self._mean_share: float | None = None
        self._weights: dict[int, float] = {}
        self._shares: dict[int, float] = {}

    def begin(self, clients: Ids, theta: Floats, weight: Floats) -> None:
        """Announce uploads of one model version: their clients, allocated shares and raw weights,
        ``[n]`` each."""
        self._mean_share = float(theta.mean()) if len(theta) and np.ptp(theta) > 0 else None
        self._weights = dict(zip(clients.tolist(), weight.tolist(), strict=True))
        self._shares = dict(zip(clients.tolist(), theta.tolist(), strict=True))

    def add(
        self, client: int, v: Tensor, update: Tensor, compress: Callable[[float], Packet]
    ) -> None:
        """Add one upload: ``update`` is what arrived of ``v``, ``compress`` what another share
        would have sent of it."""
        if self._mean_share is None:
            return
        weight = self._weights[client]
        # errors are small beside updates: their sums would drown in the rounding of 32 bits
        exact = v.detach().cpu().double()
        errors = [
            exact - arrived.cpu().double()
            for arrived in (update, compress(self._mean_share).dense())
        ]
        squares = np.array([float(error @ error) for error in errors])
        self._squares = self._squares + squares
        self._weighted = self._weighted + weight * squares
        left = 1.0 - np.array([self._shares[client], self._mean_share])
        self._linear = self._linear + left * float(exact @ exact)
        self._sums = self._sums or [torch.zeros_like(exact) for _ in KINDS]
        for total, error in zip(self._sums, errors, strict=True):
            total.add_(error, alpha=weight)
        self._weight = self._weight + weight
        self._count = self._count + 1

    def notes(self) -> Mapping[str, float]:
        """Return ``error.*`` of the aggregate, ``client_error.*``, ``linear_error.*`` and
        ``weighted_error.*``; empty where nothing was measured."""
        sums = {"client_error": self._squares, "linear_error": self._linear}
        clients = {
            f"{name}.{kind}": square / self._count
            for name, squares in sums.items()
            for kind, square in zip(KINDS, squares, strict=True)
            if self._count
        }
        aggregate = [total / self._weight for total in self._sums] if self._weight else []
        if self._weight:
            clients |= {
                f"weighted_error.{kind}": sum_ / self._weight
                for kind, sum_ in zip(KINDS, self._weighted, strict=True)
            }
        return {
            **{
                f"error.{kind}": float(error @ error)
                for kind, error in zip(KINDS, aggregate, strict=False)
            },
            **clients,
        }
