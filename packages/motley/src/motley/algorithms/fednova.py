"""FedNova: updates are normalized by the amount of local work, so that clients with more steps do
not bias the objective.

Wang, Liu, Liang, Joshi, Poor: *Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization*, NeurIPS 2020 (arXiv:2007.07481).

The local update is linear in its gradients, ``x - w_k = lr sum_s a_{k,s} g_{k,s}``:

    client:  d_k = (w_k - x) / ||a_k||_1,   sent with the scalar ||a_k||_1
    server:  x <- x + lr_server (sum_k p_k ||a_k||_1) (sum_k p_k d_k),      p_k = n_k / sum_S n

Symbols: ``||a||_1`` of the local solver that really ran (plain SGD: the number of steps; momentum,
the proximal term and both together: the recursion of
:meth:`motley.algorithms.local_optimisers.SGD.solver_norm`; 3 steps give 5.61 at momentum 0.9, 2.71
at lr mu = 0.1, 5.14 with both). ``tau_eff = sum_k p_k ||a_k||_1``. Option ``mu`` adds FedProx's
proximal term.

State: none. Cost: one more scalar up.

Deviations and readings
-----------------------
* The weights must sum to 1 (``examples``, ``uniform``, ``score``): two weighted means are
  multiplied. Others are refused.
* With the proximal term, tau_eff is the mean of the true ``||a_k||_1``.
* Weight decay and clipping are ignored in ``a``. Buffers are averaged with p_k alone: multipliers
  ``p tau_eff / tau`` sum to more than 1 and would make a running variance negative.
* INTERPRETATION-D under Adam ``||a||_1`` is the number of steps.
* A common port divides by the sum of the scales, which cancels tau_eff.

Solvers
-------
| local solver, 3 steps | a | norm of a |
| --- | --- | --- |
| SGD | (1, 1, 1) | 3 |
| momentum rho = .9 | (2.71, 1.9, 1) | 5.61 |
| proximal, lr mu = .1 | (.81, .9, 1) | 2.71 |
| both, the pull through the buffer (here) | b <- rho b + 1 - lr mu A, A <- A + b | 5.14 |
| both, the pull outside the buffer | b <- rho b + 1, A <- (1 - lr mu) A + b | 5.23 |

Worked
------
F_i = (w - m_i)^2 / 2, m = (0, 10), x = 4, lr = .1, tau = (2, 4): w = (3.24, 6.0634), d = (3.8,
-5.1585), tau_eff = 3, x = 4.203775 (FedAvg 4.6517). The error is of order lr tau; FedAvg's does not
vanish with lr. Fixed points at tau = (2, 20), where the minimum is 5:

| lr | FedAvg | FedNova |
| --- | --- | --- |
| .1 | 8.221679 | 3.161589 |
| .01 | 9.014818 | 4.778178 |
| .001 | - | 4.977530 |

>>> from motley.algorithms.fednova import FedNova
>>> FedNova(mu=0.005).mu
0.005
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    GradientCorrection,
    JobContext,
    LocalRule,
    Method,
    Part,
    Parts,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class NormalisedUpdate(LocalRule):
    """The update divided by ``||a||_1``, uploaded with the scalar ``||a||_1``."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "solver_norm"})
    mu: float = 0.0

    @override
    def correction(self, context: JobContext) -> GradientCorrection:
        return GradientCorrection(proximal=self.mu)

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        """Return the normalized update (zero without a step) and ``||a||_1``."""
        parts, client_state = super().finish(after, context)
        norm = context.solver_norm
        delta = parts["delta"].value / norm if norm else parts["delta"].value
        norms = torch.full((1,), norm, dtype=delta.dtype, device=delta.device)
        return {
            **parts,
            "delta": Part(delta, "mean"),
            "solver_norm": Part(norms, "mean"),
        }, client_state

    def update(self, parts: Parts) -> Tensor:
        """Return the normalized update times ``||a||_1``; zero without a step."""
        return parts["delta"].value * parts["solver_norm"].value

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if weights in ("horvitz_thompson", "selector"):
            return (
                "FedNova multiplies two weighted means, whose weights must sum to 1; weights = "
                f'"{weights}" do not. Use "examples"'
            )
        if not isinstance(algorithm.server, NormalisedAverage):
            name = type(algorithm.server).__name__
            return (
                f"FedNova's updates are normalized, which the server rule {name} does not "
                "undo; leave server out"
            )
        return None


@dataclass(frozen=True)
class NormalisedAverage(Server):
    """FedNova's server step ``x <- x + lr tau_eff d``; with ``momentum``,
    ``u <- momentum u + tau_eff d`` and ``x <- x + lr u``."""

    lr: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.lr < float("inf"):
            raise ConfigError(f"got lr = {self.lr}; expected a positive number")
        if not 0 <= self.momentum < 1:
            raise ConfigError(
                f"got momentum = {self.momentum}; expected at least 0 and less than 1"
            )

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.local, NormalisedUpdate):
            return None
        name = type(algorithm.local).__name__
        return (
            f"FedNova's server scales normalized updates of the whole model, and under {name} "
            "clients do not normalize theirs"
        )

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(
            model, {"u": torch.zeros_like(model.x, dtype=torch.float64)} if self.momentum else {}
        )

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        step = total["solver_norm"] * total["delta"]
        if not self.momentum:
            return ServerState(step_model(state, self.lr * step, total), state.extra)
        u = self.momentum * state.extra["u"] + step
        return ServerState(step_model(state, self.lr * u, total), {"u": u})


@dataclass(frozen=True)
class FedNova(Method):
    """Normalized averaging: options ``mu`` (0, FedProx's proximal term), ``server_lr`` (1) and
    ``server_momentum`` (0)."""

    paper: ClassVar[Paper] = cite("wang2020fednova")
    mu: float = 0.0
    server_lr: float = 1.0
    server_momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise ConfigError(f"got mu = {self.mu}; expected a finite number of at least 0")
        NormalisedAverage(self.server_lr, self.server_momentum)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=NormalisedUpdate(self.mu),
            server=NormalisedAverage(self.server_lr, self.server_momentum),
        )
