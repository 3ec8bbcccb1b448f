"""Work that threads do side by side, because it releases the interpreter's lock: hashing, sorting,
arithmetic on long arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from motley.core.usable_cores import at_once, cores

__all__ = ["side_by_side"]

_MOST = 32
"""Threads at most: each may hold tens of megabytes."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield ``work(item)`` for every item, in their order, computed on a thread for each core that
    this process may use.

    Results do not depend on the number of threads; a single item is the caller's own work.
    """
    threads = min(at_once(cores()), len(items), _MOST)
    if threads <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, items)
