"""A moving average of the server's model, examined beside it.

    a <- decay a + (1 - decay) x       after every server step; a starts at the first model

Symbols: ``x`` the server's model, ``a`` its average. Nothing is trained from the average and nobody
is sent it: the run goes on as it would without. Its figures are rows of the table ``evaluations``
in the scopes ``server_average`` (the common test set) and ``server_average_mean`` (the mean over
the clients' own test samples). Buffers and counters are those of the server's model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import ServerState
from motley.core.errors import ConfigError
from motley.rounds.round import Round
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import Stage, StageOptions
from motley.rounds.state import RunState
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class ServerAverage(StageOptions):
    """Examines a moving average of the server's model beside it."""

    decay: float = 0.9
    """Weight of the average so far, in [0, 1)."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ConfigError(f"got decay = {self.decay}; expected at least 0 and less than 1")

    @override
    def make(self) -> Stage:
        return _Averaging(self.decay)


class _Averaging(Stage):
    name = "server_average"

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.average = torch.zeros(0)

    @override
    def init(self, config: RunConfig, server: ServerState) -> None:
        self.average = server.model.x.double()

    @override
    def save(self, state: RunState[Any]) -> Mapping[str, Tensor]:
        return {"average": self.average}

    @override
    def restore(self, state: RunState[Any], saved: Mapping[str, Any]) -> None:
        self.average = torch.from_numpy(saved["average"]).to(self.average.device)

    @override
    def after(self, state: RunState[Any], step: Round) -> None:
        self.average = self.decay * self.average + (1 - self.decay) * state.server.model.x.double()

    @override
    def models(self, state: RunState[Any]) -> Mapping[str, ModelState]:
        model = state.server.model
        return {self.name: dataclasses.replace(model, x=self.average.to(model.x.dtype))}
