"""Send messages on a Flower grid and collect their replies within a limit of time; find Flower's
modules.

A reply is matched by the id of the message it answers, because the error reply that stands for a
lost node does not name the node. Replies are pulled one by one, so that a reply that cannot be read
affects its sender alone. Times are the server's clock's.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from motley.core.errors import ConfigError, UserError, install_hint
from motley.core.untrusted import shortened
from motley_flower.client_failures import words_of

SHARE = "share"
"""The name of what a client can hold of the ranks, in its node's configuration and at enrolment."""
MEMORY = "memory_mb"
"""The name of the megabytes, of 10^6 bytes, that a client has for training, there."""
POLL_S = 0.25
"""Seconds between two looks for replies."""
LONGEST_REASON = 300
"""Characters of a client's own words that are shown."""
LONGEST_ERROR = 65_536
"""Characters of a client's error of which these are chosen: its beginning and its end."""
_WRAPPER = "Exception ClientAppException occurred. Message: "
"""What Flower's simulation puts before the message of a client app's exception."""
# numbers of Flower's errors
_NEVER_LOADED = 1
_RAISED = 2
_EXPIRED = 3
_REPLY_EXPIRED = 4
_NODE_GONE = 5
_KILLED = 8


class LinkError(UserError):
    """The SuperLink cannot be reached, or has ended the run."""


class Grid(Protocol):
    """The methods of Flower's ``Grid`` that are used."""

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are connected now."""

    def get_nodes(self) -> Iterable[Any]:
        """Return Flower's descriptions of the nodes that are connected now."""

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        """Send messages and return their ids; an empty id stands for a message that was not
        accepted."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        """Return the replies that have arrived, each once."""


@dataclass(frozen=True)
class WallClock:
    """A clock and a way to wait; tests replace both."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


WALL_CLOCK = WallClock()


@dataclass
class SentMessage:
    """One message, and what came back for it.

    Parameters
    ----------
    node: the id of the receiving node.
    message_id: Flower's id of the message.
    reply: Flower's reply, which may be an error reply; None if nothing readable came within the
    limit.
    error: why there is no usable reply; empty where there is one, and while the message is pending.
    unreadable: whether a reply came that could not be read, or came from another node.
    unanswered: whether its time ran out: the node may be connected, and say nothing.
    sent_s, arrived_s: times on the server's clock; ``arrived_s`` is NaN before.
    """

    node: int
    message_id: str = ""
    reply: Any = None
    error: str = ""
    unreadable: bool = False
    unanswered: bool = False
    sent_s: float = 0.0
    arrived_s: float = float("nan")

    @property
    def pending(self) -> bool:
        """Whether neither a reply nor an error is known yet."""
        return self.reply is None and not self.error


def flower(module: str = "app") -> Any:
    """Return one of Flower's modules.

    Raises
    ------
    ConfigError: Flower is not installed.
    """
    try:
        return importlib.import_module(f"flwr.{module}")
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("flwr"):
            raise
        raise ConfigError(
            f"Flower is not installed; {install_hint(folder='motley-flower')}"
        ) from None


def content_bits(content: Any) -> float:
    """Return the size of a message's records in bits: bytes of arrays and strings, eight bytes for
    each number, and the names."""
    size = 0
    for record in content.values():
        for name, value in record.items():
            size += len(name) + sum(map(_bytes_of, value if isinstance(value, list) else [value]))
    return 8.0 * size


def _bytes_of(value: Any) -> int:
    # Flower's Array has both
    data = getattr(value, "data", value) if hasattr(value, "stype") else value
    return len(data) if isinstance(data, str | bytes) else 8


def _last_line(text: str) -> str:
    """Return the last line that is not empty, at most :data:`LONGEST_REASON` characters of it,
    without control characters."""
    lines = [line for line in text.splitlines() if line.strip()]
    last = lines[-1].strip()[:LONGEST_REASON] if lines else ""
    return "".join(sign if sign.isprintable() else " " for sign in last)


def _raised(reason: str) -> str:
    """Return what a client app raised as ``Kind: place``: the kind of the first exception, and of
    its text what may be shown (:mod:`motley_flower.client_failures`).

    A deployment's reason is ``<class 'kind'>:<'message'>``; in a simulation the message is a
    traceback in a banner of Ray's, whose last line is a wrapper's.
    """
    wrapped = re.match(r"<class '(?:[\w.]*\.)?([\w()]+)'>:<'(.*)'>\s*$", reason, re.DOTALL)
    if not wrapped:
        return f"an exception{words_of('')}"
    kind = wrapped[1]
    line = _last_line(wrapped[2]).removeprefix(_WRAPPER)
    if line:
        own = re.findall(rf"^(?:[\w.]*\.)?(\w+): {re.escape(line)}$", wrapped[2], re.MULTILINE)
    else:
        own = []
    return shortened(own[0] if own else kind, 60) + words_of(line)


