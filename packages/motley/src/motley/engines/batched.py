"""Engines that train many clients in one computation: stacks of linear layers by matrix products,
other small models by vmap.

Jobs are ordered by planned steps and cut into chunks whose weights fit the caches; each step runs
on the first clients of the chunk, those that still have steps. Chunks run on Python threads with
one torch thread each. A cohort of any size is trained in windows, so memory does not grow with it;
results come in the order of the jobs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import ClassVar, TypeVar

import torch
from torch import nn
from typing_extensions import override

from motley.algorithms.parts import RECEIVED, Tensors
from motley.core.errors import EngineError, MotleyError
from motley.core.usable_cores import at_once
from motley.engines.chunk import Executor, joining
from motley.engines.cores import ThreadPool, torch_threads
from motley.engines.engine import AdaptInputs, Job, JobInputs, Purpose, Setting, TrainResult
from motley.engines.gradients import BlockGradients, ThreadGradients
from motley.engines.local import WINDOW_WEIGHTS, LocalEngine, refuses_method, window_of
from motley.engines.matrix_products import (
    MatrixProducts,
    OpenBlasProducts,
    TorchProducts,
    faster_library,
)
from motley.engines.stacked import StackedLinear, layers_of
from motley.engines.stages import LocalRun, run_phases, trained
from motley.engines.vmapped import Vmapped, refuses_vmap
from motley.tasks.flat import construct
from motley.tasks.task import ModelState

_Result = TypeVar("_Result")

CHUNK_WEIGHTS = 400_000
"""Weights of a chunk at most: 1.6 megabytes in float32, about what a core's own cache holds. On a
GPU as many as a window's."""


CHUNK_WEIGHTS_BFLOAT16 = 1_000_000
"""The same in bfloat16: its products gain more from many clients at once."""


OVERHEAD_ALONE = 3e6
OVERHEAD_TOGETHER = 5e6
"""What a chunk's step costs beside its operations, in operations of a forward pass: on one thread,
and on each of several times their number, for each waits for the others' turn in Python after every
operation of torch. Fitted to one and two threads (docs/measured.md#thread-steps); that it grows
with more follows from one interpreter for all."""


