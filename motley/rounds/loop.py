"""The simulation: the one room with a door to all four. It moves numbers between them and decides nothing itself.

One round: gate, bench (probe), choice, drawing board, downlink, clock, workshop, channel, scales, update, reports, examiner,
rows. Time is planned before learning, so what will be thrown away is never trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.algorithms.base import ClientState, ServerState, Tensors, aggregate
from motley.algorithms.weights import divide_by, raw_weights
from motley.core.arrays import Floats, Ids
from motley.core.keys import Key
from motley.core.records import SIGNALS, Cohort, Outcome, Reports
from motley.engines.base import REPORTED, DataView, Engine, Job, TrainResult
from motley.engines.cores import torch_threads
from motley.results.writer import Writer
from motley.rounds import probing, tables
from motley.rounds.aggregation import weighed
from motley.rounds.channel import Channel
from motley.rounds.checkpoint import pack_server, pack_tensors, unpack_server, unpack_tensors
from motley.rounds.client_state import ClientStates
from motley.rounds.config import Round, RunConfig
from motley.rounds.data_drift import DriftView
from motley.rounds.diagnostics import Diagnostics
from motley.rounds.evaluation import examine, own_models
from motley.rounds.in_flight import InFlight
from motley.rounds.links import Links
from motley.rounds.planning import WorkPlanner
from motley.rounds.recalibration import Recalibrator
from motley.rounds.server_context import extra_exchange_of, server_context_at
from motley.rounds.server_signals import ServerSignals
from motley.rounds.stopwatch import Stopwatch
from motley.rounds.training import uploads
from motley.rounds.upload import UploadPipeline, initial_client_state
from motley.selectors.base import Selector
from motley.tasks.base import ModelState
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Wait
from motley.timing.timeline import VirtualClock, probe_s
from motley.transport.ledger import Ledger

__all__ = ["RoundLoop"]

LONG = 1_000_000
"""Parameters from which updates are folded on all threads."""


class RoundLoop:
    """A federation that is run one server step at a time.

    Parameters
    ----------
    plan: what is fixed. engine: how local work is computed. selector: whom to ask. model: the initial model.
    writer: where rows go, or None to keep none. memories: where what clients keep lies; None: in RAM.

    Example
    -------
    >>> from motley.experiments.build import build
    >>> from motley.experiments.config import Experiment
    >>> experiment = Experiment(task="quadratic", population=4, cohort=2, stop={"rounds": 2}, partition="by_writer")
    >>> simulation = build(experiment)
    >>> while not simulation.done:
    ...     last = simulation.step()
    >>> last.round, last.accepted
    (2, 2)
    """

    def __init__(
        self,
        plan: RunConfig,
        engine: Engine,
        selector: Selector[Any],
        model: ModelState,
        writer: Writer | None = None,
        memories: ClientStates | None = None,
    ) -> None:
        self.plan, self.engine, self.selector, self.writer = plan, engine, selector, writer
        self.setting, self.algorithm = plan.setting, plan.setting.algorithm
        self.federation = plan.setting.task.federation
        self.examples = self.federation.seen
        self.full_steps = plan.setting.work.total(self.examples)
        self.server = self.algorithm.server.init(self.algorithm.correction.sent(model), len(self.federation))
        extra_exchange = extra_exchange_of(plan)
        self.board = WorkPlanner(self.setting, extra_exchange, selector.rule.needs().reported)
        stay = ("buffers", "counters") if plan.recalibrate is not None else ()
        self.channel = Channel.between(
            self.algorithm.correction, self.server, model, self.setting.task.layout, extra_exchange, stay
        )
        # outside the engine work is short, and short work on two threads waits for busy neighbours; long vectors are worth it
        self.threads = 1 if plan.setting.task.layout.size < LONG else engine.threads
        self.clock, self.watch, self.flights = VirtualClock(), Stopwatch(), InFlight.empty()
        self.tides = DriftView(plan.world.drift, self._key("shift").fold("drift"), self.federation)
        self.links = Links(plan.world.network, self._key("network"), self.full_steps > 0)
        self.memories = ClientStates(initial_client_state(plan, model)) if memories is None else memories
        self.calibrator = Recalibrator(plan, engine, self.channel, self.board)
        self.press = UploadPipeline(plan.upload_config, self.setting, self.channel, self.memories, selector.horizon)
        self.diagnoser = Diagnostics(plan, engine, self.press, self.watch, self.server.model.x)
        self.downloads: dict[int, Tensors] = {}
        self.round = self.version = self.dispatch = self.moves = 0  # moves: steps that folded something
        self.asked = False
        self.start_s, self.asked_s, self.score = 0.0, 0.0, float("nan")
        self.candidates = np.zeros(0, np.int64)  # who was probed last
        self.decoded = ServerSignals(selector.rule.needs().reported, plan.setting)
        self._tally: dict[str, Any] = {}

    @property
    def done(self) -> bool:
        """Whether a limit of ``stop`` is reached."""
        return self.plan.stop.reached(self.version, self.clock.now_s, self.channel.ledger.paper_bits, self.score)

    def step(self) -> Round:
        """Run until the server has stepped once, also when there was nothing to fold. The first call enrols everybody first."""
        with torch_threads(self.threads):
            if self.round == 0:
                self._enrol()
            return self._until_the_server_steps()

    def _until_the_server_steps(self) -> Round:
        while True:
            lines, moved = self.flights.timelines, self.moves - self.flights.columns["moves"]
            view = ServerView(self.clock.now_s, self.plan.cohort, self.version, self.asked, lines, self.asked_s, moved)
            decision = self.plan.synchrony.decide(view)
            if isinstance(decision, Dispatch):
                self._send_out(decision.count)
            elif isinstance(decision, Wait):
                self.clock.advance(decision.until_s)
            else:
                return self._fold(decision, decision.remaining(view))

    # ------------------------------------------------------------------------------------- enrolment

    def _enrol(self) -> None:
        """Before round 1: what every client tells once, billed; the table of the federation; a look at the untrained model."""
        needs = self.selector.rule.needs().enrolled
        ids = np.arange(len(self.federation))
        known = probing.told(self.federation, self.newcomer(), self.setting.task.layout)
        known |= self._estimates(ids, self.algorithm.correction.download(self.server))
        signals = {name: known[name] for name in sorted(needs)}
        self.channel.enrol(ids, probing.numbers({name: signals[name] for name in needs & probing.ENROLLED}))
        told = {"num_examples": self.examples, "local_steps": self.full_steps, "signals": signals}
        self.selector.observe(0, Reports(ids, Outcome.ENROLLED, **told))  # type: ignore[arg-type]
        if self.writer is not None:
            step_s = self.board.step_s(self.plan.world, ids, 1)
            self._write("federation", tables.federation_rows(self.federation, step_s, self._speeds(ids)[0]))
        self._examine()

    # ------------------------------------------------------------------------------------- gate, bench, choice, drawing board

    def _send_out(self, count: int) -> None:
        self._begin_round()
        self.asked, self.asked_s = True, self.clock.now_s
        with self.watch("select"):
            available = self._available()
        self.downloads.setdefault(self.version, self.algorithm.correction.download(self.server))
        self._bench(available, count)
        with self.watch("select"):
            cohort = self.selector.select(self.round, available, count, self.dispatch)
        with self.watch("plan"):
            self._dispatch(cohort)
        self.diagnoser.chosen(self.version + 1, self.downloads[self.version], available, cohort, self._sees)
        selected = self._tally.get("selected", 0) + len(cohort.ids)
        budget = float(self.flights.columns["budget"][-1]) if len(cohort.ids) else float("nan")
        self._tally |= {"budget": budget, "available": len(available), "selected": selected, "notes": cohort.notes}

    def _begin_round(self) -> None:
        """A round is a call of ``select``, or a server step without one since the last. The first since a step starts its time."""
        self.round += 1
        if not self.asked:
            self.start_s = self.clock.now_s

    def _available(self) -> Ids:
        """Who can be asked now: online, with data, not under way already."""
        ids = np.flatnonzero(self.full_steps > 0)
        if len(self.flights):
            ids = np.setdiff1d(ids, self.flights.timelines.client, assume_unique=True)
        return ids[self.plan.world.availability.online(self._key("available"), ids, self.round, self.clock.now_s)]

    def _bench(self, available: Ids, count: int) -> None:
        """Measure the candidates a rule names before it chooses; forward passes, seconds and bits are all charged."""
        with self.watch("select"):
            ids = self.selector.probe(self.round, available, count, self.dispatch)
        self.candidates = ids
        self._probe(self.downloads[self.version], self.version)

    def _probe(self, download: Tensors, version: float) -> None:
        """Measure the candidates on a model, tell the selector, and charge it."""
        ids, wanted = self.candidates, self.plan.probed(self.selector)
        self._tally["probed"] = self._tally.get("probed", 0) + len(ids)
        if not len(ids):
            return
        learning = {name: batches for name, batches in wanted.items() if SIGNALS[name].kind != "system"}
        signals: dict[str, Floats] = {}
        with self.watch("measure"):
            if learning:
                key = self._key("probe").fold(self.round)
                signals = self.engine.measure(ids, download, self._starts(ids), learning, key, self._sees(ids))
        with self.watch("plan"):
            up, down = self._speeds(ids)
            known = self._estimates(ids, download)
            bits = self.channel.probe(ids, download, self.version, self.version + 1, probing.numbers(signals))
            signals |= {name: known[name] for name in wanted.keys() - learning.keys()}
            batches = probing.passes(learning, self.federation, self.setting.work, ids)
            took = probe_s(bits.down, down, batches, self.board.step_s(self.plan.world, ids, self.round), bits.up, up)
            self.clock.advance(self.clock.now_s + float(took.max(initial=0.0)))
        with self.watch("select"):
            self.selector.observe(self.round, Reports(ids, Outcome.PROBED, version=version, signals=signals))  # type: ignore[arg-type]

    def _dispatch(self, cohort: Cohort) -> None:
        """Plan the flights of a cohort, and send it the model."""
        ids, world = cohort.ids, self.plan.world
        lr = np.full(len(ids), self.setting.solver.lr * self.plan.schedule.factor(self.version + 1, self.selector.horizon))
        lr = lr if cohort.lr_scale is None else lr * cohort.lr_scale
        speeds, examples = self._speeds(ids), self.examples[ids]
        shares = self.press.shares(
            cohort, self.version + 1, self.dispatch, self.board.load(world, cohort, speeds[0], self.round)
        )
        bits = self.channel.sizes(self.downloads[self.version], ids, self.version, shares.bits)
        lines = self.board.lines(
            self.plan, cohort, bits, speeds, self.dispatch, self.version, self.round, self.clock.now_s, shares.steps
        )
        weight = raw_weights(self.plan.weights, cohort, examples, int(self.examples.sum()), len(self.federation))
        columns: dict[str, Any] = {
            "examples": examples, "lr": lr, "weight": weight, "rehearsal": cohort.rehearsal,
            "score": np.nan if cohort.scores is None else cohort.scores, "bits_down": bits.down, "bits_up": bits.up,
            "factor": world.failures.upload_factor(self._key("fail"), ids, self.round), "round": self.round, "moves": self.moves,
            "up_mbps": speeds[0], **shares.columns,
        }  # fmt: skip
        self.flights = self.flights.plus(lines, columns)
        self.channel.send(ids, bits.down, self.version + 1)
        self.dispatch += len(ids)

    # ------------------------------------------------------------------------------------- workshop, scales, update, reports

    def _fold(self, decision: ServerStep, stay: NDArray[np.bool_]) -> Round:
        if not self.asked:
            self._begin_round()
        gone = np.flatnonzero(~stay)
        gone = gone[np.argsort(self.flights.timelines.client[gone], kind="stable")]
        landed = self.flights.take(gone)
        self.flights = self.flights.take(np.flatnonzero(stay))
        outcome = np.where(decision.accept[gone], Outcome.ACCEPTED, Outcome.LATE).astype(np.int8)
        outcome[landed.timelines.dropped] = Outcome.DROPPED
        sent = ~landed.timelines.dropped & (landed.timelines.arrives_s <= self.clock.now_s)  # what is cancelled is not sent
        columns = landed.columns
        self.channel.receive(landed.timelines.client, columns["bits_up"], columns["paper_bits"], sent, self.version + 1)
        results: dict[int, TrainResult] = {}
        staleness = self.moves - landed.columns["moves"]
        with self.watch("fold"):
            accepted = np.flatnonzero(outcome == Outcome.ACCEPTED)
            made = uploads(landed, accepted, self.downloads, self._train, self.decoded, results, self.tides, self.press)
            folded = weighed(made, decision, gone, landed, self.server.model, self.downloads)
            total = self.press.total(aggregate(self.algorithm.aggregator, folded, divide_by(self.plan.weights)))
            outcome[[i for i, trained in results.items() if not trained.finite]] = Outcome.REJECTED
            counted = outcome == Outcome.ACCEPTED
            if landed.columns["rehearsal"].any():
                outcome[counted] = Outcome.REHEARSED
                if total:
                    self._probe(self.algorithm.correction.download(self._moved(total, counted)), np.nan)
            elif total:
                self._update(landed, counted, total, results)
        self.version += 1
        self.asked = False
        self._forget_versions()
        reports = tables.landed_reports(landed, outcome, staleness, results)
        self.press.end(reports, total)
        with self.watch("select"):
            self.selector.observe(self.round, reports)
        return self._tell(landed, reports, float(landed.columns["weight"][counted].sum()))

    def _train(self, jobs: Sequence[Job], download: Tensors) -> Iterator[TrainResult]:
        """What the clients of these jobs send, checked as it comes in."""
        want = (self.selector.rule.needs().reported & REPORTED) | {"loss", "update_norm"}
        memories = self.press.own([job.client for job in jobs])
        return self.watch.iterate("train", self.channel.checked(self.engine.train(jobs, download, memories, want)))

    def _moved(self, total: Tensors, counted: NDArray[np.bool_]) -> ServerState:
        room = server_context_at(self.plan, self.engine, self.version, int(counted.sum()), self._sees)
        return self.algorithm.server.update(self.server, total, room)

    def _update(self, landed: InFlight, counted: NDArray[np.bool_], total: Tensors, results: Mapping[int, TrainResult]) -> None:
        room = server_context_at(self.plan, self.engine, self.version, int(counted.sum()), self._sees)
        memories = {results[i].client: results[i].client_state for i in np.flatnonzero(counted).tolist()}
        kept = {client: memory for client, memory in memories.items() if memory is not None}
        self.server, after = self.algorithm.server.update_with_clients(self.server, total, kept, room)
        self.decoded.step(total)
        self.moves += 1
        for client, memory in self.press.taken(after, total).items():
            self.memories.put(client, memory)
        lines, step = landed.timelines[np.flatnonzero(counted)], self.version + 1
        with self.watch("measure"):
            self.server, took_s = self.calibrator.after(self.server, lines, step, self.round, self._speeds, self._sees)
        self.clock.advance(self.clock.now_s + took_s)

    # ------------------------------------------------------------------------------------- examiner, rows

    def _tell(self, landed: InFlight, reports: Reports, weight_sum: float) -> Round:
        """Rows of this step, an examination if one is due, and the summary for the caller."""
        row = tables.round_row(reports, weight_sum)
        row["notes"] = self.diagnoser.noted(self._tally.pop("notes", {}), self.version, landed, reports, self.server.model.x)
        stamp = {"round": self.round, "version": self.version, "dispatch": self.dispatch, "start_s": self.start_s}
        with self.watch("write"):
            self._write("rounds", {**stamp, "time_s": self.clock.now_s, **row, **self._tally, **self.channel.round_row()})
            if len(landed):
                self._write("clients", {"round": self.round, **tables.client_rows(landed, reports)})
        self._tally = {}
        if self.version % self.plan.examine.every == 0 or self.done:
            self._examine()
        return Round(self.round, self.clock.now_s, row["accepted"], row["train_loss"], self.score, self.version)

    def _examine(self) -> None:
        with self.watch("examine"):
            each, correction = self.plan.examine.per_client, self.algorithm.correction
            own = own_models(correction, self.server, self.memories)
            names = self.tides.names(np.arange(len(self.federation)), self.round, self.clock.now_s)
            found = examine(self.engine, self.server.model, self.federation, each, own, correction.shared, names)
        if not found["scope"]:
            return
        head = found["scope"].index("global" if "global" in found["scope"] else "mean")
        self.score = float(found["accuracy" if self.setting.task.metric == "accuracy" else "loss"][head])
        ledger = self.channel.ledger
        stamp = {"round": self.round, "version": self.version, "time_s": self.clock.now_s}
        spent = {"total_bits": ledger.total_bits, "total_up_paper_bits": ledger.paper_bits}
        self._write("evaluations", {**stamp, **spent, **found})

    def _write(self, table: str, columns: Mapping[str, Any]) -> None:
        if self.writer is not None:
            self.writer.add(table, columns)

    # ------------------------------------------------------------------------------------- small things

    def _key(self, purpose: str) -> Key:
        return self.setting.streams.key(purpose)

    def newcomer(self) -> ModelState:
        """The model that a client which never took part would start from now."""
        return self.algorithm.correction.start(self.algorithm.correction.download(self.server), self.memories.first)

    def _starts(self, ids: Ids) -> dict[int, ClientState | None]:
        """What these clients keep, where what is measured of a model depends on it."""
        own = self.algorithm.correction.personal_start or self.algorithm.loss.whole_model
        return self.press.own(ids) if own else {}

    def _sees(self, ids: Ids) -> DataView | None:
        """What these clients see of their data now."""
        return self.tides.at(ids, self.round, self.clock.now_s)

    def _speeds(self, ids: Ids) -> tuple[Floats, Floats]:
        """Megabits a second up and down in this round; at enrolment those of round 1."""
        return self.links.mbps(
            ids, self.round, self.version, self.engine, self.downloads.get(self.version), self._starts, self._sees
        )

    def _estimates(self, ids: Ids, download: Tensors) -> dict[str, Floats]:
        """What the planner knows of these clients."""
        up, down = self._speeds(ids)
        down_bits, up_bits = self.channel.whole(download)
        return probing.estimates(down_bits, down, self.board.work_s(self.plan.world, ids, self.round), up_bits, up)

    def _forget_versions(self) -> None:
        wanted = self.flights.timelines.version
        self.downloads = {version: sent for version, sent in self.downloads.items() if version in wanted}

    # ------------------------------------------------------------------------------------- everything that evolves

    def save(self) -> dict[str, Any]:
        """Everything that evolves, as plain values and arrays; between two steps."""
        return {
            "server": pack_server(self.server),
            "memories": self.memories.save(),
            "downloads": {version: pack_tensors(sent) for version, sent in self.downloads.items()},
            "flights": self.flights.save(), "selector": self.selector.to_bytes(), "ledger": self.channel.ledger.save(),
            "now_s": self.clock.now_s, "round": self.round, "version": self.version, "dispatch": self.dispatch, "moves": self.moves,
            "start_s": self.start_s, "asked_s": self.asked_s, "score": self.score,
            "candidates": self.candidates, "decoded": self.decoded.save(), "press": self.press.save(),
        }  # fmt: skip

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from :meth:`save`."""
        self.server = unpack_server(saved["server"])
        self.memories.restore(saved["memories"])
        self.downloads = {version: unpack_tensors(sent) for version, sent in saved["downloads"].items()}
        self.flights = InFlight.restore(saved["flights"])
        self.selector = Selector.from_bytes(saved["selector"], type(self.selector.rule))
        self.channel.ledger = Ledger.restore(saved["ledger"])
        self.clock = VirtualClock(saved["now_s"])
        self.round, self.version, self.dispatch, self.moves = (saved[k] for k in ("round", "version", "dispatch", "moves"))
        self.start_s, self.asked_s, self.score = saved["start_s"], saved["asked_s"], saved["score"]
        self.candidates = saved["candidates"]
        self.decoded.restore(saved["decoded"])
        self.press.restore(saved["press"])
