"""How many cores this process may use.

Where several runs share the machine, work is divided as for all cores (:func:`cores`), so that
results keep their bits, and computed on a run's share of them (:func:`at_once`).
"""

from __future__ import annotations

import os

# cores of all runs and threads of this process, where other runs share the cores
_shared: tuple[int, int] | None = None


def cores(limit: int | None = None) -> int:
    """Return the number of cores this process may run on (its affinity), at most ``limit`` and
    ``OMP_NUM_THREADS``, at least 1.

    In a process that shares them with other runs, it is the number of cores of all.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not every system has affinities
        allowed = os.cpu_count() or 1
    variable = os.environ.get("OMP_NUM_THREADS", "")
    allowed = min(allowed, int(variable)) if variable.isdigit() else allowed
    allowed = allowed if _shared is None else _shared[0]
    return max(1, allowed if limit is None else min(limit, allowed))


def share(count: int, threads: int) -> None:
    """Let this process compute on at most ``threads`` of ``count`` cores at once."""
    global _shared
    _shared = (count, threads)


def at_once(threads: int) -> int:
    """Return how many of so many threads this process may run at once: all, or its share of the
    cores."""
    return threads if _shared is None else min(threads, _shared[1])
