"""Base class of the engines with workers: it cuts jobs into chunks, has workers train them, and
puts the results in order.

A worker runs one of the usual engines on its own cores, the one that ``auto`` selects there.
Results are a function of the jobs and the number of workers; they do not depend on which worker was
faster or died.
"""

from __future__ import annotations

import dataclasses
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from motley.algorithms.parts import BLOCK, ClientState, Tensors
from motley.core.arrays import Floats, Ints
from motley.core.errors import ConfigError, ContractError
from motley.core.keys import Key
from motley.core.usable_cores import cores
from motley.engines import ENGINES
from motley.engines.client import CHUNK, longest_pass
from motley.engines.engine import (
    MEASURED,
    PRE_TRAINING,
    AdaptInputs,
    DataView,
    Engine,
    Job,
    Purpose,
    Reduction,
    RunSum,
    Setting,
    Slices,
    TrainResult,
)
from motley.engines.local import Sequential, refuses_method, window_of
from motley.engines.placement import ClientSeconds, parts_of, uneven
from motley.engines.serialization import unsendable
from motley.engines.stored_images import with_stored_images
from motley.engines.workers import RemoteWorker, Shared, WorkerCall, WorkerPool, worker_engine
from motley.tasks.task import ModelState, model_input

SPREAD_FROM = 20_000_000
"""Weights times samples of a worker's part from which measuring in workers is faster than sending
the model there: milliseconds."""
_CHUNKS = 4
"""Chunks for every worker where clients are trained one by one, so that a worker that finishes
early takes more of them."""
CHUNK_WEIGHTS = 8_000_000
"""Weights of a chunk's results at most, unless one client has more: 32 megabytes in float32."""


def _for_workers(setting: Setting) -> Setting:
    """Return the setting with the data that workers need, in the types in which they are used, so
    that no worker makes a copy."""
    task = setting.task
    dtype = setting.dtype

    def cast(values: torch.Tensor) -> torch.Tensor:
        return values.to(dtype) if values.is_floating_point() else values

    data = task.federation
    held = None if data.validation_labels is None else cast(data.validation_labels)
    data = dataclasses.replace(
        data,
        x=data.x if task.transform is not None else model_input(data.x, dtype),
        y=cast(data.y),
        labels=cast(data.labels),
        validation_labels=held,
        global_test=None,
        server=None,
        public=None,
        notes={},
        held_out=None,
    )
    task = dataclasses.replace(task, federation=data, metrics=())
    return dataclasses.replace(setting, task=task)


