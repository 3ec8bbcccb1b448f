"""MIFA and FedVARP: the server remembers every client's last update and uses it while the client is
absent.

Gu, Huang, Zhang, Huang: *Fast Federated Learning in the Presence of Arbitrary Device
Unavailability*, NeurIPS 2021 (arXiv:2106.04159).
Jhunjhunwala, Sharma, Nagarkatti, Joshi: *FedVARP: Tackling the Variance Due to Partial Client
Participation in Federated Learning*, UAI 2022 (arXiv:2207.14130).

    client:   sends G_k = (w_k - x) / lr, its update by the learning rate, and lr
    server:   change = sum_S (G_k - Y_k);      Y_k <- G_k for k in S, the others' stay
              MIFA     v = mean of all Y + change / K   (that is, of all Y after the round)
              FedVARP  v = mean of all Y + change / M   (the change as if everybody's were like it)
              x <- x + lr_server lr v
    by n_k:   change = sum_S n_k (G_k - Y_k), the mean of all Y is sum n_k Y_k / n,
              change / n in place of change / K, change / sum_S n in place of change / M

Symbols: K all clients, M those of the cohort S; ``Y_k`` [D] the memory of client k, 0 before its
first upload. MIFA follows clients that come back seldom without ever weighing them more; FedVARP is
unbiased where cohorts are drawn uniformly, and its variance falls with the distance of the updates
from the memories. With everybody in each round both are uniform averaging.

State: at the server the memories of the clients that were heard, 4 D bytes each, and their mean. A
client that was never heard takes no memory: a million clients, a thousand of them heard, cost as
much as a thousand. Every checkpoint holds all memories. Nothing at the clients. Cost: one number
more up.

Deviations and readings
-----------------------
* Memories are updates by learning rate, as published and in MIFA's code: under a falling rate an
  old update takes part at the rate of today, the mean of the cohort's.
* Memories begin with zeros, where MIFA's paper lets everybody take part in round 1.
* The mean of the memories is kept as a running sum in float64, not summed anew.
* ``weights = "uniform"`` is the default, as published. READING ``"examples"``, the last lines
  above, minimizes ``sum p_k F_k``, p_k = n_k / n: v is ``sum p_k Y_k`` with the cohort's memories
  renewed, in FedVARP with the cohort's weighted mean of differences. Both papers prove their rates
  for the plain mean; there FedVARP's v is unbiased under uniform draws, by n_k only approximately.
  Other weightings, under which an absent client has no p_k, are refused. Buffers are averaged over
  the cohort.
* A stale update is remembered as it was scaled.
* Not here: MIFA's variant whose clients keep the memories and send differences, and ClusterFedVARP.

Worked
------
K = 2, F_k = (w - m_k)^2 / 2, m = (1, 3), one step of lr = .1 from x = 0, one client a round: 0, 1,
0. MIFA: G_0 = 1, mean .5, x = .05; G_1 = 2.95, mean 1.975, x = .2475; G_0 = .7525, mean 1.85125, x
= .432625. FedVARP: v = 1, x = .1; v = .5 + 2.9 = 3.4, x = .44; v = 1.95 + .56 - 1 = 1.51, x = .591.
With ``examples`` and n = (1, 3) MIFA: mean .25, x = .025; G_1 = 2.975, mean 2.48125, x = .273125;
G_0 = .726875, mean 2.41296875, x = .514421875. FedVARP: v = 1, x = .1; v = .25 + 2.9 = 3.15, x =
.415; v = 2.425 + .585 - 1 = 2.01, x = .616.

>>> from motley.algorithms.mifa import MIFA
>>> MIFA(server_lr=0.5)
MIFA(server_lr=0.5)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather, needs_gather
from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    Parts,
    ServerContext,
    ServerState,
    Tensors,
    kept_mean,
    step_model,
)
from motley.algorithms.weights import refuses_but_both
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

MEMORY = "memory."
"""How the names of the clients' memories in the server's state begin."""


@dataclass(frozen=True)
class UpdateByRate(LocalRule):
    """Plain local training; the client sends its update divided by the learning rate, and the
    rate."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "rate"})

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        parts, client_state = super().finish(after, context)
        delta = parts["delta"].value / context.lr
        rate = torch.tensor([context.lr], dtype=torch.float64, device=delta.device)
        return {**parts, "delta": Part(delta, "mean"), "rate": Part(rate, "mean")}, client_state

    @override
    def update(self, parts: Parts) -> Tensor:
        return (parts["delta"].value * parts["rate"].value).to(parts["delta"].value.dtype)

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if reason := refuses_but_both("the mean of everybody's memories", weights):
            return reason
        if not isinstance(algorithm.server, Memories):
            name = type(algorithm.server).__name__
            return (
                f"updates are divided by the learning rate, which the server rule {name} does not "
                "undo; leave server out"
            )
        return None


@dataclass(frozen=True)
class Memories(Average):
    """The server step by the mean of all clients' last updates; ``change``: whether a round's
    change of the memories counts for those clients alone, or as if it were everybody's."""

    weighs_all: ClassVar[bool] = True
    change: Literal["own", "everybody"] = "own"

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if not isinstance(algorithm.local, UpdateByRate):
            name = type(algorithm.local).__name__
            return f"memories are updates by learning rate, and {name} sends others"
        return needs_gather("the memory of every client's last update", algorithm)

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        total = torch.tensor([population], dtype=torch.float64)
        mean = torch.zeros_like(model.x, dtype=torch.float64)
        return ServerState(model, {"mean": mean, "total_weight": total})

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        extra = dict(state.extra)
        change = torch.zeros_like(extra["mean"])
        accepted, everybody = context.weight_sums
        clients = total["each.client"].tolist()
        weights = total["each.own_weight"].tolist()
        for client, weight, new in zip(clients, weights, total["each.delta"], strict=True):
            name = f"{MEMORY}{client}"
            change.add_(new.double(), alpha=weight)
            if name in extra:
                change.sub_(extra[name].double(), alpha=weight)
            extra[name] = new.clone()  # a row alone, not a view of the round's uploads
        mean = kept_mean(state, "mean", everybody)
        v = mean + change / (everybody if self.change == "own" else accepted)
        extra["mean"] = mean + change / everybody
        extra["total_weight"] = torch.tensor([everybody], dtype=torch.float64)
        return ServerState(step_model(state, self.lr * total["rate"] * v, total), extra)

    @override
    def notes(self, state: ServerState) -> Mapping[str, float]:
        return {"memories": float(sum(name.startswith(MEMORY) for name in state.extra))}


@dataclass(frozen=True)
class MIFA(Method):
    """Averaging of all clients' last updates, also of those that are absent: option ``server_lr``
    (1.0)."""

    paper: ClassVar[Paper] = cite("gu2021mifa")
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        Memories(self.server_lr)  # checks the option

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=UpdateByRate(),
            aggregator=Gather(),
            server=Memories(self.server_lr),
            weights="uniform",
        )


@dataclass(frozen=True)
class FedVARP(Method):
    """The cohort's mean, corrected by what the memories of its clients differ from everybody's:
    option ``server_lr`` (1.0)."""

    paper: ClassVar[Paper] = cite("jhunjhunwala2022fedvarp")
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        Memories(self.server_lr)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=UpdateByRate(),
            aggregator=Gather(),
            server=Memories(self.server_lr, "everybody"),
            weights="uniform",
        )
