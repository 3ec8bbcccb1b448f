"""FedDyn: a dynamic regularizer aligns the clients' optima with the global one.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama: *Federated Learning Based on Dynamic
Regularization*, ICLR 2021.

    client:  w_k = argmin F_k(w) - <g_k, w> + alpha/2 ||w - x||^2
             (steps along grad F_k - g_k + alpha (w - x))
             g_k <- g_k - alpha (w_k - x)
    server:  h <- h - alpha sum_S p_k (w_k - x);    x <- sum_S a_k w_k - h / alpha

Under ``alphas = "by_samples"`` client k has ``alpha_k = alpha n / (K n_k)``, n the samples of all K
clients, in place of alpha, and the server's rule stays as under equal weights.

Symbols: ``p_k = 1/K`` of K clients and ``a_k = 1/M`` of the cohort's M under
``weights = "uniform"`` (the default, as published), ``n_k / n`` and ``n_k / sum_S n`` under
``"examples"``; ``alpha`` (0.01 in the paper's CIFAR example). State: server ``h`` [D], each client
``g_k`` [D], from 0; ``h = sum p_k g_k`` over all clients. Traffic as FedAvg.

Deviations and readings
-----------------------
* The experiment's local steps approximate the argmin; the method diverges if they are crude or
  alpha is small.
* READING ``weights = "examples"`` minimizes ``sum p_k F_k``: where nothing moves, w_k = x and h =
  0, so ``sum p_k g_k = sum p_k grad F_k(x) = 0``; under ``uniform`` that of the plain mean, for
  which the paper proves its rates. One ``alpha`` for all, as in the paper. The authors' code has
  plain means and one for each client (``by_samples``), so that large clients are held less: the
  same fixed point by another path, and the same path where all have as many samples. Other
  weightings, under which an absent client has no p_k, are refused, and under ``by_samples`` all but
  ``uniform``; in a deployment no client knows n / K.
* A deployed server divides h anew by n when it meets further clients.
* x is not a mean of models (it is shifted by h / alpha): evaluate it late in a run, or evaluate the
  mean of the cohort's models.
* The CIFAR example has alpha .01, SGD .1, 5 epochs, batches of 50, decay 1e-3.

Worked
------
m = (0, 10), alpha = 1, x = 3, exact local solves: w = (1.5, 6.5), g = (1.5, -3.5), h = -1, x = 5.
With ``examples`` and n = (1, 3) the same w and g, h = -2.25, x = 7.5 (``by_samples``: alpha = (2,
.667), w = (2, 7.2), h = -1.6, x = 6.2); both minima, 5 and 7.5, are reached at once.

>>> from motley.algorithms.feddyn import FedDyn
>>> FedDyn(alpha=0.1).alpha
0.1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

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
    kept_mean,
    step_model,
)
from motley.algorithms.weights import refuses_but_both
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

Alphas = Literal["common", "by_samples"]


@dataclass(frozen=True)
class DynamicRegularizer(LocalRule):
    """FedDyn's local gradient ``g - g_k + alpha (w - x)``; the client keeps ``g_k``."""

    alpha: float = 0.01
    alphas: Alphas = "common"

    def __post_init__(self) -> None:
        if self.alphas not in get_args(Alphas):
            expected = " or ".join(map(repr, get_args(Alphas)))
            raise ConfigError(f"got alphas = {self.alphas!r}; expected {expected}")

    @property
    @override
    def compares_sizes(self) -> bool:
        return self.alphas == "by_samples"

    def _alpha(self, context: JobContext) -> float:
        """Return the client's own alpha."""
        if self.alphas == "common":
            return self.alpha
        return self.alpha * context.mean_examples / max(context.num_examples, 1)

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {"g": torch.zeros_like(state.x)}

    @override
    def correction(self, context: JobContext) -> GradientCorrection:
        return GradientCorrection(proximal=self._alpha(context), offset=-self._own(context))

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        """Return the plain update and ``g_k - alpha (w_k - x)``."""
        parts, _ = super().finish(after, context)
        return parts, {"g": self._own(context) - self._alpha(context) * parts["delta"].value}

    @staticmethod
    def _own(context: JobContext) -> torch.Tensor:
        if context.client_state is None:
            return torch.zeros_like(context.x)
        return context.client_state["g"]

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if reason := refuses_but_both("FedDyn", weights):
            return reason
        if self.compares_sizes and weights != "uniform":
            return (
                f'got weights = "{weights}" under alphas = "by_samples", and the samples are in '
                'the alphas; write weights = "uniform"'
            )
        if not isinstance(algorithm.server, DynamicAverage):
            name = type(algorithm.server).__name__
            return (
                f"FedDyn's server keeps h, which the server rule {name} does not; leave server out"
            )
        return None


@dataclass(frozen=True)
class DynamicAverage(Server):
    """FedDyn's server step: ``h <- h - alpha P mean delta;  x <- x + mean delta - h / alpha``, P
    the share of all own weights that the cohort has, M/K where all weigh alike."""

    weighs_all: ClassVar[bool] = True
    alpha: float = 0.01

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        total = torch.tensor([population], dtype=torch.float64)
        h = torch.zeros_like(model.x, dtype=torch.float64)
        return ServerState(model, {"h": h, "total_weight": total})

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
        accepted, everybody = context.weight_sums
        h = kept_mean(state, "h", everybody) - self.alpha * accepted / everybody * delta
        extra = {"h": h, "total_weight": torch.tensor([everybody], dtype=torch.float64)}
        return ServerState(step_model(state, delta - h / self.alpha, total), extra)


@dataclass(frozen=True)
class FedDyn(Method):
    """Dynamic regularization: options ``alpha`` (0.01) and ``alphas``: ``common``, or
    ``by_samples``, for each client its own."""

    paper: ClassVar[Paper] = cite("acar2021feddyn")
    alpha: float = 0.01
    alphas: Alphas = "common"

    def __post_init__(self) -> None:
        if not 0 < self.alpha < float("inf"):
            raise ConfigError(f"got alpha = {self.alpha}; expected a positive number")
        DynamicRegularizer(self.alpha, self.alphas)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=DynamicRegularizer(self.alpha, self.alphas),
            server=DynamicAverage(self.alpha),
            weights="uniform",
        )
