"""Measuring candidates before a choice: learning signals by a message that is billed, system signals from what was seen so far."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from motley.adapters.flower.checks import AppError, NodeError, only_metrics
from motley.adapters.flower.messages import Grid, SentMessage, content_bits, exchange, flower
from motley.adapters.flower.node_registry import NodeRegistry
from motley.adapters.flower.strategy.replies import Value, signals_of
from motley.core.errors import ConfigError
from motley.core.records import SIGNALS

__all__ = ["PROBE", "Prober"]

LOG = logging.getLogger("motley.flower")

PROBE = "query.motley_probe"
"""The message that asks for signals before a choice; the client app answers it with ``@app.query("motley_probe")``."""


class Prober:
    """Who measures.

    Parameters
    ----------
    wanted: signal -> batches (None: all data), as a rule's ``needs().probed``. register: of the deployment.
    """

    def __init__(self, wanted: Mapping[str, int | None], register: NodeRegistry) -> None:
        self.wanted, self.register = dict(wanted), register
        self.learning = [name for name in sorted(wanted) if SIGNALS[name].kind != "system"]
        self.trips: dict[int, float] = {}
        """Client -> seconds from sending to arrival, the last time."""
        self.bits_down = self.bits_up = 0.0
        self._answered = False  # whether any client ever did

    def measure(
        self, grid: Grid, candidates: Mapping[int, int], arrays: Any, record_key: str, round: int
    ) -> dict[int, dict[str, Value]]:
        """The wanted signals of those who answer; ``candidates``: client -> node. ``arrays``: the model, sent as ``record_key``.

        Raises
        ------
        ConfigError: nobody answered ever, and the client app is why.
        """
        known = {client: self._system(client, self.wanted.keys() - set(self.learning)) for client in candidates}
        if not self.learning:
            return known
        app = flower()
        batches = [self.wanted[name] or 0 for name in self.learning]
        about = app.ConfigRecord({"signals": self.learning, "batches": batches, "server-round": round})
        content = app.RecordDict({record_key: arrays, "motley": about})
        messages = [app.Message(content, node, PROBE, group_id=str(round)) for node in candidates.values()]
        answers = exchange(grid, messages, self.register.limit_s, self.register.clock)
        self.bits_down += content_bits(content) * len(messages)
        self.bits_up += sum(content_bits(answer.reply.content) for answer in answers if not answer.error)
        size = sum(math.prod(array.shape) for array in arrays.values())
        out, problems = {}, []
        for client, answer in zip(candidates, answers, strict=True):
            try:
                out[client] = _measured(answer, self.learning, size) | known[client]
            except NodeError as problem:
                problems.append(str(problem))
                LOG.warning("round %d: client %d cannot be measured: %s", round, client, problem)
        self._answered |= bool(out)
        if not self._answered and any(answer.reply is not None for answer in answers):
            raise ConfigError(
                f"no client could be measured; the selector wants {', '.join(self.learning)} before it chooses: the client app must "
                f'answer @app.query("motley_probe") with one MetricRecord of these keys (the first problem: {problems[0]:.300})'
            )
        return out

    def _system(self, client: int, names: Iterable[str]) -> dict[str, Value]:
        """What a planner would expect: the last time from sending to arrival, else what the site said at enrolment; who is new counts
        as the mean of the others, and as 0 seconds while nothing is known, so that it is tried."""
        told = self.register.enrolled[client].signals
        seen = list(self.trips.values())
        trip = self.trips.get(client, sum(seen) / len(seen) if seen else 0.0)
        usual = {"compute_estimate_s": trip, "download_estimate_s": 0.0, "upload_estimate_s": 0.0, "uplink_mbps": math.nan}
        return {name: usual[name] if client in self.trips else told.get(name, usual[name]) for name in names}


def _measured(answer: SentMessage, names: Sequence[str], size: int) -> dict[str, Value]:
    if answer.error:
        raise NodeError(answer.error)
    _, metrics = only_metrics(answer.reply.content)
    missing = [name for name in names if name not in metrics]
    if missing:
        raise AppError(f"the answer lacks {', '.join(missing)}")
    return signals_of(metrics, names, size)
