"""Packs: public data sets as ``.npz`` files, checked against their sha256 and read."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.files import check_file
from motley.tasks.task import Dataset
from motley_data.formats.npz import arrays
from motley_data.public_data.facts import PACKS

# (path, bytes, mtime in ns) of files verified in this process
_CHECKED: set[tuple[str, int, int]] = set()


def check(path: Path, checksum: str = "") -> None:
    """Check a file's checksum, once per process and version of the file.

    Parameters
    ----------
    checksum: hex digits of md5 or sha256; empty: those of the pack of this name.

    Raises
    ------
    DataError: unreadable, or another checksum.
    """
    expected = checksum or PACKS[path.name]
    kind = "md5" if len(expected) == 32 else "sha256"
    try:
        stat = check_file(path).stat()
        stamp = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
        if stamp in _CHECKED:
            return
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, kind).hexdigest()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); check its permissions"
        ) from None
    if digest != expected:
        raise DataError(
            f"{path} ({stat.st_size} bytes) is corrupt or truncated: its {kind} is "
            f"{digest[:12]}..., expected {expected[:12]}...; fetch the file again"
        )
    _CHECKED.add(stamp)


def read(name: str, folder: Path) -> Dataset:
    """Return the samples of a pack in its own order: pixels uint8 ``[n, C, H, W]``, training half
    first.

    Raises
    ------
    DataError: corrupt.
    """
    return _READERS[name](folder)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    check(path)
    return arrays(path)


def _names(data: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    return tuple(str(name) for name in data["classes"])


def _pool(
    x: list[NDArray[Any]],
    y: list[NDArray[Any]],
    names: tuple[str, ...],
    groups: NDArray[np.int64] | None = None,
    note: str = "",
    places: NDArray[np.int64] | None = None,
) -> Dataset:
    """Return training and test half, one after the other; images as ``[n, C, H, W]``. The order of
    the original is not known without ``places``."""
    images = np.concatenate(x)
    images = (
        images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    )
    test = np.repeat([False, True], [len(y[0]), len(y[1])])
    target = torch.from_numpy(np.concatenate(y).astype(np.int64))
    return Dataset(
        x=torch.from_numpy(images),
        y=target,
        classes=len(names),
        test=test,
        groups=groups,
        names=names,
        notes={"data": note} if note else {},
        places=np.zeros(0, np.int64) if places is None else places,
    )


def _mnist(folder: Path) -> Dataset:
    data = _arrays(folder / "mnist.npz")
    groups = np.concatenate([data["writer_train"], data["writer_test"]]).astype(np.int64)
    note = "MNIST; natural clients are NIST's writers, none of whom is in both halves"
    return _pool(
        x=[data["x_train"], data["x_test"]],
        y=[data["y_train"], data["y_test"]],
        names=_names(data),
        groups=groups,
        note=note,
        places=np.concatenate([data["index_train"], data["index_test"]]).astype(np.int64),
    )


def _fashion_mnist(folder: Path) -> Dataset:
    data = _arrays(folder / "fashion_mnist.npz")
    return _pool([data["x_train"], data["x_test"]], [data["y_train"], data["y_test"]], _names(data))


def _femnist(folder: Path) -> Dataset:
    data = _arrays(folder / "femnist.npz")
    groups = np.concatenate([data["writer_train"], data["writer_test"]]).astype(np.int64)
    return _pool(
        [data["x_train"], data["x_test"]], [data["y_train"], data["y_test"]], _names(data), groups
    )


def _sheets(blob: NDArray[Any], offset: NDArray[Any], grid: NDArray[Any]) -> NDArray[np.uint8]:
    """Return images ``[n, 32, 32, 3]`` from encoded sheets of ``grid[0] x grid[1]`` images."""
    from PIL import Image

    rows, columns = (int(side) for side in grid)
    out = []
    for start, stop in itertools.pairwise(offset):
        picture = np.asarray(Image.open(io.BytesIO(blob[start:stop].tobytes())).convert("RGB"))
        tiles = picture.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 1, 3, 4)
        out.append(tiles.reshape(-1, 32, 32, 3))
    return np.concatenate(out)


def _cifar10(folder: Path) -> Dataset:
    halves = [_arrays(folder / f"cifar10_{half}.webp.npz") for half in ("train", "test")]
    x = [_sheets(half["blob"], half["offset"], half["grid"]) for half in halves]
    return _pool(x, [half["y"] for half in halves], _names(halves[0]))


def _cifar100(folder: Path) -> Dataset:
    data = _arrays(folder / "cifar100.jpegs.npz")
    x = [
        _sheets(data[f"blob_{half}"], data[f"offset_{half}"], data[f"grid_{half}"])
        for half in ("train", "test")
    ]
    return _pool(x, [data["y_train"], data["y_test"]], _names(data))


_READERS: Mapping[str, Callable[[Path], Dataset]] = {
    "mnist": _mnist,
    "fashion_mnist": _fashion_mnist,
    "femnist": _femnist,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
}
