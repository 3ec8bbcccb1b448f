"""What is fixed about a run, and what a caller is told of a round."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from torch import Tensor

from motley.algorithms.parts import ExtraExchange, Parts, ServerContext
from motley.algorithms.schedules import ConstantSchedule, Schedule
from motley.algorithms.weights import Weighting, own_weights
from motley.core.arrays import Floats, Ids
from motley.core.bounds import Count, NotNegative, Positive
from motley.core.records import SIGNALS
from motley.engines.engine import Setting
from motley.rounds.guard import Guard
from motley.selectors.selector import Selector
from motley.tasks.task import ModelState
from motley.timing.stragglers import Stragglers
from motley.timing.synchrony import Synchrony
from motley.transport.upload_config import UploadConfig
from motley.world.interfaces import World

ClientLosses = Callable[[Sequence[int], Sequence[ModelState]], Tensor]


Target = dict[str, Positive]
"""Metric -> what is good enough, on the common test set where there is one, else in the mean over
clients: shares (``accuracy``, ``macro_f1``, ...) in (0, 1] and ``r2`` are reached from below,
losses and errors from above."""


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
    """Figures by metric, ``{ accuracy = 0.9 }``: end as soon as an evaluation reaches one (on the
    common test set, else in the mean over clients). The untrained model's ends no run."""
    patience: Count | None = None
    """Early stopping: end after so many evaluations (``evaluate.every``) in a row whose figure on
    the clients' validation samples (``split.validation``) is no better than the best before."""
    metric: str | None = None
    """The metric that ``patience`` waits for; left out: the headline."""

    @property
    def ends_surely(self) -> bool:
        """Whether a limit comes nearer with every server step."""
        return self.rounds is not None or self.patience is not None

    @property
    def by_scores(self) -> bool:
        """Whether evaluations may end the run."""
        return self.target is not None or self.patience is not None

    def reached(self, version: int, now_s: float, uplink_bits: float) -> bool:
        """Return whether any limit that no evaluation decides is reached after ``version`` server
        steps."""
        return (
            (self.rounds is not None and version >= self.rounds)
            or (self.virtual_hours is not None and now_s >= 3600 * self.virtual_hours)
            or (self.uplink_gb is not None and uplink_bits >= 8e9 * self.uplink_gb)
        )


@dataclass(frozen=True)
class EvaluationSchedule:
    """When the model is evaluated: every so many server steps, and at the end; what of new
    clients."""

    every: Count = 10
    """Server steps between evaluations."""
    per_client: bool = True
    """One row per client, too."""
    diagnostics: Literal[False, True, "batches"] = False
    """Measure in these steps, in the first and in step ``stop.rounds``, what papers assume: how far
    clients' gradients and models lie apart, what compression loses; ``"batches"``: also gradients
    of single mini-batches. Costs wall time (a gradient of every client), no virtual time and no
    traffic, and changes no result."""
    batch_size: Count | None = None
    """Samples of a forward pass in the evaluation of a model or a loss that looks at its whole
    batch; left out: all of a client's."""
    adapt_epochs: tuple[NotNegative, ...] = (0, 1, 5)
    """Epochs for which new clients (``split.holdout_clients``) adapt the model before they are
    examined, at the end."""

    def due(self, version: int) -> bool:
        """Return whether the model is evaluated after so many server steps, wherever the run
        ends."""
        return version % self.every == 0


@dataclass(frozen=True)
class Recalibrate:
    """BatchNorm statistics estimated after each server step by clients that took part; uploads
    leave theirs out.

    Where training has no such statistics, they are estimated before an examination instead, by
    clients drawn from all of them."""

    batches: Count = 20
    """Batches in all."""
    clients: Count = 3
    """At most so many clients, those dispatched first."""
    cumulative: bool = False
    """Forget the statistics before and weigh all batches alike; else they go on with the momentum
    of the model's layers."""


class PrivatePlan(Protocol):
    """What is fixed about the privacy of a run, as far as the round loop knows of it."""

    @property
    def divisor(self) -> float:
        """The fixed number that sums are divided by."""

    @property
    def noised_by_clients(self) -> bool:
        """Whether clients add the noise of a sum."""

    @property
    def cohorts_hidden(self) -> bool:
        """Whether the account counts on cohorts that nobody sees."""

    def stage(self, empty: Parts) -> Any:
        """Return a new :class:`~motley.rounds.stage.PrivateStage`; ``empty``: an upload whose model
        did not move."""

    def record(self, simulated: bool, secret: bytes | None = None) -> dict[str, Any]:
        """Return the claim for ``run.json``.

        Parameters
        ----------
        simulated: whether the clients are.
        secret: that the noise is drawn from, to which the record holds a commitment.
        """


