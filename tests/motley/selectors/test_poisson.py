"""Coins of clients: who comes, and which probabilities there are."""

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.selectors.poisson import Poisson
from motley.selectors.selector import Selector

IDS = np.array([3, 5, 8, 13, 21, 34])


def test_with_rate_one_all_come_or_as_many_as_may_in_order_of_ids():
    assert Selector(Poisson(rate=1.0), 0).select(1, IDS, 6).ids.tolist() == IDS.tolist()
    few = Selector(Poisson(rate=1.0, largest=1), 0).select(1, IDS, 6).ids
    assert len(few) == 1
    four = Selector(Poisson(rate=1.0, largest=4), 0).select(1, IDS, 6).ids.tolist()
    assert len(four) == 4
    assert four == sorted(four)


def test_cohorts_have_the_mean_and_variance_of_coins():
    """1,000 cohorts of 100 clients by coins of .3: a mean of 30 with a standard error of .145, and
    a variance of 21 with one of .94."""
    selector = Selector(Poisson(rate=0.3), 0)
    sizes = [len(selector.select(draw, np.arange(100), 30).ids) for draw in range(1, 1001)]
    assert abs(np.mean(sizes) - 30) < 4 * 0.145
    assert abs(np.var(sizes) - 21) < 4 * 0.94


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0001, 1.5])
def test_no_probability_is_refused(rate):
    with pytest.raises(ConfigError, match=f"got rate = {rate}; expected a probability above 0"):
        Poisson(rate=rate)


def test_a_cohort_of_nobody_is_refused():
    with pytest.raises(ConfigError, match="got largest = 0; expected at least 1"):
        Poisson(largest=0)
