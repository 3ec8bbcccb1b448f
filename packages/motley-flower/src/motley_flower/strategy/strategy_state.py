"""What changes in a run of a strategy with a selector: the state that grows from round to round,
and the round under way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.last_updates import LastUpdates
from motley.core.records import Cohort, Report
from motley.core.saved_state import FIXED
from motley_flower.messages import Grid, SentMessage, content_bits
from motley_flower.node_registry import LOG
from motley_flower.strategy.participation import ExchangeRow, ParticipationRow
from motley_flower.strategy.replies import CheckedReply
from motley_flower.strategy.reply_forms import ReplyForm, RunForm

MOST_REFUSALS = 3
"""Refused steps in a row that a client's upload was dropped from, after which the client is set
aside."""
Records = Callable[[Sequence[int]], Mapping[int, Mapping[str, Any]]]
"""What a strategy sends beside the model: given nodes, the records of each by key."""
_TRAFFIC = [
    f"{purpose}_bits_{way}" for purpose in ("probe", "train", "evaluate") for way in ("down", "up")
]


@dataclass
class SelectionState:
    """Everything that changes from round to round, beside the selector and the registry of nodes.

    Parameters
    ----------
    round: number of the last round that was opened.
    dispatched: clients that were asked to train so far.
    rows: the participation table, which a record has in its tables.
    exchanges: probes and federated evaluations, which a record has in its history.
    traffic: bits by purpose and direction.
    connected: the number of clients connected when more were awaited in vain; None where enough
    were.
    initial_layer: last layer of the first model sent, ``[d]``.
    consensus: of the server's steps, ``[D]``.
    last_updates: of the clients, where the selector compares them with the consensus.
    round_trips: by client, seconds from sending to arrival of its last accepted reply.
    pauses: by client that did not answer in time, the rounds of its pause and the last of them.
    reply_forms: by connected client, the form of its last reply.
    app_errors: by reason, the clients whose replies were useless since a reply was last usable.
    sized: clients whose number of samples came with a reply.
    probed: whether any client ever answered a probe.
    refusals: by client, from how many steps in a row its upload was dropped.
    first_dtypes: by name, the dtype of an array of the model that was no float when it was first
    sent, as an index or a mask; a strategy's mean makes a float of it.
    """

    round: int = 0
    dispatched: int = 0
    rows: list[ParticipationRow] = field(default_factory=list, metadata=FIXED)
    exchanges: list[ExchangeRow] = field(default_factory=list, metadata=FIXED)
    traffic: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_TRAFFIC, 0.0))
    connected: int | None = None
    initial_layer: Floats | None = None
    consensus: Floats | None = None
    last_updates: LastUpdates = field(default_factory=LastUpdates)
    round_trips: dict[int, float] = field(default_factory=dict)
    pauses: dict[int, tuple[int, int]] = field(default_factory=dict)
    reply_forms: dict[int, ReplyForm] = field(default_factory=dict)
    app_errors: dict[str, set[int]] = field(default_factory=dict)
    sized: set[int] = field(default_factory=set)
    probed: bool = False
    refusals: dict[int, int] = field(default_factory=dict)
    first_dtypes: dict[str, str] = field(default_factory=dict)

    def note_dtypes(self, model: Any) -> None:
        """Note the arrays of a model, an ArrayRecord, that are no floats."""
        for name, array in model.items():
            dtype = str(array.dtype)
            if dtype.startswith(("bool", "int", "uint")):
                self.first_dtypes.setdefault(name, dtype)

    def rows_of_round(self) -> list[ParticipationRow]:
        """Return the rows of the last round that was opened; they are the last ones."""
        begin = len(self.rows)
        while begin and self.rows[begin - 1].round == self.round:
            begin -= 1
        return self.rows[begin:]

    def note_answer(self, client: int, sent: SentMessage, longest: int) -> None:
        """Leave a client that did not answer in time out of the next rounds, twice as many as the
        last time, at most ``longest``; forget that, once it answers."""
        if not sent.unanswered:
            self.pauses.pop(client, None)
        elif longest:
            rounds = min(2 * self.pauses.get(client, (0, 0))[0] or 1, longest)
            self.pauses[client] = rounds, self.round + rounds
            LOG.warning(
                "round %d: client %d was too slow; rounds that it is left out of now: %d",
                self.round,
                client,
                rounds,
            )

    def offered(self, clients: Ids) -> Ids:
        """Return those of the connected clients that are not left out in this round; all of them,
        where none would be. Clients that were set aside are never offered."""
        clients = np.array(
            [k for k in clients.tolist() if self.refusals.get(k, 0) < MOST_REFUSALS], np.int64
        )
        rested = [
            client for client in clients.tolist() if self.pauses.get(client, (0, 0))[1] < self.round
        ]
        return np.array(rested, np.int64) if rested else clients

    def add_exchange(self, purpose: str, sent: Sequence[SentMessage], bits_down: float) -> None:
        """Count a probe or a federated evaluation: its messages, and ``bits_down``, the size of all
        of them."""
        answered = [message for message in sent if not message.error]
        bits_up = sum(content_bits(message.reply.content) for message in answered)
        seconds = max(
            (message.arrived_s - message.sent_s for message in answered), default=math.nan
        )
        self.exchanges.append(
            ExchangeRow(
                round=self.round,
                purpose=purpose,
                asked=len(sent),
                answered=len(answered),
                seconds=seconds,
                bits_down=bits_down,
                bits_up=bits_up,
            )
        )
        self.add_traffic(purpose, bits_down, bits_up)

    def add_traffic(self, purpose: str, bits_down: float, bits_up: float) -> None:
        """Count bits that were sent for a purpose."""
        self.traffic[f"{purpose}_bits_down"] += bits_down
        self.traffic[f"{purpose}_bits_up"] += bits_up


@dataclass
class OpenRound:
    """One round under way.

    Parameters
    ----------
    grid: Flower's.
    model: the ArrayRecord that is sent.
    model_key: its key in the strategy's messages.
    records: given nodes, returns by node what the strategy sends beside the model, by key.
    candidates: client -> node, the clients that were probed before the choice.
    cohort: the selector's choice.
    clients: node -> client, those asked to train, in order of client id.
    bits_down: by node, the size of its message.
    bits_up: by client, the size of its reply where it was replaced by a mean.
    sent: by node, its message and the reply.
    reports: of the clients asked to train, in order of client id.
    checked: by client, the replies after the checks.
    form: of the round's replies.
    evaluation: bits of all messages of a federated evaluation.
    """

    grid: Grid
    model: Any
    model_key: str
    records: Records = lambda nodes: {}
    candidates: dict[int, int] = field(default_factory=dict)
    cohort: Cohort = field(default_factory=lambda: Cohort(np.zeros(0, np.int64)))
    clients: dict[int, int] = field(default_factory=dict)
    bits_down: dict[int, float] = field(default_factory=dict)
    bits_up: dict[int, float] = field(default_factory=dict)
    sent: dict[int, SentMessage] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    checked: dict[int, CheckedReply] = field(default_factory=dict)
    form: RunForm | None = None
    evaluation: float = 0.0
