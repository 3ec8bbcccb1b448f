"""Clients in other processes of this machine: for models whose Python takes longer than their arithmetic, and many cores.

Workers are fresh interpreters, so nothing a thread of this process holds is copied into them. Data, models and results lie in
anonymous memory that is handed over as it is; nothing has a name in the file system, so nothing can be left there.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from motley.engines.base import Setting
from motley.engines.cores import cores
from motley.engines.distributed import Distributed
from motley.engines.serialization import unwrap
from motley.engines.shared_memory import SharedMemoryChannel, handed, look
from motley.engines.worker_pool import Died, Order, WorkerTransport
from motley.engines.worker_process import ORDER, SETTING

__all__ = ["Processes", "workers_kept"]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class Handle:
    """A descriptor that is closed when nobody means it any more."""

    def __init__(self, obj: object) -> None:
        self.number = handed(obj)
        self._end = weakref.finalize(self, os.close, self.number)

    def close(self) -> None:
        """Now."""
        self._end()


@dataclass
class _Process:
    """A worker process and the line to it."""

    process: subprocess.Popen[bytes]
    line: SharedMemoryChannel
    threads: int
    orders: int = 0

    @classmethod
    def fresh(cls, threads: int) -> _Process:
        """A new interpreter; it takes a second or three until it hears."""
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        told = dict.fromkeys(_THREADS, str(threads))
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "motley.engines.worker_process",
                    *map(str, (theirs.fileno(), os.getpid(), threads)),
                ],
                env={**os.environ, **told, "PYTHONPATH": path},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C at the terminal is this process's to answer
            )
        return cls(process, SharedMemoryChannel(ours), threads)

    def end(self) -> str:
        """Kill it, if it lives; how it went, in words."""
        self.process.kill()
        code = self.process.wait()
        self.line.close()
        return f"by signal {-code}" if code < 0 else f"with exit code {code}"


_kept: list[_Process] | None = None  # idle workers that wait for another run; None: they are ended with theirs


@contextmanager
def workers_kept() -> Iterator[None]:
    """Inside the block, workers outlive their engine and serve the next: a new interpreter costs seconds."""
    global _kept
    if _kept is not None:
        yield
        return
    _kept = []
    try:
        yield
    finally:
        idle, _kept = _kept, None
        for process in idle:
            process.end()


@dataclass
class _Lines(WorkerTransport[Handle]):
    """Carries orders over lines to processes. ``devices``: whether workers have a GPU each."""

    setting: Handle
    threads: int
    devices: bool
    workers: dict[int, _Process] = field(default_factory=dict)
    dead: deque[tuple[int, Died]] = field(default_factory=deque)

    def start(self, worker: int) -> None:
        """A worker kept from an earlier run, or a new interpreter, told the setting."""
        self._end(worker)
        idle = [process for process in _kept or () if process.threads == self.threads]
        if idle and _kept is not None:
            _kept.remove(idle[-1])
        process = self.workers[worker] = idle[-1] if idle else _Process.fresh(self.threads)
        self._tell(worker, SETTING, worker if self.devices else -1, self.setting)
        process.orders = 0

    def seen(self) -> Setting:
        """Through the same block."""
        found: Setting = unwrap(look(os.dup(self.setting.number)))
        return found

    def post(self, what: Any) -> Handle:
        """In memory of its own."""
        return Handle(what)

    def send(self, worker: int, order: Order, posted: Handle) -> None:
        """Two blocks over the line."""
        own = Handle(order)
        self._tell(worker, ORDER, 0, posted, own)
        own.close()

    def _tell(self, worker: int, what: int, number: int, *handles: Handle) -> None:
        process = self.workers.get(worker)
        if process is None:
            return
        try:
            process.line.send(what, number, *(handle.number for handle in handles))
            process.orders += what == ORDER
        except OSError:
            self._bury(worker)

    def wait(self) -> tuple[int, Any]:
        """See :meth:`WorkerTransport.wait`."""
        while not self.dead:
            lines = {process.line.fileno(): worker for worker, process in self.workers.items()}
            poll = select.poll()
            for number in lines:
                poll.register(number, select.POLLIN)
            worker = lines[poll.poll()[0][0]]
            process = self.workers[worker]
            try:
                _, _, handles = process.line.receive()
            except (EOFError, OSError):
                self._bury(worker)
                continue
            except BaseException:  # interrupted half-way through a message
                self._bury(worker)
                raise
            process.orders -= 1
            return worker, unwrap(look(handles[0]))
        return self.dead.popleft()

    def _bury(self, worker: int) -> None:
        self.dead.append((worker, Died(self.workers.pop(worker).end())))

    def _end(self, worker: int) -> None:
        process = self.workers.pop(worker, None)
        self.dead = deque(death for death in self.dead if death[0] != worker)
        if process is not None:
            process.end()

    def close(self) -> None:
        """End them, or keep them for the next run."""
        for worker, process in list(self.workers.items()):
            if _kept is not None and not process.orders and process.process.poll() is None:
                _kept.append(self.workers.pop(worker))
            else:
                self._end(worker)
        self.setting.close()


class Processes(Distributed):
    """Chunks of clients in worker processes, which share the run's cores and look at the same data."""

    name: ClassVar[str] = "processes"
    options: ClassVar[frozenset[Literal["workers", "address"]]] = frozenset({"workers"})

    @classmethod
    def _cores(cls, setting: Setting) -> int:
        return cores(setting.threads)

    def _carrier(self, told: Setting) -> WorkerTransport[Any]:
        carrier = _Lines(Handle(told), self.each, self.setting.device == "cuda")
        weakref.finalize(self, carrier.close)  # whoever forgets to close an engine leaves no process behind
        return carrier

    @classmethod
    def refuses(cls, setting: Setting) -> str | None:
        """What cannot be sent to another process; systems without anonymous memory."""
        if not hasattr(os, "memfd_create"):
            return "it needs Linux (memfd_create); use threads"
        return super().refuses(setting)
