"""What is fixed about a run, and what a caller is told of a round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from motley.algorithms.base import ExtraExchange, ServerContext
from motley.algorithms.schedules import ConstantSchedule, Schedule
from motley.algorithms.weights import Weighting
from motley.engines.base import Setting
from motley.rounds.evaluation import EvaluationSchedule
from motley.rounds.stop import Stop
from motley.selectors.base import Selector
from motley.tasks.base import ModelState
from motley.timing.stragglers import Stragglers
from motley.timing.synchrony import Synchrony
from motley.transport.upload_config import UploadConfig
from motley.world.base import World

__all__ = ["Recalibrate", "RoundSummary", "RunConfig"]

ClientLosses = Callable[[Sequence[int], Sequence[ModelState]], Tensor]


@dataclass(frozen=True)
class Recalibrate:
    """BatchNorm statistics are estimated after each server step, from ``batches`` batches in all, of at most ``clients`` clients."""

    batches: int = 20
    clients: int = 3


@dataclass(frozen=True)
class RunConfig:
    """Everything that is fixed about a run.

    Parameters
    ----------
    setting: what is trained. world: devices, network, availability, failures, drift. synchrony: when the server steps.
    cohort: m, clients asked per round. stop: when the run ends.
    weights: how much each update counts. schedule: factor on the learning rate by server step. evaluate: when the model is evaluated.
    probe_batches: batches a probe measures per candidate instead of what the rule asks for; 0 means all, None: as the rule asks.
    server_context: what the server rule may use besides uploads (network, public and validation samples); None: nothing.
    stragglers: clients that do part of their work; None: none. upload_config: how updates are compressed and budgeted.
    recalibrate: how BatchNorm statistics are estimated where uploads leave them out; None: clients' own are averaged.
    """

    setting: Setting
    world: World
    synchrony: Synchrony
    cohort: int
    stop: Stop
    weights: Weighting = "examples"
    schedule: Schedule = field(default_factory=ConstantSchedule)
    evaluate: EvaluationSchedule = field(default_factory=EvaluationSchedule)
    probe_batches: int | None = None
    server_context: ServerContext | None = None
    stragglers: Stragglers | None = None
    upload_config: UploadConfig = field(default_factory=UploadConfig)
    recalibrate: Recalibrate | None = None

    def probed(self, selector: Selector[Any]) -> dict[str, int | None]:
        """Return the signals measured before a choice, and on how many batches (None: all data)."""
        asked = dict(selector.rule.needs().probed)
        return asked if self.probe_batches is None else dict.fromkeys(asked, self.probe_batches or None)

    def extra_exchange(self) -> ExtraExchange:
        """Return what the server rule asks of every participant in a round besides download, local work and upload."""
        public = None if self.server_context is None else self.server_context.public
        classes = self.setting.task.federation.classes or 0
        return self.setting.algorithm.server.extra_exchange(0 if public is None else len(public), classes)

    def context_at(self, version: int, accepted: int, losses: ClientLosses) -> ServerContext:
        """Return what the server rule may use in server step ``version`` (from 0).

        Parameters
        ----------
        accepted: number of uploads aggregated. losses: asks clients for the loss of models on their own training samples.
        """
        given = self.server_context or ServerContext(self.setting.task.layout, len(self.setting.task.federation), 0)
        key = self.setting.streams.key("server").fold(version)
        return dataclasses.replace(given, accepted=accepted, key=key, losses=losses)


@dataclass(frozen=True)
class RoundSummary:
    """What a caller is told of one server step.

    Parameters
    ----------
    round: the round in which it fell. time_s: the clock. accepted: uploads aggregated. train_loss: their mean training loss.
    score: the newest headline metric (accuracy, or loss in regression). step: number of the server step, from 1.
    """

    round: int
    time_s: float
    accepted: int
    train_loss: float
    score: float
    step: int
