"""Checks that all readers apply to samples, labels and client ids."""

from __future__ import annotations

import mmap
import re
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from motley.core.errors import DataError
from motley.core.side_by_side import never_falls, side_by_side
from motley.tasks.origin import Origin, row_of
from motley.tasks.targets import REGRESSION
from motley.tasks.task import IGNORED

_CHECKED = 2**20
"""Numbers that a thread looks at at a time."""
_DEEP = re.compile(r"(LA|RGB|RGBA|RGBX|RGBa|CMYK);16")
"""How Pillow calls 16 bits for each of several channels in a file."""


def features(
    x: ArrayLike, where: str | Origin, whole_numbers: bool = False, quantity: str = "features"
) -> Tensor:
    """Return features ``[n, ...]``: uint8 as it is, other whole numbers as int64 if
    ``whole_numbers``, everything else as float32.

    ``quantity``: what they are, for messages. A memory-mapped array of one of these types is not
    copied.

    Raises
    ------
    DataError: empty, not numbers, or with NaN or infinity (counted; the first is named).
    """
    data = np.asarray(x)
    if data.dtype.kind not in "biuf":
        raise DataError(f"{where}: the {quantity} are {_in_words(data)}; expected numbers")
    if data.ndim < 1 or not data.size:
        raise DataError(f"{where}: there are no samples ({quantity} of shape {list(data.shape)})")
    low, high = extremes(data) if data.dtype.kind == "f" else (0.0, 0.0)
    if not (np.isfinite(low) and np.isfinite(high)):
        bad = ~np.isfinite(data).reshape(len(data), -1).all(1)
        raise DataError(
            f"{row_of(where, int(bad.argmax()))}: NaN or infinity among the {quantity} (in "
            f"{int(bad.sum())} of {len(bad)} samples); fill or drop them"
        )
    limit = float(np.finfo(np.float32).max)
    if max(-low, high) > limit:
        raise DataError(
            f"{where}: {quantity} of up to {max(-low, high):.3g}; expected at most {limit:.3g} "
            "(float32)"
        )
    if whole_numbers and data.dtype == np.uint64 and int(data.max()) >= 2**63:
        raise DataError(
            f"{where}: {quantity} of up to {int(data.max())} (uint64); expected whole numbers up "
            "to 2^63 - 1, or numbers of type float32"
        )
    wide = np.int64 if whole_numbers and data.dtype.kind in "iu" else np.float32
    values = np.ascontiguousarray(data, np.uint8 if data.dtype == np.uint8 else wide)
    if np.may_share_memory(values, data) and not _unchanging(data):
        values = values.copy()
    with warnings.catch_warnings():
        # and nobody writes
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(values)


def _in_words(data: NDArray[Any]) -> str:
    """Return what an array holds that are no numbers, with the first of it and its column."""
    if data.dtype.kind not in "US" or data.ndim < 2 or not data.size:
        return str(data.dtype)
    flat = data.reshape(len(data), -1)[0].astype(str).tolist()
    return f"text (column 1 of the first row holds {flat[0]!r})"


