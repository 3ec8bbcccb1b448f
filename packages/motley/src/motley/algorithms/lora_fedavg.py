"""LoRA with FedAvg (FedIT): clients train low-rank adapters, and the server averages their factors.

Zhang, Vahidian, Kuo, Li, Zhang, Yu, Zhou, Wang, Chen: *Towards Building the Federated GPT:
Federated Instruction Tuning*, ICASSP 2024 (arXiv:2305.05644).

    client k  W = W_0 + s B A, W_0 frozen; trains A and B; sends their changes
    server    A <- sum_k p_k A_k,    B <- sum_k p_k B_k

Symbols: A ``[R, inputs]`` drawn, B ``[outputs, R]`` zeros at first, p_k = n_k / sum n. State: none.
Traffic: the factors, both ways.

The mean of factors is not the factor of the mean: clients train B_k A_k, whose mean is
``P = sum_k p_k B_k A_k``. With ``measure_bias`` the column ``notes`` of the table ``rounds`` has
``bias``, the Frobenius norm of ``B A - P`` as a share of P's, over all adapters together.

Deviations and readings
-----------------------
* Clients of less ``capacity`` hold the first ranks of every adapter, and each rank is averaged over
  those who hold it (:mod:`motley.algorithms.ranked`); the paper has one rank for all. Then P is of
  the ranks that each client holds.
* ``measure_bias`` needs single uploads, which a server does not see under secure aggregation.
* With one rank for all it is FedAvg on the adapters, bit for bit.

Worked
------
R = 1, p = (3/4, 1/4), B_1 = (1, 0), A_1 = (1, 0), B_2 = (0, 1), A_2 = (0, 1): P = diag(.75, .25),
the mean factors (.75, .25) give ((.5625, .1875), (.1875, .0625)); bias .375 / sqrt(.625) = .474342.

>>> from motley.algorithms.lora_fedavg import LoRAFedAvg
>>> LoRAFedAvg()
LoRAFedAvg(measure_bias=False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.parts import Algorithm, Method, ServerContext, ServerState, Tensors
from motley.algorithms.ranked import FactorServer, RankedTraining, stacked
from motley.core.adapters import adapters_of
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class MeasuredFactors(FactorServer):
    """The plain server step, and how far its product is from the mean of the clients' products."""

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        after = super().update(state, total, context).model
        wrong, size = 0.0, 0.0
        for adapter in adapters_of(self.layout):
            b, a = stacked(state.model.x, total, adapter)
            mean = b @ a
            new_b = after.x[adapter.b.slice].double().view(-1, adapter.rank)
            new_a = after.x[adapter.a.slice].double().view(adapter.rank, -1)
            wrong += float((new_b @ new_a - mean).square().sum())
            size += float(mean.square().sum())
        bias = (wrong / size) ** 0.5 if size else 0.0
        return ServerState(after, {"bias": torch.tensor(bias, dtype=torch.float64)})

    @override
    def notes(self, state: ServerState) -> Mapping[str, float]:
        return {name: float(value) for name, value in state.extra.items()}


@dataclass(frozen=True)
class LoRAFedAvg(Method):
    """Averaging of the factors of low-rank adapters.

    Parameters
    ----------
    measure_bias: whether the distance of the averaged factors' product from the mean of the
    clients' products is measured, which needs single uploads.
    """

    paper: ClassVar[Paper] = cite("zhang2024fedit")
    adapters: ClassVar[bool] = True
    measure_bias: bool = False

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        if not self.measure_bias:
            return plain.replace(local=RankedTraining())
        return plain.replace(local=RankedTraining(), aggregator=Gather(), server=MeasuredFactors())
