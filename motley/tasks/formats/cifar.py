"""CIFAR-10 and CIFAR-100 in their binary form (``data_batch_1.bin`` ..., ``train.bin``); the pickled form is never opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.tasks.base import Pool
from motley.tasks.formats.checks import class_labels

__all__ = ["read", "recognises"]

_PIXELS = 3 * 32 * 32


def recognises(folder: Path) -> bool:
    """Whether the folder has CIFAR's files, in whatever form."""
    return any((folder / name).is_file() for name in ("data_batch_1.bin", "train.bin", "data_batch_1", "test_batch.bin"))


def read(folder: Path) -> Pool:
    """Both halves, ``[n, 3, 32, 32]`` uint8, training half first; CIFAR-100 by its 100 fine labels.

    Raises
    ------
    DataError: the pickled form, a missing test file, a truncated file, labels out of range.
    """
    hundred = (folder / "train.bin").is_file()
    train = [folder / "train.bin"] if hundred else sorted(folder.glob("data_batch_*.bin"))
    test = folder / ("test.bin" if hundred else "test_batch.bin")
    if not train:
        raise DataError(f"{folder} holds CIFAR as Python pickles, which are never loaded; fetch the 'binary version' (*.bin)")
    if not test.is_file():
        raise DataError(f"{folder} has no {test.name}; fetch it again")
    extra = 2 if hundred else 1
    rows = [_rows(path, extra) for path in (*train, test)]
    data = np.concatenate(rows)
    images = torch.from_numpy(data[:, extra:].reshape(-1, 3, 32, 32).copy())
    y, classes = class_labels(data[:, extra - 1], str(folder), len(data), 100 if hundred else 10)
    names = _names(folder / ("fine_label_names.txt" if hundred else "batches.meta.txt"), classes)
    return Pool(images, y, classes, np.arange(len(data)) >= len(data) - len(rows[-1]), None, names, {"data": folder.name})


def _rows(path: Path, extra: int) -> NDArray[np.uint8]:
    raw = np.fromfile(path, np.uint8)
    if not len(raw) or len(raw) % (_PIXELS + extra):
        raise DataError(f"{path} has {len(raw)} bytes, not a multiple of {_PIXELS + extra}; it is truncated or not CIFAR's")
    return raw.reshape(-1, _PIXELS + extra)


def _names(path: Path, classes: int) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    names = tuple(line.strip() for line in path.read_text().splitlines() if line.strip())
    return names if len(names) == classes else ()
