"""Readers of two binary formats: MNIST's IDX files and CIFAR's batches.

IDX files may be plain or ``.gz`` (also Fashion-MNIST's and EMNIST's). CIFAR-10 and CIFAR-100 are
read in their binary form (``data_batch_1.bin`` ..., ``train.bin``), or in their pickled form
through an allow-list.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.files import check_file, is_file, no_file
from motley.tasks.task import Dataset
from motley_data.formats import cifar_pickles
from motley_data.formats.sample_checks import class_labels

_IMAGES = 0x803
_LABELS = 0x801


def _files(folder: Path, kind: str, prefix: str = "") -> list[Path]:
    """Return the IDX files of images or labels, training files first; the unpacked one if both
    exist."""
    paths = [path for path in folder.glob(f"{prefix}*{kind}*ubyte*") if path.suffix in ("", ".gz")]
    paths_by_name = {path.name.removesuffix(".gz"): path for path in sorted(paths, reverse=True)}
    return sorted(
        paths_by_name.values(),
        key=lambda path: ("t10k" in path.name or "test" in path.name, path.name),
    )


def has_idx(folder: Path) -> bool:
    """Return whether the folder has an IDX file of images."""
    return bool(_files(folder, "images"))


def read_idx(folder: Path, prefix: str = "") -> Dataset:
    """Read the IDX training and test files of a folder whose names begin with ``prefix``,
    ``[n, 1, H, W]``.

    Raises
    ------
    DataError: a file without its partner, truncated, or not IDX.
    """
    images = _files(folder, "images", prefix)
    labels = _files(folder, "labels", prefix)
    stems = [
        path.name.replace("images", "labels").replace("idx3", "idx1").removesuffix(".gz")
        for path in images
    ]
    if stems != [path.name.removesuffix(".gz") for path in labels]:
        raise DataError(
            f"{folder} has {len(images)} IDX files of images and {len(labels)} of labels; expected "
            f"pairs: {stems[0]}"
        )
    x = [_array(path, _IMAGES) for path in images]
    y = [_array(path, _LABELS) for path in labels]
    for path, images_of_file, targets in zip(images, x, y, strict=True):
        if len(images_of_file) != len(targets):
            raise DataError(f"{path} has {len(images_of_file)} images but {len(targets)} labels")
    pixels = torch.from_numpy(np.concatenate(x)[:, None])
    target, classes = class_labels(np.concatenate(y), str(folder), len(pixels))
    test = np.concatenate(
        [
            np.full(len(t), "t10k" in p.name or "test" in p.name)
            for p, t in zip(images, y, strict=True)
        ]
    )
    return Dataset(
        x=pixels,
        y=target,
        classes=classes,
        test=test,
        groups=None,
        names=(),
        notes={"data": f"IDX files of {folder.name}"},
    )


_LARGEST = 4 * 2**30
"""Largest array that is read, in bytes."""


def _array(path: Path, magic: int) -> NDArray[np.uint8]:
    """Return the array of one file; no more bytes are unpacked than its header promises."""
    dims = magic & 0xFF
    try:
        with (
            gzip.open(check_file(path))
            if path.suffix == ".gz"
            else check_file(path).open("rb") as file
        ):
            head = file.read(4 + 4 * dims)
            if len(head) < 4 or struct.unpack(">I", head[:4])[0] != magic:
                kind = "images" if magic == _IMAGES else "labels"
                raise DataError(f"{path} is not an IDX file of {kind} (its first bytes differ)")
            shape = struct.unpack(f">{dims}I", head[4:]) if len(head) == 4 + 4 * dims else ()
            size = math.prod(shape)
            if 0 in shape[1:]:
                raise DataError(
                    f"{path} holds images of {' x '.join(map(str, shape[1:]))} pixels; expected at "
                    "least one"
                )
            if size > _LARGEST:
                raise DataError(
                    f"{path} says that it holds {size / 2**30:.0f} GiB; expected at most "
                    f"{_LARGEST / 2**30:.0f}"
                )
            raw = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); it may be truncated") from None
    if not shape or len(raw) != size:
        more = "or more " if len(raw) > size else ""
        raise DataError(
            f"{path} is truncated or damaged: {len(head) + len(raw)} {more}bytes for shape "
            f"{list(shape)}; fetch it again"
        )
    return np.frombuffer(raw, np.uint8).reshape(shape)


_PIXELS = 3 * 32 * 32


def has_cifar(folder: Path) -> bool:
    """Return whether the folder has CIFAR's files, binary or pickled."""
    names = ("data_batch_1.bin", "train.bin", "test_batch.bin", "data_batch_1", "test_batch")
    return any((folder / name).is_file() for name in names) or all(
        (folder / name).is_file() for name in ("train", "test", "meta")
    )


