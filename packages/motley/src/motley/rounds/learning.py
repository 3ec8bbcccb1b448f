"""Learning: the accepted uploads of a round become one total, and the server steps on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from motley.algorithms.parts import ClientState, ServerContext, ServerState, Tensors, Upload
from motley.algorithms.weights import divide_by
from motley.core.arrays import Ids
from motley.core.records import Outcome
from motley.core.server_signals import Value
from motley.engines.engine import Engine, TrainResult, client_losses
from motley.rounds.backend import ClientBackend
from motley.rounds.diagnostics import CompressionError
from motley.rounds.refusals import Refusals
from motley.rounds.round import Round
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import Arrived, Stage
from motley.rounds.state import RunState
from motley.rounds.upload_pipeline import ReceivedUpload, UploadPipeline
from motley.rounds.worker_sums import WorkerSums, unusable

__all__ = ["Learning"]

Rehearse = Callable[[Round, Tensors], Round]
"""Round and the message of a rehearsed model -> the round after its candidates measured it."""


@dataclass(frozen=True)
class Learning:
    """Aggregates a round's uploads and updates the model.

    Parameters
    ----------
    config, engine, backend, pipeline: of the run. stages: in their order. refusals: of the guard;
    None: every step is accepted.
    """

    config: RunConfig
    engine: Engine
    backend: ClientBackend
    pipeline: UploadPipeline
    stages: Sequence[Stage]
    refusals: Refusals | None

    @cached_property
    def sums(self) -> WorkerSums:
        """Gathers uploads, as sums where nothing looks at a single one."""
        return WorkerSums(self.config, self.engine, self.stages)

    @property
    def noised_by_clients(self) -> bool:
        """Whether clients add the noise of a private run, also one whose update is not finite."""
        plan = self.config.privacy
        return plan is not None and plan.client_noise is not None

    def learn(self, state: RunState, step: Round, rehearse: Rehearse) -> Round:
        """Return the round with outcomes, results of training and the total that the server stepped
        on; of a rehearsal the model is discarded once it is measured."""
        algorithm = self.config.setting.algorithm
        step = self._gather(state, step, step.error)
        accepted = step.accepted
        if step.landed.dispatches.columns["rehearsal"].any():
            step = step.told(accepted, Outcome.REHEARSED)
            if not step.total:
                return step
            context = self._context(state, step, accepted)
            rehearsed = algorithm.server.update(state.server, step.total, context)
            return rehearse(step, algorithm.local.download(rehearsed))
        if self.noised_by_clients and not step.total:  # too few are left to open a sum
            return step.told(accepted, Outcome.REJECTED)
        while step.total:
            own = step.client_states()
            context = self._context(state, step, step.usable)
            server, states = algorithm.server.update_with_clients(
                state.server, step.total, own, context
            )
            if self.refusals is None:
                return self._stepped(state, step, server, states)
            step, refused = self.refusals.judged(state, step, server)
            if not refused:
                return self._stepped(state, step, server, states)
            step = self.refusals.dropped(state, step)
            if len(step.accepted):
                step = self._gather(state, step, None)
        return step

    def _gather(self, state: RunState, step: Round, error: CompressionError | None) -> Round:
        """Return the round with the total of its accepted uploads; one that is not finite becomes
        rejected. ``error``: as in :meth:`ClientBackend.uploads`."""
        state.last_updates.discard()
        compressed: dict[int, Tensors] = {}
        changes = None
        private = self.config.privacy is not None
        aggregator = self.config.setting.algorithm.aggregator
        accumulator, results, uploads = self.sums.gathered(
            self.backend, state, step.landed, step.accepted, error
        )
        clients = step.landed.dispatches.timelines.client
        own = self.config.own_weights(self.backend.claimed_examples(state)[clients])
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
            if received.client_state is not None:
                compressed[received.result.client] = received.client_state
            changes = self.pipeline.add_change(changes, received)
        step = dataclasses.replace(
            step,
            results={**step.results, **results},
            # a private sum has a fixed divisor
            total=aggregator.finish(
                accumulator, "none" if private else divide_by(self.config.weights)
            ),
            compressed=compressed,
            changes=changes,
        )
        # a private run hears of an upload that adds nothing as of any
        outcome = Outcome.ACCEPTED if private else Outcome.REJECTED
        step = step.told(unusable(results), outcome)
        for stage in self.stages:
            step = stage.total(state, step)
        total = self.pipeline.server_total(state, step.total, changes)
        return dataclasses.replace(step, total=total)

    def _arrived(
        self,
        state: RunState,
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
            result.parts,
            float(dispatches.columns["weight"][row]),
            1.0,
            result.client,
            position,
            own_weight,
        )
        download = state.downloads[int(dispatches.timelines.version[row])]
        arrived = Arrived(row, received, download, upload)
        for stage in self.stages:
            arrived = stage.upload(state, step, arrived)
        return arrived

    def _stepped(
        self,
        state: RunState,
        step: Round,
        server: ServerState,
        client_states: Mapping[int, ClientState],
    ) -> Round:
        """Make a step final, for the server and for the clients whose uploads are in it."""
        state.server = server
        step = step.noted(self.config.setting.algorithm.server.notes(server))
        for stage in self.stages:
            stage.after(state, step)
        state.model_updates += 1
        if step.changes is not None:
            state.mean_vector = step.total["delta"].double().cpu()
        rows = np.array(step.usable, np.int64)
        kept = self.pipeline.commit(state, client_states, step.compressed)
        self.backend.commit(state, step.landed, rows, kept)
        state.server = self.backend.recalibrate(state, step.landed, rows)
        return step

    def _context(self, state: RunState, step: Round, rows: Sequence[int] | Ids) -> ServerContext:
        """Return what the server rule may use; ``rows``: of the uploads in the total, of whose
        number a private run tells it the fixed divisor."""
        plan = self.config.privacy
        known = len(rows) if plan is None else max(1, round(plan.divisor))
        views = partial(self.backend.data_view, state)
        asks = self.config.setting.algorithm.server.asks_clients
        losses = partial(client_losses, self.engine, data_views=views) if asks else None
        sums = None
        if plan is None and self.config.weights == "examples":
            counted = self.backend.claimed_examples(state)
            asked = step.landed.dispatches.timelines.client[rows]
            # at least 1: clients may claim to have none, and then their sums are 0, too
            sums = max(float(counted[asked].sum()), 1.0), max(float(counted.sum()), 1.0)
        return self.config.context_at(state.version, known, losses, sums)


def _without_upload(result: TrainResult, signals: Mapping[str, Value]) -> TrainResult:
    """Return a training result without its upload, with the signals that the server computes from
    it; nothing stays of one that is not finite."""
    if not result.finite:
        return dataclasses.replace(result, parts={}, client_state=None)
    return dataclasses.replace(result, parts={}, signals={**result.signals, **signals})
