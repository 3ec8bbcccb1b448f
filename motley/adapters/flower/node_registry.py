"""Keep track of which node is which client: Flower's node ids change with every start, and selectors remember clients.

A node that is new is asked once, by a query, which client it is: an integer of its node configuration (``partition-id``, or a key
of your own), and, where the selector wants them, numbers that are reported at enrolment. The answer is checked before it is used.

Where the client app does not answer that query, or the node's configuration names no client, and the selector needs nothing from
clients that they do not declare, each node is a client of its own, numbered in order of appearance.

One client is one node at a time; which one is told in :mod:`~motley.adapters.flower.client_places`: with a file of clients the
node's public key decides, without one each node's word.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motley.adapters.flower.checks import AppError, NodeError, number_of, only_metrics, whole_number
from motley.adapters.flower.client_list import ClientList
from motley.adapters.flower.client_places import ClientPlaces
from motley.adapters.flower.messages import WALL_CLOCK, Grid, Outbox, SentMessage, WallClock, content_bits, flower
from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.records import SIGNALS, Outcome, Report

__all__ = ["ENROL", "EXAMPLES", "LOG", "RECORD", "Enrolment", "NodeRegistry", "read_enrolment"]

LOG = logging.getLogger("motley.flower")

ENROL = "query.motley_enrol"
"""The message that asks a node which client it is; the client app answers it with ``@app.query("motley_enrol")``."""
RECORD = "motley"
"""The ConfigRecord of Motley's queries, and of what a client app declares in its answer."""
_NO_ANSWER = ("No query function registered with name 'motley_enrol'", f"Invalid message type: {ENROL}")
"""What Flower's ClientApp says where :data:`ENROL` is not answered: one of today, and one of a ``client_fn``."""
EXAMPLES = "num-examples"
"""The metric key that has Flower's name instead of the signal's."""
LARGEST_HISTOGRAM = 100_000
LONGEST_PAUSE = 16
"""Calls of :meth:`NodeRegistry.refresh`, at most, between two questions to a node that does not answer."""


@dataclass(frozen=True)
class Enrolment:
    """What a node reports of itself once.

    Parameters
    ----------
    client: the client's id. num_examples: training samples; NaN if not reported. signals: enrolment signals, by name.
    declares: whether the app says what it can report (:func:`~motley.adapters.flower.strategy.reporting.with_reports`).
    """

    client: int
    num_examples: float = math.nan
    signals: Mapping[str, float | Floats] = field(default_factory=dict)
    declares: bool = False

    @property
    def report(self) -> Report:
        """The report that a selector observes in round 0."""
        return Report(self.client, Outcome.ENROLLED, num_examples=self.num_examples, signals=self.signals)


def read_enrolment(
    metrics: Mapping[str, Any], key: str, wanted: Iterable[str], max_examples: float | None = None, number: int | None = None
) -> Enrolment:
    """Check the answer to :data:`ENROL`.

    Parameters
    ----------
    metrics: of the answer. key: of the client's id. wanted: enrolment signals that the selector needs.
    max_examples: the largest number of training samples that a client may claim; None: 2^53, and where the selector wants the number,
    it must be told. number: the client's id where the answer names none; None: it must name one.

    Raises
    ------
    NodeError: a number is missing or is not what it should be.
    """
    if key not in metrics and number is None:
        raise NodeError(f"the answer names no {key!r}; expected it in --node-config, as a whole number")
    client = whole_number(metrics[key], key) if key in metrics else int(number or 0)
    examples = float(whole_number(metrics[EXAMPLES], EXAMPLES)) if EXAMPLES in metrics else math.nan
    if max_examples is not None and examples > max_examples:
        raise NodeError(f"{EXAMPLES!r} is {examples:g}; expected at most max_examples = {max_examples:g}")
    signals: dict[str, float | Floats] = {}
    for name in sorted(wanted):
        sent_as = EXAMPLES if name == "num_examples" else name
        if sent_as in metrics:
            signals[name] = _histogram(metrics[sent_as]) if name == "label_histogram" else number_of(metrics[sent_as], sent_as)
        elif name == "num_examples" and max_examples is not None:
            continue  # the first reply tells it
        elif SIGNALS[name].kind != "system":  # the planner's estimates are optional: the server measures them in time
            raise AppError(
                f"the selector wants {name!r} at enrolment; the client app must add {sent_as!r} to its answer to {ENROL}"
                + (
                    ", or with_selector(..., max_examples=10_000) say the largest, and replies tell it"
                    * (name == "num_examples")
                )
            )
    return Enrolment(client, examples, signals)


def _histogram(counts: Any) -> Floats:
    name = "label_histogram"
    if not isinstance(counts, list) or not 0 < len(counts) <= LARGEST_HISTOGRAM:
        raise NodeError(f"{name} is {type(counts).__name__}; expected a list of counts, one for each class")
    return np.array([whole_number(count, name) for count in counts], np.float64)


