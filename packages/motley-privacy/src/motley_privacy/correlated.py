"""Correlated noise: a part of each sum's noise is taken back in later sums, so that models bear
less.

The banded square root of Kalinin and Lampert, "Banded Square Root Matrix Factorization for
Differentially Private Model Training", NeurIPS 2024 (arXiv:2405.13763), for sums of updates
without momentum. With b bands, the noise on sum t is

    x_t = y_t - round(a_1 x_(t-1) + ... + a_(b-1) x_(t-b+1)),    a_j = c_j / c_0

in whole steps of the noise's grid. Here ``y_t`` is independent Gaussian noise of deviation
``z C / c_0``, and ``c_j = binom(2j, j) / 4^j`` over the norm of all b of them. The model is a sum
of all steps so far, in which most of the noise is taken back.

Account. Given all sums that are seen before, sum t has Gaussian noise of deviation ``z C / c_0``.
An update of norm at most C that entered j sums before moves its mean by ``a_j C``, in units of the
deviation by ``c_j / z``. These are its whole effect, and no other update of the client reaches the
same sums where its updates enter sums at least b apart. The squares of the ``c_j`` add up to 1, so
k updates cost what k sums with independent noise of deviation ``z C`` cost, also where later
updates depend on the sums before: only the squares of the moves count for Gaussian noise. Rounding
adds at most a step to each coordinate, which :func:`inflation` makes good.

>>> coefficients(2)  # 1 and 1/2, over their norm
array([0.89442719, 0.4472136 ])
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from motley.core.arrays import Floats, Ids
from motley_privacy.noise import MOST_STEPS


def coefficients(bands: int) -> Floats:
    """Return c_0 to c_(b-1), of norm 1, ``[bands]``.

    >>> coefficients(1)
    array([1.])
    """
    later = np.arange(1, bands)
    unscaled = np.concatenate([[1.0], np.cumprod((2 * later - 1) / (2 * later))])
    return np.asarray(unscaled / np.linalg.norm(unscaled))


def correlated(drawn: Ids, past: Sequence[Ids], bands: int) -> Ids:
    """Return the noise x_t of a sum, in steps.

    Parameters
    ----------
    drawn: independent noise y_t in steps, ``[n]``.
    past: noise of the sums before in steps, the newest first, at most ``bands - 1`` vectors
    ``[n]``.
    bands: how many successive sums are correlated.
    """
    c = coefficients(bands)
    taken_back = np.zeros(len(drawn))
    for weight, noise in zip(c[1:] / c[0], past, strict=False):
        taken_back += weight * noise
    return np.asarray(drawn - np.rint(taken_back).astype(np.int64))


def inflation(multiplier: float, size: int, bands: int) -> float:
    """Return the factor on the noise that covers rounding; 1 without correlation, infinite where
    none does.

    A step is at most ``2 / MOST_STEPS`` of a sum's deviation. So rounding moves all b sums that an
    update reaches by at most ``r = root(size b) 2 / MOST_STEPS`` in units of that deviation, beside
    the update's own ``1 / (z f)`` under the factor f, and ``1 / (z f) + r = 1 / z`` for
    ``f = 1 / (1 - z r)``.

    Parameters
    ----------
    multiplier: z.
    size: numbers in an upload.
    bands: how many successive sums are correlated.
    """
    if bands == 1:
        return 1.0
    moved = multiplier * math.sqrt(size * bands) * 2.0 / MOST_STEPS
    return 1.0 / (1.0 - moved) if moved < 1.0 else math.inf
