"""Correlated noise: coefficients and noise by hand, and what one client moves, by all patterns of
participation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from motley_privacy.correlated import coefficients, correlated, inflation


def matrix(steps, bands):
    """Return the lower triangular C with which C x = z."""
    c = coefficients(bands)
    return sum(np.diag(np.full(steps - j, c[j]), -j) for j in range(min(bands, steps)))


def test_three_bands_by_hand():
    """1, 1/2, 3/8, over the root of 1 + 1/4 + 9/64 = 89/64."""
    np.testing.assert_allclose(
        coefficients(3), np.array([8.0, 4.0, 3.0]) / np.sqrt(89.0), rtol=1e-12
    )


@pytest.mark.parametrize("bands", [1, 2, 5])
def test_the_noise_of_all_sums_solves_c_x_equals_c_0_y(bands):
    drawn = np.random.default_rng(0).integers(-(10**9), 10**9, (9, 4))
    made: list[np.ndarray] = []
    for y in drawn:
        made.insert(0, correlated(y, made[: bands - 1], bands))
    solved = matrix(9, bands) @ np.stack(made[::-1])
    # half a step of rounding
    np.testing.assert_allclose(solved, coefficients(bands)[0] * drawn, atol=1.0)


def test_rounding_is_made_good_by_hand():
    """z = 4, 2^20 numbers, 4 bands: r = 2^11 2 / 2^25 = 2^-13, so f = 1 / (1 - 2^-11)."""
    assert inflation(4.0, 2**20, 4) == pytest.approx(1 / (1 - 2.0**-11), rel=1e-12)
    assert inflation(4.0, 2**20, 1) == 1.0
    assert inflation(1e6, 2**30, 4) == np.inf


@pytest.mark.parametrize("bands", [1, 2, 3, 4])
def test_k_updates_far_enough_apart_move_c_by_the_root_of_k_at_most(bands):
    """All patterns of 8 steps, with the updates that move most: all alike, and with every sign."""
    c = matrix(8, bands)
    for pattern in itertools.product((0, 1), repeat=8):
        steps = np.flatnonzero(pattern)
        if len(steps) and (len(steps) == 1 or np.diff(steps).min() >= bands):
            moved = c[:, steps].sum(1)
            assert moved @ moved <= len(steps) + 1e-12
            full = steps[steps + bands <= 8]  # their columns are whole
            assert np.abs(c[:, full] @ np.ones(len(full))).max(initial=0.0) <= 1.0
            assert (c[:, full].sum(1) ** 2).sum() == pytest.approx(len(full))


def test_updates_too_close_move_it_by_more():
    moved = matrix(8, 4)[:, [0, 2]].sum(1)
    assert moved @ moved > 2.5


def test_the_sum_of_60_steps_bears_half_of_the_noise_with_five_bands():
    """The deviation of the sum of all noise, beside 7.746 = root of 60: 4.099."""
    total = np.ones(60) @ np.linalg.inv(matrix(60, 5))
    assert np.sqrt(total @ total) == pytest.approx(4.099, abs=5e-4)
