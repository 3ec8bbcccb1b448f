"""Data packs: public data sets as ``.npz`` files, which are searched, checked against their sha256 and read.

The search order is the given folder, ``MOTLEY_DATA``, ``data`` and ``../shared/data`` beside the current folder and beside this
repository, and ``~/.cache/motley``.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.tasks.base import Dataset
from motley.tasks.formats.npz import arrays
from motley.tasks.formats.texts import TextClients, read_leaf, read_pack

__all__ = ["DATASETS", "SHA256", "find", "load_dataset", "load_shakespeare", "places"]

SHA256 = {
    "cifar100.jpegs.npz": "f7b8c92de8f9cdda6e6eab20a6f415d9494c961a3603bacaf046b5063b9328ca",
    "cifar10_test.webp.npz": "03b59314f69e83d60c8a4afc4dbb59b21ca57c519f36636d6f8b988d49e8bdc3",
    "cifar10_train.webp.npz": "9349861ddf17f0173e6666e0d99ba708f3b97aade19fce6b85d8cd52afb4966c",
    "fashion_mnist.npz": "005934f15d3585f483fead37b8fcf3fdee0dc3b0052f1e47d91bd1430f2c677b",
    "femnist.npz": "2c465ab8c8c14e915f9abd3aa4081515845b9d235d788feece4e3b429f683a98",
    "mnist.npz": "c4279d56952e956ff348ed405874cf14a4c1b975e1dc35e53328505158906d3c",
    "shakespeare.npz": "089a8512af6482c3c1f9eba8c3f0a083119ba8f3f04e7a953f4e98f6d1ed767e",
}
"""The sha256 of every file."""

_CHECKED: set[tuple[str, int, int]] = set()  # (path, bytes, mtime in ns) of files verified in this process


def places(folder: Path | None = None) -> Iterator[Path]:
    """Yield the folders that may hold data, in search order; ``folder`` first."""
    if folder is not None:
        yield folder
    if os.environ.get("MOTLEY_DATA"):
        yield Path(os.environ["MOTLEY_DATA"])
    for base in (Path.cwd(), Path(__file__).resolve().parents[2]):
        yield base / "data"
        yield base.parent / "shared" / "data"
    yield Path.home() / ".cache" / "motley"


def find(file: str, folder: Path | None = None) -> Path:
    """Return the path of a data pack; its checksum is verified once per process and version of the file.

    Raises
    ------
    DataError: not found, unreadable, or with another checksum.
    """
    looked = list(dict.fromkeys(places(folder)))
    for place in looked:
        path = place / file
        if path.is_file():
            _verify(path)
            return path
    where = ", ".join(str(place) for place in looked)
    raise DataError(f"{file} was not found in {where}; put it in one of these or set MOTLEY_DATA to the folder that has it")


def _verify(path: Path) -> None:
    try:
        stat = path.stat()
        stamp = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
        if stamp in _CHECKED:
            return
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
    if digest != SHA256[path.name]:
        raise DataError(
            f"{path} ({stat.st_size} bytes) is corrupt or truncated: its sha256 is {digest[:12]}..., expected "
            f"{SHA256[path.name][:12]}...; fetch the file again"
        )
    _CHECKED.add(stamp)


def _names(data: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    return tuple(str(name) for name in data["classes"])


def _pool(
    x: list[NDArray[Any]], y: list[NDArray[Any]], names: tuple[str, ...], groups: NDArray[np.int64] | None, note: str
) -> Dataset:
    """Return training and test half, one after the other; images as ``[n, C, H, W]``."""
    images = np.concatenate(x)
    images = images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    test = np.repeat([False, True], [len(y[0]), len(y[1])])
    target = torch.from_numpy(np.concatenate(y).astype(np.int64))
    return Dataset(torch.from_numpy(images), target, len(names), test, groups, names, {"data": note})


def _mnist(folder: Path | None) -> Dataset:
    data = arrays(find("mnist.npz", folder))
    groups = np.concatenate([data["writer_train"], data["writer_test"]]).astype(np.int64)
    note = "MNIST; natural clients are NIST's writers, none of whom is in both halves"
    return _pool([data["x_train"], data["x_test"]], [data["y_train"], data["y_test"]], _names(data), groups, note)


def _fashion_mnist(folder: Path | None) -> Dataset:
    data = arrays(find("fashion_mnist.npz", folder))
    return _pool([data["x_train"], data["x_test"]], [data["y_train"], data["y_test"]], _names(data), None, "Fashion-MNIST")


def _femnist(folder: Path | None) -> Dataset:
    data = arrays(find("femnist.npz", folder))
    groups = np.concatenate([data["writer_train"], data["writer_test"]]).astype(np.int64)
    note = "FEMNIST, the 291 writers of the pack (a sample of LEAF's 3,597); black ink on white"
    return _pool([data["x_train"], data["x_test"]], [data["y_train"], data["y_test"]], _names(data), groups, note)


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


def _cifar10(folder: Path | None) -> Dataset:
    halves = [arrays(find(f"cifar10_{half}.webp.npz", folder)) for half in ("train", "test")]
    x = [_sheets(half["blob"], half["offset"], half["grid"]) for half in halves]
    return _pool(x, [half["y"] for half in halves], _names(halves[0]), None, "CIFAR-10 (109 of 60,000 images from JPEG)")


def _cifar100(folder: Path | None) -> Dataset:
    data = arrays(find("cifar100.jpegs.npz", folder))
    x = [_sheets(data[f"blob_{half}"], data[f"offset_{half}"], data[f"grid_{half}"]) for half in ("train", "test")]
    note = "CIFAR-100 after JPEG coding (quality 91, RMS error 3.8 of 255)"
    return _pool(x, [data["y_train"], data["y_test"]], _names(data), None, note)


DATASETS: Mapping[str, Callable[[Path | None], Dataset]] = {
    "mnist": _mnist,
    "fashion_mnist": _fashion_mnist,
    "femnist": _femnist,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
}
"""Name of a data set -> its reader."""


def load_dataset(name: str, folder: Path | None = None) -> Dataset:
    """Return a data set by name: pixels uint8 ``[n, C, H, W]`` as in the originals, training half first.

    Raises
    ------
    DataError: the file is missing or corrupt.
    """
    return DATASETS[name](folder)


def load_shakespeare(folder: Path | None = None) -> TextClients:
    """Return Shakespeare's plays by role, from the pack or from LEAF's JSON in a folder ``shakespeare``, the first place that has one.

    Raises
    ------
    DataError: neither was found, or the file is corrupt.
    """
    for place in places(folder):
        if (place / "shakespeare.npz").is_file():
            break
        if (place / "shakespeare").is_dir():
            return read_leaf(place / "shakespeare")
    return read_pack(find("shakespeare.npz", folder))
