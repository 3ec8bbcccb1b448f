"""Local training of slices: a client of less width trains a narrower module on its part of the received model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.base import Part, Parts
from motley.core.errors import ContractError
from motley.engines.base import Job, JobInputs, Setting, TrainResult
from motley.engines.client import Client, StepHook
from motley.engines.samples import Samples
from motley.tasks.slices import narrowed

__all__ = ["SlicedClient"]


class SlicedClient(Client):
    """A client that trains jobs of any width; uploads have the whole model's length and say which coordinates the client holds.

    Parameters
    ----------
    setting, samples, step_hook: see :class:`Client`; the setting's layout knows the units along each axis.
    """

    def __init__(self, setting: Setting, samples: Samples, step_hook: StepHook | None = None) -> None:
        super().__init__(setting, samples, step_hook)
        self._narrow: dict[float, Client] = {}
        self._held: dict[tuple[float, int], Tensor] = {}

    @override
    def train(self, job: Job, inputs: JobInputs, want: frozenset[str]) -> TrainResult:
        if job.width == 1.0:
            return super().train(job, inputs, want)
        if inputs.download["buffers"].numel():
            raise ContractError("got a model with buffers and a client of less width; a slice has no statistics of its own")
        x, positions = inputs.download["x"], self._positions(job.width, job.offset)
        sliced = dataclasses.replace(inputs, download={**inputs.download, "x": x[positions]})
        result = self._at(job.width).train(job, sliced, want)
        return dataclasses.replace(result, parts=_widened(result.parts, positions.cpu(), len(x)))

    def _at(self, width: float) -> Client:
        """Return the client whose module is of this width."""
        if width not in self._narrow:
            task, divided = self.setting.task, self.setting.algorithm.correction.divides
            model = partial(narrowed, task.model, task.layout, width, divided)
            own = dataclasses.replace(task, model=model, layout=None)  # type: ignore[arg-type]  # made of the narrower module
            self._narrow[width] = Client(dataclasses.replace(self.setting, task=own, sliced=True), self.samples, self.step_hook)
        return self._narrow[width]

    def _positions(self, width: float, offset: int) -> Tensor:
        """Return the positions of a slice in the flat vector, ``[d]``."""
        if (width, offset) not in self._held:
            self._held = {
                key: held for key, held in self._held.items() if key[1] == offset
            }  # those of an earlier round are gone
            found = torch.from_numpy(self.setting.task.layout.kept_positions(width, offset))
            self._held[width, offset] = found.to(self.setting.device)
        return self._held[width, offset]


def _widened(parts: Parts, positions: Tensor, size: int) -> Mapping[str, Part]:
    """Return an upload whose update has the whole model's length, 0 at the coordinates that the client does not hold."""
    delta = parts["delta"]
    value, held = delta.value.new_zeros(size), torch.zeros(size, dtype=torch.bool)
    value[positions] = delta.value
    held[positions] = True if delta.held is None else delta.held
    return {**parts, "delta": Part(value, "covered", held)}
