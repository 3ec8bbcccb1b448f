"""FedRoD: a shared model that is trained as if every client had all classes alike, and a head of
each client's own beside it, which learns what its classes really are.

Chen, Chao: *On Bridging Generic and Personalized Federated Learning for Image Classification*, ICLR
2022 (arXiv:2107.00778).

    generic    z_G = G f(x),   loss l(z_G + gamma log n, y)      base f and head G move
    own        z_P = z_G + P f(x),   loss l(z_P, y)              the head P moves alone
               both in every step, from the same batch and the same f and G
    sends the update of f and G, keeps P

Symbols: n the client's counts of classes, ``gamma`` (1) how far they are balanced (the balanced
softmax); l the task's loss. Examined with z_P; the shared model, z_G, beside it.
State: P of each client that took part, 0 for the others: a client that never took part has the
shared model. Cost: the forward and backward pass of one linear layer a step, not charged; traffic
as FedAvg. While a client trains it keeps C numbers for each of its samples.

Deviations and readings
-----------------------
* P is linear and added to the last linear layer, so a client's model is the shared one with the
  head G + P.
* INTERPRETATION-D P begins at 0; two public re-implementations (FL-bench, fluke) begin with a copy
  of G. In FL-bench the own prediction is that of P alone.
* A class that the client does not have has the probability 0 under the balanced loss (its output is
  lowered by 100), for any gamma above 0.
* Both heads take their step with the optimizer of the experiment, P with moments of its own.
* P takes its gradient under the loss without counts, also where another loss prepares something.
* Not here: the P-head made by a hypernetwork, and its other losses (class-balanced, LADE).
* Loss and weights: a loss for classes; ``weights = "examples"``, as published.

Worked
------
n = (3, 1), gamma = 1, z_G = (0, 0): the balanced probabilities are (.75, .25), so a sample of class
0 pulls the generic bias by (.25, -.25), and P's by (.5, -.5): the shared model learns little of
what is frequent, the own head all of it.

>>> from motley.algorithms.fedrod import FedRoD
>>> FedRoD()
FedRoD(gamma=1.0)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.fedlc import ClassShiftedLoss
from motley.algorithms.parts import (
    RECEIVED,
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    PersonalRule,
    Phase,
    Tensors,
)
from motley.algorithms.personal import head_of, masks, require_head
from motley.algorithms.phases import GradientAt
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

_OWN = "own"
ABSENT = -100.0
"""What is added to the output of a class that the client does not have: its probability is 0, and
no number is infinite."""


@dataclass(frozen=True)
class BalancedLoss(ClassShiftedLoss):
    """A loss of classes over outputs raised by ``gamma log n_c``."""

    gamma: float = 1.0

    @override
    def shift(self, counts: Tensor) -> Tensor:
        absent = ABSENT if self.gamma else 0.0
        return torch.where(counts > 0, self.gamma * counts.clamp(min=1.0).log(), absent)


def _along(gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
    """Return the gradient of the plain loss at the shared model with the head G + P."""
    return gradient(values[RECEIVED] + values[_OWN], prepared=False)


@dataclass(frozen=True)
class HeadBeside(PersonalRule):
    """Plain local training of the received model, and beside it of a head of the client's own that
    is added to the received one; ``layout`` is set by :meth:`bound`."""

    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @property
    @override
    def head_layers(self) -> int:
        return 1

    @override
    def bound(self, layout: Layout) -> LocalRule:
        require_head(layout, "FedRoD")
        return dataclasses.replace(self, layout=layout)

    @cached_property
    def _head(self) -> Tensor:
        """Bool mask ``[D]`` of the head."""
        return masks(self.layout, head_of(self.layout, 1))["x"]

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {"head": state.x.new_zeros(int(self._head.sum()))}

    @override
    def examined(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        shared = self.start(download, client_state)
        if client_state is None:
            return shared
        return dataclasses.replace(shared, x=shared.x + self._alone(client_state, shared.x))

    def _alone(self, client_state: ClientState | None, like: Tensor) -> Tensor:
        """Return P in a vector ``[D]`` that is 0 outside of the head."""
        own = like.new_zeros(len(like))
        if client_state is not None:
            own[self._head.to(own.device)] = client_state["head"].to(own)
        return own

    def _phase(self, context: JobContext, name: str = "") -> Phase:
        shared = self.start(context.download, None)
        own = dataclasses.replace(shared, x=self._alone(context.client_state, shared.x))
        head = {entry.name for entry in self.layout} & set(head_of(self.layout, 1))
        return Phase(name, _OWN, own, where=frozenset(head), direction=_along)

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        return (Phase(), dataclasses.replace(self._phase(context), beside=True))

    @override
    def adaptation(self, context: JobContext) -> tuple[Phase, ...]:
        # the shared model stands still
        return (dataclasses.replace(self._phase(context, "tune"), values={RECEIVED: context.x}),)

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        parts, next_state = super().finish(after, context)
        if _OWN not in context.models:
            return parts, next_state
        own = context.models[_OWN].x
        return parts, {"head": own[self._head.to(own.device)]}


@dataclass(frozen=True)
class FedRoD(Method):
    """Averaging of models trained on balanced classes, with a head of each client's own beside it:
    option ``gamma`` (1), how far classes are balanced."""

    paper: ClassVar[Paper] = cite("chen2022fedrod")
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < float("inf"):
            raise ConfigError(f"got gamma = {self.gamma}; expected a finite number of at least 0")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(loss=BalancedLoss(plain.loss, self.gamma), local=HeadBeside())
