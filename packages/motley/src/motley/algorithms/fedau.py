"""FedAU: clients weigh their updates by the mean length of their own absences, so that a model does
not follow those who come often.

Wang, Ji: *A Lightweight Method for Tackling Unknown Participation Statistics in Federated
Averaging*, ICLR 2024 (arXiv:2306.03401).

    client k in S of round t, absent for a rounds since its last one (since the start):
        q whole stretches of K rounds in a count as intervals of length K
        w_k = mean length of its intervals so far, 1 before the first
        sends w_k delta_k;   then an interval of a - q K + 1 rounds has ended
    server:   x <- x + lr (1/N) sum_S w_k delta_k

Symbols: N all clients, K the ``cutoff``: a client that was away for K rounds is taken to have come
once, which bounds w_k by K; without one w_k is the mean of all intervals, an estimate of 1 / p_k
for a client that comes with probability p_k. The weight of a round is made of what was before it.
With everybody in each round w_k = 1, and it is uniform averaging.

State: at each client three numbers, at the server the number of its steps. Cost: one number more
down, of 64 bits.

Deviations and readings
-----------------------
* READING the client keeps the history and weighs its own update, so that the server needs the sum
  alone; in the code of the authors the server does.
* READING the code's cutoff comes while a client is away: K rounds of absence are an interval of K
  and another one begins. That is what is here.
* Rounds without any upload are no steps, and lengthen no interval. An upload that was late or lost
  ends none.
* READING ``weights = "examples"`` minimizes ``sum p_k F_k``, p_k = n_k / n: the step is
  ``sum_S p_k w_k delta_k``. Other weightings, under which an absent client has no p_k, are refused.
* Buffers are averaged over the cohort. Published: ``cutoff`` 50 beside none.

Worked
------
N = 2, F_k = (w - m_k)^2 / 2, m = (1, 3), one step of lr = .1 from x = 0, one client a round: 0, 1,
0, 0, 1. Client 0 has intervals of 1, 2, 1, client 1 of 2, 3 rounds, so that the weights are 1, 1,
1, 1.5, 2 and x = .05, .1975, .237625, .294803125, .5653228125. With ``cutoff = 1`` all weights are
1, and x = .05, .1975, .237625, .27574375, .4119565625.

>>> from motley.algorithms.fedau import FedAU
>>> FedAU(cutoff=50)
FedAU(cutoff=50, server_lr=1.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from typing_extensions import override

from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.algorithms.weights import refuses_but_both
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


def participated(
    history: tuple[int, int, float], now: int, cutoff: int | None
) -> tuple[float, tuple[int, int, float]]:
    """Return the weight of a client that takes part in the round ``now``, from 1, and its history
    after it.

    Parameters
    ----------
    history: the round of its last participation, 0 for none; how many intervals it has; their mean
    length.
    cutoff: rounds of absence that count as an interval; None: there is no such number.
    """
    last, count, mean = history
    away = now - last - 1
    cut = 0 if cutoff is None else away // cutoff
    if cutoff is not None and cut:
        mean = (count * mean + cut * cutoff) / (count + cut)
        away -= cut * cutoff
        count += cut
    weight = mean if count else 1.0
    return weight, (now, count + 1, (count * mean + away + 1) / (count + 1))


@dataclass(frozen=True)
class IntervalWeights(LocalRule):
    """Plain local training; the client multiplies its update by the mean length of its intervals
    between participations, which it keeps."""

    cutoff: int | None = None

    def __post_init__(self) -> None:
        if self.cutoff is not None and self.cutoff < 1:
            raise ConfigError(
                f"got cutoff = {self.cutoff}; expected a number of rounds of at least 1, or leave "
                "it out"
            )

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {
            "last": torch.zeros(1, dtype=torch.int64),
            "intervals": torch.zeros(1, dtype=torch.int64),
            "mean_interval": torch.ones(1, dtype=torch.float64),
        }

    @override
    def download(self, server: ServerState) -> Tensors:
        return {**super().download(server), "steps": server.extra["steps"]}

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        parts, state = super().finish(after, context)
        kept = state or self.initial_state(after)
        history = (int(kept["last"]), int(kept["intervals"]), float(kept["mean_interval"]))
        now = int(context.download["steps"]) + 1
        weight, (last, count, mean) = participated(history, now, self.cutoff)
        return {**parts, "delta": Part(parts["delta"].value * weight, "mean")}, {
            "last": torch.tensor([last]),
            "intervals": torch.tensor([count]),
            "mean_interval": torch.tensor([mean], dtype=torch.float64),
        }

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if reason := refuses_but_both("FedAU's mean over all clients", weights):
            return reason
        if not isinstance(algorithm.server, SumOverAll):
            name = type(algorithm.server).__name__
            return (
                "updates are weighed by intervals between participations, whose number of rounds "
                f"the server rule {name} does not send; leave server out"
            )
        return None


@dataclass(frozen=True)
class SumOverAll(Average):
    """The server step by the sum of the uploads over the weights of all clients; it counts its
    steps."""

    weighs_all: ClassVar[bool] = True

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.local, IntervalWeights):
            return None
        name = type(algorithm.local).__name__
        return (
            f"a sum over all clients is made for updates weighed by intervals; {name} weighs none"
        )

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(model, {"steps": torch.zeros(1, dtype=torch.int64)})

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        accepted, everybody = context.weight_sums
        step = self.lr * (accepted / everybody) * total["delta"]
        return ServerState(step_model(state, step, total), {"steps": state.extra["steps"] + 1})


@dataclass(frozen=True)
class FedAU(Method):
    """Averaging in which clients that come seldom count more: options ``cutoff``, rounds of absence
    that count as an interval (none), and ``server_lr`` (1.0)."""

    paper: ClassVar[Paper] = cite("wang2024fedau")
    cutoff: int | None = None
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        IntervalWeights(self.cutoff)  # checks the options
        SumOverAll(self.server_lr)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=IntervalWeights(self.cutoff), server=SumOverAll(self.server_lr), weights="uniform"
        )
