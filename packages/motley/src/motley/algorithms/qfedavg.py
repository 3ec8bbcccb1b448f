"""q-FedAvg: clients with a high loss get larger weights, so that accuracy is more even among
clients.

Li, Sanjabi, Beirami, Smith: *Fair Resource Allocation in Federated Learning*, ICLR 2020
(arXiv:1905.10497).

The method minimizes ``sum_k p_k F_k^(q+1) / (q+1)``. With L = 1 / lr, and F_k the loss of the
*received* model x over all of the client's training samples, before the client trains:

    client:  u_k = L (x - w_k),   Delta_k = F_k^q u_k,   h_k = q F_k^(q-1) ||u_k||^2 + L F_k^q
    server:  x <- x - sum_S Delta_k / sum_S h_k

Symbols: ``q`` how much fairness, 0 is plain averaging; w_k the model after local work. ``p_k`` does
not occur in the published step, ``weights = "uniform"`` (the default): it enters by drawing clients
with p_k. State: none.
Cost: a forward pass over the client's data before it trains, charged in virtual time, and two
scalars more up. One local step (``local = { steps = 1 }``) makes it q-FedSGD.

Deviations and readings
-----------------------
* The upload is ``delta = L F_k^q (w_k - x)``, that is -Delta_k, since clients send after minus
  before; ``scale = L F_k^q`` is uploaded too, so that the server can compute the change of the
  client's model. Both scalars are float64: F^q may be very small.
* F + 1e-10 stands for F, which keeps F^(q-1) finite for q < 1; with F near 0 take q >= 1.
* F_k is the loss that is trained with (a noise-robust one too), without any regularizer, in eval
  mode. Every client uses its own loss: one loss for all clients would only change the length of the
  step.
* READING ``weights = "examples"`` puts p_k = n_k / n into the step where clients are drawn
  uniformly: the gradient of the objective is ``sum p_k F_k^q grad F_k``, and h_k bounds the
  curvature of client k's term, so ``x <- x - sum_S n_k Delta_k / sum_S n_k h_k``; at q = 0 FedAvg
  by samples. Other weightings are refused.
* L follows the learning rate of the round. Buffers are averaged with the weights.
* A client with wrong labels has a high loss as well and gets a large weight. An experiment that
  corrupts clients on purpose gives a warning.

Worked
------
lr = .1, x = 0, w = (.2, .6), F = (1, 4): q = 0 gives .4, q = 1 .288889, q = 2 .210300; with
``examples`` and n = (3, 1) .3, .254237 and .203187. With one loss of the server for all clients, as
in a common port, .222222. The paper takes q from 0.001 to 5.

>>> from motley.algorithms.qfedavg import QFedAvg
>>> QFedAvg(q=2.0).q
2.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    Parts,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.algorithms.weights import refuses_but_both
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

LEAST_LOSS = 1e-10
"""Number added to every F."""


@dataclass(frozen=True)
class FairUpdate(LocalRule):
    """The update times ``L F^q``, uploaded with that factor and ``h``."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "scale", "h"})
    q: float = 1.0

    @property
    @override
    def pre_training(self) -> frozenset[Literal["loss", "gradient"]]:
        return frozenset({"loss"})

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        parts, client_state = super().finish(after, context)
        delta = parts["delta"].value
        slope = 1.0 / context.lr
        loss = context.pre_training.loss + LEAST_LOSS
        scale = slope * loss**self.q
        steep = self.q * loss ** (self.q - 1.0) * float((slope * delta.double()).square().sum())
        scalars = torch.tensor([[scale], [steep + scale]], dtype=torch.float64, device=delta.device)
        return {
            **parts,
            "delta": Part(scale * delta, "mean"),
            "scale": Part(scalars[0], "mean"),
            "h": Part(scalars[1], "mean"),
        }, client_state

    @override
    def update(self, parts: Parts) -> Tensor:
        return parts["delta"].value / parts["scale"].value

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if reason := refuses_but_both("q-FedAvg", weights):
            return reason
        if not isinstance(algorithm.server, FairAverage):
            name = type(algorithm.server).__name__
            return (
                f"q-FedAvg divides by the sum of the h_k, which the server rule {name} does "
                "not; leave server out"
            )
        return None

    @override
    def warns(self) -> str | None:
        if not self.q:
            return None
        return (
            f"q-FedAvg (q = {self.q:g}) gives large weights to clients with a high loss, also if "
            "their labels are wrong or their updates broken: check their share of the step before "
            "calling the result fair, or use a robust loss or aggregator"
        )


@dataclass(frozen=True)
class FairAverage(Server):
    """q-FedAvg's server step ``x <- x + sum delta / sum h``; the ratio of the means is the same."""

    @override
    def refuses_privacy(self) -> str | None:
        return "its server divides by a sum that noise may bring to zero or below"

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        h = total["h"]
        step = total["delta"] / torch.where(h == 0, 1.0, h)  # 0 where nobody has any weight
        return ServerState(step_model(state, step, total), state.extra)


@dataclass(frozen=True)
class QFedAvg(Method):
    """Fair averaging: option ``q`` (1; 0 is plain averaging; the paper tunes it from 0.001 to
    5)."""

    paper: ClassVar[Paper] = cite("li2020qffl")
    q: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.q < float("inf"):
            raise ConfigError(f"got q = {self.q}; expected a finite number of at least 0")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=FairUpdate(self.q), server=FairAverage(), weights="uniform")
