"""APFL: every client uses a mixture of the shared model and of one of its own, which is trained as
part of that mixture.

Deng, Kamani, Mahdavi: *Adaptive Personalized Federated Learning*, 2020 (arXiv:2003.13461).

    receive x;   w <- x;   own v_k;   m = alpha v_k + (1 - alpha) w
    step         w   <- w   - lr g(w)
                 v_k <- v_k - lr alpha g(m)
                 on the same batch, all from values before the step
    adaptive     alpha <- clip(alpha - lr (v_k - w) . g(m), 0, 1)
                 on the first batch of a participation, from the same values
    send         w - x;    keep v_k and alpha
    examined     alpha v_k + (1 - alpha) x

State: v_k (buffers included) and alpha with each client that took part; the initial model and the
option ``alpha`` for the others.
Cost: two passes a step; traffic as FedAvg. The shared model is examined, too.

Deviations and readings
-----------------------
* INTERPRETATION-D parameters are mixed and the gradient is taken at the mixture.
* INTERPRETATION-D BatchNorm: v_k's statistics are those of the forward passes at m; an examination
  mixes statistics by alpha, too.
* READING alpha moves by the values before the step.
* READING an examination mixes with the received x, not with the trained w, which is not kept.
* The shared model is FedAvg's, bit for bit. alpha fixed at 0 examines exactly FedAvg's model, at 1
  exactly that of local training.

Worked
------
Toy A (docs/methods/algorithms.md#personalisation), v = 1, alpha = .5: m = .5, g(m) = -3.5, v =
1.175, w = .4; the adaptive alpha becomes .85.

>>> from motley.algorithms.apfl import APFL
>>> APFL()
APFL(alpha=0.5, adaptive=False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import (
    RECEIVED,
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
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

_OWN = "own"


@dataclass(frozen=True)
class _Along:
    """The direction of the own model's step: ``alpha g(m)``; the first step also moves an adaptive
    alpha."""

    lr: float
    adaptive: bool

    def __call__(self, gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
        alpha = values["alpha"]
        own = values[_OWN]
        shared = values[RECEIVED]
        slope = gradient(alpha * own + (1 - alpha) * shared)
        if self.adaptive and step == 0:
            values["alpha"] = (alpha - self.lr * torch.dot(own - shared, slope)).clamp(0, 1)
        return alpha * slope


@dataclass(frozen=True)
class Mixture(PersonalRule):
    """Plain local training of the received model, and beside it of the client's own model as a part
    ``alpha`` of their mixture."""

    step_cost: ClassVar[float] = 2.0
    alpha: float = 0.5
    adaptive: bool = False

    def initial_state(self, state: ModelState) -> ClientState:
        """Return the initial model, and alpha."""
        return {**vars(state), "alpha": state.x.new_full((1,), self.alpha)}

    @override
    def examined(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        shared = self.start(download, client_state)
        if client_state is None:
            return shared
        alpha = client_state["alpha"]
        x, buffers = (
            alpha * client_state[name] + (1 - alpha) * download[name] for name in ("x", "buffers")
        )
        return ModelState(x, buffers, shared.counters)

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        state = context.client_state or self.initial_state(self.start(context.download, None))
        own = ModelState(state["x"], state["buffers"], state["counters"])
        along = _Along(context.lr, self.adaptive)
        return (
            Phase(),
            Phase(
                model=_OWN,
                start=own,
                direction=along,
                values={"alpha": state["alpha"]},
                beside=True,
            ),
        )

    @override
    def adaptation(self, context: JobContext) -> tuple[Phase, ...]:
        own = self.start(context.download, None)
        # the shared model stands still
        values = {"alpha": self.initial_state(own)["alpha"], RECEIVED: context.x}
        return (
            Phase("tune", _OWN, own, direction=_Along(context.lr, self.adaptive), values=values),
        )

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        """Return the plain update; the client's own model and alpha are the next state."""
        parts, next_state = super().finish(after, context)
        if _OWN not in context.models:
            return parts, next_state
        return parts, {**vars(context.models[_OWN]), "alpha": context.values["alpha"]}


@dataclass(frozen=True)
class APFL(Method):
    """FedAvg, and beside it a model of every client's own, used in a mixture with weight ``alpha``
    (0.5) that may be ``adaptive``."""

    paper: ClassVar[Paper] = cite("deng2020apfl")
    alpha: float = 0.5
    adaptive: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"got alpha = {self.alpha}; expected a number from 0 to 1")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=Mixture(self.alpha, self.adaptive))
