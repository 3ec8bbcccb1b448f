"""Fixed-point numbers whose sum modulo 2^32 or 2^64 is the sum of the numbers.

A number is clipped to ``[-clip, clip]``, mapped to ``[0, 2^bits - 1]`` and rounded up or down at
random, so that its expectation is kept: a number of one update is off by less than
``2 clip / (2^bits - 1)``. A client multiplies its vector by its weight, a whole
number, and appends the weight. The sum of ``clients`` such vectors does not overflow while
``clients * max_weight * (2^bits - 1) < 2^modulus_bits``; anything else is refused when the options
are read. The secure sum equals the plain sum of the same whole numbers bit for bit, whoever drops
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats
from motley.core.errors import ConfigError, RoundAbandonedError

Words = NDArray[Any]
"""Whole numbers modulo 2^32 or 2^64: uint32 or uint64."""
Entropy = Callable[[int], bytes]
"""A number of bytes -> random bytes: ``os.urandom``, or a test's."""


@dataclass(frozen=True)
class FixedPoint:
    """How numbers become whole numbers.

    >>> import os
    >>> code = FixedPoint(clip=1.0, bits=2, clients=3)
    >>> code.encode(np.array([-5.0, 1.0, 1 / 3]), 1, os.urandom).tolist()
    [0, 3, 2, 1]

    Parameters
    ----------
    clip: numbers are clipped to ``[-clip, clip]``.
    bits: of one number, 1 to 24.
    clients: the largest cohort.
    max_weight: the largest weight of a client, a whole number.
    modulus_bits: 32 or 64, the width of a number on the wire.

    Raises
    ------
    ConfigError: an option out of range, or a sum that could overflow.
    """

    clip: float
    bits: int
    clients: int
    max_weight: int = 1
    modulus_bits: int = 32

    def __post_init__(self) -> None:
        if not 0 < self.clip < math.inf:
            raise ConfigError(f"got {self.clip}; expected a finite number above 0", "clip")
        for name, low, high in (("bits", 1, 24), ("clients", 1, 2**20), ("max_weight", 1, 2**40)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ConfigError(
                    f"got {value!r}; expected a whole number from {low} to {high}", name
                )
        if self.modulus_bits not in (32, 64):
            raise ConfigError(f"got {self.modulus_bits}; expected 32 or 64", "modulus_bits")
        if self.clients * self.max_weight * self.levels >= 2**self.modulus_bits:
            raise ConfigError(
                f"the sum of {self.clients} clients with weights up to {self.max_weight} and "
                f"{self.bits} bits needs {self.needed_bits} bits and overflows "
                f"{self.modulus_bits}; set modulus_bits = 64, or lower bits or max_weight",
                "modulus_bits",
            )

    @property
    def levels(self) -> int:
        """The largest encoded number, ``2^bits - 1``."""
        return int(2**self.bits - 1)

    @property
    def needed_bits(self) -> int:
        """The smallest w with ``clients * max_weight * levels < 2^w``."""
        return (self.clients * self.max_weight * self.levels).bit_length()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of an encoded vector, little-endian."""
        return np.dtype("<u4" if self.modulus_bits == 32 else "<u8")

    def encode(self, values: Floats, weight: int, entropy: Entropy) -> Words:
        """Return the encoded vector times its weight, and the weight: n + 1 whole numbers.

        Parameters
        ----------
        values: finite numbers, [n].
        weight: 1 to ``max_weight``.
        entropy: of the rounding.

        Raises
        ------
        ConfigError: a weight out of range, or a number that is not finite.
        """
        if not 1 <= weight <= self.max_weight:
            raise ConfigError(
                f"got a weight of {weight}; expected 1 to max_weight = {self.max_weight}",
                "max_weight",
            )
        vector = np.asarray(values, np.float64)
        if not np.isfinite(vector).all():
            raise ConfigError("got a vector that is not finite; nothing of it is sent", "clip")
        clipped = np.clip(vector, -self.clip, self.clip)
        scaled = (clipped + self.clip) * (self.levels / (2 * self.clip))
        draws = np.frombuffer(entropy(4 * len(scaled)), "<u4") / 2.0**32
        rounded = np.minimum(np.floor(scaled + draws), self.levels).astype(np.uint64)
        words: Words = np.append(rounded, np.uint64(1)) * np.uint64(weight)
        return words.astype(self.dtype)

    def decode(self, total: Words) -> tuple[Floats, int]:
        """Return the weighted mean, [n], and the sum of the weights from a sum of encoded vectors,
        [n + 1].

        Raises
        ------
        ConfigError: a sum of weights of 0. RoundAbandonedError: a number that clients cannot send
        within the clip.
        """
        weight = int(total[-1])
        if weight == 0:
            raise ConfigError("got a sum of no clients; expected at least one", "clients")
        if int(total[:-1].max(initial=0)) > weight * self.levels:
            raise RoundAbandonedError(
                f"a sum of weight {weight} lies outside of what clients can send within the clip: "
                "a client told an untruth, or its share was wrong; the sum is thrown away"
            )
        return total[:-1].astype(np.float64) * (
            2 * self.clip / self.levels
        ) / weight - self.clip, weight