def read_cifar(folder: Path) -> Dataset:
    """Read both halves of CIFAR, ``[n, 3, 32, 32]`` uint8, training half first; CIFAR-100 with its
    100 fine labels.

    Raises
    ------
    DataError: a missing test file, a truncated file, a pickle that holds anything but such a batch,
    labels out of range.
    """
    suffix = ".bin" if next(folder.glob("*.bin"), None) is not None else ""
    hundred = (folder / f"train{suffix}").is_file()
    numbered = [
        path for path in sorted(folder.glob(f"data_batch_*{suffix}")) if path.suffix == suffix
    ]
    train = [folder / f"train{suffix}"] if hundred else numbered
    test = folder / (f"test{suffix}" if hundred else f"test_batch{suffix}")
    for path in (train[0] if train else folder / "data_batch_1.bin", test):
        if no_file(path) == "does not exist":
            raise DataError(f"{folder} has no {path.name}; fetch it again")
    read = _records if suffix else _pickled
    batches = [read(path, hundred) for path in (*train, test)]
    images = torch.from_numpy(np.concatenate([pixels for pixels, _ in batches]))
    labels = np.concatenate([targets for _, targets in batches])
    y, classes = class_labels(labels, str(folder), len(labels), 100 if hundred else 10)
    names = _names(folder, bool(suffix), hundred)
    held = np.arange(len(labels)) >= len(labels) - len(batches[-1][1])
    return Dataset(
        x=images,
        y=y,
        classes=classes,
        test=held,
        groups=None,
        names=names if len(names) == classes else (),
        notes={"data": folder.name},
    )


def _pickled(path: Path, hundred: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return cifar_pickles.read_batch(path, "fine_labels" if hundred else "labels")


def _records(path: Path, hundred: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    extra = 2 if hundred else 1  # CIFAR-100: coarse label, fine label, pixels
    size = check_file(path).stat().st_size
    if size > cifar_pickles.LARGEST:
        raise DataError(f"{path} has {size:,} bytes, more than any of CIFAR's")
    raw = np.fromfile(path, np.uint8)
    if not len(raw) or len(raw) % (_PIXELS + extra):
        raise DataError(
            f"{path} has {len(raw)} bytes, not a multiple of {_PIXELS + extra}; it is truncated or "
            "not CIFAR's"
        )
    rows = raw.reshape(-1, _PIXELS + extra)
    return rows[:, extra:].reshape(-1, 3, 32, 32), rows[:, extra - 1].astype(np.int64)


def _names(folder: Path, plain: bool, hundred: bool) -> tuple[str, ...]:
    if not plain:
        if hundred:
            path, key = (folder / "meta", "fine_label_names")
        else:
            path, key = (folder / "batches.meta", "label_names")
        return cifar_pickles.read_names(path, key)
    path = folder / ("fine_label_names.txt" if hundred else "batches.meta.txt")
    text = path.read_text(encoding="utf-8", errors="replace") if is_file(path) else ""
    return tuple(line.strip() for line in text.splitlines() if line.strip())
