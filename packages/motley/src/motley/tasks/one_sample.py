"""A sample of a task, and whether torch trains its model on a batch of one."""

from __future__ import annotations

import torch
from torch import Tensor

from motley.core.keys import Key
from motley.tasks.flat import construct, is_refusal_of_one
from motley.tasks.nn import set_stream
from motley.tasks.task import Task, model_input


def repeated_sample(task: Task, count: int) -> Tensor:
    """Return a model input of ``count`` times the task's first sample, ``[count, ...]``; of zeros
    where the task has none."""
    row = task.federation.x[:1]
    if not len(row):  # a server's, whose clients have the samples
        row = row.new_zeros(1, *row.shape[1:])
    rows = torch.cat([row] * count)  # a copy: a transform may work in place
    sample = rows if task.transform is None else task.transform(rows, None)
    return model_input(sample, torch.float32, "cpu")


def refuses_one_sample(task: Task) -> bool:
    """Return whether torch refuses a batch of one sample of the task's model in training mode, as
    BatchNorm over features does, which then has one value per channel; found by trying.

    BatchNorm over several pixels, and BatchNorm that stays in evaluation mode, take one sample.
    What a model's own code cannot do with one sample is no such refusal: it fails in training, too.
    """
    sample = repeated_sample(task, 1)
    module = construct(task.model, 0).train()
    set_stream(module, Key(0))
    with torch.no_grad():
        try:
            module(sample)
        except Exception as error:  # a user's forward may raise anything
            return is_refusal_of_one(error)
    return False
