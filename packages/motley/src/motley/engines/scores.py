"""What an evaluation measures of each sample, from a model's outputs: losses and hits, and what
metrics ask for."""

from __future__ import annotations

import torch
from torch import Tensor

from motley.tasks.targets import IGNORED, Targets, class_logits


def measured(name: str, outputs: Tensor, targets: Tensor, kind: Targets) -> Tensor:
    """Return one quantity of each sample of a batch, ``[B, ...]``, on the outputs' device.

    Parameters
    ----------
    name: ``hit`` (1 or 0; the share of right positions or labels where a sample has several; NaN in
    regression), ``predicted`` (classes, or labels 0 and 1, in the shape of the targets), ``nll``
    (mean of ``-log softmax(outputs)[target]`` over positions), ``top<k>`` (share of positions whose
    class is among the k largest outputs) or ``outputs``.
    kind: of the targets.
    """
    if name == "outputs":
        return outputs
    if name == "hit" and kind == "numbers":
        return torch.full((len(outputs),), torch.nan, device=outputs.device)
    if kind == "multilabel":
        predicted = outputs > 0
        return (
            predicted if name == "predicted" else (predicted == (targets > 0.5)).double().mean(-1)
        )
    outputs = class_logits(outputs)
    if name == "predicted":
        return outputs.argmax(-1)
    if name == "hit":
        each = outputs.argmax(-1) == targets
    else:
        wanted = targets.clamp(min=0).unsqueeze(-1)
        if name == "nll":
            each = -outputs.log_softmax(-1).gather(-1, wanted).squeeze(-1)
        else:
            each = (outputs.topk(int(name.removeprefix("top")), dim=-1).indices == wanted).any(-1)
    return each if kind == "classes" else _over_positions(each, targets)


def _over_positions(each: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over the positions of each sample that have a target."""
    counted = targets != IGNORED
    return (each * counted).sum(-1).double() / counted.sum(-1).clamp(min=1)
