"""FedSWA and FedMoSWA: local steps that grow shorter within every round, a server step beyond the
mean, and in FedMoSWA control variates whose mean forgets.

Liu, Liu, Shang, Liu, Liu, Feng: *Improving Generalization in Federated Learning with Highly
Heterogeneous Data via Momentum-Based Stochastic Controlled Weight Averaging*, ICML 2025
(arXiv:2507.20016).

    client:   w <- x;   for k = 0, ..., tau - 1:   lr_k = lr (1 - (1 - rho) k / tau)
              FedSWA      w <- w - lr_k g
              FedMoSWA    w <- w - lr_k (g - c_k + m);   after the last step
                          c_k+ = c_k - m + (x - w) / sum lr_k;   sends c_k+ - m
    server:   x <- x + server_lr sum_k a_k (w_k - x)
              m <- m + gamma (mean of what was sent)

Symbols: c_k and m are 0 at first. c_k+ is the mean of the round's gradients, weighted as their
steps were; m is a moving average of those of the cohorts, where SCAFFOLD's c is the mean of the
last ones of all clients, however old. ``rho`` = 1, ``server_lr`` = 1 is FedAvg, and under FedMoSWA
SCAFFOLD's local work.

State: FedMoSWA m [D] at the server, c_k [D] at each client. Traffic: FedSWA as averaging, FedMoSWA
twice both ways.

Deviations and readings
-----------------------
* The rate falls step by step, which a schedule of rounds cannot: steps are directions of their own,
  which the batched engines do not compute, and ``local.optimizer`` is plain SGD.
* The authors' code has rho 0, server_lr 1 and twice the rate: ``local.optimizer.lr`` doubled, and
  ``rho = 0, server_lr = 1``. What it runs as MoFedSWA has gamma .4 and a rate that does not fall:
  ``rho = 1, server_lr = 1, gamma = 0.4``.
* Also there: decay .001 and gradients clipped at 10, which are refused here.
* Uploads and what is sent of c_k have the experiment's weights, by default equal ones.
* Published: rho .1, server_lr 1.5, gamma .2, 50 steps.

Worked
------
(w - c)^2 / 2, c = (4, 2), x = 0, lr .1, rho 0, two steps: rates .1, .05. FedSWA, server_lr 1.5: w =
.4, .58 and .2, .29; x = 1.5 * .435 = .6525. FedMoSWA, gamma .2, server_lr 1: c_k+ = -.58 / .15 =
-3.8667, -1.9333; x = .435, m = -.58. Round 2, corrected by c - m = -3.2867, -1.3533: gradients
-3.565 + 3.2867, -1.565 + 1.3533.

>>> from motley.algorithms.fedswa import FedSWA
>>> FedSWA()
FedSWA(rho=0.1, server_lr=1.5)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.fedadamw import check_between, refuses_but_plain_sgd
from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    RECEIVED,
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    Phase,
    ServerContext,
    ServerState,
    Tensors,
)
from motley.algorithms.phases import GradientAt
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class FallingRate(LocalRule):
    """Local steps whose rate falls to nearly ``rho`` times itself within a round."""

    rho: float = 0.1

    def share(self, step: int, steps: int) -> float:
        """Return the share of the learning rate in a step, numbered from 0, of so many."""
        return 1.0 - (1.0 - self.rho) * step / steps

    def offset(self, context: JobContext) -> Tensor:
        """Return what is added to every gradient ``[D]``."""
        return torch.zeros_like(context.x)

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        steps = context.steps

        def direction(gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
            return self.share(step, steps) * (gradient(values[RECEIVED]) + values["offset"])

        return (Phase(direction=direction, values={"offset": self.offset(context)}),)

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        return refuses_but_plain_sgd(type(self).__name__, solver)


@dataclass(frozen=True)
class FallingRateControlled(FallingRate):
    """Local steps of a falling rate, corrected by the client's control variate, which it keeps, and
    the server's."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "dc"})

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {"c": torch.zeros_like(state.x)}

    @override
    def download(self, server: ServerState) -> Tensors:
        return {**super().download(server), "m": server.extra["m"]}

    @override
    def offset(self, context: JobContext) -> Tensor:
        return context.download["m"] - self._own(context)

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        parts, _ = super().finish(after, context)
        own = self._own(context)
        m = context.download["m"]
        path = context.lr * sum(self.share(k, context.steps) for k in range(context.steps))
        renewed = own - m - parts["delta"].value / path if path else own
        return {**parts, "dc": Part(renewed - m, "mean")}, {"c": renewed}

    @staticmethod
    def _own(context: JobContext) -> Tensor:
        state = context.client_state
        return torch.zeros_like(context.x) if state is None else state["c"]

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if not isinstance(algorithm.server, ForgettingVariate):
            name = type(algorithm.server).__name__
            return (
                f"FedMoSWA's server keeps m, which the server rule {name} does not; leave server "
                "out"
            )
        return super().refuses(algorithm, solver, weights)


@dataclass(frozen=True)
class ForgettingVariate(Average):
    """The plain server step, and the moving average of the control variates of the cohorts."""

    gamma: float = 0.2

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.local, FallingRateControlled):
            return None
        return (
            f"the server averages control variates, and {type(algorithm.local).__name__} has none"
        )

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(model, {"m": torch.zeros_like(model.x)})

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        m = state.extra["m"]
        moved = (m.double() + self.gamma * total["dc"]).to(m.dtype)
        return ServerState(super().update(state, total, context).model, {"m": moved})


@dataclass(frozen=True)
class FedSWA(Method):
    """Averaging of local steps that grow shorter, with a server step beyond the mean: options
    ``rho`` (0.1), the last step's share of the rate, and ``server_lr`` (1.5)."""

    paper: ClassVar[Paper] = cite("liu2025fedswa")
    rho: float = 0.1
    server_lr: float = 1.5

    def __post_init__(self) -> None:
        check_between(self, ("rho",), 1.0, closed=True)
        Average(self.server_lr)  # checks the option

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=FallingRate(self.rho), server=Average(self.server_lr), weights="uniform"
        )


@dataclass(frozen=True)
class FedMoSWA(Method):
    """FedSWA with control variates: options ``rho`` (0.1), ``server_lr`` (1.5) and ``gamma`` (0.2),
    how much of a cohort's variates enters the server's."""

    paper: ClassVar[Paper] = cite("liu2025fedswa")
    rho: float = 0.1
    server_lr: float = 1.5
    gamma: float = 0.2

    def __post_init__(self) -> None:
        check_between(self, ("rho", "gamma"), 1.0, closed=True)
        Average(self.server_lr)  # checks the option

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=FallingRateControlled(self.rho),
            server=ForgettingVariate(self.server_lr, self.gamma),
            weights="uniform",
        )
