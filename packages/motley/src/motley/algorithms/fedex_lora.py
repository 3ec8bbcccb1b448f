"""FedEx-LoRA: both factors of low-rank adapters are averaged, and what the mean of the products has
more than the product of the means is merged into the frozen weights.

Singhal, Ponkshe, Vepakomma: *FedEx-LoRA: Exact Aggregation for Federated and Efficient Fine-Tuning
of Large Language Models*, ACL 2025 (arXiv:2410.09432).

    client k  W = W_t + s B A, W_t frozen; trains both factors from the means; sends both
    server    B <- sum_k p_k B_k,   A <- sum_k p_k A_k                              (12), (13)
    all       W_{t+1} = W_t + s (sum_k p_k B_k A_k - B A)                           (14), (16)
    with r'   the residual's best approximation of rank r', by singular values      (17), (18)

Symbols: p_k = n_k / sum n, in the paper 1 / M. The model after a round is W_t + s sum_k p_k B_k A_k
(9), as if the products were averaged; the residual is no more than M R ranks of the adapters' R,
and training goes on in the R ranks of the means. State: how many residuals a client has merged.
Traffic: up both factors; down both and the residuals of the rounds since a client last took part,
of each M R ranks, or r', or the product, ``outputs x inputs`` numbers, whatever is least.

Deviations and readings
-----------------------
* INTERPRETATION-D who was absent merges what it missed when it comes back; in the paper everybody
  takes part in every round.
* The residual is formed, beside the frozen weights and not in them, as under
  :mod:`motley.algorithms.flora`, of whose bookkeeping this is.
* READING clients of less ``capacity``, which the paper does not have, hold the first ranks: a rank
  is averaged over those who hold it, and the residual makes the sum of the products exact again.
  They are sent the means whole.
* Other trainable parameters and BatchNorm statistics are averaged.

Worked
------
R = 1, p = (3/4, 1/4), B_1 = (1, 0), A_1 = (1, 0), B_2 = (0, 1), A_2 = (0, 1): B = (.75, .25) = A,
whose product is ((.5625, .1875), (.1875, .0625)); the residual, ((.1875, -.1875), (-.1875, .1875)),
has one rank of singular value .375, and 4 numbers where 2 ranks of it would take 8.

>>> from motley.algorithms.fedex_lora import FedExLoRA
>>> FedExLoRA()
FedExLoRA(residual_ranks=None)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.flexlora import refactored
from motley.algorithms.flora import RANKS, StackedTraining, Stacking, averaged_buffers
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    Method,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.algorithms.ranked import stacked
from motley.core.adapters import adapters_of, merged_of
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class ResidualTraining(StackedTraining):
    """Plain local training of the mean adapters beside the residuals merged so far."""

    @override
    def values_down(self, download: Tensors, client_state: ClientState | None) -> int:
        factors = sum(a.size + b.size for a, b in adapters_of(self.layout))
        return super().values_down(download, client_state) + factors


@dataclass(frozen=True)
class MeansAndResidual(Stacking):
    """The server step of FedEx-LoRA; ``residual_ranks``: of which a residual keeps as many."""

    residual_ranks: int | None = None

    @override
    def bound(self, layout: Layout, draw: Callable[[int], ModelState]) -> Server:
        return dataclasses.replace(self, layout=layout)

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        adapters = len(merged_of(self.layout))
        return ServerState(model, {RANKS: torch.zeros(0, adapters, dtype=torch.int64)})

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        x = state.model.x.double()
        mean = x + total["delta"]
        buffers = state.model.buffers.to(torch.float64, copy=True)
        if "buffers" in total:
            buffers[averaged_buffers(self.layout)] = total["buffers"]
        ranks = []
        for adapter, product in zip(adapters_of(self.layout), merged_of(self.layout), strict=True):
            b, a = stacked(x, total, adapter)
            mean_a = mean[adapter.a.slice].view(adapter.rank, -1)
            mean_b = mean[adapter.b.slice].view(-1, adapter.rank)
            ranks.append(min(len(a), self.residual_ranks or len(a)))
            residual = self._kept(torch.cat([b, -mean_b], 1), torch.cat([a, mean_a]))
            buffers[product.slice] += residual.reshape(-1)
        model = step_model(state, total["delta"], {**total, "buffers": buffers})
        return ServerState(model, {RANKS: torch.cat([state.extra[RANKS], torch.tensor([ranks])])})

    def _kept(self, b: Tensor, a: Tensor) -> Tensor:
        """Return what is merged of the residual ``b @ a``."""
        if self.residual_ranks is None:
            return b @ a
        left, right = refactored(b, a)
        return left[:, : self.residual_ranks] @ right[: self.residual_ranks]


@dataclass(frozen=True)
class FedExLoRA(Method):
    """Averaging of both low-rank factors, whose error is merged into the frozen weights: option
    ``residual_ranks`` (all), of which the error keeps as many."""

    paper: ClassVar[Paper] = cite("singhal2025fedexlora")
    adapters: ClassVar[bool] = True
    residual_ranks: int | None = None

    def __post_init__(self) -> None:
        if self.residual_ranks is not None and self.residual_ranks < 1:
            raise ConfigError(
                f"got residual_ranks = {self.residual_ranks}; expected at least 1, or leave it out"
            )

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=ResidualTraining(),
            aggregator=Gather(),
            server=MeansAndResidual(residual_ranks=self.residual_ranks),
        )