def extremes(data: NDArray[Any]) -> tuple[float, float]:
    """Return the least and the largest number of an array that is not empty; NaN where one is
    NaN. Of a long one threads look at blocks, each of which is read once."""
    rows = max(_CHECKED // max(data[:1].size, 1), 1)
    blocks = [data[first : first + rows] for first in range(0, len(data), rows)]
    bounds = np.array(list(side_by_side(lambda block: (block.min(), block.max()), blocks)))
    return float(bounds[:, 0].min()), float(bounds[:, 1].max())


def _unchanging(data: NDArray[Any]) -> bool:
    """Return whether an array need not be copied: it is memory-mapped, or read-only and no view of
    another."""
    if data.base is None:
        return not data.flags.writeable
    base: Any = data
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


def _stays_mapped(labels: NDArray[Any]) -> bool:
    """Return whether labels are an array that is memory-mapped with mode ``c``, whose file nobody
    writes, and need not be copied."""
    base: Any = labels
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    contiguous = labels.flags.c_contiguous and labels.flags.aligned
    return contiguous and isinstance(base, np.memmap) and base.mode == "c"


def class_labels(
    y: ArrayLike,
    where: str | Origin,
    count: int,
    classes: int | None = None,
    positions: bool = False,
) -> tuple[Tensor, int]:
    """Return labels as int64 ``[n]`` and the number of classes (the largest label + 1, unless
    given).

    ``positions``: a class per position, ``[n, T]``, is allowed, too;
    :data:`~motley.tasks.task.IGNORED` where there is none.

    Raises
    ------
    DataError: not ``count`` of them, not whole numbers, or out of range.
    """
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape[:1] != (count,) or labels.ndim > 1 + positions:
        expected = "one class per sample" + (
            ", or [n, T] classes of positions" if positions else ""
        )
        raise DataError(
            f"{where}: labels of shape {list(labels.shape)} for {count} samples; expected "
            f"{expected}"
        )
    floating = labels.dtype.kind == "f"
    if floating and not np.isfinite(labels).all():
        row, share = _first(~np.isfinite(labels))
        raise DataError(
            f"{row_of(where, row)}: the label is NaN or infinite ({share}); fill or drop these rows"
        )
    if floating and not (labels == np.floor(labels)).all():
        row, share = _first(np.not_equal(labels, np.floor(labels)))
        label = next(value for value in np.ravel(labels[row]).tolist() if value != np.floor(value))
        raise DataError(
            f"{row_of(where, row)}: the label {label:g} is no whole number ({share}), and classes "
            f"are 0 .. C - 1; to predict numbers {REGRESSION}"
        )
    if not (floating or labels.dtype.kind in "biu"):
        raise DataError(
            f"{where}: labels are {labels.dtype}, not whole numbers; expected classes 0 .. C - 1"
        )
    numbers = labels[labels != IGNORED] if labels.ndim > 1 else labels
    low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    labels = labels.astype(np.int64, copy=not _stays_mapped(labels))
    top = classes if classes is not None else max(labels.size, 2)
    if low < 0 or high >= top:
        allowed = f"0 .. {top - 1}" if classes is not None else "0 .. C - 1"
        row, share = _first(
            np.asarray(
                ((labels < 0) & ((labels != IGNORED) | (labels.ndim == 1))) | (labels >= top)
            )
        )
        raise DataError(
            f"{row_of(where, row)}: labels out of range, from {low} to {high}; expected {allowed} "
            f"({share})"
        )
    return torch.from_numpy(labels), classes if classes is not None else max(high + 1, 2)


def _first(wrong: NDArray[np.bool_]) -> tuple[int, str]:
    """Return the first row with something wrong, and in words in how many rows there is: ``wrong``
    is ``[n]`` or ``[n, T]``."""
    rows = np.asarray(wrong.reshape(wrong.shape[0], -1).any(1))
    return int(rows.argmax()), f"in {int(rows.sum())} of {rows.size} rows"


def multilabel(y: ArrayLike, where: str | Origin, count: int) -> tuple[Tensor, int]:
    """Return labels 0 and 1 as float32 ``[n, C]``, and C; ``[n]`` is one label.

    Raises
    ------
    DataError: not ``count`` of them, or other values than 0 and 1.
    """
    labels = np.asarray(y)
    if labels.ndim not in (1, 2) or len(labels) != count or not labels.size:
        raise DataError(
            f"{where}: labels of shape {list(labels.shape)} for {count} samples; expected [n, C], "
            "0 or 1 per label"
        )
    if labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
        raise DataError(
            f"{where}: labels of samples with several are 0 or 1 each, got {labels.dtype} with "
            "other values"
        )
    target = torch.from_numpy(labels.reshape(count, -1).astype(np.float32))
    return target, target.shape[1]


def grouped(
    client: ArrayLike, where: str, count: int, column: str = ""
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return natural clients as numbers 0 .. K - 1 in the order of their sorted ids, ``[n]``, and
    their names.

    Ids that are strings are names. Those of a ``column`` of numbers other than 0 .. K - 1 become
    ``"column=id"``, which nobody takes for a client's number; other numbers give no names.

    Raises
    ------
    DataError: not one per sample; one that is both a number and a text.
    """
    ids: NDArray[Any] = np.asarray(client)
    if ids.shape != (count,):
        raise DataError(
            f"{where}: client ids of shape {list(ids.shape)} for {count} samples; expected one per "
            "sample"
        )
    if ids.dtype.kind not in "biuUSO" and not (ids.dtype.kind == "f" and np.isfinite(ids).all()):
        raise DataError(
            f"{where}: some client ids are missing ({ids.dtype}); expected a number or a string "
            "per sample"
        )
    if ids.dtype.kind == "O":
        if not all(isinstance(client_id, str | int | np.integer) for client_id in ids):
            raise DataError(
                f"{where}: some client ids are neither numbers nor strings; expected one of these "
                "per sample"
            )
        texts = {client_id for client_id in ids if isinstance(client_id, str)}
        both = sorted(
            texts & {str(client_id) for client_id in ids if not isinstance(client_id, str)}
        )
        if both:
            raise DataError(
                f"{where}: the client {both[0]} is a number in some rows and a text in others "
                f"({len(both)} such clients); write ids.astype(str) if these are one client"
            )
        ids = ids.astype(str)
    if ids.dtype.kind in "iu" and count and never_falls(ids):  # nothing to sort
        first = np.concatenate([[True], ids[1:] != ids[:-1]])
        names = _names(ids[first], column) if column else ()
        if ids.dtype == np.int64 and ids[0] == 0 and ids[-1] == np.count_nonzero(first) - 1:
            return ids, names  # they are the numbers
        numbers = np.cumsum(first)
        numbers -= 1
        return numbers, names
    distinct, numbers = np.unique(ids, return_inverse=True)
    return numbers.astype(np.int64), _names(distinct, column)


def _names(ids: NDArray[Any], column: str) -> tuple[str, ...]:
    """Return the names of clients with these ids, sorted and each once; none where they are no more
    than numbers."""
    if ids.dtype.kind in "US":
        return tuple(ids.astype(str).tolist())
    if not column or np.array_equal(ids, np.arange(len(ids))):
        return ()
    short = [
        f"{client_id:g}" if ids.dtype.kind == "f" else str(client_id) for client_id in ids.tolist()
    ]
    if len(set(short)) < len(short):
        short = [repr(client_id) for client_id in ids.tolist()]
    return tuple(f"{column}={client_id}" for client_id in short)


def as_images(x: Tensor) -> Tensor:
    """Convert ``[n, H, W]`` and ``[n, H, W, C]`` (C of 1 to 4) to ``[n, C, H, W]``; return
    everything else unchanged."""
    if x.dim() == 3:
        return x[:, None]
    if x.dim() == 4:
        channels, first = x.shape[3], x.shape[1]
        if (channels in (1, 3) and first not in (1, 3)) or (
            channels in (2, 4) and first not in (1, 2, 3, 4)
        ):
            return x.permute(0, 3, 1, 2).contiguous()
    return x


def refuse_deep_colour(picture: Any, where: str) -> None:
    """Refuse a picture of Pillow's, before its pixels are read, whose file has more than 8 bits for
    each of several channels: Pillow would keep 8 of them."""
    for codec, _, _, entry in getattr(picture, "tile", ()):
        args = entry if isinstance(entry, tuple) else (entry,)
        largest = args[1] if codec == "ppm" and len(args) > 1 else 0
        colour = picture.mode not in ("1", "L", "I", "F")
        if _DEEP.match(str(args[0])) or (colour and largest > 255):
            raise DataError(
                f"{where} has 16 bits for each channel, of which 8 would be read; save it with 8 "
                "bits, or all pictures as an array of 16 bits in an .npz file"
            )
