"""Random selection: the worked numbers of docs/methods/selectors.md#random, unbiasedness by exact
enumeration, frequencies."""

import itertools

import numpy as np
import pytest

from motley.core.records import Outcome, Report, Reports
from motley.selectors import build
from motley.selectors.common.client_signals import put_sizes, shares
from motley.selectors.common.sampling import inclusion_probabilities
from motley.selectors.selector import Selector
from motley.selectors.uniform import Uniform

SIZES = np.array([50.0, 30.0, 20.0])
VALUES = np.array([1.0, 2.0, 4.0])
IDS = np.array([4, 7, 9])
P = SIZES / SIZES.sum()


def enrolled(rule, sizes=SIZES, ids=IDS, seed=0):
    selector = Selector(rule, seed)
    selector.observe(0, Reports(ids, Outcome.ENROLLED, signals={"num_examples": sizes}))
    return selector


def average(rule, rounds=4000):
    """Mean over many rounds of sum a_k v_k, its standard error, and the mean number of times each
    client counts."""
    selector = enrolled(rule)
    value = dict(zip(IDS.tolist(), VALUES, strict=True))
    totals = []
    counts = dict.fromkeys(IDS.tolist(), 0)
    for t in range(1, rounds + 1):
        cohort = selector.select(t, IDS, 2)
        weights = cohort.weights
        totals.append(sum(a * value[k] for k, a in zip(cohort.ids.tolist(), weights, strict=True)))
        for k, n in zip(
            cohort.ids.tolist(),
            np.ones(2) if cohort.multiplicity is None else cohort.multiplicity,
            strict=False,
        ):
            counts[k] += n
    return np.mean(totals), np.std(totals) / rounds**0.5, np.array(list(counts.values())) / rounds


def test_target_and_ratio_weights():
    """sum p v = 1.9; uniform pairs with ratio weights: mean over the three pairs of sum n v / sum n
    = 2.010714."""
    assert pytest.approx(1.9) == P @ VALUES
    pairs = [list(pair) for pair in itertools.combinations(range(3), 2)]
    ratio = np.mean([SIZES[pair] @ VALUES[pair] / SIZES[pair].sum() for pair in pairs])
    assert ratio == pytest.approx(2.010714, abs=5e-7)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Uniform(unbiased=True), 1.9),
        (Uniform("weighted_wr"), 1.9),
        (Uniform("weighted_wor"), 2.066071),  # the simple mean is biased
        (Uniform("weighted_wor", unbiased=True), 1.9),
    ],
)
def test_expectation_of_the_aggregate(rule, expected):
    mean, error, _ = average(rule)
    assert abs(mean - expected) < 4.5 * error


def test_uniform_probabilities_of_the_first_draw_are_equal():
    """One of three, whatever their sizes and the cohort's."""
    cohort = enrolled(Uniform()).select(1, IDS, 2)
    np.testing.assert_array_equal(cohort.probabilities, [1 / 3, 1 / 3, 1 / 3])


def test_expectations_by_enumeration():
    """What the coefficients that the rule hands out give over all pairs, weighted by the law of the
    draw: exact."""
    seen = {}
    for rule in (
        Uniform(unbiased=True),
        Uniform("weighted_wor", unbiased=True),
        Uniform("weighted_wor"),
    ):
        selector = enrolled(rule)
        total = 0.0
        chance_sum = 0.0
        for t in range(1, 200):
            cohort = selector.select(t, IDS, 2)
            at = np.searchsorted(IDS, np.sort(cohort.ids))
            seen[(rule, *at.tolist())] = cohort.weights[np.argsort(cohort.ids)] @ VALUES[at]
        for i, j in itertools.combinations(range(3), 2):
            chance = (
                1 / 3
                if rule.variant == "uniform_wor"
                else P[i] * P[j] * (1 / (1 - P[i]) + 1 / (1 - P[j]))
            )
            total = total + chance * seen[(rule, i, j)]
            chance_sum = chance_sum + chance
        assert chance_sum == pytest.approx(1.0)
        assert total == pytest.approx(1.9 if rule.unbiased else 2.066071, abs=5e-7)


