"""A crew: workers that run chunks of clients, one replaced when it dies and its chunk run again.

Who carries orders to the workers and answers back, pipes on one machine or a cluster, is a :class:`WorkerTransport`'s business; who
gets which order, in what order answers are handed on, and what happens when a worker dies is written here, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from motley.core.errors import EngineError
from motley.engines.base import Setting

__all__ = ["Died", "Failed", "Order", "WorkerPool", "WorkerTransport"]

Posted = TypeVar("Posted")

LIVES = 3
"""Workers that one order may cost before the run ends with an error."""
_AHEAD = 2
"""Orders a worker has at most: one it works on, and the next, so that it need not wait."""


@dataclass(frozen=True)
class Order:
    """Something for one worker to do.

    Parameters
    ----------
    call: ``train``, ``measure`` or ``evaluate``. own: what it needs beside what is posted for all.
    about: whom it concerns, for an error's sentence.
    """

    call: str
    own: tuple[Any, ...]
    about: str


@dataclass(frozen=True)
class Failed:
    """The answer of a worker that lives and raised."""

    error: Exception


@dataclass(frozen=True)
class Died:
    """Instead of an answer: the worker is gone; ``how`` it went, in words."""

    how: str


class WorkerTransport(ABC, Generic[Posted]):
    """Starts workers, numbered from 0, and carries orders and answers."""

    @abstractmethod
    def start(self, worker: int) -> None:
        """A fresh worker in this place; whatever was there is gone, and its answers with it."""

    @abstractmethod
    def seen(self) -> Setting:
        """The setting that the workers were told, its samples where they see them."""

    @abstractmethod
    def post(self, what: Any) -> Posted:
        """Put something where every worker can read it, once."""

    @abstractmethod
    def send(self, worker: int, order: Order, posted: Posted) -> None:
        """Give an order to a worker; it works its orders off one after the other. A worker that is dead is told of by
        :meth:`wait`."""

    @abstractmethod
    def wait(self) -> tuple[int, Any]:
        """A worker and its next answer, or :class:`Died`; whichever comes first."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, at once, and give back what they held."""


@dataclass
class _Sent(Generic[Posted]):
    """An order on its way: its number, what is posted with it, workers it has cost; nobody waits for it once it is stale."""

    order: Order
    number: int
    posted: Posted
    deaths: int = 0
    stale: bool = False


class WorkerPool(Generic[Posted]):
    """Deals orders out to workers.

    Parameters
    ----------
    carrier: between here and them. workers: how many.
    """

    def __init__(self, carrier: WorkerTransport[Posted], workers: int) -> None:
        self.carrier = carrier
        self._hands: list[deque[_Sent[Posted]]] = [deque() for _ in range(workers)]
        for worker in range(workers):
            carrier.start(worker)

    def run(self, orders: Sequence[Order], shared: Any, ahead: int) -> Iterator[Any]:
        """The answers, in the order of ``orders``, as they come in.

        Parameters
        ----------
        shared: posted for all of them. ahead: orders that may be given out, at most, beyond those whose answers were handed on.

        Raises
        ------
        EngineError: an order cost too many workers; or whatever a worker raised.
        """
        if not orders:
            return
        posted = self.carrier.post(shared)
        waiting = deque(_Sent(order, number, posted) for number, order in enumerate(orders))
        answers: dict[int, Any] = {}
        try:
            for number in range(len(orders)):
                while number not in answers:
                    self._deal(waiting, number + ahead)
                    self._listen(answers)
                yield answers.pop(number)
        finally:  # also where the caller wants no more, or an error ends it
            for hand in self._hands:
                for sent in hand:
                    sent.stale = True

    def _deal(self, waiting: deque[_Sent[Posted]], end: int) -> None:
        """Orders numbered below ``end`` to whoever has fewest; a second one only while there is enough for everybody."""
        while waiting and waiting[0].number < end:
            worker = min(range(len(self._hands)), key=lambda w: len(self._hands[w]))
            held = len(self._hands[worker])
            if held >= _AHEAD or (held and len(waiting) <= len(self._hands)):
                return
            self._send(worker, waiting.popleft())

    def _send(self, worker: int, sent: _Sent[Posted]) -> None:
        self._hands[worker].append(sent)
        self.carrier.send(worker, sent.order, sent.posted)

    def _listen(self, answers: dict[int, Any]) -> None:
        worker, answer = self.carrier.wait()
        if isinstance(answer, Died):
            self._replace(worker, answer)
            return
        sent = self._hands[worker].popleft()
        if sent.stale:
            return
        if isinstance(answer, Failed):
            raise answer.error
        answers[sent.number] = answer

    def _replace(self, worker: int, death: Died) -> None:
        """A fresh worker, and the same orders again; the one that was being worked on may cost only so many."""
        again = [sent for sent in self._hands[worker] if not sent.stale]
        self._hands[worker].clear()
        self.carrier.start(worker)
        if again:
            again[0].deaths += 1
            if again[0].deaths >= LIVES:
                raise EngineError(
                    f"{LIVES} workers died one after the other over {again[0].order.about} (the last one {death.how}); if memory ran "
                    "out, use fewer workers, smaller batches or a smaller model"
                )
        for sent in again:
            self._send(worker, sent)
