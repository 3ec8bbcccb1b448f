"""Noise: a function of a key in simulations, from the operating system in deployments."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Floats
from motley.core.keys import Key, normal_quantile
from motley.privacy.options import HISTOGRAM, NoiseLaw, SignalNoise

__all__ = ["Source", "SystemRandomness", "bounded", "noise", "noisy_shares", "released"]

_MOST = 1e15
"""Counts above it count as it: their sum stays finite."""


class Source(Protocol):
    """What noise is drawn from: a :class:`~motley.core.keys.Key`, or :class:`SystemRandomness`."""

    def fold(self, *parts: int | str) -> Source:
        """Return the source of one purpose."""

    def uniform(self, ids: ArrayLike, n: int = 1) -> NDArray[np.float64]:
        """Return uniform numbers strictly inside (0, 1), ``[len(ids), n]``."""


class SystemRandomness:
    """The operating system's generator (``os.urandom``), which no seed repeats."""

    def fold(self, *parts: int | str) -> SystemRandomness:
        """Return itself: every draw is new anyway."""
        return self

    def uniform(self, ids: ArrayLike, n: int = 1) -> NDArray[np.float64]:
        """Return uniform numbers strictly inside (0, 1), ``[len(ids), n]``; the ids only say how many."""
        rows = len(np.atleast_1d(np.asarray(ids)))
        words = np.frombuffer(os.urandom(8 * rows * n), np.uint64) >> np.uint64(12)
        return np.asarray((words.astype(np.float64) + 0.5) * 2.0**-52).reshape(rows, n)


def noise(source: Source | Key, ids: ArrayLike, law: NoiseLaw) -> Floats:
    """Return noise of scale 1, ``[len(ids)]``, by inversion: Laplace's b, the Gaussian's standard deviation, Gumbel's beta is 1.

    >>> noise(Key(0), [3, 5], "laplace").shape
    (2,)
    """
    u = source.uniform(ids)[:, 0]
    if law == "gumbel":
        return np.asarray(-np.log(-np.log(u)))
    if law == "laplace":
        return np.asarray(-np.sign(u - 0.5) * np.log1p(-2.0 * np.abs(u - 0.5)))
    return normal_quantile(u)


def bounded(value: Floats, how: SignalNoise) -> Floats:
    """Return values clipped to the interval of their signal; what is not finite becomes its middle.

    >>> bounded(np.array([7.0, np.nan]), SignalNoise(5.0, 0.0, 4.0))
    array([4., 2.])
    """
    low, high = how.interval
    return np.clip(np.where(np.isfinite(value), value, 0.5 * (low + high)), low, high)


def released(source: Source | Key, ids: ArrayLike, name: str, value: Floats, how: SignalNoise) -> Floats:
    """Return a signal of n clients as each of them sends it: clipped and with noise, a histogram as noisy shares.

    Parameters
    ----------
    ids: ``[n]``. name: of the signal. value: ``[n]``, or counts of labels ``[n, C]``.
    """
    if name == HISTOGRAM:
        return noisy_shares(source, ids, value, how.scale)
    return bounded(value, how) + how.scale * noise(source, ids, how.noise)


def noisy_shares(source: Source | Key, ids: ArrayLike, counts: Floats, scale: float) -> Floats:
    """Return shares of labels with Laplace noise of this scale on each, clipped at 0 and made to sum to 1 again, ``[n, C]``.

    A client without counts, or with counts that are not finite, sends zeros and noise. A row of which nothing is left is NaN.

    Parameters
    ----------
    ids: ``[n]``. counts: ``[n, C]`` of labels.
    """
    known = np.clip(np.where(np.isfinite(counts), counts, 0.0), 0.0, _MOST)
    drawn = np.stack([noise(source.fold(label), ids, "laplace") for label in range(counts.shape[1])], axis=1)
    return _shares(np.maximum(_shares(known, 0.0) + scale * drawn, 0.0), np.nan)


def _shares(values: Floats, empty: float) -> Floats:
    """Return rows over their sums; rows of zeros become ``empty``."""
    total = values.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(values, total, out=np.full(values.shape, empty), where=total > 0))
