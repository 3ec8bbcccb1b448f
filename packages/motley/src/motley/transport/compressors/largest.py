"""The k largest values of a long vector in O(D): exact, ties go to the lowest index, the same on
every machine.

A strided sample brackets the k-th largest value, which is then found among the values within the
bracket. Where the bracket misses it (values that depend on their index) the whole vector is
partitioned instead; the result is the same.

>>> import numpy as np
>>> largest(np.array([1.0, 3.0, 3.0, 2.0, 3.0]), 2).tolist()
[1, 2]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SHORT = 1 << 16
_SAMPLE = 1 << 14
_SPREAD = 5.0  # standard deviations of a sample quantile's rank on either side


def largest(score: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return the indices of the ``k`` largest of ``score`` ``[D]`` (no NaN), ascending; of equal
    values the first."""
    if k >= len(score):
        return np.arange(len(score))
    if k <= 0:
        return np.zeros(0, np.int64)
    bar = _kth(score, k)
    above = np.flatnonzero(score > bar)
    equal = np.flatnonzero(score == bar)[: k - len(above)]
    return np.insert(above, np.searchsorted(above, equal), equal)


def _kth(score: NDArray[Any], k: int) -> Any:
    """Return the k-th largest value."""
    if len(score) < _SHORT:
        return _partitioned(score, k)
    sample = np.sort(score[:: len(score) // _SAMPLE])
    n = len(sample)
    share = 1.0 - k / len(score)
    margin = _SPREAD * (n * share * (1.0 - share)) ** 0.5 + 2.0
    low = int(n * share - margin)
    high = int(n * share + margin) + 1
    fits = np.flatnonzero(score >= sample[low]) if low >= 0 else np.arange(len(score))
    inside = score[fits]
    above = 0
    if high < n:
        below = inside <= sample[high]
        above = len(inside) - int(np.count_nonzero(below))
        inside = inside[np.flatnonzero(below)]
    if 0 < k - above <= len(inside):
        return _partitioned(inside, k - above)
    return _partitioned(score, k)


def _partitioned(score: NDArray[Any], k: int) -> Any:
    at = len(score) - k
    return np.partition(score, at)[at]
