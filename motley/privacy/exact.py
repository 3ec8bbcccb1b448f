"""Exact samplers of discrete noise: whole numbers of the operating system's generator, without floating point.

Canonne, Kamath, Steinke, *The Discrete Gaussian for Differential Privacy*, NeurIPS 2020 (arXiv:2004.00010), Algorithms 1 to 3,
for many numbers at once. All arithmetic is in 64-bit integers and cannot overflow for scales up to :data:`LARGEST`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGEST", "discrete_gaussian", "discrete_laplace"]

Whole = NDArray[np.int64]

LARGEST = 2**25
"""The largest scale: squares of numbers of up to 60 scales, 2^62, and 2000 times ``2 scale^2`` stay below 2^63."""
_FAR = 60
"""Scales beyond which a Gaussian number is never accepted: it would be with a probability of exp(-1740)."""
_BLOCK = 2**16


def discrete_laplace(scale: int, n: int) -> Whole:
    """Return n whole numbers x, each with a probability proportional to ``exp(-|x| / scale)``."""
    _check(scale)
    return _accepted(n, lambda m: _laplace(scale, m))


def discrete_gaussian(scale: int, n: int) -> Whole:
    """Return n whole numbers x, each with a probability proportional to ``exp(-x^2 / (2 scale^2))``."""
    _check(scale)
    return _accepted(n, lambda m: _gaussian(scale, m))


def _check(scale: int) -> None:
    if not 1 <= scale <= LARGEST:
        raise ValueError(f"got a scale of {scale}; expected a whole number from 1 to {LARGEST}")


def _accepted(n: int, some: Callable[[int], Whole]) -> Whole:
    """Return n numbers of a sampler that rejects some of those it is asked for."""
    blocks = [np.zeros(0, np.int64)]
    left = n
    while left > 0:
        blocks.append(some(min(_BLOCK, 2 * left + 8)))
        left -= len(blocks[-1])
    return np.concatenate(blocks)[:n]


def _gaussian(scale: int, n: int) -> Whole:
    """Algorithm 3: accept y of the discrete Laplace law with probability ``exp(-(|y| - s)^2 / (2 s^2))``."""
    y = _laplace(scale, n)
    y = y[np.abs(y) < _FAR * scale]
    square, unit = (np.abs(y) - scale) ** 2, 2 * scale**2
    kept = np.flatnonzero(_exponential_coin(square % unit, np.full(len(y), unit)))
    times = square[kept] // unit  # exp(-whole - rest) is exp(-rest), and exp(-1) so many times
    while (more := np.flatnonzero(times > 0)).size:
        lost = more[~_coin_of_e(len(more))]
        times[more] -= 1
        kept, times = np.delete(kept, lost), np.delete(times, lost)
    return np.asarray(y[kept])


def _laplace(scale: int, n: int) -> Whole:
    """Algorithm 2: ``u + scale v`` with a sign, u accepted with probability ``exp(-u / scale)``, v geometric."""
    bounds = np.full(n, scale)
    u = _below(bounds)
    u = u[_exponential_coin(u, bounds)]
    size = u + scale * _geometric(len(u))
    negative = _below(np.full(len(u), 2)) == 1
    signed = np.where(negative, -size, size)
    return np.asarray(signed[~(negative & (size == 0))])  # else 0 would come twice


def _geometric(n: int) -> Whole:
    """Return how often in turn a coin of probability ``exp(-1)`` shows 1."""
    count, going = np.zeros(n, np.int64), np.arange(n)
    while len(going):
        going = going[_coin_of_e(len(going))]
        count[going] += 1
    return count


def _coin_of_e(n: int) -> NDArray[np.bool_]:
    """Return n coins that show 1 with probability ``exp(-1)``."""
    return _exponential_coin(np.ones(n, np.int64), np.ones(n, np.int64))


def _exponential_coin(a: Whole, b: Whole) -> NDArray[np.bool_]:
    """Algorithm 1: return coins that show 1 with probability ``exp(-a / b)``, for 0 <= a <= b."""
    shown, going, k = np.zeros(len(a), bool), np.arange(len(a)), 1
    while len(going):
        on = _below(k * b[going]) < a[going]
        shown[going[~on]] = k % 2 == 1
        going, k = going[on], k + 1
    return shown


def _below(bounds: Whole) -> Whole:
    """Return whole numbers of which each value from 0 to its bound less 1 is equally likely."""
    m = bounds.astype(np.uint64)
    limit = np.uint64(2**63) // m * m
    out, left = np.zeros(len(m), np.uint64), np.arange(len(m))
    while len(left):
        out[left] = np.frombuffer(os.urandom(8 * len(left)), np.uint64) >> np.uint64(1)
        left = left[out[left] >= limit[left]]
    return (out % m).astype(np.int64)
