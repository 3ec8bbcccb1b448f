"""Several clients that train together: their jobs, contexts, corrections and tape; and the interface of what runs them."""

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
from motley.engines.batch_schedule import BatchSchedule
from motley.engines.batches import BatchPlan
from motley.engines.client import TrainStats, context, finish, squares
from motley.engines.samples import Samples
from motley.tasks.base import ModelState

__all__ = ["Chunk", "Executor", "Step"]


_NOTED = 262_144
"""Outputs kept before their losses are reckoned."""


@dataclass(frozen=True, slots=True)
class Step:
    """One local step of the first ``active`` clients.

    Parameters
    ----------
    number: from 0. rows: int64 ``[active * width]``, rows of the pool. targets: ``[active, width, ...]``.
    weight: ``[active, width]``, or None when every client fills its places and every weight is ``1 / width``.
    extra: what the loss prepared about these samples, ``[active, width, ...]`` each.
    """

    number: int
    active: int
    width: int
    rows: Tensor
    targets: Tensor
    weight: Tensor | None
    extra: Tensors


class Chunk:
    """Jobs that run together, longest first.

    Parameters
    ----------
    setting, samples: of the run. jobs: ordered by steps, falling. received: what they begin with. want: as in
    :meth:`Engine.train`.
    extras: what the loss prepared about each client's samples; empty where it prepares nothing.
    """

    def __init__(
        self,
        setting: Setting,
        samples: Samples,
        jobs: Sequence[Job],
        received: JobInputs,
        want: frozenset[str] = frozenset(),
        extras: Sequence[Tensors] = (),
    ) -> None:
        self.setting, self.samples, self.jobs = setting, samples, jobs
        self.layout: Layout = setting.task.layout
        made = [context(setting, job, received) for job in jobs]
        self.starts: list[ModelState] = [start for start, _, _ in made]
        self.contexts, self.corrections = (
            [ctx for _, ctx, _ in made],
            [gradient_correction for _, _, gradient_correction in made],
        )
        clients = np.array([job.client for job in jobs], dtype=np.int64)
        self.draws = [
            BatchPlan.draw(setting.key("batches", job), int(n), setting.work, job.steps)
            for job, n in zip(jobs, samples.seen[clients], strict=True)
        ]
        self.tape = BatchSchedule.of(self.draws, np.cumsum(samples.seen[clients]) - samples.seen[clients])
        self._place(clients)
        at = torch.from_numpy(self.tape.places).to(samples.rows.device)
        self.extras: Tensors = {name: torch.cat([e[name] for e in extras])[at] for name in (extras[0] if extras else ())}
        wants_norm = "max_grad_norm" in want
        self.steepest = torch.zeros(len(jobs), dtype=torch.float64, device=samples.rows.device) if wants_norm else None

    def _place(self, clients: NDArray[np.int64]) -> None:
        """The tape, whose places count the samples that these clients see, on the device."""
        tape, part, data_view = self.tape, self.samples.training, DataView.of(self.jobs)
        places = torch.from_numpy(part.positions(clients, data_view)[tape.places]).to(part.rows.device)
        self.rows = part.rows[places]
        self.targets = part.targets(places, data_view, tape.owner)
        self.weight = torch.from_numpy(tape.weight).to(self.targets.device, self.setting.dtype)
        self.loss = torch.zeros_like(self.weight)  # [T] per-sample losses met in training
        self._outputs: list[Tensor] = []
        self._reckoned = 0
        self._gathered: Tensor | None = None

    def __len__(self) -> int:
        return len(self.jobs)

    def steps(self) -> Iterator[Step]:
        """One after the other; the losses met are complete when the last is done."""
        tape = self.tape
        active, width, even = tape.active.tolist(), tape.width.tolist(), tape.even.tolist()
        offsets = tape.offsets.tolist()
        for s, (p, b) in enumerate(zip(active, width, strict=True)):
            at = slice(offsets[s], offsets[s + 1])
            targets = self.targets[at].view(p, b, *self.targets.shape[1:])
            weight = None if even[s] else self.weight[at].view(p, b)
            yield Step(s, p, b, self.rows[at], targets, weight, self._extra(at, p, b))
        self._reckon()

    def _extra(self, at: slice, clients: int, width: int) -> Tensors:
        return {name: value[at].view(clients, width, *value.shape[1:]) for name, value in self.extras.items()}

    def inputs(self, step: Step) -> Tensor:
        """Model inputs of a step, ``[active * width, ...]``; valid until the next step.

        A transform sees each client's own batch with the client's own stream, as it does when the client trains alone."""
        samples = self.samples
        if samples.transform is None:
            if self._gathered is None:
                self._gathered = samples.x.new_empty(int((self.tape.active * self.tape.width).max()), *samples.x.shape[1:])
            return torch.index_select(samples.x, 0, step.rows, out=self._gathered[: len(step.rows)])
        batches = step.rows.view(step.active, step.width)
        sizes = [len(draw[step.number]) for draw in self.draws[: step.active]]
        keys = [self.setting.key("augment", job).fold(step.number) for job in self.jobs[: step.active]]
        each = [samples.inputs(rows[:n], key) for rows, n, key in zip(batches, sizes, keys, strict=True)]
        padded = [torch.cat([x, x[:1].expand(step.width - len(x), *x.shape[1:])]) for x in each]
        return torch.cat(padded)

    def met(self, step: Step, outputs: Tensor) -> None:
        """Note a step's outputs ``[active, width, ...]``; their losses are reckoned later, many steps at once."""
        noted = self._outputs
        if noted and (noted[0].shape[1] != outputs.shape[1] or len(noted) * noted[0].numel() > _NOTED):
            self._reckon()
        noted.append(outputs)

    def met_gradient(self, gradients: Iterable[Tensor]) -> None:
        """Note the norms of a step's gradients ``[active, ...]``, where somebody wants to know the largest."""
        if self.steepest is not None:
            now = squares(gradients)
            most = self.steepest[: len(now)]
            torch.maximum(most, now, out=most)

    def _reckon(self) -> None:
        if self._outputs:
            outputs = torch.cat([some.mT for some in self._outputs]).mT  # [clients of all these steps, width, C]
            at = slice(self._reckoned, self._reckoned + outputs.shape[0] * outputs.shape[1])
            targets = self.targets[at].view(*outputs.shape[:2], *self.targets.shape[1:])
            extra = self._extra(at, *outputs.shape[:2])
            self.loss[at] = self.setting.algorithm.loss.loss(outputs, targets, extra).flatten()
            self._reckoned = at.stop
            self._outputs.clear()

    @property
    def received(self) -> Tensor:
        """Starting models, ``[c, D]``, or ``[1, D]`` when all start from the same."""
        first = self.starts[0].x
        if all(start.x is first for start in self.starts):
            return first.unsqueeze(0)
        return torch.stack([start.x for start in self.starts])

    @property
    def offset(self) -> Tensor | None:
        """Shifts ``[c, D]``, or None when nobody has one."""
        if all(correction.offset is None for correction in self.corrections):
            return None
        zero = torch.zeros_like(self.starts[0].x)
        return torch.stack([zero if correction.offset is None else correction.offset for correction in self.corrections])

    @property
    def lr(self) -> Scale:
        """Learning rate of all, or of each ``[c]``."""
        return self._scale([job.lr for job in self.jobs])

    @property
    def proximal(self) -> Scale:
        """Pull of all, or of each ``[c]``."""
        return self._scale([gradient_correction.proximal for gradient_correction in self.corrections])

    def _scale(self, values: list[float]) -> Scale:
        if len(set(values)) == 1:
            return values[0]
        return torch.tensor(values, dtype=self.setting.dtype, device=self.setting.device)

    def results(self, after: Tensor, want: frozenset[str]) -> list[TrainResult]:
        """Uploads and signals from the models after training, ``[c, D]``."""
        met = self._losses()
        return [
            finish(self.setting, job, ctx, ModelState(after[i], start.buffers, start.counters), met[i], want)
            for i, (job, ctx, start) in enumerate(zip(self.jobs, self.contexts, self.starts, strict=True))
        ]

    def _losses(self) -> list[TrainStats]:
        """Losses met in training, per client; padding does not count."""
        tape, c = self.tape, len(self)
        filled = tape.weight > 0
        owner, weight = tape.owner[filled], tape.weight[filled]
        losses = self.loss.cpu().double().numpy()[filled]
        steps = np.array([len(draw) for draw in self.draws])
        samples = np.bincount(owner, minlength=c)
        mean = np.bincount(owner, weights=weight * losses, minlength=c) / np.maximum(steps, 1)
        square = np.bincount(owner, weights=losses * losses, minlength=c) / np.maximum(samples, 1)
        steepest = np.full(c, np.nan) if self.steepest is None else self.steepest.sqrt().cpu().numpy()
        found = zip(steps, mean, np.sqrt(square), steepest, strict=True)
        return [TrainStats(int(n), float(a), float(b), float(g)) if n else TrainStats.of([], []) for n, a, b, g in found]


class Executor(ABC):
    """Runs a chunk. One per thread."""

    @abstractmethod
    def run(self, chunk: Chunk) -> Tensor:
        """Train; the models afterwards, ``[c, D]``. Every step's outputs are handed to :meth:`Chunk.met`, its gradients (before
        correction and clipping) to :meth:`Chunk.met_gradient` where ``steepest`` is not None."""
