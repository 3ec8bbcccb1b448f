"""How many cores an engine may use, and the promise to leave torch's thread count as it was found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["cores", "torch_threads"]


def cores(limit: int | None = None) -> int:
    """Cores this process may run on (its affinity, not the machine's count), at most ``limit`` and ``OMP_NUM_THREADS``, at least 1."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not every system has affinities
        allowed = os.cpu_count() or 1
    told = os.environ.get("OMP_NUM_THREADS", "")
    allowed = min(allowed, int(told)) if told.isdigit() else allowed
    return max(1, allowed if limit is None else min(limit, allowed))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run with so many torch threads in this Python thread, then put the old number back."""
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
