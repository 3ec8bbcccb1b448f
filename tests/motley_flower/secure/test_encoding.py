"""Fixed-point numbers: worked by hand, unbiased, never overflowing."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley_flower.secure.encoding import FixedPoint


def draws(*words):
    """Entropy that gives these 32-bit words: u = word / 2^32."""
    return lambda n: np.array(words, "<u4").tobytes()[:n]


def test_an_encoding_by_hand():
    # clip 1, 2 bits: levels 0..3, x -> (x + 1) * 3 / 2. -1 -> 0, 1 -> 3, 0 -> 1.5, 1/2 -> 2.25;
    # weights 1 and 2 a draw u rounds 1.5 up exactly when u >= 0.5, and 2.25 up when u >= 0.75
    code = FixedPoint(1.0, 2, 3, max_weight=2)
    half = 2**31
    three_quarters = 3 * 2**30
    x = np.array([-1.0, 1.0, 0.0, 0.5])
    first = code.encode(x, 1, draws(0, 0, half, three_quarters))
    second = code.encode(x, 2, draws(0, 0, half - 1, three_quarters - 1))
    assert first.tolist() == [0, 3, 2, 3, 1]
    assert second.tolist() == [0, 6, 2, 4, 2]  # twice 0, 3, 1, 2, and the weight
    # the sum 0, 9, 4, 7 over a weight of 3: 0, 3, 4/3, 7/3 levels, each 2/3 wide, above -1
    mean, weight = code.decode(first + second)
    assert weight == 3
    assert mean == pytest.approx([-1.0, 1.0, 4 / 3 * 2 / 3 - 1, 7 / 3 * 2 / 3 - 1])


@pytest.mark.parametrize(("m", "bits"), [(100, 27), (1000, 30)])
def test_the_bits_that_a_sum_needs(m, bits):
    assert FixedPoint(1.0, 20, m).needed_bits == bits  # W = 1, b = 20


def test_a_sum_that_could_overflow_is_refused():
    # 4096 * 2^20 = 2^32: 4096 * (2^20 - 1) still fits, 4097 * (2^20 - 1) = 2^32 + 2^20 - 4097 does
    # not
    assert FixedPoint(1.0, 20, 4096).needed_bits == 32
    with pytest.raises(ConfigError, match=r"4097 clients .* overflows 32; set modulus_bits = 64"):
        FixedPoint(1.0, 20, 4097)
    assert FixedPoint(1.0, 20, 4097, modulus_bits=64).dtype == np.uint64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": 0.0}, "clip: got 0.0; expected a finite number above 0"),
        ({"clip": float("nan")}, "clip: got nan"),
        ({"bits": 0}, "bits: got 0; expected a whole number from 1 to 24"),
        ({"bits": 25}, "bits: got 25"),
        ({"max_weight": 0}, "max_weight: got 0"),
        ({"modulus_bits": 27}, "modulus_bits: got 27; expected 32 or 64"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ConfigError, match=message):
        FixedPoint(**{"clip": 1.0, "bits": 8, "clients": 3, **options})


def test_bad_vectors():
    code = FixedPoint(1.0, 8, 3, max_weight=5)
    with pytest.raises(ConfigError, match="expected 1 to max_weight = 5"):
        code.encode(np.zeros(2), 6, os.urandom)
    for number in (np.nan, np.inf, -np.inf):  # no infinite one is sent as one at the clip
        with pytest.raises(ConfigError, match="not finite"):
            code.encode(np.array([number]), 1, os.urandom)


@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=20),
    st.integers(1, 24),
    st.floats(1e-3, 1e3),
    st.integers(1, 7),
    st.randoms(),
)
def test_a_number_moves_by_less_than_a_level(values, bits, clip, weight, chance):
    code = FixedPoint(clip, bits, 1, max_weight=7)
    x = np.array(values) * clip
    mean, total = code.decode(code.encode(x, weight, chance.randbytes))
    assert total == weight
    assert np.all(np.abs(mean - np.clip(x, -clip, clip)) <= 2 * clip / code.levels * (1 + 1e-9))


def test_rounding_is_unbiased():
    # 0.3 lies at 0.65 of the one level between -1 and 1; the mean of n = 40,000 has a standard
    # error of sqrt(.65 * .35 / n) = 0.0024
    code = FixedPoint(1.0, 1, 1)
    words = code.encode(np.full(40_000, 0.3), 1, np.random.default_rng(0).bytes)[:-1]
    assert abs(words.mean() - 0.65) < 4 * 0.0024