def _in_words(error: Any) -> str:
    """Return Flower's error reply as a part of a sentence; a client's own words, which may quote
    its data, are left out."""
    reason = shortened(str(error.reason or ""), LONGEST_ERROR)
    if error.code == _RAISED:
        return f"its client app raised {_raised(reason)}"
    sentences = {
        _NEVER_LOADED: "its client app cannot be loaded; the node's own log says why",
        _EXPIRED: "no answer before the message expired",
        _REPLY_EXPIRED: "no answer before the message expired",
        _NODE_GONE: "its node is gone: Flower hears no heartbeat",
        _KILLED: "the process of its client app was killed, perhaps for want of memory",
    }
    return sentences.get(error.code) or f"error {error.code}"


def failure_of_app(error: str) -> str:
    """Return how a client app failed, without the place, where an error lies in the app itself;
    empty where it does not.

    >>> failure_of_app("its client app raised KeyError: at app.py, line 9, in train")
    'its client app raised KeyError'
    >>> failure_of_app("its node is gone: Flower hears no heartbeat")
    ''
    """
    if error.startswith(("its client app raised", "its client app cannot")):
        return error.partition(":")[0].partition(";")[0]
    return ""


class Outbox:
    """Messages that are sent at once and answered later.

    Parameters
    ----------
    grid: Flower's.
    clock: the server's.
    """

    def __init__(self, grid: Grid, clock: WallClock = WALL_CLOCK) -> None:
        self.grid = grid
        self.clock = clock
        self.pending: dict[str, SentMessage] = {}

    def send(self, messages: Iterable[Any]) -> list[SentMessage]:
        """Push messages; :meth:`collect` fills in the replies. The result is in the order of the
        messages."""
        messages = list(messages)
        if not messages:
            return []
        begin_s = self.clock.now()
        ids = [str(name or "") for name in self.grid.push_messages(messages)]
        accepted = {name for name in ids if name}
        sent = []
        for i, message in enumerate(messages):
            # in Flower's simulation a message that is not accepted gets no id at all, so positions
            # may not agree
            name = message.metadata.message_id or (ids[i] if i < len(ids) else "")
            entry = SentMessage(int(message.metadata.dst_node_id), name, sent_s=begin_s)
            if name in accepted and name not in self.pending:
                self.pending[name] = entry
            else:
                entry.error = "the message could not be left for the node"
                entry.arrived_s = self.clock.now()
            sent.append(entry)
        return sent

    def collect(self) -> list[SentMessage]:
        """Return the messages that were answered since the last call, without waiting."""
        answered = []
        for name in list(self.pending):
            try:
                replies = list(self.grid.pull_messages([name]))
            except Exception as problem:
                if isinstance(problem, OSError | LinkError) or type(problem).__module__.partition(
                    "."
                )[0] in (
                    "httpx",
                    "httpcore",
                ):
                    raise  # the server's own connection failed, not a client's reply
                lost = self.pending.pop(name)
                lost.error = f"a reply that cannot be read: {type(problem).__name__}"
                lost.unreadable = True
                lost.arrived_s = self.clock.now()
                answered.append(lost)
                continue
            for reply in replies:
                entry = self.pending.pop(reply.metadata.reply_to_message_id, None)
                if entry is not None:  # else the reply answers no message, or answers one twice
                    self._fill_in(entry, reply)
                    answered.append(entry)
        return answered

    def _fill_in(self, sent: SentMessage, reply: Any) -> None:
        sent.arrived_s = self.clock.now()
        if reply.has_error():
            sent.error = _in_words(reply.error)
            sent.unanswered = reply.error.code in (_EXPIRED, _REPLY_EXPIRED)
        elif reply.metadata.src_node_id != sent.node:
            sent.error = "a reply by another node than was asked"
            sent.unreadable = True
            return
        sent.reply = reply

    def give_up(self, sent: Iterable[SentMessage], error: str) -> None:
        """Stop waiting for replies to these messages."""
        for entry in sent:
            if self.pending.get(entry.message_id) is entry:
                del self.pending[entry.message_id]
                entry.error = error
                entry.unanswered = True

    def wait(
        self, sent: Sequence[SentMessage], limit_s: float, beside: Callable[[], None] | None = None
    ) -> None:
        """Wait until all messages of this outbox are answered; after ``limit_s`` seconds, give up
        those of ``sent``.

        ``beside`` is called between two looks."""
        end_s = self.clock.now() + limit_s
        while self.pending:
            self.collect()
            if beside is not None:
                beside()
            if not self.pending:
                break
            if self.clock.now() >= end_s:
                self.give_up(sent, f"no answer within {limit_s:g} s")
                break
            self.clock.sleep(min(POLL_S, max(end_s - self.clock.now(), 0.001)))


def exchange(
    grid: Grid,
    messages: Sequence[Any],
    limit_s: float,
    clock: WallClock = WALL_CLOCK,
    beside: Callable[[], None] | None = None,
) -> list[SentMessage]:
    """Send messages and wait until all are answered or ``limit_s`` seconds have passed; the result
    is in the order of the messages.

    ``beside`` is called between two looks for replies."""
    outbox = Outbox(grid, clock)
    sent = outbox.send(messages)
    outbox.wait(sent, limit_s, beside)
    return sent
