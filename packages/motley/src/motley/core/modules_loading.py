"""Imports, and work that keeps what it makes, without Python's search for cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from random import getstate, setstate

_passed_over = False  # whether objects are frozen: to count millions of them takes long


@contextmanager
def modules_loading() -> Iterator[None]:
    """Import what a command needs inside the block, once in a process: the garbage collector is
    off and passes over all objects that are there at the end. Modules stay until the process ends,
    and to look through them again and again takes a sixth of a short command."""
    global _passed_over
    _passed_over = _passed_over or gc.get_freeze_count() > 0
    if _passed_over:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        _passed_over = True
        gc.enable()


@contextmanager
def collector_off() -> Iterator[None]:
    """Make inside the block what stays until its end: the garbage collector, which would look
    through all of it again and again and find nothing, is off."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Import inside the block what draws random numbers as it is imported: Python's own, which a
    user may have seeded, go on as if it had not."""
    state = getstate()
    try:
        yield
    finally:
        setstate(state)
