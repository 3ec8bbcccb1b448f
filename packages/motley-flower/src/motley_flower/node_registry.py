"""Keep track of which node is which client: Flower's node ids change with every start, and
selectors remember clients.

A node that is new is asked once, by a query, which client it is: an integer of its node
configuration (``partition-id``, or a key of your own), and, where the selector wants them, numbers
that are reported at enrolment. The answer is checked before it is used.

Where the client app does not answer that query, or the node's configuration names no client, and
the selector needs nothing from clients that they do not declare, each node is a client of its own,
numbered in order of appearance. Whether nodes name their clients, and how many classes their labels
have, is what more than half of them say (:mod:`~motley_flower.majority`).

One client is one node at a time; which one is told in :mod:`~motley_flower.client_places`: with a
file of clients the node's public key decides, without one each node's word.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.records import SIGNALS, Outcome, Report
from motley_flower.checked_numbers import (
    LARGEST_WHOLE,
    AppError,
    NodeError,
    number_of,
    only_metrics,
    whole_number,
)
from motley_flower.client_list import ClientList
from motley_flower.client_places import NOBODY, ClientPlaces
from motley_flower.majority import Majority
from motley_flower.messages import (
    WALL_CLOCK,
    Grid,
    Outbox,
    SentMessage,
    WallClock,
    content_bits,
    flower,
)
from motley_flower.node_config import LARGEST_ID

LOG = logging.getLogger("motley.flower")

ENROL = "query.motley_enrol"
"""The message that asks a node which client it is; the client app answers it with
``@app.query("motley_enrol")``."""
RECORD = "motley"
"""The ConfigRecord of Motley's queries, and of what a client app declares in its answer."""
_NO_ANSWER = (
    "No query function registered with name 'motley_enrol'",
    f"Invalid message type: {ENROL}",
)
"""What Flower's ClientApp says where :data:`ENROL` is not answered: one of today, and one of a
``client_fn``."""
EXAMPLES = "num-examples"
"""The metric key that has Flower's name instead of the signal's."""
LARGEST_HISTOGRAM = 100_000
LONGEST_PAUSE = 16
"""Calls of :meth:`NodeRegistry.refresh`, at most, between two questions to a node that does not
answer."""
LOOK_S = 5.0
"""Seconds between two looks for new nodes while a round is under way."""


@dataclass(frozen=True)
class Enrolment:
    """What a node reports of itself once.

    Parameters
    ----------
    client: the client's id; :data:`~motley_flower.client_places.NOBODY` where the node names none.
    num_examples: training samples; NaN if not reported.
    signals: enrolment signals, by name.
    declares: whether the app says what it can report
    (:func:`~motley_flower.strategy.reporting.with_reports`).
    """

    client: int
    num_examples: float = math.nan
    signals: Mapping[str, float | Floats] = field(default_factory=dict)
    declares: bool = False

    @property
    def report(self) -> Report:
        """The report that a selector observes in round 0."""
        return Report(
            self.client, Outcome.ENROLLED, num_examples=self.num_examples, signals=self.signals
        )


def read_enrolment(
    metrics: Mapping[str, Any],
    key: str,
    wanted: Iterable[str],
    max_examples: float | None = None,
    number: int | None = None,
) -> Enrolment:
    """Check the answer to :data:`ENROL`.

    Parameters
    ----------
    metrics: of the answer.
    key: of the client's id.
    wanted: enrolment signals that the selector needs.
    max_examples: the largest number of training samples that a client may claim; None: 2^53, and
    where the selector wants the number, it must be told.
    number: the client's id where the answer names none; None: it must name one.

    Raises
    ------
    NodeError: a number is missing or is not what it should be.
    """
    if key not in metrics and number is None:
        raise NodeError(
            f"the answer names no {key!r}; expected it in --node-config, as a whole number"
        )
    client = whole_number(metrics[key], key, LARGEST_ID) if key in metrics else int(number or 0)
    examples = float(whole_number(metrics[EXAMPLES], EXAMPLES)) if EXAMPLES in metrics else math.nan
    if max_examples is not None and examples > max_examples:
        raise NodeError(
            f"{EXAMPLES!r} is {examples:g}; expected at most max_examples = {max_examples:g}"
        )
    signals: dict[str, float | Floats] = {}
    for name in sorted(wanted):
        sent_as = EXAMPLES if name == "num_examples" else name
        if sent_as in metrics:
            if name == "label_histogram":
                most = LARGEST_WHOLE if math.isnan(examples) else int(examples)
                signals[name] = _histogram(metrics[sent_as], most)
            else:
                signals[name] = number_of(metrics[sent_as], sent_as)
        elif name == "num_examples" and max_examples is not None:
            continue  # the first reply tells it
        elif SIGNALS[name].kind != "system":
            # the planner's estimates are optional: the server measures them in time
            raise AppError(
                f"the selector wants {name!r} at enrolment; the client app must add {sent_as!r} to "
                f"its answer to {ENROL}"
                + (
                    ", or with_selector(..., max_examples=10_000) say the largest, and replies "
                    "tell it" * (name == "num_examples")
                )
            )
    return Enrolment(client, examples, signals)


