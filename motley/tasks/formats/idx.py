"""MNIST's IDX files, plain or ``.gz`` (also Fashion-MNIST's and EMNIST's)."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.tasks.base import Pool
from motley.tasks.formats.checks import class_labels

__all__ = ["read", "recognises"]

_IMAGES, _LABELS = 0x803, 0x801


def _files(folder: Path, what: str) -> list[Path]:
    """Files of images or labels: training ones first, the unpacked one where both are there."""
    found = {path.name.removesuffix(".gz"): path for path in sorted(folder.glob(f"*{what}*ubyte*"), reverse=True)}
    return sorted(found.values(), key=lambda path: ("t10k" in path.name or "test" in path.name, path.name))


def recognises(folder: Path) -> bool:
    """Whether the folder has a file of images."""
    return bool(_files(folder, "images"))


def read(folder: Path) -> Pool:
    """Training and test files of a folder, ``[n, 1, H, W]``.

    Raises
    ------
    DataError: a file without its partner, truncated, or not IDX.
    """
    images, labels = _files(folder, "images"), _files(folder, "labels")
    stems = [path.name.replace("images", "labels").replace("idx3", "idx1").removesuffix(".gz") for path in images]
    if stems != [path.name.removesuffix(".gz") for path in labels]:
        raise DataError(
            f"{folder} has {len(images)} IDX files of images and {len(labels)} of labels; expected pairs: {stems[0]}"
        )
    x = [_array(path, _IMAGES) for path in images]
    y = [_array(path, _LABELS) for path in labels]
    for path, some, targets in zip(images, x, y, strict=True):
        if len(some) != len(targets):
            raise DataError(f"{path} has {len(some)} images but {len(targets)} labels")
    pixels = torch.from_numpy(np.concatenate(x)[:, None])
    target, classes = class_labels(np.concatenate(y), str(folder), len(pixels))
    test = np.concatenate([np.full(len(t), "t10k" in p.name or "test" in p.name) for p, t in zip(images, y, strict=True)])
    return Pool(pixels, target, classes, test, None, (), {"data": f"IDX files of {folder.name}"})


def _array(path: Path, magic: int) -> NDArray[np.uint8]:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); it may be truncated") from None
    if len(raw) < 4 or struct.unpack(">I", raw[:4])[0] != magic:
        raise DataError(f"{path} is not an IDX file of {'images' if magic == _IMAGES else 'labels'} (its first bytes differ)")
    dims = magic & 0xFF
    head = 4 + 4 * dims
    shape = struct.unpack(f">{dims}I", raw[4:head]) if len(raw) >= head else ()
    if not shape or len(raw) != head + int(np.prod(shape)):
        raise DataError(f"{path} is truncated: {len(raw)} bytes for shape {list(shape)}; fetch it again")
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape)
