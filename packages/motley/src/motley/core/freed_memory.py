"""Memory that the process has let go of and the C library keeps."""

from __future__ import annotations

import contextlib
import ctypes


def release_freed_memory() -> None:
    """Give freed memory back to the system, where the C library can (glibc): it else stays counted
    as the process's."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
