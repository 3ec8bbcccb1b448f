"""Work that threads do side by side, because it releases the interpreter's lock: hashing, sorting,
arithmetic on long arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["side_by_side"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield ``work(item)`` for every item, in their order, computed on a thread for each core that
    this process may use.

    Results do not depend on the number of threads; a single item is the caller's own work.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not every system has affinities
        cores = os.cpu_count() or 1
    if min(cores, len(items)) <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(cores) as pool:
        yield from pool.map(work, items)
