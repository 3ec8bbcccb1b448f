"""Choosing: who takes part in a round and with what work, and what the selector is told of
clients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from motley.algorithms.parts import Tensors
from motley.algorithms.weights import raw_weights
from motley.core.arrays import Floats, Ids
from motley.core.records import Cohort, Outcome, Reports
from motley.rounds import probing
from motley.rounds.backend import ClientBackend, DispatchOrder
from motley.rounds.channel import Allocation, Channel, whole_shares
from motley.rounds.round import Round
from motley.rounds.rows import choice_rows
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import ChosenCohort, Stages
from motley.rounds.state import RunState
from motley.rounds.stopwatch import Stopwatch
from motley.rounds.upload_pipeline import UploadPipeline
from motley.rounds.upload_signals import UploadSignals
from motley.tasks.task import ModelState
from motley.timing.synchrony import Dispatch


@dataclass(frozen=True)
class Choosing:
    """Enrols clients, has candidates measured, asks the selector, sends its cohort out, and lets it
    hear reports.

    Parameters
    ----------
    config, backend, channel, watch, signals, stages: of the run.
    pipeline: compresses updates; None: they are sent as they are.
    newcomer: returns what a client that never took part would start from.
    """

    config: RunConfig
    backend: ClientBackend[Any]
    channel: Channel
    pipeline: UploadPipeline | None
    watch: Stopwatch
    signals: UploadSignals
    stages: Stages
    newcomer: Callable[[RunState[Any]], ModelState]

    def enrol(self, state: RunState[Any], ids: Ids) -> None:
        """Tell the selector of clients that were never met before."""
        if not len(ids):
            return
        setting = self.config.setting
        wanted = state.selector.rule.needs().enrolled
        # of millions of clients every column counts: none is kept that is not told
        columns = dict(self.backend.enrol(state.moment, ids, wanted))
        if "last_layer" in wanted:
            columns["last_layer"] = probing.last_layer(
                self.newcomer(state), setting.task.layout, len(ids)
            )
        # a set of names has another order in every process, and reports are saved
        signals = {name: columns[name] for name in sorted(wanted)}
        del columns
        examples = self.backend.sizes(state.moment).examples[ids]
        steps = setting.work.total(examples, ids).astype(np.float64)
        reports = Reports(
            ids,
            Outcome.ENROLLED,  # type: ignore[arg-type]  # one for all
            num_examples=examples.astype(np.float64),
            local_steps=steps,
            signals=signals,
        )
        del examples
        self.tell(state, reports, 0)

    def tell(self, state: RunState[Any], reports: Reports, draw_index: int) -> None:
        """Let the selector hear reports.

        Parameters
        ----------
        draw_index: of the state; 0 at enrolment.
        """
        for stage in self.stages.reports:
            reports = stage.reports(state, reports)
        state.selector.observe(draw_index, reports)

    def choose(self, state: RunState[Any], step: Round, decision: Dispatch) -> Round:
        """Return the round with a cohort of as many clients as are asked for, at most, chosen for
        the newest model."""
        count = decision.count
        backend = self.backend
        if not backend.simulated:
            self.enrol(state, backend.newcomers(state.moment))
        next_draws(state)
        state.selections += 1
        state.under_way.asked = True
        state.under_way.asked_s = state.clients.now_s
        with self.watch("select"):
            available = backend.available(state.moment)
            nobody_there = not len(available)
            for stage in self.stages.available:
                available = stage.available(state, available)
            if decision.without:
                available = np.setdiff1d(available, decision.without)
        if state.version not in state.downloads:
            rule = self.config.setting.algorithm.local
            state.downloads = {**state.downloads, state.version: rule.download(state.server)}
        download = state.downloads[state.version]
        with self.watch("select"):
            cohort = self._given(state, available, count) if self.stages.cohort else None
        state.under_way.candidates = available[:0]
        if cohort is None and state.selector.asks_candidates:
            step, available = self._probed(state, step, available, count)
        with self.watch("select"):
            cohort = cohort or state.selector.select(
                state.draw_index, available, count, dispatch=state.dispatch, step=step.number
            )
        row = {"probed": 0, **step.row, "available": len(available)}
        choices = step.choices
        if cohort.client_notes:
            numbers = self.config.dispatch_numbers(state.dispatch, state.draw_index, cohort.ids)
            choices = (*choices, choice_rows(cohort, numbers))
        step = dataclasses.replace(
            step,
            cohort=cohort,
            nobody_there=nobody_there,
            row=row,
            notes=cohort.notes,
            choices=choices,
        )
        choice = ChosenCohort(available, cohort, download)
        for stage in self.stages.chosen:
            step = stage.chosen(state, step, choice)
        return step

    def _probed(
        self, state: RunState[Any], step: Round, available: Ids, count: int
    ) -> tuple[Round, Ids]:
        """Have the selector's candidates measure the newest model, and return the available clients
        but those that did not answer."""
        with self.watch("select"):
            candidates = state.selector.probe(
                state.draw_index, available, count, dispatch=state.dispatch, step=step.number
            )
        state.under_way.candidates = candidates
        if not len(candidates):
            return step, available
        step, silent = self.probe(state, step, state.downloads[state.version], state.version)
        if len(silent):
            available = np.setdiff1d(available, silent, assume_unique=True)
        return step, available

    def _given(self, state: RunState[Any], available: Ids, count: int) -> Cohort | None:
        """Return the cohort that a stage gives; None where the selector chooses."""
        for stage in self.stages.cohort:
            cohort = stage.cohort(state, available, count)
            if cohort is not None:
                return cohort
        return None

    def dispatch(self, state: RunState[Any], step: Round) -> Round:
        """Allocate the cohort's uploads and send it the newest model."""
        cohort = step.cohort
        ids = cohort.ids
        with self.watch("plan"):
            now = state.moment
            sizes = self.backend.sizes(now)
            weight = raw_weights(
                mode=self.config.weights,
                cohort=cohort,
                examples=sizes.claimed[ids],
                total=int(sizes.claimed.sum()),
                population=self.config.pool,
            )
            for stage in self.stages.weights:
                weight = stage.weights(state, ids, weight)
            lr = np.full(len(ids), self.config.lr(state.version))
            columns: dict[str, Any] = {
                "draw_index": state.draw_index,
                "model_updates": state.model_updates,
                "examples": sizes.examples[ids],
                "weight": weight,
                "lr": lr if cohort.lr_scale is None else lr * cohort.lr_scale,
                "rehearsal": cohort.rehearsal,
                "score": np.nan if cohort.scores is None else cohort.scores,
            }
            download = state.downloads[state.version]
            allocate = partial(self.allocated, state, cohort)
            order = DispatchOrder(cohort, download, allocate, columns)
            allocation = self.backend.dispatch(now, order)
            # the probe before it took time of its own, which no deadline counts
            state.under_way.sent_s = state.clients.now_s
            state.dispatch += len(ids)
        dispatched = (*step.dispatched, *ids.tolist())
        budget = float(allocation.budget[-1]) if len(ids) else float("nan")
        row = {**step.row, "budget": budget, "selected": len(dispatched)}
        return dataclasses.replace(step, dispatched=dispatched, row=row)

    def allocated(
        self, state: RunState[Any], cohort: Cohort, workload: Callable[[], Mapping[str, Floats]]
    ) -> Allocation:
        """Return how much each client of a cohort may upload; ``workload``: as for
        :meth:`UploadPipeline.allocate`."""
        if self.pipeline is None:
            channel = self.channel
            return whole_shares(len(cohort.ids), channel.upload_bits, channel.paper_bits)
        return self.pipeline.allocate(state, cohort, workload)

    def probe(
        self, state: RunState[Any], step: Round, download: Tensors, version: float
    ) -> tuple[Round, Ids]:
        """Have the candidates measure a model and tell the selector; return the ids that did not
        answer, too.

        Parameters
        ----------
        version: of the model, NaN for one that is discarded.
        """
        ids = state.under_way.candidates
        wanted = self.config.probed(state.selector)
        # else the server knows everything itself
        asks_clients = bool(wanted) or not self.signals.keeps
        probed = step.row.get("probed", 0) + len(ids) * asks_clients
        step = dataclasses.replace(step, row={**step.row, "probed": probed})
        if not len(ids):
            return step, ids
        answered, signals = (
            self.backend.probe(state.moment, ids, wanted, download) if asks_clients else (ids, {})
        )
        if len(answered):
            with self.watch("select"):
                signals = {**signals, **self.signals.before_choice(answered)}
                reports = Reports(answered, Outcome.PROBED, version=version, signals=signals)  # type: ignore[arg-type]
                self.tell(state, reports, state.draw_index)
        silent = ids[:0] if answered is ids else np.setdiff1d(ids, answered, assume_unique=True)
        return step, silent


def next_draws(state: RunState[Any]) -> None:
    """Let the selector and the world draw anew, for a selection or a server step without one; the
    first of a round starts it."""
    state.draw_index += 1
    if not state.under_way.asked:
        state.under_way.start_s = state.clients.now_s
