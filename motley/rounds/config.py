"""What is fixed about a run, and what a caller sees of a round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from motley.algorithms.base import ServerContext
from motley.algorithms.schedules import ConstantSchedule, Schedule
from motley.algorithms.weights import Weighting
from motley.engines.base import Setting
from motley.rounds.evaluation import EvaluationSchedule
from motley.rounds.stop import Stop
from motley.selectors.base import Selector
from motley.timing.stragglers import Stragglers
from motley.timing.synchrony import Synchrony
from motley.transport.upload_config import UploadConfig
from motley.world.base import World

__all__ = ["Recalibrate", "Round", "RunConfig"]


@dataclass(frozen=True)
class Recalibrate:
    """BatchNorm statistics made after each server step from so many ``batches`` in all, of at most so many ``clients``."""

    batches: int = 20
    clients: int = 3


@dataclass(frozen=True)
class RunConfig:
    """What is fixed about a run.

    Parameters
    ----------
    setting: what is trained. world, synchrony: under which conditions, and when the server steps. cohort: m. stop: when it ends.
    weights: how much each update counts. schedule: factor on the learning rate by server step. examine: when to look.
    probe_batches: batches a probe measures per candidate instead of what the rule asks for; 0 means all.
    stragglers: who works less in a round; None: nobody.
    shipping: how updates travel. recalibrate: how BatchNorm statistics are made where uploads leave them out; None: they do not.
    room: what the server rule may use beside uploads (network, public and validation samples); None: nothing.
    """

    setting: Setting
    world: World
    synchrony: Synchrony
    cohort: int
    stop: Stop
    weights: Weighting = "examples"
    schedule: Schedule = field(default_factory=ConstantSchedule)
    examine: EvaluationSchedule = field(default_factory=EvaluationSchedule)
    probe_batches: int | None = None
    room: ServerContext | None = None
    stragglers: Stragglers | None = None
    upload_config: UploadConfig = field(default_factory=UploadConfig)
    recalibrate: Recalibrate | None = None

    def probed(self, selector: Selector[Any]) -> dict[str, int | None]:
        """Signals measured before a choice, and on how many batches (None: all data)."""
        asked = dict(selector.rule.needs().probed)
        return asked if self.probe_batches is None else dict.fromkeys(asked, self.probe_batches or None)


@dataclass(frozen=True)
class Round:
    """What a caller sees of one server step: the round in which it fell, the clock, how many took part, their loss, the newest
    headline figure (accuracy, or loss in regression), and its own number."""

    round: int
    time_s: float
    accepted: int
    train_loss: float
    score: float
    step: int
