"""Sketches: short random projections of long vectors that preserve inner products in expectation.

The sparse Johnson-Lindenstrauss transform in its block form (Kane, Nelson, Journal of the ACM 61,
2014): a count-sketch per row. Row r sends coordinate i to the bucket ``h_r(i)`` with the sign
``s_r(i)``, and the rows are concatenated:

    S x = 1 / sqrt(R) [ sum over i with h_r(i) = b of s_r(i) x_i ]   for r = 1..R, b = 1..W / R

so that ``E <S x, S y> = <x, y>`` with variance of at most ``(|x|^2 |y|^2 + <x, y>^2) / W``. Signs
and buckets are drawn once from a key; sketching costs R additions per coordinate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.keys import Key, Streams

SKETCHES: Mapping[str, int] = MappingProxyType({"sketch": 64, "gradient_sketch": 256})
"""The signals that are sketches, and their widths W."""

ROWS = 4
"""R: rows of a sketch, non-zero numbers in each column of the projection."""
_CHUNK = 1_000_000
"""Coordinates summed at a time; limits temporary memory to 16 MB."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """A fixed projection from ``size`` to ``width`` numbers.

    Parameters
    ----------
    key: the same key gives the same projection.
    size: D.
    width: W, a multiple of 4, at most 512.

    Example
    -------
    >>> sketch = Sketch(Key(0).fold("sketch"), size=1000, width=64)
    >>> x = np.ones(1000)
    >>> sketch.of(x).shape, bool(np.isclose(sketch.of(3 * x), 3 * sketch.of(x)).all())
    ((64,), True)
    """

    key: Key
    size: int
    width: int

    @classmethod
    def signal(cls, name: str, streams: Streams, size: int) -> Sketch:
        """Return the projection of a signal: one per run, a function of its seed (purpose
        ``probe``)."""
        return cls(streams.key("probe").fold("sketch"), size, SKETCHES[name])

    def of(self, vector: ArrayLike) -> NDArray[np.float64]:
        """Return ``S x`` of a vector ``[D]``: float64 ``[W]``, for any type of vector."""
        x = np.asarray(vector)
        codes = _codes(self.key, self.size, self.width)
        places = self.width // ROWS
        out = np.zeros((ROWS, 2 * places))
        # one buffer for all rows: fresh memory costs more than the sums
        held = np.empty(min(self.size, _CHUNK), np.intp)
        for begin in range(0, self.size, _CHUNK):
            part = x[begin : begin + _CHUNK].astype(np.float64)
            for row in range(ROWS):
                where = held[: len(part)]
                where[:] = codes[row, begin : begin + _CHUNK]
                out[row] += np.bincount(where, weights=part, minlength=2 * places)
        folded: NDArray[np.float64] = (out[:, :places] - out[:, places:]).ravel() / np.sqrt(ROWS)
        return folded


@lru_cache(maxsize=4)
def _codes(key: Key, size: int, width: int) -> NDArray[np.uint8]:
    """Return the bucket of every coordinate ``[R, D]``, plus ``W / R`` if its sign is -1."""
    codes = (
        key.fold(width).numpy().integers(0, 2 * (width // ROWS), size=(ROWS, size), dtype=np.uint8)
    )
    codes.flags.writeable = False
    return codes
