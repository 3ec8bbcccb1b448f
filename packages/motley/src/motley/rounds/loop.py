"""The round loop: the only one, shared by simulations and deployments.

:meth:`RoundLoop.step` passes a :class:`~motley.rounds.round.Round` through ``choose -> dispatch ->
wait -> collect -> learn -> report``. The synchrony looks at who is in flight and decides again and
again: choose and *dispatch* a cohort, *wait*, or let the server *step*, which is the rest: the
dispatches that end are collected, their uploads are aggregated in order of client id, the server's
model is updated, the selector observes the reports, and tables are written.

What is simulated and what is real differs in the :class:`~motley.rounds.backend.ClientBackend`
alone; everything that evolves is in :class:`~motley.rounds.state.RunState`; what cuts through all
rounds is a list of :class:`~motley.rounds.stage.Stage`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from motley.algorithms.parts import ServerState, Tensors
from motley.core.arrays import Bools
from motley.core.errors import ConfigError
from motley.core.last_updates import LastUpdates
from motley.core.saved_state import save
from motley.engines.cores import torch_threads
from motley.engines.engine import Engine
from motley.results.writer import Writer
from motley.rounds.backend import ClientBackend
from motley.rounds.channel import Channel, empty_upload
from motley.rounds.choosing import Choosing, next_draws
from motley.rounds.diagnostics import Diagnostics
from motley.rounds.evaluation import Personal
from motley.rounds.examining import Examining
from motley.rounds.in_flight import Landed
from motley.rounds.learning import Learning
from motley.rounds.refusals import Refusals
from motley.rounds.round import Round
from motley.rounds.rows import Tables
from motley.rounds.run_config import RoundSummary, RunConfig
from motley.rounds.stage import PrivateStage, Stage, Stages
from motley.rounds.staleness import Staleness
from motley.rounds.standstill import Standstill
from motley.rounds.state import RunState, Scores
from motley.rounds.stopwatch import Stopwatch
from motley.rounds.upload_pipeline import UploadPipeline, initial_client_state
from motley.rounds.upload_signals import UploadSignals
from motley.selectors.selector import SelectionRule, Selector
from motley.tasks.task import ModelState
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Wait

LARGE = 1_000_000
"""Parameters from which the loop's own vector arithmetic uses all threads: below, threads wait for
each other."""

MakeBackend = Callable[
    [Channel, UploadPipeline | None, Stopwatch, PrivateStage | None],
    tuple[ClientBackend[Any], Sequence[Stage]],
]
"""Channel, compression, stopwatch and privacy of a run -> where its clients are, and stages that
only such a backend has, called before all others."""


class RoundLoop:
    """A federation that runs one server step at a time.

    Parameters
    ----------
    config: what is fixed.
    engine: how local work is computed.
    selector: who chooses clients.
    model: the initial model.
    make_backend: makes the clients' side.
    writer: where table rows go; None: nowhere.
    last_updates: the store of clients' last updates; None: RAM.
    more: stages before those of the experiment.
    evaluates: whether the model is evaluated at all.

    Attributes
    ----------
    state: what evolves in every run, :class:`~motley.rounds.state.RunState`.
    stages: what cuts through the rounds, each with what it remembers.

    Example
    -------
    >>> from motley.experiments.build import build
    >>> from motley.experiments.config import Experiment
    >>> keys = {"population": 4, "cohort": 2, "stop": {"rounds": 2}}
    >>> loop = build(Experiment(task="quadratic", partition="by_writer", **keys))
    >>> while not loop.done:
    ...     last = loop.step()
    >>> last.round, last.accepted
    (2, 2)
    """

    def __init__(
        self,
        config: RunConfig,
        engine: Engine,
        selector: Selector[Any],
        model: ModelState,
        make_backend: MakeBackend,
        writer: Writer | None = None,
        last_updates: LastUpdates | None = None,
        more: Sequence[Stage] = (),
        evaluates: bool = True,
    ) -> None:
        self.config = config
        self.engine = engine
        self.setting = config.setting
        self.algorithm = config.setting.algorithm
        self.federation = config.setting.task.federation
        self.evaluates = evaluates
        self.threads = 1 if self.setting.task.layout.size < LARGE else engine.threads
        self.watch = Stopwatch()
        server = self.algorithm.server.init(self.setting.first_held(model), len(self.federation))
        stay = ("buffers", "counters") if config.recalibrate is not None else ()
        parts = empty_upload(self.algorithm.local, server, model, self.setting.task.layout)
        self.channel = Channel(parts, config.extra_exchange(), stay)
        self.pipeline: UploadPipeline | None = None
        if not config.upload_config.plain:
            self.pipeline = UploadPipeline(
                config.upload_config, self.setting, self.channel, selector.horizon
            )
        plan = config.privacy
        self.private: PrivateStage | None = None if plan is None else plan.stage(parts)
        self.backend, own = make_backend(self.channel, self.pipeline, self.watch, self.private)
        if self.private is not None:
            self.private.begin(len(self.federation), self.backend.simulated)
        signals = UploadSignals(selector.rule.needs(), self.setting, last_updates)
        guard = config.guard
        self.refusals = None if guard is None else Refusals(guard, self.backend, plan is not None)
        self.standing = None if config.stop.ends_surely else Standstill(config.stop)
        self.stages = Stages(self._made_stages([*own, *more], signals, selector.rule))
        for stage in self.stages.all:
            stage.init(config, server)
        self.tables = Tables(writer, self.stages.written)
        first = initial_client_state(config, model)
        self.examining = Examining(
            config=config,
            engine=engine,
            backend=self.backend,
            channel=self.channel,
            watch=self.watch,
            tables=self.tables,
            stages=self.stages,
            first=first,
        )
        self.choosing = Choosing(
            config=config,
            backend=self.backend,
            channel=self.channel,
            pipeline=self.pipeline,
            watch=self.watch,
            signals=signals,
            stages=self.stages,
            newcomer=self.examining.newcomer_model,
        )
        self.learning = Learning(
            config=config,
            engine=engine,
            backend=self.backend,
            pipeline=self.pipeline,
            stages=self.stages,
            refusals=self.refusals,
        )
        scores = Scores(metric=self.setting.task.metric)
        self.state: RunState[Any] = RunState(
            server, selector, self.backend.clients, scores, ledger=self.channel.ledger
        )
        self.state.remembered = config.synchrony.init()
        self._opened = False

    def _made_stages(
        self, first: Sequence[Stage], signals: UploadSignals, rule: SelectionRule[Any]
    ) -> list[Stage]:
        """Return the stages of the run in their order, of which these are the first; ``rule``: of
        the selector."""
        config = self.config
        contributions: Stage | None = None
        if rule.asks_contributions:
            from motley.rounds.contributions import Contributions

            contributions = Contributions(
                config, rule, lambda state, step, rows: self.learning.context(state, step, rows)
            )
        stages = (
            *first,
            signals if signals.single_updates else None,
            Staleness() if config.synchrony.overlaps else None,
            self.private,
            self.refusals,
            self.standing,
            Diagnostics(self.engine, self.backend, self.pipeline, self.watch)
            if config.evaluate.diagnostics
            else None,
            self.pipeline,
            contributions,
            None if config.stage is None else config.stage.make(),
        )
        return [stage for stage in stages if stage is not None]

    def save(self) -> dict[str, Any]:
        """Return all that evolves, between two server steps, as plain values and arrays."""
        return {**self.state.save(), "stages": save(self.stages.save(self.state))}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`save` returned.

        Raises
        ------
        CodecError, StoreError: a selector whose state is of another kind, client states that lie
        elsewhere, or a state that an earlier version of Motley wrote.
        """
        self.state.restore(saved)
        self.stages.restore(self.state, saved["stages"])

    @property
    def done(self) -> bool:
        """Whether a limit of ``stop`` is reached, or nothing moves any more."""
        return self.at_limit or self.standstill is not None

    @property
    def at_limit(self) -> bool:
        """Whether a limit of ``stop`` is reached."""
        state = self.state
        scores = state.scores
        return self.config.reached(
            state.version,
            state.clients.now_s,
            state.ledger.paper_bits,
            scores=scores.evaluated,
            waited=scores.waited,
        )

    @property
    def standstill(self) -> str | None:
        """The sentence that says why the run ends without having reached a limit; None where it
        reaches one or goes on."""
        return None if self.standing is None else self.standing.reason(self.state)

    @property
    def final_server(self) -> ServerState:
        """The server's state, at the end of a run the one that is its result."""
        return self.examining.final_server(self.state)

    def step(self) -> RoundSummary:
        """Run until the server has stepped once, also when there was nothing to aggregate. The
        first call enrols the clients."""
        with torch_threads(self.threads):
            if not self._opened:
                self._open()
            step = Round(self.state.version + 1)
            if self.standing is not None:
                self.standing.begin(self.state)
            while True:
                view = self._view(step)
                decision = self.config.synchrony.decide(view)
                if isinstance(decision, Dispatch):
                    step = self.choosing.choose(self.state, step, decision)
                    if self.state.remembered is not None:
                        step = self._assigned(step)
                    step = self.choosing.dispatch(self.state, step)
                elif isinstance(decision, Wait):
                    self.backend.wait(self.state.moment, decision.until_s)
                else:
                    step = self._collect(step, decision, decision.remaining(view))
                    return self._report(self._learn(step))

    def _open(self) -> None:
        """Enrol clients; before round 1, also write the table of the federation and evaluate the
        untrained model."""
        self._opened = True
        state = self.state
        self.choosing.enrol(state, self.backend.newcomers(state.moment))
        if not state.begun:
            state.begun = True
            self.tables.write("federation", self.backend.federation_rows(state.moment))
            self.evaluate()

    def _view(self, step: Round) -> ServerView:
        """Return what the synchrony decides on."""
        state = self.state
        under_way = state.under_way
        flying = state.clients.flying
        available = step.row.get("available", 0)
        alone = under_way.asked and not available and not len(flying)
        view = ServerView(
            now_s=state.clients.now_s,
            cohort=self.config.cohort,
            version=state.version,
            dispatched=under_way.asked,
            in_flight=flying.timelines,
            asked_s=under_way.asked_s,
            dispatched_s=under_way.sent_s,
            changes=flying.staleness(state.model_updates),
            sent=len(step.cohort.ids),
            available=available,
            back_s=self.backend.back_s(state.moment) if alone else state.clients.now_s,
            memory=state.remembered,
        )
        return view if state.remembered is None else self._remembering(view)

    def _remembering(self, view: ServerView) -> ServerView:
        """Return what a synchrony with a memory sees, once it has heard of it."""
        memory = self.state.remembered = self.config.synchrony.observed(view)
        return dataclasses.replace(view, memory=memory)

    def _assigned(self, step: Round) -> Round:
        """Return the round whose cohort has the local steps that a synchrony with a memory gives.

        Raises
        ------
        ConfigError: the selector gives some, too.
        """
        state = self.state
        cohort = step.cohort
        if not len(cohort.ids):
            return step
        synchrony = self.config.synchrony
        if cohort.local_steps is not None:
            raise ConfigError(
                f"{type(synchrony).__name__} says how many local steps clients take, and so does "
                f"{type(state.selector.rule).__name__}; use another selector",
                "synchrony",
            )
        view = self._view(step)
        steps, state.remembered = synchrony.assigned(view, cohort.ids, state.dispatch)
        return dataclasses.replace(step, cohort=dataclasses.replace(cohort, local_steps=steps))

    def _collect(self, step: Round, decision: ServerStep, stay: Bools) -> Round:
        """Take out of flight the dispatches that end with this step, and bill what they sent."""
        state = self.state
        if not state.under_way.asked:
            next_draws(state)
        landed = self.backend.collect(state.moment, decision, stay)
        if not self.algorithm.local.lengths_follow_values:
            self._bill(landed, step.number)
        staleness = landed.dispatches.staleness(state.model_updates)
        step = dataclasses.replace(step, landed=landed, outcome=landed.outcome, staleness=staleness)
        for stage in self.stages.collected:
            stage.collected(state, step)
        return step

    def _bill(self, landed: Landed, number: int) -> None:
        """Bill what was sent of uploads in a step."""
        clients = landed.dispatches.timelines.client
        columns = landed.dispatches.columns
        sent = landed.sent
        bits = columns["bits_up"][sent], columns["paper_bits"][sent]
        self.channel.receive(clients[sent], *bits, number)

    def _learn(self, step: Round) -> Round:
        """Aggregate the accepted uploads and update the model."""
        with self.watch("aggregate"):
            step = self.learning.learn(self.state, step, self._rehearse)
        return self._shortened(step) if self.algorithm.local.lengths_follow_values else step

    def _shortened(self, step: Round) -> Round:
        """Bill uploads whose length follows from their values, and return the round with these
        lengths."""
        unsent = {row: result.unsent for row, result in step.results.items()}
        landed = step.landed.without(unsent)
        self._bill(landed, step.number)
        return dataclasses.replace(step, landed=landed)

    def _rehearse(self, step: Round, download: Tensors) -> Round:
        """Have the candidates measure a rehearsed model."""
        return self.choosing.probe(self.state, step, download, np.nan)[0]

    def _report(self, step: Round) -> RoundSummary:
        """Let the selector hear the reports, evaluate if it is due, write the rows of this step,
        and return the summary."""
        state = self.state
        state.version = step.number
        if self.standing is not None:
            self.standing.count(state, step)
        state.under_way.asked = False
        flying = state.clients.flying.timelines.version
        state.downloads = {
            version: sent for version, sent in state.downloads.items() if version in flying
        }
        reports = step.reports()
        for stage in self.stages.landed:
            reports = stage.landed(state, reports)
        with self.watch("select"):
            self.choosing.tell(state, reports.heard(), state.draw_index)
        last = self.done
        if self.config.evaluate.due(state.version) or last:
            step = step.noted(self.evaluate())
            last = self.done  # an evaluation may end the run
        if self.federation.held_out is not None and last:
            self.examining.new_clients(state)
        for stage in self.stages.ended:
            step = stage.ended(state, step, reports)
        with self.watch("write"):
            row = self.tables.write_round(state, step, reports)
            for stage in self.stages.rows:
                for table, columns in stage.rows(state, last):
                    self.tables.write(table, {"round": state.version, **columns})
        return RoundSummary(
            round=state.version,
            time_s=state.clients.now_s,
            accepted=row["accepted"],
            train_loss=row["train_loss"],
            score=state.scores.headline,
            selections=state.selections,
            asked=step.dispatched,
            total_bits=state.ledger.total_bits,
        )

    def evaluate(self) -> Mapping[str, float]:
        """Evaluate the server's model, or the clients' own models where these lie in this process,
        write the rows, and return notes of the round."""
        return self.examining.evaluate(self.state) if self.evaluates else {}

    def write_to(self, writer: Writer | None) -> None:
        """Send table rows to another writer from now on."""
        self.tables.writer = writer

    def newcomer_model(self) -> ModelState:
        """Return the model that a client which never took part would start from now, at the end of
        a run the one of its result."""
        return self.examining.newcomer_model(self.state)

    def personal_models(self, server: ServerState) -> Personal | None:
        """Return the models that clients would use now; None where all use the server's, or where
        clients keep theirs elsewhere."""
        return self.examining.personal_models(self.state, server)
