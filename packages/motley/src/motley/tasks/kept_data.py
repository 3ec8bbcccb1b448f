"""Data sets that stay in memory from one run to the next, so that runs in a row that read the same
data set read and prepare it once: decoding CIFAR-10 takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from motley.tasks.task import Dataset

# the set that was read last, by its files, and what was made of it, by how; None: nothing is kept
_last: dict[Hashable, Dataset] | None = None
_made: dict[Hashable, Dataset] = {}


@contextmanager
def last_kept() -> Iterator[None]:
    """Inside the block, the set that was read last stays in memory and serves the next run, and
    what was made of it last, too. A block inside another shares what that one keeps."""
    global _last
    if _last is not None:
        yield
        return
    _last = {}
    try:
        yield
    finally:
        _last = None
        _made.clear()


def kept(stamp: Callable[[], Hashable], read: Callable[[], Dataset]) -> Dataset:
    """Return ``read()``; inside :func:`last_kept` what it returned for the same stamp, if that was
    the last.

    Parameters
    ----------
    stamp: a hash of the data set and its files, computed inside :func:`last_kept` alone.
    """
    if _last is None:
        return read()
    name = stamp()
    if name not in _last:
        _last.clear()
        _made.clear()
        _last[name] = read()
    return _last[name]


def made(dataset: Dataset, how: Hashable, make: Callable[[Dataset], Dataset]) -> Dataset:
    """Return ``make(dataset)``, which must depend on ``how`` and the data set alone; it is made
    once for all runs in a row that ask for the same, inside :func:`last_kept`."""
    if _last is None or all(dataset is not cached for cached in _last.values()):
        return make(dataset)
    if how not in _made:
        _made.clear()
        _made[how] = make(dataset)
    return _made[how]
