"""Learning: the accepted uploads of a round become one total, and the server steps on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from motley.algorithms.parts import (
    Aggregator,
    ClientState,
    ServerContext,
    ServerState,
    Tensors,
    Upload,
)
from motley.algorithms.weights import divide_by
from motley.core.arrays import Ids
from motley.core.errors import ConfigError
from motley.core.own_code import definition
from motley.core.records import Outcome
from motley.core.server_signals import Value
from motley.engines.engine import Engine, TrainResult, client_losses
from motley.rounds.backend import ClientBackend
from motley.rounds.data_drift import data_views_now
from motley.rounds.refusals import Refusals
from motley.rounds.round import ReceivedUpload, Round
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import Arrived, Stages
from motley.rounds.state import RunState
from motley.rounds.upload_pipeline import UploadPipeline
from motley.rounds.worker_sums import WorkerSums

Rehearse = Callable[[Round, Tensors], Round]
"""Round and the message of a rehearsed model -> the round after its candidates measured it."""


@dataclass(frozen=True)
class Learning:
    """Aggregates a round's uploads and updates the model.

    Parameters
    ----------
    config, engine, backend, stages: of the run.
    pipeline: of a run that compresses updates; None: it sends them as they are.
    refusals: of the guard; None: every step is accepted.
    """

    config: RunConfig
    engine: Engine
    backend: ClientBackend[Any]
    pipeline: UploadPipeline | None
    stages: Stages
    refusals: Refusals | None

    @cached_property
    def sums(self) -> WorkerSums | None:
        """Gathers uploads as sums, where the engine has workers that may send them."""
        if self.engine.worker_shape is None:
            return None
        return WorkerSums(self.config, self.engine, self.stages)

    @cached_property
    def asks_clients(self) -> bool:
        """Whether the server rule asks participants after their uploads."""
        return self.config.setting.algorithm.server.asks_clients

    @cached_property
    def noised_by_clients(self) -> bool:
        """Whether clients add the noise of a private run, also one whose update is not finite."""
        plan = self.config.privacy
        return plan is not None and plan.noised_by_clients

    def learn(self, state: RunState[Any], step: Round, rehearse: Rehearse) -> Round:
        """Return the round with outcomes, results of training and the total that the server stepped
        on; of a rehearsal the model is discarded once it is measured."""
        rule = self.config.setting.algorithm.server
        step = self._gather(state, step)
        if step.landed.dispatches.columns["rehearsal"].any():
            return self._rehearsed(state, step, rehearse)
        if self.noised_by_clients and not step.total:  # too few are left to open a sum
            return step.told(step.accepted, Outcome.REJECTED)
        while step.total:
            own = step.client_states()
            context = self.context(state, step, step.usable)
            server, states = rule.update_with_clients(state.server, step.total, own, context)
            if self.refusals is None:
                return self._stepped(state, step, server, states)
            step, refused = self.refusals.judged(state, step, server)
            if not refused:
                return self._stepped(state, step, server, states)
            step, shown = self.refusals.dropped(state, step)
            for stage in self.stages.blamed:
                for blamed in shown:
                    stage.blamed(state, step, blamed)
            if len(step.accepted):
                step = self._gather(state, step)
        return step

    def _rehearsed(self, state: RunState[Any], step: Round, rehearse: Rehearse) -> Round:
        """Return the round of a rehearsal, whose candidates measure the model that it makes."""
        algorithm = self.config.setting.algorithm
        accepted = step.accepted
        step = step.told(accepted, Outcome.REHEARSED)
        if not step.total:
            return step
        context = self.context(state, step, accepted)
        model = algorithm.server.update(state.server, step.total, context)
        return rehearse(step, algorithm.local.download(model))

    def _gather(self, state: RunState[Any], step: Round) -> Round:
        """Return the round with the total of its accepted uploads; one that is not finite becomes
        rejected."""
        for stage in self.stages.gather:
            stage.gather(state, step)
        private = self.config.privacy is not None
        aggregator = self.config.setting.algorithm.aggregator
        uploads: Iterable[tuple[int, ReceivedUpload]]
        if self.sums is None:
            accumulator = aggregator.init()
            results: dict[int, TrainResult] = {}
            uploads = self.backend.uploads(state.moment, step.landed, step.accepted).single or ()
        else:
            accumulator, results, uploads = self.sums.gathered(
                self.backend, state.moment, step.landed, step.accepted
            )
        clients = step.landed.dispatches.timelines.client
        own = self.config.own_weights(self.backend.sizes(state.moment).claimed[clients])
        for position, (row, received) in enumerate(uploads):
            signals: Mapping[str, Value] = {}
            if received.result.finite or self.noised_by_clients:
                arrived = self._arrived(
                    state,
                    step,
                    row=row,
                    received=received,
                    position=position,
                    own_weight=float(own[row]),
                )
                accumulator = aggregator.add(accumulator, arrived.upload)
                signals = arrived.signals
            results[row] = _without_upload(received.result, signals)
        # a private sum has a fixed divisor
        divisor = "none" if private else divide_by(self.config.weights)
        total = aggregator.finish(accumulator, divisor)
        if not isinstance(total, Mapping):
            raise _no_totals(aggregator, total)
        step = dataclasses.replace(step, results={**step.results, **results}, total=total)
        failed = [row for row, result in results.items() if not result.finite]
        if failed:
            # a private run hears of an upload that adds nothing as of any
            outcome = Outcome.ACCEPTED if private else Outcome.REJECTED
            step = step.told(np.array(failed), outcome)
        for stage in self.stages.total:
            step = stage.total(state, step)
        return step

    def _arrived(
        self,
        state: RunState[Any],
        step: Round,
        *,
        row: int,
        received: ReceivedUpload,
        position: int,
        own_weight: float,
    ) -> Arrived:
        """Return an upload with its weights, as the stages let it enter the sum."""
        dispatches = step.landed.dispatches
        result = received.result
        upload = Upload(
            parts=result.parts,
            weight=float(dispatches.columns["weight"][row]),
            scale=1.0,
            client=result.client,
            position=position,
            own_weight=own_weight,
        )
        download = state.downloads[int(dispatches.timelines.version[row])]
        arrived = Arrived(row, received, download, upload)
        for stage in self.stages.upload:
            arrived = stage.upload(state, step, arrived)
        return arrived

    def _stepped(
        self,
        state: RunState[Any],
        step: Round,
        server: ServerState,
        client_states: Mapping[int, ClientState],
    ) -> Round:
        """Make a step final, for the server and for the clients whose uploads are in it."""
        state.server = server
        state.model_updates += 1
        step = step.noted(self.config.setting.algorithm.server.notes(server))
        for stage in self.stages.after:
            stage.after(state, step)
        if self.pipeline is not None:
            client_states = self.pipeline.commit(state.clients.client_states, client_states)
        rows = np.array(step.usable, np.int64)
        self.backend.commit(step.landed, rows, client_states)
        return step

    def context(
        self, state: RunState[Any], step: Round, rows: Sequence[int] | Ids
    ) -> ServerContext:
        """Return what the server rule may use; ``rows``: of the uploads in the total, of whose
        number a private run tells it the fixed divisor."""
        plan = self.config.privacy
        accepted = len(rows) if plan is None else max(1, round(plan.divisor))
        losses = None
        if self.asks_clients:
            views = data_views_now(self.backend.drift, state)
            losses = partial(client_losses, self.engine, data_views=views)
        sums = None
        if plan is None and self.config.weights == "examples":
            counted = self.backend.sizes(state.moment).claimed
            clients = step.landed.dispatches.timelines.client[rows]
            # at least 1: clients may claim to have none, and then their sums are 0, too
            sums = max(float(counted[clients].sum()), 1.0), max(float(counted.sum()), 1.0)
        return self.config.context_at(state.version, accepted, losses, sums)


def _no_totals(aggregator: Aggregator, total: object) -> ConfigError:
    """Return the error that an aggregator of one's own returned no totals."""
    name = definition(aggregator) or type(aggregator).__name__
    return ConfigError(
        f'finish of {name} returned {total!r}; expected the totals by part, {{"delta": ...}}',
        "aggregator",
    )


def _without_upload(result: TrainResult, signals: Mapping[str, Value]) -> TrainResult:
    """Return a training result without its upload, with the signals that the server computes from
    it; nothing stays of one that is not finite."""
    if not result.finite:
        return dataclasses.replace(result, parts={}, client_state=None)
    return dataclasses.replace(result, parts={}, signals={**result.signals, **signals})
