"""Noise: from a secret of the run in simulations, from the operating system in deployments.

Gaussian and Laplace noise is a whole number of steps of a grid, and so is what it is added to:
which numbers can come out does not depend on the value, so that their low bits tell nothing
(Mironov, CCS 2012). A step is a power of two, 2^-25 to 2^-24 of the scale. The numbers of steps
have the discrete laws of :mod:`motley_privacy.discrete`; under ``privacy.noise_seed``, for tests
and comparisons, they are quantiles in float64 of a key, rounded. Reference: docs/privacy.md#noise.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Floats
from motley.core.keys import Key, normal_quantile
from motley.core.records import HISTOGRAM, NoiseLaw
from motley_privacy.discrete import Entropy, discrete_gaussian, discrete_laplace
from motley_privacy.options import SignalNoise

MOST_STEPS = 2**25
"""Most steps of the grid in a scale; it has more than half as many."""
_MOST = 2.0**31
"""Largest number of samples of one label that counts."""
_FINEST = 2.0**-31
"""Smallest step of shares: counts times steps stay below 2^63."""


NoiseOrigin = Literal["secret", "noise_seed", "system"]
"""Where a run's noise comes from: the secret of its folder, ``privacy.noise_seed``, or the
operating system at every draw."""


class Source(Protocol):
    """What noise is drawn from: a :class:`~motley.core.keys.Key`, :class:`SecretRandomness`, or
    :class:`SystemRandomness`."""

    def fold(self, *parts: int | str) -> Source:
        """Return the source of one purpose."""

    def uniform(self, ids: ArrayLike, n: int = 1) -> NDArray[np.float64]:
        """Return uniform numbers strictly inside (0, 1), ``[len(ids), n]``."""


class SystemRandomness:
    """The operating system's generator (``os.urandom``), which no seed repeats.

    Noise on a grid is drawn exactly; ``uniform`` serves Gumbel noise alone, which is in floating
    point."""

    def fold(self, *parts: int | str) -> SystemRandomness:
        """Return itself: every draw is new anyway."""
        return self

    def uniform(self, ids: ArrayLike, n: int = 1) -> NDArray[np.float64]:
        """Return uniform numbers strictly inside (0, 1), ``[len(ids), n]``; the ids only say how
        many."""
        return _uniform(os.urandom, ids, n)


@dataclass(frozen=True)
class SecretRandomness:
    """Random bytes that are a function of a secret and a path, which only whoever has the secret
    can repeat.

    The secret of a longer path is a keyed BLAKE2b hash (RFC 7693) of its new part; the bytes of one
    are the output of SHAKE-256 (FIPS 202) on the secret and a counter. So what was drawn for one
    path tells nothing of another one.

    Parameters
    ----------
    secret: 32 bytes of the operating system's generator.

    >>> once, again = SecretRandomness(bytes(32)), SecretRandomness(bytes(32))
    >>> entropy_of(once.fold("step", 1))(4) == entropy_of(again.fold("step", 1))(4)
    True
    """

    secret: bytes = field(repr=False)

    def fold(self, *parts: int | str) -> SecretRandomness:
        """Return the randomness of a longer path."""
        secret = self.secret
        for part in parts:
            kind = "text" if isinstance(part, str) else "number"
            text = f"{kind} {part}".encode()
            secret = hashlib.blake2b(text, key=secret, digest_size=32).digest()
        return SecretRandomness(secret)

    def uniform(self, ids: ArrayLike, n: int = 1) -> NDArray[np.float64]:
        """Return uniform numbers strictly inside (0, 1), ``[len(ids), n]``; the ids only say how
        many."""
        return _uniform(entropy_of(self), ids, n)

    @property
    def commitment(self) -> str:
        """32 hex digits that only this secret has, and that tell nothing of it."""
        return self.fold("commitment").secret[:16].hex()


def entropy_of(source: Source | Key) -> Entropy:
    """Return a function that returns the next bytes of a source."""
    if isinstance(source, Key):
        return source.numpy().bytes
    if not isinstance(source, SecretRandomness):
        return os.urandom
    calls = itertools.count()

    def following(count: int) -> bytes:
        """Return the next ``count`` bytes."""
        return hashlib.shake_256(source.secret + next(calls).to_bytes(8, "little")).digest(count)

    return following


def _uniform(entropy: Entropy, ids: ArrayLike, n: int) -> NDArray[np.float64]:
    """Return uniform numbers strictly inside (0, 1) of random bytes, ``[len(ids), n]``."""
    rows = len(np.atleast_1d(np.asarray(ids)))
    words = np.frombuffer(entropy(8 * rows * n), np.uint64) >> np.uint64(12)
    return np.asarray((words.astype(np.float64) + 0.5) * 2.0**-52).reshape(rows, n)


def noise(source: Source | Key, ids: ArrayLike, law: NoiseLaw) -> Floats:
    """Return noise of scale 1, ``[len(ids)]``, by inversion: Laplace's b, the Gaussian's standard
    deviation, Gumbel's beta is 1.

    >>> noise(Key(0), [3, 5], "laplace").shape
    (2,)
    """
    u = source.uniform(ids)[:, 0]
    if law == "gumbel":
        return np.asarray(-np.log(-np.log(u)))
    if law == "laplace":
        return np.asarray(-np.sign(u - 0.5) * np.log1p(-2.0 * np.abs(u - 0.5)))
    return normal_quantile(u)


def grid(scale: float) -> tuple[float, int]:
    """Return the step of the grid for noise of this scale, a power of two, and the scale in steps,
    rounded up to a whole number.

    >>> grid(1.5)
    (5.960464477539063e-08, 25165824)
    """
    step = math.ldexp(1.0, math.frexp(scale)[1] - MOST_STEPS.bit_length() + 1)
    return step, math.ceil(scale / step)


def noise_steps(
    source: Source | Key, ids: ArrayLike, law: NoiseLaw, scale: int
) -> NDArray[np.int64]:
    """Return Laplace or Gaussian noise as whole numbers of steps, ``[len(ids)]``.

    Parameters
    ----------
    scale: in steps, as :func:`grid` returns it.
    """
    if isinstance(source, Key):
        return np.rint(scale * noise(source, ids, law)).astype(np.int64)
    exact = discrete_laplace if law == "laplace" else discrete_gaussian
    return exact(len(np.atleast_1d(np.asarray(ids))), scale, entropy_of(source))


def bounded(value: Floats, how: SignalNoise) -> Floats:
    """Return values clipped to the interval of their signal; what is not finite becomes its middle.

    >>> bounded(np.array([7.0, np.nan]), SignalNoise(5.0, 0.0, 4.0))
    array([4., 2.])
    """
    low, high = how.interval
    return np.clip(np.where(np.isfinite(value), value, 0.5 * (low + high)), low, high)


def released(
    source: Source | Key, ids: ArrayLike, name: str, value: Floats, how: SignalNoise
) -> Floats:
    """Return a signal of n clients as each of them sends it: clipped, on a grid, and with noise; a
    histogram as noisy shares.

    The interval has an even number of steps, at most as many as fit into its width, so that its
    middle is on the grid, too. Gumbel noise is the server's and in floating point.

    Parameters
    ----------
    ids: ``[n]``.
    name: of the signal.
    value: ``[n]``, or counts of labels ``[n, C]``.
    """
    if name == HISTOGRAM:
        return noisy_shares(source, ids, value, how.scale)
    if how.noise == "gumbel":
        return bounded(value, how) + how.scale * noise(source, ids, how.noise)
    step, scale = grid(how.scale)
    half = how.width / step // 2
    middle = 0.5 * sum(how.interval)
    moved = np.clip(np.rint((bounded(value, how) - middle) / step), -half, half).astype(np.int64)
    return np.asarray(middle + step * (moved + noise_steps(source, ids, how.noise, scale)))


def noisy_shares(source: Source | Key, ids: ArrayLike, counts: Floats, scale: float) -> Floats:
    """Return shares of labels with Laplace noise of this scale on each, clipped at 0 and made to
    sum to 1 again, ``[n, C]``.

    A client without counts, or with counts that are not finite, sends zeros and noise. A row of
    which nothing is left is NaN. Shares are rounded down to the grid, so that their sum is at most
    1 there.

    Parameters
    ----------
    ids: ``[n]``.
    counts: ``[n, C]`` of labels.
    """
    clipped = np.clip(np.where(np.isfinite(counts), counts, 0.0), 0.0, _MOST).astype(np.int64)
    step = max(grid(scale)[0], _FINEST)
    shares = clipped * math.floor(1.0 / step) // np.maximum(clipped.sum(axis=1, keepdims=True), 1)
    steps = math.ceil(scale / step)
    drawn = [
        noise_steps(source.fold(label), ids, "laplace", steps) for label in range(counts.shape[1])
    ]
    return _shares(np.maximum(shares + np.stack(drawn, axis=1), 0).astype(np.float64), np.nan)


def _shares(values: Floats, empty: float) -> Floats:
    """Return rows over their sums; rows of zeros become ``empty``."""
    total = values.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(values, total, out=np.full(values.shape, empty), where=total > 0))
