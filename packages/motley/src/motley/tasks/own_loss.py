"""A loss of one's own as a function of outputs and targets: tried once when the task is made, and
then one value per sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from motley.core.errors import ModelError

__all__ = ["LossFunction", "SampleBySample", "checked_loss"]

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""Outputs ``[B, ...]`` and targets ``[B, ...]`` of a batch -> the loss of each sample ``[B]``, or
their mean."""


@dataclass(frozen=True)
class SampleBySample:
    """A loss function that returns a batch's mean, as one that returns the loss of each sample:
    batches of one, by vmap."""

    function: LossFunction

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample ``[B]``."""
        each: Tensor = vmap(
            lambda out, target: self.function(out.unsqueeze(0), target.unsqueeze(0))
        )(outputs, targets)
        return each


def checked_loss(function: LossFunction, outputs: Tensor, targets: Tensor) -> LossFunction:
    """Return a user's loss as a function that gives each sample's loss ``[B]``.

    Parameters
    ----------
    function: returns the loss of each sample, or their mean, which is then computed sample by
    sample.
    outputs, targets: some of the task's, on which the function is tried; they need not belong
    together.

    Raises
    ------
    ModelError: the function fails, returns another shape, does not depend on the outputs, or gives
    a sample another loss when other samples are in its batch.
    """
    rows = torch.arange(3 if outputs.shape[-1] != 3 else 4)  # as many samples as no output has
    outputs = outputs.detach()[rows % len(outputs)]
    targets = targets[rows % len(targets)]
    value = _tried(function, outputs, targets)
    if value.shape not in ((), (len(rows),)):
        raise ModelError(
            f"the loss gives {list(value.shape)} for a batch of {len(rows)}; expected one value "
            f"per sample [{len(rows)}], or their mean"
        )
    if value.dim():
        alone = torch.cat(
            [_tried(function, outputs[i : i + 1], targets[i : i + 1]) for i in range(len(rows))]
        )
        found = value
    else:
        function = SampleBySample(function)
        alone = _tried(function, outputs, targets).mean()
        found = value
    if not torch.allclose(alone, found, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ModelError(
            "the loss of a sample depends on the other samples of its batch; give a function that "
            "returns one value per sample (reduction='none')"
        )
    return function


def _tried(function: LossFunction, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the function's value, which must depend on the outputs."""
    with torch.enable_grad():
        leaf = outputs.clone().requires_grad_()
        try:
            value = function(leaf, targets)
        except Exception as error:  # a user's function may raise anything
            shapes = (
                f"outputs {list(outputs.shape)} and targets {list(targets.shape)} ({targets.dtype})"
            )
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelError(f"the loss cannot take {shapes}: {reason}") from error
    if not isinstance(value, Tensor):
        raise ModelError(
            f"the loss gives {type(value).__name__}; expected a tensor with one value per sample"
        )
    if not value.requires_grad:
        raise ModelError(
            "the loss does not depend on the outputs in a way that has a gradient (argmax, detach, "
            "item, whole numbers)"
        )
    return value.detach()
