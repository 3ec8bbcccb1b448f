"""FedExP: the server steps further the more the clients' updates disagree.

Jhunjhunwala, Wang, Joshi: *FedExP: Speeding Up Federated Averaging via Extrapolation*, ICLR 2023
(arXiv:2301.09604).

    d = sum_S a_k delta_k,    eta = max(1, sum_S a_k ||delta_k||^2 / (2 (||d||^2 + eps)))
    x <- x + eta d
    examined: the mean of the last two x

Symbols: ``a_k`` the round's weights, 1/M in the paper; ``eps`` (0.001) keeps the step short where
the updates cancel. State: the model before the last step. Cost: none at the clients, traffic as
FedAvg. The server takes the length of each update as it arrives, decoded and scaled by staleness,
so that single updates must be seen.

Deviations and readings
-----------------------
* The mean of the last two models is what is examined, saved and given to new clients; training goes
  on from the last one. After one round there is one model, as in the authors' code.
* Weights must sum to 1; those that need not are refused. BatchNorm statistics are averaged.
* Published: eps .001 for CIFAR and CINIC, .1 for EMNIST; 20 local steps, gradients clipped at 10,
  rates falling by .998.

Worked
------
With eps near 0: delta = (3, 1): d = 2, mean square 5, eta = max(1, 5 / 8) = 1. delta = (3, -1): d =
1, eta = 5 / 2 = 2.5. M orthogonal updates of one length: eta = M / 2.

>>> from motley.algorithms.fedexp import FedExP
>>> FedExP()
FedExP(eps=0.001)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from typing_extensions import override

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    Method,
    Part,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    Upload,
    step_model,
)
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class MeanAndSquare(Mean):
    """The weighted mean of all parts, and under ``square`` ``[1]`` that of the updates' squared
    lengths."""

    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    plain_sum: ClassVar[bool] = False

    @override
    def add(self, total: Any, upload: Upload) -> Any:
        square = upload.parts["delta"].value.double().square().sum().reshape(1)
        parts = {**upload.parts, "square": Part(square, "mean")}
        return super().add(total, upload._replace(parts=parts))

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.server, Extrapolation):
            return None
        name = type(algorithm.server).__name__
        return f"FedExP is its server's step, which the server rule {name} is not; leave server out"


@dataclass(frozen=True)
class Extrapolation(Server):
    """FedExP's server step; the mean of the last two models is examined."""

    eps: float = 0.001

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if weights in ("horvitz_thompson", "selector"):
            return (
                "FedExP compares a mean of squares with the square of a mean, whose weights must "
                f'sum to 1; weights = "{weights}" do not. Use "examples" or "uniform"'
            )
        if isinstance(algorithm.aggregator, MeanAndSquare):
            return None
        return (
            "FedExP needs the lengths of the single updates, which the aggregator "
            f"{type(algorithm.aggregator).__name__} does not give; leave aggregator out"
        )

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        d = total["delta"]
        eta = (total["square"] / (2.0 * (d.square().sum() + self.eps))).clamp(min=1.0)
        model = step_model(state, eta * d, total)
        before = state.model.x if "eta" in state.extra else model.x
        return ServerState(model, {"eta": eta, "before": before})

    @override
    def examined(self, state: ServerState) -> ServerState:
        model = state.model
        before = state.extra.get("before", model.x)
        mean = (model.x.double() + before.double()) / 2.0
        return ServerState(
            ModelState(mean.to(model.x.dtype), model.buffers, model.counters), state.extra
        )

    @override
    def notes(self, state: ServerState) -> Mapping[str, float]:
        return {"server_lr": float(state.extra.get("eta", torch.ones(1)))}


@dataclass(frozen=True)
class FedExP(Method):
    """Averaging with an extrapolated server step: option ``eps`` (0.001; the paper has 0.1 for
    EMNIST)."""

    paper: ClassVar[Paper] = cite("jhunjhunwala2023fedexp")
    eps: float = 0.001

    def __post_init__(self) -> None:
        if not 0 < self.eps < float("inf"):
            raise ConfigError(f"got eps = {self.eps}; expected a positive number")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(aggregator=MeanAndSquare(), server=Extrapolation(self.eps))
