"""Reader of CIFAR's pickled batches that admits nothing but a dictionary of lists, strings and one
array of bytes.

The pickles name three things of numpy. None of numpy is called for them: harmless stand-ins of this
module take the array's shape and bytes. A pickle that names anything else is refused before that is
imported.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from motley.core.errors import DataError
from motley.core.files import check_file, is_file

__all__ = ["LARGEST", "read_batch", "read_names"]

LARGEST = 400 * 10**6
"""Largest file that is opened, in bytes; CIFAR-100's is 155 MB."""


class _Dtype:
    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and alignment: a byte has neither."""


class _Array:
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Take ``(version, shape, dtype, fortran order, bytes)``."""
        self.state = state

    def pixels(self) -> NDArray[np.uint8]:
        """Return the bytes in the array's shape. Raises ValueError for an array of anything
        else."""
        _, shape, dtype, fortran, raw = self.state
        if not isinstance(dtype, _Dtype) or dtype.name != "u1" or not isinstance(raw, bytes):
            raise ValueError("its array is not of bytes")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _NoCall:
    """Stand-in of a class that is only named."""


def _array(*_: Any) -> _Array:
    return _Array()


def _encoded(text: str, _: str) -> bytes:
    return text.encode("latin1")


_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy._core.multiarray", "_reconstruct"): _array,
    ("numpy", "ndarray"): _NoCall,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encoded,
}


class _AllowList(pickle.Unpickler):
    @override
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise ValueError(f"it names {module}.{name}, which is never loaded")
        return _ADMITTED[module, name]


def _load(path: Path) -> dict[str, Any]:
    try:
        if check_file(path).stat().st_size > LARGEST:
            raise ValueError(f"{path.stat().st_size} bytes, more than any of CIFAR's")
        found = _AllowList(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        return {
            key.decode("latin1") if isinstance(key, bytes) else key: value
            for key, value in found.items()
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
        pixels = batch["data"].pixels().reshape(-1, 3, 32, 32)
        y = np.asarray(batch[labels])
        if y.dtype.kind != "i" or y.shape != (len(pixels),):
            raise ValueError(f"{len(pixels)} images and labels of shape {list(y.shape)}")
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{path} is no batch of CIFAR's ({error}); get it again") from None
    return pixels, y.astype(np.int64)


def read_names(path: Path, key: str) -> tuple[str, ...]:
    """Return the names of the classes from ``batches.meta`` or ``meta``; none where there is no
    such file."""
    found = _load(path).get(key, []) if is_file(path) else []
    return tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in found)
