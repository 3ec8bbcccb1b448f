"""What other codes would take: the table of docs/methods/compression.md#bits."""

from __future__ import annotations

import math

import pytest

from benchmarks import estimates
from motley.transport.packet import PacketSpec
from motley.transport.wire import length

N = 2_780_000


@pytest.mark.parametrize(
    ("theta", "kept", "megabytes"),
    [
        (0.05, 139_000, (0.5560, 0.9383, 0.9035, 0.6565, 0.6555, 11.12)),
        (0.20, 556_000, (2.2240, 3.7530, 2.5715, 2.4807, 2.4749, 11.12)),
    ],
)
def test_the_table(theta: float, kept: int, megabytes: tuple[float, ...]) -> None:
    """Seed convention, list, bitmap, Golomb, entropy, dense; MB of 10^6 bytes, four decimals."""
    bits = (
        estimates.seed_bits(N, theta),
        estimates.list_bits(N, kept),
        estimates.bitmap_bits(N, kept),
        estimates.golomb_bits(N, kept),
        estimates.entropy_bits(N, kept),
        estimates.dense_bits(N),
    )
    assert [b / 8e6 for b in bits] == pytest.approx(megabytes, abs=1e-4)


def test_where_one_code_overtakes_another() -> None:
    """A list beats the bitmap iff theta < 1 / 22 = .0455, and the dense vector iff theta < 32 / 54
    = .5926."""
    for theta, beats in ((0.0454, True), (0.0456, False)):
        assert (
            estimates.list_bits(N, round(theta * N)) < estimates.bitmap_bits(N, round(theta * N))
        ) is beats
    for theta, beats in ((0.5925, True), (0.5927, False)):
        assert (estimates.list_bits(N, round(theta * N)) < estimates.dense_bits(N)) is beats


def test_golomb() -> None:
    """p = .01: b* = 6, mean gap 8.1079 bits, entropy 8.08. Above .618 b* stays at 0; where all are
    kept nothing is coded."""
    assert estimates.golomb_gap_bits(0.01) == pytest.approx(8.1079, abs=1e-4)
    assert 8.07 < (estimates.entropy_bits(10**6, 10**4) - 32 * 10**4) / 10**4 < 8.09
    for p in (0.001, 0.1, 0.5, 0.619, 0.7, 0.95):
        entropy = -(p * math.log2(p) + (1 - p) * math.log2(1 - p)) / p
        assert estimates.golomb_gap_bits(p) >= entropy
    assert estimates.golomb_bits(10, 10) == estimates.entropy_bits(10, 10) == 320
    assert estimates.golomb_bits(10, 0) == estimates.entropy_bits(10, 0) == 0


def test_elias_is_a_bound_of_the_sparse_regime() -> None:
    assert estimates.elias_bits(10**6, 1) == 19_498


def test_the_wire_is_near_the_estimate_of_what_it_does() -> None:
    """Planes are filled up to a byte, heads come on top: under 100 bytes in all."""
    head = length({"delta": PacketSpec(N, 0, "indices")})
    for kept in (1000, 100_000, 139_000, 556_000):
        best = min(estimates.list_bits(N, kept), estimates.bitmap_bits(N, kept)) / 8
        assert 0 <= length({"delta": PacketSpec(N, kept, "indices")}) - best < 100
    assert head < 100
