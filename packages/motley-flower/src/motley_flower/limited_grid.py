"""A Flower grid whose calls end: Flower itself tries again for ever while the SuperLink cannot be
reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from motley_flower.messages import Grid, LinkError

T = TypeVar("T")
_SLICE_S = 0.5
"""Seconds of one wait. Flower ends an app whose SuperLink has ended by a signal that another thread
of the app raises, and the main thread hears such a signal between two waits only."""


class ForwardingGrid:
    """A grid that passes to another one what it does not answer itself."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


class LimitedGrid(ForwardingGrid):
    """A grid whose every call returns or raises within a limit of time.

    Parameters
    ----------
    grid: Flower's.
    limit_s: real seconds that one call may take.
    """

    def __init__(self, grid: Grid, limit_s: float) -> None:
        super().__init__(grid)
        self._limit_s = limit_s

    def get_node_ids(self) -> list[int]:
        """Return the nodes that are connected now."""
        return self._limited(lambda: [int(node) for node in self._grid.get_node_ids()])

    def get_nodes(self) -> list[Any]:
        """Return Flower's descriptions of the nodes that are connected now."""
        return self._limited(lambda: list(self._grid.get_nodes()))

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """Send messages and return their ids."""
        return self._limited(lambda: list(self._grid.push_messages(messages)))

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        """Return the replies that have arrived."""
        return self._limited(lambda: list(self._grid.pull_messages(message_ids)))

    def _limited(self, call: Callable[[], T]) -> T:
        """Return what a call returns, and raise what it raises; the thread of a call that takes too
        long is left behind.

        Raises
        ------
        LinkError: no answer within the limit, or the SuperLink says that the run has ended.
        """
        answers: list[tuple[T | None, BaseException | None]] = []

        def work() -> None:
            try:
                answers.append((call(), None))
            except BaseException as problem:
                # Flower's own, of a run that has ended, is no Exception
                answers.append((None, problem))

        # A daemon: the call that never answers must not keep the process from ending.
        worker = threading.Thread(target=work, daemon=True)
        end_s = time.monotonic() + self._limit_s
        worker.start()
        while worker.is_alive() and (left_s := end_s - time.monotonic()) > 0:
            worker.join(min(_SLICE_S, left_s))
        if not answers:
            raise LinkError(
                f"the SuperLink did not answer within {self._limit_s:g} s; start it again with the "
                "--database of before, and then this app: every finished round is kept"
            )
        answer, problem = answers[0]
        if problem is None:
            return answer  # type: ignore[return-value]
        if type(problem).__name__ in ("RunNotRunningException", "InvalidRunStatusException"):
            raise LinkError(
                "this run was stopped, by flwr stop or whoever else reaches the SuperLink's "
                "control interface; submit the app again to go on: every finished round is kept"
            )
        raise problem
