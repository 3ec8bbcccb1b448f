"""Engines that train many clients in one computation: stacks of linear layers by matrix products, other small models by vmap.

Jobs are ordered by planned steps and cut into chunks whose weights fit the caches; each step runs on the first clients of the chunk,
those that still have steps. Chunks run on Python threads with one torch thread each. A cohort of any size is trained in windows, so
memory does not grow with it; results come in the order of the jobs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from torch import nn
from typing_extensions import override

from motley.core.errors import EngineError, MotleyError
from motley.engines.base import Job, JobInputs, Setting, TrainResult
from motley.engines.chunk import Chunk, Executor
from motley.engines.cores import ThreadPool, at_once, torch_threads
from motley.engines.local import LocalEngine, refuses_method
from motley.engines.stacked import StackedLinear, layers_of
from motley.engines.vmapped import Vmapped, refuses_vmap
from motley.tasks.flat import construct

__all__ = ["Batched", "Vmap", "bounded"]

CHUNK_WEIGHTS = 400_000
"""Weights of a chunk at most: 1.6 megabytes in float32, about what a core's own cache holds."""
SCHEDULE_PLACES = 4_000_000
"""Places of a chunk's batch schedule at most, padding included: about 100 MB while it is made."""


def bounded(group: list[int], jobs: Sequence[Job], batch_size: int) -> Iterator[list[int]]:
    """Yield a chunk of jobs in halves of halves until each part's batch schedule fits in memory.

    Parameters
    ----------
    group: indices into ``jobs``, longest first. batch_size: samples of a full batch.
    """
    places = jobs[group[0]].steps * len(group) * batch_size
    if len(group) == 1 or places <= SCHEDULE_PLACES:
        yield group
    else:
        middle = len(group) // 2
        yield from bounded(group[:middle], jobs, batch_size)
        yield from bounded(group[middle:], jobs, batch_size)


class _Batched(LocalEngine):
    """Trains chunks on threads; subclasses provide the executor of a chunk."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        workers = self.threads if setting.device == "cpu" else 1
        self._pool = ThreadPool([self._executor() for _ in range(at_once(workers))])
        self._workers = workers

    @abstractmethod
    def _executor(self) -> Executor:
        """Return a new executor; each thread has one."""

    def _train(self, jobs: Sequence[Job], inputs: JobInputs, want: frozenset[str]) -> Iterator[TrainResult]:
        order = sorted(range(len(jobs)), key=lambda i: -jobs[i].steps)
        groups = [part for group in self._groups(order) for part in bounded(group, jobs, self.setting.work.batch_size)]
        prepares = self.setting.algorithm.loss.prepares
        with torch_threads(self.inner):
            extras = [self.client.prepare(job, inputs) for job in jobs] if prepares else []

        def work(executor: Executor, group: list[int]) -> list[TrainResult]:
            some = [jobs[i] for i in group]
            try:
                prepared = [extras[i] for i in group] if prepares else []
                chunk = Chunk(self.setting, self.samples, some, inputs, want, prepared)
                return chunk.results(executor.run(chunk), want)
            except MotleyError:
                raise
            except Exception as error:
                clients = [job.client for job in some]
                raise EngineError(f"the local work of clients {clients} failed: {error}", {"clients": clients}) from error

        done: dict[int, TrainResult] = {}
        for group, results in zip(groups, self._pool.map(work, groups), strict=True):
            done.update(zip(group, results, strict=True))
        for i in range(len(jobs)):
            yield done[i]

    def _groups(self, order: list[int]) -> list[list[int]]:
        """Cut jobs ordered by steps into chunks, equally many for every thread.

        With one chunk each, jobs are dealt out evenly. With more, neighbours share a chunk, since their numbers of steps are similar.
        """
        largest = max(1, CHUNK_WEIGHTS // self.client.model.layout.size)
        rounds = -(-len(order) // (largest * self._workers))
        if rounds <= 1:
            return [order[w :: self._workers] for w in range(min(self._workers, len(order)))]
        count = min(rounds * self._workers, len(order))
        cuts = [i * len(order) // count for i in range(count + 1)]
        return [order[a:b] for a, b in pairwise(cuts)]

    @override
    def close(self) -> None:
        self._pool.close()


class Batched(_Batched):
    """Trains stacks of linear layers with ReLU; losses that compare features of several models are refused."""

    name: ClassVar[str] = "batched"

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        module = construct(setting.task.model, 0)
        if layers_of(module) is None:
            return "the model is not a stack of Flatten, Linear and ReLU layers"
        if setting.task.federation.targets == "positions":
            return "the targets are a class per position, and a stack gives one output per sample"
        if setting.task.federation.x.ndim != 2 and not any(isinstance(m, nn.Flatten) for m in module.modules()):
            return "the samples are not flat; begin the model with a Flatten layer"
        return refuses_method(setting)

    @override
    def _executor(self) -> Executor:
        layers = layers_of(construct(self.setting.task.model, 0))
        return StackedLinear(layers or (), self.setting)


class Vmap(_Batched):
    """Trains any module without buffers, dropout, hooks or operations that torch cannot batch over clients.

    Losses that compare features of several models are refused.
    """

    name: ClassVar[str] = "vmap"

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        reason = refuses_method(setting)
        if reason:
            return reason
        reason = refuses_vmap(setting)
        return f"the model cannot be batched over clients: {reason}" if reason else None

    @override
    def _executor(self) -> Executor:
        return Vmapped(self.setting)