def test_inclusion_frequencies_of_weighted_draws():
    """m = 2: (.839286, .675, .485714) without replacement, multiplicity m p = (1, .6, .4) with."""
    _, _, seen = average(Uniform("weighted_wor"))
    assert abs(seen - inclusion_probabilities(SIZES, 2)).max() < 0.035
    _, _, seen = average(Uniform("weighted_wr"))
    assert abs(seen - 2 * P).max() < 0.05


def test_weighted_wr_carries_multiplicity():
    cohort = enrolled(Uniform("weighted_wr"), sizes=np.array([1.0, 0.0, 0.0])).select(1, IDS, 3)
    assert (cohort.ids.tolist(), cohort.multiplicity.tolist(), cohort.weights.tolist()) == (
        [4],
        [3],
        [1.0],
    )


def test_weighted_wr_coefficients_are_multiplicity_over_m():
    """Not 1 over the number of distinct clients: with m = 3 and a client drawn twice the two
    differ."""
    selector = enrolled(Uniform("weighted_wr"))
    cohorts = [selector.select(t, IDS, 3) for t in range(1, 40)]
    for cohort in cohorts:
        assert cohort.multiplicity.sum() == 3
        np.testing.assert_allclose(cohort.weights, cohort.multiplicity / 3)
    assert any(sorted(cohort.multiplicity) == [1, 2] for cohort in cohorts)


@pytest.mark.parametrize("variant", ["weighted_wr", "weighted_wor"])
def test_clients_without_data_are_not_drawn_while_others_are_there(variant):
    selector = enrolled(Uniform(variant), sizes=np.array([10.0, 10.0, 0.0]))
    assert all(9 not in selector.select(t, IDS, 2).ids for t in range(1, 60))


def test_uniform_frequencies_and_size():
    """20 clients, m = 5: each client's count over 4000 rounds; the sum's law is that of draws
    without replacement."""
    from scipy import stats

    selector = Selector(Uniform(), 3)
    counts = np.zeros(20)
    for t in range(1, 4001):
        cohort = selector.select(t, np.arange(20), 5)
        assert len(cohort.ids) == 5
        assert cohort.weights is None
        counts[cohort.ids] += 1
    # variance of each count is n (m/K)(1 - m/K); with sum fixed the statistic below has K - 1
    # degrees of freedom
    statistic = ((counts - 1000) ** 2).sum() / (4000 * 0.25 * 0.75) * 19 / 20
    assert stats.chi2.sf(statistic, 19) > 1e-3


def test_cohorts_differ_between_rounds():
    """A generator that is seeded anew inside select would repeat the same cohort in every round."""
    selector = Selector(Uniform(), 0)
    assert len({tuple(selector.select(t, range(50), 5).ids.tolist()) for t in range(1, 30)}) == 29


def test_sizes_of_the_unknown_are_the_mean():
    state = Uniform().init()
    table = put_sizes(
        state, Reports(IDS[:2], Outcome.ENROLLED, signals={"num_examples": [10.0, 30.0]})
    )
    np.testing.assert_allclose(shares(table, IDS), [10 / 60, 30 / 60, 20 / 60])
    assert shares(state, IDS).tolist() == [1 / 3] * 3
    assert shares(table, IDS[:0]).tolist() == []


def test_sizes_beyond_reason_are_bounded():
    selector = enrolled(Uniform("weighted_wr"), sizes=np.array([1.7e308, 1.7e308, 1.0]))
    assert shares(selector.state, IDS).tolist() == pytest.approx([0.5, 0.5, 0])


def test_sizes_come_from_enrolment_alone_signal_or_column():
    table = Uniform().init()
    table = put_sizes(
        table,
        Reports.from_rows(
            [Report(1, Outcome.ENROLLED, num_examples=8), Report(2, num_examples=99)]
        ),
    )
    assert np.isnan(table.get("num_examples", [2])).all()
    assert table.get("num_examples", [1]).tolist() == [8.0]
    table = put_sizes(table, Reports([1], Outcome.ENROLLED, signals={"num_examples": [-3.0]}))
    assert table.get("num_examples", [1]).tolist() == [8.0]


def test_needs_follow_the_options():
    assert not Uniform().needs().enrolled
    assert (
        Uniform("weighted_wor").needs().enrolled
        == Uniform(unbiased=True).needs().enrolled
        == {"num_examples"}
    )
    assert build({"name": "uniform", "variant": "weighted_wr"}).rule == Uniform("weighted_wr")
