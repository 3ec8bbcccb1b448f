"""Images as the bytes that their data set has, for workers, which scale each batch.

A task whose images fit in memory holds them scaled, four bytes a pixel. Where they came from bytes,
the bytes are found again and checked: scaled once more, every number must be the one that the task
holds. So a batch has the same bits, and a quarter of the bytes travels and lies in memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from motley.engines.base import Setting
from motley.tasks.pixels import ImageTransform, Scaling
from motley.tasks.preparation import ArrayPreparation

__all__ = ["stored_images"]

_SOME = 4096
"""Images that are converted at a time."""


def stored_images(setting: Setting) -> tuple[Tensor, ImageTransform] | None:
    """Return the images as bytes ``[n, C, H, W]`` and the transform that scales a batch; None where
    the task's inputs are something else, or are transformed already. Processors only: a GPU's own
    arithmetic is not asked for the same bits."""
    data = setting.task.federation
    prepared = setting.task.federation.preparation
    x = data.x
    if setting.device != "cpu" or setting.task.transform is not None or x.dtype != torch.float32:
        return None
    if not isinstance(prepared, ArrayPreparation) or x.ndim != 4 or not len(x):
        return None
    shift = torch.from_numpy(prepared.shift)
    scale = torch.from_numpy(prepared.scale)
    transform = ImageTransform(Scaling(shift.flatten().float(), scale.flatten().float()), False)
    stored = torch.empty(x.shape, dtype=torch.uint8)
    for some, out in zip(torch.split(x, _SOME), torch.split(stored, _SOME), strict=True):
        out.copy_((some * scale.float()).add_(shift.float()).round_().clamp_(0, 255))
        if not torch.equal(transform(out, None), some):
            return None
    return stored, transform
