"""One-sided t tests of claims that make several comparisons, and the deviation that whole numbers
have at least.

A claim holds if each of its k comparisons lies on the claimed side, and fails if one of them lies
on the other. So it is *confirmed* by the weakest comparison alone (an intersection-union test: no
correction is needed), and *refuted* by the strongest contrary one, whose p value counts k times
(Bonferroni). Both errors have the same chance at most, whatever k is and however the comparisons
depend.

>>> of_all([0.001, 0.01], [0.999, 0.99])
Sides(confirms=0.01, refutes=1.0)
>>> of_all([0.999, 0.7], [0.001, 0.3])
Sides(confirms=0.999, refutes=0.002)
"""

from __future__ import annotations

from math import gcd, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

SAME = 1e-9
"""Share of the largest value up to which numbers are equal: what is stored has six digits."""


class Sides(NamedTuple):
    """One-sided p values: that a claim is true shows in a small ``confirms``, that it is false in a
    small ``refutes``."""

    confirms: Any
    refutes: Any


def sides_of(mean: ArrayLike, std: ArrayLike, n: int) -> Sides:
    """Return the p values of one-sided t tests over ``n`` pairs. ``mean``: towards the claimed
    side, any shape; ``std``: above 0."""
    from scipy.special import stdtr

    t = np.asarray(mean, float) * sqrt(n) / np.asarray(std, float)
    return Sides(stdtr(n - 1, -t), stdtr(n - 1, t))


def of_all(confirms: ArrayLike, refutes: ArrayLike) -> Sides:
    """Return the p values of a claim from those of its comparisons [..., k]. NaN is a comparison
    that was not made: such a claim is undecided, and can be refuted by the others."""
    yes = np.asarray(confirms, float)
    no = np.asarray(refutes, float)
    strongest = np.fmin.reduce(no, axis=-1)
    sides = Sides(yes.max(axis=-1), np.minimum(1.0, no.shape[-1] * strongest))
    return Sides(float(sides.confirms), float(sides.refutes)) if yes.ndim == 1 else sides


def least_std(ours: ArrayLike, theirs: ArrayLike | None, off: ArrayLike) -> Any:
    """Return the standard deviation that differences count with at least.

    Whole numbers (rounds, counts) stand on a grid, whose step is their greatest common divisor:
    each says no more than half a step, and a difference of two the root of a half. Without it a few
    equal counts would have no spread and prove anything. Differences of other numbers that are all
    equal count as one step, so that n seeds say about as much as n equal tosses of a coin.

    Parameters
    ----------
    ours, theirs: the numbers of both sides [..., n]; None for theirs where a number is given.
    off: mean differences from the null [...].

    >>> round(least_std([12, 12], [10, 10], 2.0), 4)
    1.4142
    >>> least_std([1, 1, 1], None, 0.5)
    0.5
    """
    x = np.asarray(ours, float)
    if theirs is None:
        both = x
    else:
        both = np.concatenate(np.broadcast_arrays(x, np.asarray(theirs, float)), axis=-1)
    half = 0.5 if theirs is None else sqrt(0.5)
    integral = bool(np.isfinite(both).all()) and bool((both == np.round(both)).all())
    if integral and both.size:
        step = float(gcd(*np.unique(np.abs(both)).astype(np.int64).tolist())) or 1.0
    else:
        step = 0.0
    differences = x if theirs is None else x - np.asarray(theirs, float)
    still = np.ptp(differences, axis=-1) <= SAME * np.abs(both).max(axis=-1)
    steps = np.where(still & (not integral), np.abs(off) / (2 * half**2), step)
    return half * (steps if steps.ndim else float(steps))
