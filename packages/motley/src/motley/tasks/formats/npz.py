"""Reader of ``.npz`` files: ``x``, ``y``, perhaps ``client`` and ``test``; or ``x_train``,
``y_train``, ``x_test``, ``y_test``."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.files import check_file
from motley.tasks.formats.sample_checks import as_images, class_labels, features, grouped
from motley.tasks.origin import Origin
from motley.tasks.task import Dataset

__all__ = ["arrays", "read"]

_SUSPICIOUS = 2**28
_MOST_PACKED = 200
"""A file that unpacks to more than 256 MiB and more than so many times its own size is refused."""


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return all arrays of an ``.npz`` file; pickled objects are refused.

    Raises
    ------
    DataError: not an ``.npz`` file, truncated, or holding pickled objects.
    """
    try:
        with check_file(path).open("rb") as raw:
            file = np.load(raw, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise DataError(f"{path} holds a single array; expected an .npz file with x and y")
            unpacked = sum(entry.file_size for entry in file.zip.infolist())
            size = path.stat().st_size
            if unpacked > max(_SUSPICIOUS, _MOST_PACKED * size):
                raise DataError(
                    f"{path} of {size:,} bytes unpacks to {unpacked:,}, more than "
                    f"{_SUSPICIOUS / 2**20:.0f} MiB and {_MOST_PACKED} times its size; if it is "
                    "sound, save it without compression, with numpy.savez, and it is read"
                )
            with file:
                for entry in (one for one in file.zip.infolist() if one.filename.endswith(".npy")):
                    _check_header(file.zip, entry)
                return {name: file[name] for name in file.files}
    except DataError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise different errors for a corrupt file
        if "allow_pickle" in str(error) or "Object arrays" in str(error):
            raise DataError(
                f"{path} holds pickled Python objects, which are never loaded, or is no .npz file "
                "at all; save plain arrays of numbers"
            ) from None
        raise DataError(
            f"{path} cannot be read as .npz ({error}); it may be truncated or of another format"
        ) from None


def _check_header(packed: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Raise ValueError for an array that promises more bytes than its file has: NumPy makes room
    for all that a header promises."""
    with packed.open(entry) as file:
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        version = np.lib.format.read_magic(file)
        if version in read_header:
            shape, _, dtype = read_header[version](file)
            if math.prod(shape) * dtype.itemsize > entry.file_size:
                raise ValueError(
                    f"{entry.filename} promises {math.prod(shape) * dtype.itemsize:,} bytes and "
                    f"has {entry.file_size:,}"
                )


def _halves(data: Mapping[str, NDArray[Any]], name: str, where: str) -> NDArray[Any]:
    """Return the training and the test half of an array, one after the other."""
    train = data[f"{name}_train"]
    test = data[f"{name}_test"]
    if not train.ndim or train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{where}: {name}_train has the shape {list(train.shape)} and {name}_test "
            f"{list(test.shape)}; expected samples alike"
        )
    return np.concatenate([train, test])


def read(path: Path) -> Dataset:
    """Read the samples of one file; ``classes`` may name the classes, ``test`` marks rows of the
    set's own test half.

    Raises
    ------
    DataError: pickled objects, missing arrays, NaN features, labels out of range, lengths that
    differ.
    """
    data = arrays(path)
    where = str(path)
    if {"x_train", "y_train", "x_test", "y_test"} <= set(data):
        data["x"], data["y"] = _halves(data, "x", where), _halves(data, "y", where)
        data["test"] = np.repeat([False, True], [len(data["y_train"]), len(data["y_test"])])
    if "x" not in data or "y" not in data:
        found = ", ".join(sorted(data)) or "nothing"
        raise DataError(
            f"{where} holds {found}; expected arrays x and y (or x_train, y_train, x_test, y_test)"
        )
    groups, clients = (
        grouped(data["client"], where, len(data["x"])) if "client" in data else (None, ())
    )
    origin = Origin.of_clients(where, groups, clients)
    x = as_images(features(data["x"], origin))
    names = tuple(str(name) for name in np.ravel(data["classes"])) if "classes" in data else ()
    y, classes = class_labels(data["y"], origin, len(x), len(names) or None)
    test = np.asarray(data.get("test", np.zeros(len(x))), bool)
    if test.shape != (len(x),):
        raise DataError(
            f"{where}: test flags of shape {list(test.shape)} for {len(x)} samples; expected one "
            "per sample"
        )
    notes = {"data": path.name}
    return Dataset(x, torch.as_tensor(y), classes, test, groups, names, notes, client_names=clients)