class NodeRegistry:
    """The connected nodes and the clients they are, from round to round.

    Parameters
    ----------
    key: of ``--node-config``, the client's stable whole number.
    wanted: signals that the selector needs at enrolment (``needs().enrolled``).
    limit_s: how long a node may take to answer.
    clock: the server's.
    wait: whether :meth:`refresh` waits for the answers of new nodes; otherwise a later call takes them in, and answers that show
    that no client app answers the query are logged instead of raised.
    max_examples: see :func:`read_enrolment`.
    lacks: given the records of a node's answer, None where its app answers no such query, returns what the selector needs and does not
    get, empty if nothing, and nodes without client ids are numbered. None: every node must name its client.
    clients: the file of clients; None: a node is the client that it says.

    Attributes
    ----------
    places: which node is which client, and the incidents about it. enrolled: every client that ever enrolled.
    bits_down, bits_up: traffic so far.
    numbers: by node, the client's id where no node names one.
    restarted: nodes that were found started again at the last look; they are asked anew which client they are. refusal: why no node
    is known, although some answered; empty where none did.

    Raises
    ------
    ConfigError: a signal that no client can report at enrolment.
    """

    def __init__(
        self,
        key: str = "partition-id",
        wanted: Iterable[str] = (),
        limit_s: float = 120.0,
        clock: WallClock = WALL_CLOCK,
        wait: bool = True,
        max_examples: float | None = None,
        lacks: Callable[[Any], str] | None = None,
        clients: ClientList | None = None,
    ) -> None:
        self.places = ClientPlaces(clients, limit_s, clock)
        self.max_examples, self.lacks = max_examples, lacks
        self.numbers: dict[int, int] = {}
        self.key, self.wanted, self.limit_s, self.clock, self.wait = key, frozenset(wanted), limit_s, clock, wait
        if "last_layer" in self.wanted:
            raise ConfigError(
                "the selector wants 'last_layer' at enrolment, which only a simulation knows; take a rule without it"
            )
        self.enrolled: dict[int, Enrolment] = {}
        self.bits_down = self.bits_up = 0.0
        self.restarted: frozenset[int] = frozenset()
        self._activated: dict[int, str] = {}
        self._by_node: dict[int, Enrolment] = {}
        self._outbox: Outbox | None = None
        self._asked: list[SentMessage] = []
        self._pauses: dict[int, tuple[int, int]] = {}  # node that failed to answer -> calls left to skip, calls skipped in all
        self._classes: int | None = None
        self.refusal = ""

    @property
    def node_of(self) -> dict[int, int]:
        """The node of every connected client."""
        return self.places.node_of

    @property
    def clients(self) -> Ids:
        """The clients whose nodes are connected, sorted."""
        return np.array(sorted(self.node_of), np.int64)

    def client_at(self, node: int) -> int | None:
        """Return the client that a connected node is; None for a node that is unknown or waits for its place."""
        known = self._by_node.get(node)
        return known.client if known is not None and self.node_of.get(known.client) == node else None

    def declares(self, client: int) -> bool:
        """Return whether the app of a connected client says what it can report."""
        return self._by_node[self.node_of[client]].declares

    def refresh(self, grid: Grid) -> list[Report]:
        """Look which nodes are connected and ask new ones which client they are; return the reports of clients that enrol now.

        Raises
        ------
        ConfigError: every node asked answered with an error and no client is known: the client app does not answer the query.
        """
        if self._outbox is None or self._outbox.grid is not grid:
            self._outbox = Outbox(grid, self.clock)
        if not self.wait:
            self._take_in_late_answers(self._outbox)
        connected = self._connected(grid)
        self._asked += self._outbox.send(self._questions(connected))
        if self.wait:
            self._outbox.wait(self._asked, self.limit_s)
            asked, self._asked = self._asked, []
            self._take_in(asked)
        self.places.assign(connected, {node: known.client for node, known in self._by_node.items()})
        new = [self._by_node[node] for client, node in sorted(self.node_of.items()) if client not in self.enrolled]
        self.enrolled |= {enrolment.client: enrolment for enrolment in new}
        return [enrolment.report for enrolment in new]

    def _connected(self, grid: Grid) -> set[int]:
        """Return the connected nodes that may be clients. A node that Flower activated anew keeps its id, and may be another client
        now; in Flower's simulation nodes are never activated."""
        nodes = list(grid.get_nodes())
        activated = {int(node.node_id): str(getattr(node, "last_activated_at", "")) for node in nodes}
        self.restarted = frozenset(node for node, since in activated.items() if self._activated.get(node, since) != since)
        self._activated |= activated
        for node in self.restarted:
            self._by_node.pop(node, None)
            self._asked = [sent for sent in self._asked if sent.node != node]
            LOG.info("node %d was started again", node)
        self.places.restarted(self.restarted)
        admitted = self.places.admit(nodes)
        for node in admitted & self._by_node.keys():
            owner = self.places.owner(node)
            if owner is not None and owner.id != self._by_node[node].client:
                del self._by_node[node]  # the file names another client for its key now
        return admitted

    def _questions(self, connected: set[int]) -> list[Any]:
        """Return the query to every connected node that is unknown, not yet asked and not paused."""
        pending = {sent.node for sent in self._asked}
        unknown = [node for node in sorted(connected - self._by_node.keys()) if not self._paused(node)]
        nodes = [node for node in unknown if node not in pending]
        if not nodes:
            return []
        app = flower()
        content = app.RecordDict({RECORD: app.ConfigRecord({"key": self.key, "wanted": ",".join(sorted(self.wanted))})})
        self.bits_down += content_bits(content) * len(nodes)
        return [app.Message(content, node, ENROL, ttl=self.limit_s) for node in nodes]

    def _paused(self, node: int) -> bool:
        left, length = self._pauses.get(node, (0, 0))
        if left:
            self._pauses[node] = (left - 1, length)
        return left > 0

    def _take_in_late_answers(self, outbox: Outbox) -> None:
        outbox.collect()
        overdue = [sent for sent in self._asked if self.clock.now() >= sent.sent_s + self.limit_s]
        outbox.give_up(overdue, f"no answer within {self.limit_s:g} s")
        answered = [sent for sent in self._asked if not sent.pending]
        self._asked = [sent for sent in self._asked if sent.pending]
        try:
            self._take_in(answered)
        except ConfigError as error:
            self.refusal = str(error)
            LOG.warning("%s", error)

    def _take_in(self, answers: list[SentMessage]) -> None:
        """Read the answers of nodes; a node whose answer cannot be used is paused, twice as long each time.

        Raises
        ------
        ConfigError: no answer can be used and no node is known.
        """
        problems: dict[int, NodeError] = {}
        for answer in answers:
            try:
                self._by_node[answer.node] = self._read(answer)
                self._pauses.pop(answer.node, None)
            except NodeError as problem:
                problems[answer.node] = problem
                length = min(max(2 * self._pauses.get(answer.node, (0, 0))[1], 1), LONGEST_PAUSE)
                self._pauses[answer.node] = (length, length)
        if problems and not self._by_node and len(problems) == len(answers):
            self._refuse(answers, list(problems.values()))
        for node, reason in problems.items():
            LOG.warning("node %d cannot be asked: %s", node, reason)

    def _refuse(self, answers: list[SentMessage], problems: list[NodeError]) -> None:
        """Raise where no node is known and the reason for it lies in the client app."""
        app_error = next((problem for problem in problems if isinstance(problem, AppError)), None)
        if app_error is not None:
            raise ConfigError(str(app_error))
        if all(answer.error and answer.reply is not None and not answer.unanswered for answer in answers):
            raise ConfigError(
                f"all {len(answers)} nodes answered {ENROL!r} with an error; expected app = with_reports(ClientApp()), or "
                f'@app.query("motley_enrol"), and a SuperNode with --node-config "{self.key}=<whole number>" (the first error: '
                f"{problems[0]!s:.300})"
            )
        if not any(answer.error for answer in answers):
            raise ConfigError(f"no node's answer to {ENROL!r} can be used; the first: {problems[0]!s:.300}")

    def _read(self, answer: SentMessage) -> Enrolment:
        deaf = self.lacks is not None and any(words in answer.error for words in _NO_ANSWER)
        if answer.error and not deaf:
            raise NodeError(answer.error)
        content = None if deaf else answer.reply.content
        metrics = {} if content is None else only_metrics(content)[1]
        declares = content is not None and RECORD in content.config_records
        lacking = self.lacks(content) if self.lacks is not None and (deaf or declares) else ""
        if lacking:
            raise AppError(lacking)
        number, owner = None, self.places.owner(answer.node)
        if owner is not None:  # by its key, whatever it says
            if self.key in metrics:
                self.places.claimed(answer.node, metrics[self.key])
            metrics, number = {name: value for name, value in metrics.items() if name != self.key}, owner.id
        elif deaf or declares:
            number = self._number(answer.node, self.key in metrics)
        enrolment = read_enrolment(metrics, self.key, self.wanted, self.max_examples, number)
        enrolment = dataclasses.replace(enrolment, declares=declares)
        if number is not None and owner is None:
            self.numbers[answer.node] = number
        if "label_histogram" in enrolment.signals:
            classes = np.size(enrolment.signals["label_histogram"])
            if classes != (self._classes or classes):
                raise NodeError(f"label_histogram has {classes} classes; expected {self._classes}, as the others")
            self._classes = classes
        self.bits_up += 0 if content is None else content_bits(content)
        return enrolment

    def _number(self, node: int, named: bool) -> int | None:
        """Return the number of a node that names no client; None for one that does, or where every node must."""
        if named and not self.numbers:
            return None
        if named or (self._by_node and not self.numbers):
            raise NodeError(
                f"some nodes name their client and others none; expected {self.key!r} in --node-config of all, or of none"
            )
        if self.lacks is None:
            return None
        if not self.numbers:
            LOG.warning(
                "the nodes name no client ids, so each node is a client, numbered in order of appearance: the history of a client "
                'ends when its node restarts under a new id (app = with_reports(app) and --node-config "%s=<number>" keep it)',
                self.key,
            )
        return self.numbers.get(node, max(self.numbers.values(), default=-1) + 1)
