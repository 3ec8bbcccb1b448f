"""Workers of the engines ``processes`` and ``ray``: what a worker executes, and the pool that gives calls to workers."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from motley.algorithms.base import BlockRun
from motley.core.errors import ConfigError, EngineError, MotleyError
from motley.engines import ENGINES, resolve_auto
from motley.engines.base import Engine, Job, Reduction, RunSum, Setting, TrainResult
from motley.engines.cores import ThreadPool
from motley.engines.serialization import Block, unwrap

__all__ = ["MAX_DEATHS", "Failed", "RemoteWorker", "Timed", "Worker", "WorkerCall", "WorkerDied", "WorkerPool", "worker_engine"]

Packed = TypeVar("Packed")
Shared = TypeVar("Shared")

MAX_DEATHS = 3
"""Workers that may die over one call before the run ends with an error."""


@dataclass(frozen=True)
class WorkerCall:
    """A call of a method of the worker's engine.

    Parameters
    ----------
    method: name of the method. arguments: keyword arguments, beside those that all workers share.
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
    """A worker is gone; the text says how, as in "by signal 9"."""


def worker_engine(setting: Setting) -> str:
    """Return the name of the engine that a worker runs: the one that ``auto`` selects; one core needs no threads."""
    name = resolve_auto(setting)
    return "sequential" if name == "threads" and setting.threads == 1 else name


class Worker:
    """Executes calls on an engine, inside a worker process or a Ray actor.

    Parameters
    ----------
    setting: block with the run's setting; its tensors are used where they lie. device: replaces the setting's own if given.
    """

    def __init__(self, setting: Block, device: str | None = None) -> None:
        self._engine: Engine | None = None
        self._error: Exception = RuntimeError("this worker was closed")
        try:
            found: Setting = unwrap(setting)
            found = found if device is None else dataclasses.replace(found, device=device)
            self._engine = ENGINES.get(worker_engine(found))(found)
        except MotleyError as error:
            self._error = error
        except Exception as error:  # whatever a user's module raises when it is imported
            message = f"a worker process cannot make the run's model ({type(error).__name__}: {error})"
            self._error = ConfigError(f"{message}; it must be importable there", "engine")

    def execute(self, call: WorkerCall, shared: Mapping[str, Any], pack: Callable[[object], Packed]) -> Packed:
        """Execute a call and return its packed result, or :class:`Failed`; ``shared``: arguments that all workers were given."""
        answer = self._answer(call, shared)
        try:
            return pack(answer)
        except Exception as error:  # an exception may hold anything
            cause = answer.error if isinstance(answer, Failed) else error
            return pack(Failed(EngineError(f"a worker failed: {type(cause).__name__}: {cause}")))

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
            return Failed(error)

    def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _trained(results: Iterable[TrainResult]) -> Timed:
    """Return training results with the seconds between them."""
    found, moments = [], [time.perf_counter()]
    for result in results:
        found.append(result)
        moments.append(time.perf_counter())
    return Timed(found, [after - before for before, after in itertools.pairwise(moments)])


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

    ``count``: uploads of the whole step. ``stack``: jobs at most that the engine is given at once."""
    sums, seconds = [], []
    stacks = (jobs[at : at + stack] for at in range(0, len(jobs), stack))
    results = itertools.chain.from_iterable(engine.train(some, **inputs) for some in stacks)
    began = time.perf_counter()
    for run in runs:
        total, kept = reduction.begin(), []
        for position in range(run.positions.start, min(run.positions.stop, count)):
            total, result = reduction.add(total, position, next(results))
            kept.append(result)
            seconds.append(time.perf_counter() - began)
            began += seconds[-1]
        sums.append(RunSum(run, kept, reduction.partial(total)))
    return Timed(sums, seconds)


class RemoteWorker(ABC, Generic[Shared]):
    """The run's end of the connection to one worker. One thread at a time uses it, except for :meth:`close`."""

    @abstractmethod
    def start(self) -> None:
        """Start the worker, or a fresh one in place of a dead one."""

    @abstractmethod
    def execute(self, call: WorkerCall, shared: Shared) -> Any:
        """Return the worker's answer to a call; ``shared``: arguments that lie where every worker can read them.

        Raises
        ------
        WorkerDied: the worker is gone, or was given up; :meth:`start` replaces it.
        """

    @abstractmethod
    def close(self) -> None:
        """End the worker at once; a call under way, and any later one, raises WorkerDied."""


class WorkerPool(Generic[Shared]):
    """Gives calls to workers, each from a Python thread of its own that waits for the answer; replaces workers that die.

    Parameters
    ----------
    workers: not started yet. on_close: called after the workers have ended.
    """

    def __init__(self, workers: Sequence[RemoteWorker[Shared]], on_close: Callable[[], None]) -> None:
        self._workers, self._on_close = workers, on_close
        self._threads = ThreadPool(workers)
        self._lock, self._closed = threading.Lock(), False
        for worker in workers:
            worker.start()

    def run(self, calls: Sequence[WorkerCall], shared: Shared, ahead: int) -> Iterator[Any]:
        """Yield the answers in the order of ``calls``, whichever worker executes which.

        ``ahead``: calls that may be given out beyond those whose answers were taken.

        Raises
        ------
        EngineError: too many workers died over one call. Any other error: raised by a worker.
        """

        def work(worker: RemoteWorker[Shared], call: WorkerCall) -> Any:
            answer = self._execute(worker, call, shared)
            if isinstance(answer, Failed):
                raise answer.error
            return answer

        return self._threads.map(work, calls, ahead)

    def _execute(self, worker: RemoteWorker[Shared], call: WorkerCall, shared: Shared) -> Any:
        death = WorkerDied()
        for _ in range(MAX_DEATHS):
            try:
                return worker.execute(call, shared)
            except WorkerDied as error:
                death = error
                with self._lock:
                    if self._closed:
                        raise
                    worker.start()
        raise EngineError(
            f"{MAX_DEATHS} workers died one after the other over {call.about} (the last one {death}); if memory ran out, use fewer "
            "workers, smaller batches or a smaller model"
        )

    def close(self) -> None:
        """End the workers and the threads."""
        with self._lock:
            self._closed = True
            for worker in self._workers:
                worker.close()
        self._threads.close()
        self._on_close()
