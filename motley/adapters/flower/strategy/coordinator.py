"""One round of a deployment, as the selector sees it: who is there, who is measured, who is asked, what became of them.

The order is the simulation's: new clients enrol, candidates are probed on the current model, ``select``, training, the server's
step, ``observe`` exactly once. A client that is lost, or whose app fails, is reported as dropped; one whose reply cannot be used as
rejected. Durations are those of the server's clock, from sending to arrival, and stand in ``compute_s``: download and upload
are in it and are 0.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.adapters.flower.checks import AppError, NodeError
from motley.adapters.flower.messages import Grid, SentMessage, content_bits, flower
from motley.adapters.flower.node_registry import EXAMPLES, NodeRegistry
from motley.adapters.flower.strategy.probing import Prober
from motley.adapters.flower.strategy.replies import Upload, Uploads, Value
from motley.adapters.flower.strategy.server_signals import RATES, ReplySignals, flat, last_layer
from motley.adapters.flower.strategy.settings import Settings
from motley.core.errors import ConfigError
from motley.core.records import Cohort, Outcome, Report
from motley.core.server_signals import UPDATE_SIGNALS
from motley.selectors.base import Selector

__all__ = ["Row", "SelectionCoordinator"]

LOG = logging.getLogger("motley.flower")
LOOK_S = 1.0


@dataclass(frozen=True)
class Row:
    """One client in one round: a line of the participation table. ``seconds`` from sending to arrival; ``reason`` of a loss."""

    round: int
    client: int
    outcome: str
    seconds: float
    bits_down: float
    bits_up: float
    signals: Mapping[str, Value] = field(default_factory=dict)
    reason: str = ""


class SelectionCoordinator:
    """The selector's side of a deployment.

    Parameters
    ----------
    selector: whom to ask. m: how many. settings: see :class:`Settings`. weight_key: of the strategy; None: it weighs by none.

    Raises
    ------
    ConfigError: m below 1, or a selector that wants what no client of a deployment can tell.
    """

    def __init__(self, selector: Selector[Any], m: int, settings: Settings, weight_key: str | None = EXAMPLES) -> None:
        if m < 1:
            raise ConfigError(f"got {m}; expected at least 1 client a round", key="m")
        needs = selector.rule.needs()
        if settings.weights == "selector" and "weights" not in selector.rule.provides():
            raise ConfigError(f'{type(selector.rule).__name__} gives no weights; take weights = "strategy"', key="weights")
        self.selector, self.m, self.settings, self.clock = selector, m, settings, settings.clock
        self.register = NodeRegistry(settings.key, needs.enrolled - {"last_layer"}, settings.query_limit_s, settings.clock)
        made = needs.reported & UPDATE_SIGNALS if settings.uploads == "as_sent" else frozenset()
        rates = {RATES} if made & {"gradient", "gradient_sketch"} else set()
        self.uploads = Uploads(
            frozenset((needs.reported - made) | rates), weight_key, settings.uploads, settings.largest_upload
        )
        self.made = ReplySignals(made, selector.seed)
        self.prober = Prober(needs.probed, self.register)
        self.rows: list[Row] = []
        self.traffic: dict[str, float] = {}
        self.dispatched, self._round = settings.clients_sent, settings.rounds_done
        self._settled: int | None = None  # how many there were when more were waited for in vain
        self._layer: NDArray[np.float64] | None = None  # of the initial model
        self._cohort, self._asked = Cohort(np.zeros(0, np.int64)), dict[int, int]()  # node -> client
        self._answers: dict[int, SentMessage] = {}
        self._bits_down: dict[int, float] = {}
        self._sent: Any = None
        self._reports: list[Report] = []
        self._candidates: dict[int, int] = {}  # client -> node
        self._refused: dict[str, set[int]] = {}

    # ------------------------------------------------------------------------------------- before the round

    def open(self, grid: Grid, arrays: Any, record_key: str, least: int) -> dict[int, int]:
        """The next round, and who is asked in it: node -> client, in order of the clients.

        Raises
        ------
        ConfigError: the client app does not answer what the selector must know.
        """
        self._round += 1
        self._grid, self._sent, self._record_key = grid, arrays, record_key
        self._answers, self._bits_down, self._reports, self._asked = {}, {}, [], {}
        self._gate(grid, least)
        available = self.register.clients
        self._probe(available, arrays)
        cohort = self.selector.select(self._round, available, self.m, self.dispatched)
        self._cohort = cohort
        self.dispatched += len(cohort.ids)
        self._asked = {self.register.node_of[client]: client for client in sorted(cohort.ids.tolist())}
        LOG.info("round %d: asks %s of %d", self._round, list(self._asked.values()), len(available))
        return dict(self._asked)

    def _gate(self, grid: Grid, least: int) -> None:
        """Enrol who is new; wait, with an end, while fewer than ``least`` are there. Who was waited for in vain once is not waited
        for again, until more come or others go."""
        target = max(least if self._settled is None else min(least, self._settled), 1)
        end_s = self.clock.now() + self.settings.wait_s
        self.look(grid)
        while len(self.register.node_of) < target and self.clock.now() < end_s:
            self.clock.sleep(LOOK_S)
            self.look(grid)
        there = len(self.register.node_of)
        self._settled = there if there < least else None
        if there < target:
            LOG.warning("round %d: %d clients are there; %d were waited for", self._round, there, target)
        self._count("enrol", self.register.bits_down, self.register.bits_up, total=True)

    def look(self, grid: Grid) -> None:
        """Who is there; clients never met before are enrolled.

        Raises
        ------
        ConfigError: what they tell does not fit what the selector knows.
        """
        new = self.register.refresh(grid)
        if new and "last_layer" in self.selector.rule.needs().enrolled:
            if self._layer is None:
                self._layer = last_layer({name: array.numpy() for name, array in self._sent.items()})
            new = [dataclasses.replace(one, signals={**one.signals, "last_layer": self._layer}) for one in new]
        if not new:
            return
        try:
            self.selector.observe(0, new)
        except ValueError as problem:
            raise ConfigError(
                f"the selector cannot take in what these clients tell at enrolment ({problem}); it comes from another federation"
            ) from None

    def _probe(self, available: NDArray[np.int64], arrays: Any) -> None:
        ids = self.selector.probe(self._round, available, self.m, self.dispatched).tolist()
        self._candidates = {client: self.register.node_of[client] for client in ids}
        if ids:
            self._measure(arrays, float(self._round - 1))

    def _measure(self, arrays: Any, version: float) -> None:
        measured = self.prober.measure(self._grid, self._candidates, arrays, self._record_key, self._round)
        reports = [Report(client, Outcome.PROBED, version, signals=signals) for client, signals in measured.items()]
        self._count("probe", self.prober.bits_down, self.prober.bits_up, total=True)
        self.selector.observe(self._round, reports)

    # ------------------------------------------------------------------------------------- the messages

    def address(self, messages: Iterable[Any]) -> list[Any]:
        """The strategy's messages, one to each of the chosen, in order of the clients; what the cohort says of one client's work goes
        into its ConfigRecord.

        Raises
        ------
        ConfigError: the strategy left chosen nodes out and what it wrote to others was meant for them alone.
        """
        written = {message.metadata.dst_node_id: message for message in messages}
        mine = {node: message for node, message in written.items() if node in self._asked}
        if written and len(mine) < len(self._asked):
            contents = {id(message.content) for message in written.values()}
            if len(contents) > 1:
                raise ConfigError(
                    "the strategy wrote to some of the chosen nodes only, to each something of its own; expected one message to "
                    "each node of the grid it is given: let it ask all of them (fraction_train = 1.0)"
                )
            any_one = next(iter(written.values()))
            for node in self._asked.keys() - mine.keys():
                mine[node] = self._copy(any_one, any_one.content, node)
        out = []
        for node, client in self._asked.items():
            if node in mine:
                orders = self._orders(client)
                out.append(self._copy(mine[node], self._with(mine[node].content, orders), node) if orders else mine[node])
        self._asked = {
            node: client for node, client in self._asked.items() if node in mine
        }  # nobody, where it writes to nobody
        self._bits_down = {message.metadata.dst_node_id: content_bits(message.content) for message in out}
        return out

    def _copy(self, message: Any, content: Any, node: int) -> Any:
        about = message.metadata
        return flower().Message(content, node, about.message_type, ttl=about.ttl, group_id=about.group_id)

    def _orders(self, client: int) -> dict[str, float | int]:
        at = int(np.flatnonzero(self._cohort.ids == client)[0])
        columns = {name: getattr(self._cohort, name) for name in ("local_steps", "upload_ratio", "lr_scale")}
        return {name: column[at].item() for name, column in columns.items() if column is not None}

    def _with(self, content: Any, orders: Mapping[str, float | int]) -> Any:
        app = flower()
        out = app.RecordDict(dict(content.items()))
        key = next(iter(content.config_records), "config")
        out[key] = app.ConfigRecord({**content.config_records.get(key, {}), **orders})
        return out

    def note(self, answers: Iterable[SentMessage]) -> None:
        """What came of the messages."""
        self._answers |= {answer.node: answer for answer in answers if answer.node in self._asked}

    # ------------------------------------------------------------------------------------- after the round

    def read(self, replies: Iterable[Any]) -> list[Any]:
        """The usable replies, sorted by client; everything else is made a report.

        Raises
        ------
        ConfigError: nobody's reply can be used, for a reason that lies in the client app.
        """
        came = {reply.metadata.src_node_id: reply for reply in replies if not reply.has_error()}
        uploads, problems, bits = dict[int, Upload](), dict[int, NodeError](), dict[int, float]()
        for node, client in self._asked.items():
            if node in came:
                try:
                    bits[client] = content_bits(came[node].content)
                    uploads[client] = self.uploads.read(came[node].content, self._sent, self._record_key)
                except NodeError as problem:
                    problems[client] = problem
                except Exception as problem:  # records of a kind nobody writes: theirs, not ours
                    problems[client] = NodeError(f"the reply cannot be read: {type(problem).__name__}")
        form = self.uploads.alike(uploads)
        for client in [client for client, upload in uploads.items() if upload.form != form]:
            problems[client] = AppError("the records of the reply are not of the form of the others'")
            del uploads[client]
        self._explain(uploads, problems)
        vector = flat({name: array.numpy() for name, array in self._sent.items()}) if self.made.wanted else np.zeros(0)
        for node, client in self._asked.items():
            self._report(client, node, uploads.get(client), problems.get(client), vector, bits.get(client, 0.0))
        good = [came[node] for node, client in self._asked.items() if client in uploads]
        return good if self.settings.weights == "strategy" else self._weighed(good, uploads)

    def _explain(self, uploads: Mapping[int, Upload], problems: Mapping[int, NodeError]) -> None:
        """Where nobody was ever accepted and a whole cohort fails for one reason, the app is wrong, not its clients."""
        if uploads:
            self._refused = {}
            return
        for client, problem in problems.items():
            if isinstance(problem, AppError) and not any(row.outcome == "accepted" for row in self.rows):
                clients = self._refused.setdefault(str(problem), set())
                clients.add(client)
                if len(clients) >= min(len(self.register.node_of), max(self.m, 2)):
                    raise ConfigError(f"no client's reply can be used: {problem}")

    def _report(
        self,
        client: int,
        node: int,
        upload: Upload | None,
        problem: NodeError | None,
        vector: NDArray[np.float64],
        up: float,
    ) -> None:
        down = self._bits_down.get(node, 0.0)
        answer = self._answers.get(node, SentMessage(node))
        seconds = answer.arrived_s - answer.sent_s
        signals: dict[str, Value] = {}
        if upload is not None:
            rates = upload.signals.get(RATES, math.nan)
            signals = {name: value for name, value in upload.signals.items() if name != RATES}
            signals |= self.made.signals(vector, upload.arrays, float(rates))
        outcome = Outcome.ACCEPTED if upload is not None else Outcome.DROPPED
        if problem is not None or answer.unreadable:
            outcome = Outcome.REJECTED
        reason = str(problem) if problem is not None else answer.error or ("" if upload is not None else "no reply")
        if reason:
            LOG.warning("round %d: client %d is %s: %s", self._round, client, outcome.name.lower(), reason)
        kept = outcome != Outcome.DROPPED
        self._reports.append(
            Report(
                client, outcome, version=self._round - 1.0, staleness=0.0, bits_down=down,
                num_examples=self._examples(client, upload), local_steps=math.nan if upload is None else upload.steps,
                download_s=0.0, compute_s=seconds if kept else math.nan, upload_s=0.0 if kept else math.nan,
                bits_up=up if kept else math.nan, signals=signals,
            )
        )  # fmt: skip
        if upload is not None:
            self.prober.trips[client] = seconds
        self.rows.append(Row(self._round, client, outcome.name.lower(), seconds, down, up, signals, reason))
        self._count("train", down, up)

    def _examples(self, client: int, upload: Upload | None) -> float:
        told = self.register.enrolled[client].num_examples
        return told if not math.isnan(told) or upload is None or self.uploads.weight_key != EXAMPLES else upload.weight

    def _weighed(self, good: list[Any], uploads: Mapping[int, Upload]) -> list[Any]:
        if self._cohort.weights is None or self.uploads.weight_key is None:
            return good
        weight = dict(zip(self._cohort.ids.tolist(), self._cohort.weights.tolist(), strict=True))
        kept = []
        for reply in good:
            mine = weight[self._asked[reply.metadata.src_node_id]]
            if mine:
                next(iter(reply.content.metric_records.values()))[self.uploads.weight_key] = float(mine)
                kept.append(reply)
        return kept

    def refuse(self, why: str) -> None:
        """The strategy would not aggregate: nobody's reply counted.

        Raises
        ------
        ConfigError: nobody's ever did.
        """
        earlier = any(row.outcome == "accepted" and row.round < self._round for row in self.rows)
        if not earlier and sum(report.outcome == Outcome.ACCEPTED for report in self._reports) > 1:
            raise ConfigError(f"the strategy refuses what the client app replies: {why:.400}")
        LOG.warning("round %d: the strategy refuses the replies: %s", self._round, why)
        refused = Outcome.REJECTED
        self._reports = [
            dataclasses.replace(one, outcome=refused, signals={}) if one.outcome == Outcome.ACCEPTED else one
            for one in self._reports
        ]
        self.rows = [
            dataclasses.replace(row, outcome="rejected", reason=why)
            if row.round == self._round and row.outcome == "accepted" else row
            for row in self.rows
        ]  # fmt: skip

    def evaluations(self, replies: Sequence[Any]) -> list[Any]:
        """The usable evaluations, sorted by client; where forms differ, those that most clients have."""
        forms: dict[int, tuple[tuple[Any, ...], Any]] = {}
        for reply in replies:
            client = self.register.client_at(reply.metadata.src_node_id)
            try:
                if client is not None:
                    forms[client] = self.uploads.evaluation(reply.content), reply
            except NodeError as problem:
                LOG.warning("round %d: an evaluation of client %s cannot be used: %s", self._round, client, problem)
        counted = Counter(form for _, (form, _) in sorted(forms.items()))
        usual = counted.most_common(1)[0][0] if counted else None
        return [reply for _, (form, reply) in sorted(forms.items()) if form == usual]

    @property
    def rehearsal(self) -> bool:
        """Whether this round's model will be thrown away."""
        return self._cohort.rehearsal and bool(self._asked)

    def close(self, arrays: Any) -> bool:
        """Tell the selector; ``arrays``: the strategy's new model, or None. False: this was a rehearsal, the model stays."""
        rehearsal = self.rehearsal
        if arrays is not None and rehearsal:
            if self._candidates:
                self._measure(arrays, math.nan)
            done = Outcome.REHEARSED
            self._reports = [
                dataclasses.replace(one, outcome=done) if one.outcome == Outcome.ACCEPTED else one for one in self._reports
            ]
        elif arrays is not None and self.made.wanted:
            before, after = ({name: array.numpy() for name, array in record.items()} for record in (self._sent, arrays))
            self.made.step(flat(after) - flat(before))
        self.selector.observe(self._round, self._reports)
        self._asked, self._reports, self._cohort = {}, [], Cohort(np.zeros(0, np.int64))
        self._save()
        return not rehearsal

    def _save(self) -> None:
        if self.settings.save is not None:
            path = Path(self.settings.save)
            new = path.with_name(path.name + ".new")
            new.write_bytes(self.selector.to_bytes())
            new.replace(path)

    def _count(self, why: str, down: float, up: float, total: bool = False) -> None:
        for key, bits in ((f"{why}_bits_down", down), (f"{why}_bits_up", up)):
            self.traffic[key] = bits if total else self.traffic.get(key, 0.0) + bits
