"""Classification of images: ``task = { name = "image", data = "mnist", model = "mlp" }``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.errors import ConfigError, DataError
from motley.core.extensions import required_extension
from motley.core.files import files_digest
from motley.core.keys import Key
from motley.tasks.kept_data import made
from motley.tasks.models import Model, factory
from motley.tasks.pixels import ImageTransform, Scaling, top
from motley.tasks.preparation import ArrayPreparation
from motley.tasks.task import Dataset, TaskSource, Transform

_WHOLE_LIMIT = 2**30
"""Data sets of fewer bytes are scaled as a whole; larger ones stay uint8 and each batch is
scaled."""


@dataclass(frozen=True)
class Image(TaskSource):
    """Images with class labels.

    Parameters
    ----------
    data: ``digits`` (scikit-learn's 8x8); with ``motley-data`` installed also a public data set
        (``mnist``, ``fashion_mnist``, ``femnist``, ``cifar10``, ``cifar100``, ``emnist_balanced``,
        ``svhn``, ``cinic10``, ``tiny_imagenet``, ``digit_five``, ``camelyon17``, ...), or a path: a
        folder of MNIST IDX files, of CIFAR batches, of LEAF JSON files, of WILDS' patches or of one
        sub-folder of images per class, or an ``.npz`` file (relative paths are searched like data
        packs).
    model: a name of :data:`motley.tasks.models.MODELS`, or its record, e.g.
    ``{ name = "mlp", hidden = [100] }``.
    scale: ``standard``: mean 0 and standard deviation 1 per channel, measured on the data set's
        training half (READING: on all of it if it has no halves, because the split is drawn later),
        which a private run refuses; ``unit``: pixels in [0, 1]; ``symmetric``: in [-1, 1].
    classes: of a path, the number of classes or the list of their names; left out: those that the
        labels show, which a private run refuses.
    augment: ``crop_flip``: a random crop of the image padded by 4, and a random horizontal flip, in
    training only; ``reflect_crop_flip``: the same, padded with its reflection.
    dropout: of the model, if it has dropout layers.
    heads: number of each class's head, where groups of clients tell different classes apart, see
    :class:`motley.tasks.task.Task`.
    """

    data: str = "digits"
    model: str | Mapping[str, Any] | Model = "mlp"
    scale: Literal["standard", "unit", "symmetric"] = "standard"
    augment: Literal["none", "crop_flip", "reflect_crop_flip"] = "none"
    dropout: float = 0.0
    heads: tuple[int, ...] = ()
    classes: int | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.data != "digits":
            _named(self.data)  # what reads it is installed
        if self.classes is not None and _has_name(self.data):
            raise ConfigError(
                f"the classes of {self.data!r} are known; leave this key out", "task.classes"
            )

    @override
    def files_digest(self) -> str:
        return "" if _has_name(self.data) else files_digest(self.data)

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        """Return the images: float32 and scaled if they fit and nothing is augmented, else as
        stored."""
        return made(self._read(folder), (self.data, self.scale, self.augment), self._scaled)

    def _scaled(self, dataset: Dataset) -> Dataset:
        if dataset.test.all():
            raise DataError(f"{self.data} has test samples only; there is nothing to train on")
        if self.scale == "standard":
            measured = {
                "mean and deviation of the pixels are measured": (
                    "task.scale",
                    'task.scale = "unit"',
                )
            }
            dataset = dataclasses.replace(dataset, measured={**measured, **dataset.measured})
        floating = dataset.x.dtype == torch.float32  # scaling needs no more memory
        if self.augment == "none" and (floating or dataset.x.numel() * 4 < _WHOLE_LIMIT):
            scaling = self._scaling(dataset)
            black, white = (
                (v - scaling.shift.double().numpy()) / scaling.scale.double().numpy()
                for v in (0.0, top(dataset.x))
            )
            dataset = dataclasses.replace(dataset, preparation=_preparation(dataset, scaling))
            return dataclasses.replace(dataset, x=scaling(dataset.x), black_white=(black, white))
        prepared = _preparation(dataset, self._scaling(dataset))
        return dataclasses.replace(dataset, black_white=(0.0, top(dataset.x)), preparation=prepared)

    def _read(self, folder: Path | None, key: str = "task.data") -> Dataset:
        if self.data == "digits":
            return digits()
        dataset: Dataset = _named(self.data).images(self.data, self.classes, folder, key)
        return dataset

    @override
    def public(
        self, dataset: Dataset, data: str, examples: int, key: Key, folder: Path | None = None
    ) -> Tensor:
        """Return images of another set's training half, with this task's scaling (READING: this
        data set's statistics)."""
        mine = self._read(folder)
        public_set = dataclasses.replace(self, data=data, classes=None)._read(folder, "public.data")
        if public_set.x.shape[1:] != mine.x.shape[1:]:
            size, want = (
                "x".join(str(side) for side in x.shape[1:]) for x in (public_set.x, mine.x)
            )
            raise ConfigError(
                f"the images of {data!r} are {size} and the task's {want}; expected the same shape",
                "public.data",
            )
        rows = np.flatnonzero(~public_set.test)
        chosen = np.sort(key.numpy().permutation(rows)[:examples])
        x = _like(public_set.x[torch.from_numpy(chosen)], mine.x.dtype)
        return self._scaling(mine)(x) if dataset.x.dtype == torch.float32 else x

    def _scaling(self, dataset: Dataset) -> Scaling:
        if self.scale == "unit":
            return Scaling.unit(dataset.x)
        if self.scale == "symmetric":
            return Scaling.symmetric(dataset.x)
        return Scaling.standard(dataset.x, np.flatnonzero(~dataset.test))

    @override
    def transform(self, dataset: Dataset) -> Transform | None:
        """Return the scaling (and augmentation) of batches; None if the data set was scaled as a
        whole."""
        if self.augment == "none" and dataset.x.dtype == torch.float32:
            return None
        return ImageTransform(
            self._scaling(dataset),
            augment=self.augment != "none",
            reflects=self.augment == "reflect_crop_flip",
        )

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        return factory(self.model, tuple(dataset.x.shape[1:]), dataset.classes or 1, self.dropout)


def _named(data: str) -> Any:
    """Return the module of ``motley-data`` that reads sets by name and images at a path.

    Raises
    ------
    ConfigError: it is not installed; ``data`` is what it would read.
    """
    return required_extension("data", "named", "task.data", wanted=repr(data))


def _has_name(data: str) -> bool:
    """Return whether images are known by name, with their classes; else ``data`` is a path."""
    return data == "digits" or data in _named(data).DATASETS


def _like(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return pixels converted between 0..255 (uint8) and [0, 1] (float)."""
    if x.dtype == dtype:
        return x
    return (x * 255.0).round().to(torch.uint8) if dtype == torch.uint8 else x.to(dtype) / 255.0


def _preparation(dataset: Dataset, scaling: Scaling) -> ArrayPreparation:
    """Return the scaling of new pixels, which are in the units that the data set stores."""
    shift, scale = (
        value.double().view(-1, 1, 1).numpy() for value in (scaling.shift, scaling.scale)
    )
    return ArrayPreparation(tuple(dataset.x.shape[1:]), shift, scale)


def digits() -> Dataset:
    """Return scikit-learn's 1,797 digits of 8x8, float32 in [0, 1], ``[n, 1, 8, 8]``; the set has
    no test half."""
    pixels, classes = _read_digits()
    x = torch.from_numpy((pixels.reshape(-1, 1, 8, 8) / 16.0).astype(np.float32))
    y = torch.from_numpy(classes.astype(np.int64))
    names = tuple(map(str, range(10)))
    return Dataset(
        x=x,
        y=y,
        classes=10,
        test=np.zeros(len(y), bool),
        groups=None,
        names=names,
        notes={"data": "scikit-learn's digits"},
    )


@cache
def _read_digits() -> tuple[Floats, Floats]:
    """Return the pixels ``[n, 64]`` and the classes, parsed from scikit-learn's file (1 MB of text)
    once in a process. To import scikit-learn for it would take longer than the first round."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("the digits are a file of scikit-learn: pip install scikit-learn")
    file = Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",")
    return table[:, :-1], table[:, -1]
