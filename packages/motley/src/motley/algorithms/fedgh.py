"""FedGH: the server trains a common head on the clients' mean features of each class.

Yi, Wang, Liu, Shi, Yu: *FedGH: Heterogeneous Federated Learning with Generalized Global Header*,
ACM Multimedia 2023 (arXiv:2303.13137).

    client k  starts from its own base and the received head; trains both together;
              sends the mean feature z_kc of each of its classes c; keeps the base
    server    phi <- phi - lr grad mean CE(phi(z_kc), c)
              over batches of all pairs (k, c) of the round, ``epochs`` times

Symbols: the head phi is the last linear layer, a feature its input.
State: each client's base, buffers included; at the server the head. Traffic: the head down; up d
values for each class of the client, and which classes these are. The server sees every client's
mean features. Time: a forward pass over the client's samples beside the steps. It needs every
single upload. Bases may be of different architectures (the experiment's key ``models``) where the
heads have one shape.

Deviations and readings
-----------------------
* READING batches, rate and passes of the server's step are those of HtFLlib (commit 09ec051):
  shuffled batches of ``batch_size`` pairs, plain SGD. In the authors' code (commit 2a6a29d) the
  server steps the optimizer of the client that came last, so that its head stays as it was drawn;
  that form is left out.
* INTERPRETATION-D features are those of the model after local work, in eval mode and without
  augmentation; the head begins as that of the first model, and the last one trained serves a
  client.
* Every pair counts alike, as in both codes; the experiment's ``weights`` are refused.

Worked
------
One class of one client, feature 2, head (0, 0) without a bias, class 0: the softmax is (1/2, 1/2),
the gradient (-1, 1); with lr = .1 the head is (.1, -.1).

>>> from motley.algorithms.fedgh import FedGH
>>> FedGH()
FedGH(lr=0.01, epochs=1, batch_size=10)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather, needs_gather
from motley.algorithms.fedproto import class_features
from motley.algorithms.lg_fedavg import PersonalBase
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Parts,
    Prototypes,
    Server,
    ServerContext,
    ServerState,
    Tensors,
)
from motley.algorithms.personal import head_of, last_linear
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState
from motley.tasks.transfer import to_device


@dataclass(frozen=True)
class FeatureExchange(PersonalBase):
    """Local training from a received head, in which every client keeps its base and uploads the
    mean features of its classes."""

    uploads: ClassVar[frozenset[str]] = frozenset({"sums", "counts"})
    extra_epochs: ClassVar[float] = 1 / 3

    @property
    @override
    def prototypes(self) -> Prototypes:
        return Prototypes(counted=False)

    @override
    def bound(self, layout: Layout) -> LocalRule:
        shapes = [entry.shape for entry in layout if entry.name in head_of(layout, 1)]
        if shapes and [len(shape) for shape in shapes] not in ([2], [2, 1]):
            raise ConfigError(
                "the server trains a head of a weight [C, d] and a bias [C], and the last linear "
                f"layer of this model has parameters of shape {', '.join(map(str, shapes))}; let "
                "it be a plain nn.Linear (no weight_norm)",
                "algorithm",
            )
        return super().bound(layout)

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState]:
        like = after.x.new_zeros(last_linear(self.layout))
        return class_features(like, context, equal=True), self.initial_state(after)

    @override
    def update(self, parts: Parts) -> Tensor:
        return parts["sums"].value.new_zeros(self.layout.size)

    @override
    def ignores_weights(self) -> str | None:
        return "the head is trained on a mean feature of each class and client; leave weights out"

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.server, FedGH):
            return None
        return (
            f"clients upload mean features, and {type(algorithm.server).__name__} steps a model; "
            "leave server out"
        )


@dataclass(frozen=True)
class FedGH(Method, Server):
    """A head that the server trains on mean features of classes, under bases of the clients' own;
    the method is its own server rule.

    Parameters
    ----------
    lr: of SGD at the server.
    epochs: passes over the round's mean features.
    batch_size: mean features of a step.
    """

    paper: ClassVar[Paper] = cite("yi2023fedgh")
    reveals: ClassVar[str] = "which classes a client has, and its mean features of them"
    unlike: ClassVar[str] = "fedgh"
    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    lr: float = 0.01
    epochs: int = 1
    batch_size: int = 10

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected at least 1")
        if not 0 < self.lr < float("inf"):
            raise ConfigError(f"got lr = {self.lr}; expected a positive number")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=FeatureExchange(), aggregator=Gather(), server=self)

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"classes"})

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        return needs_gather("FedGH", algorithm)

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        client, labels = (total["each.counts"] > 0).nonzero(as_tuple=True)
        features = total["each.sums"][client, labels].double()
        outputs = total["each.sums"].shape[1]
        x = state.model.x.double()
        weight = x[: outputs * features.shape[1]].view(outputs, -1).clone()
        bias = x[weight.numel() :].clone()
        for epoch in range(self.epochs):
            order = context.key.fold("head", epoch).numpy().permutation(len(labels))
            for rows in torch.split(to_device(order, x.device), self.batch_size):
                z, y = features[rows], labels[rows]
                logits = z @ weight.T + (bias if len(bias) else 0.0)
                slope = logits.softmax(1)
                slope[torch.arange(len(y)), y] -= 1.0
                slope /= len(y)
                weight -= self.lr * slope.T @ z
                bias -= self.lr * slope.sum(0)[: len(bias)]
        after = torch.cat([weight.flatten(), bias]).to(state.model.x.dtype)
        return ServerState(dataclasses.replace(state.model, x=after), state.extra)
