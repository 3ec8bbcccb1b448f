"""Memory that the process has let go of: whether the C library keeps it or gives it back."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_TRIM_THRESHOLD = -1  # numbers of mallopt's options, as malloc.h has them
_MMAP_THRESHOLD = -3
_LARGEST = 2**25
"""Bytes of a block to which glibc itself raises the threshold, as blocks are freed; older versions
take no larger one."""
_OF_USERS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def release_freed_memory() -> None:
    """Give freed memory back to the system, where the C library can (glibc): it else stays counted
    as the process's."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the next block, and return whether it does: glibc
    does, where the user's environment does not say otherwise.

    It else gives every large block back, and the next one costs a page fault for each 4 KiB: a
    tenth of the steps of a small CNN.
    """
    if any(name in os.environ for name in _OF_USERS):
        return False
    return _set_thresholds(2**30, 2**31 - 1) or _set_thresholds(_LARGEST, 2**31 - 1)


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory inside the block (:func:`keep_freed_memory`), and give it back at its
    end."""
    changed = keep_freed_memory()
    try:
        yield
    finally:
        if changed:
            _set_thresholds(_LARGEST, 2 * _LARGEST)
            release_freed_memory()


def _set_thresholds(mapped: int, trimmed: int) -> bool:
    """Set the bytes from which on glibc maps a block of its own, and those of free memory at the
    heap's end above which it gives them back; return whether it took them."""
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - other libraries give the numbers other meanings
        return bool(
            library.mallopt(_MMAP_THRESHOLD, mapped) and library.mallopt(_TRIM_THRESHOLD, trimmed)
        )
    except (OSError, AttributeError):
        return False
