"""Bits that other encodings of an update would take: columns of the comparison with the wire
format, never what a run bills, because their lengths depend on values.

Reference: docs/methods/compression.md#bits. Bits, without heads; ``size`` N, ``kept`` kappa, values
of 32 bits.

    papers' account   32 theta N                                  positions are free
    list              kappa (32 + ceil(log2 N))
    bitmap            32 kappa + N
    dense             32 N
    Golomb            kappa (32 + b),  b = b* + 1 / (1 - (1 - p)^(2^b*)),
                      b* = 1 + floor(log2(ln(phi - 1) / ln(1 - p))) >= 0
    entropy           kappa 32 + N H(p), the least average of any encoding of random positions
    Elias (QSGD)      32 + (3 + 1.5 log2(2 (s^2 + N) / (s (s + sqrt N)))) s (s + sqrt N)

INTERPRETATION-R: Golomb after Sattler et al., IEEE TNNLS 2019, for a random mask; Elias after
QSGD's theorem, a bound of the sparse regime (s at most sqrt N).

>>> round(golomb_gap_bits(0.01), 4), elias_bits(10**6, 1)
(8.1079, 19498)
"""

from __future__ import annotations

import math

__all__ = [
    "bitmap_bits",
    "dense_bits",
    "elias_bits",
    "entropy_bits",
    "golomb_bits",
    "golomb_gap_bits",
    "list_bits",
    "seed_bits",
]

VALUE = 32


def seed_bits(size: int, theta: float) -> int:
    """Return 32 theta N, the bits of the values alone."""
    return round(VALUE * theta * size)


def list_bits(size: int, kept: int) -> int:
    """Return the bits with an index for each value."""
    return kept * (VALUE + (size - 1).bit_length() if size > 1 else VALUE)


def bitmap_bits(size: int, kept: int) -> int:
    """Return the bits with a bitmap of all positions."""
    return VALUE * kept + size


def dense_bits(size: int) -> int:
    """Return the bits of all values."""
    return VALUE * size


def golomb_gap_bits(p: float) -> float:
    """Return the mean bits of one gap between kept positions, each kept with probability ``p`` in
    (0, 1)."""
    phi = (1.0 + math.sqrt(5.0)) / 2.0
    power = max(0, 1 + math.floor(math.log2(math.log(phi - 1.0) / math.log1p(-p))))
    return power + 1.0 / -math.expm1(2.0**power * math.log1p(-p))


def golomb_bits(size: int, kept: int) -> float:
    """Return the bits with Golomb-coded gaps; all values where all are kept."""
    if kept in (0, size):
        return float(VALUE * kept)
    return kept * (VALUE + golomb_gap_bits(kept / size))


def entropy_bits(size: int, kept: int) -> float:
    """Return the bits with a mask of random positions at its entropy."""
    p = kept / size if size else 0.0
    if p in (0.0, 1.0):
        return float(VALUE * kept)
    return VALUE * kept - size * (p * math.log2(p) + (1 - p) * math.log2(1 - p))


def elias_bits(size: int, levels: int) -> int:
    """Return QSGD's bound with Elias codes."""
    spread = levels * (levels + math.sqrt(size))
    return round(VALUE + (3.0 + 1.5 * math.log2(2.0 * (levels**2 + size) / spread)) * spread)
