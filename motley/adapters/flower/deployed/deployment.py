"""A deployment: the loop of a simulation, with clients that are really there and a clock that runs by itself.

One round is what it is in :mod:`motley.rounds.loop`, with the same parts: whom to ask, the probe, who may send how much,
when to step, folding in order of client id, the server's rule, reports, the examination, the rows of the tables. What is other:

    a simulation plans when everybody will arrive     here, until a client arrives, the synchrony sees that it arrives never
    it waits by moving a clock                        here it waits for letters, never beyond a limit
    it knows who fails                                here a client is lost when its node says so, or when its time is up
    client memories lie in its vault                  here they lie at the sites; the server remembers which dispatch it took last

Who is lost leaves the synchrony's view at once and is reported with the step, so that a deadline is not waited for in vain; with
nobody left a round lasts ``idle_s``. Who was cancelled is not asked again before it has answered, or its time is up.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.adapters.flower.deployed.client_registry import ClientRegistry, Limits
from motley.adapters.flower.deployed.clients import DeployedClients
from motley.adapters.flower.deployed.protocol import pack
from motley.adapters.flower.deployed.request_codec import Flight, RequestCodec, columns, timelines
from motley.adapters.flower.deployed.transport import WaitingTransport
from motley.algorithms.base import ServerState, Tensors, Upload, aggregate
from motley.algorithms.weights import divide_by, raw_weights
from motley.core.arrays import Ids
from motley.core.errors import CodecError, ConfigError
from motley.core.records import SIGNALS, Cohort, Outcome, Reports
from motley.engines.base import TrainResult
from motley.experiments.build import Ready
from motley.experiments.config import Experiment
from motley.results.writer import Writer
from motley.rounds import tables
from motley.rounds.aggregation import weighed
from motley.rounds.channel import Channel
from motley.rounds.checkpoint import pack_server, unpack_server
from motley.rounds.client_state import ClientStates
from motley.rounds.config import Round
from motley.rounds.evaluation import examine
from motley.rounds.in_flight import InFlight
from motley.rounds.server_context import extra_exchange_of, server_context_at
from motley.rounds.server_signals import ServerSignals
from motley.rounds.upload import UploadPipeline, initial_client_state
from motley.selectors.base import Selector
from motley.tasks.base import ModelState
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Wait
from motley.transport.ledger import Ledger

__all__ = ["Deployment"]

_LOG = logging.getLogger("motley.flower")


class Deployment:
    """A federation that is run one server step at a time, over a mailbox.

    Parameters
    ----------
    experiment, ready: what is run. run: its name among sites. post: where letters go. limits: of waiting.

    Attribute ``writer``: where rows go.
    """

    def __init__(self, experiment: Experiment, ready: Ready, run: str, post: WaitingTransport, limits: Limits) -> None:
        self.plan, self.engine, self.selector, model = ready
        self.setting, self.algorithm = self.plan.setting, self.plan.setting.algorithm
        self.federation = self.setting.task.federation
        population = len(self.federation)
        self.server = self.algorithm.server.init(self.algorithm.correction.sent(model), population)
        self.first = initial_client_state(self.plan, model)
        self.post, self.limits, self.run = post, limits, run
        self.desk = RequestCodec(experiment, ready, self.server, run)
        self.channel = Channel.between(
            self.algorithm.correction, self.server, model, self.setting.task.layout, extra_exchange_of(self.plan)
        )
        self.press = UploadPipeline(
            self.plan.upload_config, self.setting, self.channel, ClientStates(self.first), self.selector.horizon
        )
        self.roll = ClientRegistry(self.desk, post, lambda: self.channel.ledger, population, limits)
        self.decoded = ServerSignals(self.selector.rule.needs().reported, self.setting)
        self.writer: Writer | None = None
        self.air = DeployedClients(self.desk, post, limits, self._paid, self.roll.silent)
        self.kept: dict[int, int] = {}  # by client: dispatch of its last accepted upload
        self.downloads: dict[int, tuple[Tensors, bytes]] = {}
        self.round = self.version = self.dispatch = 0
        self.asked = self._gathered = False
        self.start_s = self.asked_s = 0.0
        self.score = math.nan
        self.candidates = np.zeros(0, np.int64)
        self._tally: dict[str, Any] = {}

    @property
    def now_s(self) -> float:
        """Seconds since the deployment began."""
        return self.air.now_s

    @property
    def done(self) -> bool:
        """Whether a limit of ``stop`` is reached; its virtual hours are hours here."""
        return self.plan.stop.reached(self.version, self.now_s, self.channel.ledger.paper_bits, self.score)

    def step(self) -> Round:
        """Run until the server has stepped once. The first call waits for the population; when it goes on, for those it knows."""
        self.air.tick()
        if not self._gathered:
            self._gathered, known = True, self.roll.met.any()
            newcomers = self.roll.gather(self.version + 1 if known else 0)
            self.air.tick()
            if not known:
                self._begin()
            elif len(newcomers):
                self._enrolled(newcomers)
        while True:
            lines = timelines(self.air.flying)
            view = ServerView(self.now_s, self.plan.cohort, self.version, self.asked, lines, self.asked_s)
            decision = self.plan.synchrony.decide(view)
            if isinstance(decision, Dispatch):
                self._send_out(decision.count)
            elif isinstance(decision, Wait):
                self.air.wait(decision.until_s)
            else:
                return self._fold(decision, decision.remaining(view))

    # ------------------------------------------------------------------------------------- enrolment

    def _begin(self) -> None:
        """Before round 1: what those who have come told; a look at the untrained model."""
        met = np.flatnonzero(self.roll.met)
        self._enrolled(met)
        if self.writer is not None:
            told = self.roll.signals.get("label_histogram")
            labels = np.zeros((len(met), 0), np.int64) if told is None else told[met].astype(np.int64)
            self.writer.add("federation", {"client": met, "num_train": self.roll.examples[met], "labels": labels})
        self._examine()

    def _enrolled(self, ids: Ids) -> None:
        """The selector hears of clients that were never met before."""
        needs, layout = self.selector.rule.needs().enrolled, self.setting.task.layout
        last = self.newcomer().x[layout.last_layer].cpu().double().numpy()
        steps, examples = self.setting.work.total(self.roll.examples[ids]), self.roll.examples[ids].astype(np.float64)
        known = {
            **self.roll.estimates(ids, steps, self.channel.upload_bits), **{n: value[ids] for n, value in self.roll.signals.items()},
            "num_examples": examples, "last_layer": np.broadcast_to(last, (len(ids), len(last))),
        }  # fmt: skip
        signals = {name: known[name] for name in sorted(needs)}
        told = {"num_examples": examples, "local_steps": steps, "signals": signals}
        self.selector.observe(0, Reports(ids, Outcome.ENROLLED, **told))  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------- whom to ask, and for what

    def _send_out(self, count: int) -> None:
        self._begin_round()
        self.asked = True
        newcomers = self.roll.meet(self.version + 1)
        if len(newcomers):
            self._enrolled(newcomers)
        if self.version not in self.downloads:
            tensors = self.algorithm.correction.download(self.server)
            self.downloads[self.version] = tensors, self._packed(tensors)
        self.air.tick()
        available = self._available()
        self.candidates = self.selector.probe(self.round, available, count, self.dispatch)
        silent = self._probe(self.downloads[self.version][1], self.version)
        available = np.setdiff1d(available, silent, assume_unique=True)
        cohort = self.selector.select(self.round, available, count, self.dispatch)
        self._dispatch(cohort)
        notes = json.dumps({name: float(value) for name, value in cohort.notes.items()}) if cohort.notes else None
        selected = self._tally.get("selected", 0) + len(cohort.ids)
        self._tally |= {"available": len(available), "selected": selected, "notes": notes}
        self.air.tick()
        self.asked_s = self.now_s

    def _begin_round(self) -> None:
        self.round += 1
        if not self.asked:
            self.start_s = self.now_s

    def _available(self) -> Ids:
        """Who can be asked: there, met, with data, and neither under way nor busy nor lost since the last step."""
        ids = self.roll.present_and_talking()
        self.air.seen()
        busy = np.isin(ids, list(self.air.busy))
        return ids[(self.setting.work.total(self.roll.examples[ids]) > 0) & self.roll.met[ids] & ~busy]

    def _packed(self, tensors: Tensors) -> bytes:
        try:
            return pack(tensors)
        except CodecError:
            raise ConfigError(
                f"the model is not finite after {self.version} steps; lower local.optimizer.lr, or clip", "local.optimizer.lr"
            ) from None

    def _probe(self, model: bytes, version: float) -> Ids:
        """Measure the candidates on a model and tell the selector; who did not answer."""
        ids, wanted = self.candidates, self.plan.probed(self.selector)
        self._tally["probed"] = self._tally.get("probed", 0) + len(ids)
        if not len(ids):
            return ids
        learning = {name: batches for name, batches in wanted.items() if SIGNALS[name].kind != "system"}
        found: dict[int, Any] = {int(k): {} for k in ids}
        if learning:
            orders = {int(k): self.desk.probe(int(k), self.round, self.kept.get(int(k), -1), learning, model) for k in ids}
            found = self.roll.ask(orders, self.desk.measured, "probe", self.version + 1)
        there = np.array(sorted(found), np.int64)
        known = self.roll.estimates(there, self.setting.work.total(self.roll.examples[there]), self.channel.upload_bits)
        signals = {name: known[name] for name in wanted.keys() - learning.keys()}
        if len(there):
            signals |= {name: np.stack([found[k][name] for k in there.tolist()]) for name in learning}
            self.selector.observe(self.round, Reports(there, Outcome.PROBED, version=version, signals=signals))  # type: ignore[arg-type]
        return np.setdiff1d(ids, there)

    def _dispatch(self, cohort: Cohort) -> None:
        """Write the orders of a cohort and send them."""
        ids, n, roll = cohort.ids, len(cohort.ids), self.roll
        self.air.tick()
        lr = np.full(n, self.setting.solver.lr * self.plan.schedule.factor(self.version + 1, self.selector.horizon))
        lr = lr if cohort.lr_scale is None else lr * cohort.lr_scale
        steps = self.setting.work.total(roll.examples[ids]) if cohort.local_steps is None else np.maximum(cohort.local_steps, 1)
        step_s, down_s, up_s = roll.speed[ids].T
        known = np.isfinite(step_s)
        steps[known] = np.maximum(self.plan.synchrony.steps(steps[known], -(down_s + up_s)[known], step_s[known]), 1)
        examples = roll.examples[ids]
        load = {
            "examples": examples * 1.0, "steps": steps * 1.0, "compute_s": np.nan_to_num(step_s * steps),
            "uplink_mbps": np.full(n, np.inf),
        }  # fmt: skip
        shares = self.press.shares(cohort, self.version + 1, self.dispatch, load)
        weight = raw_weights(self.plan.weights, cohort, examples, int(roll.examples.sum()), len(self.federation))
        score = np.full(n, np.nan) if cohort.scores is None else cohort.scores
        model = self.downloads[self.version][1]
        sealed, flights = {}, {}
        for i, client in enumerate(ids.tolist()):
            flight = Flight(
                client, self.dispatch + i, self.version, self.round, int(steps[i]), float(lr[i]), float(shares.theta[i]),
                float(shares.budget[i]), float(weight[i]), float(score[i]), cohort.rehearsal, int(examples[i]),
                int(shares.paper_bits[i]), 0, self.now_s, self.now_s + self.limits.work_s,
            )  # fmt: skip
            sealed[client], flights[client] = self.desk.train(flight, self.kept.get(client, -1), model).seal(), flight
            flight.bits_down = 8 * len(sealed[client])
        self.air.send(flights.values(), sealed)
        bits = np.array([flight.bits_down for flight in flights.values()], np.int64)
        self.channel.send(ids, bits, self.version + 1)
        self.dispatch += n
        self._tally["budget"] = float(shares.budget[-1]) if n else math.nan

    # ------------------------------------------------------------------------------------- the server's step

    def _fold(self, decision: ServerStep, stay: NDArray[np.bool_]) -> Round:
        if not self.asked:
            self._begin_round()
        ended = self.air.land(decision, stay)
        landed = columns(ended)
        outcome = np.array([f.outcome for f in ended], np.int8)
        sent = np.array([f.bits_up > 0 for f in ended], bool)
        bits, paper = landed.columns["bits_up"], landed.columns["paper_bits"]
        self.channel.receive(landed.timelines.client, bits, paper, sent, self.version + 1)
        results: dict[int, TrainResult] = {}
        uploads = list(self._uploads(ended, outcome, results))
        step = dataclasses.replace(decision, scale=None if decision.scale is None else np.array([f.scale for f in ended]))
        newest, downloads = self.server.model, {version: sent[0] for version, sent in self.downloads.items()}
        folded = weighed(iter(uploads), step, np.arange(len(ended)), landed, newest, downloads)
        total = self.press.total(aggregate(self.algorithm.aggregator, folded, divide_by(self.plan.weights)))
        counted = outcome == Outcome.ACCEPTED
        if landed.columns["rehearsal"].any():
            outcome[counted] = Outcome.REHEARSED
            if total:
                self._probe(self._packed(self.algorithm.correction.download(self._moved(total, counted))), np.nan)
        elif total:
            self.server = self._moved(total, counted)
            self.decoded.step(total)
            self.press.taken({}, total)
            self.kept |= {f.client: f.dispatch for f, yes in zip(ended, counted.tolist(), strict=True) if yes}
        return self._end(landed, outcome, results, total)

    def _paid(self, flight: Flight) -> None:
        """An upload that came after its round: it is billed, and that is all."""
        bits, paper = np.array([flight.bits_up]), np.array([flight.paper_bits])
        self.channel.receive(np.array([flight.client]), bits, paper, np.ones(1, bool), self.version + 1)

    def _uploads(
        self, ended: Sequence[Flight], outcome: NDArray[np.int8], results: dict[int, TrainResult]
    ) -> Iterable[tuple[int, Upload]]:
        """What the accepted sent, in order of client id; ``results`` takes in what they told."""
        for i, flight in enumerate(ended):
            if outcome[i] != Outcome.ACCEPTED or flight.trained is None:
                continue
            trained, download = flight.trained, self.downloads[flight.version][0]
            if self.plan.upload_config.feedback.incremental:
                self.press.heard(trained.parts["delta"].value)
            made = self.decoded.signals(trained.parts, download, flight.lr * trained.steps)
            results[i] = dataclasses.replace(trained, parts={}, signals={**trained.signals, **made})
            yield i, Upload(trained.parts, flight.weight, client=flight.client)

    def _moved(self, total: Tensors, counted: NDArray[np.bool_]) -> ServerState:
        room = server_context_at(self.plan, self.engine, self.version, int(counted.sum()), lambda ids: None)
        return self.algorithm.server.update(self.server, total, room)

    def _end(self, landed: InFlight, outcome: NDArray[np.int8], results: Mapping[int, TrainResult], total: Tensors) -> Round:
        """Reports, rows, and an examination if one is due."""
        staleness = self.version - landed.timelines.version
        self.version += 1
        self.asked = False
        versions = {flight.version for flight in self.air.flying}
        self.downloads = {version: sent for version, sent in self.downloads.items() if version in versions}
        reports = tables.landed_reports(landed, outcome, staleness, results)
        self.press.end(reports, total)
        self.roll.learn(reports)
        self.selector.observe(self.round, reports)
        folded = np.isin(outcome, [Outcome.ACCEPTED, Outcome.REHEARSED])
        row = tables.round_row(reports, float(landed.columns["weight"][folded].sum()))
        stamp = {"round": self.round, "version": self.version, "dispatch": self.dispatch, "start_s": self.start_s}
        self._write("rounds", {**stamp, "time_s": self.now_s, **row, **self._tally, **self.channel.round_row()})
        if len(landed):
            self._write("clients", {"round": self.round, **tables.client_rows(landed, reports)})
        self._tally = {}
        if self.version % self.plan.examine.every == 0 or self.done:
            self._examine()
        return Round(self.round, self.now_s, row["accepted"], row["train_loss"], self.score, self.version)

    def _examine(self) -> None:
        """The server's model on what test data the server has; what clients start from themselves lies at their sites."""
        if self.algorithm.correction.personal_start:
            return
        found = examine(self.engine, self.server.model, self.federation, self.plan.examine.per_client)
        if not found["scope"]:
            return
        head = found["scope"].index("global" if "global" in found["scope"] else "mean")
        self.score = float(found["accuracy" if self.setting.task.metric == "accuracy" else "loss"][head])
        ledger = self.channel.ledger
        spent = {"total_bits": ledger.total_bits, "total_up_paper_bits": ledger.paper_bits}
        self._write("evaluations", {"round": self.round, "version": self.version, "time_s": self.now_s, **spent, **found})

    def newcomer(self) -> ModelState:
        """The model that a client which never took part would start from now."""
        return self.algorithm.correction.start(self.algorithm.correction.download(self.server), self.first)

    def _write(self, table: str, columns: Mapping[str, Any]) -> None:
        if self.writer is not None:
            self.writer.add(table, columns)

    # ------------------------------------------------------------------------------------- everything that evolves

    def save(self) -> dict[str, Any]:
        """Everything that evolves, as plain values and arrays; between two steps. A server that begins again finds none of the letters
        that are under way: their clients are dropped."""
        return {
            "run": self.run, "server": pack_server(self.server), "selector": self.selector.to_bytes(),
            "ledger": self.channel.ledger.save(), "press": self.press.save(), "decoded": self.decoded.save(),
            "roll": self.roll.save(), "kept": dict(self.kept), "flying": self.air.save(), "now_s": self.now_s, "round": self.round,
            "version": self.version, "dispatch": self.dispatch, "start_s": self.start_s, "asked_s": self.asked_s,
            "score": self.score, "candidates": self.candidates,
        }  # fmt: skip

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from :meth:`save`."""
        self.server = unpack_server(saved["server"])
        self.selector = Selector.from_bytes(saved["selector"], type(self.selector.rule))
        self.channel.ledger = Ledger.restore(saved["ledger"])
        self.press.restore(saved["press"])
        self.decoded.restore(saved["decoded"])
        self.roll.restore(saved["roll"])
        self.kept = dict(saved["kept"])
        self.round, self.version, self.dispatch = saved["round"], saved["version"], saved["dispatch"]
        self.start_s, self.asked_s, self.score = saved["start_s"], saved["asked_s"], saved["score"]
        self.candidates = saved["candidates"]
        self.air.restore(saved["flying"], saved["now_s"])
