"""Random samples of the shapes and types of a task's: what is tried on them says nothing of
anybody's data."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from motley.tasks.fields import random_fields
from motley.tasks.flat import construct
from motley.tasks.own_loss import OverBatch, checked_loss, plain_function
from motley.tasks.preparation import FieldsPreparation
from motley.tasks.task import IGNORED, Task, model_input


def random_samples(task: Task, count: int) -> tuple[Tensor, Tensor]:
    """Return ``count`` random samples ``[count, ...]`` and targets ``[count, ...]`` of the shapes
    and types of a task's."""
    data = task.federation
    draws = torch.Generator().manual_seed(0)
    shape = (count, *data.x.shape[1:])
    several = data.preparation
    if data.x.is_floating_point() and not isinstance(several, FieldsPreparation):
        x = torch.randn(shape, generator=draws).to(data.x.dtype)
    else:
        tables = [
            layer.num_embeddings
            for layer in construct(task.model, 0).modules()
            if isinstance(layer, nn.Embedding | nn.EmbeddingBag)
        ]
        most = 256 if data.x.dtype == torch.uint8 else min(tables, default=2)
        if isinstance(several, FieldsPreparation):
            x = random_fields(several.fields, count, most, draws)
        else:
            x = torch.randint(0, most, shape, generator=draws).to(data.x.dtype)
    shape = (count, *data.y.shape[1:])
    if data.targets == "numbers":
        return x, torch.randn(shape, generator=draws).to(data.y.dtype)
    classes = 2 if data.targets == "multilabel" else data.classes or 2
    y = torch.randint(0, classes, shape, generator=draws)
    if data.targets == "positions" and shape[1] > 1:
        y[:, -1] = IGNORED
    return x, y.to(data.y.dtype)


def with_loss_compared(task: Task) -> Task:
    """Return the task with its own loss function compared anew, on random samples, with what it
    gives each sample alone (:func:`~motley.tasks.own_loss.checked_loss`); the task itself where the
    user said what the loss looks at, or it is Motley's own.

    Raises
    ------
    ModelError: as for :func:`~motley.tasks.own_loss.checked_loss`.
    """
    loss = task.loss
    if not callable(loss) or (isinstance(loss, OverBatch) and loss.declared):
        return task
    x, targets = random_samples(task, 16)
    raw = x if task.transform is None else task.transform(x, None)
    with torch.no_grad():
        outputs = construct(task.model, 0).eval()(model_input(raw, torch.float32))
    return dataclasses.replace(task, loss=checked_loss(plain_function(loss), outputs, targets))
