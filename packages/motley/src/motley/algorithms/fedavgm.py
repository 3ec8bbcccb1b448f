"""FedAvgM: momentum on the server.

Hsu, Qi, Brown: *Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification*, 2019 (arXiv:1909.06335).

    v <- beta v + total,    x <- x + lr v            total = sum_k a_k delta_k

Symbols: ``beta`` (``momentum``, 0.9), ``lr`` of the server (1). State: ``v`` [D], from 0. Under a
constant total the step grows to ``lr total / (1 - beta)``. HeteRo-Select v2 is this rule with beta
= 0.5 and score weights.

Deviations: none. Buffers are averaged, never given momentum. A round without uploads leaves ``v``
as it was.

>>> from motley.algorithms.fedavgm import Momentum
>>> Momentum(0.5).momentum
0.5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from typing_extensions import override

from motley.algorithms.parts import (
    Algorithm,
    Method,
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
class Momentum(Server):
    """Server momentum: ``v <- momentum v + total;  x <- x + lr v``."""

    paper: ClassVar[Paper] = cite("hsu2019measuring")
    momentum: float = 0.9
    lr: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ConfigError(
                f"got momentum = {self.momentum}; expected at least 0 and less than 1"
            )
        if not 0 < self.lr < float("inf"):
            raise ConfigError(f"got lr = {self.lr}; expected a positive number")

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(model, {"v": torch.zeros_like(model.x, dtype=torch.float64)})

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        v = self.momentum * state.extra["v"] + total["delta"]
        return ServerState(step_model(state, self.lr * v, total), {"v": v})


@dataclass(frozen=True)
class FedAvgM(Method):
    """Averaging with server momentum: options ``momentum`` (0.9) and ``server_lr`` (1.0)."""

    paper: ClassVar[Paper] = cite("hsu2019measuring")
    momentum: float = 0.9
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        Momentum(self.momentum, self.server_lr)  # checks the options

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(server=Momentum(self.momentum, self.server_lr))
