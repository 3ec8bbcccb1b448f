"""Draw discrete Gaussian and Laplace noise exactly: no floating-point number decides anything.

Canonne, Kamath, Steinke: *The Discrete Gaussian for Differential Privacy*, NeurIPS 2020
(arXiv:2004.00010), Algorithms 1 to 3, for whole arrays at a time. Every decision compares whole
numbers that are uniform below a whole number, so the law is exact as far as the bytes are random.
Rejection takes a time that depends on the numbers drawn, not on what they are added to.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Entropy = Callable[[int], bytes]
"""A number of bytes -> random bytes: ``os.urandom``, a key's in a simulation, or a test's."""
Integers = NDArray[np.int64]
Coin = Callable[[Integers], NDArray[np.bool_]]
"""Positions -> one biased coin for each."""
LARGEST = 2**40
"""Largest sigma or scale: up to here no product or sum below leaves 63 bits."""


def discrete_gaussian(n: int, sigma: int, entropy: Entropy = os.urandom) -> Integers:
    """Return n whole numbers x, each with probability proportional to ``exp(-x^2 / (2 sigma^2))``.

    Parameters
    ----------
    n: how many.
    sigma: a whole number from 1 to 2^40.
    entropy: where the bytes come from.

    Raises
    ------
    ValueError: another sigma.
    """
    _check(sigma)

    def draw(most: int) -> Integers:
        drawn = _laplace(most, sigma, entropy)
        return drawn[_accepted(np.abs(np.abs(drawn) - sigma), sigma, entropy)]

    return _exactly(n, draw)


def discrete_laplace(n: int, scale: int, entropy: Entropy = os.urandom) -> Integers:
    """Return n whole numbers x, each with probability proportional to ``exp(-|x| / scale)``.

    Parameters
    ----------
    n: how many.
    scale: a whole number from 1 to 2^40.
    entropy: where the bytes come from.

    Raises
    ------
    ValueError: another scale.
    """
    _check(scale)
    return _exactly(n, lambda most: _laplace(most, scale, entropy))


def _exactly(n: int, draw: Callable[[int], Integers]) -> Integers:
    """Return n numbers of a function that returns at most as many as it is asked for."""
    chunks = []
    left = n
    while left:
        chunk = draw(2 * left + 16)[:left]
        chunks.append(chunk)
        left -= len(chunk)
    return np.concatenate(chunks) if chunks else np.zeros(0, np.int64)


def _check(scale: int) -> None:
    if not 1 <= scale <= LARGEST:
        raise ValueError(f"got a scale of {scale}; expected a whole number from 1 to 2^40")


def _laplace(n: int, scale: int, entropy: Entropy) -> Integers:
    """Return at most n whole numbers x, each with probability proportional to
    ``exp(-|x| / scale)``.

    Algorithm 2: ``u + scale v`` with u below the scale and v geometric, and a sign.
    """
    u = _below(scale, n, entropy)
    u = u[_survives(n, lambda at: _below(scale, len(at), entropy) < u[at], entropy)]
    v = np.zeros(len(u), np.int64)
    alive = np.arange(len(u))
    while len(alive):  # heads of probability exp(-1) before the first tail
        alive = alive[_survives(len(alive), lambda at: np.ones(len(at), bool), entropy)]
        v[alive] += 1
    x = u + scale * v
    negative = _below(2, len(u), entropy) == 1
    valid = ~(negative & (x == 0))  # else zero would come twice as often
    return np.asarray(np.where(negative, -x, x)[valid])


def _accepted(a: Integers, sigma: int, entropy: Entropy) -> NDArray[np.bool_]:
    """Return one coin for each distance a, of probability ``exp(-a^2 / (2 sigma^2))``.

    With ``a = q sigma + r`` this is ``exp(-1/2)`` to the q^2, ``exp(-r / sigma)`` to the q, and
    ``exp(-(r / sigma)^2 / 2)``: one coin for each factor, and no square that could overflow.
    """
    q, r = np.divmod(a, sigma)

    def share(at: Integers) -> NDArray[np.bool_]:  # r / sigma
        return np.asarray(_below(sigma, len(at), entropy) < r[at])

    def half(at: Integers) -> NDArray[np.bool_]:
        return np.asarray(_below(2, len(at), entropy) == 0)

    alive = np.arange(len(a))
    alive = alive[_survives(len(a), lambda at: share(at) & share(at) & half(at), entropy)]
    alive = _repeated(alive, q, share, entropy)
    alive = _repeated(alive, q**2, half, entropy)
    accepted = np.zeros(len(a), bool)
    accepted[alive] = True
    return accepted


def _repeated(alive: Integers, times: Integers, coin: Coin, entropy: Entropy) -> Integers:
    """Return those of the positions whose coins ``exp(-p)`` are heads as often as ``times``
    says."""
    done = []
    left = alive
    count = 0
    while len(left):
        more = times[left] > count
        done.append(left[~more])
        left = left[more]
        count = count + 1
        left = left[_survives(len(left), lambda at, left=left: coin(left[at]), entropy)]  # type: ignore[misc]
    return np.concatenate(done) if done else alive


def _survives(n: int, coin: Coin, entropy: Entropy) -> NDArray[np.bool_]:
    """Return n coins of probability ``exp(-p)``, where ``coin`` throws ones of probability p <= 1.

    Algorithm 1: the number k of the first tail among coins of probability p / k is odd.
    """
    out = np.zeros(n, bool)
    alive = np.arange(n)
    k = 1
    while len(alive):
        heads = coin(alive)
        if k > 1:
            heads &= _below(k, len(alive), entropy) == 0
        out[alive[~heads]] = k % 2 == 1
        alive = alive[heads]
        k = k + 1
    return out


def _below(limit: int, n: int, entropy: Entropy) -> Integers:
    """Return n whole numbers, uniform from 0 to ``limit - 1``: bits that are too large are drawn
    anew."""
    bits = (limit - 1).bit_length()
    width = next(w for w in (1, 2, 4, 8) if 8 * w >= bits)
    chunks = []
    left = n if bits else 0
    while left:
        ask = int(left * 2.0**bits / limit * 1.02) + 8
        words = np.frombuffer(entropy(width * ask), f"<u{width}") & ((1 << bits) - 1)
        accepted = words[words < limit][:left]
        chunks.append(accepted.astype(np.int64))
        left -= len(accepted)
    return np.concatenate(chunks) if chunks else np.zeros(n, np.int64)
