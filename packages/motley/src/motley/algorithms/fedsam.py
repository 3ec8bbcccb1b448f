"""FedSAM and FedLESAM: clients descend by the gradient at a point above, so that the model ends
where its surroundings are low, too.

Qu, Li, Duan, Liu, Tang, Lu: *Generalized Federated Learning via Sharpness Aware Minimization*, ICML
2022 (arXiv:2206.02618).
Fan, Hu, Yao, Niu, Zhang, Sugiyama, Wang: *Locally Estimated Global Perturbations are Better than
Local Perturbations for Federated Sharpness-aware Minimization*, ICML 2024 (arXiv:2405.18890).

    w <- x;   each step   w <- w - lr g(w + e; batch)
    FedSAM    e = rho g(w; batch) / ||g(w; batch)||
    FedLESAM  e = rho (x_old - x) / ||x_old - x||,  the same in all steps; x_old the model that the
              client received before

Symbols: ``rho`` (0.05) how far the point lies. FedSAM looks for what is steep on the client's own
data, FedLESAM for what was steep for everybody: where all models come from is above where they are.
State: under FedLESAM each client keeps the model that it last received. Cost: FedSAM two gradients
a step, charged as such; FedLESAM one. Traffic as FedAvg.

Deviations and readings
-----------------------
* The lengths are taken over all parameters together; a zero vector gives e = 0, and a client that
  takes part for the first time has no x_old: plain local training.
* In the text x_old is of the client's last participation; the older it is, the worse it estimates.
* Clipping, momentum and decay act on the gradient at w + e, as in both codes.
* BatchNorm statistics move with every forward pass, those at w + e too; the loss that clients
  report is that of a step's first pass, under FedLESAM the one at w + e.
* Not here: momentum (MoFedSAM), control variates (FedLESAM-S), a dynamic regularizer (FedLESAM-D),
  and ASAM's scaling.
* Published: FedLESAM's code has rho = .1, lr .1 falling by .998, 5 epochs, batches of 25, decay
  .001.

Worked
------
F = (w - 4)^2 / 2, x = 0, lr = rho = .1: g = -4, e = -.1, g(w + e) = -4.1, w = .41; a parabola's
steps are longer by lr rho and end as far beyond. Two coordinates, F = (w_1^2 + 9 w_2^2) / 2 at (1,
1): g = (1, 9), e = .1 (1, 9) / 9.0554, g(w + e) = (1.011043, 9.894495). x_old = (3, 4), x = 0, rho
= .5: e = (.3, .4).

>>> from motley.algorithms.fedsam import FedSAM
>>> FedSAM().rho
0.05
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
    LocalRule,
    Method,
    Part,
    Phase,
)
from motley.algorithms.phases import GradientAt
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

LEAST_LENGTH = 1e-12


def ascent(direction: Tensor, rho: float) -> Tensor:
    """Return the vector ``[D]`` of length ``rho`` in a direction; zeros for a direction of
    zeros."""
    return torch.mul(direction, rho / direction.norm().clamp(min=LEAST_LENGTH))


@dataclass(frozen=True)
class LocalAscent(LocalRule):
    """Local training by the gradient at the point ``rho`` above, along the batch's own gradient
    (FedSAM)."""

    step_cost: ClassVar[float] = 2.0
    rho: float = 0.05

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        return (Phase(direction=self._direction),)

    def _direction(self, gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
        w = values[RECEIVED]
        return gradient(w + ascent(gradient(w), self.rho))


@dataclass(frozen=True)
class GlobalAscent(LocalRule):
    """Local training by the gradient at the point ``rho`` away, towards the model that the client
    received before (FedLESAM), which it keeps."""

    rho: float = 0.05

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {"x": state.x, "rounds": torch.zeros(1, dtype=torch.int64)}

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        state = context.client_state
        took_part = state is not None and state["rounds"].any()
        away = state["x"] - context.x if state and took_part else torch.zeros_like(context.x)
        away = ascent(away, self.rho)
        return (Phase(direction=self._direction, values={"ascent": away}),)

    @staticmethod
    def _direction(gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
        return gradient(values[RECEIVED] + values["ascent"])

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        parts, state = super().finish(after, context)
        rounds = torch.zeros(1, dtype=torch.int64) if state is None else state["rounds"]
        return parts, {"x": context.x.clone(), "rounds": rounds + 1}


def _check(rho: float) -> None:
    if not 0 <= rho < float("inf"):
        raise ConfigError(f"got rho = {rho}; expected a finite number of at least 0")


@dataclass(frozen=True)
class FedSAM(Method):
    """Averaging of sharpness-aware local training, two gradients a step: option ``rho`` (0.05)."""

    paper: ClassVar[Paper] = cite("qu2022fedsam")
    rho: float = 0.05

    def __post_init__(self) -> None:
        _check(self.rho)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=LocalAscent(self.rho)) if self.rho else plain


@dataclass(frozen=True)
class FedLESAM(Method):
    """FedSAM along an estimate of everybody's ascent, one gradient a step: option ``rho``
    (0.05)."""

    paper: ClassVar[Paper] = cite("fan2024fedlesam")
    rho: float = 0.05

    def __post_init__(self) -> None:
        _check(self.rho)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=GlobalAscent(self.rho)) if self.rho else plain
