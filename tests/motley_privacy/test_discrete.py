"""The discrete Gaussian is drawn exactly: its law by chi-square, its spread, and its bytes."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from scipy.stats import chi2, norm

from motley_privacy.discrete import _below, discrete_gaussian, discrete_laplace

LEVEL = 1e-4
"""Of each chi-square test: a sound sampler fails one seed in 10,000; the seed is fixed."""


def seeded(seed):
    return random.Random(seed).randbytes


def weights(sigma, most):
    x = np.arange(-most, most + 1)
    w = np.exp(-(x.astype(float) ** 2) / (2.0 * sigma**2))
    return x, w / w.sum()


@pytest.mark.parametrize("sigma", [1, 2, 5])
def test_the_law_of_small_numbers(sigma):
    """300,000 draws against ``exp(-x^2 / (2 sigma^2))``; cells of fewer than 10 go together."""
    drawn = discrete_gaussian(300_000, sigma, seeded(sigma))
    x, share = weights(sigma, 12 * sigma)
    cells = share * len(drawn) >= 10
    counts = np.array([(drawn == value).sum() for value in x[cells]])
    expected = share[cells] * len(drawn)
    counts, expected = (np.append(one, len(drawn) - one.sum()) for one in (counts, expected))
    statistic = float(((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum())
    assert statistic < chi2.ppf(1 - LEVEL, len(counts) - 1)


@pytest.mark.parametrize("sigma", [1000, 2**20, 2**40])
def test_the_law_of_large_numbers_of_steps(sigma):
    """Forty cells of a Gaussian: a discrete one of sigma above 1,000 differs by less than 1e-3 of
    a cell's deviation there."""
    drawn = discrete_gaussian(200_000, sigma, seeded(sigma))
    ends = norm.ppf(np.linspace(0, 1, 41)[1:-1]) * sigma
    counts = np.bincount(np.searchsorted(ends, drawn), minlength=40)
    expected = len(drawn) / 40
    assert float(((counts - expected) ** 2 / expected).sum()) < chi2.ppf(1 - LEVEL, 39)


def test_spread_and_symmetry():
    """Standard error of the mean sigma / 1000, of the variance sqrt(2) sigma^2 / 1000; five
    each."""
    drawn = discrete_gaussian(1_000_000, 7, seeded(0))
    x, share = weights(7, 100)
    assert abs(drawn.mean()) < 5 * 7 / 1000
    assert drawn.var() == pytest.approx(float((share * x**2).sum()), rel=5 * 1.5e-3)


@pytest.mark.parametrize("limit", [1, 2, 3, 255, 256, 257, 10**6, 2**33 + 1])
def test_whole_numbers_below_a_limit(limit):
    drawn = _below(limit, 20_000, seeded(limit))
    assert drawn.min() >= 0
    assert drawn.max() < limit
    cells = min(limit, 10)
    counts = np.bincount((drawn.astype(object) * cells // limit).astype(int), minlength=cells)
    if limit > 1:
        share = np.array([(limit * (i + 1) + cells - 1) // cells for i in range(cells)])
        share = np.diff(np.append(0, share)) / limit * 20_000
        assert ((counts - share) ** 2 / share).sum() < chi2.ppf(1 - LEVEL, cells - 1)


def test_noise_is_that_of_its_bytes_and_the_systems_never_comes_twice():
    first, second = (discrete_gaussian(50, 100, seeded(3)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (discrete_gaussian(50, 100) != discrete_gaussian(50, 100, os.urandom)).any()
    assert len(discrete_gaussian(0, 5)) == 0


@pytest.mark.parametrize("sigma", [0, 2**40 + 1])
def test_a_sigma_out_of_range(sigma):
    with pytest.raises(ValueError, match="expected a whole number from 1 to 2"):
        discrete_gaussian(1, sigma)
    with pytest.raises(ValueError, match="expected a whole number from 1 to 2"):
        discrete_laplace(1, sigma)
