"""Clipping, noise and the adaptive clip, by hand; and nobody moves a sum by more than C, whatever
is sent."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.parts import Part, Upload
from motley.core.keys import Key
from motley_privacy.noise import SystemRandomness, noise
from motley_privacy.sums import clipped, next_clip, noised_sum, noisy_count, update_multiplier

Z = 1.0
"""Multiplier of the noise, on whose grid of 2^-24 of C and finer values lie after they are
clipped."""


def upload(weight=1.0, client=0, **parts):
    folds = {"dc": "sum"}
    made = {
        name: Part(torch.tensor(value), folds.get(name, "mean")) for name, value in parts.items()
    }
    return Upload(made, weight, client=client)


def norm(one, shares):
    return math.sqrt(
        sum(
            float((part.value.double() / shares.get(n, 1.0)).square().sum())
            for n, part in one.parts.items()
        )
    )


def test_an_update_of_norm_5_is_clipped_to_1_and_one_of_norm_a_half_stays():
    bounded, below = clipped(upload(delta=[3.0, 4.0]), 1.0, {}, Z)
    assert not below
    np.testing.assert_allclose(bounded.parts["delta"].value, [0.6, 0.8], atol=1e-7)
    bounded, below = clipped(upload(delta=[0.3, 0.4]), 1.0, {}, Z)
    assert below
    np.testing.assert_allclose(bounded.parts["delta"].value, [0.3, 0.4], atol=1e-7)


def test_the_weight_is_inside_the_clip():
    """w = 1/2: (3, 4) counts as (1.5, 2), of norm 2.5; with C = 1 the sum gets (0.6, 0.8), with C =
    5 (1.5, 2)."""
    np.testing.assert_allclose(
        clipped(upload(0.5, delta=[3.0, 4.0]), 1.0, {}, Z)[0].parts["delta"].value,
        [0.6, 0.8],
        atol=1e-7,
    )
    bounded = clipped(upload(0.5, delta=[3.0, 4.0]), 5.0, {}, Z)[0]
    np.testing.assert_array_equal(bounded.parts["delta"].value, [1.5, 2.0])
    assert bounded.weight == 1.0


def test_two_uploads_are_one_vector():
    """C = 1 for delta, 0.1 for dc: (delta / 1, dc / 0.1) = (3, 4) has norm 5, so both are divided
    by 5."""
    bounded, _ = clipped(upload(delta=[3.0], dc=[0.4]), 1.0, {"dc": 0.1}, Z)
    np.testing.assert_allclose(
        [float(bounded.parts[name].value[0]) for name in ("delta", "dc")], [0.6, 0.08], atol=1e-7
    )


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=3, max_size=3),
    weight=st.floats(0, 1e6),
    clip=st.floats(1e-3, 1e3),
)
def test_nobody_adds_more_than_the_clip(values, weight, clip):
    shares = {"dc": 0.1}
    bounded, _ = clipped(upload(weight, delta=values[:2], dc=values[2:]), clip, shares, Z)
    assert norm(bounded, shares) <= clip
    total = Mean()
    others = [upload(client=1, delta=[0.25, 0.5], dc=[0.125])]
    sums = [total.finish(_added(total, [*others, *more]), "none") for more in ([bounded], [])]
    moved = {name: sums[0][name] - sums[1][name] for name in ("delta", "dc")}
    assert (
        math.sqrt(sum(float((moved[n] / shares.get(n, 1.0)).square().sum()) for n in moved))
        <= clip * (1 + 1e-9) + 1e-12
    )


def _added(aggregator, uploads):
    total = aggregator.init()
    for one in uploads:
        total = aggregator.add(total, one)
    return total


def test_noise_is_on_every_coordinate_once_and_the_divisor_is_fixed():
    """Sum 10 in one of 4 coordinates, sigma = z C = 2, divided by 5: (sum + 2 N) / 5, with N of the
    key."""
    empty = upload(delta=[0.0] * 4, dc=[0.0]).parts
    key = Key(3)
    out = noised_sum(
        {"delta": torch.tensor([10.0, 0, 0, 0]).double()}, empty, 2.0, {"dc": 0.5}, 5.0, key
    )
    drawn = key.fold("sum", "delta").normal(np.arange(4))[:, 0]
    np.testing.assert_allclose(
        out["delta"], (np.array([10.0, 0, 0, 0]) + 2.0 * drawn) / 5.0, atol=1e-7
    )
    # a sum stays a sum
    np.testing.assert_allclose(
        out["dc"], 2.0 * 0.5 * key.fold("sum", "dc").normal([0])[:, 0], atol=1e-7
    )


def test_a_step_without_uploads_is_noise_too():
    assert set(noised_sum({}, upload(delta=[0.0]).parts, 1.0, {}, 5.0, Key(0))) == {"delta"}


@pytest.mark.parametrize("source", [Key(1), SystemRandomness()])
@pytest.mark.parametrize(
    ("law", "mean", "deviation"),
    [
        ("gaussian", 0.0, 1.0),
        ("laplace", 0.0, math.sqrt(2.0)),
        ("gumbel", 0.5772156649, math.pi / math.sqrt(6.0)),
    ],
)
def test_laws_of_noise(source, law, mean, deviation):
    """Standard error of the mean of 40,000 draws: deviation / 200; ten of them never fail. That of
    the deviation: below 0.02."""
    drawn = noise(source, np.arange(40_000), law)
    assert abs(drawn.mean() - mean) < 10 * deviation / 200
    assert abs(drawn.std() / deviation - 1.0) < 0.1


def test_noise_of_a_key_repeats_and_the_systems_does_not():
    assert (noise(Key(0), [1, 2], "laplace") == noise(Key(0), [1, 2], "laplace")).all()
    assert (
        noise(SystemRandomness(), [1, 2], "laplace") != noise(SystemRandomness(), [1, 2], "laplace")
    ).all()


def test_the_multiplier_beside_a_noisy_count():
    """z = 1, m = 100, sigma_b = 5: (1 - 1/100)^(-1/2) = 1.00504; both together cost 1/1.00504^2 +
    1/10^2 = 1."""
    assert update_multiplier(1.0, 5.0) == pytest.approx(1.00504, abs=5e-6)


def test_the_adaptive_clip():
    """C = 0.1, rate 0.2, gamma 0.5, divisor 100. All 100 below, a centred count of 50: b = 1, C
    e^(-0.1). None: b = 0, C e^(0.1).
    Half: it stays. With 50 uploads, all below, and noise 10 on the count: b = (25 + 10) / 100 + 0.5
    = 0.85, C e^(-0.07)."""
    assert next_clip(0.1, 50, 100, 0.2, 0.5) == pytest.approx(0.1 * math.exp(-0.1))
    assert next_clip(0.1, -50, 100, 0.2, 0.5) == pytest.approx(0.1 * math.exp(0.1))
    assert next_clip(0.1, 0, 100, 0.2, 0.5) == pytest.approx(0.1)
    assert next_clip(0.1, 35, 100, 0.2, 0.5) == pytest.approx(0.1 * math.exp(-0.07))


def test_the_noise_of_a_count_is_on_its_grid():
    """Deviation 5: steps of 2^-22, of which a half is a whole number; 30 of 100 below: -20 and 5
    g."""
    g = float(Key(2).normal([0])[0, 0])
    seen = noisy_count(30, 100, 5.0, Key(2))
    assert seen == pytest.approx(-20.0 + 5.0 * g, abs=1e-6)
    assert (seen * 2.0**22).is_integer()
