"""``task = { name = "image", data = "mnist", model = "mlp" }``: classification of images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from motley.core.errors import ConfigError, DataError, suggest
from motley.core.keys import Key
from motley.tasks.base import Pool, TaskSource, Transform
from motley.tasks.formats import read
from motley.tasks.models import factory
from motley.tasks.packs import PACKS, places, read_pack
from motley.tasks.pixels import Scaling, Shown, top

__all__ = ["Image", "digits"]

_WHOLE_LIMIT = 2**30
"""Scaled images are stored whole while they take fewer bytes; beyond that they stay uint8 and each batch is scaled."""


@dataclass(frozen=True)
class Image(TaskSource):
    """Images of C classes.

    Parameters
    ----------
    data: ``digits`` (scikit-learn's 8x8), ``mnist``, ``fashion_mnist``, ``femnist``, ``cifar10``, ``cifar100``, or a path: a
        folder of MNIST IDX files, of CIFAR binary batches, of LEAF JSON files or of one sub-folder of pictures per class, or
        an ``.npz`` file (looked for like the packs when it is not absolute).
    model: a name of :data:`motley.tasks.models.MODELS`, or its record, e.g. ``{ name = "mlp", hidden = [100] }``.
    scale: ``standard``: mean 0 and deviation 1 per channel, measured on the data set's training half (READING: on all of it
        where it has no halves, because the split is drawn later); ``unit``: pixels in [0, 1].
    augment: ``crop_flip``: a random crop of the image padded by 4, and a random horizontal flip, in training only.
    dropout: of the model, where it has any.
    """

    data: str = "digits"
    model: str | Mapping[str, Any] = "mlp"
    scale: Literal["standard", "unit"] = "standard"
    augment: Literal["none", "crop_flip"] = "none"
    dropout: float = 0.0

    def pool(self, key: Key, population: int, folder: Path | None = None) -> Pool:
        """The images: float32 and scaled when they fit and nothing is augmented, else as stored."""
        pool = self._read(folder)
        if pool.test.all():
            raise DataError(f"{self.data} has test samples only; there is nothing to train on")
        floating = pool.x.dtype == torch.float32  # scaled, it takes no more memory than it does
        if self.augment == "none" and (floating or pool.x.numel() * 4 < _WHOLE_LIMIT):
            scaling = self._scaling(pool)
            black, white = ((v - scaling.shift.double().numpy()) / scaling.scale.double().numpy() for v in (0.0, top(pool.x)))
            return dataclasses.replace(pool, x=scaling(pool.x), tones=(black, white))
        return dataclasses.replace(pool, tones=(0.0, top(pool.x)))

    def _read(self, folder: Path | None, key: str = "task.data") -> Pool:
        if self.data == "digits":
            return digits()
        if self.data in PACKS:
            return read_pack(self.data, folder)
        for place in (Path(), *places(folder)):
            path = place / Path(self.data).expanduser()
            if self.data and path.exists():
                return read(path)
        known = ["digits", *PACKS]
        raise DataError(
            f"{key}: got {self.data!r}{suggest(self.data, known)}; expected one of: {', '.join(known)}, "
            "or the path of a folder or .npz file that exists"
        )

    def public(self, pool: Pool, data: str, examples: int, key: Key, folder: Path | None = None) -> Tensor:
        """Images of another set's training half, under this task's scaling (READING: its own statistics)."""
        mine, other = self._read(folder), dataclasses.replace(self, data=data)._read(folder, "public.data")
        if other.x.shape[1:] != mine.x.shape[1:]:
            got, want = ("x".join(str(side) for side in x.shape[1:]) for x in (other.x, mine.x))
            raise ConfigError(f"the images of {data!r} are {got} and the task's {want}; expected the same shape", "public.data")
        rows = np.flatnonzero(~other.test)
        some = np.sort(key.numpy().permutation(rows)[:examples])
        x = _like(other.x[torch.from_numpy(some)], mine.x.dtype)
        return self._scaling(mine)(x) if pool.x.dtype == torch.float32 else x

    def _scaling(self, pool: Pool) -> Scaling:
        if self.scale == "unit":
            return Scaling.unit(pool.x)
        return Scaling.standard(pool.x, np.flatnonzero(~pool.test))

    def transform(self, pool: Pool) -> Transform | None:
        """None where the pool was scaled whole."""
        if self.augment == "none" and pool.x.dtype == torch.float32:
            return None
        return Shown(self._scaling(pool), self.augment == "crop_flip")

    def factory(self, pool: Pool) -> Callable[[], nn.Module]:
        """Modules for this data's shape and classes."""
        return factory(self.model, tuple(pool.x.shape[1:]), pool.classes or 1, self.dropout)


def _like(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Pixels in 0..255 (uint8) or [0, 1] (float), as ``dtype`` has them."""
    if x.dtype == dtype:
        return x
    return (x * 255.0).round().to(torch.uint8) if dtype == torch.uint8 else x.to(dtype) / 255.0


def digits() -> Pool:
    """scikit-learn's 1,797 digits of 8x8, float32 in [0, 1], ``[n, 1, 8, 8]``; the set has no test half."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = torch.from_numpy((data.images[:, None] / 16.0).astype(np.float32))
    y = torch.from_numpy(data.target.astype(np.int64))
    names = tuple(str(name) for name in data.target_names)
    return Pool(x, y, 10, np.zeros(len(y), bool), None, names, {"data": "scikit-learn's digits"})
