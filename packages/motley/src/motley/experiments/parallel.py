"""Runs several experiments at a time on this machine: each in a worker process, which has a share
of the cores.

Workers take one run after the other and report over a socket. They are fresh interpreters, or in a
command forked from one that has imported all modules. One that dies ends its run alone, and another
takes its place.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import torch
from typing_extensions import override

from motley.core.errors import ConfigError, EngineError, UserError
from motley.core.modules_loading import modules_loading
from motley.core.own_code import keep_own_code
from motley.core.usable_cores import cores
from motley.engines.cores import share_cores
from motley.engines.processes import end_with_parent, worker_environment, workers_kept
from motley.engines.serialization import unsendable, unwrap, wrap
from motley.experiments.fork_server import ForkedProcess, ForkServer
from motley.experiments.progress import OneRun, ProgressDisplay
from motley.experiments.shared_samples import SharedSamples, shared_samples
from motley.rounds.run_config import RoundSummary
from motley.tasks.kept_data import last_kept, share_by

Work = Callable[..., object]

GRACE_S = 3.0
"""Seconds that interrupted workers have to close what they hold before they are killed."""
_LOOK_S = 0.3


_kept: dict[int, list[_WorkerProcess]] | None = (
    None  # jobs -> workers that wait for the next call; None: they end with their call
)


@contextmanager
def job_workers_kept() -> Iterator[None]:
    """Inside the block, the workers of :func:`run_jobs` outlive its calls and serve the next one: a
    new interpreter costs seconds."""
    global _kept
    _kept = {}
    try:
        yield
    finally:
        workers_by_jobs = _kept
        _kept = None
        _end([worker for workers in workers_by_jobs.values() for worker in workers])


_free_core_work: Callable[[], object] | None = None  # None: nothing is to be done


@contextmanager
def on_free_core(work: Callable[[], object]) -> Iterator[None]:
    """Inside the block, the first call of :func:`run_jobs` calls ``work()`` as soon as a worker has
    no run left while others go on with theirs."""
    global _free_core_work
    _free_core_work = work
    try:
        yield
    finally:
        _free_core_work = None


def _use_free_core(workers: Sequence[_WorkerProcess]) -> None:
    """Do the work of :func:`on_free_core` where one of the workers has a run."""
    global _free_core_work
    if _free_core_work is not None and any(worker.number is not None for worker in workers):
        work = _free_core_work
        _free_core_work = None
        work()


_fork_server: ForkServer | None = None  # that forks workers; None: they are fresh interpreters
_may_fork = False


@contextmanager
def workers_forked(safe: bool) -> Iterator[None]:
    """Inside the block, on Linux, workers of :func:`run_jobs` are forked from a process that
    :func:`prepare_workers` forks. ``safe``: whether this process computes nothing before that."""
    global _fork_server, _may_fork
    _may_fork = safe and sys.platform == "linux"
    try:
        yield
    finally:
        _may_fork = False
        server = _fork_server
        _fork_server = None
        if server is not None:
            server.close()


def prepare_workers() -> None:
    """Fork the process that forks workers, where :func:`workers_forked` lets it."""
    global _fork_server
    if _may_fork and _fork_server is None and threading.active_count() == 1:
        _fork_server = ForkServer(run_worker)


def start_at_once() -> bool:
    """Return whether workers start without importing their modules again."""
    return _fork_server is not None


def share_among(jobs: int, calls: int) -> int:
    """Return among how many workers the cores are divided: no more than there are calls, unless the
    workers serve further calls."""
    return min(jobs, calls) if _kept is None else jobs


class _WorkerProcess:
    """A worker process and the run that it has, if any.

    Parameters
    ----------
    total, threads: cores of all runs, and threads of the worker.
    samples: that it shares with the other workers; None: it reads its own.
    phase: of its run, as last reported.
    """

    def __init__(self, total: int, threads: int, samples: SharedSamples | None = None) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            self._process = _started(theirs.fileno(), total, threads)
        self.number: int | None = None
        self.phase = "preparing"
        self._started = False
        self._unsent = samples

    def give(self, number: int, work: Work, arguments: Mapping[str, object]) -> None:
        """Have the worker call ``work(**arguments, progress=...)`` for run ``number``."""
        self.number = number
        self.phase = "preparing"
        samples = self._unsent
        self._unsent = None
        with suppress(OSError):  # a process that is gone is found by the next receive
            precision = torch.get_float32_matmul_precision()
            message = (work, arguments, sys.argv, precision, samples is not None)
            self.connection.send_bytes(wrap(message, bytearray))
            if samples is not None:
                send_handle(self.connection, samples.descriptor, self._process.pid)

    def receive(self) -> tuple[str, Any]:
        """Return the next message: its kind, and what it says; that the process is gone is the end
        of its run, too."""
        try:
            message: tuple[str, Any] = unwrap(bytearray(self.connection.recv_bytes()))
            self._started = True
        except (EOFError, OSError):
            code = self._process.wait()
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            reason = f"its worker process ended {how} in the middle of the run"
            return "lost", UserError(f"{reason}; if memory ran out, run fewer at a time (jobs)")
        return message

    @property
    def alive(self) -> bool:
        """Whether the process goes on."""
        return self._process.poll() is None

    def interrupt(self) -> None:
        """Ask the process to stop what it does; one that does nothing, or that was never heard of
        and may still be importing what would answer, ends at once."""
        if self.number is None or not self._started:
            self._process.kill()
        else:
            self._process.send_signal(signal.SIGINT)

    def end(self, deadline_s: float) -> None:
        """Wait until the process is gone; kill it when the time has come."""
        try:
            self._process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self.connection.close()


def _started(descriptor: int, total: int, threads: int) -> subprocess.Popen[bytes] | ForkedProcess:
    """Return a new process that runs :func:`run_worker`."""
    if _fork_server is not None:
        with suppress(OSError, ValueError):  # the server is gone: memory ran out
            return _fork_server.start(descriptor, total, threads)
    numbers = map(str, (descriptor, os.getpid(), total, threads))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "motley.experiments.parallel", *numbers],
        env=worker_environment(threads),
        pass_fds=(descriptor,),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C at the terminal is for this process alone
    )


def run_jobs(
    jobs: int,
    work: Work,
    calls: Sequence[Mapping[str, object]],
    display: ProgressDisplay | None = None,
) -> Iterator[tuple[int, Exception | None]]:
    """Call ``work(**call, progress=...)`` for every call, so many at a time; yield each call's
    number when it ended, and its error.

    Parameters
    ----------
    jobs: worker processes; each computes on its share of the cores, at least on one.
    work: function that a worker can import.
    display: shows the runs, which have the same numbers. Close the iterator to end all workers.

    Raises
    ------
    ConfigError: arguments that cannot be sent to other processes.
    """
    for call in calls:
        reason = unsendable({f"the {name}": value for name, value in call.items()})
        if reason is not None:
            raise ConfigError(f"{reason}; or run one after the other (jobs = 1)", "jobs")
    total = cores()
    samples = _samples_of(jobs)
    waiting = iter(enumerate(calls))
    spare = [] if _kept is None else _kept.pop(jobs, [])
    workers: list[_WorkerProcess] = []

    def give(worker: _WorkerProcess | None) -> None:
        """Give the next call, if any, to a worker, or to a fresh one."""
        number, call = next(waiting, (None, {}))
        if number is None:
            _use_free_core(workers)
            return
        if worker is None:
            worker = spare.pop() if spare else _WorkerProcess(total, max(1, total // jobs), samples)
            workers.append(worker)
        if display is not None:
            display.start(number)
        worker.give(number, work, call)

    try:
        for _ in range(jobs):
            give(None)
        while busy := {
            worker.connection: worker for worker in workers if worker.number is not None
        }:
            for ready in wait(list(busy)):
                worker = busy[ready]  # type: ignore[index]
                kind, content = worker.receive()
                if kind in ("done", "lost"):
                    number = worker.number
                    worker.number = None
                    yield number or 0, content
                    give(worker if kind == "done" else None)
                else:
                    _show(worker, kind, content, display)
        if _kept is not None:
            _kept[jobs] = spare + [worker for worker in workers if worker.alive]
            spare = []
            workers = [worker for worker in workers if not worker.alive]
    finally:
        _end(spare + workers)


def _samples_of(jobs: int) -> SharedSamples | None:
    """Return what so many workers share, with the samples that this process keeps; None where one
    worker has nobody to share with."""
    samples = shared_samples() if jobs > 1 else None
    if samples is not None:
        share_by(samples.once)
    return samples


def _show(worker: _WorkerProcess, kind: str, content: Any, display: ProgressDisplay | None) -> None:
    """Pass a message about a run on to the display."""
    if kind == "warning":
        warnings.warn(content, stacklevel=2)
    elif kind == "phase":
        worker.phase = content
    elif display is not None and worker.number is not None:
        shown = display.run(worker.number)
        if kind == "note":
            shown.note(content)
        else:
            shown.begin(content, lambda: worker.phase) if kind == "begin" else shown.round(content)


def _end(workers: Sequence[_WorkerProcess]) -> None:
    """End all workers; they may close what they hold first."""
    deadline_s = time.monotonic() + GRACE_S
    try:
        for worker in workers:
            worker.interrupt()
    finally:
        for worker in workers:
            worker.end(deadline_s)


class _Reports(OneRun):
    """The worker's end: sends what the run reports. Messages of two threads do not mix."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._phase: Callable[[], str] = lambda: "preparing"
        self._warned: set[str] = set()

    def warn(self, text: str) -> None:
        """Send a warning; what was said before is not said again of the next run."""
        if text not in self._warned:
            self._warned.add(text)
            self.send("warning", text)

    @override
    def note(self, text: str) -> None:
        self.send("note", text)

    def send(self, kind: str, content: object) -> None:
        """Send one message."""
        with self._lock:
            self._connection.send_bytes(wrap((kind, content), bytearray))

    def watch(self) -> None:
        """Send the phase of the run whenever it is another one, as long as the parent listens."""
        sent = ""
        with suppress(OSError):
            while True:
                time.sleep(_LOOK_S)
                phase = self._phase()
                if phase and phase != sent:
                    self.send("phase", phase)
                    sent = phase

    @override
    def begin(
        self, metric: str, phase: Callable[[], str], condition: Callable[[], str] = str
    ) -> None:
        self._phase = lambda: ", ".join(filter(None, (phase(), condition())))
        self.send("begin", metric)

    @override
    def round(self, done: RoundSummary) -> None:
        self.send("round", done)


