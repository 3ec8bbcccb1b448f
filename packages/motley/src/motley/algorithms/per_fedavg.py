"""Per-FedAvg: the shared model is trained to be good after one step on a client's own data.

Fallah, Mokhtari, Ozdaglar: *Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach*, NeurIPS 2020 (arXiv:2002.07948).

    step      u <- w - alpha g(w; batch 1);    w <- w - lr g(u; batch 2)
              first order: without the Hessian
    examined  x after ``tune_steps`` steps of learning rate alpha on the client's own training
              samples

Symbols: alpha the learning rate of the step that a client is to take; lr that of the experiment's
local optimizer (the paper's beta).
State: none. Cost: two passes a step, and two batches, so that an epoch of steps passes twice over
the data; traffic as FedAvg. The shared model is examined, too.

Deviations and readings
-----------------------
* The first-order variant alone; the paper's others multiply by (I - alpha Hessian).
* Clients adapt by their training samples, never by test samples.
* With ``alpha = 0`` it is FedAvg on every second batch.

Worked
------
Toy A (docs/methods/algorithms.md#personalisation), alpha = .1: u = .4, w = .36 (exact MAML .324,
FedAvg .4); after one step more .724.

>>> from motley.algorithms.per_fedavg import PerFedAvg
>>> PerFedAvg(alpha=0.1)
PerFedAvg(alpha=0.1, tune_steps=1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import (
    RECEIVED,
    Algorithm,
    JobContext,
    LocalRule,
    Method,
    Phase,
    Tuning,
)
from motley.algorithms.phases import GradientAt
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class AfterOneStep(LocalRule):
    """Local training by the gradient at the weights that one step of learning rate ``alpha`` leads
    to."""

    step_cost: ClassVar[float] = 2.0
    alpha: float = 0.01

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        return (Phase(direction=self._direction, batches=2),)

    def _direction(self, gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
        w = values[RECEIVED]
        return gradient(w - self.alpha * gradient(w), 1)


@dataclass(frozen=True)
class PerFedAvg(Method):
    """A shared model that is good after a step on own data, first order: options ``alpha`` (0.01),
    the learning rate of that step, and ``tune_steps`` (1), the steps before a client's model is
    examined."""

    paper: ClassVar[Paper] = cite("fallah2020perfedavg")
    alpha: float = 0.01
    tune_steps: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < float("inf"):
            raise ConfigError(f"got alpha = {self.alpha}; expected a finite number of at least 0")
        if self.tune_steps < 0:
            raise ConfigError(
                f"got tune_steps = {self.tune_steps}; expected a whole number of at least 0"
            )

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=AfterOneStep(self.alpha), tuning=Tuning(steps=self.tune_steps, lr=self.alpha)
        )
