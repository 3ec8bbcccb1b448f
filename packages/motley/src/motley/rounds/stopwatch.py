"""Wall time by part of a round, exclusive: while an inner part runs, the outer one is stopped."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from typing_extensions import override

__all__ = ["Stopwatch"]

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

    def __call__(self, name: str) -> AbstractContextManager[None]:
        """Count what happens inside the block under ``name``."""
        return _TimedBlock(self, name)

    def begin(self, name: str) -> None:
        """Count what follows under ``name``, up to :meth:`end`."""
        self._switch()
        self._stack.append(name)

    def end(self) -> None:
        """Count what follows under the name of before."""
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


class _TimedBlock(AbstractContextManager[None]):
    """A block that a stopwatch counts under a name; as a generator it would take twice the time."""

    def __init__(self, watch: Stopwatch, name: str) -> None:
        self._watch = watch
        self._name = name

    @override
    def __enter__(self) -> None:
        self._watch.begin(self._name)

    @override
    def __exit__(self, *raised: object) -> None:
        self._watch.end()
