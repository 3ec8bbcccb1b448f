"""The server's side of secure aggregation with a strategy: it gets the survivors' mean in place of
their models.

Before training the chosen clients exchange keys and shares; their messages to train then carry the
peers' envelopes. After training the sum is unmasked, and every survivor's reply is given the model
sent plus the weighted mean of the updates, so that a strategy which averages steps on that mean. A
round that is abandoned leaves the model as it is; the next one has fresh keys.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from motley.core.errors import ConfigError, RoundAbandonedError
from motley.core.records import Cohort
from motley.selectors.selector import Selector
from motley_flower.messages import SentMessage, content_bits, exchange, flower
from motley_flower.node_registry import EXAMPLES, LOG, NodeRegistry
from motley_flower.secure_exchange import Register, SecureExchange
from motley_flower.secure_messages import RECORD, SECURE, missing_extra, secure_bytes, secure_record
from motley_flower.strategy.replies import ReplyReader
from motley_flower.strategy.reply_signals import arrays_of
from motley_flower.strategy.settings import SelectionSettings
from motley_flower.strategy.strategy_state import OpenRound, SelectionState

try:
    from motley_flower.secure.drawable import check_drawable
    from motley_flower.secure.secure_round import CohortHistory
    from motley_flower.secure.terms import SecureOptions
    from motley_flower.secure.verifiable_draws import DrawServer
except ModuleNotFoundError as missing:
    raise missing_extra(missing) from None

AVERAGING = ("FedAvg", "FedAvgM", "FedProx", "FedOpt", "FedAdagrad", "FedAdam", "FedYogi")
"""Strategies of Flower that need nothing but the weighted mean of the models."""


def check_secure(
    strategy: Any,
    selector: Selector[Any],
    m: int,
    settings: SelectionSettings,
    options: SecureOptions,
) -> None:
    """Refuse what needs single uploads, or what the clients could not know.

    Raises
    ------
    ConfigError: another strategy than an averaging one, a selector that reads uploads, its weights,
    or a cohort of another size.
    """
    name = type(strategy).__name__
    rule = type(selector.rule).__name__
    if name not in AVERAGING:
        raise ConfigError(
            f"{name} needs single updates, or is not known to need none; secure aggregation gives "
            f"their mean: expected one of {', '.join(AVERAGING)}",
            "secure_aggregation",
        )
    if seen := selector.rule.single_signals:
        raise ConfigError(
            f"{rule} needs numbers of every single update ({', '.join(seen)}), and secure "
            "aggregation shows none; take another selector",
            "secure_aggregation",
        )
    if settings.weights == "selector" or settings.uploads == "any":
        raise ConfigError(
            "secure aggregation weighs by num-examples up to max_weight, and sends arrays like the "
            "model's; leave "
            'weights = "selector" and uploads = "any" out',
            "secure_aggregation",
        )
    options.check_cohort(m)
    if options.draws:
        check_drawable(selector.rule, options.draw_rule, options.draws)


class SecureSums(SecureExchange):
    """Secure aggregation for the rounds of one run.

    Parameters
    ----------
    options: of the protocol.
    register: client -> public key, or the file.
    selector: chooses ``m`` clients a round.
    settings: of the run.
    reader: of the replies.
    registry: of the nodes.
    state: of the run.
    """

    def __init__(
        self,
        options: SecureOptions,
        register: Register,
        selector: Selector[Any],
        m: int,
        settings: SelectionSettings,
        reader: ReplyReader,
        registry: NodeRegistry,
        state: SelectionState,
    ) -> None:
        super().__init__(options, register)
        self.state = state
        self.clock = settings.clock
        self.limit_s = settings.query_limit_s
        self.wanted = ",".join(sorted({*reader.wanted, "loss"}))
        self.weight_key = reader.weight_key
        self.run = secrets.token_bytes(16)
        self.registry = registry
        self._link = b""
        self.selector = selector
        self.m = m
        state.traffic |= {"secure_bits_down": 0.0, "secure_bits_up": 0.0}
        LOG.info("secure aggregation: %s", options.claim(m))

    def save(self) -> dict[str, Any]:
        """Return what a server that is started again must know, as plain values."""
        draws = b"" if self.draws is None else self.draws.save()
        return {
            "run": self.run,
            "sums": [list(cohort) for cohort in self.history.sums],
            "draws": draws,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`save` returned; raises ConfigError for another register than the
        one of the draws."""
        self.run = bytes(saved["run"])
        self.history = CohortHistory([tuple(cohort) for cohort in saved["sums"]])
        self.draws = (
            DrawServer.restored(bytes(saved["draws"]), self.register) if saved["draws"] else None
        )

    def draw(self, current: OpenRound) -> Cohort | None:
        """Return the cohort that the clients can recompute; None where the selector chooses.

        Raises
        ------
        ConfigError: too few clients agree on the draws, before the first round.
        """
        if not self.options.draws:
            return None
        if self.draws is None:
            self.draws = self.agree(
                self.selector, self.m, lambda requests: self._ask(current, requests)
            )
        cohort, self._link = self.draws.draw(self.state.round)
        return Cohort(np.array(cohort, np.int64))

    def open(self, current: OpenRound, messages: list[Any]) -> list[Any]:
        """Return the messages to train, with the envelopes of secure aggregation, to those that
        have exchanged keys and shares."""
        self._round = None
        clients = sorted(current.cohort.ids.tolist())
        size = sum(
            int(np.prod(array.shape))
            for array in current.model.values()
            if np.dtype(array.dtype).kind == "f"
        )
        try:
            strange = sorted(set(clients) - self.register.keys())
            if strange:
                raise RoundAbandonedError(f"client {strange[0]} is not in the register of keys")
            terms = self.terms(self.run, self.state.round, size, clients)
            envelopes = self.begin(terms, lambda requests: self._ask(current, requests), self._link)
        except (ConfigError, RoundAbandonedError) as problem:
            self._abandon(current, str(problem))
            return []
        outgoing = []
        app = flower()
        for message in messages:
            envelope = envelopes.get(current.clients[message.metadata.dst_node_id])
            if envelope is not None:
                content = app.RecordDict(
                    {
                        **dict(message.content.items()),
                        RECORD: secure_record(envelope, self.wanted, self.run.hex()),
                    }
                )
                about = message.metadata
                outgoing.append(
                    app.Message(
                        content,
                        about.dst_node_id,
                        about.message_type,
                        ttl=about.ttl,
                        group_id=about.group_id,
                    )
                )
        self._note_problems(current)
        return outgoing

    def close(self, current: OpenRound, replies: Iterable[Any]) -> list[Any]:
        """Return the replies with the survivors' mean in place of their masked updates, and error
        replies as they are."""
        replies = list(replies)
        sound = {
            current.clients[reply.metadata.src_node_id]: reply
            for reply in replies
            if not reply.has_error() and reply.metadata.src_node_id in current.clients
        }
        failed = [reply for reply in replies if reply.has_error()]
        if self._round is None:
            return failed
        current.bits_up = {client: content_bits(reply.content) for client, reply in sound.items()}
        server = self._round.server
        try:
            mean, _ = self._round.close(
                {client: secure_bytes(reply.content) for client, reply in sound.items()}
            )
        except RoundAbandonedError as problem:
            self._abandon(current, str(problem))
            return failed
        self._note_problems(current)
        model = _moved(current.model, mean)
        survivors = [client for client in server.survivors if client in sound]
        for client in survivors:
            self._replace(sound[client].content, model, current.model_key)
        self.count_sum(self.state.round, survivors)
        return [*(sound[client] for client in survivors), *failed]

    def _replace(self, content: Any, model: Any, key: str) -> None:
        """Put the mean model in the place of a masked update; all replies hold the same, so each
        counts as one sample."""
        metrics: Mapping[str, Any] = next(iter(content.metric_records.values()), {})
        reported = {name: metrics[name] for name in self.wanted.split(",") if name in metrics}
        for name in list(content):
            del content[name]
        content[key], content["metrics"] = (
            model,
            flower().MetricRecord({**reported, self.weight_key or EXAMPLES: 1}),
        )

    def _ask(self, current: OpenRound, requests: Mapping[int, bytes]) -> dict[int, object]:
        """Send one step's messages and return the answers by client."""
        app = flower()
        node_of = self.registry.node_of
        clients = {node_of[client]: client for client in requests if client in node_of}
        messages = [
            app.Message(
                app.RecordDict({RECORD: secure_record(requests[client], run=self.run.hex())}),
                node,
                SECURE,
                ttl=self.limit_s,
            )
            for node, client in clients.items()
        ]
        answers: dict[int, object] = {}
        up = 0.0
        for answer in exchange(current.grid, messages, self.limit_s, self.clock):
            client = clients[answer.node]
            if answer.error:
                LOG.warning(
                    "round %d: client %d takes no part in secure aggregation: %s",
                    self.state.round,
                    client,
                    answer.error,
                )
                if answer.node in current.clients:
                    current.sent[answer.node] = SentMessage(answer.node, error=answer.error)
            else:
                answers[client] = secure_bytes(answer.reply.content)
                up += content_bits(answer.reply.content)
        self.state.add_traffic(
            "secure", sum(content_bits(message.content) for message in messages), up
        )
        return answers

    def _note_problems(self, current: OpenRound) -> None:
        if self._round is not None:
            for node, client in current.clients.items():
                if client in self._round.server.problems:
                    self._reject(current, node, self._round.server.problems[client])

    def _abandon(self, current: OpenRound, why: str) -> None:
        """Let every chosen client of the round be reported as rejected, for this reason."""
        LOG.warning("round %d: no secure sum: %s", self.state.round, why)
        self._round = None
        for node in current.clients:
            if not current.sent.get(node, SentMessage(node)).error:
                self._reject(current, node, why)

    def _reject(self, current: OpenRound, node: int, why: str) -> None:
        sent = current.sent.get(node, SentMessage(node))
        current.sent[node] = dataclasses.replace(sent, error=why, unreadable=True)


def _moved(model: Any, mean: Any) -> Any:
    """Return an ArrayRecord moved by a mean update; whole numbers stay."""
    app = flower()
    at = 0
    moved = {}
    for name, array in arrays_of(model).items():
        if array.dtype.kind == "f":
            step = mean[at : at + array.size].reshape(array.shape)
            at += array.size
            array = (array.astype(np.float64) + step).astype(array.dtype)
        moved[name] = app.Array(np.ascontiguousarray(array))
    return app.ArrayRecord(moved)
