"""Images as the bytes that their data set has, for engines with workers, which scale each batch.

A task whose images fit in memory holds them scaled, four bytes a pixel. Where they came from bytes,
the bytes are found again and checked: scaled once more, every number must be the one that the task
holds. So a batch has the same bits, and a quarter of the bytes travels and lies in memory, that of
the process of the run included.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from motley.engines.engine import Setting
from motley.tasks.pixels import ImageTransform, Scaling
from motley.tasks.preparation import ArrayPreparation

_SOME = 4096
"""Images that are converted at a time."""


@dataclass(frozen=True)
class StoredImages(ImageTransform):
    """The scaling of bytes that were found again; the task itself holds scaled images."""

    augment: bool = False


def with_stored_images(setting: Setting) -> Setting:
    """Return the setting with images as bytes ``[n, C, H, W]`` and the transform that scales a
    batch; the same setting where the task's inputs are something else, or are transformed already.
    Processors only: a GPU's own arithmetic is not asked for the same bits."""
    task = setting.task
    data = task.federation
    prepared = data.preparation
    x = data.x
    if setting.device != "cpu" or task.transform is not None or x.dtype != torch.float32:
        return setting
    if not isinstance(prepared, ArrayPreparation) or x.ndim != 4 or not len(x):
        return setting
    shift = torch.from_numpy(prepared.shift).flatten().float()
    scale = torch.from_numpy(prepared.scale).flatten().float()
    transform = StoredImages(Scaling(shift, scale))
    stored = _bytes(x, transform)
    if stored is None:
        return setting
    held_out = data.held_out
    if held_out is not None:  # a federation of the same samples
        held_out = dataclasses.replace(held_out, x=stored)
    data = dataclasses.replace(data, x=stored, held_out=held_out)
    return dataclasses.replace(
        setting, task=dataclasses.replace(task, federation=data, transform=transform)
    )


def _bytes(x: Tensor, transform: ImageTransform) -> Tensor | None:
    """Return the bytes that the transform scales to ``x``; None where there are none."""
    scaling = transform.scaling
    shift, scale = (value.view(-1, 1, 1) for value in (scaling.shift, scaling.scale))
    stored = torch.empty(x.shape, dtype=torch.uint8)
    for images, out in zip(torch.split(x, _SOME), torch.split(stored, _SOME), strict=True):
        out.copy_((images * scale).add_(shift).round_().clamp_(0, 255))
        if not torch.equal(transform(out, None), images):
            return None
    return stored
