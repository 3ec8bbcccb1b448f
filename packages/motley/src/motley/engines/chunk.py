"""A chunk of clients that train together in one batched computation, and the interface of the
executors that compute it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms.local_optimisers import Scale
from motley.algorithms.parts import Phase, Tensors
from motley.core.layout import Layout
from motley.engines.batches import BatchPlan, BatchSchedule
from motley.engines.client import TrainStats, phase_key, squared_norms
from motley.engines.engine import DataView, Job, Setting
from motley.engines.samples import Samples
from motley.tasks.pixels import ImageTransform
from motley.tasks.transfer import to_device

_PENDING = 262_144
"""Outputs kept before their losses are computed."""


class BatchStep(NamedTuple):
    """One local step of the first ``active`` clients of a chunk.

    Parameters
    ----------
    number: of the step, from 0.
    active: clients in it.
    width: places per client.
    rows: int64 ``[active * width]``, rows of the federation's features.
    targets: ``[active, width, ...]``.
    weight: ``[active, width]``, or None when every client fills its places and every weight is ``1
    / width``.
    extra: tensors that the loss prepared for these samples, ``[active, width, ...]`` each.
    """

    number: int
    active: int
    width: int
    rows: Tensor
    targets: Tensor
    weight: Tensor | None
    extra: Tensors


class PhaseJob(NamedTuple):
    """One client's part in a phase of a chunk's local work.

    Parameters
    ----------
    job, phase: of the client.
    plan: batches of the phase.
    start: weights ``[D]`` from which the model begins.
    anchor: those towards which a proximal term pulls it, ``[D]``.
    extra: tensors that the loss prepared for the client's samples.
    """

    job: Job
    phase: Phase
    plan: BatchPlan
    start: Tensor
    anchor: Tensor
    extra: Tensors


class LossSums(NamedTuple):
    """Sums over a client's steps, to be added over phases: ``steps``, the batches' mean losses,
    ``samples``, their squared losses, and the largest norm of a gradient (NaN unless wanted)."""

    steps: int = 0
    loss: float = 0.0
    samples: int = 0
    square: float = 0.0
    max_norm: float = math.nan

    def plus(self, sums: LossSums) -> LossSums:
        """Return the sums over both."""
        added = [a + b for a, b in zip(self[:4], sums[:4], strict=True)]
        return LossSums(
            steps=int(added[0]),
            loss=added[1],
            samples=int(added[2]),
            square=added[3],
            # fmax: NaN is a phase in which no norm was wanted
            max_norm=float(np.fmax(self.max_norm, sums.max_norm)),
        )

    def stats(self) -> TrainStats:
        """Return the statistics of these steps."""
        if not self.steps:
            return TrainStats.of([], [])
        rms = math.sqrt(self.square / max(self.samples, 1))
        return TrainStats(self.steps, self.loss / self.steps, rms, self.max_norm)


class Chunk:
    """The batches, starting models, corrections and training statistics of clients that train
    together, in one phase.

    Parameters
    ----------
    setting, samples: of the run.
    clients: with equal ``where``, in descending order of steps.
    measured: whether gradients' norms are.
    """

    def __init__(
        self,
        setting: Setting,
        samples: Samples,
        clients: Sequence[PhaseJob],
        measured: bool = False,
    ) -> None:
        self.setting = setting
        self.samples = samples
        self.clients = clients
        self.layout: Layout = setting.task.layout
        where = clients[0].phase.where
        self.moves = [where is None or entry.name in where for entry in self.layout]
        self.start = _rows([client.start for client in clients])
        # one stack of rows serves both, which saves a copy of all models
        held = all(client.start is client.anchor for client in clients)
        self.anchor = self.start if held else _rows([client.anchor for client in clients])
        ids = np.array([client.job.client for client in clients], dtype=np.int64)
        self.schedule = BatchSchedule.of(
            [client.plan for client in clients], np.cumsum(samples.seen[ids]) - samples.seen[ids]
        )
        self._place_samples(ids)
        at = to_device(self.schedule.places, samples.rows.device)
        self.extras: Tensors = {
            name: torch.cat([client.extra[name] for client in clients])[at]
            for name in clients[0].extra
        }
        self.max_squared_norm: Tensor | None = None
        if measured:
            self.max_squared_norm = torch.zeros(
                len(clients), dtype=torch.float64, device=samples.rows.device
            )

    def _place_samples(self, clients: NDArray[np.int64]) -> None:
        """Look up rows, targets and weights of all places of the schedule, on the device."""
        schedule = self.schedule
        part = self.samples.training
        data_view = DataView.of([client.job for client in self.clients])
        own = part.positions(clients, data_view)
        # all samples of the chunk's clients
        self._own = part.rows[to_device(own, part.rows.device)]
        places = to_device(own[schedule.places], part.rows.device)
        self.rows = part.rows[places]
        self.targets = part.targets(places, data_view, schedule.owner)
        self.weight = to_device(schedule.weight, self.targets.device).to(self.setting.dtype)
        self.loss = torch.zeros_like(self.weight)  # [T] per-sample losses in training
        self._outputs: list[Tensor] = []
        self._computed = 0
        self._gathered: Tensor | None = None
        self._rounded: Tensor | None = None
        self._places = to_device(schedule.places, part.rows.device)

    def __len__(self) -> int:
        return len(self.clients)

    def steps(self) -> Iterator[BatchStep]:
        """Yield the steps in order; the recorded losses are complete after the last one."""
        schedule = self.schedule
        active = schedule.active.tolist()
        width = schedule.width.tolist()
        even = schedule.even.tolist()
        places = [p * b for p, b in zip(active, width, strict=True)]
        rows = torch.split(self.rows, places)
        targets = torch.split(self.targets, places)
        weights = torch.split(self.weight, places)
        extras = {name: torch.split(value, places) for name, value in self.extras.items()}
        shape = self.targets.shape[1:]
        for s, (p, b) in enumerate(zip(active, width, strict=True)):
            yield BatchStep(
                number=s,
                active=p,
                width=b,
                rows=rows[s],
                targets=targets[s].view(p, b, *shape),
                weight=None if even[s] else weights[s].view(p, b),
                extra={
                    name: parts[s].view(p, b, *parts[s].shape[1:]) for name, parts in extras.items()
                },
            )
        self._compute_losses()

    @property
    def places(self) -> int:
        """Places of the largest step, over all of its clients."""
        return int((self.schedule.active * self.schedule.width).max(initial=0))

    @property
    def corrected(self) -> bool:
        """Whether a client has an offset or a drift."""
        corrections = [client.phase.correction for client in self.clients]
        return any(c.offset is not None or c.drift is not None for c in corrections)

    def _extra(self, at: slice, clients: int, width: int) -> Tensors:
        return {
            name: value[at].view(clients, width, *value.shape[1:])
            for name, value in self.extras.items()
        }

    def inputs(self, step: BatchStep) -> Tensor:
        """Return the model inputs of a step, ``[active * width, ...]``; they are overwritten by the
        next step's.

        A transform is applied to each client's own batch with the client's own stream, as when the
        client trains alone.
        """
        samples = self.samples
        if samples.transform is None:
            if self._gathered is None:
                self._gathered = samples.x.new_empty(self.places, *samples.x.shape[1:])
            return torch.index_select(samples.x, 0, step.rows, out=self._gathered[: len(step.rows)])
        if isinstance(samples.transform, ImageTransform) and not samples.transform.augment:
            return samples.inputs(step.rows)  # nothing is drawn: all batches at once
        batches = step.rows.view(step.active, step.width)
        active = self.clients[: step.active]
        sizes = [len(client.plan[step.number]) for client in active]
        keys = [
            phase_key(self.setting, "augment", client.job, client.phase).fold(step.number)
            for client in active
        ]
        each = [
            samples.inputs(rows[:n], key) for rows, n, key in zip(batches, sizes, keys, strict=True)
        ]
        padded = [torch.cat([x, x[:1].expand(step.width - len(x), *x.shape[1:])]) for x in each]
        return torch.cat(padded)

    def rounded_inputs(self, step: BatchStep) -> Tensor:
        """Return what :meth:`inputs` does, flat and in bfloat16; where steps take most samples,
        these are converted once."""
        if self.samples.transform is not None or len(self._places) < len(self._own):
            return self.inputs(step).flatten(1).to(torch.bfloat16)
        if self._rounded is None:
            self._rounded = self.samples.inputs(self._own).flatten(1).to(torch.bfloat16)
        first, last = self.schedule.offsets[step.number : step.number + 2].tolist()
        return torch.index_select(self._rounded, 0, self._places[first:last])

    def record_outputs(self, step: BatchStep, outputs: Tensor) -> None:
        """Record a step's outputs ``[active, width, ...]``; their losses are computed later, for
        many steps at once."""
        pending = self._outputs
        if pending and (
            pending[0].shape[1] != outputs.shape[1] or len(pending) * pending[0].numel() > _PENDING
        ):
            self._compute_losses()
        pending.append(outputs)

    def record_gradients(self, gradients: Iterable[Tensor]) -> None:
        """Record the norms of a step's gradients ``[active, ...]`` if the largest norm is a wanted
        signal."""
        if self.max_squared_norm is not None:
            squares = squared_norms(gradients)
            largest = self.max_squared_norm[: len(squares)]
            torch.maximum(largest, squares, out=largest)

    def _compute_losses(self) -> None:
        if self._outputs:
            # [clients of all these steps, width, C]
            outputs = torch.cat([step_outputs.mT for step_outputs in self._outputs]).mT
            at = slice(self._computed, self._computed + outputs.shape[0] * outputs.shape[1])
            targets = self.targets[at].view(*outputs.shape[:2], *self.targets.shape[1:])
            extra = self._extra(at, *outputs.shape[:2])
            self.loss[at] = self.setting.algorithm.loss.loss(outputs, targets, extra).flatten()
            self._computed = at.stop
            self._outputs.clear()

    @property
    def offset(self) -> Tensor | None:
        """The offsets of the gradients ``[c, D]``, or None when no client has one."""
        return self._stacked([client.phase.correction.offset for client in self.clients])

    @property
    def drift(self) -> Tensor | None:
        """What is added after every step, -lr times, ``[c, D]``; None when no client has any."""
        return self._stacked([client.phase.correction.drift for client in self.clients])

    def _stacked(self, vectors: list[Tensor | None]) -> Tensor | None:
        if all(vector is None for vector in vectors):
            return None
        zero = torch.zeros_like(self.clients[0].start)
        return torch.stack([zero if vector is None else vector for vector in vectors])

    @property
    def lr(self) -> Scale:
        """The learning rate of all clients, or of each ``[c]`` if they differ."""
        return self._scale([client.job.lr for client in self.clients])

    @property
    def proximal(self) -> Scale:
        """The proximal coefficient of all clients, or of each ``[c]`` if they differ."""
        return self._scale([client.phase.correction.proximal for client in self.clients])

    def _scale(self, values: list[float]) -> Scale:
        if len(set(values)) == 1:
            return values[0]
        return torch.tensor(values, dtype=self.setting.dtype, device=self.setting.device)

    def sums(self) -> list[LossSums]:
        """Return each client's sums over the steps taken; padding does not count."""
        schedule = self.schedule
        c = len(self)
        filled = schedule.weight > 0
        owner = schedule.owner[filled]
        weight = schedule.weight[filled]
        losses = self.loss.cpu().double().numpy()[filled]
        if self.max_squared_norm is None:
            largest = np.full(c, np.nan)
        else:
            largest = self.max_squared_norm.sqrt().cpu().numpy()
        columns = (
            [len(client.plan) for client in self.clients],
            np.bincount(owner, weights=weight * losses, minlength=c),
            np.bincount(owner, minlength=c),
            np.bincount(owner, weights=losses * losses, minlength=c),
            largest,
        )
        return [
            LossSums(
                steps=int(n), loss=float(a), samples=int(m), square=float(b), max_norm=float(g)
            )
            for n, a, m, b, g in zip(*columns, strict=True)
        ]


