"""A transport on a Flower grid: a message becomes a Flower message, and a client the node that it
runs on.

A message travels as one value of bytes in one ``ConfigRecord``, as ``train.motley`` (local work) or
``query.motley`` (questions).

The server pushes messages and polls for answers; it never blocks in a call without an end. Time is
the transport's own, so that a test can let hours pass at once.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from motley_flower.client_list import ClientList
from motley_flower.client_places import Happened
from motley_flower.limited_grid import LimitedGrid
from motley_flower.messages import WALL_CLOCK, Grid, Outbox, WallClock, flower
from motley_flower.node_registry import NodeRegistry

Channel = Literal["train", "query"]
ACTION = "motley"
"""What a client app's functions are registered under: ``@app.train("motley")``,
``@app.query("motley")``."""
_RECORD = "motley"
_KEY = "message"


def content_of(data: bytes, unique: bytes = b"") -> Any:
    """Return a message's bytes as the content of a Flower message.

    Parameters
    ----------
    unique: random bytes of a message to a client. A reply names the message that it answers by a
    hash of it, and Flower does not look whose key the sender of a reply has; so nobody but the
    receiver must be able to compute that hash.
    """
    app = flower()
    more = {"unique": unique} if unique else {}
    return app.RecordDict({_RECORD: app.ConfigRecord({_KEY: data, **more})})


def bytes_in(message: Any) -> object:
    """Return whatever lies in the place of a message's bytes; empty bytes where nothing does."""
    record = message.content.get(_RECORD) if message.has_content() else None
    return record.get(_KEY, b"") if isinstance(record, Mapping) else b""


class Reply(NamedTuple):
    """What came back for one message.

    Parameters
    ----------
    message: the message's number.
    data: what the client sent, unchecked; None when the client is lost.
    reason: of the loss, in words.
    unanswered: whether it is lost because it said nothing in time, though it may be connected."""

    message: str
    data: object
    reason: str = ""
    unanswered: bool = False


class GridTransport:
    """Messages to clients over Flower's grid.

    Parameters
    ----------
    grid: Flower's.
    key: of ``--node-config``, a client's stable whole number.
    limit_s: for a new node to say which client it is; nobody waits for it.
    clock: of the server.
    link_s: for the SuperLink to answer one call.
    clients: the file that says who is a client; None: a node is the client that it says.
    """

    def __init__(
        self,
        grid: Grid,
        key: str = "partition-id",
        limit_s: float = 120.0,
        clock: WallClock = WALL_CLOCK,
        link_s: float = 300.0,
        clients: ClientList | None = None,
    ) -> None:
        self.grid = LimitedGrid(grid, link_s)
        self.clock = clock
        self.registry = NodeRegistry(key, limit_s=limit_s, clock=clock, wait=False, clients=clients)
        self.outbox = Outbox(self.grid, clock)
        self._came: dict[str, Reply] = {}

    @property
    def refusal(self) -> str:
        """Why no client can be reached, although something answered; empty where nothing did."""
        return self.registry.refusal

    @property
    def names(self) -> Mapping[int, str]:
        """The clients' names by id, where a file of clients gives them."""
        listed = self.registry.places.listed
        return {} if listed is None else listed.names

    @property
    def examples(self) -> Mapping[int, float]:
        """The largest number of samples that counts of a client, by id, where a file of clients
        gives it."""
        listed = self.registry.places.listed
        return {} if listed is None else listed.examples

    def happened(self) -> Sequence[Happened]:
        """Return what has happened to clients' places since the last call."""
        return self.registry.places.take()

    def now_s(self) -> float:
        """Return the seconds of the server's clock, which never goes back."""
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        """Let at most so many seconds pass."""
        self.clock.sleep(seconds)

    def clients(self) -> Collection[int]:
        """Return the clients whose nodes are connected; new nodes are asked which client they are.
        What a node was sent before it was started again is lost: Flower delivers a message once."""
        self.registry.refresh(self.grid)
        lost = [
            sent for sent in self.outbox.pending.values() if sent.node in self.registry.restarted
        ]
        self.outbox.give_up(lost, "its node was started again")
        self._came |= {sent.message_id: Reply(sent.message_id, None, sent.error) for sent in lost}
        return [int(client) for client in self.registry.clients]

    def push(self, messages: Mapping[int, bytes], channel: Channel, ttl_s: float) -> dict[int, str]:
        """Send one message to each of these clients, to be answered within ``ttl_s``; return the
        messages' numbers by client. A client that is left out could not be reached."""
        app = flower()
        nodes = {
            client: self.registry.node_of[client]
            for client in messages
            if client in self.registry.node_of
        }
        kind = f"{channel}.{ACTION}"
        sending = [
            app.Message(
                content_of(messages[client], secrets.token_bytes(16)), node, kind, ttl=ttl_s
            )
            for client, node in nodes.items()
        ]
        sent = zip(nodes, self.outbox.send(sending), strict=True)
        return {client: message.message_id for client, message in sent if not message.error}

    def pull(self, messages: Sequence[str]) -> list[Reply]:
        """Return the replies that have come for these messages, without waiting; an error in place
        of an answer means that the client is lost."""
        for answer in self.outbox.collect():
            lost = b"" if answer.unreadable else None
            data = lost if answer.error or answer.reply is None else bytes_in(answer.reply)
            self._came[answer.message_id] = Reply(
                answer.message_id, data, answer.error, answer.unanswered
            )
        return [self._came.pop(name) for name in messages if name in self._came]


class WaitingTransport:
    """A transport that can be waited at, with a limit.

    Parameters
    ----------
    transport: of the deployment.
    poll_s: seconds between two polls for answers.
    look_s: seconds between two looks at which clients are connected.
    start_s: seconds that the deployment has run already.
    """

    def __init__(
        self, transport: GridTransport, poll_s: float, look_s: float, start_s: float = 0.0
    ) -> None:
        self.transport = transport
        self.poll_s = poll_s
        self.look_s = look_s
        self._zero = transport.now_s() - start_s
        self._looked_s = -math.inf
        self._present = frozenset[int]()

    @property
    def now_s(self) -> float:
        """Seconds since the deployment began, without the time between a kill and a resume."""
        return self.transport.now_s() - self._zero

    def present(self, fresh: bool = True) -> frozenset[int]:
        """Return the clients that can be reached; ``fresh``: now, else as of the last look, at most
        ``look_s`` ago."""
        if fresh or self.now_s >= self._looked_s + self.look_s:
            self._looked_s, self._present = self.now_s, frozenset(self.transport.clients())
        return self._present

    def wait(
        self, messages: Sequence[str], until_s: float, seen: Collection[int] | None = None
    ) -> list[Reply]:
        """Return the replies to these messages as soon as there is one; none at ``until_s``, or
        when a client connects that is not among the ``seen``."""
        while True:
            replies = self.transport.pull(messages) if messages else []
            left = until_s - self.now_s
            if (
                replies
                or left <= 0
                or (seen is not None and not self.present(fresh=False) <= set(seen))
            ):
                return replies
            self.transport.sleep(min(self.poll_s, left))
