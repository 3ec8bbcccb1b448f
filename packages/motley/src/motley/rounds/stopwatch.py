"""Wall time by part of a round, exclusive: while an inner part runs, the outer one is stopped."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Seconds spent under each name since the last :meth:`lap`.

    Example
    -------
    >>> watch = Stopwatch()
    >>> with watch("train"):
    ...     pass
    >>> sorted(watch.lap())
    ['train']
    """

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._stack: list[str] = []
        self._since = time.perf_counter()

    @property
    def current(self) -> str:
        """The name under which time is counted now; empty outside all."""
        return next(reversed(self._stack), "")

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._stack:
            self._spent[self._stack[-1]] = self._spent.get(self._stack[-1], 0.0) + now - self._since
        self._since = now

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count what happens inside under ``name``."""
        self._switch()
        self._stack.append(name)
        try:
            yield
        finally:
            self._switch()
            self._stack.pop()

    def iterate(self, name: str, values: Iterable[T]) -> Iterator[T]:
        """Yield the same values; the time that their producer takes is counted under ``name``."""
        iterator = iter(values)
        while True:
            with self(name):
                try:
                    value = next(iterator)
                except StopIteration:
                    return
            yield value

    def lap(self) -> dict[str, float]:
        """Seconds by name since the last lap."""
        self._switch()
        spent = self._spent
        self._spent = {}
        return spent
