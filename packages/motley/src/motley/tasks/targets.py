"""The kinds of targets that a task may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

Targets = Literal["classes", "positions", "multilabel", "numbers"]
"""The kind of targets: a class per sample ``[n]``; a class per position of a sample ``[n, T]``; any
of C labels per sample, 0 or 1, ``[n, C]``; numbers ``[n, d]``."""

SAID: Mapping[Targets, str] = {
    "classes": "classes",
    "positions": "a class per position",
    "multilabel": "several labels per sample",
    "numbers": "numbers",
}
"""The kinds of targets in words, for messages."""

NO_CLASSES: Mapping[Targets, str] = {
    "positions": "the targets of this task are a class per position",
    "multilabel": "the samples of this task have any number of labels",
    "numbers": "this task is a regression",
}
"""Why samples have no class of their own, by kind of targets; for messages."""

MOST_CLASSES = 100
"""Different whole numbers above which labels that do not count from 0 are likely no classes."""
REGRESSION = 'write task.name = "tabular_regression", in Python regression=True'
"""What to do where labels are numbers."""

IGNORED = -100
"""The class of a position that has no target (padding), torch's ``ignore_index``."""


def targets_of(y: Tensor, classes: int | None) -> Targets:
    """Return the kind of targets of a data set with targets ``y`` and so many classes (None:
    numbers)."""
    if classes is None:
        return "numbers"
    if y.is_floating_point():
        return "multilabel"
    return "positions" if y.dim() > 1 else "classes"


def class_logits(outputs: Tensor) -> Tensor:
    """Return a logit for each class ``[..., C]``: one output ``[..., 1]``, which tells two classes
    apart, is the logit of the second beside a 0.

    >>> class_logits(torch.tensor([[3.0]])).tolist()
    [[0.0, 3.0]]
    """
    if outputs.shape[-1] > 1:
        return outputs
    return torch.cat([torch.zeros_like(outputs), outputs], -1)
