"""MOON: a contrast between models keeps local features near the global model's.

Li, He, Song: *Model-Contrastive Federated Learning*, CVPR 2021 (arXiv:2103.16257). Reference: docs/methods/algorithms.md#moon.

Of a sample, with features z of the model in training, z_glob of the received model and z_prev of the client's own model at the end
of its last participation (both frozen, in eval mode with their own BatchNorm statistics, on the same augmented inputs):

    L = l(outputs, y) + mu * -log( e^(s+/T) / (e^(s+/T) + e^(s-/T)) ),       s+ = cos(z, z_glob),   s- = cos(z, z_prev)

Symbols: l the loss of the task (or the one that the experiment names); T temperature. State: with each client that took part, its
local model before averaging. Cost: two more forward passes a step, charged as two thirds of one; traffic as FedAvg.

Deviations and readings
-----------------------
* READING z is what the model's last linear layer is given. The authors put a projection head between features and classifier
  and contrast its output, to which the classifier is applied: with such a model (two linear layers before the last) this is their z;
  with another it is the penultimate layer. Compare methods on one model.
* In its first participation a client has no previous model, and the contrast is 0; the passes are charged all the same, since
  time is planned without looking at what clients keep.
* ``mu = 0`` is FedAvg, bit for bit: nothing is kept or put forward.
* The cosine of a zero vector is 0 (lengths are at least 1e-8).
* Probes measure l alone.

>>> from motley.algorithms.moon import contrast
>>> import torch
>>> round(contrast(torch.tensor([0.8]), torch.tensor([0.2]), temperature=0.5).item(), 6)
0.263282
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from motley.algorithms.base import Algorithm, ClientState, Correction, JobContext, Loss, Method, Part, Tensors
from motley.algorithms.local import Solver
from motley.core.errors import ConfigError
from motley.core.paper import Paper
from motley.tasks.base import ModelState

__all__ = ["ContrastiveLoss", "Moon", "PreviousModel", "contrast"]

LEAST_LENGTH = 1e-8


def contrast(near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """``-log(e^(near/T) / (e^(near/T) + e^(far/T)))``, element by element."""
    return softplus((far - near) / temperature)


@dataclass(frozen=True)
class ContrastiveLoss(Loss):
    """A loss, and ``mu`` times the contrast of features at ``temperature``."""

    whole_model: ClassVar[bool] = True
    passes: ClassVar[int] = 2
    base: Loss
    mu: float = 1.0
    temperature: float = 0.5

    @property
    def prepares(self) -> bool:
        """What the loss without the contrast says."""
        return self.base.prepares

    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """The loss without the contrast."""
        return self.base.loss(outputs, targets, extra)

    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Of the loss without the contrast."""
        return self.base.gradient(outputs, targets, extra)

    def prepare(self, context: JobContext, forward: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensors:
        """What the loss without the contrast wants."""
        return self.base.prepare(context, forward, inputs, targets)

    def within(self) -> Loss:
        """The loss without the contrast."""
        return self.base.within()

    def frozen(self, context: JobContext) -> tuple[ModelState, ...]:
        """The received model and the client's previous one; none where it has no previous one."""
        client_state = context.client_state
        if client_state is None or not client_state["rounds"].any():
            return ()
        counters = context.download["counters"]
        return ModelState(context.x, context.download["buffers"], counters), ModelState(
            client_state["x"], client_state["buffers"], counters
        )

    def compare(self, outputs: Tensor, targets: Tensor, extra: Tensors, features: Tensor, others: tuple[Tensor, ...]) -> Tensor:
        """See the top of this file."""
        near, far = (cosine_similarity(features, other, dim=1, eps=LEAST_LENGTH) for other in others)
        return self.loss(outputs, targets, extra) + self.mu * contrast(near, far, self.temperature)


@dataclass(frozen=True)
class PreviousModel(Correction):
    """Plain local training; the client keeps its model after it."""

    keeps_state: ClassVar[bool] = True

    def initial_state(self, state: ModelState) -> ClientState:
        """No previous model yet: ``rounds`` is 0."""
        return {"x": state.x, "buffers": state.buffers, "rounds": torch.zeros(1, dtype=torch.int64)}

    def finish(self, after: ModelState, context: JobContext) -> tuple[Mapping[str, Part], ClientState]:
        """The plain update; the model before averaging is kept."""
        parts, client_state = super().finish(after, context)
        rounds = torch.ones(1, dtype=torch.int64) if client_state is None else client_state["rounds"] + 1
        return parts, {"x": after.x, "buffers": after.buffers, "rounds": rounds}

    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        """A loss without the contrast, for which nothing need be kept."""
        if not isinstance(algorithm.loss, ContrastiveLoss):
            return "MOON keeps the previous model for its contrastive loss, which was exchanged"
        return None


@dataclass(frozen=True)
class Moon(Method):
    """Model-contrastive learning: options ``mu`` (1; the paper tunes it from 0.001 to 10) and ``temperature`` (0.5)."""

    paper: ClassVar[Paper] = Paper(
        "li2021moon",
        "Model-Contrastive Federated Learning",
        ("Qinbin Li", "Bingsheng He", "Dawn Song"),
        "IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)",
        2021,
        "https://arxiv.org/abs/2103.16257",
    )
    mu: float = 1.0
    temperature: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise ConfigError(f"got mu = {self.mu}; expected a finite number of at least 0")
        if not 0 < self.temperature < float("inf"):
            raise ConfigError(f"got temperature = {self.temperature}; expected a positive number")

    def change(self, plain: Algorithm) -> Algorithm:
        """The contrast beside the plain loss, and clients that remember their model."""
        if not self.mu:
            return plain
        return plain.replace(loss=ContrastiveLoss(plain.loss, self.mu, self.temperature), correction=PreviousModel())