def _rows(vectors: Sequence[Tensor]) -> Tensor:
    """Return one vector per client ``[c, D]``, or ``[1, D]`` where all are the same tensor."""
    first = vectors[0]
    if all(vector is first for vector in vectors):
        return first.unsqueeze(0)
    return torch.stack(list(vectors))


PhaseResults = tuple[Sequence[Tensor], Sequence[LossSums]]
"""The models of clients after a phase, ``[D]`` each, and the sums over their steps."""


class Executor(ABC):
    """Computes the training of a chunk. One per thread. ``joint``: whether together with clients of
    other runs."""

    joint: ClassVar[bool] = False

    def train(
        self, setting: Setting, samples: Samples, clients: Sequence[PhaseJob], measured: bool
    ) -> PhaseResults:
        """Train the clients of a chunk, whose parameters these are."""
        chunk = Chunk(setting, samples, clients, measured)
        return [*self.run(chunk)], chunk.sums()

    @abstractmethod
    def run(self, chunk: Chunk) -> Tensor:
        """Train the clients of a chunk and return their models, ``[c, D]``.

        Every step of :meth:`Chunk.steps` is one of the local optimizer for its first ``active``
        clients: by the gradient of the losses' sum, each times ``weight``, towards ``anchor`` with
        ``proximal``, plus ``offset``, at the rate ``lr``. What ``moves`` leaves out stays. It
        passes its outputs to :meth:`Chunk.record_outputs`, and its gradients (before correction and
        clipping, of the parameters that move) to :meth:`Chunk.record_gradients`.
        :class:`~motley.engines.vmapped.Vmapped` is the shortest example.
        """


Joining = Callable[[Executor, Setting], Executor]
"""Returns what takes the place of an executor so that its run computes together with others."""

joining: ContextVar[Joining | None] = ContextVar("joining", default=None)
"""How runs of this process compute together; None: each by itself."""
