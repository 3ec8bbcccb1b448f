"""A mailbox: how letters reach clients and come back. Nothing here knows what is in them, and nothing knows Flower.

The server pushes letters and pulls what has come; it never blocks in a call that has no end. Time is the mailbox's own, so that a
test can let hours pass at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

__all__ = ["Reply", "Transport", "WaitingTransport"]

Channel = Literal["train", "query"]


class Reply(NamedTuple):
    """What came back for a letter.

    Parameters
    ----------
    message: which letter. data: what the client sent, whatever it is; None when the client is lost. reason: why, in words.
    """

    message: str
    data: object
    reason: str = ""


class Transport(ABC):
    """Letters to clients, by their stable ids."""

    @abstractmethod
    def now_s(self) -> float:
        """Seconds on a clock that never goes back."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Let at most so many seconds pass."""

    @abstractmethod
    def clients(self) -> Collection[int]:
        """Who can be reached now."""

    @abstractmethod
    def push(self, letters: Mapping[int, bytes], channel: Channel, ttl_s: float) -> dict[int, str]:
        """Send one letter to each of these clients, to be answered within ``ttl_s``; the letters' numbers, by client. A client that is
        left out could not be reached."""

    @abstractmethod
    def pull(self, messages: Sequence[str]) -> list[Reply]:
        """What has come for these letters; returns at once."""


class WaitingTransport:
    """A mailbox that is waited at, with a limit.

    Parameters
    ----------
    mailbox: of the deployment. poll_s: seconds between two looks into it. look_s: between two looks at who is there.
    start_s: what the clock shows now.
    """

    def __init__(self, mailbox: Transport, poll_s: float, look_s: float, start_s: float = 0.0) -> None:
        self.mailbox, self.poll_s, self.look_s = mailbox, poll_s, look_s
        self._zero = mailbox.now_s() - start_s
        self._looked, self._there = -math.inf, frozenset[int]()

    @property
    def now_s(self) -> float:
        """Seconds since the deployment began, the time between a kill and a resume left out."""
        return self.mailbox.now_s() - self._zero

    def present(self, fresh: bool = True) -> frozenset[int]:
        """Who can be reached; ``fresh``: now, else as of the last look."""
        if fresh or self.now_s >= self._looked + self.look_s:
            self._looked, self._there = self.now_s, frozenset(self.mailbox.clients())
        return self._there

    def wait(self, messages: Sequence[str], until_s: float, known: Collection[int] | None = None) -> list[Reply]:
        """What has come for these letters, as soon as something has; nothing at ``until_s``, or when somebody has come who is not
        ``known``."""
        while True:
            replies = self.mailbox.pull(messages) if messages else []
            left = until_s - self.now_s
            if replies or left <= 0 or (known is not None and not self.present(fresh=False) <= set(known)):
                return replies
            self.mailbox.sleep(min(self.poll_s, left))
