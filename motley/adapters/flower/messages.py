"""Messages out, answers in, never without a limit; and the one place where Flower's words are looked up.

An answer is found by the id of the message it answers: the error that stands for a lost node does not name the node. Replies are
pulled one by one, so that one that cannot be read costs its sender alone. Times are those of the server's clock.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from motley.core.errors import ConfigError

__all__ = ["CLOCK", "Answer", "Clock", "Grid", "Outbox", "bits_of", "exchange", "flower"]

POLL_S = 0.25


class Grid(Protocol):
    """What is used of Flower's ``Grid``."""

    def get_node_ids(self) -> Iterable[int]:
        """Nodes that are connected now."""

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        """Send; an empty id stands for a message that could not be left."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        """The answers that have come, each once."""


@dataclass(frozen=True)
class Clock:
    """Seconds and patience; tests bring their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


CLOCK = Clock()


@dataclass
class Answer:
    """What became of one message.

    Parameters
    ----------
    node: to whom it went. message: Flower's id of it.
    reply: what came back; None: nothing until the limit, or nothing that could be read.
    lost: why there is no reply, in words; empty where there is one.
    unreadable: whether something came back that could not be read at all.
    sent_s, arrived_s: on the server's clock.
    """

    node: int
    message: str = ""
    reply: Any = None
    lost: str = ""
    unreadable: bool = False
    sent_s: float = 0.0
    arrived_s: float = float("nan")


def flower(module: str = "app") -> Any:
    """One of Flower's modules.

    Raises
    ------
    ConfigError: Flower is not installed.
    """
    try:
        return importlib.import_module(f"flwr.{module}")
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("flwr"):
            raise
        raise ConfigError("Flower is not installed; expected the extra, pip install 'motley-fl[flower]'") from None


def bits_of(content: Any) -> float:
    """What a message's records weigh: the bytes of arrays and texts, eight for each number, and the names."""
    size = 0
    for record in content.values():
        for name, value in record.items():
            size += len(name) + sum(map(_bytes_of, value if isinstance(value, list) else [value]))
    return 8.0 * size


def _bytes_of(value: Any) -> int:
    data = getattr(value, "data", value) if hasattr(value, "stype") else value  # of an Array
    return len(data) if isinstance(data, str | bytes) else 8


class Outbox:
    """Messages under way: sent at once, answered when they are; for loops that do not wait for all.

    Parameters
    ----------
    grid: Flower's. clock: of the server.
    """

    def __init__(self, grid: Grid, clock: Clock = CLOCK) -> None:
        self.grid, self.clock = grid, clock
        self.pending: dict[str, Answer] = {}

    def send(self, messages: Sequence[Any]) -> list[Answer]:
        """Push; the answers, in the order of the messages, are filled in by :meth:`collect`."""
        messages = list(messages)
        if not messages:
            return []
        begun = self.clock.now()
        ids = list(self.grid.push_messages(messages))
        told = [message.metadata.message_id for message in messages]  # in Flower's simulation what is not left has no id at all
        left = {str(name) for name in ids if name}
        answers = []
        for i, message in enumerate(messages):
            name = told[i] or (str(ids[i] or "") if i < len(ids) else "")
            answer = Answer(int(message.metadata.dst_node_id), name, sent_s=begun)
            if name in left and name not in self.pending:
                self.pending[name] = answer
            else:
                answer.lost, answer.arrived_s = "the message could not be left for the node", self.clock.now()
            answers.append(answer)
        return answers

    def collect(self) -> list[Answer]:
        """The answers that came since the last call; waits for none."""
        came = []
        for name in list(self.pending):
            try:
                replies = list(self.grid.pull_messages([name]))
            except Exception as problem:
                if isinstance(problem, OSError) or type(problem).__module__.partition(".")[0] in ("httpx", "httpcore"):
                    raise  # the server's own connection, nobody's reply
                answer = self.pending.pop(name)
                answer.lost, answer.unreadable = f"a reply that cannot be read: {type(problem).__name__}", True
                answer.arrived_s = self.clock.now()
                came.append(answer)
                continue
            for reply in replies:
                known = self.pending.pop(reply.metadata.reply_to_message_id, None)
                if known is None:
                    continue  # answers nothing that was asked, or answers twice
                known.arrived_s = self.clock.now()
                if reply.has_error():
                    known.lost = str(reply.error.reason or f"error {reply.error.code}")
                    known.reply = reply
                elif reply.metadata.src_node_id != known.node:
                    known.lost, known.unreadable = "a reply by another node than was asked", True
                else:
                    known.reply = reply
                came.append(known)
        return came

    def give_up(self, answers: Iterable[Answer], why: str) -> None:
        """Wait for these no longer."""
        gone = {id(answer) for answer in answers}
        for name in [name for name, answer in self.pending.items() if id(answer) in gone]:
            self.pending.pop(name).lost = why


def exchange(grid: Grid, messages: Sequence[Any], limit_s: float, clock: Clock = CLOCK) -> list[Answer]:
    """Send messages and wait until all are answered or ``limit_s`` has passed; answers in the order of the messages."""
    outbox = Outbox(grid, clock)
    answers = outbox.send(messages)
    end_s = clock.now() + limit_s
    while outbox.pending:
        outbox.collect()
        if not outbox.pending:
            break
        if clock.now() >= end_s:
            outbox.give_up(answers, f"no answer within {limit_s:g} s")
            break
        clock.sleep(min(POLL_S, max(end_s - clock.now(), 0.001)))
    return answers
