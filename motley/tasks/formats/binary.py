"""Readers of two binary formats: MNIST's IDX files and CIFAR's batches.

IDX files may be plain or ``.gz`` (also Fashion-MNIST's and EMNIST's). CIFAR-10 and CIFAR-100 are read in their binary form
(``data_batch_1.bin`` ..., ``train.bin``); the pickled form is never opened.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.tasks.base import Dataset
from motley.tasks.formats.checks import class_labels

__all__ = ["has_cifar", "has_idx", "read_cifar", "read_idx"]

_IMAGES, _LABELS = 0x803, 0x801


def _files(folder: Path, what: str) -> list[Path]:
    """Return the IDX files of images or labels, training files first; the unpacked one if both exist."""
    found = {path.name.removesuffix(".gz"): path for path in sorted(folder.glob(f"*{what}*ubyte*"), reverse=True)}
    return sorted(found.values(), key=lambda path: ("t10k" in path.name or "test" in path.name, path.name))


def has_idx(folder: Path) -> bool:
    """Return whether the folder has an IDX file of images."""
    return bool(_files(folder, "images"))


def read_idx(folder: Path) -> Dataset:
    """Read the IDX training and test files of a folder, ``[n, 1, H, W]``.

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
    return Dataset(pixels, target, classes, test, None, (), {"data": f"IDX files of {folder.name}"})


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


_PIXELS = 3 * 32 * 32


def has_cifar(folder: Path) -> bool:
    """Return whether the folder has CIFAR's files, binary or pickled."""
    return any((folder / name).is_file() for name in ("data_batch_1.bin", "train.bin", "data_batch_1", "test_batch.bin"))


def read_cifar(folder: Path) -> Dataset:
    """Read both halves of CIFAR, ``[n, 3, 32, 32]`` uint8, training half first; CIFAR-100 with its 100 fine labels.

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
    rows = [_records(path, extra) for path in (*train, test)]
    data = np.concatenate(rows)
    images = torch.from_numpy(data[:, extra:].reshape(-1, 3, 32, 32).copy())
    y, classes = class_labels(data[:, extra - 1], str(folder), len(data), 100 if hundred else 10)
    names = _names(folder / ("fine_label_names.txt" if hundred else "batches.meta.txt"), classes)
    return Dataset(images, y, classes, np.arange(len(data)) >= len(data) - len(rows[-1]), None, names, {"data": folder.name})


def _records(path: Path, extra: int) -> NDArray[np.uint8]:
    raw = np.fromfile(path, np.uint8)
    if not len(raw) or len(raw) % (_PIXELS + extra):
        raise DataError(f"{path} has {len(raw)} bytes, not a multiple of {_PIXELS + extra}; it is truncated or not CIFAR's")
    return raw.reshape(-1, _PIXELS + extra)


def _names(path: Path, classes: int) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    names = tuple(line.strip() for line in path.read_text().splitlines() if line.strip())
    return names if len(names) == classes else ()
