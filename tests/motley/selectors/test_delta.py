"""DELTA: the released form by hand, its coefficients by enumeration, what is missing
(docs/methods/selectors.md#delta)."""

import itertools

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.common.sampling import inclusion_probabilities
from motley.selectors.delta import DELTA
from motley.selectors.selector import Selector

IDS = np.array([4, 7, 9])
LOSSES = np.array([1.0, 1, 2])
GRADIENTS = np.array([[0.0, 0], [3, 0], [0, 3]])
SIZES = np.array([100.0, 100, 200])


def told(rule, losses=LOSSES, gradients=GRADIENTS, seed=0):
    selector = Selector(rule, seed)
    selector.observe(0, Reports(IDS, Outcome.ENROLLED, signals={"num_examples": SIZES}))
    signals = {"loss": np.asarray(losses, float), rule.vector: np.asarray(gradients, float)}
    selector.observe(1, Reports(IDS, Outcome.PROBED, signals=signals))
    return selector


@pytest.mark.parametrize(
    ("b", "u"),
    [
        (1.0, [0.25 * 2**0.5, 0.25 * 5**0.5, 0.5 * 5**0.5]),
        (0.0, [0.5, 0.5, 0.5**0.5]),
        (
            0.5,
            [
                0.5 * (0.25 * 2**0.5 + 0.5),
                0.5 * (0.25 * 5**0.5 + 0.5),
                0.5 * (0.5 * 5**0.5 + 0.5**0.5),
            ],
        ),
    ],
)
@pytest.mark.parametrize("vector", ["gradient_sketch", "gradient"])
def test_probabilities_by_hand(b, u, vector):
    """l / sum l = (.25, .25, .5). The mean gradient is (1, 1): distances sqrt 2, sqrt(4 + 1),
    sqrt(1 + 4)."""
    selector = told(DELTA(b, vector))
    np.testing.assert_allclose(
        selector.rule.probabilities(selector.state, IDS), np.array(u) / sum(u)
    )


@pytest.mark.parametrize(
    ("form", "u"),
    [
        ("leaf", [0.25 * 2**0.5 + 0.5, 0.25 * 5**0.5 + 0.5, 0.5 * 5**0.5 + 0.5**0.5]),
        ("cifar10", [0.25 * 2**0.5 + 0.25, 0.25 * 5**0.5 + 0.25, 0.5 * 5**0.5 + 0.5]),
    ],
)
def test_released_forms_by_hand(form, u):
    """Sizes (100, 100, 200) are shares (.25, .25, .5); b = .5, halved away. Each of c_k draws
    weighs n_k / (3 q_k n_S): the losses, here not numbers, are not asked for."""
    selector = told(DELTA(form=form), [np.nan, np.nan, np.nan])
    assert "loss" not in selector.rule.needs().probed
    q = np.array(u) / sum(u)
    np.testing.assert_allclose(selector.rule.probabilities(selector.state, IDS), q)
    for t in range(1, 9):
        cohort = selector.select(t, IDS, 2)
        at = np.searchsorted(IDS, cohort.ids)
        n = cohort.multiplicity * SIZES[at]
        np.testing.assert_allclose(cohort.weights, n / (3 * q[at] * n.sum()))
        assert cohort.multiplicity.sum() == 2


def test_only_the_cifar10_form_draws_a_client_twice():
    """Two draws of three clients with probabilities q name the same one with sum q^2."""
    twice = {}
    for form in ("leaf", "cifar10"):
        selector = told(DELTA(form=form))
        cohorts = [selector.select(1, IDS, 2, dispatch) for dispatch in range(2000)]
        twice[form] = np.mean([len(cohort.ids) == 1 for cohort in cohorts])
    q = selector.rule.probabilities(selector.state, IDS)
    expected = (q**2).sum()
    assert twice["leaf"] == 0
    assert abs(twice["cifar10"] - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 2000)


def test_distance_is_from_the_mean_and_not_the_length():
    """All gradients equal and long: no diversity, whatever their norm; with b = 1 the draw is
    uniform."""
    selector = told(DELTA(1.0), [1, 5, 9], np.full((3, 2), 7.0))
    np.testing.assert_allclose(selector.rule.probabilities(selector.state, IDS), np.full(3, 1 / 3))


def test_unbiased_by_enumeration():
    """Sum over ordered draws of two of three; p = (.25, .25, .5), v = (3, -1, 2): 1.5. With m u_k
    instead of pi_k it is not."""
    selector = told(DELTA())
    u = selector.rule.probabilities(selector.state, IDS)
    v = np.array([3.0, -1, 2])
    p = SIZES / SIZES.sum()
    chance = inclusion_probabilities(u, 2)
    got = 0.0
    naive = 0.0
    for i, j in itertools.permutations(range(3), 2):
        drawn = u[i] * u[j] / (1 - u[i])
        got += drawn * (p[i] * v[i] / chance[i] + p[j] * v[j] / chance[j])
        naive += drawn * (p[i] * v[i] / u[i] + p[j] * v[j] / u[j]) / 2
    assert got == pytest.approx(1.5)
    assert abs(naive - 1.5) > 1e-3
    cohort = selector.select(1, IDS, 2)
    at = np.searchsorted(IDS, cohort.ids)
    np.testing.assert_allclose(cohort.weights, p[at] / chance[at])


def test_short_draws_are_filled():
    """With b = 1 a client at the mean is not drawn while others can be: here u = (0, .5, .5) and
    all three are taken, pi = 1."""
    selector = told(DELTA(1.0), [1, 1, 1], [[1, 1], [2, 1], [0, 1]])
    assert all(set(selector.select(t, IDS, 2).ids.tolist()) == {7, 9} for t in range(1, 20))
    cohort = selector.select(1, IDS, 3)
    np.testing.assert_allclose(
        cohort.weights, (SIZES / SIZES.sum())[np.searchsorted(IDS, cohort.ids)]
    )


def test_a_broken_gradient_is_neither_ranked_nor_in_the_mean():
    selector = told(DELTA(1.0), [1, 1, 1], [[0, 0], [2, 0], [np.nan, 1e9]])
    np.testing.assert_allclose(selector.state.get("distance", IDS), [1, 1, np.nan])
    np.testing.assert_allclose(selector.rule.probabilities(selector.state, IDS), np.full(3, 1 / 3))


def test_no_loss_at_all_is_equal_shares():
    selector = told(DELTA(0.0), [0, -1, 0])
    np.testing.assert_allclose(selector.rule.probabilities(selector.state, IDS), np.full(3, 1 / 3))


def test_everybody_is_probed_every_round():
    assert [len(Selector(DELTA()).probe(t, IDS, 1)) for t in (1, 5)] == [3, 3]
    assert DELTA(probe_batches=2).needs().probed == {"loss": 2, "gradient_sketch": 2}


@pytest.mark.parametrize(
    ("record", "message"),
    [({"b": 2.0}, "got b = 2.0"), ({"probe_batches": 0}, "got probe_batches")],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "delta", **record})
