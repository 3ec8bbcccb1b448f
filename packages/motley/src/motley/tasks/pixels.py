"""From pixels to model input: scaling and augmentation of whole batches, on the batch's own
device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.keys import Key
from motley.tasks.transfer import to_device


def top(x: Tensor) -> float:
    """Return the value of white in stored units."""
    return 255.0 if x.dtype == torch.uint8 else 1.0


def statistics(x: Tensor, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return mean and deviation per channel of these rows of ``[n, C, H, W]``, in stored units,
    float64 ``[C]``; exact for uint8."""
    channels = x.shape[1]
    if x.dtype == torch.uint8:
        values = np.arange(256, dtype=np.float64)
        pixels = x.numpy()
        count = np.zeros((channels, 256))
        for block in np.array_split(rows, max(1, len(rows) // 4096)):
            for c in range(channels):
                count[c] += np.bincount(pixels[block, c].ravel(), minlength=256)
        total = count.sum(1)
        mean = count @ values / total
        deviation = np.sqrt(np.maximum(count @ values**2 / total - mean**2, 0.0))
        return torch.from_numpy(mean), torch.from_numpy(deviation)
    flat = x[torch.from_numpy(rows)].transpose(0, 1).reshape(channels, -1).double()
    return flat.mean(1), flat.std(1, correction=0)


@dataclass(frozen=True)
class Scaling:
    """``(x - shift) / scale`` per channel; ``shift`` and ``scale`` float32 ``[C]``, in stored
    units."""

    shift: Tensor
    scale: Tensor

    @classmethod
    def unit(cls, x: Tensor) -> Scaling:
        """Return the scaling of pixels to [0, 1]: uint8 divided by 255, floats unchanged."""
        return cls(torch.zeros(x.shape[1]), torch.full((x.shape[1],), top(x)))

    @classmethod
    def symmetric(cls, x: Tensor) -> Scaling:
        """Return the scaling of pixels to [-1, 1]: (p - 0.5) / 0.5 of p in [0, 1]."""
        half = torch.full((x.shape[1],), top(x) / 2)
        return cls(half, half.clone())

    @classmethod
    def standard(cls, x: Tensor, rows: NDArray[np.int64]) -> Scaling:
        """Return the scaling of each channel to mean 0 and standard deviation 1 over ``rows``; a
        constant channel is only centred."""
        mean, deviation = statistics(x, rows)
        return cls(mean.float(), torch.where(deviation > 0, deviation, 1.0).float())

    def to(self, device: str | torch.device) -> Scaling:
        """Return the same scaling with its constants on a device."""
        return Scaling(self.shift.to(device), self.scale.to(device))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the scaled batch: float32, the shape of ``x`` (``[B, C, ...]``)."""
        shape = (1, -1, *(1,) * (x.dim() - 2))
        shift, scale = (t.to(x.device).view(shape) for t in (self.shift, self.scale))
        out = x.to(torch.float32, copy=True)
        return out.sub_(shift).div_(scale)


def crop_flip(x: Tensor, key: Key, padding: int = 4, reflects: bool = False) -> Tensor:
    """Return randomly cropped images (of the image padded with black, or with its reflection at
    the border) with random horizontal flips, drawn for each image.

    ``x``: ``[B, C, H, W]``, any dtype, 0 being black; the result has the same shape and dtype.
    """
    batch, channels, height, width = x.shape
    rng = key.numpy()
    move = rng.integers(-padding, padding + 1, size=(2, batch, 1))
    drawn = np.concatenate([move, rng.random((1, batch, 1)) < 0.5])  # on the host, by the key
    down, right, flip = to_device(drawn, x.device).unbind()
    column = torch.arange(width, device=x.device).expand(batch, width)
    row = torch.arange(height, device=x.device) + down
    column = torch.where(flip > 0, width - 1 - column, column) + right
    if reflects:
        row, column = _reflected(row, height), _reflected(column, width)
    inside = ((row >= 0) & (row < height))[:, :, None] & ((column >= 0) & (column < width))[
        :, None, :
    ]
    source = row.clamp(0, height - 1)[:, :, None] * width + column.clamp(0, width - 1)[:, None, :]
    index = source.view(batch, 1, -1).expand(batch, channels, -1)
    out = x.flatten(2).gather(2, index).view(x.shape)
    return out * inside[:, None].to(x.dtype)


def _reflected(place: Tensor, size: int) -> Tensor:
    """Return places outside of 0 to size - 1 as those that mirror them at the first or the last."""
    return size - 1 - (size - 1 - place.abs()).abs()


@dataclass(frozen=True)
class ImageTransform:
    """The transform of an image task: augment the raw pixels (if a key is given), then scale.

    ``reflects``: whether crops are of the image padded with its reflection."""

    scaling: Scaling
    augment: bool
    reflects: bool = False

    def to(self, device: str | torch.device) -> ImageTransform:
        """Return the same transform with its constants on a device."""
        return ImageTransform(self.scaling.to(device), self.augment, self.reflects)

    def __call__(self, x: Tensor, key: Key | None) -> Tensor:
        """Map raw pixels ``[B, C, H, W]`` to float32 of the same shape."""
        if self.augment and key is not None:
            x = crop_flip(x, key, reflects=self.reflects)
        return self.scaling(x)
