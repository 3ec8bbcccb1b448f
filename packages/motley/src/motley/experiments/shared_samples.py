"""Samples that the processes of a comparison share: one reads a data set, the others map it.

They have a register in common, an anonymous file to which each appends where in its memory it holds
a data set. Who lacks one takes the lock of this data set, so that nobody else reads it meanwhile.
The system frees a lock with its process, and samples with the last process that maps them, however
these end. Whatever the system refuses leaves a process with samples of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

from motley.core.freed_memory import release_freed_memory
from motley.engines.serialization import from_memory, to_memory, unwrap
from motley.tasks.task import Dataset

_RECORD = struct.Struct("<32sqqqq")
"""Digest of the samples' name; process, file descriptor there, inode and size of the memory."""


class SharedSamples:
    """One process's end of the register.

    ``descriptor``: of the register, opened once for all processes, so that each writes behind what
    is there.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def once(self, name: Hashable, make: Callable[[], Dataset]) -> Dataset:
        """Return what ``make()`` returns, made once by all processes that hold it at a time. What
        one writes into it, no other sees.

        ``name``: says what it is, alike in all processes by its ``repr``.
        """
        digest = hashlib.sha256(repr(name).encode()).digest()
        with self._locked(digest):
            with suppress(OSError):
                memory = self._of_others(digest)
                if memory is not None:
                    return self._mapped(digest, memory)
            own = make()
            samples = own
            if own.x.is_contiguous():  # the copy is, and must lie in memory as this does
                with suppress(OSError):
                    samples = self._mapped(digest, to_memory(own))
            del own
            release_freed_memory()  # a run keeps it otherwise
            return samples

    def _mapped(self, digest: bytes, memory: int) -> Dataset:
        """Return the samples in memory, which the others find as long as they are there."""
        try:
            samples: Dataset = unwrap(from_memory(os.dup(memory)))
            weakref.finalize(samples, os.close, memory)
        except BaseException:
            os.close(memory)
            raise
        status = os.fstat(memory)
        record = (digest, os.getpid(), memory, status.st_ino, status.st_size)
        os.write(self.descriptor, _RECORD.pack(*record))
        return samples

    @contextmanager
    def _locked(self, digest: bytes) -> Iterator[None]:
        """Keep all other processes that want the same samples waiting."""
        byte = int.from_bytes(digest[:7], "little")
        with suppress(OSError):
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX, 1, byte)
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, byte)

    def _of_others(self, digest: bytes) -> int | None:
        """Return a descriptor of the samples in the memory of a process that holds them; None where
        nobody does."""
        register = os.fstat(self.descriptor)
        records = os.pread(self.descriptor, register.st_size, 0)
        for named, process, descriptor, *memory in _RECORD.iter_unpack(records):
            if named != digest:
                continue
            path = f"/proc/{process}/fd/{descriptor}"
            with suppress(OSError):  # it is gone, or lets nobody in
                # the descriptor may be another file's by now, and become one until it is opened
                if _identity(os.stat(path)) == (register.st_dev, *memory):
                    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                    if _identity(os.fstat(opened)) == (register.st_dev, *memory):
                        return opened
                    os.close(opened)
        return None


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Return by what the memory of samples is known: its device, inode and size."""
    return status.st_dev, status.st_ino, status.st_size


@cache
def shared_samples() -> SharedSamples | None:
    """Return this process's end of a register of its own, which its workers get; None where the
    system has no anonymous memory."""
    try:
        descriptor = os.memfd_create("motley samples", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # no Linux, or forbidden
        return None
    return SharedSamples(descriptor)
