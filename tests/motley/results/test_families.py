"""How often a table of comparisons errs, by simulation: where no method differs from the reference,
a verdict is wrong in any of the comparisons in at most 5 % of tables."""

import numpy as np
import pytest

from motley.results.measures import Spread, interval, level_together, paired

TABLES = 20_000


def factor(comparisons, seeds):
    """Half of an interval in standard errors, as a table has it."""
    one = interval(Spread(0.0, 1.0, seeds), level_together(comparisons))
    return one.high * np.sqrt(seeds)


def wrong(differences, comparisons):
    """The share of tables ``[t, seeds, comparisons]`` of null differences with a wrong verdict."""
    seeds = differences.shape[1]
    errors = differences.std(axis=1, ddof=1) / np.sqrt(seeds)
    beyond = np.abs(differences.mean(axis=1)) > factor(comparisons, seeds) * errors
    return beyond.any(axis=1).mean()


def test_the_level_of_each_interval():
    """Bonferroni's: 1 - .05 / 9; t(1 - .05 / 18, 4) = 5.436592 standard errors of nine comparisons
    with five seeds, t(.975, 4) = 2.776445 of one (scipy)."""
    assert level_together(9) == pytest.approx(1 - 0.05 / 9)
    assert level_together(1) == level_together(0) == pytest.approx(0.95)
    assert factor(9, 5) == pytest.approx(5.436592, abs=1e-6)
    assert factor(1, 5) == pytest.approx(2.776445, abs=1e-6)


def test_a_verdict_is_that_of_bonferronis_adjusted_p_value():
    """An interval excludes zero just where p, times the number of comparisons, is below .05."""
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(5)
    decided = []
    for differences in rng.normal(1.0, 0.5, (200, 5)):
        one = paired(differences, np.zeros(5), level_together(9))
        decided.append(not one.low <= 0 <= one.high)
        assert decided[-1] == (9 * ttest_1samp(differences, 0.0).pvalue < 0.05)
    assert 50 < sum(decided) < 150


@pytest.mark.parametrize("seeds", [3, 5, 8, 10])
@pytest.mark.parametrize("methods", [2, 5, 10])
@pytest.mark.parametrize("spread", ["alike", "unlike", "wide reference", "skewed"])
def test_at_most_five_percent_of_tables_have_a_wrong_verdict(methods, seeds, spread):
    """Three standard errors of 20,000 tables are .0046. Skewed seeds are exponential."""
    rng = np.random.default_rng([methods, seeds])
    shape = (TABLES, seeds, methods)
    values = rng.exponential(size=shape) if spread == "skewed" else rng.normal(size=shape)
    widths = np.geomspace(0.3, 3, methods) if spread == "unlike" else np.ones(methods)
    widths[0] *= 5 if spread == "wide reference" else 1
    values *= widths
    differences = values[:, :, 1:] - values[:, :, :1]
    assert wrong(differences, methods - 1) <= 0.05 + 0.0046


def test_plain_intervals_err_in_a_third_of_tables_of_ten():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(TABLES, 5, 10))
    differences = values[:, :, 1:] - values[:, :, :1]
    assert wrong(differences, 1) == pytest.approx(0.30, abs=0.015)
