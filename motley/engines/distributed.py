"""What the engines with workers of their own do alike: cut the jobs into chunks, have a crew run them, put the results in order.

A worker runs one of the usual engines on its own cores, the one that ``auto`` takes there, over data that lie in memory once for
all workers. What is learned is a function of the jobs and the number of workers, never of who was faster or died.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from motley.algorithms.base import ClientState, Tensors
from motley.core.arrays import Floats, Ints
from motley.core.errors import ConfigError, ContractError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.engines import ENGINES
from motley.engines.base import MEASURED, DataView, Engine, Job, Setting, TrainResult
from motley.engines.client import CHUNK
from motley.engines.cores import cores
from motley.engines.local import Sequential, window_of
from motley.engines.serialization import unsendable
from motley.engines.worker import engine_of
from motley.engines.worker_pool import Order, WorkerPool, WorkerTransport
from motley.tasks.base import ModelState

__all__ = ["Distributed"]


_PAYS = 20_000_000
"""Weights times samples of a worker's part from which measuring elsewhere is faster than sending the model there: milliseconds."""
_CHUNKS = 4
"""Chunks for every worker where clients are trained one by one, so that whoever is done early takes from the others."""
_CHUNK_WEIGHTS = 8_000_000
"""Weights of a chunk's results at most, unless one client has more: 32 megabytes in float32."""


def _mapped(setting: Setting) -> Setting:
    """The setting with what workers read, in the form in which they read it, so that nobody has to convert a copy of their own."""
    data, dtype = setting.task.federation, setting.dtype

    def cast(values: torch.Tensor) -> torch.Tensor:
        return values.to(dtype) if values.is_floating_point() else values

    held = None if data.validation_labels is None else cast(data.validation_labels)
    nothing = Ragged(np.zeros(len(data) + 1, np.int64), np.zeros(0, np.int64))
    data = dataclasses.replace(
        data, x=data.x if setting.task.transform is not None else data.x.to(dtype), y=cast(data.y), labels=cast(data.labels),
        validation_labels=held, test=nothing, global_test=None, server=None, public=None, notes={},
    )  # fmt: skip
    return dataclasses.replace(setting, task=dataclasses.replace(setting.task, federation=data))


