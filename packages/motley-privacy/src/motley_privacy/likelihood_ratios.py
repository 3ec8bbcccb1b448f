"""A membership attack on two worlds, and the smallest epsilon that it leaves possible.

The worlds differ in one client, the canary. What an adversary saw becomes one number per trial, the
statistic:

    sum over rounds of   log-odds of the canary's membership (or the log-likelihood ratio of its
                         noisy signals, where they are seen)
                       + log-likelihood ratio of the noised sum, in the rounds whose cohort holds
                         the canary

The log-odds, the threshold and the direction come from the first half of the trials; the second
half gives, with one-sided 97.5 % limits of Clopper and Pearson,
``ln((TPR_low - delta) / FPR_high)``. Reference: docs/privacy.md#attack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Floats

_MISS = 0.025
"""Probability with which each of the two limits is on the wrong side."""


class Observed(NamedTuple):
    """What the adversary saw in n trials of one world.

    Parameters
    ----------
    member: bool ``[n, R]``, whether the canary was in a round's cohort; False throughout where
    cohorts are hidden.
    sums: ``[n]``, log-likelihood ratio of the sums, added over rounds.
    signals: the same of the canary's noisy signals; None where they are not seen.
    """

    member: NDArray[np.bool_]
    sums: Floats
    signals: Floats | None = None


@dataclass(frozen=True)
class Attack:
    """The outcome of an attack.

    Parameters
    ----------
    epsilon: lower bound on epsilon, at least 0.
    ceiling: the largest that so many trials can give.
    threshold: of the statistic.
    above: whether a statistic above the threshold counts as the world ``far``, else one at or below
    it as the world ``near``.
    near, far: ``[n]``, statistics of the second halves.
    """

    epsilon: float
    ceiling: float
    threshold: float
    above: bool
    near: Floats
    far: Floats


def lower_bound(hits: ArrayLike, false_alarms: ArrayLike, trials: int, delta: float) -> Floats:
    """Return ``ln((TPR_low - delta) / FPR_high)``, 0 where it is negative, of counts among
    ``trials`` trials of each world.

    >>> round(float(lower_bound(20_000, 0, 20_000, 1e-5)), 3)
    8.598
    """
    from scipy.special import betaincinv

    k = np.asarray(hits, np.float64)
    j = np.asarray(false_alarms, np.float64)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1.0), trials - k + 1.0, _MISS), 0.0)
    high = np.where(j < trials, betaincinv(j + 1.0, np.maximum(trials - j, 1.0), 1.0 - _MISS), 1.0)
    return np.asarray(np.log(np.maximum(low - delta, high) / high))


def ceiling(trials: int, delta: float) -> float:
    """Return the largest lower bound that ``trials`` trials of each world can give: all hits, no
    false alarm."""
    return float(lower_bound(trials, 0, trials, delta))


def statistics(near: Observed, far: Observed) -> tuple[Floats, Floats]:
    """Return the statistic of every trial, ``[n]`` of each world; log-odds are estimated on the
    first halves, with half a count added to each outcome."""
    if near.signals is not None and far.signals is not None:
        return near.sums + near.signals, far.sums + far.signals
    half = len(near.sums) // 2
    p, q = ((world.member[:half].sum(0) + 0.5) / (half + 1.0) for world in (far, near))
    joined = np.log(p / q)
    absent = np.log((1.0 - p) / (1.0 - q))
    first, second = (
        world.sums + np.where(world.member, joined, absent).sum(1) for world in (near, far)
    )
    return first, second


def sums_alone(seen: Observed) -> Observed:
    """Return what remains for an adversary who makes nothing of cohorts and signals: the sums, of
    whose members it knows.

    >>> sums_alone(Observed(np.ones((1, 2), bool), np.array([0.5]), np.array([3.0])))
    Observed(member=array([[False, False]]), sums=array([0.5]), signals=None)
    """
    return Observed(np.zeros_like(seen.member), seen.sums)


def attacked(near: Observed, far: Observed, delta: float) -> Attack:
    """Return the lower bound on epsilon: threshold and direction from the first halves of the
    trials, counts from the second."""
    half = len(near.sums) // 2
    low, high = statistics(near, far)
    threshold, above = _rule(low[:half], high[:half], delta)
    low = low[half:]
    high = high[half:]
    hits, alarms = _counts(low, high, threshold, above)
    n = len(low)
    return Attack(
        epsilon=float(lower_bound(hits, alarms, n, delta)),
        ceiling=ceiling(n, delta),
        threshold=threshold,
        above=above,
        near=low,
        far=high,
    )


def _rule(near: Floats, far: Floats, delta: float) -> tuple[float, bool]:
    """Return the threshold and the direction with the largest lower bound on these trials."""
    n = len(near)
    values = np.unique(np.concatenate([near, far]))
    # half-way between neighbours
    thresholds = np.append(0.5 * (values[:-1] + values[1:]), values[-1])
    # at or below
    low, high = (
        np.searchsorted(np.sort(trials), thresholds, side="right") for trials in (near, far)
    )
    bounds = np.stack([lower_bound(n - high, n - low, n, delta), lower_bound(low, high, n, delta)])
    way, at = np.unravel_index(int(bounds.argmax()), bounds.shape)
    return float(thresholds[at]), bool(way == 0)


def _counts(near: Floats, far: Floats, threshold: float, above: bool) -> tuple[int, int]:
    """Return hits and false alarms."""
    if above:
        return int((far > threshold).sum()), int((near > threshold).sum())
    return int((near <= threshold).sum()), int((far <= threshold).sum())


def gaussian_ratio(seen: Any, near: Any, far: Any, deviation: float) -> Any:
    """Return the log-likelihood ratio, far over near, of vectors ``[..., d]`` seen with Gaussian
    noise on every coordinate.

    >>> float(gaussian_ratio(np.array([1.0]), np.array([0.0]), np.array([1.0]), 1.0))
    0.5
    """
    return (((seen - near) ** 2 - (seen - far) ** 2) / (2.0 * deviation**2)).sum(-1)


def laplace_ratio(seen: Any, near: Any, far: Any, scale: float) -> Any:
    """Return the log-likelihood ratio, far over near, of numbers seen with Laplace noise.

    >>> float(laplace_ratio(4.0, 0.0, 4.0, 2.0))
    2.0
    """
    return (np.abs(seen - near) - np.abs(seen - far)) / scale


def mixture_ratio(ratio: float, rate: float) -> float:
    """Return the log-likelihood ratio, there over absent, of a client that is there with
    probability ``rate`` and then has ``ratio``.

    >>> round(mixture_ratio(math.log(3.0), 0.5), 6) == round(math.log(2.0), 6)
    True
    """
    return ratio if rate == 1.0 else float(np.logaddexp(math.log1p(-rate), math.log(rate) + ratio))
