"""Work that threads do side by side, because it releases the interpreter's lock: hashing, sorting,
arithmetic on long arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from motley.core.usable_cores import at_once, cores

_MOST = 32
"""Threads at most: each may hold tens of megabytes."""

_BLOCK = 2**15
"""Rows whose temporary values a processor's cache holds."""
_SHARE = 2**19
"""Rows that a thread works on at a time."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], inputs: Sequence[Item]) -> Iterator[Result]:
    """Yield ``work(item)`` for every item, in their order, computed on a thread for each core that
    this process may use.

    Results do not depend on the number of threads; a single item is the caller's own work.
    """
    threads = min(at_once(cores()), len(inputs), _MOST)
    if threads <= 1:
        yield from map(work, inputs)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, inputs)


def never_falls(values: NDArray[Any]) -> bool:
    """Return whether no number of ``[n]`` is below the one before it."""
    blocks = range(0, len(values) - 1, _SHARE)

    def rises(at: int) -> bool:
        block = values[at : at + _SHARE + 1]
        return bool((block[1:] >= block[:-1]).all())

    return all(side_by_side(rises, blocks))


def by_rows(
    function: Callable[[NDArray[Any]], NDArray[Any]],
    values: NDArray[Any],
    dtype: type[np.generic],
    width: tuple[int, ...] = (),
) -> NDArray[Any]:
    """Return ``function(values)``, ``[len(values), *width]``, row i of which depends on
    ``values[i]`` alone: many rows block by block, and very many on threads."""
    if len(values) <= _BLOCK:
        return function(values)
    out = np.empty((len(values), *width), dtype)

    def fill(rows: range) -> None:
        for first in range(rows.start, rows.stop, _BLOCK):
            block = slice(first, min(first + _BLOCK, rows.stop))
            out[block] = function(values[block])

    shares = range(0, len(values), _SHARE)
    list(side_by_side(fill, [range(at, min(at + _SHARE, len(values))) for at in shares]))
    return out
