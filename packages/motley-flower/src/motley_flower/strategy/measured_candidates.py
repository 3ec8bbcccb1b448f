"""Measure candidates before a choice: learning signals by a query that counts as traffic, system
signals from earlier rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from motley.core.errors import ConfigError
from motley.core.outliers import excessive
from motley.core.records import SIGNALS
from motley.core.server_signals import Value
from motley_flower.checked_numbers import AppError, NodeError, only_metrics
from motley_flower.messages import SentMessage, content_bits, exchange, flower
from motley_flower.node_registry import RECORD, NodeRegistry
from motley_flower.strategy.replies import signals_of
from motley_flower.strategy.strategy_state import OpenRound, SelectionState

PROBE = "query.motley_probe"
"""The message that asks for signals before a choice; the client app answers it with
``@app.query("motley_probe")``."""


class SignalProber:
    """The probes of one run.

    Parameters
    ----------
    wanted: signal -> batches (None: all data), as a rule's ``needs().probed``.
    registry: of the nodes.
    state: of the run.
    longest_pause: rounds, at most, that a client without an answer in time is left out.
    """

    def __init__(
        self,
        wanted: Mapping[str, int | None],
        registry: NodeRegistry,
        state: SelectionState,
        longest_pause: int = 0,
    ) -> None:
        self.wanted = {
            name: batches for name, batches in wanted.items() if SIGNALS[name].kind != "channel"
        }
        self.registry = registry
        self.state = state
        self.longest_pause = longest_pause
        self.learning = [name for name in sorted(self.wanted) if SIGNALS[name].kind != "system"]

    def measure(self, current: OpenRound, model: Any) -> dict[int, dict[str, Value]]:
        """Return the wanted signals of the round's candidates on ``model``, an ArrayRecord; clients
        without an answer are left out.

        Raises
        ------
        ConfigError: no client ever answered, because of the client app.
        """
        system = self.wanted.keys() - set(self.learning)
        system_signals = {
            client: self._system_signals(client, system) for client in current.candidates
        }
        if not self.learning:
            return system_signals
        answers = self._ask(current, model)
        useless: list[NodeError] = []
        size = sum(math.prod(array.shape) for array in model.values())
        measured = {}
        for client, answer in zip(current.candidates, answers, strict=True):
            self.state.note_answer(client, answer, self.longest_pause)
            try:
                measured[client] = self._read(answer, size) | system_signals[client]
            except NodeError as problem:
                useless += [problem] if answer.reply is not None else []
                self.registry.places.note(
                    answer.node, "unanswered", f"cannot be measured: {problem}", client
                )
        for client, reason in excessive(measured).items():
            del measured[client]
            node = self.registry.node_of[client]
            self.registry.places.note(node, "unanswered", f"cannot be measured: {reason}", client)
        self.state.probed |= bool(measured)
        # one alone is no sign of the app
        if not self.state.probed and len(useless) >= min(2, self.registry.awaited):
            raise ConfigError(
                f"no client could be measured; the selector wants {', '.join(self.learning)} "
                "before it chooses: the client app must "
                'answer @app.query("motley_probe") with one MetricRecord of these keys (the first '
                f"problem: {useless[0]!s:.300})"
            )
        return measured

    def _ask(self, current: OpenRound, model: Any) -> list[SentMessage]:
        app = flower()
        t = self.state.round
        batches = [self.wanted[name] or 0 for name in self.learning]
        config = app.ConfigRecord({"signals": self.learning, "batches": batches, "server-round": t})
        own = {current.model_key: model, RECORD: config}
        # an app that measures by its own train function needs what the strategy sends with the
        # model
        declaring = [k for k in current.candidates if self.registry.declares(k)]
        nodes = [current.candidates[client] for client in declaring]
        beside = current.records(nodes) if nodes else {}
        limit_s = self.registry.limit_s
        messages = []
        for node in current.candidates.values():
            content = app.RecordDict({current.model_key: model, **beside.get(node, {}), **own})
            messages.append(app.Message(content, node, PROBE, group_id=str(t), ttl=limit_s))
        answers = exchange(current.grid, messages, limit_s, self.registry.clock)
        self.state.add_exchange(
            "probe", answers, sum(content_bits(message.content) for message in messages)
        )
        return answers

    def _read(self, answer: SentMessage, model_size: int) -> dict[str, Value]:
        if answer.error:
            raise NodeError(answer.error)
        _, metrics = only_metrics(answer.reply.content)
        missing = [name for name in self.learning if name not in metrics]
        if missing:
            raise AppError(f"the answer lacks {', '.join(missing)}")
        return signals_of(metrics, self.learning, model_size)

    def _system_signals(self, client: int, names: Iterable[str]) -> dict[str, Value]:
        """Return estimates of seconds: the client's last round trip, else what it reported at
        enrolment, else the mean of the other clients' round trips, or 0 seconds while none is
        known, so that new clients are tried."""
        trips = self.state.round_trips
        reported = self.registry.enrolled[client].signals
        trip = trips.get(client, sum(trips.values()) / len(trips) if trips else 0.0)
        usual = {
            "compute_estimate_s": trip,
            "download_estimate_s": 0.0,
            "upload_estimate_s": 0.0,
            "uplink_mbps": math.nan,
        }
        return {
            name: usual[name] if client in trips else reported.get(name, usual[name])
            for name in names
        }