class Distributed(Engine, Generic[Shared]):
    """An engine whose work is done by workers.

    Parameters
    ----------
    setting: of the run; its ``workers``, by default one for every core, share its cores. The
    engine's own ``setting`` has images as bytes where they were bytes; a run that takes its task
    from there keeps no copy of scaled ones.
    """

    def __init__(self, setting: Setting) -> None:
        reason = self.refuses(setting)
        if reason is not None:
            raise ContractError(
                f"the engine {self.name!r} was given a setting it refuses: {reason}"
            )
        self.setting = setting = with_stored_images(setting)
        self.workers, self.cores_each = self._shares(setting)
        self.worker_shape = f"{self.workers} x {self.cores_each}"
        self.threads = min(self.workers * self.cores_each, cores(setting.threads))
        self.inner = cores(setting.threads)
        sent = dataclasses.replace(_for_workers(setting).alone(), threads=self.cores_each)
        inside = worker_engine(sent)
        self._batches = inside in ("batched", "vmap")
        self._one_by_one = inside == "sequential"  # so that each client's own seconds are known
        self._seconds = ClientSeconds()
        self._setting = self._share(sent)
        workers = [self._worker(number, self._setting) for number in range(self.workers_at_once())]
        self._pool = WorkerPool(workers, self._on_close(), self._on_wait())
        # no worker outlives an engine that nobody closed
        self._end = weakref.finalize(self, self._pool.close)

    @classmethod
    @abstractmethod
    def available_cores(cls, setting: Setting) -> int:
        """Return the number of cores that all workers together may use."""

    @classmethod
    def available_gpus(cls) -> int:
        """Return the number of GPUs that workers may have, one each."""
        return torch.cuda.device_count()

    @abstractmethod
    def _share(self, obj: object) -> Shared:
        """Put an object where every worker can read it."""

    @abstractmethod
    def _load(self, shared: Shared) -> Any:
        """Read a shared object without copying its tensors."""

    @abstractmethod
    def _worker(self, number: int, setting: Shared) -> RemoteWorker[Shared]:
        """Return a worker that is not started yet; ``number``: from 0."""

    def _on_close(self) -> Callable[[], None]:
        """Return what is called after the workers have ended."""
        return lambda: None

    def _on_wait(self) -> Callable[[float], None]:
        """Return what is called while an answer is waited for, with the seconds for which no worker
        has been ready."""
        return lambda without_s: None

    def workers_at_once(self) -> int:
        """Return the number of workers to start; how the work is divided, and so its bits, depends
        on ``workers`` alone."""
        return self.workers

    def _shares(self, setting: Setting) -> tuple[int, int]:
        return self.worker_shares(setting)

    @classmethod
    def worker_shares(cls, setting: Setting) -> tuple[int, int]:
        """Return the number of workers and the cores of each; their product is at most the
        available cores."""
        most = cls.available_cores(setting)
        default = cls.available_gpus() if setting.device == "cuda" else most
        workers = max(1, min(default, most)) if setting.workers is None else setting.workers
        if workers > most:
            raise ConfigError(
                f"got {workers}, and this run may use {most} cores; expected at most one worker "
                "for each",
                "engine.workers",
            )
        return workers, most // workers

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        task = setting.task
        algorithm = setting.algorithm
        parts = {
            "the function that makes the model": task.model,
            "the transform": task.transform,
            "the loss": algorithm.loss,
            "the algorithm": algorithm.local,
            "the local optimizer": setting.solver,
        }
        reason = unsendable(parts)
        if algorithm.local.slicing is not None:
            reason = refuses_method(setting)
        elif reason is None:
            inner: type[Engine] = ENGINES.get(worker_engine(setting))
            reason = inner.refuses(setting)
        return reason

    @override
    def train(
        self,
        jobs: Sequence[Job],
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: frozenset[str] = frozenset(),
    ) -> Iterator[TrainResult]:
        """See :meth:`Engine.train`. Jobs are trained in windows whose results fit in memory; a
        window begins before the last ends."""
        window = window_of(self.setting, self.workers)
        costs = self._costs(jobs, want)
        windows = [
            self._chunks(range(at, min(at + window, len(jobs))), costs)
            for at in range(0, len(jobs), window)
        ]
        chunks = [chunk for cut in windows for chunk in cut]
        calls = [
            self._call("train", [jobs[i] for i in chunk], client_states, {}) for chunk in chunks
        ]
        shared = {"download": dict(download), "want": want}
        done: dict[int, TrainResult] = {}
        first = 0
        answers = self._run(calls, shared, max(map(len, windows), default=0))
        for chunk, (results, seconds) in zip(chunks, answers, strict=True):
            self._seconds.learn([jobs[i] for i in chunk], seconds)
            done.update(zip(chunk, map(_own_state, results), strict=True))
            while first in done:
                yield done.pop(first)
                first += 1

    @override
    def refuses_sums(self, steps: Sequence[int]) -> str | None:
        costs = [float(count) for count in steps]
        if not uneven(costs, self.workers, self._batches):
            return None
        message = f"{len(costs)} updates are too few for sums of {BLOCK}"
        return f"{message}, with which some of {self.workers} workers would wait for others"

    @override
    def train_sums(
        self,
        jobs: Sequence[Job],
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: frozenset[str],
        reduction: Reduction,
    ) -> Iterator[RunSum]:
        """See :meth:`Engine.train_sums`. A worker trains consecutive blocks of positions."""
        costs = self._costs(jobs, want)
        # states travel with each result
        keeps = any(state is not None for state in client_states.values())
        least = -(-len(jobs) * self.setting.task.layout.size // CHUNK_WEIGHTS) if keeps else 1
        parts = parts_of(costs, self.workers, self._batches, least)
        # longest first: what is given out last shall not be what all others wait for
        order = sorted(parts, key=lambda part: -part.cost)
        calls = []
        for part in order:
            own = [jobs[i] for i in part.positions]
            stacks = -(-len(own) * self.setting.task.layout.size // CHUNK_WEIGHTS)
            stack = -(-len(own) // min(len(own), stacks))
            more = {"runs": part.runs, "count": len(jobs), "stack": stack}
            calls.append(self._call("train_sums", own, client_states, more))
        shared = {"download": dict(download), "want": want, "reduction": reduction}
        done: dict[int, list[RunSum]] = {}
        first = 0
        for part, (sums, seconds) in zip(order, self._run(calls, shared, len(calls)), strict=True):
            self._seconds.learn([jobs[i] for i in part.positions], seconds)
            done[part.positions.start] = sums
            while first in done:
                for run, results, partial in done.pop(first):
                    first += len(results)
                    yield RunSum(run, [_own_state(result) for result in results], partial)

    def _costs(self, jobs: Sequence[Job], want: frozenset[str]) -> list[float]:
        """Return what each job is expected to take: the seconds that its client took before or,
        where a client's numbers may depend on who is trained beside it, the job's steps."""
        rule = self.setting.algorithm.local
        together = rule.pre_training or rule.choice is not None or want & PRE_TRAINING.keys()
        if self._one_by_one and not together:
            return self._seconds.expected(jobs)
        return [float(job.steps) for job in jobs]

    def _call(
        self,
        method: Literal["train", "train_sums"],
        jobs: list[Job],
        client_states: Mapping[int, ClientState | None],
        more: Mapping[str, Any],
    ) -> WorkerCall:
        states = {
            job.client: client_states[job.client] for job in jobs if job.client in client_states
        }
        arguments = {"jobs": jobs, "client_states": states, **more}
        return WorkerCall(method, arguments, _about([job.client for job in jobs]))

    def _run(
        self, calls: Sequence[WorkerCall], shared: dict[str, Any], ahead: int
    ) -> Iterator[Any]:
        return self._pool.run(calls, self._share(shared), ahead) if calls else iter(())

    def chunks_at_once(self) -> int:
        """Return the number of chunks into which a window of enough jobs is cut at least."""
        return self.workers * (1 if self._batches else _CHUNKS)

    def _chunks(self, window: range, costs: Sequence[float]) -> list[list[int]]:
        """Deal the jobs of a window out evenly, longest first: one chunk for every worker where
        clients are batched, unless these are too large; a few where clients are trained one by
        one."""
        order = sorted(window, key=lambda i: -costs[i])
        rounds = -(-len(order) * self.setting.task.layout.size // (CHUNK_WEIGHTS * self.workers))
        count = min(len(order), max(self.workers * rounds, self.chunks_at_once()))
        return [order[part::count] for part in range(count)]

    @override
    def measure(
        self,
        clients: Ints,
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: Mapping[str, int | None],
        key: Key,
        data_view: DataView | None = None,
        slices: Slices | None = None,
    ) -> dict[str, Floats]:
        """See :meth:`Engine.measure`. Clients are spread over the workers where that is faster.
        Engines with workers refuse slices."""
        clients = np.asarray(clients, dtype=np.int64)
        sizes = self.setting.task.federation.train.sizes[clients]
        passes = sum(
            3 if MEASURED[name][1] == "gradient" else 1 for name in want if name in MEASURED
        )
        parts = self._parts(int(sizes.sum()) * passes, len(clients))
        if parts == 1:
            return self._local.measure(
                clients, download, client_states, want, key=key, data_view=data_view
            )
        # consecutive clients of about as many samples: parts are joined in order, without a sort
        cuts = np.searchsorted(np.cumsum(sizes), np.linspace(0, sizes.sum(), parts + 1)[1:-1])
        calls = []
        for at in filter(len, np.split(np.arange(len(clients)), cuts)):
            ids = clients[at]
            view = None if data_view is None else data_view[at]
            if client_states:
                states = {
                    client: client_states[client]
                    for client in ids.tolist()
                    if client in client_states
                }
            else:
                states = {}
            arguments = {
                "clients": ids,
                "client_states": states,
                "want": dict(want),
                "key": key,
                "data_view": view,
            }
            calls.append(WorkerCall("measure", arguments, _about(ids.tolist())))
        results = list(self._run(calls, {"download": dict(download)}, len(calls)))
        return {name: np.concatenate([part[name] for part in results]) for name in want}

    @override
    def choose(
        self,
        clients: Ints,
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        data_view: DataView | None = None,
    ) -> Mapping[int, ClientState | None]:
        """See :meth:`Engine.choose`. Models are compared in this process; workers compare those of
        the jobs that they train."""
        return self._local.choose(clients, download, client_states, data_view)

    @override
    def evaluate(
        self,
        model: ModelState,
        rows: Ints,
        labels: Ints | None = None,
        want: frozenset[str] = frozenset({"hit"}),
        sizes: Ints | None = None,
    ) -> dict[str, NDArray[Any]]:
        """See :meth:`Engine.evaluate`. Rows are spread over the workers where that is faster, cut
        where the reference cuts them."""
        rows = np.asarray(rows, dtype=np.int64)
        # every pass is a power of two of samples, so that the longest has room for whole ones
        chunk = max(*CHUNK.values(), longest_pass(self.setting))
        parts = self._parts(len(rows), -(-len(rows) // chunk))
        if parts == 1 or self.setting.separates_clients:
            return self._local.evaluate(model, rows, labels, want, sizes=sizes)
        length = chunk * -(-len(rows) // (chunk * parts))
        cuts = [slice(begin, begin + length) for begin in range(0, len(rows), length)]
        arguments = [
            {"rows": rows[cut], "labels": None if labels is None else labels[cut], "want": want}
            for cut in cuts
        ]
        calls = [
            WorkerCall("evaluate", part, f"samples {cut.start} to {cut.stop}")
            for part, cut in zip(arguments, cuts, strict=True)
        ]
        results = list(self._run(calls, {"model": model}, len(calls)))
        return {name: np.concatenate([part[name] for part in results]) for name in results[0]}

    @override
    def recalibrate(
        self,
        model: ModelState,
        client: int,
        batches: int,
        key: Key,
        data_view: DataView | None = None,
        cumulative: bool = False,
    ) -> ModelState:
        return self._local.recalibrate(
            model, client, batches, key, data_view=data_view, cumulative=cumulative
        )

    @override
    def alike(self, setting: Setting) -> Engine:
        return Sequential(setting.alone())

    @override
    def adapt(
        self, jobs: Sequence[Job], begun: Iterable[AdaptInputs], purpose: Purpose = "tune"
    ) -> Iterator[ModelState]:
        """See :meth:`Engine.adapt`. Models are adapted in this process."""
        return self._local.adapt(jobs, begun, purpose)

    def _parts(self, samples: int, most: int) -> int:
        """Return the number of parts into which to cut the measuring of so many samples; 1: it is
        done in this process."""
        return max(
            1, min(self.workers, most, samples * self.setting.task.layout.size // SPREAD_FROM)
        )

    @cached_property
    def _local(self) -> Sequential:
        """The engine that measures in this process, on the workers' copy of the samples."""
        return Sequential(
            dataclasses.replace(self._load(self._setting), threads=self.setting.threads)
        )

    @override
    def close(self) -> None:
        self.__dict__.pop("_local", None)
        self._end()


def _about(clients: Sequence[int]) -> str:
    shown = ", ".join(map(str, clients[:10]))
    return f"clients {shown}{', ...' if len(clients) > 10 else ''}"


def _own_state(trained: TrainResult) -> TrainResult:
    """Copy the tensors that outlive the round, so that they do not keep the whole chunk's block in
    memory."""
    if trained.client_state is None and not trained.curvature:
        return trained
    client_state = None if trained.client_state is None else _copied(trained.client_state)
    return dataclasses.replace(
        trained, client_state=client_state, curvature=_copied(trained.curvature)
    )


def _copied(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in tensors.items()}
