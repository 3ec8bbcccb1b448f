"""Reader of CIFAR's pickled batches that admits nothing but a dictionary of lists, strings and one
array of bytes (:mod:`motley_data.formats.pickled_arrays`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.files import check_file, is_file
from motley_data.formats import pickled_arrays

LARGEST = 400 * 10**6
"""Largest file that is opened, in bytes; CIFAR-100's is 155 MB."""


def _load(path: Path) -> dict[str, Any]:
    try:
        if check_file(path).stat().st_size > LARGEST:
            raise ValueError(f"{path.stat().st_size} bytes, more than any of CIFAR's")
        entries = pickled_arrays.load(path.read_bytes(), encoding="bytes")
        return {
            key.decode("latin1") if isinstance(key, bytes) else key: value
            for key, value in entries.items()
        }
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:  # a damaged pickle raises nearly anything
        raise DataError(
            f"{path} is no batch of CIFAR's ({error}); get it again, best in its binary version "
            "(*.bin)"
        ) from None


def read_batch(path: Path, labels: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return pixels uint8 ``[n, 3, 32, 32]`` and labels int64 ``[n]`` of one batch.

    Parameters
    ----------
    labels: key of the labels, ``labels`` or ``fine_labels``.

    Raises
    ------
    DataError: damaged, too large, or naming anything but an array of bytes.
    """
    batch = _load(path)
    try:
        pixels = batch["data"].numbers()
        if pixels.dtype != np.uint8:
            raise ValueError("its array is not of bytes")
        pixels = pixels.reshape(-1, 3, 32, 32)
        y = np.asarray(batch[labels])
        if y.dtype.kind != "i" or y.shape != (len(pixels),):
            raise ValueError(f"{len(pixels)} images and labels of shape {list(y.shape)}")
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{path} is no batch of CIFAR's ({error}); get it again") from None
    return pixels, y.astype(np.int64)


def read_names(path: Path, key: str) -> tuple[str, ...]:
    """Return the names of the classes from ``batches.meta`` or ``meta``; none where there is no
    such file."""
    names = _load(path).get(key, []) if is_file(path) else []
    return tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names)
