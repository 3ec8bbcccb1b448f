"""Choosing: who takes part in a round and with what work, and what the selector is told of
clients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from motley.algorithms.parts import Tensors
from motley.algorithms.weights import raw_weights
from motley.core.arrays import Ids
from motley.core.records import Outcome, Reports
from motley.rounds import probing
from motley.rounds.backend import ClientBackend, DispatchOrder
from motley.rounds.diagnostics import Diagnostics
from motley.rounds.lies import liars_note
from motley.rounds.round import Round
from motley.rounds.rows import Tables
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import Stage
from motley.rounds.state import RunState
from motley.rounds.stopwatch import Stopwatch
from motley.rounds.upload_pipeline import UploadPipeline
from motley.rounds.upload_signals import UploadSignals
from motley.tasks.task import ModelState

__all__ = ["Choosing", "next_draws"]


@dataclass(frozen=True)
class Choosing:
    """Enrols clients, has candidates measured, asks the selector, sends its cohort out, and lets it
    hear reports.

    Parameters
    ----------
    config, backend, pipeline, watch, tables, signals: of the run. stages: in their order.
    diagnostics: None for none. newcomer: returns what a client that never took part would start
    from.
    """

    config: RunConfig
    backend: ClientBackend
    pipeline: UploadPipeline
    watch: Stopwatch
    tables: Tables
    signals: UploadSignals
    stages: Sequence[Stage]
    diagnostics: Diagnostics | None
    newcomer: Callable[[RunState], ModelState]

    def enrol(self, state: RunState, ids: Ids) -> None:
        """Tell the selector of clients that were never met before."""
        if not len(ids):
            return
        setting = self.config.setting
        wanted = state.selector.rule.needs().enrolled
        # of millions of clients every column counts: none is kept that is not told
        known = dict(self.backend.enrol(state, ids, wanted))
        if "last_layer" in wanted:
            known["last_layer"] = probing.last_layer(
                self.newcomer(state), setting.task.layout, len(ids)
            )
        signals = {name: known[name] for name in sorted(wanted)}
        del known
        examples = self.backend.examples(state)[ids]
        steps = setting.work.total(examples, ids).astype(np.float64)
        reports = Reports(
            ids,
            Outcome.ENROLLED,  # type: ignore[arg-type]  # one for all
            num_examples=examples.astype(np.float64),
            local_steps=steps,
            signals=signals,
        )
        del examples
        self.tell(state, 0, 0, reports)

    def tell(self, state: RunState, number: int, draw_index: int, reports: Reports) -> None:
        """Let the selector hear reports as clients send them, and write what is claimed in them
        beside the truth. ``number``: of the round; 0 at enrolment."""
        reports, claims = self.backend.told(state, draw_index, reports)
        if claims:
            self.tables.write("claims", {"round": number, **claims})
        for stage in self.stages:
            reports = stage.reports(state, reports)
        state.selector.observe(draw_index, reports)

    def choose(self, state: RunState, step: Round, count: int) -> Round:
        """Return the round with a cohort of at most ``count`` clients, chosen for the newest
        model."""
        backend = self.backend
        self.enrol(state, backend.newcomers(state))
        next_draws(state)
        state.selections += 1
        state.asked = True
        state.asked_s = state.clients.now_s
        with self.watch("select"):
            available = backend.available(state)
            nobody_there = not len(available)
            for stage in self.stages:
                available = stage.available(state, available)
        if state.version not in state.downloads:
            rule = self.config.setting.algorithm.local
            state.downloads[state.version] = rule.download(state.server)
        download = state.downloads[state.version]
        with self.watch("select"):
            drawn = backend.drawn(state, available, count)  # looks at no signal
            state.candidates = state.selector.probe(
                state.draw_index, available, 0 if drawn else count, state.dispatch, step.number
            )
        step, silent = self.probe(state, step, download, state.version)
        if len(silent):
            available = np.setdiff1d(available, silent, assume_unique=True)
        with self.watch("select"):
            cohort = drawn or state.selector.select(
                state.draw_index, available, count, state.dispatch, step.number
            )
        row = {**step.row, "available": len(available)}
        step = dataclasses.replace(step, cohort=cohort, nobody_there=nobody_there, row=row)
        if self.diagnostics is None or step.diagnosis is not None:
            return step
        with self.watch("evaluate"):
            views = partial(backend.data_view, state)
            found = self.diagnostics.begin(step.number, download, available, cohort, views)
        return dataclasses.replace(step, diagnosis=found)

    def dispatch(self, state: RunState, step: Round) -> Round:
        """Allocate the cohort's uploads and send it the newest model."""
        setting = self.config.setting
        cohort = step.cohort
        ids = cohort.ids
        with self.watch("plan"):
            workload = self.backend.workload(state, cohort) if self.pipeline.budgeted else {}
            allocation = self.pipeline.allocate(state, cohort, workload)
            claimed = self.backend.claimed_examples(state)
            whole = int(claimed.sum()), setting.task.federation.pool
            weight = raw_weights(self.config.weights, cohort, claimed[ids], *whole)
            for stage in self.stages:
                weight = stage.weights(state, ids, weight)
            lr = np.full(len(ids), self.config.lr(state.version))
            columns: dict[str, Any] = {
                "draw_index": state.draw_index,
                "model_updates": state.model_updates,
                "examples": self.backend.examples(state)[ids],
                "weight": weight,
                "lr": lr if cohort.lr_scale is None else lr * cohort.lr_scale,
                "rehearsal": cohort.rehearsal,
                "score": np.nan if cohort.scores is None else cohort.scores,
                "theta": allocation.theta,
                "budget": allocation.budget,
                "paper_bits": allocation.paper_bits,
            }
            download = state.downloads[state.version]
            self.backend.dispatch(state, DispatchOrder(cohort, download, allocation, columns))
            # the probe before it took time of its own, which no deadline counts
            state.sent_s = state.clients.now_s
            state.dispatch += len(ids)
        asked = (*step.asked, *ids.tolist())
        budget = float(allocation.budget[-1]) if len(ids) else float("nan")
        liars = liars_note(self.config.world, setting.streams, ids, state.draw_index, step.notes)
        return dataclasses.replace(
            step,
            asked=asked,
            row={**step.row, "budget": budget, "selected": len(asked)},
            notes={**cohort.notes, **liars},
        )

    def probe(
        self, state: RunState, step: Round, download: Tensors, version: float
    ) -> tuple[Round, Ids]:
        """Have the candidates measure a model and tell the selector; return the ids that did not
        answer, too. ``version``: of the model, NaN for one that is discarded."""
        ids = state.candidates
        wanted = self.config.probed(state.selector)
        asked = bool(wanted) or not self.signals.keeps  # else the server knows everything itself
        probed = step.row.get("probed", 0) + len(ids) * asked
        step = dataclasses.replace(step, row={**step.row, "probed": probed})
        if not len(ids):
            return step, ids
        answered, signals = self.backend.probe(state, ids, wanted, download) if asked else (ids, {})
        if len(answered):
            with self.watch("select"):
                signals = {**signals, **self.signals.before_choice(state, answered)}
                reports = Reports(answered, Outcome.PROBED, version=version, signals=signals)  # type: ignore[arg-type]
                self.tell(state, step.number, state.draw_index, reports)
        silent = ids[:0] if answered is ids else np.setdiff1d(ids, answered, assume_unique=True)
        return step, silent


def next_draws(state: RunState) -> None:
    """Let the selector and the world draw anew, for a selection or a server step without one; the
    first of a round starts it."""
    state.draw_index += 1
    if not state.asked:
        state.start_s = state.clients.now_s
