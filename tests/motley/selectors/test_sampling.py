"""Sampling primitives: laws checked against exact enumeration, traps that fail on the wrong
version.

Worked numbers: docs/methods/selectors.md#draws.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ContractError
from motley.core.keys import Key
from motley.selectors.common.sampling import (
    EXACT_LIMIT,
    _rosen_inclusion,
    gumbel_top_m,
    inclusion_probabilities,
    softmax,
    successive_draws,
    top_m,
    with_replacement,
)

P = np.array([0.5, 0.3, 0.15, 0.05])


def rng(*path):
    return Key(7).fold(*path).numpy()


def law_of_successive_draws(p, m):
    """Probability of every ordered sample: prod_i p_i / (1 - what was drawn before)."""
    out = {}
    for order in itertools.permutations(range(len(p)), m):
        chance = 1.0
        left = 1.0
        for i in order:
            chance = chance * p[i] / left
            left = left - p[i]
        out[order] = chance
    return out


def exact_inclusion(p, m):
    out = np.zeros(len(p))
    for order, chance in law_of_successive_draws(p, m).items():
        out[list(order)] += chance
    return out


def test_softmax_does_not_overflow():
    assert softmax(np.array([1000.0, 0.0, -1000.0])).tolist() == [1.0, 0.0, 0.0]
    np.testing.assert_allclose(softmax(np.log(P)), P, rtol=1e-15)
    np.testing.assert_allclose(
        softmax(np.array([0.0, 2.0]), temperature=2.0), [1 / (1 + np.e), np.e / (1 + np.e)]
    )
    assert len(softmax(np.zeros(0))) == 0


@pytest.mark.parametrize(
    "draw", [lambda g: gumbel_top_m(np.log(P), 2, g), lambda g: successive_draws(7 * P, 2, g)]
)
def test_gumbel_top_m_has_the_law_of_successive_draws(draw):
    """Chi-square over all 12 ordered pairs of 4; 12,000 draws. The order counts, not only the
    set."""
    from scipy import stats

    generator = rng("chi")
    n = 12_000
    expected = law_of_successive_draws(P, 2)
    counts = dict.fromkeys(expected, 0)
    for _ in range(n):
        counts[tuple(draw(generator).tolist())] += 1
    statistic = stats.chisquare(list(counts.values()), n * np.array(list(expected.values())))
    assert statistic.pvalue > 1e-3


@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=12), st.integers(0, 15), st.integers(0, 1000)
)
def test_draws_are_distinct_and_positive_weights_come_first(weights, m, seed):
    weights = np.array(weights)
    drawn = successive_draws(weights, m, Key(seed).numpy())
    assert len(drawn) == min(m, len(weights)) == len(set(drawn.tolist()))
    assert (weights[drawn] > 0).sum() == min(m, (weights > 0).sum())
    assert (np.diff((weights[drawn] > 0).astype(int)) <= 0).all()  # the zeros fill up at the end


def test_too_few_positive_weights_are_all_taken_and_the_rest_is_uniform():
    """p = (1, 0, 0, 0), quota 2. numpy's choice raises here."""
    from scipy import stats

    p = np.array([1.0, 0, 0, 0])
    with pytest.raises(ValueError, match="Fewer non-zero"):
        rng().choice(4, 2, replace=False, p=p)
    generator = rng("fill")
    drawn = np.array([successive_draws(p, 2, generator) for _ in range(3000)])
    assert (drawn[:, 0] == 0).all()
    assert stats.chisquare(np.bincount(drawn[:, 1], minlength=4)[1:]).pvalue > 1e-3


def test_no_weights_at_all_is_uniform_and_bad_weights_are_refused():
    from scipy import stats

    counts = np.bincount([successive_draws(np.zeros(3), 1, rng(i))[0] for i in range(900)])
    assert stats.chisquare(counts).pvalue > 1e-3
    for bad in (np.nan, -1.0):
        with pytest.raises(ContractError, match="at least 0"):
            successive_draws(np.array([1.0, bad]), 1, rng())
        with pytest.raises(ContractError, match="at least 0"):
            with_replacement(np.array([1.0, bad]), 1, rng())
    for bad in (np.nan, np.inf):
        with pytest.raises(ContractError, match="finite"):
            gumbel_top_m(np.array([1.0, bad]), 1, rng())


def test_with_replacement_law_and_multiplicity():
    from scipy import stats

    positions, counts = with_replacement(P, 40_000, rng("wr"))
    assert positions.tolist() == [0, 1, 2, 3]
    assert counts.sum() == 40_000
    assert stats.chisquare(counts, 40_000 * P).pvalue > 1e-3
    at, how_often = with_replacement(np.array([0.0, 2.0, 0.0]), 5, rng())
    assert (at.tolist(), how_often.tolist()) == ([1], [5])
    assert with_replacement(np.zeros(3), 3000, rng())[1].min() > 800  # nobody has weight: uniform
    assert [len(part) for part in with_replacement(P, 0, rng())] == [0, 0]