def fastest_division(clients: int, largest: int, workers: int, operations: float) -> int:
    """Return among how many threads the work of so many clients is divided in the least time.

    Parameters
    ----------
    largest: clients of a chunk at most.
    workers: threads at most.
    operations: of a client's step, forward.
    """

    def cost(threads: int) -> float:
        rounds = -(-clients // (largest * threads))
        in_chunk = clients / min(rounds * threads, clients)
        waits = OVERHEAD_ALONE if threads == 1 else threads * OVERHEAD_TOGETHER
        return rounds * (in_chunk * operations + waits)

    return min(range(1, min(workers, clients) + 1), key=cost, default=1)


class _Batched(LocalEngine):
    """Trains chunks on threads; subclasses provide the executor of a chunk."""

    products: MatrixProducts = TorchProducts()

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._workers = self.threads if setting.device == "cpu" else 1
        executors = [self._executor() for _ in range(at_once(self._workers))]
        join = joining.get()
        if join is not None and len(executors) == 1:
            executors = [join(executors[0], setting)]
        self.joint = any(executor.joint for executor in executors)
        self._pool = ThreadPool(executors)
        held = float(setting.task.federation.seen.mean())
        self._step = self._operations() * min(float(setting.work.batch_size), held)

    @abstractmethod
    def _operations(self) -> int:
        """Return about how many floating-point operations a forward pass of one sample takes."""

    @abstractmethod
    def _executor(self) -> Executor:
        """Return a new executor; each thread has one."""

    def _train(
        self, jobs: Sequence[Job], inputs: JobInputs, want: frozenset[str]
    ) -> Iterator[TrainResult]:
        prepares = self.setting.algorithm.loss.prepares
        if prepares:
            extras = [self._prepare(LocalRun.training(self.setting, job, inputs)) for job in jobs]
        else:
            extras = []

        def work(executor: Executor, group: list[int]) -> list[TrainResult]:
            runs = [LocalRun.training(self.setting, jobs[i], inputs) for i in group]
            if prepares:
                runs = [run._replace(extra=extras[i]) for i, run in zip(group, runs, strict=True)]
            return trained(executor, self.setting, self.samples, runs, want=want)

        yield from self._in_groups(jobs, work)

    def _prepare(self, run: LocalRun) -> Tensors:
        """Return the tensors that the loss prepares for a client's samples."""
        with torch_threads(self.inner):
            return self.client.prepare(run.job, run.context, run.start)

    @override
    def adapt(
        self, jobs: Sequence[Job], begun: Iterable[AdaptInputs], purpose: Purpose = "tune"
    ) -> Iterator[ModelState]:
        waiting = iter(begun)
        window = window_of(self.setting, self.threads)
        prepares = self.setting.algorithm.loss.prepares
        for begin in range(0, len(jobs), window):
            window_jobs = jobs[begin : begin + window]
            runs = [
                LocalRun.tuning(
                    self.setting, job, next(waiting).model.to(self.setting.device), purpose
                )
                for job in window_jobs
            ]
            runs = [run._replace(extra=self._prepare(run)) for run in runs] if prepares else runs

            def work(
                executor: Executor, group: list[int], runs: list[LocalRun] = runs
            ) -> list[ModelState]:
                trained, _ = run_phases(
                    executor, self.setting, self.samples, [runs[i] for i in group]
                )
                return [models[RECEIVED].to("cpu") for models in trained]

            yield from self._in_groups(window_jobs, work)

    def _in_groups(
        self, jobs: Sequence[Job], work: Callable[[Executor, list[int]], list[_Result]]
    ) -> list[_Result]:
        """Do the work of chunks of jobs on the threads, and return what was found in the order of
        the jobs."""

        def run_group(executor: Executor, group: list[int]) -> list[_Result]:
            try:
                return work(executor, group)
            except MotleyError:
                raise
            except Exception as error:
                clients = [jobs[i].client for i in group]
                raise EngineError(
                    f"the local work of clients {clients} failed: {error}", {"clients": clients}
                ) from error

        # clients of a chunk step together: whoever is done leaves it at its end, so the longest
        # stand first
        groups = self._groups(sorted(range(len(jobs)), key=lambda i: -jobs[i].steps))
        done: dict[int, _Result] = {}
        with self.products.alone():
            for group, results in zip(groups, self._pool.map(run_group, groups), strict=True):
                done.update(zip(group, results, strict=True))
        return [done[i] for i in range(len(jobs))]

    def _groups(self, order: list[int]) -> list[list[int]]:
        """Cut jobs ordered by steps into chunks, equally many for every thread that takes part.

        With one chunk each, jobs are dealt out evenly. With more, neighbours share a chunk, since
        their numbers of steps are similar.
        """
        in_cache = CHUNK_WEIGHTS if self.setting.precision == "float32" else CHUNK_WEIGHTS_BFLOAT16
        weights = in_cache if self.setting.device == "cpu" else WINDOW_WEIGHTS
        largest = max(1, weights // self.client.model.layout.size)
        workers = fastest_division(len(order), largest, self._workers, self._step)
        rounds = -(-len(order) // (largest * workers))
        if rounds <= 1:
            return [order[w::workers] for w in range(min(workers, len(order)))]
        count = min(rounds * workers, len(order))
        cuts = [i * len(order) // count for i in range(count + 1)]
        return [order[a:b] for a, b in pairwise(cuts)]

    @override
    def close(self) -> None:
        self._pool.close()


class Batched(_Batched):
    """Trains stacks of linear layers with ReLU; losses that compare features of several models are
    refused."""

    name: ClassVar[str] = "batched"

    options: ClassVar[frozenset[str]] = frozenset({"products"})

    def __init__(self, setting: Setting) -> None:
        library = setting.products or (faster_library() if _in_float32(setting) else "torch")
        if library == "openblas":
            self.products = OpenBlasProducts()
        self.library = library
        self._layers = layers_of(construct(setting.task.model, 0)) or ()
        super().__init__(setting)
        self.prober.gradient_pass = BlockGradients(self._layers, setting, self.samples, self._pool)

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        module = construct(setting.task.model, 0)
        if layers_of(module) is None:
            return "the model is not a stack of Flatten, Linear and ReLU layers"
        if setting.task.federation.targets == "positions":
            return "the targets are a class per position, and a stack gives one output per sample"
        if setting.task.federation.x.ndim != 2 and not any(
            isinstance(m, nn.Flatten) for m in module.modules()
        ):
            return "the samples are not flat; begin the model with a Flatten layer"
        if setting.products == "openblas" and not _in_float32(setting):
            return 'products = "openblas" multiplies in float32 on a CPU; leave it out'
        return refuses_method(setting)

    @override
    def _operations(self) -> int:
        return 2 * self.setting.task.layout.size  # a weight multiplies and adds

    @override
    def _executor(self) -> Executor:
        return StackedLinear(self._layers, self.setting, self.products)


def _in_float32(setting: Setting) -> bool:
    """Return whether matrices are multiplied in float32 on a CPU."""
    kinds = setting.precision, setting.dtype, setting.device
    return kinds == ("float32", torch.float32, "cpu")


class Vmap(_Batched):
    """Trains any module without buffers, dropout, hooks or operations that torch cannot batch over
    clients.

    Losses that compare features of several models are refused.
    """

    name: ClassVar[str] = "vmap"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._measuring = self._clients()
        if setting.device == "cpu":
            self.prober.gradient_pass = ThreadGradients(self._measuring)

    @override
    def close(self) -> None:
        super().close()
        self._measuring.close()

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        reason = refuses_method(setting)
        if reason:
            return reason
        reason = refuses_vmap(setting)
        return f"the model cannot be batched over clients: {reason}" if reason else None

    @override
    def _operations(self) -> int:
        return self.setting.forward_operations()

    @override
    def _executor(self) -> Executor:
        return Vmapped(self.setting)
