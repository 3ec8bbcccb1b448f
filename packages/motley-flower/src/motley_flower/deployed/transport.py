"""The transport of a deployment: how messages reach clients and answers come back. It knows neither
their contents nor Flower.

The server pushes messages and polls for answers; it never blocks in a call without an end. Time is
the transport's own, so that a test can let hours pass at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from motley_flower.client_places import Happened

__all__ = ["Reply", "Transport", "WaitingTransport"]

Channel = Literal["train", "query"]


class Reply(NamedTuple):
    """What came back for one message.

    Parameters
    ----------
    message: the message's number. data: what the client sent, unchecked; None when the client is
    lost. reason: of the loss, in words. unanswered: whether it is lost because it said nothing in
    time, though it may be connected."""

    message: str
    data: object
    reason: str = ""
    unanswered: bool = False


class Transport(ABC):
    """Messages to clients, addressed by their stable ids."""

    @property
    def refusal(self) -> str:
        """Why no client can be reached, although something answered; empty where nothing did."""
        return ""

    @property
    def names(self) -> Mapping[int, str]:
        """The clients' names by id, where a file of clients gives them."""
        return {}

    @property
    def examples(self) -> Mapping[int, float]:
        """The largest number of samples that counts of a client, by id, where a file of clients
        gives it."""
        return {}

    def happened(self) -> Sequence[Happened]:
        """Return what has happened to clients' places since the last call."""
        return ()

    @abstractmethod
    def now_s(self) -> float:
        """Return the seconds of a clock that never goes back."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Let at most so many seconds pass."""

    @abstractmethod
    def clients(self) -> Collection[int]:
        """Return the ids of the clients that can be reached now."""

    @abstractmethod
    def push(self, messages: Mapping[int, bytes], channel: Channel, ttl_s: float) -> dict[int, str]:
        """Send one message to each of these clients, to be answered within ``ttl_s``; return the
        messages' numbers by client.

        A client that is left out could not be reached."""

    @abstractmethod
    def pull(self, messages: Sequence[str]) -> list[Reply]:
        """Return the replies that have come for these messages, without waiting."""


class WaitingTransport:
    """A transport that can be waited at, with a limit.

    Parameters
    ----------
    transport: of the deployment. poll_s: seconds between two polls for answers. look_s: seconds
    between two looks at which clients are connected. start_s: seconds that the deployment has run
    already.
    """

    def __init__(
        self, transport: Transport, poll_s: float, look_s: float, start_s: float = 0.0
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
        self, messages: Sequence[str], until_s: float, known: Collection[int] | None = None
    ) -> list[Reply]:
        """Return the replies to these messages as soon as there is one; none at ``until_s``, or
        when a client connects that is not among the ``known``."""
        while True:
            replies = self.transport.pull(messages) if messages else []
            left = until_s - self.now_s
            if (
                replies
                or left <= 0
                or (known is not None and not self.present(fresh=False) <= set(known))
            ):
                return replies
            self.transport.sleep(min(self.poll_s, left))
