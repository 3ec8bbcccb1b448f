"""IFCA: the server keeps k models, every client trains the one that fits it best, and each model is
averaged over its clients.

Ghosh, Chung, Yin, Ramchandran: *An Efficient Framework for Clustered Federated Learning*, NeurIPS
2020 (arXiv:2006.04088).

    server    sends x_1 .. x_k
    client i  takes j = argmin_j F_i(x_j), the first of equals;  trains x_j;
              sends delta_i = w - x_j, and j
    server    S_j the clients that took j:
              models     x_j <- x_j + mean of delta_i over S_j
              gradients  x_j <- x_j + (sum of delta_i over S_j) / M, M all participants

Symbols: F_i the mean loss on all training samples of client i, in eval mode and without
augmentation; k models, numbered from 0 in code and tables. With ``shared_base`` the models differ
in the head (the last linear layer) alone, and the base is averaged over all participants.
State: k models at the server, nothing with the clients. Cost: k forward passes over the samples of
each participant; k models (a model and k - 1 heads) down, one model and one whole number up. The
server learns j of every participant, under secure aggregation too. A client is probed and examined
with the model that its training samples choose then; there is no common model.

Deviations and readings
-----------------------
* The models are k independent draws; where they would begin alike, the run is refused. A model that
  nobody took stays bit for bit. One that nobody took in ten rounds is warned of: the paper restarts
  after an unlucky draw (INTERPRETATION-D).
* ``gradients`` with several local steps averages their sum, as if it were one gradient
  (INTERPRETATION-D).
* Any weights, by default ``uniform``, as in the authors' code.
* With k = 1 it is FedAvg, bit for bit.
* A model whose loss is not a number is never taken. An initial file (``init``) is refused, since
  the models must be independent draws. An unlucky draw, after which everybody takes one model, is
  rare where groups contradict each other on two classes, and common with ten, where untrained
  models differ most in how sure they are; another seed is the remedy.
* Compressors work on the update of the model that was taken, without error feedback, whose memory
  would mix models. ``buffered`` rounds count an upload for the model of its number;
  ``asynchronous`` rounds, another aggregator and another server are refused.
* The table ``rounds`` has the sizes of the clusters among the accepted clients (``cluster.0``,
  ``cluster.1``, ...). Scopes are ``client`` and ``mean``; ``model.safetensors`` and ``run.predict``
  are model 0, ``run.clients()`` has each client's.

Worked
------
Losses (w - c)^2 / 2 with c = 1, 2, 9, models 0 and 10, one step of .1: choices 0, 0, 1; local
models .1, .2, 9.9; new models .15 and 9.9, with ``gradients`` .1 and 9.966667. Shared base: toy B
(docs/methods/algorithms.md#personalisation) with heads 2 and 1: y = 4 takes head 2, which becomes
2.2 with b = 1.4; y = 1 takes head 1, where nothing moves; new base 1.2.

>>> from motley.algorithms.ifca import IFCA
>>> IFCA(k=4)
IFCA(k=4, average='models', shared_base=False)
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.cluster_means import ClusterMeans
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    Choice,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    Parts,
    PersonalRule,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.algorithms.personal import head_of, masks
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

EMPTY_ROUNDS = 10
"""Server steps in a row without a client after which a model is warned of."""


@dataclass(frozen=True)
class _Clustered:
    """The k models in one server state: the first is its ``model``, ``others.*`` hold the clusters'
    own entries of the rest."""

    k: int = 2
    shared_base: bool = False
    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @cached_property
    def own(self) -> Mapping[str, Tensor]:
        """Bool masks of the entries that each cluster has for itself, in a model's three
        vectors."""
        entries = (*self.layout, *self.layout.buffers, *self.layout.counters)
        return masks(
            self.layout,
            head_of(self.layout, 1) if self.shared_base else [entry.name for entry in entries],
        )

    def model_of(self, tensors: Tensors, first: ModelState, j: int) -> ModelState:
        """Return model ``j``; ``tensors``: hold ``others.*``."""
        vectors = {name: getattr(first, name).clone() for name in self.own}
        for name, own in self.own.items() if j else ():
            vectors[name][own.to(vectors[name].device)] = tensors[f"others.{name}"][j - 1]
        return ModelState(**vectors)


@dataclass(frozen=True)
class BestOfModels(_Clustered, PersonalRule):
    """Plain local training of the received model, of ``k``, that fits the client's samples best."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "cluster"})
    shared: ClassVar[bool] = False

    starts_own: ClassVar[bool] = True

    @property
    @override
    def personal(self) -> PersonalRule | None:
        return self if self.k > 1 else None

    @property
    @override
    def head_layers(self) -> int:
        return 1 if self.shared_base else 0

    @property
    @override
    def choice(self) -> Choice | None:
        return Choice(self.k) if self.k > 1 else None

    @property
    @override
    def extra_epochs(self) -> float:
        return self.k / 3 if self.k > 1 else 0.0

    @override
    def bound(self, layout: Layout) -> LocalRule:
        if self.shared_base and not head_of(layout, 1):
            raise ConfigError(
                "the model has no linear layer, so there is no head for each cluster; leave it out",
                "algorithm.shared_base",
            )
        return dataclasses.replace(self, layout=layout)

    @override
    def download(self, server: ServerState) -> Tensors:
        return {
            **super().download(server),
            **{f"others.{name}": server.extra[f"others.{name}"] for name in self.own},
        }

    @override
    def start(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        choice = (client_state or {}).get("choice")
        return self.model_of(
            download, super().start(download, None), 0 if choice is None else int(choice)
        )

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        choice = (context.client_state or {}).get("choice", torch.zeros(1, dtype=torch.int64))
        return {**super().finish(after, context)[0], "cluster": Part(choice, "sum")}, None

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        aggregator = algorithm.aggregator
        server = algorithm.server
        if not isinstance(aggregator, ClusterMeans) or not isinstance(server, ClusterAverage):
            return (
                f"IFCA's server keeps {self.k} models and averages each over its own clients; "
                "leave aggregator and server out"
            )
        if weights in ("horvitz_thompson", "selector") and aggregator.average == "models":
            reason = (
                f"IFCA divides by the weights of a cluster's clients, and {weights!r} by "
                "something else"
            )
            return f'{reason}; use "examples" or "uniform", or average = "gradients"'
        return None


@dataclass(frozen=True)
class ClusterAverage(_Clustered, Server):
    """The server step of each of k models: ``x_j <- x_j + total of cluster j``; a shared base steps
    by everybody's."""

    draw: Callable[[int], ModelState] | None = None

    @override
    def bound(self, layout: Layout, draw: Callable[[int], ModelState]) -> Server:
        return dataclasses.replace(self, layout=layout, draw=draw)

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        models = [model, *(self.draw(j) for j in range(1, self.k) if self.draw is not None)]
        vectors = {
            name: torch.stack([getattr(cluster_model, name)[own] for cluster_model in models])
            for name, own in self.own.items()
        }
        if any(torch.equal(x, vectors["x"][0]) for x in vectors["x"][1:]):
            reason = (
                f"the {self.k} models of IFCA would begin alike, and equal models never separate"
            )
            raise ConfigError(
                f"{reason}; leave init out, and use a model whose weights are drawn", "algorithm"
            )
        none = torch.zeros(self.k, dtype=torch.int64)
        return ServerState(
            model,
            {**{f"others.{n}": v[1:] for n, v in vectors.items()}, "sizes": none, "empty": none},
        )

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        everybody = step_model(state, total["delta"], total)
        after = {
            name: torch.where(own, getattr(state.model, name), getattr(everybody, name))
            for name, own in self.own.items()
        }
        sizes = total["sizes"]
        extra = {name: value.clone() for name, value in state.extra.items()}
        for j in sizes.nonzero().flatten().tolist():
            mean = {
                name: total[f"{name}.{j}"]
                for name in ("delta", "buffers", "counters")
                if f"{name}.{j}" in total
            }
            moved = step_model(
                ServerState(self.model_of(state.extra, state.model, j)), mean["delta"], mean
            )
            for name, own in self.own.items():
                if j:
                    extra[f"others.{name}"][j - 1] = getattr(moved, name)[own]
                else:
                    after[name] = torch.where(own, getattr(moved, name), after[name])
        empty = torch.where(sizes > 0, 0, state.extra["empty"] + 1)
        for j in (empty == EMPTY_ROUNDS).nonzero().flatten().tolist():
            message = f"no client took model {j} of IFCA in {EMPTY_ROUNDS} rounds"
            warnings.warn(
                f"{message}; after an unlucky draw all go to one model: try another seed or a "
                "smaller k",
                stacklevel=2,
            )
        return ServerState(ModelState(**after), {**extra, "sizes": sizes, "empty": empty})

    @override
    def notes(self, state: ServerState) -> Mapping[str, float]:
        return {f"cluster.{j}": float(size) for j, size in enumerate(state.extra["sizes"].tolist())}


@dataclass(frozen=True)
class IFCA(Method):
    """Clusters of clients with a model each: every client trains the one of ``k`` (2) that has the
    lowest loss on its samples.

    Parameters
    ----------
    k: number of models.
    average: ``models`` over a cluster's clients, or ``gradients`` over all participants.
    shared_base: whether the models differ in their heads alone.
    """

    paper: ClassVar[Paper] = cite("ghosh2020efficient")
    reveals: ClassVar[str] = "which cluster a client is in"
    k: int = 2
    average: Literal["models", "gradients"] = "models"
    shared_base: bool = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"got k = {self.k}; expected a whole number of at least 1")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=BestOfModels(self.k, self.shared_base),
            aggregator=ClusterMeans(self.k, self.average),
            server=ClusterAverage(self.k, self.shared_base),
            weights="uniform",
        )
