"""The loss of a task: a component of the catalogue, or a function of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from typing_extensions import override

from motley.algorithms import LOSSES
from motley.algorithms.parts import Loss, Targets, Tensors
from motley.tasks.own_loss import LossFunction, Over, OverBatch
from motley.tasks.task import Task


@dataclass(frozen=True)
class FunctionLoss(Loss):
    """A function of outputs ``[N, ...]`` and targets ``[N, ...]`` that returns the loss of each
    sample ``[N]``, of one sample also without that dimension.

    Parameters
    ----------
    function: the user's.
    targets: the kind of targets, which says how many dimensions one sample has.
    """

    function: LossFunction
    targets: Targets

    @property
    @override
    def over(self) -> Over:
        return "batch" if isinstance(self.function, OverBatch) else "sample"

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        lead = targets.dim() - (self.targets != "classes")
        if lead == 1:
            return self.function(outputs, targets).view(targets.shape[:1])
        return self.function(outputs.flatten(0, lead - 1), targets.flatten(0, lead - 1)).view(
            targets.shape[:lead]
        )


def loss_of(task: Task) -> Loss:
    """Return the loss of a task, not yet bound to its targets
    (:func:`~motley.algorithms.positions.per_position`)."""
    if isinstance(task.loss, str | Mapping | Loss):
        built: Loss = LOSSES.build(task.loss, "loss")
        return built
    return FunctionLoss(task.loss, task.federation.targets)


def with_own_loss(task: Task) -> Task:
    """Return the task with an object in place of the name of a loss of one's own: its code is then
    a part of the task, also in processes where the name was never registered. An unknown name
    stays: who makes the run says so."""
    if not isinstance(task.loss, str | Mapping):
        return task
    name = task.loss if isinstance(task.loss, str) else task.loss.get("name")
    if name not in LOSSES.targets:
        return task
    loss: Any = loss_of(task)
    return task if LOSSES.is_builtin(type(loss)) else replace(task, loss=loss)
