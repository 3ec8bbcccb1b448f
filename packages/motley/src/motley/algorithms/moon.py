"""MOON: a contrastive loss keeps the local model's features near those of the global model.

Li, He, Song: *Model-Contrastive Federated Learning*, CVPR 2021 (arXiv:2103.16257).

Of a sample, with features z of the model in training, z_glob of the received model and z_prev of
the client's own model at the end of its last participation (both frozen, in eval mode with their
own BatchNorm statistics, on the same augmented inputs):

    L = l(outputs, y) + mu * -log( e^(s+/T) / (e^(s+/T) + e^(s-/T)) ),
    s+ = cos(z, z_glob),   s- = cos(z, z_prev)

Symbols: l the loss of the task (or the one that the experiment names); T temperature. State: with
each client that took part, its local model before averaging. Cost: two more forward passes a step,
charged as two thirds of one; traffic as FedAvg.

Deviations and readings
-----------------------
* READING z is the input of the model's last linear layer. The authors put a projection head between
  features and classifier and contrast its output, to which the classifier is applied: with such a
  model (two linear layers before the last, no activation between the second and the last) this is
  their z; with another it is the penultimate layer. Compare methods on one model.
* In its first participation a client has no previous model, and the contrast is 0; the passes are
  charged all the same, since time is planned without the client states.
* ``mu = 0`` is FedAvg, bit for bit: nothing is kept, and no further forward passes are made.
* The cosine of a zero vector is 0 (lengths are at least 1e-8).
* Probes measure l alone.
* Published: mu from 0.001 to 10 (5 on CIFAR-10, 1 on CIFAR-100, the latter INTERPRETATION-R), T =
  .5, a projection head of 256, SGD .01, momentum .9, decay 1e-5, batches of 64, 10 epochs, 10
  clients, Dirichlet .5.

Worked
------
s+ = s-: ln 2 = .693147. At T = .5: (1, 0) gives .126928, (.8, .2) .263282, (0, 1) 2.126928.

>>> from motley.algorithms.moon import contrast
>>> import torch
>>> round(contrast(torch.tensor([0.8]), torch.tensor([0.2]), temperature=0.5).item(), 6)
0.263282
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus
from typing_extensions import override

from motley.algorithms.feature_loss import FeatureLoss
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    Tensors,
)
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

LEAST_LENGTH = 1e-8


def contrast(near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """Return ``-log(e^(near/T) / (e^(near/T) + e^(far/T)))``, element by element."""
    return softplus((far - near) / temperature)


@dataclass(frozen=True)
class ContrastiveLoss(FeatureLoss):
    """A loss plus ``mu`` times MOON's contrast of features at ``temperature``; probes measure the
    loss alone."""

    passes: ClassVar[int] = 2
    mu: float = 1.0
    temperature: float = 0.5

    def frozen(self, context: JobContext) -> tuple[ModelState, ...]:
        """Return the received model and the client's previous one; none if there is no previous
        one."""
        client_state = context.client_state
        if client_state is None or not client_state["rounds"].any():
            return ()
        counters = context.download["counters"]
        return ModelState(context.x, context.download["buffers"], counters), ModelState(
            client_state["x"], client_state["buffers"], counters
        )

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
        if not frozen_features:
            return loss
        near, far = (
            cosine_similarity(features, frozen, dim=1, eps=LEAST_LENGTH)
            for frozen in frozen_features
        )
        return loss + self.mu * contrast(near, far, self.temperature)


@dataclass(frozen=True)
class PreviousModel(LocalRule):
    """Plain local training after which the client keeps its model."""

    def initial_state(self, state: ModelState) -> ClientState:
        """Return the initial model, with ``rounds = 0``: there is no previous model yet."""
        return {"x": state.x, "buffers": state.buffers, "rounds": torch.zeros(1, dtype=torch.int64)}

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        """Return the plain update, and the local model as the next state."""
        parts, client_state = super().finish(after, context)
        rounds = (
            torch.ones(1, dtype=torch.int64) if client_state is None else client_state["rounds"] + 1
        )
        return parts, {"x": after.x, "buffers": after.buffers, "rounds": rounds}

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if not isinstance(algorithm.loss, ContrastiveLoss):
            return "MOON keeps the previous model for its contrastive loss, which was exchanged"
        return None


@dataclass(frozen=True)
class Moon(Method):
    """Model-contrastive learning: options ``mu`` (1; the paper tunes it from 0.001 to 10) and
    ``temperature`` (0.5)."""

    paper: ClassVar[Paper] = cite("li2021moon")
    mu: float = 1.0
    temperature: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise ConfigError(f"got mu = {self.mu}; expected a finite number of at least 0")
        if not 0 < self.temperature < float("inf"):
            raise ConfigError(f"got temperature = {self.temperature}; expected a positive number")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        if not self.mu:
            return plain
        return plain.replace(
            loss=ContrastiveLoss(plain.loss, self.mu, self.temperature), local=PreviousModel()
        )
