"""FedALA: every client begins its training at a mixture of its last local model and the shared
model, learned entry by entry.

Zhang, Hua, Wang, Song, Xue, Ma, Guan: *FedALA: Adaptive Local Aggregation for Personalized
Federated Learning*, AAAI 2023 (arXiv:2212.01197).

    receive x;   own t_k (its last local model) and W_k in [0, 1], from 1, for the last
                 ``tensors`` parameters
    weights      u = t_k + (x - t_k) W_k;
                 per batch:  W_k <- clip(W_k - eta g(u) (x - t_k), 0, 1)   entry by entry
    train        w <- u (all other parameters: x);   w <- w - lr g(w)
    send         w - x;    keep t_k = w and W_k
    examined     t_k + (x - t_k) W,   W learned from W_k as before training, and forgotten;
                 x by a client that never took part

Symbols: eta the learning rate of W_k. State: t_k (buffers included), W_k, and whether W_k was ever
learned; the initial model and 1 for the others. Cost: a pass over ``share`` of the samples before
training; traffic as FedAvg. The shared model is examined, too.

Deviations and readings
-----------------------
* INTERPRETATION-D the weights are learned in ``first_passes`` (11) passes when a client first has
  something to mix, later in one. The clock counts one.
* INTERPRETATION-D a pass takes the first batches of a permutation of all samples.
* INTERPRETATION-D BatchNorm statistics are those received. While x is t_k nothing is learned.

Worked
------
Toy A (docs/methods/algorithms.md#personalisation), t = 2, W = 1: u = 0, g = -4; eta = .1 gives W =
.2, u = 1.6, after a step 1.84, the update too; eta = 1 gives W = 0, u = 2, the old local model.

>>> from motley.algorithms.fedala import FedALA
>>> FedALA().eta
1.0
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    Method,
    Part,
    PersonalRule,
    Phase,
    Tensors,
)
from motley.algorithms.phases import GradientAt
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class _Learning:
    """The steps of the weights: ``W <- clip(W - eta g(u) (x - t), 0, 1)``."""

    x: Tensor
    t: Tensor
    eta: float

    def mixed(self, weights: Tensor) -> Tensor:
        """Return ``u = t + (x - t) W`` at the last parameters, and x at the others."""
        own = slice(len(self.x) - len(weights), None)
        return torch.cat([self.x[: own.start], torch.lerp(self.t[own], self.x[own], weights)])

    def __call__(self, gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
        weights = values["weights"]
        own = slice(len(self.x) - len(weights), None)
        towards = gradient(self.mixed(weights))[own] * (self.x[own] - self.t[own])
        values["weights"] = (weights - self.eta * towards).clamp(0, 1)
        return torch.zeros_like(self.x)  # the weights move, not the model


@dataclass(frozen=True)
class AdaptiveMixture(PersonalRule):
    """Plain local training that begins at a learned mixture of the client's last model and the
    received one; ``layout`` is set by :meth:`bound`, ``first`` is the weight that a client begins
    with."""

    eta: float = 1.0
    share: float = 0.8
    tensors: int = 2
    first_passes: int = 11
    first: float = 1.0
    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @property
    @override
    def extra_epochs(self) -> float:
        return self.share if self.eta else 0.0

    @override
    def bound(self, layout: Layout) -> AdaptiveMixture:
        return dataclasses.replace(self, layout=layout)

    def initial_state(self, state: ModelState) -> ClientState:
        """Return the initial model, and weights that were never learned."""
        count = sum(entry.size for entry in self.layout.entries[-self.tensors :])
        weights = state.x.new_full((count,), self.first)
        return {**vars(state), "weights": weights, "learned": torch.zeros(1, dtype=torch.int64)}

    @override
    def examined(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        received = self.start(download, client_state)
        state = client_state or self.initial_state(received)
        mixed = _Learning(received.x, state["x"], self.eta).mixed(state["weights"])
        return ModelState(mixed, received.buffers, received.counters)

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        return self._learned(context, "weights", Phase())

    @property
    @override
    def before_examination(self) -> Callable[[JobContext], tuple[Phase, ...]]:
        return lambda context: self._learned(context, "examined weights", Phase(epochs=0))

    def _learned(self, context: JobContext, name: str, then: Phase) -> tuple[Phase, ...]:
        """Return the phases that learn the weights, and one more, ``then``, that begins at the
        mixture."""
        received = self.start(context.download, None)
        state = context.client_state or self.initial_state(received)
        learning = _Learning(context.x, state["x"], self.eta)
        weights = state["weights"]

        def begin(values: Mapping[str, Tensor]) -> ModelState:
            return ModelState(
                learning.mixed(values["weights"]), received.buffers, received.counters
            )

        if not self.eta or torch.equal(context.x[-len(weights) :], state["x"][-len(weights) :]):
            return (dataclasses.replace(then, start=begin, values={"weights": weights}),)
        passes = 1 if state["learned"].any() else self.first_passes
        where = frozenset(entry.name for entry in self.layout.entries[-self.tensors :])
        learn = [
            Phase(
                name=f"{name} {i}",
                model="mixed",
                start=begin,
                where=where,
                epochs=self.share,
                direction=learning,
            )
            for i in range(passes)
        ]
        return (
            dataclasses.replace(learn[0], values={"weights": weights}),
            *learn[1:],
            dataclasses.replace(then, start=begin),
        )

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        """Return the plain update; the local model and the weights are the next state."""
        parts, next_state = super().finish(after, context)
        if next_state is None or "weights" not in context.values:
            return parts, next_state
        return parts, {
            **vars(after),
            **context.values,
            "learned": next_state["learned"] + int("mixed" in context.models),
        }


@dataclass(frozen=True)
class FedALA(Method):
    """FedAvg in which clients begin at a learned mixture of their last model and the shared one:
    options ``eta`` (1) of the weights, ``share`` (0.8) of the samples they are learned on,
    ``tensors`` (2) that are mixed, from the end, and ``first_passes`` (11)."""

    paper: ClassVar[Paper] = cite("zhang2023fedala")
    eta: float = 1.0
    share: float = 0.8
    tensors: int = 2
    first_passes: int = 11

    def __post_init__(self) -> None:
        if not 0 <= self.eta < float("inf"):
            raise ConfigError(f"got eta = {self.eta}; expected a finite number of at least 0")
        if not 0 < self.share <= 1:
            raise ConfigError(f"got share = {self.share}; expected a number above 0, at most 1")
        for name in ("tensors", "first_passes"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"got {name} = {getattr(self, name)}; expected a whole number of at least 1"
                )

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=AdaptiveMixture(self.eta, self.share, self.tensors, self.first_passes)
        )
