"""Rounding before a comparison decides: computed numbers that are equal but for rounding count as
equal.

A rule that ranks clients by a computed number, or asks which of two is larger, would else follow
the last bits, which differ between engines, thread counts and machines. Every such comparison goes
through :func:`rounded`, and a tie is broken as the rule says, by client id where it says nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats

DIGITS = 34
"""Significant binary digits that a comparison sees: ten decimal ones, more than float32 has and
fewer than a run in float64 shares with the same run on another engine."""
_DROPPED = 53 - DIGITS  # of float64's 53


def rounded(values: NDArray[np.floating]) -> Floats:
    """Return the numbers in float64, rounded to :data:`DIGITS` significant binary digits; infinite
    ones and NaN stay.

    >>> values = np.array([0.1 + 0.2, 0.3, np.inf, -0.0])
    >>> bool(values[0] == values[1]), bool(rounded(values)[0] == rounded(values)[1])
    (False, True)
    """
    out = np.array(values, dtype=np.float64)
    finite = np.isfinite(out)
    # sign and magnitude: half of the last kept digit rounds both signs away from zero
    bits = (out.view(np.int64) + (1 << (_DROPPED - 1))) & -(1 << _DROPPED)
    return np.where(finite, bits.view(np.float64), out)


def deviations(points: Floats) -> Floats:
    """Return the points ``[n, d]`` less their mean; a difference of the size of rounding is 0.

    >>> deviations(np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])).tolist()
    [[0.0, -1.0], [0.0, 0.0], [0.0, 1.0]]
    """
    out = points - points.mean(axis=0)
    out[np.abs(out) <= 2.0**-DIGITS * np.abs(points).max(axis=0)] = 0.0
    return np.asarray(out)
