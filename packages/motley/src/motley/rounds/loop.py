"""The round loop: the only one, shared by simulations and deployments.

One server step, from the top: the synchrony looks at who is in flight and decides. *Dispatch*: the
backend says who is available, candidates are probed, the selector chooses a cohort, its uploads are
allocated, and it is sent the newest model. *Wait*: time passes.
*Step*: dispatches end, their uploads are aggregated in order of client id, the server's model is
updated, the selector observes the reports, and tables are written.

What is simulated and what is real differs in the :class:`~motley.rounds.backend.ClientBackend`
alone; everything that evolves is in :class:`~motley.rounds.state.RunState`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms.parts import ServerContext, ServerState, Tensors, Upload
from motley.algorithms.weights import divide_by, raw_weights
from motley.core.arrays import Bools, Ids
from motley.core.records import Cohort, Outcome, Reports
from motley.engines.base import DataView, Engine, TrainResult, client_losses
from motley.engines.cores import torch_threads
from motley.results.writer import Writer
from motley.rounds import probing, tables
from motley.rounds.aggregation import adjusted
from motley.rounds.backend import ClientBackend, DispatchOrder, Landed
from motley.rounds.channel import Channel, empty_upload, traffic_row
from motley.rounds.config import RoundSummary, RunConfig
from motley.rounds.diagnostics import CompressionError, Diagnosis, Diagnostics
from motley.rounds.evaluation import Evaluation, Personal, evaluate, once_each, personal_models
from motley.rounds.guard import total_norm
from motley.rounds.lies import liars_note
from motley.rounds.new_clients import NewClients
from motley.rounds.private import PrivateRounds
from motley.rounds.recalibration import collected
from motley.rounds.refusals import Gathered, Refusals
from motley.rounds.server_signals import ServerSignals
from motley.rounds.slices import SliceModels
from motley.rounds.state import RunState
from motley.rounds.stopwatch import Stopwatch
from motley.rounds.upload import ReceivedUpload, UploadPipeline, initial_client_state
from motley.rounds.validation import better, validate, validation_view
from motley.rounds.worker_sums import WorkerSums, unusable
from motley.selectors.base import Selector
from motley.tasks.base import ModelState
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Wait

__all__ = ["RoundLoop"]

LARGE = 1_000_000
"""Parameters from which the loop's own vector arithmetic uses all threads: below, threads wait for
each other."""

MakeBackend = Callable[[UploadPipeline, Stopwatch], ClientBackend]
"""Upload pipeline and stopwatch of a run -> where its clients are."""


class RoundLoop:
    """A federation that runs one server step at a time.

    Parameters
    ----------
    config: what is fixed. engine: how local work is computed. selector: who chooses clients. model:
    the initial model.
    make_backend: makes the clients' side, given the upload pipeline and the stopwatch. writer:
    where table rows go; None: nowhere.

    Attributes
    ----------
    state: everything that evolves, :class:`~motley.rounds.state.RunState`.

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
    ) -> None:
        self.config = config
        self.engine = engine
        self.writer = writer
        self.setting = config.setting
        self.algorithm = config.setting.algorithm
        self.federation = self.setting.task.federation
        self.validation = validation_view(self.federation)
        self.requirements = selector.rule.needs()
        self.initial_client_state = initial_client_state(config, model)
        server = self.algorithm.server.init(self.algorithm.local.sent(model), len(self.federation))
        stay = ("buffers", "counters") if config.recalibrate is not None else ()
        parts = empty_upload(self.algorithm.local, server, model, self.setting.task.layout)
        self.private = PrivateRounds(config.privacy, parts, self.setting.streams)
        self.channel = Channel(parts, config.extra_exchange(), stay)
        self.pipeline = UploadPipeline(
            config.upload_config, self.setting, self.channel, selector.horizon
        )
        self.watch = Stopwatch()
        self.backend = make_backend(self.pipeline, self.watch)
        self.refusals = Refusals(config, self.backend)
        self.signals = ServerSignals(self.requirements, self.setting)
        self.sums = WorkerSums(config, engine, self.signals)
        self.diagnostics = Diagnostics(config, engine, server.model.x)
        self.threads = 1 if self.setting.task.layout.size < LARGE else engine.threads
        allocator = config.upload_config.allocator.init()
        metric = self.setting.task.metric
        self.state = RunState(
            server, selector, self.backend.new_state(), allocator=allocator, metric=metric
        )
        self.state.privacy = self.private.begin(len(self.federation), self.backend.seeded)
        # the last good state, where the run's last evaluation has no finite loss
        self._final: ServerState | None = None
        self._opened = False
        self._tally: dict[str, Any] = {}  # columns of the step under way
        self._asked: list[int] = []  # clients sent out in the step under way
        self._diagnosis: Diagnosis | None = None  # of the step under way

    @property
    def done(self) -> bool:
        """Whether a limit of ``stop`` is reached."""
        state = self.state
        return self.config.reached(
            state.version, state.clients.now_s, state.ledger.paper_bits, state.newest
        )

    def step(self) -> RoundSummary:
        """Run until the server has stepped once, also when there was nothing to aggregate. The
        first call enrols the clients."""
        with torch_threads(self.threads):
            if not self._opened:
                self._open()
            while True:
                view = self._view()
                decision = self.config.synchrony.decide(view)
                if isinstance(decision, Dispatch):
                    self._send_out(decision.count)
                elif isinstance(decision, Wait):
                    self.backend.wait(self.state, decision.until_s)
                else:
                    return self._server_step(decision, decision.remaining(view))

    def _view(self) -> ServerView:
        """Return what the synchrony decides on; staleness counts model updates."""
        state = self.state
        flying = self.backend.in_flight(self.state)
        updates = state.model_updates - flying.columns["model_updates"]
        return ServerView(
            state.clients.now_s,
            self.config.cohort,
            state.version,
            state.asked,
            flying.timelines,
            state.asked_s,
            updates,
        )

    # ------------------------------------------------------------------------------- before round 1

    def _open(self) -> None:
        """Enrol clients; before round 1, also write the table of the federation and evaluate the
        untrained model."""
        self._opened = True
        self._enrol(self.backend.open(self.state))
        if not self.state.begun:
            self.state.begun = True
            self._write("federation", self.backend.federation_rows(self.state))
            self.evaluate()

    def _enrol(self, ids: Ids) -> None:
        """Tell the selector of clients that were never met before."""
        if not len(ids):
            return
        wanted = self.requirements.enrolled
        known = dict(self.backend.enrol(self.state, ids, wanted))
        if "last_layer" in wanted:
            known["last_layer"] = probing.last_layer(
                self.newcomer_model(), self.setting.task.layout, len(ids)
            )
        examples = self.backend.examples(self.state)[ids]
        work = {"num_examples": examples, "local_steps": self.setting.work.total(examples, ids)}
        signals = {name: known[name] for name in sorted(wanted)}
        self._tell(0, 0, Reports(ids, Outcome.ENROLLED, signals=signals, **work))  # type: ignore[arg-type]

    def _tell(self, round: int, draw_index: int, reports: Reports) -> None:
        """Let the selector hear reports as clients send them, and write what is claimed in them
        beside the truth."""
        reports, claims = self.backend.told(self.state, draw_index, reports)
        if claims:
            self._write("claims", {"round": round, **claims})
        self.state.selector.observe(draw_index, self.private.heard(self.state.privacy, reports))

    # ------------------------------------------------------------------------- sending a cohort out

    def _send_out(self, count: int) -> None:
        """Ask the selector for ``count`` clients and send them the newest model."""
        state = self.state
        backend = self.backend
        self._enrol(backend.newcomers(state))
        self._next_draws()
        state.selections += 1
        state.asked = True
        state.asked_s = state.clients.now_s
        with self.watch("select"):
            available = self.refusals.allowed(
                state, self.private.available(state.privacy, backend.available(state))
            )
        if state.version not in state.downloads:
            state.downloads[state.version] = self.algorithm.local.download(state.server)
        download = state.downloads[state.version]
        with self.watch("select"):
            drawn = backend.drawn(state, available, count)  # looks at no signal
            state.candidates = state.selector.probe(
                state.draw_index, available, 0 if drawn else count, state.dispatch
            )
        silent = self._probe(download, state.version)
        available = (
            np.setdiff1d(available, silent, assume_unique=True) if len(silent) else available
        )
        with self.watch("select"):
            cohort = drawn or state.selector.select(
                state.draw_index, available, count, state.dispatch
            )
        if self._diagnosis is None:
            with self.watch("evaluate"):
                self._diagnosis = self.diagnostics.begin(
                    state.version + 1, download, available, cohort, self._data_view
                )
        with self.watch("plan"):
            budget = self._dispatch(cohort, download)
        selected = self._tally.get("selected", 0) + len(cohort.ids)
        self._asked += cohort.ids.tolist()
        before = self._tally.get("notes", {})
        notes = {
            **cohort.notes,
            **liars_note(
                self.config.world, self.setting.streams, cohort.ids, state.draw_index, before
            ),
        }
        self._tally |= {
            "budget": budget,
            "available": len(available),
            "selected": selected,
            "notes": notes,
        }

    def _next_draws(self) -> None:
        """Let the selector and the world draw anew, for a selection or a server step without one;
        the first of a round starts it."""
        self.state.draw_index += 1
        if not self.state.asked:
            self.state.start_s = self.state.clients.now_s

    def _probe(self, download: Tensors, version: float) -> Ids:
        """Have the candidates measure a model and tell the selector; return the ids that did not
        answer."""
        state = self.state
        ids = self.state.candidates
        wanted = self.config.probed(self.state.selector)
        asked = bool(wanted) or not self.signals.keeps  # else the server knows everything itself
        self._tally["probed"] = self._tally.get("probed", 0) + len(ids) * asked
        if not len(ids):
            return ids
        answered, signals = self.backend.probe(state, ids, wanted, download) if asked else (ids, {})
        if len(answered):
            with self.watch("select"):
                signals = {**signals, **self.signals.before_choice(state, answered)}
                reports = Reports(answered, Outcome.PROBED, version=version, signals=signals)  # type: ignore[arg-type]
                self._tell(state.version + 1, state.draw_index, reports)
        return ids[:0] if answered is ids else np.setdiff1d(ids, answered, assume_unique=True)

    def _dispatch(self, cohort: Cohort, download: Tensors) -> float:
        """Allocate the cohort's uploads and send it out; return the round's upload budget, NaN for
        nobody."""
        state = self.state
        n = len(cohort.ids)
        lr = np.full(n, self.config.lr(state.version))
        workload = self.backend.workload(state, cohort) if self.pipeline.budgeted else {}
        allocation = self.pipeline.allocate(state, cohort, workload)
        examples = self.backend.examples(state)
        claimed = self.backend.claimed_examples(state)
        weight = raw_weights(
            self.config.weights,
            cohort,
            claimed[cohort.ids],
            int(claimed.sum()),
            self.federation.pool,
        )
        weight = self.private.chosen(state.privacy, cohort.ids, weight)
        columns: dict[str, Any] = {
            "draw_index": state.draw_index,
            "model_updates": state.model_updates,
            "examples": examples[cohort.ids],
            "weight": weight,
            "lr": lr if cohort.lr_scale is None else lr * cohort.lr_scale,
            "rehearsal": cohort.rehearsal,
            "score": np.nan if cohort.scores is None else cohort.scores,
            "theta": allocation.theta,
            "budget": allocation.budget,
            "paper_bits": allocation.paper_bits,
        }
        self.backend.dispatch(state, DispatchOrder(cohort, download, allocation, columns))
        state.dispatch += n
        return float(allocation.budget[-1]) if n else float("nan")

    # ---------------------------------------------------------------------------- the server's step

    def _server_step(self, decision: ServerStep, stay: Bools) -> RoundSummary:
        state = self.state
        step = self.state.version + 1
        if not state.asked:
            self._next_draws()
        landed = self.backend.collect(state, decision, stay)
        columns = landed.dispatches.columns
        clients = landed.dispatches.timelines.client
        sent = landed.sent
        self.channel.receive(
            state.ledger, clients[sent], columns["bits_up"][sent], columns["paper_bits"][sent], step
        )
        staleness = state.model_updates - columns["model_updates"]
        with self.watch("aggregate"):
            outcome, results, total = self._learn(landed)
        state.version = step
        state.asked = False
        flying = self.backend.in_flight(state).timelines.version
        state.downloads = {
            version: sent for version, sent in state.downloads.items() if version in flying
        }
        reports = tables.landed_reports(landed.dispatches, outcome, staleness, results)
        heard = reports.heard()
        state.allocator = self.pipeline.observe(state, heard, total)
        self.backend.observe(state, heard)
        with self.watch("select"):
            self._tell(step, state.draw_index, heard)
        return self._finish_round(landed, reports)

    def _learn(
        self, landed: Landed
    ) -> tuple[NDArray[np.int8], dict[int, TrainResult], dict[str, Tensor]]:
        """Aggregate the accepted uploads and update the model.

        Returns each row's outcome ``[n]``, training results by row without their uploads, and the
        total that the server stepped on (empty where there was nothing to aggregate)."""
        state = self.state
        outcome = landed.outcome.copy()
        rows = np.flatnonzero(outcome == Outcome.ACCEPTED)
        self.private.entered(state.privacy, landed.dispatches.timelines.client[rows])
        found = self._gather(landed, outcome, self._diagnosis.error if self._diagnosis else None)
        accepted = np.flatnonzero(outcome == Outcome.ACCEPTED)
        rehearsal = bool(landed.dispatches.columns["rehearsal"].any())
        if rehearsal:
            outcome[accepted] = Outcome.REHEARSED
            if found.total:
                rehearsed = self.algorithm.server.update(
                    state.server, found.total, self._server_context(len(accepted))
                )
                self._probe(self.algorithm.local.download(rehearsed), np.nan)
        elif self.private.void(found.total):
            outcome[accepted], found = Outcome.REJECTED, found._replace(total={})
        while found.total and not rehearsal and not self._update_model(landed, outcome, found):
            again = self.refusals.drop(state, landed, outcome, self._note)
            rest = self._gather(landed, outcome, None) if again else Gathered({}, {}, {}, None)
            found = rest._replace(results={**found.results, **rest.results})
        return outcome, found.results, found.total

    def _gather(
        self, landed: Landed, outcome: NDArray[np.int8], error: CompressionError | None
    ) -> Gathered:
        """Aggregate the accepted uploads; in ``outcome`` one that is not finite becomes
        rejected."""
        state = self.state
        state.last_updates.discard()
        compressed: dict[int, Tensors] = {}
        rows = np.flatnonzero(outcome == Outcome.ACCEPTED)
        aggregator = self.algorithm.aggregator
        changes = None
        accumulator, results, uploads = self.sums.gathered(self.backend, state, landed, rows, error)
        for position, (row, upload) in enumerate(uploads):
            results[row] = self._with_server_signals(landed, row, upload)
            if upload.client_state is not None:
                compressed[upload.result.client] = upload.client_state
            changes = self.pipeline.add_change(changes, upload)
            if upload.result.finite or self.private.by_clients is not None:
                accumulator = aggregator.add(
                    accumulator, self._weighed(landed, row, upload.result, position)
                )
        outcome[unusable(results)] = self.private.unusable
        total = aggregator.finish(
            accumulator, self.private.divide or divide_by(self.config.weights)
        )
        total = self.private.total(state.privacy, state.version + 1, total, self._note)
        return Gathered(
            results, compressed, self.pipeline.server_total(state, total, changes), changes
        )

    def _with_server_signals(self, landed: Landed, row: int, upload: ReceivedUpload) -> TrainResult:
        """Return a training result without its upload, with the signals that the server computes
        from it."""
        result = upload.result
        if not result.finite:
            return dataclasses.replace(result, parts={}, client_state=None)
        download = self.state.downloads[int(landed.dispatches.timelines.version[row])]
        rates = float(landed.dispatches.columns["lr"][row]) * result.steps
        made = self.signals.of(
            result.client, {**result.parts, **upload.model_update}, download, rates, self.state
        )
        return dataclasses.replace(result, parts={}, signals={**result.signals, **made})

    def _weighed(self, landed: Landed, row: int, result: TrainResult, position: int) -> Upload:
        """Return an upload with its raw weight, adjusted for staleness, and clipped in a private
        run."""
        download = self.state.downloads[int(landed.dispatches.timelines.version[row])]
        upload = Upload(
            result.parts,
            float(landed.dispatches.columns["weight"][row]),
            1.0,
            result.client,
            position,
        )
        scale = None if landed.scale is None else float(landed.scale[row])
        return self.private.clipped(
            self.state.privacy,
            adjusted(upload, scale, landed.mix, self.state.server.model, download),
        )

    def _update_model(self, landed: Landed, outcome: NDArray[np.int8], found: Gathered) -> bool:
        """Let the server step on a total, and make it final for the clients; return False for a
        step that the guard refuses."""
        state = self.state
        results = found.results
        total = found.total
        rows = np.flatnonzero(outcome == Outcome.ACCEPTED)
        accepted = np.array([row for row in rows.tolist() if results[row].finite], np.int64)
        kept = {results[row].client: results[row].client_state for row in accepted.tolist()}
        own = {client: memory for client, memory in kept.items() if memory is not None}
        context = self._server_context(len(accepted))
        server, states = self.algorithm.server.update_with_clients(
            state.server, total, own, context
        )
        if self._refused(server, total):
            return False
        state.server = server
        self._note(self.algorithm.server.notes(server))
        self.signals.stepped(state, total)
        state.model_updates += 1
        self.refusals.accepted(state, kept)
        if found.changes is not None:
            state.mean_vector = total["delta"].double().cpu()
        self.backend.commit(
            state, landed, accepted, self.pipeline.commit(state, states, found.compressed)
        )
        state.server = self.backend.recalibrate(state, landed, accepted)
        return True

    def _refused(self, server: ServerState, total: Tensors) -> bool:
        """Return whether the guard refuses the step on ``total`` to a new server state, which is
        noted with the total's norm."""
        state = self.state
        guard = self.config.guard
        if guard is None:
            return False
        norm = total_norm(total)
        if guard.refuses(norm, state.step_norms, state.server, server):
            self._note({"step_refused": 1.0, **({"step_norm": norm} if np.isfinite(norm) else {})})
            return True
        state.step_norms = [*state.step_norms, norm][-guard.window :] if norm else state.step_norms
        return False

    def _note(self, notes: Mapping[str, float]) -> None:
        """Add notes to the row of the step under way."""
        self._tally["notes"] = {**self._tally.get("notes", {}), **notes}

    def _server_context(self, accepted: int) -> ServerContext:
        losses = partial(client_losses, self.engine, data_views=self._data_view)
        return self.config.context_at(self.state.version, self.private.uploads(accepted), losses)

    def _data_view(self, ids: Ids) -> DataView | None:
        return self.backend.data_view(self.state, ids)

    # ------------------------------------------------------------------------ tables and evaluation

    def _finish_round(self, landed: Landed, reports: Reports) -> RoundSummary:
        """Write the rows of this step, evaluate if it is due, and return the summary."""
        state = self.state
        dispatches = landed.dispatches
        now_s = self.state.clients.now_s
        row = tables.round_row(reports, dispatches.columns["weight"], self.private.plan is not None)
        if self.config.evaluate.due(state.version) or self.done:
            self.evaluate()
        if self.federation.held_out is not None and self.done:
            self._examine_new_clients()
        own = self._tally.pop("notes", {})
        tally = self._tally
        row |= {"dispatch": state.dispatch, "start_s": state.start_s}
        row["notes"] = self.diagnostics.notes(
            own, state.version, self._diagnosis, dispatches, reports, state.server.model.x
        )
        with self.watch("write"):
            self._write(
                "rounds", {**tables.stamp(state), **row, **tally, **traffic_row(state.ledger)}
            )
            if len(landed):
                self._write(
                    "clients", {"round": state.version, **tables.client_rows(dispatches, reports)}
                )
            if state.privacy is not None and self.done:
                self._write("privacy", {"round": state.version, **state.privacy.rows()})
            if incidents := self.backend.incidents(state):
                self._write("incidents", {"round": state.version, **incidents})
        self._tally = {}
        self._diagnosis = None
        asked = tuple(self._asked)
        self._asked = []
        end = row["accepted"], row["train_loss"], state.score
        return RoundSummary(
            state.version, now_s, *end, state.selections, asked, state.ledger.total_bits
        )

    def evaluate(self) -> None:
        """Evaluate the server's model, or the clients' own models where these lie in this process,
        and write the rows."""
        state = self.state
        shared = self.algorithm.local.shared
        if not shared and not self.backend.holds_client_states:
            return
        with self.watch("evaluate"):
            models = self._models(state.server)
            widths = self.backend.widths(state)
            model = models.at(1.0)
            personal = (
                once_each(self.personal_models(state.server), self.validation)
                if widths is None
                else models.of(widths)
            )
            narrower = {
                width: models.at(width) for width in self.backend.listed_widths if width < 1.0
            }
            names = self.backend.class_names(state)
            per_client = self.config.evaluate.per_client
            found = evaluate(
                self.engine,
                model,
                self.federation,
                per_client,
                personal,
                shared,
                names,
                self.setting.task.metrics,
                state.server.extra.get("prototypes"),
                narrower,
            )
        if not found.scores:
            return
        state.newest = dict(found.scores)
        if self.config.evaluate.due(state.version):
            state.evaluated.append(state.newest)
        self._write_evaluation(found)
        if self.validation is not None:
            with self.watch("evaluate"):
                held = validate(
                    self.engine,
                    model,
                    self.validation,
                    per_client,
                    personal,
                    names,
                    self.setting.task.metrics,
                )
            self._write_evaluation(held)
            pooled = personal is None and "global" in found.rows["scope"]
            if self.config.keeps_best(state.version):
                scope = "validation" if pooled else "validation_mean"
                higher = self.config.higher_is_better(state.metric)
                score = held.value(state.metric, scope)
                state.best = better(
                    state.best, scope, score, higher, state.version, self.newcomer_model
                )
        self._keep_or_go_back(state.newest["loss"])

    def _examine_new_clients(self) -> None:
        """Examine the clients that no round asked, and write the rows, whose traffic includes their
        downloads."""
        state = self.state
        server = self.final_server
        names = self.backend.class_names(self.state)
        new = NewClients(self.config, self.channel, self.backend.widths(state))
        with self.watch("evaluate"):
            for found in new.examine(self.engine, state, self._models(server), names):
                self._write_evaluation(found, new.download_bits(server))

    def _write_evaluation(self, found: Evaluation, more_bits: int = 0) -> None:
        """Write the rows of an evaluation at the present moment; ``more_bits``: traffic that is not
        in the ledger."""
        at = tables.stamp(self.state)
        ledger = self.state.ledger
        at |= {
            "total_bits": ledger.total_bits + more_bits,
            "total_up_paper_bits": ledger.paper_bits,
        }
        self._write("evaluations", {**at, **found.rows})
        if self.setting.task.metrics:
            self._write("metrics", {**at, **found.metrics})

    def _keep_or_go_back(self, loss: float) -> None:
        """Remember the server's state as good after an evaluation with a finite loss; go back to
        the last good one otherwise.

        After an evaluation only because the run ended, the state stays what a longer run would go
        on from."""
        state = self.state
        due = self.config.evaluate.due(self.state.version)
        # evaluations look at clear data
        if self.config.guard is None or self.config.privacy is not None:
            return
        if np.isfinite(loss):
            state.good = state.server if due else state.good
        elif state.good is not None and due:
            state.server = state.good
            self._note({"model_restored": 1.0})
        elif state.good is not None:
            self._final = state.good

    def _write(self, table: str, columns: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        if self.writer is not None:
            tables.write_rows(self.writer, table, columns, self.private.plan is not None)

    def write_to(self, writer: Writer | None) -> None:
        """Send table rows to another writer from now on."""
        self.writer = writer

    def newcomer_model(self) -> ModelState:
        """Return the model that a client which never took part would start from now, at the end of
        a run the last good one."""
        return self._models(self.final_server).at(1.0)

    def _models(self, server: ServerState) -> SliceModels:
        version = self.state.version
        slicing = self.algorithm.local.slicing
        static = slicing is not None and slicing.static_norm and self.setting.task.layout.buffers
        made = (
            partial(
                collected, self.config, self.engine, version=version, data_views=self._data_view
            )
            if static
            else None
        )
        return SliceModels(self.setting, server, version, self.initial_client_state, made)

    def personal_models(self, server: ServerState) -> Personal | None:
        """Return the models that clients would use now; None where all use the server's, or where
        clients keep theirs elsewhere."""
        state = self.state
        if not self.backend.holds_client_states:
            return None
        kept = state.clients.client_states
        lr = self.config.lr(state.version)
        return personal_models(
            self.setting, self.engine, server, kept, state.version, lr, self._data_view
        )

    @property
    def final_server(self) -> ServerState:
        """The server's state, at the end of a run the last good one."""
        return self._final or self.state.server
