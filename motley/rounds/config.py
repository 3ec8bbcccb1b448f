"""What is fixed about a run, and what a caller is told of a round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Gt, Le
from torch import Tensor

from motley.algorithms.base import ExtraExchange, ServerContext
from motley.algorithms.schedules import ConstantSchedule, Schedule
from motley.algorithms.weights import Weighting
from motley.core.bounds import Count, Positive
from motley.engines.base import Setting
from motley.rounds.guard import Guard
from motley.selectors.base import Selector
from motley.tasks.base import ModelState
from motley.timing.stragglers import Stragglers
from motley.timing.synchrony import Synchrony
from motley.transport.upload_config import UploadConfig
from motley.world.base import World

__all__ = ["EvaluationSchedule", "Recalibrate", "RoundSummary", "RunConfig", "Stop", "Target"]

ClientLosses = Callable[[Sequence[int], Sequence[ModelState]], Tensor]


@dataclass(frozen=True)
class Target:
    """What is good enough, on the global test set where there is one, else on the mean over the clients' own. One is needed."""

    accuracy: Annotated[float, Gt(0), Le(1)] | None = None
    """Share of correct answers, reached from below."""
    loss: Positive | None = None
    """Mean loss, reached from above (for tasks without accuracy)."""

    @property
    def empty(self) -> bool:
        """Whether neither figure is given."""
        return self.accuracy is None and self.loss is None

    def reached(self, score: float) -> bool:
        """Return whether the headline metric reaches one of the figures; an unknown score (NaN) reaches none."""
        return (self.accuracy is not None and score >= self.accuracy) or (self.loss is not None and score <= self.loss)


@dataclass(frozen=True)
class Stop:
    """When a run ends: at the first of the limits given. At least one is needed."""

    rounds: Count | None = None
    """Rounds (server steps)."""
    virtual_hours: Positive | None = None
    """Hours of virtual time; the run ends with the first server step at or after it."""
    uplink_gb: Positive | None = None
    """Uploaded traffic in 10^9 bytes, in the papers' accounting."""
    target: Target | None = None
    """End as soon as an evaluation reaches this."""

    def reached(self, version: int, now_s: float, uplink_bits: float, score: float) -> bool:
        """Return whether any limit is reached after ``version`` server steps; ``score`` is the newest headline metric."""
        return (
            (self.rounds is not None and version >= self.rounds)
            or (self.virtual_hours is not None and now_s >= 3600 * self.virtual_hours)
            or (self.uplink_gb is not None and uplink_bits >= 8e9 * self.uplink_gb)
            or (self.target is not None and self.target.reached(score))
        )


@dataclass(frozen=True)
class EvaluationSchedule:
    """When the model is evaluated: every so many server steps, and at the end."""

    every: Count = 10
    """Server steps between evaluations."""
    per_client: bool = True
    """One row per client, too."""
    diagnostics: bool = False
    """Measure in these steps, and in the first, what papers assume: how far clients' gradients and models lie apart, what
    compression loses. Costs wall time (a gradient of every client), no virtual time and no traffic, and changes no result."""

    def due(self, version: int) -> bool:
        """Return whether the model is evaluated after so many server steps, wherever the run ends."""
        return version % self.every == 0


@dataclass(frozen=True)
class Recalibrate:
    """BatchNorm statistics estimated after each server step by clients that took part; uploads leave theirs out."""

    batches: Count = 20
    """Batches in all."""
    clients: Count = 3
    """At most so many clients, those dispatched first."""


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
    guard: which steps the server refuses; None: none.
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
    guard: Guard | None = field(default_factory=Guard)

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
