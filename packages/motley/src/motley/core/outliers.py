"""Which uploads of a refused step stand out, which numbers that a client reports are far beyond
those of the others, and how much one client's number of samples may weigh.

An upload stands out where it is not finite, or where its distance from the middle of all uploads is
far larger than the distances of the others. The middle is the median, coordinate by coordinate, of
the finite uploads and of one update that is zero everywhere (it moves no model, and lets a small
upload stand beside one that is huge):

    m = median(0, u_1, ..., u_n)        d_i = |u_i - m|
    i stands out  <=>  d_i > factor * max(median of d_j over the finite j != i, |m|)

It holds while the uploads that are wrong are fewer than half, or half of an even number. Where more
are, or where uploads differ by less than the factor, nobody is named. So it names who blew up a
step; it is no defence against wrong uploads of a usual size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LARGEST_NUMBER = math.sqrt(np.finfo(np.float32).max)
"""The largest number that may enter a mean, 1.8e19: its square is finite in 32 bits."""

MOST_TIMES = 10.0
"""Multiple of the median number of samples above which what one client says counts no more."""
_BLOCK = 1 << 22
"""Numbers of all uploads that are sorted at a time: 32 MiB."""


def outlying(vectors: Sequence[NDArray[Any]], factor: float = 30.0) -> list[int]:
    """Return the positions of the uploads that stand out, rising.

    Parameters
    ----------
    vectors: one array for each upload, all of one shape.
    factor: how many times farther than the others.

    Example
    -------
    >>> outlying([np.array([1.0, 0.0]), np.array([1000.0, 1000.0]), np.array([0.0, 1.0])])
    [1]
    """
    return outlying_of_arrays([vectors], factor)


def outlying_of_arrays(arrays: Iterable[Sequence[NDArray[Any]]], factor: float = 30.0) -> list[int]:
    """Return the positions of the uploads that stand out, as :func:`outlying`, where an upload is
    several arrays.

    Parameters
    ----------
    arrays: for each array of an upload, that of every upload, in one order. They are looked at
    twice (so no generator), block by block: beside them 64 MiB of memory are taken, or 16 bytes for
    each upload where that is more. Arrays of no numbers that are added (integers, booleans) are
    left out.

    Raises
    ------
    ValueError: an array has another shape than that of the first upload.
    """
    columns = [[np.asarray(array) for array in column] for column in arrays]
    columns = [
        column for column in columns if column and np.issubdtype(column[0].dtype, np.floating)
    ]
    if not columns:
        return []
    finite = np.ones(len(columns[0]), bool)
    for column in columns:
        if any(array.shape != column[0].shape for array in column) or len(column) != len(finite):
            raise ValueError(
                f"got uploads of shapes {sorted({array.shape for array in column})}; expected one "
                "shape"
            )
        finite &= [_finite(array) for array in column]
    distances, size = _distances(columns, np.flatnonzero(finite))
    far = {i for i, d in distances.items() if d > factor * max(_others(distances, i), size)}
    return sorted(far | set(np.flatnonzero(~finite).tolist()))


def _distances(
    columns: list[list[NDArray[Any]]], rows: NDArray[np.int64]
) -> tuple[dict[int, float], float]:
    """Return the distance of each of these uploads from the middle, and the middle's own norm."""
    squares = np.zeros(len(rows))
    size = 0.0
    width = max(_BLOCK // (len(rows) + 1), 1)
    for column in columns if len(rows) else ():
        flat = [column[i].reshape(-1) for i in rows]
        for start in range(0, len(flat[0]), width):
            # the last row is the update of zeros
            block = np.zeros((len(rows) + 1, min(width, len(flat[0]) - start)))
            for row, update in enumerate(flat):
                block[row] = update[start : start + width]
            # a square may be infinite: it stands out
            with np.errstate(over="ignore", invalid="ignore"):
                middle = np.median(block, axis=0)
                size += float(np.square(middle).sum())
                squares += np.square(block[:-1] - middle).sum(axis=1)
    return dict(zip(rows.tolist(), np.sqrt(squares).tolist(), strict=True)), float(np.sqrt(size))


def _others(distances: dict[int, float], i: int) -> float:
    """Return the median distance of all other uploads; infinite where there is none."""
    other_distances = [d for j, d in distances.items() if j != i]
    return float(np.median(other_distances)) if other_distances else np.inf


def _finite(array: NDArray[Any]) -> bool:
    flat = array.reshape(-1)
    return all(
        bool(np.isfinite(flat[start : start + _BLOCK]).all())
        for start in range(0, len(flat), _BLOCK)
    )


def excessive(
    numbers: Mapping[int, Mapping[str, ArrayLike]], factor: float = 1000.0
) -> dict[int, str]:
    """Return the clients that report a number far beyond what the others report under the same
    name, each with what is wrong, as a part of a sentence.

    A number x (of several numbers the largest in absolute value) is far beyond the others' where

        |x| > factor * max(1, median of |y| over the other clients)

    Nothing is said of a name that one client alone reports, and small numbers are never meant: a
    loss of 900 passes where the others' are near 0. NaN is no report.

    Parameters
    ----------
    numbers: client -> name -> what it reports.
    factor: of the guard.

    Example
    -------
    >>> excessive({0: {"loss": 0.5}, 1: {"loss": 2.0}, 2: {"loss": 1e308}})
    {2: "its 'loss' of 1e+308 is more than 1000 times what the other clients report"}
    """
    sizes: dict[str, dict[int, float]] = {}
    for client, reported in numbers.items():
        for name, value in reported.items():
            size = float(np.max(np.abs(np.asarray(value, np.float64)), initial=-1.0))
            if size >= 0:
                sizes.setdefault(name, {})[client] = size
    named: dict[int, str] = {}
    for name, of in sorted(sizes.items()):
        for client, size in of.items():
            # the first comparison spares the median of the others for usual numbers
            if size > factor and size > factor * _others(of, client):
                named.setdefault(
                    client,
                    f"its {name!r} of {size:g} is more than {factor:g} times what the other "
                    "clients report",
                )
    return named


def weight_cap(sizes: ArrayLike, multiple: float = MOST_TIMES) -> float:
    """Return the largest number of samples that counts of what clients say: ``multiple`` times the
    median of the numbers above 0, of two middle ones the lower; infinite where there is none.

    What is above it counts as much as the cap: ``np.minimum(sizes, weight_cap(sizes))``. Half of
    the clients may lie, and the cap is still at most ``multiple`` times the number of an honest
    one.

    >>> weight_cap([100, 120, 2**53, 0])
    1200.0
    """
    claimed = np.asarray(sizes, np.float64)
    claimed = np.sort(claimed[claimed > 0])
    return float(multiple * claimed[(len(claimed) - 1) // 2]) if len(claimed) else np.inf
