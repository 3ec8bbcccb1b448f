"""Reader of ``.npz`` files: ``x``, ``y``, perhaps ``client`` and ``test``; or ``x_train``,
``y_train``, ``x_test``, ``y_test``; or PFLlib's, whose array ``data`` is a dictionary of x and
y."""

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
from motley.tasks.origin import Origin
from motley.tasks.task import Dataset
from motley_data.formats import pickled_arrays
from motley_data.formats.sample_checks import as_images, class_labels, features, grouped

_SUSPICIOUS = 2**28
_MOST_PACKED = 200
"""A file that unpacks to more than 256 MiB and more than so many times its own size is refused."""


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return all arrays of an ``.npz`` file; pickled objects are refused, but for the dictionary of
    arrays that PFLlib writes.

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
                for entry in (
                    member for member in file.zip.infolist() if member.filename.endswith(".npy")
                ):
                    _check_header(file.zip, entry)
                if file.files == ["data"] and (held := _dictionary(file.zip)) is not None:
                    return held
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


def _dictionary(packed: zipfile.ZipFile) -> dict[str, NDArray[Any]] | None:
    """Return the arrays of the dictionary that PFLlib writes as the array ``data``; None where that
    is an array of numbers.

    Raises ValueError where the dictionary holds anything but arrays and lists of numbers.
    """
    with packed.open("data.npy") as file:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0
        else:
            header = np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        if dtype.kind != "O" or shape:
            return None
        held = pickled_arrays.load(file.read()).only_object()
    if not isinstance(held, dict):
        raise ValueError("its array data is no dictionary")
    arrays = {}
    for name, value in held.items():
        if isinstance(value, pickled_arrays.PickledArray):
            arrays[str(name)] = value.numbers()
        else:
            arrays[str(name)] = np.asarray(value)
    return arrays


def flagged(data: Mapping[str, NDArray[Any]], where: str) -> dict[str, NDArray[Any]]:
    """Return arrays with ``x``, ``y`` and perhaps ``test`` of a file that may have ``x_train``,
    ``y_train``, ``x_test`` and ``y_test`` instead, or ``x_test`` and ``y_test`` beside ``x`` and
    ``y``.

    Raises
    ------
    DataError: arrays that are missing, halves that differ in shape, flags that are not one per
    sample.
    """
    arrays = dict(data)
    train = "_train" if "x_train" in data else ""
    test = next((half for half in ("_test", "_val") if {f"x{half}", f"y{half}"} & set(data)), "")
    if test and {f"x{train}", f"y{train}", f"x{test}", f"y{test}"} <= set(data):
        ends = (train, test)
        arrays["x"], arrays["y"] = _halves(data, "x", ends, where), _halves(data, "y", ends, where)
        arrays["test"] = np.repeat([False, True], [len(data[f"y{end}"]) for end in ends])
    elif test:
        raise DataError(
            f"{where} holds {', '.join(sorted(data))}; expected x{test} and y{test} beside x and "
            "y, or x_train and y_train"
        )
    if "x" not in arrays or "y" not in arrays:
        held = ", ".join(sorted(data)) or "nothing"
        raise DataError(
            f"{where} holds {held}; expected arrays x and y (or x_train, y_train, x_test, y_test)"
        )
    if "test" in arrays:
        flags = arrays["test"]
        if flags.shape != arrays["x"].shape[:1] or not np.isin(flags, (0, 1)).all():
            raise DataError(
                f"{where}: test flags of shape {list(flags.shape)} for "
                f"{len(arrays['x'])} samples; expected one per sample, 0 or 1"
            )
        arrays["test"] = flags.astype(bool)
    return arrays


def _halves(
    data: Mapping[str, NDArray[Any]], name: str, ends: tuple[str, str], where: str
) -> NDArray[Any]:
    """Return the training and the test half of an array, whose names end so, one after the
    other."""
    train, test = (data[name + end] for end in ends)
    if not train.ndim or train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{where}: {name}{ends[0]} has the shape {list(train.shape)} and {name}{ends[1]} "
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
    where = str(path)
    data = flagged(arrays(path), where)
    groups, clients = (
        grouped(data["client"], where, len(data["x"])) if "client" in data else (None, ())
    )
    origin = Origin.of_clients(where, groups, clients)
    notes = {"data": path.name}
    x = as_images(features(data["x"], origin))
    if data["x"].dtype == np.uint16:
        x /= 65535.0
        notes["pixels"] = "16 bits, read as shares of 65535"
    names = tuple(str(name) for name in np.ravel(data["classes"])) if "classes" in data else ()
    y, classes = class_labels(data["y"], origin, len(x), len(names) or None)
    test = data.get("test", np.zeros(len(x), bool))
    return Dataset(
        x=x,
        y=torch.as_tensor(y),
        classes=classes,
        test=test,
        groups=groups,
        names=names,
        notes=notes,
        client_names=clients,
    )
