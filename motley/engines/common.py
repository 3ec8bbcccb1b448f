"""What all engines do alike: receive, measure and evaluate. Written once, here."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch

from motley.algorithms.base import Memory, PreTrainingSignals, Tensors
from motley.core.arrays import Floats, Ints
from motley.core.errors import ContractError
from motley.core.keys import Key
from motley.engines.base import PRE_TRAINING, DataView, Engine, Job, JobInputs, Setting, TrainResult
from motley.engines.client import Client, Watch
from motley.engines.cores import cores, torch_threads
from motley.engines.curvature import curvature
from motley.engines.prober import Prober
from motley.engines.samples import Samples
from motley.tasks.base import ModelState

__all__ = ["LocalEngine", "refuses_features", "refuses_loss", "window_of"]

_NO_KEY = Key(0)  # all samples are measured: nothing is drawn

SMALL = 100_000
"""Weights up to which a model without convolutions is computed on one torch thread: its operations are too short to share."""

_WINDOW_WEIGHTS = 64_000_000
"""Weights of the results that may wait for one another: 256 MB in float32."""


def _on(tensors: Tensors, device: str) -> Tensors:
    return {name: value.to(device) for name, value in tensors.items()}


def refuses_loss(setting: Setting) -> str | None:
    """A loss that compares features of several models: clients in batches are one model at a time."""
    loss = setting.algorithm.loss
    if loss.whole_model:
        return f"the loss {type(loss).__name__} compares features of several models, which sequential and threads compute"
    return None


def refuses_features(setting: Setting) -> str | None:
    """A loss that compares features, and a model without a linear layer that would be given them."""
    if setting.algorithm.loss.whole_model and not any(entry.linear for entry in setting.task.layout):
        name = type(setting.algorithm.loss).__name__
        return f"the loss {name} compares what the last linear layer is given, and the model has no linear layer"
    return None


def window_of(setting: Setting, workers: int) -> int:
    """Jobs whose results may wait for one another."""
    curious = "gradient" in setting.algorithm.correction.arrival
    each = setting.task.layout.size * (4 if curious else 1)  # a float64 row, and a copy, beside the result
    return max(2 * workers, _WINDOW_WEIGHTS // each)


class LocalEngine(Engine):
    """An engine in this process: it has a :class:`Client` of its own, with which it measures and evaluates."""

    def __init__(self, setting: Setting, watch: Watch | None = None) -> None:
        reason = self.refuses(setting)
        if reason is not None:
            raise ContractError(f"the engine {self.name!r} was given a setting it refuses: {reason}")
        self.setting = setting
        self.threads = cores(setting.threads)
        self.samples = Samples(setting.task, setting.dtype, setting.device)
        self.client = Client(setting, self.samples, watch)
        small = self.client.model.layout.size <= SMALL and not self.client.convolves
        self.inner = 1 if small else self.threads  # torch threads inside one operation
        self.prober = Prober(setting, self.samples, self.client, self.inner)

    def placed(
        self, download: Tensors, memories: Mapping[int, Memory | None], clients: Iterable[int]
    ) -> tuple[Tensors, dict[int, Memory | None]]:
        """What these clients received and kept, on the device; nothing is copied where it lies there already."""
        device = self.setting.device
        kept = {client: memories[client] for client in clients if client in memories}
        return _on(download, device), {client: None if m is None else _on(m, device) for client, m in kept.items()}

    def train(
        self,
        jobs: Sequence[Job],
        download: Tensors,
        memories: Mapping[int, Memory | None],
        want: frozenset[str] = frozenset(),
    ) -> Iterator[TrainResult]:
        """See :meth:`Engine.train`. Worked off in windows whose results fit in memory; what selector and correction want to know of
        the received model is measured first, for a window together."""
        download, memories = self.placed(download, memories, [job.client for job in jobs])
        first = self.setting.algorithm.correction.arrival
        arrival = dict.fromkeys({probed for reported, probed in PRE_TRAINING.items() if reported in want} | first)
        window = window_of(self.setting, self.threads)
        for begin in range(0, len(jobs), window):
            some = jobs[begin : begin + window]
            clients = np.array([job.client for job in some], dtype=np.int64)
            met = self.prober.measure(clients, download, memories, arrival, _NO_KEY, DataView.of(some)) if arrival else {}
            arrivals = {job.client: self._arrival(met, i) for i, job in enumerate(some)} if first else {}
            for i, trained in enumerate(self._work(some, JobInputs(download, memories, arrivals), want)):
                found = {name: float(met[PRE_TRAINING[name]][i]) for name in want if name in PRE_TRAINING}
                if some[i].layers and trained.finite:
                    with torch_threads(self.inner):
                        curved = curvature(self.client, some[i], JobInputs(download, memories, arrivals), trained)
                    trained = dataclasses.replace(trained, curvature=curved)
                yield dataclasses.replace(trained, signals={**trained.signals, **found}) if found else trained

    def _arrival(self, met: Mapping[str, Floats], i: int) -> PreTrainingSignals:
        """What the correction may know of a client's received model."""
        first, setting = self.setting.algorithm.correction.arrival, self.setting
        gradient = torch.from_numpy(met["gradient"][i]).to(setting.device, setting.dtype) if "gradient" in first else None
        return PreTrainingSignals(float(met["loss"][i]) if "loss" in first else math.nan, gradient)

    @abstractmethod
    def _work(self, jobs: Sequence[Job], received: JobInputs, want: frozenset[str]) -> Iterator[TrainResult]:
        """Run jobs; results in their order. What is received lies on the device already."""

    def measure(
        self,
        clients: Ints,
        download: Tensors,
        memories: Mapping[int, Memory | None],
        want: Mapping[str, int | None],
        key: Key,
        data_view: DataView | None = None,
    ) -> dict[str, Floats]:
        """See :meth:`Engine.measure`. Clients that start from the same model go through it together."""
        clients = np.asarray(clients, dtype=np.int64)
        download, memories = self.placed(download, memories, clients.tolist() if memories else ())
        return self.prober.measure(clients, download, memories, want, key, data_view)

    def recalibrate(
        self, model: ModelState, client: int, batches: int, key: Key, data_view: DataView | None = None
    ) -> ModelState:
        """See :meth:`Engine.recalibrate`."""
        with torch_threads(self.inner), torch.no_grad():
            return self.client.recalibrate(model, client, batches, key, data_view)

    def evaluate(self, model: ModelState, rows: Ints, labels: Ints | None = None) -> tuple[Floats, Floats]:
        """See :meth:`Engine.evaluate`. The loss is the task's own, whatever the algorithm minimises."""
        index = torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(self.samples.rows.device)
        targets = self.samples.y[index] if labels is None else torch.from_numpy(labels).to(index.device)
        return self.prober.forward(model, index, targets, self.prober.plain_loss)
