"""Looking after every seed: the bounds of the literature, and a simulation of many experiments in
which there is nothing to find."""

import numpy as np
import pytest
from scipy.special import stdtr

from motley_papers.sequential import boundaries, level_at, sequential_p


def p_values(sequences, most, mean=0.0):
    """The two-sided p values of the t tests after 2, 3, ..., ``most`` normal differences
    [sequences, most - 1]."""
    x = np.random.default_rng(7).standard_normal((sequences, most)) + mean
    n = np.arange(1, most + 1)
    means = np.cumsum(x, axis=1) / n
    variances = (np.cumsum(x * x, axis=1) - n * means**2)[:, 1:] / (n[1:] - 1)
    return 2 * stdtr(n[1:] - 1, -np.abs(means[:, 1:]) * np.sqrt(n[1:] / variances))


def test_the_bounds_of_lan_and_demets():
    # O'Brien-Fleming-like spending, two-sided 5 %, as tabulated for five and for two equally spaced
    # looks
    assert boundaries([0.2, 0.4, 0.6, 0.8, 1.0], 0.05) == pytest.approx(
        [4.877, 3.357, 2.680, 2.290, 2.031], abs=1e-3
    )
    assert boundaries([0.5, 1.0], 0.05) == pytest.approx([2.963, 1.969], abs=1e-3)
    assert boundaries([1.0], 0.05) == pytest.approx([1.959964], abs=1e-5)


@pytest.mark.parametrize("most", [3, 5, 8, 10, 20, 40])
def test_without_a_difference_fewer_than_one_in_twenty_is_decided(most):
    # 60,000 sequences: the standard error of a share of 0.05 is 0.0009
    found = p_values(60_000, most)
    levels = [level_at(n, most) for n in range(2, most + 1)]
    assert (found <= levels).any(axis=1).mean() < 0.05
    assert (found <= 0.05).any(axis=1).mean() > 0.08  # what looking without a correction does


def test_a_difference_is_found_sooner_than_all_seeds_are_spent():
    found = p_values(4_000, 20, mean=1.0)
    decided = found <= [level_at(n, 20) for n in range(2, 21)]
    assert decided.any(axis=1).mean() > 0.9
    assert np.median(np.argmax(decided[decided.any(axis=1)], axis=1) + 2) < 16


def test_the_p_value_of_the_sequence_agrees_with_the_levels():
    for n in (2, 5, 12, 20):
        level = level_at(n, 20)
        assert sequential_p(level, n, 20) == pytest.approx(0.05)
        assert sequential_p(level * 0.99, n, 20) < 0.05 < sequential_p(level * 1.01, n, 20)
    assert sequential_p(0.0, 20, 20) == pytest.approx(1e-6)
    assert sequential_p(1.0, 5, 20) == 1.0
    assert np.isnan(sequential_p(float("nan"), 5, 20))


def test_the_p_value_of_the_sequence_is_one():
    # the chance that it is below any number is below that number, whenever one stops
    found = p_values(3_000, 8)
    least = np.array(
        [[sequential_p(p, n, 8) for n, p in enumerate(row, 2)] for row in found[:, :]]
    ).min(axis=1)
    for level in (0.01, 0.05, 0.2):
        assert (least <= level).mean() <= level + 3 * (level * (1 - level) / 3_000) ** 0.5
