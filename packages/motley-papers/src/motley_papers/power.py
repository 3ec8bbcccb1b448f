"""What a number of seeds can tell: p values of paired t tests, the difference that can be resolved,
the seeds that one needs.

A two-sided t test of n paired differences with standard deviation s finds a true difference d with
the chance that a noncentral t with n - 1 degrees of freedom and noncentrality ``d sqrt(n) / s``
exceeds the critical value. With many seeds the noncentrality that is found in 80 % of cases at 5 %
is 1.960 + 0.842:

>>> round(resolvable(1.0, 1_000_000) * 1000, 3)
2.802
>>> resolvable(2.0, 5) > resolvable(2.0, 20)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, nan, sqrt

from motley.results.measures import Spread

LEVEL = 0.05
"""The two-sided level of tests."""
POWER = 0.8
"""The chance with which a difference that counts as resolvable is found."""
_FAR = 1e3
"""A critical value beyond which the chance of the mean is nothing beside that of its estimated
deviation: t is the noncentrality over the root of a chi-squared number by its degrees of
freedom."""
MOST_PAIRS = 100_000
"""Pairs beyond which it is only said that more are needed."""


def p_value(differences: Spread, null: float = 0.0) -> float:
    """Return the two-sided p value of a t test that the mean of differences is ``null``; NaN for
    fewer than two.

    Without any spread it is 0, or 1 where the mean is the null.
    """
    n = differences.n
    off = differences.mean - null
    if n < 2:
        return nan
    if differences.std == 0:
        return float(off == 0)
    from scipy.special import stdtr

    return float(2 * stdtr(n - 1, -abs(off) * sqrt(n) / differences.std))


def resolvable(std: float, n: int, level: float = LEVEL, power: float = POWER) -> float:
    """Return the smallest true difference that ``n`` pairs find with this power, if their
    differences have this standard deviation; NaN for fewer than two pairs. The chance to find it
    with the wrong sign, below 1e-4, is left out."""
    if n < 2 or not isfinite(std):
        return nan
    from scipy.special import chdtri, nctdtrinc, stdtrit

    critical = -float(stdtrit(n - 1, level / 2))
    if critical > _FAR:  # where nctdtrinc is not exact, and from 1e5 on does not end
        off = critical * sqrt(chdtri(n - 1, 1 - power) / (n - 1))
    else:
        off = float(nctdtrinc(n - 1, 1 - power, critical))
    return off * std / sqrt(n)


def pairs_needed(
    difference: float, std: float, level: float = LEVEL, power: float = POWER
) -> float:
    """Return the number of pairs that find a true difference with this power: infinite for none,
    NaN where the spread is unknown, and infinite above :data:`MOST_PAIRS`."""
    if not (isfinite(difference) and isfinite(std)):
        return nan
    if abs(difference) < resolvable(std, MOST_PAIRS, level, power) or difference == 0:
        return inf
    few = 1
    enough = MOST_PAIRS
    while enough - few > 1:
        middle = (few + enough) // 2
        if resolvable(std, middle, level, power) <= abs(difference):
            few, enough = (few, middle)
        else:
            few, enough = (middle, enough)
    return enough


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p values: at a level, one among several is rejected if its adjusted
    value is not above it, and the chance of any false rejection is at most the level. NaN stays,
    and does not count.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    tested = sorted((p, i) for i, p in enumerate(p_values) if isfinite(p))
    out = [nan] * len(p_values)
    least = 0.0
    for rank, (p, i) in enumerate(tested):
        least = max(least, min(1.0, p * (len(tested) - rank)))
        out[i] = least
    return out
