"""Run the selector's part of a strategy's round: choose clients, address messages, check replies,
report what became of them.

The order is the simulation's: new clients enrol, candidates are probed on the current model,
``select``, training, the server's step, ``observe`` exactly once. A client that is lost, or whose
app fails, is reported as dropped; one whose reply cannot be used as rejected. Durations are whole
round trips on the server's clock and are reported as ``compute_s``, with 0 seconds of download and
upload.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from motley.core.arrays import Floats
from motley.core.errors import ConfigError
from motley.core.files import disk_error, replacing
from motley.core.keys import Streams
from motley.core.records import Outcome, Report
from motley.core.server_signals import LAST_UPDATE, UPDATE_SIGNALS, Value
from motley.core.untrusted import printable, shortened
from motley.selectors.selector import Selector
from motley_flower.checked_numbers import AppError
from motley_flower.messages import Grid, SentMessage, content_bits, failure_of_app
from motley_flower.node_registry import EXAMPLES, LOG, NodeRegistry
from motley_flower.strategy.addressing import address_messages, ask_for
from motley_flower.strategy.client_needs import ClientNeeds
from motley_flower.strategy.enrolling import observe_enrolments
from motley_flower.strategy.measured_candidates import SignalProber
from motley_flower.strategy.participation import ExchangeRow, ParticipationRow
from motley_flower.strategy.replies import CheckedReply, ClientResult, ReplyReader
from motley_flower.strategy.reply_signals import (
    LEARNING_RATES,
    ReplySignals,
    arrays_of,
    last_layer,
    model_vector,
)
from motley_flower.strategy.round_observer import RoundObserver
from motley_flower.strategy.sample_counts import SampleCounts
from motley_flower.strategy.settings import SelectionSettings, check_whole
from motley_flower.strategy.strategy_state import (
    MOST_REFUSALS,
    OpenRound,
    Records,
    SelectionState,
)
from motley_flower.strategy.unused_parts import note_unused

if TYPE_CHECKING:
    from motley_flower.strategy.secure_sums import SecureSums

POLL_S = 1.0
"""Seconds between two looks at the connected nodes while a round waits for more."""


class SelectionCoordinator:
    """The selector's side of a strategy; its methods are called in the order in which they stand
    here.

    Parameters
    ----------
    selector: chooses the clients.
    m: clients a round.
    settings: of the run.
    weight_key: the strategy's ``weighted_by_key``; None: the strategy has none.

    Attributes
    ----------
    state: everything that changes from round to round.
    registry: the nodes and their clients.
    counts: their numbers of samples.
    secure: secure aggregation; None: the server reads single uploads.
    observer: is told of every round.
    evaluations: by client, the metrics of the last evaluation that could be used.

    Raises
    ------
    ConfigError: m below 1, or a selector that needs what no client of a deployment can report.
    """

    def __init__(
        self,
        selector: Selector[Any],
        m: int,
        settings: SelectionSettings,
        weight_key: str | None = EXAMPLES,
    ) -> None:
        check_whole(m, "m", least=1)
        needs = selector.rule.needs()
        if settings.weights == "selector" and "weights" not in selector.rule.provides():
            raise ConfigError(
                f'{type(selector.rule).__name__} gives no weights; take weights = "strategy"',
                key="weights",
            )
        if selector.rule.asks_contributions:
            raise ConfigError(
                f"{type(selector.rule).__name__} compares models that the server makes of some of "
                "the uploads, on samples of its own, which a Flower strategy has not; deploy "
                "Motley's round loop (docs/deploy/loop.md) with split = { server = 0.1 }, or take "
                "another selector",
                key="selector",
            )
        keeps = LAST_UPDATE in needs.probed
        if keeps and settings.uploads != "as_sent":
            raise ConfigError(
                f"{type(selector.rule).__name__} compares what clients uploaded with the mean of "
                "now, and "
                f'uploads = {settings.uploads!r} hides it; write direction = "cosine" for the '
                "selector, and let clients report it",
                key="uploads",
            )
        self.selector = selector
        self.m = int(m)
        self.settings = settings
        self.clock = settings.clock
        most = settings.max_examples if weight_key in (None, EXAMPLES) else None
        computed = needs.reported & UPDATE_SIGNALS if settings.uploads == "as_sent" else frozenset()
        self.signals = ReplySignals(computed, Streams(selector.seed), keeps)
        reported = (needs.reported - computed) | self.signals.reported
        client_needs = ClientNeeds.of(type(selector.rule).__name__, needs, reported)
        self.registry = NodeRegistry(
            settings.key,
            needs.enrolled - {"last_layer"},
            settings.query_limit_s,
            settings.clock,
            max_examples=most,
            lacks=client_needs.lacks,
            clients=settings.clients,
            classes=settings.classes,
        )
        self.counts = SampleCounts(self.registry, weight_key, settings.max_examples)
        self.asked = ",".join(sorted(reported | ({"local_steps"} & needs.columns)))
        self.state = SelectionState(settings.rounds_done, settings.clients_sent)
        self.prober = SignalProber(needs.probed, self.registry, self.state, settings.longest_pause)
        self.reader = ReplyReader(reported, weight_key, settings.uploads, settings.largest_upload)
        self.current: OpenRound | None = None
        self.secure: SecureSums | None = None
        self.observer = RoundObserver(self, "", shown=False)
        self.evaluations: dict[int, dict[str, Any]] = {}

    @property
    def names(self) -> dict[int, str]:
        """The clients' names by id, where a file of clients gives them."""
        return {} if self.settings.clients is None else self.settings.clients.names

    @property
    def rows(self) -> list[ParticipationRow]:
        """The participation table: one row for each client and round."""
        return self.state.rows

    @property
    def exchanges(self) -> list[ExchangeRow]:
        """The probes and federated evaluations so far."""
        return self.state.exchanges

    @property
    def opened(self) -> OpenRound:
        """The round under way, or the last one.

        Raises
        ------
        ConfigError: none was begun.
        """
        return self._open()

    @property
    def traffic(self) -> dict[str, float]:
        """Bits sent so far, by purpose (enrol, probe, train, evaluate) and direction."""
        return {
            "enrol_bits_down": self.registry.bits_down,
            "enrol_bits_up": self.registry.bits_up,
            **self.state.traffic,
        }

    @property
    def rehearsal(self) -> bool:
        """Whether the round under way is a rehearsal: its model will be thrown away."""
        return (
            self.current is not None
            and self.current.cohort.rehearsal
            and bool(self.current.clients)
        )

    # ------------------------------------------------------------------------------- open the round

    def open_round(
        self,
        grid: Grid,
        model: Any,
        model_key: str,
        min_clients: int,
        records: Records,
    ) -> list[int]:
        """Begin the next round: enrol, probe and choose clients; return the nodes of the chosen, in
        order of client id.

        Parameters
        ----------
        grid: Flower's.
        model: the ArrayRecord that will be sent.
        model_key: its key in the strategy's messages.
        min_clients: how many connected clients are waited for, at most ``settings.wait_s``.
        records: given nodes, returns by node what the strategy sends beside the model, by key; for
        client apps whose train function is asked to measure.

        Raises
        ------
        ConfigError: the client app does not answer what the selector must know.
        """
        self.state.round += 1
        self.state.note_dtypes(model)
        self.current = current = OpenRound(grid, model, model_key, records)
        self._await_clients(current, min_clients)
        available = self.state.offered(self.registry.clients)
        # the draw looks at no signal
        chance = self.secure is not None and self.secure.options.draws
        if chance:
            candidates = []
        else:
            candidates = self.selector.probe(
                self.state.round, available, self.m, self.state.dispatched
            ).tolist()
        current.candidates = {client: self.registry.node_of[client] for client in candidates}
        if candidates:
            self._probe(current, model, version=float(self.state.round - 1))
        drawn = None if self.secure is None else self.secure.draw(current)
        current.cohort = drawn or self.selector.select(
            self.state.round, available, self.m, self.state.dispatched
        )
        chosen = sorted(
            client for client in current.cohort.ids.tolist() if client in self.registry.node_of
        )
        self.counts.bounds(chosen)
        self.state.dispatched += len(chosen)
        current.clients = {self.registry.node_of[client]: client for client in chosen}
        LOG.info("round %d: asks %s of %d", self.state.round, chosen, len(self.registry.node_of))
        return list(current.clients)

    def _await_clients(self, current: OpenRound, min_clients: int) -> None:
        """Enrol new clients; wait, within the limit, while fewer than ``min_clients`` are
        connected. After a wait in vain, as many as were found are enough, until more connect. Where
        enough are there, nobody waits for a new node to say which client it is, but at the first
        look of all."""
        state = self.state
        registry = self.registry
        present = min_clients if state.connected is None else min(min_clients, state.connected)
        target = max(present, 1)
        registry.awaited = min_clients
        self.refresh(current.grid, current.model)
        # an answer that came too late, as when Ray starts its workers, is asked again
        end_s = self.clock.now() + self.settings.wait_s
        while len(registry.node_of) < target and self.clock.now() < end_s:
            self.clock.sleep(POLL_S)
            self.refresh(current.grid, current.model, max(end_s - self.clock.now(), 0.0))
        if len(registry.node_of) < min_clients:
            registry.awaited = min(2, min_clients)  # most of those that are there
            self.refresh(current.grid, current.model)
        connected = len(registry.node_of)
        state.connected = connected if connected < min_clients else None
        if connected < target:
            LOG.warning(
                "round %d: %d clients are connected; %d were waited for",
                state.round,
                connected,
                target,
            )

    def refresh(self, grid: Grid, model: Any, wait_s: float | None = None) -> None:
        """Look which clients are connected and enrol new ones.

        Parameters
        ----------
        model: the ArrayRecord of this round.
        wait_s: how long answers of new nodes are waited for; None: at the first look as long as
        they may take, then not at all.

        Raises
        ------
        ConfigError: what new clients report does not fit what the selector knows.
        """
        if wait_s is None:
            wait_s = 0.0 if self.registry.looked else self.registry.limit_s
        new = self.registry.refresh(grid, wait_s)
        if self.registry.nameless and self.settings.save is not None:
            raise ConfigError(
                "a selector's file keeps what is known of each client, and these nodes name none; "
                "expected app = with_reports(app) "
                f'and --node-config "{self.settings.key}=<whole number>", or out, which keeps the '
                "nodes, too",
                key="save",
            )
        numbers = self.counts.changed()
        again: set[int] = set()
        if "num_examples" in self.registry.wanted:
            again = numbers.keys() - {report.id for report in new}
        new += [self.registry.enrolled[client].report for client in sorted(again)]
        new = [self.counts.counting(report) for report in new]
        if new and "last_layer" in self.selector.rule.needs().enrolled:
            if self.state.initial_layer is None:
                self.state.initial_layer = last_layer(arrays_of(model))
            layer = {"last_layer": self.state.initial_layer}
            new = [
                dataclasses.replace(report, signals={**report.signals, **layer}) for report in new
            ]
        if new:
            observe_enrolments(self.selector, self.registry, new)

    def _probe(self, current: OpenRound, model: Any, version: float) -> None:
        """Measure the candidates on a model and let the selector observe it; ``version``: NaN for a
        rehearsed model."""
        measured = self.prober.measure(current, model)
        computed = self.signals.before_choice(self.state, measured)
        signals = {
            client: {**values, **computed.get(client, {})} for client, values in measured.items()
        }
        reports = [
            Report(client, Outcome.PROBED, version, signals=values)
            for client, values in signals.items()
        ]
        self.selector.observe(self.state.round, reports)

    # ---------------------------------------------------------------------------- send the messages

    def address(self, messages: Iterable[Any]) -> list[Any]:
        """Return the strategy's messages addressed to the chosen nodes; see
        :func:`address_messages`."""
        current = self._open()
        addressed = address_messages(messages, current.clients, current.cohort)
        declares = {
            node for node, client in current.clients.items() if self.registry.declares(client)
        }
        addressed = ask_for(self.asked, addressed, declares)
        if not addressed:
            current.clients = {}  # a strategy that writes no message asks no client
        if self.secure is not None:
            addressed = self.secure.open(current, addressed)
        current.bits_down = {
            message.metadata.dst_node_id: content_bits(message.content) for message in addressed
        }
        return addressed

    def record(self, sent: Iterable[SentMessage]) -> None:
        """Note when messages to the chosen clients were sent and answered, or to those that
        evaluate."""
        current = self.current
        sent = list(sent)
        if current is None:
            return
        current.sent |= {
            message.node: message for message in sent if message.node in current.clients
        }
        if current.evaluation:
            self.state.add_exchange("evaluate", sent, current.evaluation)
            current.evaluation = 0.0

    # ----------------------------------------------------------------------------- read the replies

    def read_replies(self, replies: Iterable[Any]) -> list[Any]:
        """Check the replies to training and report what became of every chosen client; return the
        usable replies, sorted by client.

        Raises
        ------
        ConfigError: no client's reply can be used, for a reason that lies in the client app.
        """
        current = self._open()
        if self.secure is not None:
            replies = self.secure.close(current, replies)
        received = {reply.metadata.src_node_id: reply for reply in replies if not reply.has_error()}
        messages = {
            client: received[node] for node, client in current.clients.items() if node in received
        }
        bounds = self.counts.bounds(messages)
        forms = self.state.reply_forms
        for client in forms.keys() - self.registry.node_of.keys():
            del forms[client]
        checked, current.form = self.reader.read_all(
            messages=messages,
            model=current.model,
            model_key=current.model_key,
            forms=forms,
            bounds=bounds,
            first_dtypes=self.state.first_dtypes,
        )
        current.checked = checked = {
            k: dataclasses.replace(reply, bits=current.bits_up.get(k, reply.bits))
            for k, reply in checked.items()
        }
        self._look_for_app_errors(current, checked)
        if self.secure is None:
            note_unused("reply", checked, self.registry)
        model = np.zeros(0)
        if self.signals.compares:
            model = model_vector(arrays_of(current.model, self.state.first_dtypes))
        self.state.last_updates.discard()
        for node, client in current.clients.items():
            reply = checked.get(client, CheckedReply())
            sent = current.sent.get(node, SentMessage(node))
            self._report(current, client, reply, sent, model=model)
        return self._usable(current, checked)

    def with_tied_form(self) -> list[Any] | None:
        """Return the usable replies with what only half of the clients send, where a strategy needs
        that; the others' are rejected. None where nothing is tied."""
        current = self._open()
        if current.form is None or not current.form.tied:
            return None
        checked = self.reader.fit(current.checked, current.form.with_tied())
        lacking = {
            k
            for k, reply in checked.items()
            if reply.result is None and current.checked[k].result is not None
        }
        self.reject("the strategy needs what the records of the reply lack", lacking)
        return self._usable(current, checked)

    def _usable(self, current: OpenRound, checked: Mapping[int, CheckedReply]) -> list[Any]:
        usable = {
            client: reply.message for client, reply in checked.items() if reply.result is not None
        }
        if self.settings.weights == "strategy":
            return list(usable.values())
        return self._weighed(current, usable)

    def _look_for_app_errors(self, current: OpenRound, checked: Mapping[int, CheckedReply]) -> None:
        """Raise if no reply was ever accepted and all clients fail for one reason, which lies in
        the app then: a whole cohort whose replies cannot be used, or all connected clients, or two
        cohorts, whose apps raise."""
        if any(reply.result is not None for reply in checked.values()):
            self.state.app_errors = {}
            return
        if any(row.outcome == "accepted" for row in self.rows):
            return
        for node, client in current.clients.items():
            problem = checked.get(client, CheckedReply()).problem
            error = current.sent.get(node, SentMessage(node)).error
            reason = failure_of_app(error)
            enough = max(2 * self.m, 3)
            if isinstance(problem, AppError):
                reason = str(problem)
                enough = max(self.m, 2)
            alike = self.state.app_errors.setdefault(reason, set())
            alike.add(client)
            if reason and len(alike) >= max(
                min(len(self.registry.node_of), enough), min(2, self.registry.awaited)
            ):
                raise ConfigError(f"no client's reply can be used: {problem or error}")

    def _report(
        self, current: OpenRound, client: int, reply: CheckedReply, sent: SentMessage, model: Floats
    ) -> None:
        """Add the report and the table's row of one chosen client."""
        state = self.state
        result = reply.result
        seconds = sent.arrived_s - sent.sent_s
        outcome, reason = _outcome(reply, sent)
        bits_down = current.bits_down.get(sent.node, 0.0)
        if reason:
            LOG.warning(
                "round %d: client %d is %s: %s (node %d)",
                state.round,
                client,
                outcome.name.lower(),
                reason,
                sent.node,
            )
        state.note_answer(client, sent, self.settings.longest_pause)
        signals: dict[str, Value] = {}
        if result is not None:
            signals = {
                name: value for name, value in result.signals.items() if name != LEARNING_RATES
            }
            signals |= self.signals.of(client, result, model, state)
            state.round_trips[client] = seconds
        arrived = outcome != Outcome.DROPPED
        current.reports.append(
            Report(
                client,
                outcome,
                version=state.round - 1.0,
                staleness=0.0,
                bits_down=bits_down,
                num_examples=self._num_examples(client, result),
                local_steps=math.nan if result is None else result.steps,
                download_s=0.0 if arrived else math.nan,
                compute_s=seconds if arrived else math.nan,
                upload_s=0.0 if arrived else math.nan,
                bits_up=reply.bits if arrived else math.nan,
                signals=signals,
            )
        )
        row = ParticipationRow(
            round=state.round,
            client=client,
            outcome=outcome.name.lower(),
            seconds=seconds if arrived else math.nan,
            bits_down=bits_down,
            bits_up=reply.bits,
            signals=signals,
            reason=reason,
        )
        state.rows.append(row)
        state.add_traffic("train", bits_down, reply.bits)

    def _num_examples(self, client: int, result: ClientResult | None) -> float:
        enrolled = self.counts.observed.get(client, math.nan)
        if not math.isnan(enrolled) or result is None or self.reader.weight_key != EXAMPLES:
            return enrolled
        return result.weight

    def _weighed(self, current: OpenRound, usable: Mapping[int, Any]) -> list[Any]:
        """Return the replies with the cohort's weights in place of the clients' own; those of
        weight 0 are left out."""
        cohort = current.cohort
        key = self.reader.weight_key
        if cohort.weights is None or key is None:
            return list(usable.values())
        weights = dict(zip(cohort.ids.tolist(), cohort.weights.tolist(), strict=True))
        weighed = []
        for client, reply in usable.items():
            if weights[client]:
                next(iter(reply.content.metric_records.values()))[key] = float(weights[client])
                weighed.append(reply)
        return weighed

    # ------------------------------------------------------------------------------ close the round

    def refuse(self, reason: str) -> None:
        """Reject all replies of the round, because the strategy would not aggregate them.

        Raises
        ------
        ConfigError: no reply was ever accepted.
        """
        current = self._open()
        t = self.state.round
        earlier = any(row.outcome == "accepted" and row.round < t for row in self.rows)
        if (
            not earlier
            and sum(report.outcome == Outcome.ACCEPTED for report in current.reports) > 1
        ):
            raise ConfigError(
                "the strategy refuses what the client app replies: "
                f"{shortened(printable(reason), 400)}"
            )
        self.reject(f"the strategy refuses the replies: {reason}")

    def blame(self, reason: str, clients: Collection[int]) -> None:
        """Reject the replies of clients that a step was refused for; set a client aside whose
        replies spoilt steps again and again."""
        self.reject(reason, clients)
        for client in clients:
            self.state.refusals[client] = self.state.refusals.get(client, 0) + 1
            if self.state.refusals[client] == MOST_REFUSALS:
                sentence = (
                    f"is asked no more by this run: {MOST_REFUSALS} steps in a row were "
                    "refused for its uploads"
                )
                self.registry.places.note(
                    self.registry.node_of.get(client, -1), "set aside", sentence, client
                )

    def reject(self, reason: str, clients: Collection[int] | None = None) -> None:
        """Reject replies of the round that were usable, those of ``clients``; None: all."""
        current = self._open()
        t = self.state.round
        reason = shortened(printable(reason), 400)
        spared = () if clients is None else {report.id for report in current.reports} - set(clients)
        LOG.warning(
            "round %d: rejected %s: %s", t, "all" if clients is None else sorted(clients), reason
        )
        current.reports = _replace_accepted(
            current.reports, spared, outcome=Outcome.REJECTED, signals={}
        )
        now = self.state.rows_of_round()
        for i, row in enumerate(now, len(self.rows) - len(now)):
            if row.outcome == "accepted" and row.client not in spared:
                self.rows[i] = dataclasses.replace(row, outcome="rejected", reason=reason)

    def close_round(self, model: Any) -> bool:
        """Let the selector observe the round; return whether the strategy's new model is kept,
        which it is not after a rehearsal.

        Parameters
        ----------
        model: the strategy's new model, an ArrayRecord, or None.
        """
        current = self._open()
        rehearsal = self.rehearsal
        if model is not None and rehearsal:
            if current.candidates:
                self._probe(current, model, version=math.nan)
            current.reports = _replace_accepted(current.reports, outcome=Outcome.REHEARSED)
        elif model is not None:
            self.signals.stepped(self.state, current.model, model)
        self._tell_sizes(current.reports)
        self.selector.observe(self.state.round, current.reports)
        for report in current.reports:
            if (
                report.outcome == Outcome.ACCEPTED
                and self.state.refusals.get(report.id, MOST_REFUSALS) < MOST_REFUSALS
            ):
                del self.state.refusals[report.id]
        current.clients = {}  # messages of an evaluation belong to no chosen client
        self._save()
        return not rehearsal

    def _tell_sizes(self, reports: Sequence[Report]) -> None:
        """Let the selector know the training samples of clients that did not say at enrolment, from
        their first usable reply."""
        if "num_examples" not in self.registry.wanted or self.reader.weight_key != EXAMPLES:
            return
        new = [
            report
            for report in reports
            if report.outcome == Outcome.ACCEPTED and report.id not in self.state.sized
        ]
        new = [
            report for report in new if math.isnan(self.registry.enrolled[report.id].num_examples)
        ]
        self.state.sized |= {report.id for report in new}
        if new:
            self.selector.observe(
                0,
                [
                    Report(report.id, Outcome.ENROLLED, num_examples=report.num_examples)
                    for report in new
                ],
            )

    def _open(self) -> OpenRound:
        if self.current is None:
            raise ConfigError("no round was begun; expected configure_train before aggregate_train")
        return self.current

    def _save(self) -> None:
        """Write the selector's file; where the disk refuses, the run goes on, and the file of an
        earlier round stays."""
        if self.settings.save is None:
            return
        path = Path(self.settings.save)
        try:
            with replacing(path) as file:
                file.write(self.selector.to_bytes())
        except OSError as error:
            LOG.warning("round %d: %s", self.state.round, disk_error(error, path))

    # ----------------------------------------------------------------------------------- evaluation

    def open_evaluation(self, messages: Iterable[Any]) -> list[Any]:
        """Return the strategy's messages of a federated evaluation, counted when they are sent."""
        messages = list(messages)
        if self.current is not None:
            self.current.evaluation = sum(content_bits(message.content) for message in messages)
        return messages

    def usable_evaluations(self, replies: Sequence[Any]) -> list[Any]:
        """Return the usable evaluations, sorted by client, in the form that most of them have."""
        by_client = {
            self.registry.client_at(reply.metadata.src_node_id): reply for reply in replies
        }
        messages = {client: reply for client, reply in by_client.items() if client is not None}
        checked = self.reader.evaluations(messages, self.counts.evaluation_bounds(messages))
        for client, evaluation in checked.items():
            if evaluation.problem is not None:
                node = self.registry.node_of[client]
                sentence = f"an evaluation cannot be used: {evaluation.problem}"
                self.registry.places.note(node, "rejected", sentence, client)
        note_unused("evaluation", checked, self.registry)
        usable = {
            client: evaluation.message
            for client, evaluation in checked.items()
            if evaluation.result is not None
        }
        self.evaluations = {
            k: dict(next(iter(message.content.metric_records.values())))
            for k, message in usable.items()
        }
        return list(usable.values())


def _outcome(reply: CheckedReply, sent: SentMessage) -> tuple[Outcome, str]:
    """Return what became of a client, and why it is not accepted."""
    if reply.result is not None:
        return Outcome.ACCEPTED, ""
    if reply.problem is not None:
        return Outcome.REJECTED, str(reply.problem)
    return Outcome.REJECTED if sent.unreadable else Outcome.DROPPED, sent.error or "no reply"


def _replace_accepted(
    reports: Sequence[Report], spared: Collection[int] = (), **changes: Any
) -> list[Report]:
    """Return reports, those of accepted clients changed but for ``spared``."""
    chosen = [report.outcome == Outcome.ACCEPTED and report.id not in spared for report in reports]
    return [
        dataclasses.replace(report, **changes) if change else report
        for report, change in zip(reports, chosen, strict=True)
    ]
