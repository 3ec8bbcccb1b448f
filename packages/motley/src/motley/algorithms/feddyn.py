"""FedDyn: a dynamic regulariser aligns the clients' optima with the global one.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama: *Federated Learning Based on Dynamic
Regularization*, ICLR 2021.

    client:  w_k = argmin F_k(w) - <g_k, w> + alpha/2 ||w - x||^2
             (steps along grad F_k - g_k + alpha (w - x))
             g_k <- g_k - alpha (w_k - x)
    server:  h <- h - alpha/K sum_S (w_k - x);      x <- mean_S w_k - h / alpha

Symbols: K all clients; ``alpha`` (0.01 in the paper's CIFAR example). State: server ``h`` [D], each
client ``g_k`` [D], from 0; ``h`` is the mean of the ``g_k`` of all clients. Traffic as FedAvg.

Deviations and readings
-----------------------
* The experiment's local steps approximate the argmin; the method diverges if they are crude or
  alpha is small.
* Uniform weights as published; others are refused.
* READING one ``alpha`` for all, as in the paper. The authors' code has one for each client,
  ``alpha / (K p_k)`` with p_k its share of the samples, so that large clients are held less; the
  two agree where all have as many samples.
* x is not a mean of models (it is shifted by h / alpha): evaluate it late in a run, or evaluate the
  mean of the cohort's models.
* The CIFAR example has alpha .01, SGD .1, 5 epochs, batches of 50, decay 1e-3.

Worked
------
m = (0, 10), alpha = 1, x = 3, exact local solves: w = (1.5, 6.5), g = (1.5, -3.5), h = -1, x = 5.

>>> from motley.algorithms.feddyn import FedDyn
>>> FedDyn(alpha=0.1).alpha
0.1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
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
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

__all__ = ["FedDyn"]


@dataclass(frozen=True)
class DynamicRegularizer(LocalRule):
    """FedDyn's local gradient ``g - g_k + alpha (w - x)``; the client keeps ``g_k``."""

    alpha: float = 0.01

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {"g": torch.zeros_like(state.x)}

    @override
    def correction(self, context: JobContext) -> GradientCorrection:
        return GradientCorrection(proximal=self.alpha, offset=-self._own(context))

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        """Return the plain update and ``g_k - alpha (w_k - x)``."""
        parts, _ = super().finish(after, context)
        return parts, {"g": self._own(context) - self.alpha * parts["delta"].value}

    @staticmethod
    def _own(context: JobContext) -> torch.Tensor:
        return (
            torch.zeros_like(context.x)
            if context.client_state is None
            else context.client_state["g"]
        )

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if weights != "uniform":
            return (
                "FedDyn averages uniformly, else h is not the mean of the g_k; got weights = "
                f'"{weights}", use "uniform"'
            )
        if not isinstance(algorithm.server, DynamicAverage):
            name = type(algorithm.server).__name__
            return (
                f"FedDyn's server keeps h, which the server rule {name} does not; leave server out"
            )
        return None


@dataclass(frozen=True)
class DynamicAverage(Server):
    """FedDyn's server step: ``h <- h - alpha M/K mean delta;  x <- x + mean delta - h / alpha``."""

    alpha: float = 0.01

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(model, {"h": torch.zeros_like(model.x, dtype=torch.float64)})

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.local, DynamicRegularizer):
            return None
        name = type(algorithm.local).__name__
        return (
            "FedDyn's h must be the mean of vectors that cover the same parameters at the "
            f"clients, and under {name} they keep none"
        )

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        delta = total["delta"]
        h = state.extra["h"] - self.alpha * context.accepted / context.population * delta
        return ServerState(step_model(state, delta - h / self.alpha, total), {"h": h})


@dataclass(frozen=True)
class FedDyn(Method):
    """Dynamic regularisation: option ``alpha`` (0.01)."""

    paper: ClassVar[Paper] = cite("acar2021feddyn")
    alpha: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.alpha < float("inf"):
            raise ConfigError(f"got alpha = {self.alpha}; expected a positive number")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=DynamicRegularizer(self.alpha),
            server=DynamicAverage(self.alpha),
            weights="uniform",
        )
