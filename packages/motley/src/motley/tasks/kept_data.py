"""Data sets that stay in memory from one run to the next, so that runs in a row that read the same
data set read and prepare it once: decoding CIFAR-10 takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial

from motley.tasks.task import Dataset

# the set that was read last, by its files, and what was made of it, by how; None: nothing is kept
_last: dict[Hashable, Dataset] | None = None
_made: dict[Hashable, Dataset] = {}

Share = Callable[[Hashable, Callable[[], Dataset]], Dataset]
"""Returns what the function returns, by its name, or what another process made of that name."""
_share: Share | None = None  # None: this process reads for itself


@contextmanager
def last_kept() -> Iterator[None]:
    """Inside the block, the set that was read last stays in memory and serves the next run, and
    what was made of it last, too. A block inside another shares what that one keeps."""
    global _last, _share
    if _last is not None:
        yield
        return
    _last = {}
    try:
        yield
    finally:
        _last = None
        _share = None
        _made.clear()


def share_by(share: Share) -> None:
    """Inside :func:`last_kept`, until its end, let ``share`` return what stays in memory, beginning
    with what does already."""
    global _share
    if _last is None or _share == share:
        return
    _share = share
    for name, dataset in list(_last.items()):
        for how, derived in list(_made.items()):
            _made[how] = share((name, how), partial(_itself, derived))
        _last[name] = share(name, partial(_itself, dataset))


def _itself(dataset: Dataset) -> Dataset:
    return dataset


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
        _last[name] = _read(name, read)
    return _last[name]


def made(dataset: Dataset, how: Hashable, make: Callable[[Dataset], Dataset]) -> Dataset:
    """Return ``make(dataset)``, which must depend on ``how`` and the data set alone; it is made
    once for all runs in a row that ask for the same, inside :func:`last_kept`."""
    names = [name for name, cached in (_last or {}).items() if cached is dataset]
    if not names:
        return make(dataset)
    if how not in _made:
        _made.clear()
        _made[how] = _read((names[0], how), partial(make, dataset))
    return _made[how]


def kept_bytes() -> int:
    """Return the bytes of the inputs ``x`` that stay in memory."""
    inputs = [dataset.x for dataset in (*(_last or {}).values(), *_made.values())]
    return sum({x.data_ptr(): x.nbytes for x in inputs}.values())


def _read(name: Hashable, read: Callable[[], Dataset]) -> Dataset:
    return read() if _share is None else _share(name, read)
