"""A fork server: a process that has imported what a worker needs and forks one whenever it is asked
to, in hundredths of a second, where a fresh interpreter imports torch for two seconds.

It is forked from the command before that has computed anything or started a thread, for a fork
copies no thread: one of torch's that was there would be waited for without end.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from threadpoolctl import ThreadpoolController

from motley.engines.processes import worker_environment

RunWorker = Callable[[int, int, int, int], None]
"""Runs a worker: descriptor of its connection, id of its parent, cores of all, its own threads."""
_LOOK_S = 0.01
_RUNNING = b"running"


class ForkServer:
    """A forked process that forks workers, until it is closed or this process is gone.

    ``run_worker``: what a worker does.
    """

    def __init__(self, run_worker: RunWorker) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = _forked(partial(_serve, theirs, run_worker, self._socket))
        theirs.close()

    def start(self, descriptor: int, total: int, threads: int) -> ForkedProcess:
        """Return a new worker.

        Parameters
        ----------
        descriptor: of its end of a connection to this process.
        total, threads: cores of all runs, and threads of the worker.
        """
        socket.send_fds(self._socket, [f"{total} {threads}".encode()], [descriptor])
        return ForkedProcess(self, int(self._socket.recv(64)))

    def code(self, process: int) -> int | None:
        """Return the exit code of a worker, as :class:`subprocess.Popen` does; None while it
        runs."""
        self._socket.send(f"{process}".encode())
        answer = self._socket.recv(64)
        return None if answer == _RUNNING else int(answer)

    def close(self) -> None:
        """End the server; its workers are ended before, and would end by themselves."""
        self._socket.close()
        os.waitpid(self._process, 0)


class ForkedProcess:
    """A worker of a fork server, with the methods of :class:`subprocess.Popen` that its owner
    uses."""

    def __init__(self, server: ForkServer, process: int) -> None:
        self.pid = process
        self._server = server
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        if self._code is None:
            try:
                self._code = self._server.code(self.pid)
            except (OSError, ValueError):  # the server is gone, and its workers with it
                self._code = 1
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises
        ------
        subprocess.TimeoutExpired: it runs on.
        """
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline_s is not None and time.monotonic() >= deadline_s:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            time.sleep(_LOOK_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to a process that runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End a process that runs."""
        self.send_signal(signal.SIGKILL)


def _forked(work: Callable[[], None]) -> int:
    """Return the id of a new process that does the work and nothing after it."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # what waits in them would be written twice
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _serve(requests: socket.socket, run_worker: RunWorker, other_end: socket.socket) -> None:
    """Fork workers, and tell how they ended, until the other end is closed."""
    other_end.close()
    server = os.getpid()
    os.setsid()  # Ctrl-C at the terminal is for the command alone
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    while True:
        words, descriptors, _, _ = socket.recv_fds(requests, 64, 1)
        if not words:
            return
        numbers = [int(word) for word in words.split()]
        if descriptors:
            total, threads = numbers
            worker = partial(
                _run,
                requests,
                run_worker,
                server=server,
                descriptor=descriptors[0],
                total=total,
                threads=threads,
            )
            started = _forked(worker)
            os.close(descriptors[0])
            requests.send(f"{started}".encode())
        else:
            ended, status = os.waitpid(numbers[0], os.WNOHANG)
            code = f"{os.waitstatus_to_exitcode(status)}".encode()
            requests.send(code if ended else _RUNNING)


def _run(
    requests: socket.socket,
    run_worker: RunWorker,
    server: int,
    descriptor: int,
    total: int,
    threads: int,
) -> None:
    """Run a worker in its process, with as many threads as a fresh interpreter would have.

    ``server``: id of the process that forked it, which may be gone by now.
    """
    requests.close()
    os.environ.update(worker_environment(threads))
    # what libraries read of the environment, they read when they were loaded
    ThreadpoolController().limit(limits=threads)
    run_worker(descriptor, server, total, threads)