def _histogram(counts: Any, most: int) -> Floats:
    """Return the counts of labels, each of which is at most ``most``, the client's samples."""
    name = "label_histogram"
    if not isinstance(counts, list) or not 0 < len(counts) <= LARGEST_HISTOGRAM:
        raise NodeError(
            f"{name} is {type(counts).__name__}; expected a list of counts, one for each class"
        )
    return np.array([whole_number(count, name, most) for count in counts], np.float64)


class NodeRegistry:
    """The connected nodes and the clients they are, from round to round.

    Parameters
    ----------
    key: of ``--node-config``, the client's stable whole number.
    wanted: signals that the selector needs at enrolment (``needs().enrolled``).
    limit_s: how long a node may take to answer.
    clock: the server's.
    wait: whether :meth:`refresh` waits for the answers of new nodes unless it is told not to;
    otherwise a later call takes them in, and answers that show that no client app answers the query
    are logged instead of raised.
    max_examples: see :func:`read_enrolment`.
    lacks: given the records of a node's answer, None where its app answers no such query, returns
    what the selector needs and does not get, empty if nothing, and nodes without client ids are
    numbered. None: every node must name its client.
    clients: the file of clients; None: a node is the client that it says.
    classes: of labels; None: what most nodes say.

    Attributes
    ----------
    places: which node is which client, and the incidents about it.
    enrolled: every client that ever enrolled.
    awaited: clients that the run waits for: of them, too, more than half must agree on what holds
    for the whole federation.
    looked: whether anybody looked for nodes before.
    bits_down, bits_up: traffic so far.
    numbers: by node, the client's id where no node names one.
    restarted: nodes that were found started again at the last look; they are asked anew which
    client they are.
    refusal: why no node is known, although some answered; empty where none did.

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
        classes: int | None = None,
    ) -> None:
        self.places = ClientPlaces(clients, limit_s, clock)
        self.max_examples = max_examples
        self.lacks = lacks
        self.numbers: dict[int, int] = {}
        self.key = key
        self.wanted = frozenset(wanted)
        self.limit_s = limit_s
        self.clock = clock
        self.wait = wait
        if "last_layer" in self.wanted:
            raise ConfigError(
                "the selector wants 'last_layer' at enrolment, which only a simulation knows; take "
                "a rule without it"
            )
        self.enrolled: dict[int, Enrolment] = {}
        self.bits_down = self.bits_up = 0.0
        self.restarted: frozenset[int] = frozenset()
        self._activated: dict[int, str] = {}
        self._by_node: dict[int, Enrolment] = {}
        self._outbox: Outbox | None = None
        self._asked: list[SentMessage] = []
        # node that failed to answer -> calls left to skip, calls skipped in all
        self._pauses: dict[int, tuple[int, int]] = {}
        # node -> what kind of problem its last answer had
        self._problems: dict[int, tuple[str, NodeError]] = {}
        self._client_of: dict[int, int] = {}
        self._naming = Majority[bool]()
        self._classes = Majority(classes)
        self._numbers_nodes = False
        self._next_look_s = -math.inf
        self.awaited = 1
        self.looked = False
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
        """Return the client that a connected node is; None for a node that is unknown or waits for
        its place."""
        return self._client_of.get(node)

    def declares(self, client: int) -> bool:
        """Return whether the app of a connected client says what it can report."""
        return self._by_node[self.node_of[client]].declares

    def refresh(self, grid: Grid, wait_s: float | None = None) -> list[Report]:
        """Look which nodes are connected and ask new ones which client they are; return the reports
        of clients that enrol now.

        Parameters
        ----------
        wait_s: how long open answers are waited for; None: as long as they may take, where the
        registry waits.

        Raises
        ------
        ConfigError: most nodes answer with the same error and no client is known: the client app
        does not answer the query.
        """
        if self._outbox is None or self._outbox.grid is not grid:
            self._outbox = Outbox(grid, self.clock)
            self._asked = []
        self.looked = True
        self._take_in(self._outbox)
        connected = self._connected(grid)
        self._asked += self._outbox.send(self._questions(connected))
        if wait_s is None:
            wait_s = self.limit_s if self.wait else 0.0
        if wait_s > 0:
            self._outbox.wait((), wait_s)
            self._take_in(self._outbox)
        self._refuse_all(connected)
        self.places.assign(connected, self._claims(connected))
        places = sorted(self.node_of.items())
        self._client_of = {node: client for client, node in places}
        new = [
            dataclasses.replace(self._by_node[node], client=k)
            for k, node in places
            if k not in self.enrolled
        ]
        self.enrolled |= {enrolment.client: enrolment for enrolment in new}
        return [enrolment.report for enrolment in new]

    def attend(self) -> None:
        """Take in answers and ask new nodes while a round is under way; :meth:`refresh` makes
        clients of them."""
        if self._outbox is None:
            return
        self._outbox.collect()
        if self.clock.now() >= self._next_look_s:
            self._next_look_s = self.clock.now() + LOOK_S
            admitted = self.places.admit(self._outbox.grid.get_nodes())
            self._asked += self._outbox.send(self._questions(admitted - self._activated.keys()))

    def dismiss(self, client: int, words: str) -> None:
        """Let an enrolled client be none in this round, and note why."""
        node = self.node_of.pop(client)
        del self.enrolled[client], self._client_of[node]
        self.places.note(node, "refused", words, client)

    def restore(
        self, numbers: Mapping[int, int], enrolled: Mapping[int, Enrolment], classes: int | None
    ) -> None:
        """Take over what an earlier server knew: the numbers of nodes that name no client, the
        enrolments, the classes of labels."""
        self.numbers = dict(numbers)
        if self.numbers:
            self._naming.value = False
            self._numbers_nodes = True
        self.enrolled = dict(enrolled)
        self._classes.value = classes if self._classes.value is None else self._classes.value

    @property
    def classes(self) -> int | None:
        """How many classes labels have; None as long as no majority says it."""
        return self._classes.value

    @property
    def nameless(self) -> bool:
        """Whether it is decided that nodes name no clients, so that each is a client for as long as
        it keeps its node id."""
        return self._naming.value is False

    def _connected(self, grid: Grid) -> set[int]:
        """Return the connected nodes that may be clients. A node that Flower activated anew keeps
        its id, and may be another client now; in Flower's simulation nodes are never activated."""
        nodes = list(grid.get_nodes())
        activated = {
            int(node.node_id): str(getattr(node, "last_activated_at", "")) for node in nodes
        }
        self.restarted = frozenset(
            node for node, since in activated.items() if self._activated.get(node, since) != since
        )
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
        """Return the query to every connected node that is unknown, not yet asked and not
        paused."""
        pending = {sent.node for sent in self._asked}
        unknown = [
            node for node in sorted(connected - self._by_node.keys()) if not self._paused(node)
        ]
        nodes = [node for node in unknown if node not in pending]
        if not nodes:
            return []
        app = flower()
        content = app.RecordDict(
            {RECORD: app.ConfigRecord({"key": self.key, "wanted": ",".join(sorted(self.wanted))})}
        )
        self.bits_down += content_bits(content) * len(nodes)
        return [app.Message(content, node, ENROL, ttl=self.limit_s) for node in nodes]

    def _paused(self, node: int) -> bool:
        left, length = self._pauses.get(node, (0, 0))
        if left:
            self._pauses[node] = (left - 1, length)
        return left > 0

    def _take_in(self, outbox: Outbox) -> None:
        """Read the answers that have come; a node whose answer cannot be used is paused, twice as
        long each time."""
        outbox.collect()
        overdue = [sent for sent in self._asked if self.clock.now() >= sent.sent_s + self.limit_s]
        outbox.give_up(overdue, f"no answer within {self.limit_s:g} s")
        answered = [sent for sent in self._asked if not sent.pending]
        self._asked = [sent for sent in self._asked if sent.pending]
        for answer in answered:
            try:
                self._by_node[answer.node] = self._read(answer)
                self._pauses.pop(answer.node, None)
                self._problems.pop(answer.node, None)
            except NodeError as problem:
                self._note_problem(answer, problem)
            except Exception as problem:  # whatever records of a foreign kind may raise
                self._note_problem(
                    answer, NodeError(f"its answer cannot be read: {type(problem).__name__}")
                )

    def _note_problem(self, answer: SentMessage, problem: NodeError) -> None:
        node = answer.node
        length = min(max(2 * self._pauses.get(node, (0, 0))[1], 1), LONGEST_PAUSE)
        self._pauses[node] = (length, length)
        if isinstance(problem, AppError):
            kind = str(problem)
        else:
            kind = "an error" if answer.error else "no use"
        silent = answer.unanswered or (bool(answer.error) and answer.reply is None)
        self._problems[node] = ("" if silent else kind, problem)
        self.places.note(
            node,
            "unanswered" if silent else "refused",
            f"cannot be asked which client it is: {problem}",
        )

    def _refuse_all(self, connected: set[int]) -> None:
        """Raise where no node is known and most of those connected have the same problem, which
        lies in the client app then.

        Raises
        ------
        ConfigError: so it is, and the registry waits for answers; otherwise it is logged.
        """
        self._problems = {
            node: problem for node, problem in self._problems.items() if node in connected
        }
        if self._by_node or any(sent.pending for sent in self._asked):
            return
        kind = Majority[str]().decide([kind for kind, _ in self._problems.values()], self.awaited)
        if not kind:
            return
        alike = [problem for of, problem in self._problems.values() if of == kind]
        sentence = str(alike[0])
        if kind == "an error":
            sentence = (
                f"all {len(alike)} nodes answered {ENROL!r} with an error; expected app = "
                "with_reports(ClientApp()), or "
                '@app.query("motley_enrol"), and a SuperNode with --node-config '
                f'"{self.key}=<whole number>" (the first error: '
                f"{sentence:.300})"
            )
        elif kind == "no use":
            sentence = f"no node's answer to {ENROL!r} can be used; the first: {sentence:.300}"
        if self.wait:
            raise ConfigError(sentence)
        if sentence != self.refusal:
            self.refusal = sentence
            LOG.warning("%s", sentence)

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
        number = None
        owner = self.places.owner(answer.node)
        if owner is not None:  # by its key, whatever it says
            if self.key in metrics:
                self.places.claimed(answer.node, metrics[self.key])
            metrics = {name: value for name, value in metrics.items() if name != self.key}
            number = owner.id
        elif (deaf or declares) and self.lacks is not None:
            number = NOBODY
        enrolment = read_enrolment(metrics, self.key, self.wanted, self.max_examples, number=number)
        self.bits_up += 0 if content is None else content_bits(content)
        return dataclasses.replace(enrolment, declares=declares)

    def _claims(self, connected: set[int]) -> dict[int, int]:
        """Return which client each node is, of those connected nodes that have answered and agree
        with most of them."""
        nodes = {node: report for node, report in self._by_node.items() if node in connected}
        if self.places.listed is None and self.lacks is not None and nodes:
            self._decide_naming([report.client != NOBODY for report in nodes.values()])
            for node in [
                node
                for node, report in nodes.items()
                if (report.client == NOBODY) != self._numbers_nodes
            ]:
                claim = "no client" if nodes.pop(node).client == NOBODY else "its client"
                self.places.note(
                    node,
                    "refused",
                    f"names {claim}; expected {self.key!r} in --node-config of all, or of none",
                )
        sizes = {
            node: np.size(report.signals["label_histogram"])
            for node, report in nodes.items()
            if "label_histogram" in report.signals
        }
        classes = self._classes.decide(list(sizes.values()), self.awaited)
        for node in [node for node, size in sizes.items() if size != classes]:
            del nodes[node]
            if classes:
                expected = f"{classes}, as most say"
            else:
                expected = f"others to say so, too, or with_selector(..., classes={sizes[node]})"
            self.places.note(
                node,
                "refused" if classes else "waits",
                f"has labels of {sizes[node]} classes; expected {expected}",
            )
        return {
            node: self._number(node) if report.client == NOBODY else report.client
            for node, report in nodes.items()
        }

    def _decide_naming(self, named: list[bool]) -> None:
        """Let more than half of the nodes decide whether nodes name their clients; where they say
        the other than before, the clients of before are none."""
        decided = self._naming.decide(named, self.awaited)
        numbers = 2 * sum(named) < len(named) if decided is None else not decided
        if numbers != self._numbers_nodes:
            self._numbers_nodes = numbers
            self.numbers.clear()
            self.enrolled.clear()

    def _number(self, node: int) -> int:
        """Return the number of a node that names no client."""
        if not self.numbers:
            LOG.warning(
                "the nodes name no client ids, so each node is a client, numbered in order of "
                "appearance: the history of a client "
                "ends when its node restarts under a new id (app = with_reports(app) and "
                '--node-config "%s=<number>" keep it)',
                self.key,
            )
        return self.numbers.setdefault(node, max(self.numbers.values(), default=-1) + 1)
