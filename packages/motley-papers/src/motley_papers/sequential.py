"""Tests that are looked at after every seed: how much of the level each look may spend, so that
looking does not deceive.

After a share t of the planned pairs the chance of a false decision so far is, on each side,
``2 - 2 Phi(z / sqrt(t))``, which ends at half the level: the spending function that resembles
O'Brien and Fleming's bounds (K. K. G. Lan, D. L. DeMets, Discrete sequential boundaries for
clinical trials, Biometrika 1983). Almost nothing is spent early, nearly all at the end. There is a
look at every number of pairs from two to the most; one that is not taken spends nothing, so it does
not matter which were.

The level of a look is found for normal differences of known variance, and used for the t test with
its degrees of freedom. With five equally spaced looks at 5 % the bounds are 4.877, 3.357, 2.680,
2.290 and 2.031:

>>> [round(bound, 3) for bound in boundaries([0.2, 0.4, 0.6, 0.8, 1.0], 0.05)]
[4.877, 3.357, 2.68, 2.29, 2.031]

A plan that is lengthened after its results were seen has spent its 5 % already.
:class:`SpendingPlan` lets the first lengthening spend 0.8 % more, the second 0.16 %, each a fifth
of the one before: 6 % at most for the plan and all that is ever added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley_papers.power import LEVEL

_NODES = 64
"""Points of the quadrature over the values that a test can have reached."""
_LEAST = 1e-6
"""The smallest p value that is told apart."""
_SPENT = 5 / 6
"""The share of the level that is spent: t statistics of few pairs pass these bounds up to 15 % more
often than normal ones, in simulations of three to fifty pairs."""


def boundaries(times: Sequence[float], level: float) -> list[float]:
    """Return the bound of the standard normal statistic at each look, two-sided.

    Parameters
    ----------
    times: shares of the planned information at the looks, rising, the last 1.
    level: of all looks together, in (0, 1).
    """
    from scipy.special import ndtr, ndtri

    side = -float(ndtri(level / 4))
    points = np.polynomial.legendre.leggauss(_NODES)
    places = np.zeros(1)
    mass = np.ones(1)
    before = 0.0
    spent = 0.0
    bounds = []
    for time in times:
        step = sqrt(time - before)
        total = 4 * float(ndtr(-side / sqrt(time)))
        low = 0.0
        high = 40.0 * sqrt(time)
        for _ in range(60):  # the value beyond which the rest of what may be spent lies
            middle = (low + high) / 2
            beyond = float(
                mass @ (ndtr((places - middle) / step) + ndtr((-middle - places) / step))
            )
            low, high = (middle, high) if beyond > total - spent else (low, middle)
        reached = high * points[0]
        mass = (
            (high * points[1])
            * (np.exp(-((reached[:, None] - places) ** 2) / (2 * step**2)) @ mass)
            / (step * sqrt(2 * np.pi))
        )
        places = reached
        before = time
        spent = total
        bounds.append(high / sqrt(time))
    return bounds


@cache
def _levels(most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return levels of all looks together [k], rising, and the two-sided level of each single look
    [looks, k], from two pairs on."""
    from scipy.special import ndtr

    overall = np.unique(np.append(np.geomspace(_LEAST, 1.0, 37), LEVEL))
    times = [n / most for n in range(2, most + 1)]
    return overall, np.stack(
        [2 * ndtr(-np.array(boundaries(times, level * _SPENT))) for level in overall], axis=1
    )


def level_at(n: int, most: int, overall: float = LEVEL) -> float:
    """Return the two-sided level of the look at ``n`` pairs of at most ``most``, where all looks
    together have the level ``overall``.

    Levels between those of a grid, which has 5 %, are interpolated.
    """
    grid, levels = _levels(most)
    return float(
        np.exp(np.interp(np.log(overall), np.log(grid), np.log(np.maximum(levels[n - 2], 1e-300))))
    )


def sequential_p(p: float, n: int, most: int) -> float:
    """Return the p value of a sequence of looks: the smallest level of all looks together at which
    this one, with the p value ``p`` at ``n`` pairs of at most ``most``, decides. It is not above 5
    % just where p is not above :func:`level_at`.

    Levels between those of a grid are interpolated; none is below 1e-6.
    """
    overall, levels = _levels(most)
    single = np.log(np.maximum(levels[n - 2], 1e-300))
    return (
        float(np.exp(np.interp(np.log(max(p, 1e-300)), single, np.log(overall)))) if p == p else p
    )


class SpendingPlan(NamedTuple):
    """When results were, or may be, looked at.

    Parameters
    ----------
    ends: pairs at the end of the plan, then at the end of each lengthening, rising.
    each: whether there may be a look after every pair; otherwise there is one at each end.

    Example
    -------
    ``SpendingPlan((5, 13, 20), each=False).level(20)`` is 0.0016: the second lengthening of a plan
    of five.
    """

    ends: tuple[int, ...]
    each: bool = True

    @property
    def most(self) -> int:
        """The most pairs there may be."""
        return self.ends[-1]

    def share(self, n: int) -> float:
        """Return the share of the level that ``n`` pairs may spend: 1 as planned, 0.16 after the
        first lengthening, then a fifth."""
        times = sum(n > end for end in self.ends[:-1])
        return 1.0 if times == 0 else 0.8 * 0.2**times

    def level(self, n: int, overall: float = LEVEL) -> float:
        """Return the two-sided level of a look at ``n`` pairs, at least two, where the plan has the
        level ``overall``."""
        spent = overall * self.share(n)
        return level_at(n, self._end(n), spent) if self.each else spent

    def p(self, p: float, n: int) -> float:
        """Return the two-sided p value that allows for the looks, from that of one look at ``n``
        pairs, at least two."""
        return min(1.0, (sequential_p(p, n, self._end(n)) if self.each else p) / self.share(n))

    def _end(self, n: int) -> int:
        return next((end for end in self.ends if n <= end), self.most)
