"""FedMD: clients with models of their own learn from the mean of their class scores on public
samples.

Li, Wang: *FedMD: Heterogenous Federated Learning via Model Distillation*, NeurIPS 2019 workshop on
Federated Learning (arXiv:1910.03581), Algorithm 1.

    communicate   client k computes its class scores f_k(u), before the softmax, on the round's n
                  public samples u
    aggregate     f~(u) = 1/M sum_k f_k(u)                over the round's M clients
    digest        client k trains on the public samples towards f~
    revisit       client k trains on its own samples

Symbols: the distance that digest minimizes is the mean of ``|f_k(u) - f~(u)|`` over samples and
classes, by Adam, as in the authors' code (commit 226c6bc); the text leaves it open.

State: each client's model after digest, from which it goes on, and the one after revisit, with
which it is examined. Needs: unlabelled public samples. Traffic: n C scores each way, and no model.
The server sees every client's scores. Time: a forward and ``epochs`` training passes over the
round's public samples beside the local work. It needs every single upload.

Deviations and readings
-----------------------
* The published order, begun elsewhere: a round is revisit (the local work), communicate, aggregate,
  digest; so a client is examined after revisit, as in the code.
* Transfer learning before round 1, on public *labels* and then on private ones, is left out: public
  samples have no labels here. READING: more local work in the first rounds takes its place.
* READING: the mean is over the clients of the round, where the text has all clients in each.
* INTERPRETATION-D: Adam begins anew in each round (in the code a client keeps it); batches run
  through a permutation, the last short one too; one client alone digests nothing; scores that are
  not finite do not count, and a client whose own are not keeps what it had.
* Defaults of the authors' CIFAR script: 5,000 public samples drawn anew each round, batches of 256,
  one epoch, Adam 1e-3; there local work is 4 epochs of Adam 1e-3 on batches of 5.

Worked
------
Scores (2, 0) and (0, 1) on one sample: f~ = (1, 1/2); the gradient of the first client's scores is
(1/2, -1/2), and Adam's first step of .1 moves them to (1.9, .1).

>>> from motley.algorithms.fedmd import FedMD
>>> FedMD().samples
5000
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather, needs_gather
from motley.algorithms.flat_adam import FlatAdam
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    ExtraExchange,
    JobContext,
    Method,
    Parts,
    Server,
    ServerContext,
    ServerState,
    Tensors,
)
from motley.algorithms.rhfl import PersonalModel
from motley.core.arrays import Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState
from motley.tasks.transfer import to_device

_VECTORS = ("x", "buffers", "counters")


@dataclass(frozen=True)
class DigestedModel(PersonalModel):
    """Every client trains and keeps its own model, and beside it the one that it is examined with:
    that after training on its own samples."""

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.server, FedMD):
            return None
        return (
            "clients upload no updates, of which "
            f"{type(algorithm.server).__name__} makes its step; leave server out"
        )

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        own = super().initial_state(state)
        return {**own, **{f"examined.{name}": value for name, value in own.items()}}

    @override
    def examined(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        if client_state is None:
            return self.start(download, client_state)
        return ModelState(**{name: client_state[f"examined.{name}"] for name in _VECTORS})

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState]:
        return {}, self.initial_state(after)

    @override
    def ignores_weights(self) -> str | None:
        return "the consensus is the plain mean of the clients' scores; leave weights out"


def distance(target: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function ``scores -> mean |scores - target|`` of ``[B, C]``."""
    return lambda scores: (scores - target).abs().mean()


@dataclass(frozen=True)
class FedMD(Method, Server):
    """Models of the clients' own, drawn towards the mean of their class scores on public samples;
    the method is its own server rule.

    Parameters
    ----------
    samples: n, public samples of a round, at most.
    epochs: passes over them towards the mean.
    batch_size, lr: of Adam in these passes.
    """

    paper: ClassVar[Paper] = cite("li2019fedmd")
    reveals: ClassVar[str] = "a client's class scores on public samples"
    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    unlike: ClassVar[str] = "fedmd"
    samples: int = 5000
    epochs: int = 1
    batch_size: int = 256
    lr: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("samples", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected at least 1")
        if not 0 < self.lr < float("inf"):
            raise ConfigError(f"got lr = {self.lr}; expected a positive number")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=DigestedModel(), aggregator=Gather(), server=self, weights="uniform"
        )

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"public", "classes"})

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        return needs_gather("FedMD", algorithm)

    @override
    def extra_exchange(self, public: int, outputs: int) -> ExtraExchange:
        count = min(public, self.samples)
        batches = math.ceil(count / self.batch_size)
        return ExtraExchange(
            up=count * outputs, down=count * outputs, batches=(1.0 + 3.0 * self.epochs) * batches
        )

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        return state

    @override
    def update_with_clients(
        self,
        state: ServerState,
        total: Tensors,
        client_states: Mapping[int, ClientState],
        context: ServerContext,
    ) -> tuple[ServerState, Mapping[int, ClientState]]:
        """Let the round's clients digest the mean of their scores."""
        network = context.network
        public = context.public
        if network is None or public is None:
            raise ConfigError("FedMD was given no network or no public samples")
        order = context.key.fold("public").numpy().permutation(len(public))[: self.samples]
        inputs = public[to_device(order, public.device)]
        models = {
            client: context.own_model(client, client_states[client])
            for client in total["each.client"].tolist()
        }
        scores = {client: network.outputs(model, inputs) for client, model in models.items()}
        heard = {client: value for client, value in scores.items() if bool(value.isfinite().all())}
        if len(heard) < 2:
            return state, client_states
        consensus = torch.stack([value.double() for value in heard.values()]).mean(0)
        digested = {
            client: {
                **client_states[client],
                **self._digested(models[client], inputs, consensus, context, client=client),
            }
            for client in heard
        }
        return state, digested

    def _digested(
        self,
        model: ModelState,
        inputs: Tensor,
        consensus: Tensor,
        context: ServerContext,
        client: int,
    ) -> ClientState:
        """Return a client's model after its passes over the public samples."""
        network = context.network
        if network is None:
            raise ConfigError("FedMD was given no network")
        adam = FlatAdam.fresh(model.x)
        key = context.key.fold("digest", client)
        for step, rows in enumerate(self._batches(key, len(inputs))):
            at = to_device(rows, inputs.device)
            slope = network.loss_gradient(
                model,
                inputs[at],
                distance(consensus[at].to(inputs.dtype)),
                key.fold("dropout", step),
            )
            x, adam = adam.step(model.x, slope.gradient.to(model.x.device), self.lr)
            model = dataclasses.replace(slope.state.to(x.device), x=x)
        return {"x": model.x, "buffers": model.buffers, "counters": model.counters}

    def _batches(self, key: Key, count: int) -> list[Ints]:
        """Return the rows of each step."""
        return [
            rows
            for epoch in range(self.epochs)
            for order in [key.fold("epoch", epoch).numpy().permutation(count)]
            for rows in np.split(order, range(self.batch_size, count, self.batch_size))
        ]
