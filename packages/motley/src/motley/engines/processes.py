"""The engine ``processes``: clients are trained in worker processes of this machine, for many
cores, several GPUs, and slow Python.

Workers are fresh interpreters. Data, models and results lie in anonymous memory whose file
descriptors travel over a socket, so nothing is copied and nothing is left in the file system.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import torch
from typing_extensions import override

from motley.core.freed_memory import keep_freed_memory
from motley.core.usable_cores import at_once, cores
from motley.engines.distributed import Distributed
from motley.engines.engine import Setting
from motley.engines.serialization import from_memory, to_memory, unwrap
from motley.engines.workers import RemoteWorker, Worker, WorkerCall, WorkerDied

PATIENCE_S = 60.0
"""Seconds after which a worker that uses no processor time during a call (it was stopped, or waits
for ever) is given up."""
_LOOK_S = 0.5
_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class SharedObject:
    """An object in anonymous memory; the file descriptor is closed with the last reference to this
    one."""

    def __init__(self, obj: object) -> None:
        self.descriptor = to_memory(obj)
        weakref.finalize(self, os.close, self.descriptor)


def _receive(connection: socket.socket, count: int) -> list[int]:
    """Receive so many file descriptors. Raises EOFError when the other end is gone, TimeoutError by
    the socket's timeout."""
    message, descriptors, _, _ = socket.recv_fds(connection, 1, count)
    if not message:
        raise EOFError
    return descriptors


# workers that wait for another engine; None: workers end with their engine
_idle: list[_ProcessWorker] | None = None


@contextmanager
def workers_kept() -> Iterator[None]:
    """Inside the block, worker processes outlive their engine and serve the next one: a new
    interpreter costs seconds."""
    global _idle
    if _idle is not None:
        yield
        return
    _idle = []
    try:
        yield
    finally:
        idle = _idle
        _idle = None
        for worker in idle:
            worker.close()


class _ProcessWorker(RemoteWorker[SharedObject]):
    """A worker process with so many torch threads, and the socket to it. ``setting`` and ``device``
    may change between engines."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.setting = SharedObject(None)
        self.device = SharedObject(None)
        # One call at a time: an answer does not say whose it is, and two callers of one socket
        # would read each other's.
        self._calling = threading.Lock()
        self._spawn()

    @override
    def start(self) -> None:
        if self._process.poll() is not None:
            self._connection.close()
            self._spawn()
        with suppress(OSError):  # a process that is gone is found by the first call
            self._send(self.setting, self.device)

    def _spawn(self) -> None:
        self._connection, theirs = socket.socketpair()
        self._connection.settimeout(_LOOK_S)
        numbers = map(str, (theirs.fileno(), os.getpid(), self.threads))
        with theirs:
            self._process = subprocess.Popen(
                # -P: a file of the working directory must not hide a module
                [sys.executable, "-P", "-m", "motley.engines.processes", *numbers],
                env=worker_environment(self.threads),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C at the terminal is for this process alone
            )

    def _send(self, shared: SharedObject, own: SharedObject) -> None:
        socket.send_fds(self._connection, [b"!"], [shared.descriptor, own.descriptor])

    @override
    def execute(self, call: WorkerCall, shared: SharedObject, silent: Callable[[], None]) -> Any:
        with self._calling:
            try:
                self._send(shared, SharedObject(call))
                return unwrap(from_memory(self._answer()))
            except (EOFError, OSError):
                how = self._kill()
                self._connection.close()
                raise WorkerDied(how) from None

    def _answer(self) -> int:
        """Wait for the descriptor of an answer; give up a process that uses no processor time for
        too long."""
        used = ""
        since = time.monotonic()
        while True:
            try:
                return _receive(self._connection, 1)[0]
            except TimeoutError:
                fields = (
                    Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
                )
                now = " ".join(fields[11:13])  # user and system time
                used, since = (used, since) if now == used else (now, time.monotonic())
                if time.monotonic() > since + PATIENCE_S:
                    self._kill()
                    raise WorkerDied(
                        f"given up after {PATIENCE_S:g} s without processor time"
                    ) from None

    def _kill(self) -> str:
        """End the process; return how it ended, in words."""
        self._process.kill()
        code = self._process.wait()
        return f"by signal {-code}" if code < 0 else f"with exit code {code}"

    @override
    def close(self) -> None:
        if _idle is not None and not self._calling.locked() and self._process.poll() is None:
            if self not in _idle:
                _idle.append(self)
        else:
            self._kill()
            # a thread that waits for an answer first notices that the process is gone
            with self._calling:
                self._connection.close()


class Processes(Distributed[SharedObject]):
    """Trains chunks of clients in worker processes, which share the run's cores and read the same
    data."""

    name: ClassVar[str] = "processes"
    options: ClassVar[frozenset[str]] = frozenset({"workers"})

    @classmethod
    @override
    def available_cores(cls, setting: Setting) -> int:
        return at_once(cores(setting.threads))

    @override
    def _share(self, obj: object) -> SharedObject:
        return SharedObject(obj)

    @override
    def _load(self, shared: SharedObject) -> Any:
        return unwrap(from_memory(os.dup(shared.descriptor)))

    @override
    def _worker(self, number: int, setting: SharedObject) -> RemoteWorker[SharedObject]:
        fit = [worker for worker in _idle or () if worker.threads == self.cores_each]
        worker = fit[-1] if fit else _ProcessWorker(self.cores_each)
        if fit and _idle is not None:
            _idle.remove(worker)
        device = (
            f"cuda:{number % torch.cuda.device_count()}" if self.setting.device == "cuda" else None
        )
        worker.setting = setting
        worker.device = SharedObject(device)
        return worker

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        if not hasattr(os, "memfd_create"):
            return "it needs Linux (memfd_create); use threads"
        return super().refuses(setting)


def run_worker(descriptor: int, parent: int, threads: int) -> None:
    """Run a worker process until its parent is gone:
    ``python -m motley.engines.processes DESCRIPTOR PARENT THREADS``.

    Every message carries two objects: the run's setting and the worker's device, or shared
    arguments and a call.

    Parameters
    ----------
    descriptor: of the socket to the parent.
    parent: its process id.
    threads: of torch.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    # A parent that was killed closes nothing: this thread notices, and no worker stays behind.
    threading.Thread(target=end_with_parent, args=(parent,), daemon=True).start()
    torch.set_num_threads(threads)
    keep_freed_memory()
    connection = socket.socket(fileno=descriptor)
    worker = None
    with suppress(EOFError, OSError):
        while True:
            shared, own = _receive(connection, 2)
            call = unwrap(from_memory(own))
            if isinstance(call, WorkerCall) and worker is not None:
                answer = worker.execute(call, unwrap(from_memory(shared)), to_memory)
                socket.send_fds(connection, [b"!"], [answer])
                os.close(answer)
            else:
                if worker is not None:
                    worker.close()
                worker = Worker(from_memory(shared), call)


def worker_environment(threads: int) -> dict[str, str]:
    """Return the environment of a fresh interpreter that finds the same modules and computes on so
    many threads."""
    # absolute: an entry such as "" means where this process is now
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return {**os.environ, **dict.fromkeys(_THREADS, str(threads)), "PYTHONPATH": path}


def end_with_parent(parent: int) -> None:
    """Wait until the process with this id is no longer the parent, then end this process, also in
    the middle of a long call."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


if __name__ == "__main__":
    run_worker(*map(int, sys.argv[1:]))
