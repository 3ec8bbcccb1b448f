"""Clients in batches: stacks of linear layers by hand-written matrix products, other small models by vmap.

Jobs are cut into chunks whose weights fit the caches, ordered by planned steps, and each step runs on the prefix of clients
that still have one. Chunks run on Python threads with one torch thread each. A cohort of any size is worked off in windows,
so memory does not grow with it; results come in the order of the jobs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from torch import nn

from motley.core.errors import EngineError, MotleyError
from motley.engines.base import Job, JobInputs, Setting, TrainResult
from motley.engines.chunk import Chunk, Executor
from motley.engines.common import LocalEngine, refuses_loss
from motley.engines.cores import torch_threads
from motley.engines.pool import Pool
from motley.engines.stacked import StackedLinear, layers_of
from motley.engines.vmapped import Vmapped, refuses_vmap
from motley.tasks.flat import construct

__all__ = ["Batched", "Vmap"]

_CHUNK_WEIGHTS = 400_000
"""Weights of a chunk at most: 1.6 megabytes in float32, about what a core's own cache holds."""
_TAPE_PLACES = 4_000_000
"""Samples on a chunk's tape at most, padding included: about 100 MB while it is made."""


class _Batched(LocalEngine):
    """Chunks on threads; subclasses say what runs a chunk."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        workers = self.threads if setting.device == "cpu" else 1
        self._pool = Pool([self._executor() for _ in range(workers)])
        self._workers = workers

    @abstractmethod
    def _executor(self) -> Executor:
        """What runs a chunk; one per thread."""

    def _work(self, jobs: Sequence[Job], received: JobInputs, want: frozenset[str]) -> Iterator[TrainResult]:
        order = sorted(range(len(jobs)), key=lambda i: -jobs[i].steps)
        groups = [part for group in self._groups(order) for part in self._bounded(group, jobs)]
        prepares = self.setting.algorithm.loss.prepares
        with torch_threads(self.inner):
            extras = [self.client.prepare(job, received) for job in jobs] if prepares else []

        def work(executor: Executor, group: list[int]) -> list[TrainResult]:
            some = [jobs[i] for i in group]
            try:
                about = [extras[i] for i in group] if prepares else []
                chunk = Chunk(self.setting, self.samples, some, received, want, about)
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
        """Chunks of jobs ordered by steps, as many for every worker. One each: dealt out evenly. More: neighbours together,
        for they take nearly the same number of steps, and the longest in the smallest chunks."""
        largest = max(1, _CHUNK_WEIGHTS // self.client.model.layout.size)
        rounds = -(-len(order) // (largest * self._workers))
        if rounds <= 1:
            hands = [order[w :: self._workers] for w in range(self._workers)]
            return [hand for hand in hands if hand]
        count = min(rounds * self._workers, len(order))
        cuts = [i * len(order) // count for i in range(count + 1)]
        return [order[a:b] for a, b in pairwise(cuts)]

    def _bounded(self, group: list[int], jobs: Sequence[Job]) -> Iterator[list[int]]:
        """A chunk, halved until its tape, as long as its longest job for everybody, fits in memory."""
        places = jobs[group[0]].steps * len(group) * self.setting.work.batch_size
        if len(group) == 1 or places <= _TAPE_PLACES:
            yield group
        else:
            middle = len(group) // 2
            yield from self._bounded(group[:middle], jobs)
            yield from self._bounded(group[middle:], jobs)

    def close(self) -> None:
        """End the threads."""
        self._pool.close()


class Batched(_Batched):
    """Stacks of linear layers with ReLU between them."""

    name: ClassVar[str] = "batched"

    @classmethod
    def refuses(cls, setting: Setting) -> str | None:
        """Only stacks of linear layers, and losses on outputs alone."""
        module = construct(setting.task.model, 0)
        if layers_of(module) is None:
            return "the model is not a stack of Flatten, Linear and ReLU layers"
        if setting.task.federation.x.ndim != 2 and not any(isinstance(m, nn.Flatten) for m in module.modules()):
            return "the samples are not flat; begin the model with a Flatten layer"
        return refuses_loss(setting)

    def _executor(self) -> Executor:
        layers = layers_of(construct(self.setting.task.model, 0))
        return StackedLinear(layers or (), self.setting)


class Vmap(_Batched):
    """Any small module without buffers, dropout or hooks."""

    name: ClassVar[str] = "vmap"

    @classmethod
    def refuses(cls, setting: Setting) -> str | None:
        """No BatchNorm, no dropout, no other buffers; losses on outputs alone."""
        reason = refuses_vmap(construct(setting.task.model, 0))
        return f"the model cannot be batched over clients: {reason}" if reason else refuses_loss(setting)

    def _executor(self) -> Executor:
        return Vmapped(self.setting)
