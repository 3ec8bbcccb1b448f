"""A line between two processes of one machine: numbers go over a socket, blocks of memory are handed over as they are.

A block is anonymous memory (``memfd_create``): it has no name in ``/dev/shm`` or anywhere, and is gone with the last process
that holds it, however that ends.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from typing import Any

from motley.engines.serialization import Block, wrap

__all__ = ["SharedMemoryChannel", "handed", "look"]

_HEAD = struct.Struct("<qq")
_MOST = 2  # blocks that go with a message


def handed(obj: object) -> int:
    """A descriptor of fresh memory with an object wrapped in it."""
    handle = os.memfd_create("motley", os.MFD_CLOEXEC)

    def allocate(size: int) -> Any:
        os.ftruncate(handle, size)
        return mmap.mmap(handle, size)

    try:
        wrap(obj, allocate)
    except BaseException:
        os.close(handle)
        raise
    return handle


def look(handle: int) -> Block:
    """The block behind a descriptor, which is closed; what is written into it is seen by nobody else."""
    try:
        seen: Any = mmap.mmap(handle, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(handle)
    return seen  # type: ignore[no-any-return]


class SharedMemoryChannel:
    """One end.

    Parameters
    ----------
    end: a connected stream socket of this machine.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        """For ``select``."""
        return self._end.fileno()

    def send(self, first: int, second: int, *handles: int) -> None:
        """Two numbers and descriptors; the caller's own stay open.

        Raises
        ------
        OSError: nobody is there.
        """
        socket.send_fds(self._end, [_HEAD.pack(first, second)], handles)

    def receive(self) -> tuple[int, int, list[int]]:
        """The next message: two numbers and descriptors.

        Raises
        ------
        EOFError: the other end is closed. OSError: it broke.
        """
        head, handles, _, _ = socket.recv_fds(self._end, _HEAD.size, _MOST)
        while len(head) < _HEAD.size:
            more = self._end.recv(_HEAD.size - len(head))
            if not more:
                raise EOFError
            head += more
        first, second = _HEAD.unpack(head)
        return first, second, list(handles)

    def close(self) -> None:
        """This end."""
        self._end.close()
