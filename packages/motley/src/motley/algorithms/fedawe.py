"""FedAWE: a client that was away goes on from the model that it left with, and multiplies what it
learns by the rounds that it missed.

Xiang, Ioannidis, Yeh, Joe-Wong, Su: *Efficient Federated Learning against Heterogeneous and
Non-stationary Client Unavailability*, NeurIPS 2024 (arXiv:2409.17446), Algorithm 1.

    client k in S of round t, which last took part in round tau (-1: never; t, tau from 0):
        w <- x_k, its own model;   local steps;   G = x_k - w                      lines 5 to 10
        x'_k = x_k - server_lr (t - tau) G                                         line 11
    server:   x <- (1/M) sum_S x'_k                                                line 15
    all of S: x_k <- x;   the others' stay                                         lines 16 to 20

Symbols: M clients in S; x_k begins with the initial model. The number of updates by k, each as
often as it is multiplied, is the number of rounds at each of its participations (Proposition 1), so
that none counts less for being away; clients of a round mix what the others had brought (Equation
4), without ever being sent the newest model at its beginning. With everybody in each round it is
uniform averaging.

State: at each client its model and the round of its last participation; at the server the number of
its steps. Traffic: as averaging, the model down after a round in place of before it; only a client
that comes for the first time receives one before its round, too.

Deviations and readings
-----------------------
* The upload is ``x'_k - x``, x the server's model of the round, so that adding their mean gives the
  mean of x'_k. Under asynchronous modes it is added to a newer one.
* Rounds without any upload are no steps: nobody learned in them. An upload that was late or lost
  leaves its client the model that it had.
* READING ``weights = "examples"`` takes ``sum_S n_k x'_k / sum_S n``, whose mixing has n_k as its
  fixed distribution, where the paper's is uniform: it minimises ``sum p_k F_k``. Other weightings
  are refused.
* Buffers are of the own model, too. Probes measure the server's model, which is the one examined.
* The multiplied steps grow with absence: in the paper t - tau has mean at most 1 / delta, delta the
  least chance to come. Its code has no bound either.
* Published: server_lr 1, 10 steps of lr .1 / sqrt(t / 10 + 1).

Worked
------
F_k = (w - m_k)^2 / 2, m = (1, 3), one step of lr = .1 from x = 0, rounds with clients 0, 1, 0, 0,
both, 1. x = .1; .6 (from 0, twice .3); .28 (from .1, twice .09); .352; client 0 from .352 .4168,
client 1 from .6, three times .24, 1.32: x = .8684; 1.08156.

>>> from motley.algorithms.fedawe import FedAWE
>>> FedAWE()
FedAWE(server_lr=1.0)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from typing_extensions import override

from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    ExtraExchange,
    JobContext,
    LocalRule,
    Method,
    Part,
    Phase,
    Server,
    ServerContext,
    ServerState,
    Tensors,
)
from motley.algorithms.weights import refuses_but_both
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

__all__ = ["EchoedTraining", "FedAWE", "PostponedMulticast"]

MODEL = ("x", "buffers", "counters")


@dataclass(frozen=True)
class EchoedTraining(LocalRule):
    """Plain local training from the model after the client's last participation, which it keeps;
    the update counts as often as rounds have passed since."""

    server_lr: float = 1.0

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        own = {name: getattr(state, name) for name in MODEL}
        return {**own, "last": torch.zeros(1, dtype=torch.int64)}

    @override
    def download(self, server: ServerState) -> Tensors:
        return {**super().download(server), "steps": server.extra["steps"]}

    @override
    def values_down(self, download: Tensors, client_state: ClientState | None) -> int:
        if client_state is not None and bool(client_state["last"]):
            return 2
        return sum(tensor.numel() * tensor.element_size() // 4 for tensor in download.values())

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        own = context.client_state
        return (Phase(start=None if own is None else ModelState(*(own[name] for name in MODEL))),)

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        parts, state = super().finish(after, context)
        own = self.initial_state(ModelState(context.x, after.buffers, after.counters))
        own = own if state is None else state
        now = context.download["steps"] + 1
        echo = self.server_lr * int(now - own["last"].to(now.device))
        sent = own["x"].to(after.x) - context.x + echo * (after.x - own["x"].to(after.x))
        return {**parts, "delta": Part(sent, "mean")}, {**own, "last": now.clone()}

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if reason := refuses_but_both("FedAWE's mixing of models", weights):
            return reason
        if not isinstance(algorithm.server, PostponedMulticast):
            name = type(algorithm.server).__name__
            return (
                "clients go on from the model after their round, which the server rule "
                f"{name} does not send them; leave server out"
            )
        return None


@dataclass(frozen=True)
class PostponedMulticast(Average):
    """The plain server step, after which it sends the model to the clients of the round; ``layout``
    is set by :meth:`bound`."""

    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @override
    def bound(self, layout: Layout, draw: Callable[[int], ModelState]) -> Server:
        return dataclasses.replace(self, layout=layout)

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.local, EchoedTraining):
            return None
        return f"{type(algorithm.local).__name__} does not go on from a model sent after a round"

    @override
    def extra_exchange(self, public: int, outputs: int) -> ExtraExchange:
        buffers = sum(entry.size for entry in self.layout.buffers)
        counters = 2 * sum(entry.size for entry in self.layout.counters)
        return ExtraExchange(down=self.layout.size + buffers + counters)

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(model, {"steps": torch.zeros(1, dtype=torch.int64)})

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        model = super().update(state, total, context).model
        return ServerState(model, {"steps": state.extra["steps"] + 1})

    @override
    def update_with_clients(
        self,
        state: ServerState,
        total: Tensors,
        client_states: Mapping[int, ClientState],
        context: ServerContext,
    ) -> tuple[ServerState, Mapping[int, ClientState]]:
        after = self.update(state, total, context)
        sent = {name: getattr(after.model, name) for name in MODEL}
        return after, {client: {**own, **sent} for client, own in client_states.items()}


@dataclass(frozen=True)
class FedAWE(Method):
    """Averaging of models that clients go on from where they left, their updates multiplied by the
    rounds since: option ``server_lr`` (1.0), of the updates."""

    paper: ClassVar[Paper] = cite("xiang2024fedawe")
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        Average(self.server_lr)  # checks the option

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=EchoedTraining(self.server_lr), server=PostponedMulticast(), weights="uniform"
        )
