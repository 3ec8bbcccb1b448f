"""FedAWE: a client that was away goes on from the model that it left with, and multiplies what it
learns by the rounds that it missed.

Xiang, Ioannidis, Yeh, Joe-Wong, Su: *Efficient Federated Learning against Heterogeneous and
Non-stationary Client Unavailability*, NeurIPS 2024 (arXiv:2409.17446), Algorithm 1.

    client k in S of round t, which last took part in round tau (-1: never; t, tau from 0):
        w <- x_k, its own model;   local steps;   G = x_k - w                      lines 5 to 10
        x'_k = x_k - server_lr (t - tau) G                                         line 11
    server:   x <- (1/M) sum_S x'_k                                                line 15
    all of S: x_k <- x;   the others' stay                                         lines 16 to 20
    examined: the mean of all clients' x_k, those that never came with the initial model

Symbols: M clients in S; x_k begins with the initial model. The number of updates by k, each as
often as it is multiplied, is the number of rounds at each of its participations (Proposition 1), so
that none counts less for being away; clients of a round mix what the others had brought (Equation
4), without ever being sent the newest model at its beginning. With everybody in each round it is
uniform averaging.

State: at each client its model and the round of its last participation; at the server the number of
its steps, and the mean of the clients' models, for which it has to know who holds which. Traffic:
as averaging, the model down after a round in place of before it; only a client that comes for the
first time receives one before its round, too.

Deviations and readings
-----------------------
* The upload is ``x'_k - x``, x the server's model of the round, so that adding their mean gives the
  mean of x'_k. Under asynchronous modes it is added to a newer one.
* Rounds without any upload are no steps: nobody learned in them. An upload that was late or lost
  leaves its client the model that it had.
* READING ``weights = "examples"`` takes ``sum_S n_k x'_k / sum_S n``, whose mixing has n_k as its
  fixed distribution, where the paper's is uniform: it minimizes ``sum p_k F_k``. Other weightings
  are refused.
* READING the mean of all models, of which the text's convergence speaks, is what the authors' code
  (commit e0b8538) examines, and so it is here, also what a new client receives. It is the plain
  mean under either ``weights``; its buffers, and what probes measure, are the server's.
* The multiplied steps grow with absence: in the paper t - tau has mean at most 1 / delta, delta the
  least chance to come in any round. Where clients are away for good parts of a run, or come for the
  first time late in it, one update may count tens of times. The code scales the mean multiplied
  update of a round to a norm of at most .5, which the text does not: ``clip``, here before
  ``server_lr`` as there, and under uniform weights alone.
* Published: server_lr 1, 10 steps of lr .1 / sqrt(t / 10 + 1).

Worked
------
F_k = (w - m_k)^2 / 2, m = (1, 3), one step of lr = .1 from x = 0, rounds with clients 0, 1, 0, 0,
both, 1. x = .1; .6 (from 0, twice .3); .28 (from .1, twice .09); .352; client 0 from .352 .4168,
client 1 from .6, three times .24, 1.32: x = .8684; 1.08156. Examined are .05; .35; .44; .476;
.8684; .97498.

>>> from motley.algorithms.fedawe import FedAWE
>>> FedAWE(clip=0.5)
FedAWE(server_lr=1.0, clip=0.5)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from typing_extensions import override

from motley.algorithms.fedavg import Average
from motley.algorithms.flat_adam import clipped
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
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

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
    """The plain server step, after which it sends the model to the clients of the round; the mean
    of all clients' models is examined.

    Parameters
    ----------
    clip: the most that the mean of a round's multiplied updates may be long; None: no bound.
    rate: FedAWE's ``server_lr``, by which clients have multiplied what they sent.
    layout: set by :meth:`bound`.
    """

    clip: float | None = None
    rate: float = 1.0
    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @override
    def bound(self, layout: Layout, draw: Callable[[int], ModelState]) -> Server:
        return dataclasses.replace(self, layout=layout)

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if not isinstance(algorithm.local, EchoedTraining):
            return (
                f"{type(algorithm.local).__name__} does not go on from a model sent after a round"
            )
        if self.clip is not None and weights != "uniform":
            return (
                f'FedAWE clips a plain mean of updates, got weights = "{weights}"; leave clip out'
            )
        return None

    @override
    def extra_exchange(self, public: int, outputs: int) -> ExtraExchange:
        buffers = sum(entry.size for entry in self.layout.buffers)
        counters = 2 * sum(entry.size for entry in self.layout.counters)
        return ExtraExchange(down=self.layout.size + buffers + counters)

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(model, {"steps": torch.zeros(1, dtype=torch.int64), "mean": model.x})

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        model = super().update(state, total, context).model
        return ServerState(model, {**state.extra, "steps": state.extra["steps"] + 1})

    @override
    def update_with_clients(
        self,
        state: ServerState,
        total: Tensors,
        client_states: Mapping[int, ClientState],
        context: ServerContext,
    ) -> tuple[ServerState, Mapping[int, ClientState]]:
        x = state.model.x.double()
        held = torch.stack([own["x"].to(x) for own in client_states.values()])
        if self.clip is not None:
            brought = held.mean(0) - x
            echo = clipped(total["delta"] - brought, self.rate * self.clip)
            total = {**total, "delta": brought + echo}
        after = self.update(state, total, context)
        sent = {name: getattr(after.model, name) for name in MODEL}
        moved = (after.model.x.double() - held).sum(0) / context.population
        mean = (state.extra["mean"].double() + moved).to(after.model.x.dtype)
        states = {client: {**own, **sent} for client, own in client_states.items()}
        return ServerState(after.model, {**after.extra, "mean": mean}), states

    @override
    def examined(self, state: ServerState) -> ServerState:
        return ServerState(dataclasses.replace(state.model, x=state.extra["mean"]), state.extra)


@dataclass(frozen=True)
class FedAWE(Method):
    """Averaging of models that clients go on from where they left, their updates multiplied by the
    rounds since: options ``server_lr`` (1.0), of the updates, and ``clip``, the most that their
    mean may be long (None: no bound; in the authors' code 0.5)."""

    paper: ClassVar[Paper] = cite("xiang2024fedawe")
    server_lr: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        Average(self.server_lr)  # checks the option
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise ConfigError(f"got clip = {self.clip}; expected a positive number")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=EchoedTraining(self.server_lr),
            server=PostponedMulticast(clip=self.clip, rate=self.server_lr),
            weights="uniform",
        )
