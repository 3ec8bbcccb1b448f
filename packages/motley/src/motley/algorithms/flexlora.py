"""FlexLoRA: the server averages the products of the clients' low-rank factors, and takes the mean
apart again by its singular values.

Bai, Chen, Qian, Yao, Li: *Federated Fine-tuning of Large Language Models under Heterogeneous Tasks
and Client Resources*, NeurIPS 2024 (arXiv:2402.11505).

    client k  of rank r_k: W = W_0 + s B_k A_k, begun from the first r_k ranks of B and A;
              trains and sends both
    server    P = sum_k p_k B_k A_k = U S V^T,   singular values falling
              B <- (U S)[:, :R],   A <- V^T[:R]

Symbols: R the rank of the task's adapters, the largest that a client may have; p_k = n_k / sum n.
The first r ranks are the best approximation of P of rank r, so a client of less ``capacity`` gets
it by truncation. State: none. Traffic: a client's ranks of both factors, both ways. Cost: the SVD
of a matrix of the clients' ranks together, by QR of the stacked factors; P itself is never formed.

Deviations and readings
-----------------------
* READING the singular values go into B, and the rows of A are orthonormal.
* The server's model, which is evaluated, is P's best approximation of rank R, not P.
* INTERPRETATION-D of ranks that P does not have, B is 0 and A stays. Of the two signs of a pair of
  singular vectors, that which makes the largest entry of the row of A positive.
* Other trainable parameters are averaged; BatchNorm statistics, too.
* With one client it returns the client's product; with clients who have the same A it is the plain
  average.

Worked
------
R = 1, p = (3/4, 1/4), B_1 = (1, 0), A_1 = (1, 0), B_2 = (0, 1), A_2 = (0, 1): P = diag(.75, .25),
B = (.75, 0), A = (1, 0). With R = 2 nothing is lost.

>>> b, a = refactored(torch.eye(2).double() * torch.tensor([0.75, 0.25]), torch.eye(2).double())
>>> b.tolist(), a.tolist()
([[0.75, 0.0], [0.0, 0.25]], [[1.0, 0.0], [0.0, 1.0]])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.parts import (
    Algorithm,
    Method,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.algorithms.ranked import FactorServer, RankedTraining, stacked
from motley.core.adapters import adapters_of
from motley.core.paper import Paper, cite

NONE = 1e-12
"""A singular value below this share of the largest is none: its vectors are made of rounding."""


def refactored(b: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``U S`` and ``V^T`` of the product of ``b`` ``[m, R]`` and ``a`` ``[R, n]``, for its
    singular values above 0, falling."""
    outer, left = torch.linalg.qr(b)
    inner, right = torch.linalg.qr(a.mT)
    u, s, v = torch.linalg.svd(left @ right.mT, full_matrices=False)
    there = s > NONE * s[0]
    new_b = outer @ u[:, there] * s[there]
    new_a = v[there] @ inner.mT
    largest = new_a.abs().argmax(1, keepdim=True)
    sign = torch.where(new_a.gather(1, largest) < 0, -1.0, 1.0)
    return new_b * sign.mT, new_a * sign


@dataclass(frozen=True)
class Redistributed(FactorServer):
    """The server step of FlexLoRA; parameters that belong to no adapter are averaged."""

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        x = state.model.x.double()
        step = total["delta"].clone()
        for adapter in adapters_of(self.layout):
            found_b, found_a = refactored(*stacked(x, total, adapter))
            ranks = min(adapter.rank, len(found_a))
            new_a = x[adapter.a.slice].view(adapter.rank, -1).clone()
            new_b = torch.zeros(len(found_b), adapter.rank, dtype=torch.float64)
            new_a[:ranks], new_b[:, :ranks] = found_a[:ranks], found_b[:, :ranks]
            step[adapter.a.slice] = new_a.reshape(-1) - x[adapter.a.slice]
            step[adapter.b.slice] = new_b.reshape(-1) - x[adapter.b.slice]
        return ServerState(step_model(state, step, total))


@dataclass(frozen=True)
class FlexLoRA(Method):
    """Averaging of the products of low-rank factors, taken apart again by singular values."""

    paper: ClassVar[Paper] = cite("bai2024flexlora")
    adapters: ClassVar[bool] = True

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=RankedTraining(), aggregator=Gather(), server=Redistributed())