class Distributed(Engine):
    """An engine whose work is done by a crew of workers.

    Parameters
    ----------
    setting: of the run; ``workers`` of it, one for every core unless said, share its cores.
    """

    def __init__(self, setting: Setting) -> None:
        reason = self.refuses(setting)
        if reason is not None:
            raise ContractError(f"the engine {self.name!r} was given a setting it refuses: {reason}")
        self.setting = setting
        self.workers, self.each = self._shares(setting)
        self.worker_shape = f"{self.workers} x {self.each}"
        self.threads = min(self.workers * self.each, cores(setting.threads))
        told = dataclasses.replace(_mapped(setting), threads=self.each, workers=None, address=None)
        self._batches = engine_of(told) in ("batched", "vmap")
        self._crew: WorkerPool[Any] = WorkerPool(self._carrier(told), self.workers)

    @classmethod
    @abstractmethod
    def _cores(cls, setting: Setting) -> int:
        """Cores that all workers together may use."""

    @classmethod
    def _devices(cls) -> int:
        """GPUs that workers may have, one each."""
        return torch.cuda.device_count()

    @abstractmethod
    def _carrier(self, told: Setting) -> WorkerTransport[Any]:
        """What starts workers and tells them this setting."""

    @classmethod
    def _shares(cls, setting: Setting) -> tuple[int, int]:
        """Workers, and cores of each; workers times cores are never more than there are."""
        most = cls._cores(setting)
        default = cls._devices() if setting.device == "cuda" else most
        workers = max(1, min(default, most)) if setting.workers is None else setting.workers
        if workers > most:
            raise ConfigError(
                f"got {workers}, and this run may use {most} cores; expected at most one worker for each", "engine.workers"
            )
        return workers, most // workers

    @classmethod
    def refuses(cls, setting: Setting) -> str | None:
        """What cannot be sent to a worker, and what the engine in the worker refuses."""
        task, algorithm = setting.task, setting.algorithm
        parts = {
            "the function that makes the model": task.model, "the transform": task.transform, "the loss": algorithm.loss,
            "the algorithm": algorithm.correction, "the local optimizer": setting.solver,
        }  # fmt: skip
        reason = unsendable(parts)
        if reason is None:
            inner: type[Engine] = ENGINES.get(engine_of(setting))
            reason = inner.refuses(setting)
        return reason

    def train(
        self,
        jobs: Sequence[Job],
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: frozenset[str] = frozenset(),
    ) -> Iterator[TrainResult]:
        """See :meth:`Engine.train`. Worked off in windows whose results fit in memory; the next one begins before one is through."""
        window = window_of(self.setting, self.workers)
        chunks, ahead = [], 0
        for begin in range(0, len(jobs), window):
            cut = self._chunks(range(begin, min(begin + window, len(jobs))), jobs)
            ahead = max(ahead, len(cut))
            chunks += cut

        orders = []
        for chunk in chunks:
            some = [jobs[i] for i in chunk]
            kept = {job.client: client_states[job.client] for job in some if job.client in client_states}
            orders.append(Order("train", (some, kept, want), _clients([job.client for job in some])))
        done: dict[int, TrainResult] = {}
        first = 0
        for chunk, results in zip(chunks, self._crew.run(orders, dict(download), ahead), strict=True):
            done.update(zip(chunk, map(_own_memory, results), strict=True))
            while first in done:
                yield done.pop(first)
                first += 1

    def _chunks(self, some: range, jobs: Sequence[Job]) -> list[list[int]]:
        """Jobs of a window, longest first, dealt out evenly: one chunk for every worker where clients are batched, if they are not
        too many; a few where they are trained one by one."""
        order = sorted(some, key=lambda i: -jobs[i].steps)
        rounds = -(-len(order) * self.setting.task.layout.size // (_CHUNK_WEIGHTS * self.workers))
        count = min(len(order), self.workers * max(rounds, 1 if self._batches else _CHUNKS))
        return [order[part::count] for part in range(count)]

    def measure(
        self,
        clients: Ints,
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: Mapping[str, int | None],
        key: Key,
        data_view: DataView | None = None,
    ) -> dict[str, Floats]:
        """See :meth:`Engine.measure`. Clients are spread over the workers where that pays."""
        clients = np.asarray(clients, dtype=np.int64)
        sizes = self.setting.task.federation.train.sizes[clients]
        passes = sum(3 if MEASURED[name][1] == "gradient" else 1 for name in want if name in MEASURED)
        parts = self._parts(int(sizes.sum()) * passes, len(clients))
        if parts == 1:
            return self._near.measure(clients, download, client_states, want, key, data_view)
        cuts = np.searchsorted(np.cumsum(sizes), np.linspace(0, sizes.sum(), parts + 1)[1:-1])
        orders = []
        for at in filter(len, np.split(np.arange(len(clients)), cuts)):
            some, seen = clients[at], None if data_view is None else data_view[at]
            kept = (
                {client: client_states[client] for client in some.tolist() if client in client_states} if client_states else {}
            )
            orders.append(Order("measure", (some, kept, dict(want), key, seen), _clients(some.tolist())))
        found = list(self._crew.run(orders, dict(download), len(orders)))
        return {name: np.concatenate([part[name] for part in found]) for name in want}

    def evaluate(self, model: ModelState, rows: Ints, labels: Ints | None = None) -> tuple[Floats, Floats]:
        """See :meth:`Engine.evaluate`. Rows are spread over the workers where that pays, cut where the reference cuts them."""
        rows = np.asarray(rows, dtype=np.int64)
        chunk = max(CHUNK.values())
        parts = self._parts(len(rows), -(-len(rows) // chunk))
        if parts == 1:
            return self._near.evaluate(model, rows, labels)
        length = chunk * -(-len(rows) // (chunk * parts))
        cuts = [slice(begin, begin + length) for begin in range(0, len(rows), length)]
        some = [(rows[cut], None if labels is None else labels[cut]) for cut in cuts]
        orders = [Order("evaluate", part, f"{len(part[0])} samples of an evaluation") for part in some]
        found = list(self._crew.run(orders, model, len(orders)))
        losses, hits = (np.concatenate([part[i] for part in found]) for i in (0, 1))
        return losses, hits

    def recalibrate(
        self, model: ModelState, client: int, batches: int, key: Key, data_view: DataView | None = None
    ) -> ModelState:
        """See :meth:`Engine.recalibrate`. Client after client, so it is done here."""
        return self._near.recalibrate(model, client, batches, key, data_view)

    def _parts(self, samples: int, most: int) -> int:
        """Into how many parts it pays to cut the measuring of so many samples; 1: it is done here."""
        return max(1, min(self.workers, most, samples * self.setting.task.layout.size // _PAYS))

    @cached_property
    def _near(self) -> Sequential:
        """Measures what is not worth sending, on the samples that the workers see."""
        return Sequential(dataclasses.replace(self._crew.carrier.seen(), threads=self.setting.threads))

    def close(self) -> None:
        """End the workers."""
        self.__dict__.pop("_near", None)
        self._crew.carrier.close()


def _clients(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"clients {shown}{', ...' if len(ids) > 10 else ''}"


def _own_memory(trained: TrainResult) -> TrainResult:
    """What is kept of a client outlives the chunk's block, so it gets a place of its own."""
    if trained.client_state is None and not trained.curvature:
        return trained
    client_state = None if trained.client_state is None else _copied(trained.client_state)
    return dataclasses.replace(trained, client_state=client_state, curvature=_copied(trained.curvature))


def _copied(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in tensors.items()}