class MakesStage(Protocol):
    """What makes a stage of a run (:class:`~motley.rounds.stage.StageOptions`)."""

    def make(self) -> Any:
        """Return a new stage."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that is fixed about a run.

    Parameters
    ----------
    setting: what is trained.
    world: devices, network, availability, failures, drift.
    synchrony: when the server steps.
    cohort: m, clients asked per round.
    stop: when the run ends.
    weights: how much each update counts.
    schedule: factor on the learning rate by server step.
    evaluate: when the model is evaluated.
    probe_batches: batches a probe measures per candidate instead of what the rule asks for; 0 means
    all, None: as the rule asks.
    measured_speeds: the server knows of its clients' speed what it measured when they delivered
    last, as in a deployment; else what they take in this round.
    server_context: what the server rule may use besides uploads (network, public and validation
    samples); None: nothing.
    stragglers: clients that do part of their work; None: none.
    upload_config: how updates are compressed and budgeted.
    recalibrate: how BatchNorm statistics are estimated where uploads leave them out; None: clients'
    own are averaged.
    guard: which steps the server refuses; None: none.
    privacy: clip, noise and caps; None: nothing is private.
    stage: makes a stage that is called after all others; None: none.
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
    measured_speeds: bool = False
    server_context: ServerContext | None = None
    stragglers: Stragglers | None = None
    upload_config: UploadConfig = field(default_factory=UploadConfig)
    recalibrate: Recalibrate | None = None
    guard: Guard | None = field(default_factory=Guard)
    privacy: PrivatePlan | None = None
    stage: MakesStage | None = None

    @cached_property
    def pool(self) -> int:
        """The number of clients that rounds may ask."""
        return self.setting.task.federation.pool

    def lr(self, version: int) -> float:
        """Return the learning rate of local steps from this version of the model, before factors of
        single clients."""
        horizon = self.stop.rounds if self.schedule.horizon else None
        return self.setting.solver.lr * self.schedule.factor(version + 1, horizon)

    def reached(
        self,
        version: int,
        now_s: float,
        uplink_bits: float,
        scores: Mapping[str, float],
        waited: Mapping[str, int],
    ) -> bool:
        """Return whether any limit of ``stop`` is reached; an unknown score (NaN) reaches no
        target.

        Parameters
        ----------
        version: server steps so far.
        now_s: the clock.
        uplink_bits: uploaded, on the papers' account.
        scores: metrics of an evaluation.
        waited: by metric, evaluations in a row without a better figure on validation samples.
        """
        if self.stop.reached(version, now_s, uplink_bits):
            return True
        return self.stop.by_scores and self._scores_reached(scores, waited)

    def _scores_reached(self, scores: Mapping[str, float], waited: Mapping[str, int]) -> bool:
        """Return whether a target or the patience is reached; arguments as of :meth:`reached`."""
        watched = self.stop.metric or self.setting.task.metric
        if self.stop.patience is not None and waited.get(watched, 0) >= self.stop.patience:
            return True
        wanted = [
            (name, value, scores.get(name, math.nan))
            for name, value in (self.stop.target or {}).items()
        ]
        return any(
            score >= value if self.higher_is_better(name) else score <= value
            for name, value, score in wanted
        )

    def keeps_best(self, version: int) -> bool:
        """Return whether the model after so many server steps may be kept as the best: never in a
        private run, where validation samples are clients' clear data."""
        return self.privacy is None and self.evaluate.due(version)

    def higher_is_better(self, metric: str) -> bool:
        """Return whether more of a metric of this run is better."""
        directions = {
            task_metric.name: task_metric.higher_is_better
            for task_metric in self.setting.task.metrics
        }
        return directions.get(metric, metric != "loss")

    def probed(self, selector: Selector[Any]) -> dict[str, int | None]:
        """Return the signals that clients measure before a choice, and on how many batches (None:
        all data)."""
        wanted = {
            name: batches
            for name, batches in selector.rule.needs().probed.items()
            if SIGNALS[name].kind != "channel"
        }
        if self.probe_batches is None:
            return wanted
        return dict.fromkeys(wanted, self.probe_batches or None)

    def extra_exchange(self) -> ExtraExchange:
        """Return what the server rule asks of every participant in a round besides download, local
        work and upload."""
        public = None if self.server_context is None else self.server_context.public
        classes = self.setting.task.federation.classes or 0
        return self.setting.algorithm.server.extra_exchange(
            0 if public is None else len(public), classes
        )

    def dispatch_numbers(self, dispatch: int, draw_index: int, ids: Ids) -> Ids:
        """Return the numbers ``[m]`` of a cohort's dispatches, after so many (``dispatch``) and in
        this choice (``draw_index``, from 1). Clients draw their batches by them: where a cohort is
        to be hidden, none depends on who else is asked."""
        if self.privacy is not None and self.privacy.cohorts_hidden:
            return draw_index * len(self.setting.task.federation) + ids
        return dispatch + np.arange(len(ids))

    def own_weights(self, examples: Ids) -> Floats:
        """Return the own weights of clients with so many samples, ``[n]``; see
        :func:`motley.algorithms.weights.own_weights`."""
        return own_weights(self.weights, examples)

    def context_at(
        self,
        version: int,
        accepted: int,
        losses: ClientLosses | None,
        own_weights: tuple[float, float] | None,
    ) -> ServerContext:
        """Return what the server rule may use in server step ``version`` (from 0).

        Parameters
        ----------
        accepted: number of uploads aggregated.
        losses: asks clients for the loss of models on their own training samples; None for a server
        rule that does not say that it asks.
        own_weights: as in :class:`~motley.algorithms.parts.ServerContext`.
        """
        context = self.server_context or ServerContext(self.setting.task.layout, self.pool, 0)
        key = self.setting.streams.key("server").fold(version)
        return dataclasses.replace(
            context, accepted=accepted, key=key, losses=losses, own_weights=own_weights
        )


@dataclass(frozen=True)
class RoundSummary:
    """What a caller is told of one server step.

    Parameters
    ----------
    round: its number, from 1.
    time_s: the clock.
    accepted: uploads aggregated.
    train_loss: their mean training loss.
    score: the newest headline metric (accuracy, or loss in regression).
    selections: calls of ``select`` so far.
    asked: clients sent out since the last step, in the order of their dispatches.
    total_bits: all traffic since the start.
    """

    round: int
    time_s: float
    accepted: int
    train_loss: float
    score: float
    selections: int
    asked: tuple[int, ...] = ()
    total_bits: int = 0