def run_worker(descriptor: int, parent: int, total: int, threads: int) -> None:
    """Run one experiment after the other until the parent closes the connection.

    Parameters
    ----------
    descriptor: of the connection to the parent.
    parent: its process id.
    total: cores of all runs.
    threads: of this process.
    """
    # the parent sends it; a shell may have it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=end_with_parent, args=(parent,), daemon=True).start()
    share_cores(total, threads)
    connection = Connection(descriptor)
    reports = _Reports(connection)
    threading.Thread(target=reports.watch, daemon=True).start()
    with (
        suppress(EOFError, OSError, KeyboardInterrupt),
        workers_kept(),
        last_kept(),
        warnings.catch_warnings(),
    ):
        warnings.showwarning = lambda message, *_: reports.warn(str(message))
        while True:
            message = bytearray(connection.recv_bytes())
            with modules_loading():  # those of what is to be called
                # the record of a run names the command
                work, arguments, sys.argv, precision, shares = unwrap(message)
            torch.set_float32_matmul_precision(precision)
            if shares:
                share_by(SharedSamples(recv_handle(connection)).once)
            reports.send("done", _attempt(work, arguments, reports))


def _attempt(work: Work, arguments: Mapping[str, object], reports: _Reports) -> Exception | None:
    """Call ``work`` and return the error that it raised, if any; the message of one that is not a
    UserError has the traceback, too."""
    try:
        work(**arguments, progress=reports)
    except Exception as error:
        if not isinstance(error, UserError):
            error.add_note("in the worker process:\n" + "".join(traceback.format_exception(error)))
        try:
            unwrap(wrap(error, bytearray))
        except Exception:  # an exception may hold anything
            plain = EngineError(f"{type(error).__name__}: {error}")
            keep_own_code(plain, like=error)
            return plain
        return error
    return None


if __name__ == "__main__":
    run_worker(*map(int, sys.argv[1:]))
