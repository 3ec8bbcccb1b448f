"""A disk of a few megabytes that can be filled without harm."""

from __future__ import annotations

import contextlib
import subprocess

__all__ = ["small_disk"]


@contextlib.contextmanager
def small_disk(folder, size):
    """Mount a file system of this size (``"512k"``) at a folder within a block; yield whether that
    was allowed, as it is for root."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True
        ).returncode
        == 0
    )
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)
