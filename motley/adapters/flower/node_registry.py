"""Who is behind a node. Flower's node ids change with every start; selectors remember clients.

A node that is new is asked once, by a query, which client it is: an integer of its node configuration (``partition-id``, or a key
of your own), and, where the selector wants them, numbers that are told at enrolment. What a node tells is checked before use.

One client is one node at a time. A node that claims a client whose node is still connected waits until that one is gone: a site
that was restarted takes its place again, and nobody takes another's.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.adapters.flower.messages import CLOCK, Answer, Clock, Grid, bits_of, exchange, flower
from motley.core.arrays import Ids
from motley.core.errors import ConfigError
from motley.core.records import SIGNALS, Outcome, Report

__all__ = ["ENROL", "EXAMPLES", "AppError", "NodeError", "NodeRegistry", "Told", "read_told"]

LOG = logging.getLogger("motley.flower")

ENROL = "query.motley_enrol"
"""The message that asks a node which client it is; the client app answers it with ``@app.query("motley_enrol")``."""
EXAMPLES = "num-examples"
"""The one key that has Flower's name instead of the signal's."""
LARGEST_ID = 2**53  # metrics travel as numbers of 64 bits; whole numbers above are not safe as floats
LARGEST_HISTOGRAM = 100_000
PATIENCE = 16  # rounds, at most, between two questions to a node that does not answer


class NodeError(Exception):
    """What a node sent cannot be used; costs that node only."""


class AppError(NodeError):
    """The same, of a kind that all nodes would send when their client app is not made for what it is asked."""


@dataclass(frozen=True)
class Told:
    """What a node said of itself."""

    client: int
    num_examples: float = math.nan
    signals: Mapping[str, float | NDArray[np.float64]] = field(default_factory=dict)

    @property
    def report(self) -> Report:
        """As a selector hears it, once, in round 0."""
        return Report(self.client, Outcome.ENROLLED, num_examples=self.num_examples, signals=self.signals)


def whole(value: Any, what: str, largest: float = LARGEST_ID) -> int:
    """A number that must be a whole one, from 0.

    Raises
    ------
    NodeError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NodeError(f"{what} is {value!r:.60}; expected a whole number of at least 0")
    if value != int(value) or not 0 <= value <= largest:
        raise NodeError(f"{what} is {value!r:.60}; expected a whole number from 0 to {largest:.0f}")
    return int(value)


def read_told(metrics: Mapping[str, Any], key: str, wanted: Iterable[str]) -> Told:
    """The answer to :data:`ENROL`, checked.

    Raises
    ------
    NodeError: a number is missing or is not what it should be.
    """
    if key not in metrics:
        raise NodeError(f"the answer names no {key!r}; expected it in --node-config, as a whole number")
    client = whole(metrics[key], key)
    examples = math.nan
    signals: dict[str, float | NDArray[np.float64]] = {}
    if EXAMPLES in metrics:
        examples = float(whole(metrics[EXAMPLES], EXAMPLES))
    for name in sorted(wanted):
        said = EXAMPLES if name == "num_examples" else name
        if said not in metrics and SIGNALS[name].kind == "system":
            continue  # the planner's estimates: a site may know them, the server learns them
        if said not in metrics:
            raise NodeError(
                f"the selector wants {name!r} at enrolment; the client app must add {said!r} to its answer to {ENROL}"
            )
        if name == "label_histogram":
            counts = metrics[said]
            if not isinstance(counts, list) or not 0 < len(counts) <= LARGEST_HISTOGRAM:
                raise NodeError(f"{said} is {type(counts).__name__}; expected a list of counts, one for each class")
            signals[name] = np.array([whole(count, said) for count in counts], np.float64)
        else:
            value = metrics[said]
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise NodeError(f"{said} is {value!r:.60}; expected one finite number")
            signals[name] = float(value)
    return Told(client, examples, signals)