def test_top_m_places_nan_last():
    """numpy.argsort puts NaN last, so that a NaN wins a top-m taken from the end: it must not."""
    scores = np.array([1.0, np.nan, 3.0, 2.0])
    assert 1 in np.argsort(scores)[-2:]  # the trap
    assert top_m(scores, 2, rng()).tolist() == [2, 3]
    assert set(top_m(scores, 4, rng())[:3].tolist()) == {0, 2, 3}
    assert top_m(np.array([np.nan, np.inf, 5.0]), 2, rng()).tolist() == [1, 2]
    assert len(top_m(np.zeros(0), 3, rng())) == 0


def test_top_m_breaks_ties_at_random_or_by_lowest_id():
    from scipy import stats

    scores = np.array([0.0, 1.0, 1.0, 1.0, 2.0])
    assert top_m(scores, 3, rng(), ties="lowest_id").tolist() == [4, 1, 2]
    generator = rng("ties")
    drawn = np.array([top_m(scores, 2, generator) for _ in range(3000)])
    assert (drawn[:, 0] == 4).all()
    assert stats.chisquare(np.bincount(drawn[:, 1])[1:4]).pvalue > 1e-3


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 32), st.integers(0, 99))
def test_top_m_is_a_top_m(scores, m, seed):
    scores = np.array(scores, dtype=float)
    taken = scores[top_m(scores, m, Key(seed).numpy())]
    assert taken.tolist() == sorted(scores.tolist(), reverse=True)[: min(m, len(scores))]


def test_inclusion_probabilities_are_not_m_p():
    """Selectors-baselines 1, check: p = (.5, .3, .2), m = 2, for example pi_2 = .2 + .5 * .2/.5 +
    .3 * .2/.7 = .485714."""
    got = inclusion_probabilities(np.array([5.0, 3.0, 2.0]), 2)
    np.testing.assert_allclose(got, [0.839286, 0.675, 0.485714], atol=5e-7)
    assert abs(got.sum() - 2) < 1e-15
    assert abs(got - 2 * np.array([0.5, 0.3, 0.2])).max() > 0.08


@pytest.mark.parametrize("m", [0, 1, 2, 3, 4, 9])
def test_inclusion_probabilities_equal_enumeration(m):
    np.testing.assert_allclose(
        inclusion_probabilities(P, m), exact_inclusion(P, min(m, 4)), atol=1e-14
    )


def test_inclusion_of_weightless_candidates_is_zero():
    assert inclusion_probabilities(np.array([0.0, 1.0, 3.0]), 1).tolist() == [0.0, 0.25, 0.75]
    assert inclusion_probabilities(np.array([0.0, 1.0, 3.0]), 3).tolist() == [0.0, 1.0, 1.0]


def test_inclusion_above_the_exact_limit():
    """Rosen's limit: sums to m, is monotone, is exact for equal weights, and within 2 % of 20,000
    simulated samples."""
    weights = np.arange(1.0, 61.0)
    got = inclusion_probabilities(weights, 20)
    assert abs(got.sum() - 20) < 1e-9
    assert (np.diff(got) > 0).all()
    np.testing.assert_allclose(inclusion_probabilities(np.ones(50), 10), 0.2, rtol=1e-12)
    keys = rng("rosen").standard_exponential((20_000, 60)) / weights
    seen = np.zeros(60)
    np.add.at(seen, np.argpartition(keys, 20, axis=1)[:, :20].ravel(), 1.0 / 20_000)
    assert abs(got - seen).max() < 0.02


def test_inclusion_with_one_giant_converges():
    weights = np.ones(100)
    weights[0] = 1e12
    got = inclusion_probabilities(weights, 5)
    assert abs(got.sum() - 5) < 1e-6
    assert got[0] > 1 - 1e-6
    np.testing.assert_allclose(got[1:], 4 / 99, rtol=1e-6)


def test_a_million_candidates():
    weights = 1.0 + np.arange(1_000_000) % 7
    drawn = successive_draws(weights, 100, rng("big"))
    assert len(set(drawn.tolist())) == 100
    assert abs(inclusion_probabilities(weights, 100).sum() - 100) < 1e-6


def test_the_two_ways_meet_at_the_limit():
    """Thirteen candidates are one too many for the exact sum, twelve are not; the same weights by
    both ways differ by < 0.01."""
    rng_ = rng("limit")
    weights = rng_.random(EXACT_LIMIT) + 0.1
    limit = _rosen_inclusion(weights / weights.sum(), 6)
    exact = inclusion_probabilities(weights, 6)
    assert 0 < abs(limit - exact).max() < 0.01
    assert abs(exact.sum() - 6) < 1e-12
