"""Workers of the engines ``processes`` and ``ray``: what a worker executes, and the pool that gives
calls to workers."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import torch

from motley.algorithms.parts import BlockRun
from motley.core.errors import ConfigError, EngineError, MotleyError
from motley.core.own_code import keep_own_code
from motley.engines import ENGINES, resolve_auto
from motley.engines.engine import Engine, Job, Reduction, RunSum, Setting, TrainResult
from motley.engines.serialization import Block, unwrap

Packed = TypeVar("Packed")
Shared = TypeVar("Shared")

MAX_DEATHS = 3
"""Workers that may die over one call before the run ends with an error."""
_LOOK_S = 1.0
_PAUSE_S = 0.2
"""Seconds between looks at what is waited for, and between two attempts to start a worker."""


@dataclass(frozen=True)
class WorkerCall:
    """A call of a method of the worker's engine.

    Parameters
    ----------
    method: name of the method.
    arguments: keyword arguments, beside those that all workers share.
    about: clients or samples of the call, for an error message.
    """

    method: Literal["train", "train_sums", "measure", "evaluate"]
    arguments: Mapping[str, Any]
    about: str


@dataclass(frozen=True)
class Failed:
    """The answer of a worker whose engine raised an error."""

    error: Exception


class Timed(NamedTuple):
    """The answer to a call that trains: results or sums, and the seconds that each job took."""

    answer: list[Any]
    seconds: list[float]


class WorkerDied(Exception):  # noqa: N818 - never leaves the pool
    """A worker is gone; the text says how, as in "by signal 9".

    ``counts``: whether its call may be the reason, as it is not where a machine was lost.
    """

    def __init__(self, how: str, counts: bool = True) -> None:
        super().__init__(how)
        self.counts = counts


def worker_engine(setting: Setting) -> str:
    """Return the name of the engine that a worker runs: the one that ``auto`` selects; one core
    needs no threads."""
    name = resolve_auto(setting)
    return "sequential" if name == "threads" and setting.threads == 1 else name


class Worker:
    """Executes calls on an engine, inside a worker process or a Ray actor.

    Parameters
    ----------
    setting: block with the run's setting; its tensors are used where they lie.
    device: replaces the setting's own if given.
    """

    def __init__(self, setting: Block, device: str | None = None) -> None:
        self._engine: Engine | None = None
        self._error: Exception = RuntimeError("this worker was closed")
        try:
            unwrapped: Setting = unwrap(setting)
            unwrapped = (
                unwrapped if device is None else dataclasses.replace(unwrapped, device=device)
            )
            torch.set_float32_matmul_precision(unwrapped.matmul_precision)
            self._engine = ENGINES.get(worker_engine(unwrapped))(unwrapped)
        except MotleyError as error:
            self._error = error
        except Exception as error:  # whatever a user's module raises when it is imported
            message = (
                f"a worker process cannot make the run's model ({type(error).__name__}: {error})"
            )
            self._error = ConfigError(f"{message}; it must be importable there", "engine")

    def execute(
        self, call: WorkerCall, shared: Mapping[str, Any], pack: Callable[[object], Packed]
    ) -> Packed:
        """Execute a call and return its packed result, or :class:`Failed`; ``shared``: arguments
        that all workers were given."""
        answer = self._answer(call, shared)
        try:
            return pack(answer)
        except Exception as error:  # an exception may hold anything
            cause = answer.error if isinstance(answer, Failed) else error
            plain = EngineError(f"a worker failed: {type(cause).__name__}: {cause}")
            keep_own_code(plain, like=cause)
            return pack(Failed(plain))

    def _answer(self, call: WorkerCall, shared: Mapping[str, Any]) -> Any:
        if self._engine is None:
            return Failed(self._error)
        try:
            if call.method == "train":
                return _trained(self._engine.train(**call.arguments, **shared))
            if call.method == "train_sums":
                return _summed(self._engine, **call.arguments, **shared)
            return getattr(self._engine, call.method)(**call.arguments, **shared)
        except Exception as error:
            keep_own_code(error)
            return Failed(error)

    def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _trained(results: Iterable[TrainResult]) -> Timed:
    """Return training results with the seconds between them."""
    trained = []
    moments = [time.perf_counter()]
    for result in results:
        trained.append(result)
        moments.append(time.perf_counter())
    return Timed(trained, [after - before for before, after in itertools.pairwise(moments)])


def _summed(
    engine: Engine,
    jobs: Sequence[Job],
    runs: Sequence[BlockRun],
    count: int,
    stack: int,
    reduction: Reduction,
    **inputs: Any,
) -> Timed:
    """Train the jobs of these runs, in order of positions, and return a sum for each run.

    ``count``: uploads of the whole step. ``stack``: jobs at most that the engine is given at
    once."""
    sums = []
    seconds = []
    stacks = (jobs[at : at + stack] for at in range(0, len(jobs), stack))
    results = itertools.chain.from_iterable(
        engine.train(job_stack, **inputs) for job_stack in stacks
    )
    began = time.perf_counter()
    for run in runs:
        total = reduction.begin()
        trained = []
        for position in range(run.positions.start, min(run.positions.stop, count)):
            total, result = reduction.add(total, position, next(results))
            trained.append(result)
            seconds.append(time.perf_counter() - began)
            began += seconds[-1]
        sums.append(RunSum(run, trained, reduction.partial(total)))
    return Timed(sums, seconds)


class RemoteWorker(ABC, Generic[Shared]):
    """The run's end of the connection to one worker. One thread at a time uses it, except for
    :meth:`close`."""

    @abstractmethod
    def start(self) -> None:
        """Start the worker, or a fresh one in place of a dead one, and return when it takes calls.

        Raises
        ------
        WorkerDied: it died at once, or was given up; another attempt may succeed.
        """

    @abstractmethod
    def execute(self, call: WorkerCall, shared: Shared, silent: Callable[[], None]) -> Any:
        """Return the worker's answer to a call.

        Parameters
        ----------
        shared: arguments that lie where every worker can read them.
        silent: called when the worker seems to be gone, but may still answer.

        Raises
        ------
        WorkerDied: the worker is gone, or was given up; :meth:`start` replaces it.
        """

    @abstractmethod
    def close(self) -> None:
        """End the worker at once; a call under way, and any later one, raises WorkerDied."""


class _Task(Generic[Shared]):
    """A call that waits for its answer. ``held``: places where it is, the queue and workers;
    ``deaths``: workers it has cost."""

    def __init__(self, call: WorkerCall, shared: Shared) -> None:
        self.call = call
        self.shared = shared
        self.future: Future[Any] = Future()
        self.held = 1
        self.deaths = 0
        self.repeated = False


class WorkerPool(Generic[Shared]):
    """Gives calls to workers, each served by a Python thread of its own.

    A worker that dies is replaced as soon as it can be, and another one executes its call in the
    meantime. A call of a worker that seems to be gone is given to another one, too, and the first
    answer counts.

    Parameters
    ----------
    workers: not started yet.
    on_close: called after the workers have ended.
    on_wait: called every second while an answer is waited for, with the seconds for which no worker
    has been ready.
    """

    def __init__(
        self,
        workers: Sequence[RemoteWorker[Shared]],
        on_close: Callable[[], None],
        on_wait: Callable[[float], None] = lambda without_s: None,
    ) -> None:
        self._on_close = on_close
        self._on_wait = on_wait
        self._workers: list[RemoteWorker[Shared]] = []
        self._threads: list[threading.Thread] = []
        self._queue: deque[_Task[Shared]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._ready = 0
        self._serving = 0
        self._without_since = time.monotonic()
        self._error: Exception = WorkerDied("with its engine")
        for worker in workers:
            self.add(worker)

    def add(self, worker: RemoteWorker[Shared]) -> None:
        """Start another worker, which takes calls as soon as it is ready."""
        thread = threading.Thread(
            target=self._serve, args=(worker,), name="motley worker", daemon=True
        )
        with self._changed:
            self._workers.append(worker)
            self._threads.append(thread)
            self._serving += 1
        thread.start()

    def run(self, calls: Sequence[WorkerCall], shared: Shared, ahead: int) -> Iterator[Any]:
        """Yield the answers in the order of ``calls``, whichever worker executes which.

        ``ahead``: calls that may be given out beyond those whose answers were taken.

        Raises
        ------
        EngineError: too many workers died over one call. Any other error: raised by a worker.
        """
        remaining = iter(calls)
        waiting: deque[_Task[Shared]] = deque()
        try:
            for call in islice(remaining, ahead):
                waiting.append(self._submit(call, shared))
            while waiting:
                answer = self._answer(waiting.popleft())
                if isinstance(answer, Failed):
                    raise answer.error
                yield answer
                for call in islice(remaining, 1):
                    waiting.append(self._submit(call, shared))
        finally:
            with self._changed:
                for task in waiting:
                    task.future.cancel()

    def _submit(self, call: WorkerCall, shared: Shared) -> _Task[Shared]:
        task = _Task(call, shared)
        with self._changed:
            if not self._serving:
                raise self._error
            self._queue.append(task)
            self._changed.notify()
        return task

    def _answer(self, task: _Task[Shared]) -> Any:
        while True:
            try:
                # With a timeout, because with all workers lost nobody would answer any more.
                return task.future.result(timeout=_LOOK_S)
            except TimeoutError:
                self._on_wait(0.0 if self._ready else time.monotonic() - self._without_since)

    def _serve(self, worker: RemoteWorker[Shared]) -> None:
        """Have a worker execute calls until the pool is closed, or it cannot be started."""
        error: Exception = WorkerDied("with its engine")
        try:
            while self._started(worker):
                self._count_ready(1)
                self._execute_all(worker)
                self._count_ready(-1)
        except Exception as raised:  # by the start of a worker
            error = raised
        worker.close()  # what was started while the pool was closed
        self._ended(error)

    def _started(self, worker: RemoteWorker[Shared]) -> bool:
        """Start a worker, if need be again and again; return whether it was before the pool was
        closed."""
        failures = 0
        while not self._closed:
            try:
                worker.start()
                return True
            except WorkerDied as death:
                failures += death.counts
                if failures == MAX_DEATHS:
                    raise EngineError(
                        f"a worker cannot be started: {MAX_DEATHS} died one after the other "
                        f"({death})"
                    ) from None
                time.sleep(_PAUSE_S)
        return False

    def _execute_all(self, worker: RemoteWorker[Shared]) -> None:
        """Have a worker execute calls until it dies or the pool is closed."""
        while (task := self._taken()) is not None:
            try:
                answer = worker.execute(task.call, task.shared, partial(self._repeat, task))
            except WorkerDied as death:
                self._lost(task, death)
                return
            except Exception as error:  # the call cannot be sent
                answer = Failed(error)
            self._settle(task, answer)

    def _taken(self) -> _Task[Shared] | None:
        """Wait for a call and take it; None when the pool is closed."""
        with self._changed:
            while not self._closed:
                while self._queue:
                    task = self._queue.popleft()
                    if not task.future.done():
                        return task
                self._changed.wait()
        return None

    def _repeat(self, task: _Task[Shared]) -> None:
        """Let another worker execute a call, too, whose worker seems to be gone."""
        with self._changed:
            if not task.repeated and not task.future.done():
                task.repeated = True
                task.held += 1
                # first: answers are yielded in order, so all later ones wait for this one
                self._queue.appendleft(task)
                self._changed.notify()

    def _lost(self, task: _Task[Shared], death: WorkerDied) -> None:
        """Let another worker execute the call of one that died, before all others; or fail it."""
        with self._changed:
            task.deaths += death.counts
            task.held -= 1
            if self._closed:
                self._fail(task, death)
            elif task.deaths >= MAX_DEATHS:
                self._fail(
                    task,
                    EngineError(
                        f"{MAX_DEATHS} workers died one after the other over {task.call.about} "
                        f"(the last one {death}); if memory ran out, use fewer workers, smaller "
                        "batches or a smaller model"
                    ),
                )
            elif not task.held:
                task.held = 1
                task.repeated = False
                self._queue.appendleft(task)
                self._changed.notify()

    def _settle(self, task: _Task[Shared], answer: Any) -> None:
        with self._changed:
            if not task.future.done():
                task.future.set_result(answer)

    def _fail(self, task: _Task[Shared], error: Exception) -> None:
        if not task.future.done():
            task.future.set_exception(error)

    def _count_ready(self, change: int) -> None:
        with self._changed:
            self._ready += change
            self._without_since = time.monotonic()

    def _ended(self, error: Exception) -> None:
        """Note that a thread ends; the last one fails the calls that nobody will execute."""
        with self._changed:
            self._serving -= 1
            if not self._serving:
                self._error = error
                while self._queue:
                    self._fail(self._queue.popleft(), error)

    def close(self) -> None:
        """End the workers and the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.close()
        for thread in self._threads:
            # a thread that closes the pool cannot wait for itself
            if thread is not threading.current_thread():
                thread.join()
        self._on_close()
