"""Local training of slices: a client of less width trains a narrower module on its part of the
received model, or the whole module with the single weights that it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import RECEIVED, LocalRule, Part, Parts, Tensors
from motley.core.arrays import Floats
from motley.engines.client import TUNING, Client, StepHook, tuning_context
from motley.engines.engine import AdaptInputs, Job, JobInputs, Purpose, Setting, TrainResult
from motley.engines.samples import Samples
from motley.tasks.narrow_models import narrowed
from motley.tasks.task import ModelState, Task


def task_of_width(setting: Setting, width: float) -> Task:
    """Return the task of a run with its model cut to this width."""
    task = setting.task
    slicing = setting.algorithm.local.slicing
    divided = slicing is not None and slicing.divides
    return task.with_model(partial(narrowed, task.model, task.layout, width=width, divided=divided))


class SlicedClient(Client):
    """A client that trains jobs of any width; uploads have the whole model's length and say which
    coordinates the client holds.

    Parameters
    ----------
    setting, samples, step_hook: see :class:`Client`; the setting's layout knows the units along
    each axis.
    """

    def __init__(
        self, setting: Setting, samples: Samples, step_hook: StepHook | None = None
    ) -> None:
        super().__init__(setting, samples, step_hook)
        self._narrow: dict[float, Client] = {}
        self._plain: dict[float, Client] = {}  # without the method's own local work
        self._held: dict[tuple[float, int], tuple[Tensor, Tensor]] = {}

    @override
    def train(self, job: Job, inputs: JobInputs, want: frozenset[str]) -> TrainResult:
        if job.width == 1.0:
            return super().train(job, inputs, want)
        sliced = dataclasses.replace(
            inputs, download=self.received_slice(inputs.download, job.width, job.offset)
        )
        result = self.at(job.width).train(job, sliced, want)
        return dataclasses.replace(result, parts=self._widened(result.parts, job, inputs.download))

    @override
    def adapt(self, job: Job, begun: AdaptInputs, purpose: Purpose = "tune") -> ModelState:
        """See :meth:`Client.adapt`; a new client adapts the slice of its width by plain steps, the
        rest of its model is 0."""
        if purpose != "new":
            return super().adapt(job, begun, purpose)
        model = begun.model
        held, floating = (
            positions.to(model.x.device) for positions in self.positions_of(job.width, job.offset)
        )
        if job.width not in self._plain:
            algorithm = self.setting.algorithm.replace(local=LocalRule())
            setting = dataclasses.replace(
                self.setting, task=task_of_width(self.setting, job.width), algorithm=algorithm
            )
            self._plain[job.width] = Client(setting, self.samples, self.step_hook)
        held_model = ModelState(model.x[held], model.buffers[floating], model.counters)
        after = self._plain[job.width].adapt(job, AdaptInputs(held_model))
        x = torch.zeros_like(model.x)
        # What the slice lacks keeps the received statistics; the received model is others', too.
        buffers = model.buffers.clone()
        x[held], buffers[floating] = after.x.to(x.device), after.buffers.to(x.device)
        return ModelState(x, buffers, after.counters)

    def at(self, width: float) -> Client:
        """Return the client whose module is of this width."""
        if width == 1.0:
            return self
        if width not in self._narrow:
            setting = dataclasses.replace(
                self.setting, task=task_of_width(self.setting, width), sliced=True
            )
            self._narrow[width] = Client(setting, self.samples, self.step_hook)
        return self._narrow[width]

    def received_slice(self, download: Tensors, width: float, offset: int) -> Tensors:
        """Return a slice of the received model, as the client :meth:`at` this width starts from
        it."""
        if width == 1.0:
            return download
        held, buffers = self.positions_of(width, offset)
        return {**download, "x": download["x"][held], "buffers": download["buffers"][buffers]}

    def positions_of(self, width: float, offset: int) -> tuple[Tensor, Tensor]:
        """Return the positions of a slice's parameters and floating buffers in their flat vectors,
        ``[d]`` and ``[b]``."""
        if (width, offset) not in self._held:
            # those of an earlier round are gone
            self._held = {key: held for key, held in self._held.items() if key[1] == offset}
            layout = self.setting.task.layout
            arrays = (layout.kept_positions(width, offset), layout.kept_buffers(width, offset))
            held, buffers = (
                torch.from_numpy(positions).to(self.setting.device) for positions in arrays
            )
            self._held[width, offset] = held, buffers
        return self._held[width, offset]

    def full_gradients(self, gradients: Floats, width: float, offset: int) -> Floats:
        """Return gradients of slices of :meth:`received_slice` ``[n, d]`` as ones of the whole
        model ``[n, D]``, 0 outside; NaN for a client without samples."""
        full = np.zeros((len(gradients), self.setting.task.layout.size))
        full[:, self.positions_of(width, offset)[0].cpu().numpy()] = gradients
        full[np.isnan(gradients).all(1)] = np.nan
        return full

    def _widened(self, parts: Parts, job: Job, download: Tensors) -> Mapping[str, Part]:
        """Return an upload whose update has the whole model's length, 0 at the coordinates that the
        client does not hold."""
        delta = parts["delta"]
        size = len(download["x"])
        positions = self.positions_of(job.width, job.offset)[0].cpu()
        mine = torch.ones(len(positions), dtype=torch.bool) if delta.held is None else delta.held
        value = delta.value.new_zeros(size).index_copy_(0, positions, delta.value)
        held = torch.zeros(size, dtype=torch.bool).index_copy_(0, positions, mine)
        return {**parts, "delta": Part(value, "covered", held)}


class MaskedClient(SlicedClient):
    """A client that trains the whole module with the single weights that it holds
    (:attr:`Slicing.masks <motley.algorithms.parts.Slicing>`); the others are 0."""

    @override
    def train(self, job: Job, inputs: JobInputs, want: frozenset[str]) -> TrainResult:
        held = self.received_slice(inputs.download, job.width, job.offset)
        return Client.train(self, job, dataclasses.replace(inputs, download=held), want)

    @override
    def adapt(self, job: Job, begun: AdaptInputs, purpose: Purpose = "tune") -> ModelState:
        """See :meth:`Client.adapt`; a new client adapts the weights that it holds by plain
        steps."""
        if purpose != "new" or job.width == 1.0:
            return Client.adapt(self, job, begun, purpose)
        begun = begun.on(self.setting.device)
        held = self.setting.algorithm.local.held(begun.model.x, job.width)

        def direction(
            gradient: Callable[..., Tensor], values: dict[str, Tensor], step: int
        ) -> Tensor:
            return gradient(values[RECEIVED]) * held

        self.model.load(begun.model)
        ctx = tuning_context(self.setting, job, begun)
        phase = dataclasses.replace(TUNING, direction=direction)
        self._steps(job, ctx, (phase,), {}, measured=False)
        return self.model.state()

    @override
    def at(self, width: float) -> Client:
        return self

    @override
    def received_slice(self, download: Tensors, width: float, offset: int) -> Tensors:
        """Return the received model with zeros for the weights that the client does not hold, and
        ``held``, which ones it does."""
        if width == 1.0:
            return download
        held = self.setting.algorithm.local.held(download["x"], width)
        return {**download, "x": download["x"] * held, "held": held}

    @override
    def full_gradients(self, gradients: Floats, width: float, offset: int) -> Floats:
        return gradients
