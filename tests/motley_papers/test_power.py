"""The power of paired t tests, checked against its integral: the noncentral t is a shifted normal
over the root of a chi square."""

from math import inf, isnan, nan, pi, sqrt

import pytest
from scipy.integrate import quad
from scipy.special import ndtr, stdtrit
from scipy.stats import chi2

from motley.results.measures import Spread
from motley_papers.power import MOST_PAIRS, holm, p_value, pairs_needed, resolvable


def power(difference, std, n):
    """The chance that the t of n differences exceeds its critical value: the mean of Phi(nc - c
    sqrt(V / df)) over V."""
    df = n - 1
    shift = difference * sqrt(n) / std
    critical = stdtrit(df, 0.975)
    found, _ = quad(
        lambda v: ndtr(shift - critical * sqrt(v / df)) * chi2.pdf(v, df), 0, inf, limit=500
    )
    return found


@pytest.mark.parametrize("n", [3, 5, 10, 20])
def test_the_resolvable_difference_is_found_in_eight_of_ten_cases(n):
    assert power(resolvable(1.7, n), 1.7, n) == pytest.approx(0.8, abs=1e-4)


def test_as_many_pairs_as_are_needed_and_no_more():
    n = pairs_needed(0.5, 1.0)
    assert resolvable(1.0, n) <= 0.5 < resolvable(1.0, n - 1)
    assert n == 34  # (1.960 + 0.842)^2 / 0.5^2 = 31.4, and the t costs two to three more
    assert pairs_needed(-0.5, 1.0) == n
    assert pairs_needed(1e9, 1.0) == 2
    assert pairs_needed(0.5, 0.0) == 2
    assert pairs_needed(0.0, 1.0) == inf
    assert pairs_needed(1.0, MOST_PAIRS) == inf
    assert isnan(pairs_needed(nan, 1.0))
    assert isnan(pairs_needed(1.0, nan))


def test_p_values():
    # one degree of freedom is Cauchy: differences 1 and 3 have t = 2, p = 1 - 2 atan(2) / pi
    assert p_value(Spread(2.0, sqrt(2), 2)) == pytest.approx(0.29516724)
    assert isnan(p_value(Spread(2.0, nan, 1)))
    assert (p_value(Spread(2.0, 0.0, 3)), p_value(Spread(2.0, 0.0, 3), 2.0)) == (0.0, 1.0)
    assert isnan(resolvable(nan, 1))


def test_holm_leaves_out_what_was_not_tested():
    assert holm([nan, 0.01, 0.02])[1:] == [0.02, 0.02]
    assert isnan(holm([nan])[0])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_a_look_that_may_spend_almost_nothing_has_a_resolution():
    """At the level 1e-9 the critical value of two pairs is 2 / (pi 1e-9), and 80 % of
    chi-squared numbers with one degree of freedom lie below 1.28155 squared."""
    assert resolvable(1.0, 2, 1e-9) == pytest.approx(2e9 / pi * 1.28155 / sqrt(2), rel=1e-5)
    near, far = (resolvable(1.0, 3, level) for level in (1.01e-6, 0.99e-6))  # both ways of it
    assert near / far == pytest.approx(sqrt(0.99 / 1.01), rel=1e-4)
