"""A watch over Ray's process of the node through which this process is connected to a cluster.

Every call of Ray's goes through that process. Where it is alive but stands still (stopped by
SIGSTOP, held by a debugger or a file system that hangs), a call waits for ever inside Ray's C++
code, and so does the end of the connection. So the process is asked from outside of Ray.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from motley_ray import actors
from motley_ray.cluster_state import alive_nodes, ray_package

PAUSE_S = 5.0
"""Seconds between an answer and the next question."""
_LOOK_S = 1.0
"""Seconds of one look whether there is an answer."""
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""What begins a connection of HTTP/2 (RFC 9113, 3.4): the preface and empty settings. A server of
gRPC, which Ray's process is, answers with its own settings, before any token is asked for."""

_watches: list[NodeWatch] = []
"""The watch of this process's connection; Ray has one connection in a process."""


def begin() -> None:
    """Watch the node of this process's connection until :func:`end`."""
    ray = ray_package()
    node = alive_nodes().get(ray.get_runtime_context().get_node_id())
    if node is not None:
        _watches.append(NodeWatch((node.ip, node.port), _leave))


def end() -> None:
    """End the watch."""
    while _watches:
        _watches.pop().end()


class NodeWatch:
    """Asks Ray's process of a node, in a thread of its own, and calls ``on_silence`` once it has
    not answered one question for :data:`actors.GIVEN_UP_S` seconds.

    Ray itself gives a node up after about a minute, and for good. An answer took 4 ms at most, on
    two cores that seven processes wanted, so 45 s without one are not slowness. Counted are looks
    of one second each: time in which this process does not run either, as on a machine that
    sleeps, is none of them. A process that never answered is not watched, nor is one that is gone,
    which Ray notices.

    Parameters
    ----------
    address: host and port of Ray's process.
    on_silence: called with a sentence.
    """

    def __init__(self, address: tuple[str, int], on_silence: Callable[[str], None]) -> None:
        self._address = address
        self._on_silence = on_silence
        self._over = threading.Event()
        # a daemon, as it may wait for an answer while the process ends
        threading.Thread(target=self._watch, name="motley-ray-watch", daemon=True).start()

    def end(self) -> None:
        """End the watch."""
        self._over.set()

    def _watch(self) -> None:
        if not self._answers():
            return
        while not self._over.wait(PAUSE_S):
            if not self._answers() and not self._over.is_set():
                host, port = self._address
                self._on_silence(
                    f"Ray's process of this machine's node ({host}:{port}) has not answered for "
                    f"{actors.GIVEN_UP_S:g} s, and nothing goes on without it; look with: ray "
                    "status, have it go on or start the cluster again, then give the same command "
                    "again (motley run with --resume): it goes on from what is finished"
                )
                return

    def _answers(self) -> bool:
        """Return whether the process answers, or is gone."""
        looks = max(1, round(actors.GIVEN_UP_S / _LOOK_S))
        try:
            with socket.create_connection(self._address, actors.GIVEN_UP_S) as connection:
                connection.sendall(_HELLO)
                connection.settimeout(_LOOK_S)
                for _ in range(looks):
                    if self._over.is_set():
                        return True
                    with suppress(TimeoutError):
                        connection.recv(1)
                        return True
        except TimeoutError:
            return False
        except OSError:
            return True
        return False


def _leave(sentence: str) -> None:
    """Say the sentence and end this process, with the exit code of what the user can mend.

    An error could not be raised: the main thread waits inside Ray, which neither an exception nor
    an interrupt reaches, and to disconnect would wait, too. What is on disk is whole: it is written
    as for a process that may be killed at any time.
    """
    with suppress(OSError, ValueError):  # a closed stream
        sys.stdout.flush()
        shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # the cursor, which bars hide
        sys.stderr.write(f"{shown}\nmotley: {sentence}\n")
        sys.stderr.flush()
    os._exit(2)
