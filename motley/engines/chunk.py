"""A chunk of clients that train together in one batched computation, and the interface of the executors that compute it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms.base import Tensors
from motley.algorithms.local import Scale
from motley.core.layout import Layout
from motley.engines.base import DataView, Job, JobInputs, Setting, TrainResult
from motley.engines.batches import BatchPlan, BatchSchedule
from motley.engines.client import TrainStats, context, finish, squared_norms
from motley.engines.samples import Samples
from motley.tasks.base import ModelState

__all__ = ["BatchStep", "Chunk", "Executor"]

_PENDING = 262_144
"""Outputs kept before their losses are computed."""


@dataclass(frozen=True, slots=True)
class BatchStep:
    """One local step of the first ``active`` clients of a chunk.

    Parameters
    ----------
    number: of the step, from 0. active: clients in it. width: places per client.
    rows: int64 ``[active * width]``, rows of the federation's features. targets: ``[active, width, ...]``.
    weight: ``[active, width]``, or None when every client fills its places and every weight is ``1 / width``.
    extra: tensors that the loss prepared for these samples, ``[active, width, ...]`` each.
    """

    number: int
    active: int
    width: int
    rows: Tensor
    targets: Tensor
    weight: Tensor | None
    extra: Tensors


class Chunk:
    """The batches, starting models, corrections and training statistics of jobs that train together.

    Parameters
    ----------
    setting, samples: of the run. jobs: in descending order of steps. inputs: of the jobs. want: as in :meth:`Engine.train`.
    extras: tensors that the loss prepared for each client's samples; empty if it prepares none.
    """

    def __init__(
        self,
        setting: Setting,
        samples: Samples,
        jobs: Sequence[Job],
        inputs: JobInputs,
        want: frozenset[str] = frozenset(),
        extras: Sequence[Tensors] = (),
    ) -> None:
        self.setting, self.samples, self.jobs = setting, samples, jobs
        self.layout: Layout = setting.task.layout
        prepared = [context(setting, job, inputs) for job in jobs]
        self.starts: list[ModelState] = [start for start, _, _ in prepared]
        self.contexts = [ctx for _, ctx, _ in prepared]
        self.corrections = [correction for _, _, correction in prepared]
        clients = np.array([job.client for job in jobs], dtype=np.int64)
        self.plans = [
            BatchPlan.draw(setting.key("batches", job), int(n), setting.work, job.steps)
            for job, n in zip(jobs, samples.seen[clients], strict=True)
        ]
        self.schedule = BatchSchedule.of(self.plans, np.cumsum(samples.seen[clients]) - samples.seen[clients])
        self._place_samples(clients)
        at = torch.from_numpy(self.schedule.places).to(samples.rows.device)
        self.extras: Tensors = {name: torch.cat([e[name] for e in extras])[at] for name in (extras[0] if extras else ())}
        wants_norm = "max_grad_norm" in want
        self.max_squared_norm = torch.zeros(len(jobs), dtype=torch.float64, device=samples.rows.device) if wants_norm else None

    def _place_samples(self, clients: NDArray[np.int64]) -> None:
        """Look up rows, targets and weights of all places of the schedule, on the device."""
        schedule, part, data_view = self.schedule, self.samples.training, DataView.of(self.jobs)
        places = torch.from_numpy(part.positions(clients, data_view)[schedule.places]).to(part.rows.device)
        self.rows = part.rows[places]
        self.targets = part.targets(places, data_view, schedule.owner)
        self.weight = torch.from_numpy(schedule.weight).to(self.targets.device, self.setting.dtype)
        self.loss = torch.zeros_like(self.weight)  # [T] per-sample losses in training
        self._outputs: list[Tensor] = []
        self._computed = 0
        self._gathered: Tensor | None = None

    def __len__(self) -> int:
        return len(self.jobs)

    def steps(self) -> Iterator[BatchStep]:
        """Yield the steps in order; the recorded losses are complete after the last one."""
        schedule = self.schedule
        active, width, even = schedule.active.tolist(), schedule.width.tolist(), schedule.even.tolist()
        offsets = schedule.offsets.tolist()
        for s, (p, b) in enumerate(zip(active, width, strict=True)):
            at = slice(offsets[s], offsets[s + 1])
            targets = self.targets[at].view(p, b, *self.targets.shape[1:])
            weight = None if even[s] else self.weight[at].view(p, b)
            yield BatchStep(s, p, b, self.rows[at], targets, weight, self._extra(at, p, b))
        self._compute_losses()

    def _extra(self, at: slice, clients: int, width: int) -> Tensors:
        return {name: value[at].view(clients, width, *value.shape[1:]) for name, value in self.extras.items()}

    def inputs(self, step: BatchStep) -> Tensor:
        """Return the model inputs of a step, ``[active * width, ...]``; they are overwritten by the next step's.

        A transform is applied to each client's own batch with the client's own stream, as when the client trains alone.
        """
        samples = self.samples
        if samples.transform is None:
            if self._gathered is None:
                self._gathered = samples.x.new_empty(
                    int((self.schedule.active * self.schedule.width).max()), *samples.x.shape[1:]
                )
            return torch.index_select(samples.x, 0, step.rows, out=self._gathered[: len(step.rows)])
        batches = step.rows.view(step.active, step.width)
        sizes = [len(plan[step.number]) for plan in self.plans[: step.active]]
        keys = [self.setting.key("augment", job).fold(step.number) for job in self.jobs[: step.active]]
        each = [samples.inputs(rows[:n], key) for rows, n, key in zip(batches, sizes, keys, strict=True)]
        padded = [torch.cat([x, x[:1].expand(step.width - len(x), *x.shape[1:])]) for x in each]
        return torch.cat(padded)

    def record_outputs(self, step: BatchStep, outputs: Tensor) -> None:
        """Record a step's outputs ``[active, width, ...]``; their losses are computed later, for many steps at once."""
        pending = self._outputs
        if pending and (pending[0].shape[1] != outputs.shape[1] or len(pending) * pending[0].numel() > _PENDING):
            self._compute_losses()
        pending.append(outputs)

    def record_gradients(self, gradients: Iterable[Tensor]) -> None:
        """Record the norms of a step's gradients ``[active, ...]`` if the largest norm is a wanted signal."""
        if self.max_squared_norm is not None:
            squares = squared_norms(gradients)
            largest = self.max_squared_norm[: len(squares)]
            torch.maximum(largest, squares, out=largest)

    def _compute_losses(self) -> None:
        if self._outputs:
            outputs = torch.cat([some.mT for some in self._outputs]).mT  # [clients of all these steps, width, C]
            at = slice(self._computed, self._computed + outputs.shape[0] * outputs.shape[1])
            targets = self.targets[at].view(*outputs.shape[:2], *self.targets.shape[1:])
            extra = self._extra(at, *outputs.shape[:2])
            self.loss[at] = self.setting.algorithm.loss.loss(outputs, targets, extra).flatten()
            self._computed = at.stop
            self._outputs.clear()

    @property
    def received(self) -> Tensor:
        """The starting models, ``[c, D]``, or ``[1, D]`` when all clients start from the same."""
        first = self.starts[0].x
        if all(start.x is first for start in self.starts):
            return first.unsqueeze(0)
        return torch.stack([start.x for start in self.starts])

    @property
    def offset(self) -> Tensor | None:
        """The offsets of the gradients ``[c, D]``, or None when no client has one."""
        if all(correction.offset is None for correction in self.corrections):
            return None
        zero = torch.zeros_like(self.starts[0].x)
        return torch.stack([zero if correction.offset is None else correction.offset for correction in self.corrections])

    @property
    def lr(self) -> Scale:
        """The learning rate of all clients, or of each ``[c]`` if they differ."""
        return self._scale([job.lr for job in self.jobs])

    @property
    def proximal(self) -> Scale:
        """The proximal coefficient of all clients, or of each ``[c]`` if they differ."""
        return self._scale([correction.proximal for correction in self.corrections])

    def _scale(self, values: list[float]) -> Scale:
        if len(set(values)) == 1:
            return values[0]
        return torch.tensor(values, dtype=self.setting.dtype, device=self.setting.device)

    def results(self, after: Tensor, want: frozenset[str]) -> list[TrainResult]:
        """Return uploads and signals from the models after training, ``[c, D]``."""
        stats = self._stats()
        return [
            finish(self.setting, job, ctx, ModelState(after[i], start.buffers, start.counters), stats[i], want)
            for i, (job, ctx, start) in enumerate(zip(self.jobs, self.contexts, self.starts, strict=True))
        ]

    def _stats(self) -> list[TrainStats]:
        """Return each client's training statistics; padding does not count."""
        schedule, c = self.schedule, len(self)
        filled = schedule.weight > 0
        owner, weight = schedule.owner[filled], schedule.weight[filled]
        losses = self.loss.cpu().double().numpy()[filled]
        steps = np.array([len(plan) for plan in self.plans])
        samples = np.bincount(owner, minlength=c)
        mean = np.bincount(owner, weights=weight * losses, minlength=c) / np.maximum(steps, 1)
        square = np.bincount(owner, weights=losses * losses, minlength=c) / np.maximum(samples, 1)
        max_squared_norm = np.full(c, np.nan) if self.max_squared_norm is None else self.max_squared_norm.sqrt().cpu().numpy()
        found = zip(steps, mean, np.sqrt(square), max_squared_norm, strict=True)
        return [TrainStats(int(n), float(a), float(b), float(g)) if n else TrainStats.of([], []) for n, a, b, g in found]


class Executor(ABC):
    """Computes the training of a chunk. One per thread."""

    @abstractmethod
    def run(self, chunk: Chunk) -> Tensor:
        """Train the clients of a chunk and return their models, ``[c, D]``.

        Every step passes its outputs to :meth:`Chunk.record_outputs`, and its gradients (before correction and clipping) to
        :meth:`Chunk.record_gradients` if ``max_squared_norm`` is not None.
        """
