"""FedProto: clients keep their models and exchange prototypes, the mean features of their classes.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang: *FedProto: Federated Prototype Learning across Heterogeneous
Clients*, AAAI 2022 (arXiv:2105.00243).

    client k  minimizes  l + lam mean_j (z_j - P_yj)^2
              of a sample of class y with the features z_j, j = 1, ..., d;
              sends, of each class c among its samples, the sum of the features and the count
              n_kc;  keeps its model
    server    P_c <- sum_k n_kc mean_kc / sum_k n_kc
              over the clients of the round that have class c

Symbols: z the input of the last linear layer, P_c the prototype of class c ``[d]``, mean_kc the
mean feature of class c at client k.
State: every client's whole model; at the server the prototypes. Traffic: C x d values down; up d
values and a count for each class of the client, and which classes these are: the server learns
them. Cost: a forward pass over the samples beside the steps.

Deviations and readings
-----------------------
* READING the squared error is a mean over the d features, so lam acts as lam / d on their sum.
* INTERPRETATION-D features are those of the model after local work, in eval mode and without
  augmentation.
* Prototypes are weighed by class counts; ``prototype_weights = "uniform"`` sends no counts.
* INTERPRETATION-D a class that nobody in a round has keeps its prototype; one that nobody had yet
  has zeros, which pull nothing.
* Clients may hold models of different architectures (the experiment's key ``models``) whose last
  linear layers take as many features.
* With ``lam = 0`` the models are those of local training, bit for bit.
* Under secure aggregation the server learns the classes of a client where a class has one client.
  Under Flower all C x d values travel up, zeros for the classes that a client lacks.
* A client is examined with its own model (scopes ``client``, ``mean``) and by the nearest prototype
  (``prototype_client``, ``prototype_mean``; their ``loss`` is the mean squared distance to the
  right prototype). The experiment's ``weights`` are refused.

Worked
------
Toy B's first client (docs/methods/algorithms.md#personalisation), feature b, P = 3, lam = 1: the
gradient of b is -4 + 2 (1 - 3) = -8; b = 1.8, h = 2.2.

>>> from motley.algorithms.fedproto import FedProto
>>> FedProto().lam
1.0
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.feature_loss import FeatureLoss
from motley.algorithms.local_only import WholeModel
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    JobContext,
    LocalRule,
    MeasuredFeatures,
    Method,
    Prototypes,
    Server,
    ServerContext,
    ServerState,
    Tensors,
)
from motley.algorithms.personal import last_linear
from motley.algorithms.upload import Part, Parts
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState, Targets


@dataclass(frozen=True)
class PrototypeLoss(FeatureLoss):
    """A loss plus ``lam`` times the mean squared distance of a sample's feature from the prototype
    of its class, if it has one."""

    kind: ClassVar[Targets | None] = "classes"
    lam: float = 1.0

    @override
    def prepare(
        self,
        context: JobContext,
        forward: Callable[[Tensor], Tensor],
        inputs: Tensor,
        targets: Tensor,
    ) -> Tensors:
        prepared = super().prepare(context, forward, inputs, targets)
        prototypes = context.download.get("prototypes")
        # none where models are fine-tuned
        return prepared if prototypes is None else {**prepared, "prototype": prototypes[targets]}

    @override
    def compare(
        self,
        outputs: Tensor,
        targets: Tensor,
        extra: Tensors,
        features: Tensor,
        frozen_features: tuple[Tensor, ...],
    ) -> Tensor:
        loss = self.loss(outputs, targets, extra)
        near = extra.get("prototype")
        if near is None or not self.lam:
            return loss
        return loss + self.lam * (features - near).square().mean(-1) * near.any(-1)


def prototype_shape(layout: Layout) -> tuple[int, int]:
    """Return the number of classes and the length of a prototype."""
    outputs, width = last_linear(layout)
    return max(outputs, 2), width  # one output tells two classes apart


def class_sums(like: Tensor, measured: MeasuredFeatures | None) -> tuple[Tensor, Tensor]:
    """Return the sums of features by class ``[C, d]`` and the class counts ``[C]``, float64; zeros
    of no features.

    ``like``: of the shape ``[C, d]``."""
    sums = torch.zeros_like(like, dtype=torch.float64)
    counts = sums.new_zeros(len(sums))
    if measured is not None:
        ones = torch.ones_like(measured.targets, dtype=torch.float64)
        sums.index_add_(0, measured.targets, measured.features.double())
        counts.index_add_(0, measured.targets, ones)
    return sums, counts


def class_features(like: Tensor, context: JobContext, equal: bool) -> dict[str, Part]:
    """Return the sums of a client's features by class and the class counts as an upload.

    Parameters
    ----------
    like: of the shape ``[C, d]`` and the type of the sums.
    equal: mean features in place of sums, and in place of counts which classes these are.
    """
    values = context.values
    measured = None
    if "features" in values:
        measured = MeasuredFeatures(values["features"], values["targets"])
    sums, counts = class_sums(like, measured)
    if equal:
        sums = sums / counts.clamp(min=1).unsqueeze(1)
        counts = counts > 0
    sent = {
        "sums": sums.to(like.dtype),
        "counts": counts.to(torch.int64 if equal else like.dtype),
    }
    return {name: Part(value, "sum") for name, value in sent.items()}


@dataclass(frozen=True)
class PrototypeExchange(WholeModel):
    """Local training in which every client keeps its model and uploads the sums of its features by
    class, with the class counts;
    ``equal``: mean features, and which classes these are."""

    uploads: ClassVar[frozenset[str]] = frozenset({"sums", "counts"})
    extra_epochs: ClassVar[float] = 1 / 3
    equal: bool = False

    @property
    @override
    def prototypes(self) -> Prototypes:
        return Prototypes(counted=not self.equal)

    @override
    def bound(self, layout: Layout) -> LocalRule:
        if not any(entry.linear for entry in layout):
            raise ConfigError(
                "prototypes are inputs of the last linear layer, and this model has none",
                "algorithm",
            )
        return dataclasses.replace(self, layout=layout)

    @override
    def download(self, server: ServerState) -> Tensors:
        none = server.model.x.new_zeros(prototype_shape(self.layout))
        return {**super().download(server), "prototypes": server.extra.get("prototypes", none)}

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Mapping[str, Part], Tensors]:
        parts = class_features(context.download["prototypes"], context, self.equal)
        return parts, self.initial_state(after)

    @override
    def update(self, parts: Parts) -> Tensor:
        return parts["sums"].value.new_zeros(self.layout.size)

    @override
    def ignores_weights(self) -> str | None:
        return (
            "prototypes are weighed by samples of their class; leave weights out, or write "
            'algorithm = { name = "fedproto", prototype_weights = "uniform" }'
        )

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        reason = (
            f"clients upload prototypes, and {type(algorithm.server).__name__} steps a model; "
            "leave server out"
        )
        return None if isinstance(algorithm.server, PrototypeMean) else reason


def next_prototypes(state: ServerState, total: Tensors, name: str = "prototypes") -> Tensor:
    """Return the mean features of the classes that a round's clients have, and of the others those
    that the server keeps under ``name``, zeros where it has none ``[C, d]``."""
    counts = total["counts"].unsqueeze(1)
    old = state.extra.get(name, torch.zeros_like(total["sums"])).double()
    return torch.where(counts > 0, total["sums"] / counts, old).to(state.model.x.dtype)


@dataclass(frozen=True)
class PrototypeMean(Server):
    """The mean of the clients' prototypes: of each class over the clients that have it."""

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        return ServerState(state.model, {"prototypes": next_prototypes(state, total)})


@dataclass(frozen=True)
class FedProto(Method):
    """Own models for all clients, pulled together by mean features of classes: options ``lam`` (1)
    of the pull, and ``prototype_weights``: by class counts (``counts``) or ``uniform``."""

    paper: ClassVar[Paper] = cite("tan2022fedproto")
    reveals: ClassVar[str] = "which classes a client has"
    unlike: ClassVar[str] = "fedproto"
    lam: float = 1.0
    prototype_weights: Literal["counts", "uniform"] = "counts"

    def __post_init__(self) -> None:
        if not 0 <= self.lam < float("inf"):
            raise ConfigError(f"got lam = {self.lam}; expected a finite number of at least 0")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        exchange = PrototypeExchange(equal=self.prototype_weights == "uniform")
        return plain.replace(
            loss=PrototypeLoss(plain.loss, self.lam), local=exchange, server=PrototypeMean()
        )