class NodeRegistry:
    """Nodes and clients, from round to round.

    Parameters
    ----------
    key: of ``--node-config``, the client's stable whole number.
    wanted: signals the selector wants at enrolment (``needs().enrolled``).
    limit_s: how long nodes may take to answer.
    clock: of the server.

    Raises
    ------
    ConfigError: a signal that no client can tell at enrolment.
    """

    def __init__(
        self, key: str = "partition-id", wanted: Iterable[str] = (), limit_s: float = 120.0, clock: Clock = CLOCK
    ) -> None:
        self.key, self.wanted, self.limit_s, self.clock = key, frozenset(wanted), limit_s, clock
        for name in sorted(self.wanted & {"last_layer"}):
            raise ConfigError(
                f"the selector wants {name!r} at enrolment, which only a simulation knows; take a rule without it"
            )
        self.told: dict[int, Told] = {}  # by node
        self.node_of: dict[int, int] = {}  # by client, those that are there
        self.enrolled: dict[int, Told] = {}  # by client, everybody ever
        self.bits_down = self.bits_up = 0.0
        self._waits: dict[
            int, tuple[int, int]
        ] = {}  # by node that failed to answer: looks left until asked again, then so many
        self._width: int | None = None  # of a label histogram
        self._warned: set[int] = set()

    @property
    def clients(self) -> Ids:
        """Who is there, sorted."""
        return np.array(sorted(self.node_of), np.int64)

    def client_at(self, node: int) -> int | None:
        """The client behind a node, if it is the one that speaks for it."""
        told = self.told.get(node)
        return told.client if told is not None and self.node_of.get(told.client) == node else None

    def look(self, grid: Grid) -> list[Report]:
        """Who is there now; asks nodes that are new. Returns the reports of clients never met before.

        Raises
        ------
        ConfigError: every node asked answered with an error and nobody is known: the client app does not answer the query.
        """
        alive = {int(node) for node in grid.get_node_ids()}
        strangers = [node for node in sorted(alive - self.told.keys()) if self._asked_now(node)]
        if strangers:
            self._ask(grid, strangers)
        self._seat(alive)
        new = [self.told[node] for client, node in sorted(self.node_of.items()) if client not in self.enrolled]
        self.enrolled |= {told.client: told for told in new}
        return [told.report for told in new]

    def _asked_now(self, node: int) -> bool:
        left, length = self._waits.get(node, (0, 0))
        if left:
            self._waits[node] = (left - 1, length)
        return not left

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        self._heard(exchange(grid, self._questions(nodes), self.limit_s, self.clock))

    def _questions(self, nodes: list[int]) -> list[Any]:
        app = flower()
        question = app.RecordDict({"motley": app.ConfigRecord({"key": self.key, "wanted": ",".join(sorted(self.wanted))})})
        self.bits_down += bits_of(question) * len(nodes)
        return [app.Message(question, node, ENROL) for node in nodes]

    def _heard(self, answers: list[Answer]) -> None:
        """Take in what nodes say of themselves.

        Raises
        ------
        ConfigError: errors only, and nobody is known.
        """
        problems = []
        for answer in answers:
            try:
                told = self._read(answer)
            except NodeError as problem:
                problems.append(str(problem))
                LOG.warning("node %d cannot be asked: %s", answer.node, problem)
                length = min(max(2 * self._waits.get(answer.node, (0, 0))[1], 1), PATIENCE)
                self._waits[answer.node] = (length, length)
            else:
                self.told[answer.node] = told
                self._waits.pop(answer.node, None)
        if not problems:
            return
        refused = [answer for answer in answers if answer.lost and answer.reply is not None]
        if not self.told and len(refused) == len(answers):
            raise ConfigError(
                f"all {len(answers)} nodes answered {ENROL!r} with an error; expected a client app with "
                f'@app.query("motley_enrol") and a SuperNode with --node-config "{self.key}=<whole number>" (the first error: '
                f"{problems[0]:.300})"
            )
        if not self.told and len(problems) == len(answers) and not any(answer.lost for answer in answers):
            raise ConfigError(f"no node's answer to {ENROL!r} can be used; the first: {problems[0]:.300}")

    def _read(self, answer: Answer) -> Told:
        if answer.lost:
            raise NodeError(answer.lost)
        records = list(answer.reply.content.metric_records.values())
        if len(records) != 1:
            raise NodeError(f"the answer holds {len(records)} MetricRecords; expected one")
        told = read_told(records[0], self.key, self.wanted)
        if "label_histogram" in told.signals:
            width = np.size(told.signals["label_histogram"])
            if width != (self._width or width):
                raise NodeError(f"label_histogram has {width} classes; expected {self._width}, as the others")
            self._width = width
        self.bits_up += bits_of(answer.reply.content)
        return told

    def _seat(self, alive: set[int]) -> None:
        """One node for each client: who has the seat keeps it while connected, then the lowest of those who claim it."""
        before, self.node_of = self.node_of, {}
        for node in sorted(alive & self.told.keys()):
            client = self.told[node].client
            holder = before.get(client)
            if holder is not None and holder != node and holder in alive:
                if node not in self._warned:
                    self._warned.add(node)
                    LOG.warning(
                        "node %d says it is client %d, as node %d, still connected, does; it waits", node, client, holder
                    )
                continue
            self.node_of.setdefault(client, node)
        for client in before.keys() - self.node_of.keys():
            LOG.info("client %d is gone", client)
