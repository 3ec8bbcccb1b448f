"""FEEL: the worked numbers of docs/methods/selectors.md#feel, optimality, and exact unbiasedness of
the ordered coefficients."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.feel import FEEL, ordered_weights, schedule
from motley.selectors.selector import Selector

IDS = np.array([4, 7, 9])
SIZES = np.array([100.0, 100, 200])
NORMS = np.array([1.0, 2, 1])
SECONDS = np.array([1.0, 2, 4])
C = SIZES / SIZES.sum() * NORMS


def told(rule, norms=NORMS, seconds=SECONDS, seed=0):
    selector = Selector(rule, seed)
    selector.observe(0, Reports(IDS, Outcome.ENROLLED, signals={"num_examples": SIZES}))
    signals = {
        "grad_norm": np.asarray(norms, float),
        "upload_estimate_s": np.asarray(seconds, float),
    }
    selector.observe(1, Reports(IDS, Outcome.PROBED, signals=signals))
    return selector


def ordered_draws(p, m):
    """Every ordered draw without replacement and its probability."""
    for order in itertools.permutations(range(len(p)), m):
        chance = 1.0
        left = sum(p)
        for i in order:
            chance = chance * p[i] / left
            left = left - p[i]
        yield list(order), chance


@pytest.mark.parametrize(
    ("rho", "expected", "lam"),
    [
        (0.5, (0.334465, 0.400487, 0.265048), -0.220650),
        (0.01, (0.920757, 0.050233, 0.029009), None),
        (0.99, (0.201038, 0.400769, 0.398193), None),
        (1.0, (0.2, 0.4, 0.4), 1.5625),
    ],
)
def test_worked_probabilities(rho, expected, lam):
    """c = (.25, .5, .5), T = (1, 2, 4); with rho = 1, p ~ c and lam = (sum c)^2 = 1.25^2."""
    p, found = schedule(C, SECONDS, rho)
    np.testing.assert_allclose(p, expected, atol=1e-6)
    assert lam is None or found == pytest.approx(lam, abs=1e-6)
    raw = told(FEEL(rho, scaled=False))
    np.testing.assert_allclose(raw.rule.probabilities(raw.state, IDS), p, rtol=1e-12)


def test_worked_objective():
    p, _ = schedule(C, SECONDS, 0.5)
    assert 0.5 * (C**2 / p).sum() + 0.5 * p @ SECONDS == pytest.approx(1.974981, abs=1e-6)


@given(st.integers(1, 12), st.floats(1e-4, 1.0), st.integers(0, 9999), st.floats(0.1, 6.0))
def test_newton_agrees_with_bracketing(k, rho, seed, spread):
    rng = np.random.default_rng(seed)
    c = rng.lognormal(sigma=spread, size=k)
    seconds = rng.lognormal(sigma=spread, size=k)
    p, _ = schedule(c, seconds, rho)
    cost = (1 - rho) * seconds
    d = cost - cost.min()

    def excess(log_x):
        return np.log((c * np.sqrt(rho / (d + np.exp(log_x)))).sum())

    top = np.log(rho) + 2 * np.log(c.sum())
    x = np.exp(
        brentq(excess, 2 * np.log(c[np.argmin(cost)]) + np.log(rho) - 1e-6, top + 1e-6, xtol=1e-13)
    )
    expected = c * np.sqrt(rho / (d + x))
    np.testing.assert_allclose(p, expected / expected.sum(), rtol=1e-6)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("rho", [0.1, 0.5, 1.0])
def test_unbiased_by_enumeration(m, rho):
    """g = (3, -1, 2), n = (1, 1, 2): average (3 - 1 + 4) / 4 = 1.5, exactly the expectation over
    all ordered draws; a_k = n_k / (n m p_k) with the same draws misses it."""
    g = np.array([3.0, -1, 2])
    share = SIZES / SIZES.sum()
    p, _ = schedule(C, SECONDS, rho)
    draws = list(ordered_draws(p, m))
    assert sum(
        chance * (ordered_weights(share[at], p, np.array(at)) @ g[at]) for at, chance in draws
    ) == pytest.approx(1.5)
    naive = sum(chance * (share[at] / (m * p[at]) @ g[at]) for at, chance in draws)
    assert (abs(naive - 1.5) < 1e-9) == (m == 1)


def test_ordered_weights_by_hand():
    """p = (.5, .3, .2), drawn 1 then 0, shares (.25, .25): q = (.3, .5 / .7); a = .125 (1 / .3 +
    1), .125 * 1.4."""
    got = ordered_weights(np.array([0.25, 0.25]), np.array([0.5, 0.3, 0.2]), np.array([1, 0]))
    np.testing.assert_allclose(got, [0.125 * (1 / 0.3 + 1), 0.125 * 1.4])


def test_no_importance_is_uniform_and_unbiased():
    p = np.zeros(3)
    share = SIZES / SIZES.sum()
    g = np.array([3.0, -1, 2])
    draws = list(ordered_draws(np.full(3, 1 / 3), 2))
    assert sum(
        chance * (ordered_weights(share[at], p, np.array(at)) @ g[at]) for at, chance in draws
    ) == pytest.approx(1.5)
    assert len(told(FEEL(), norms=np.zeros(3)).select(1, IDS, 2).ids) == 2


def test_a_client_without_gradient_fills_last_with_its_plain_share():
    cohort = told(FEEL(), norms=[0, 1, 0]).select(1, IDS, 2)
    assert cohort.ids[0] == 7
    share = dict(zip(IDS.tolist(), SIZES / SIZES.sum(), strict=True))
    np.testing.assert_allclose(
        cohort.weights, [share[7] / 2 * (1 + 1), share[int(cohort.ids[1])] / 2]
    )


def test_scaled_worked_by_hand():
    """c = (.25, .5, .5) / 1.25 = (.2, .4, .4), T = (1, 2, 4) / (7 / 3) = (3, 6, 12) / 7, rho = .5:
    p = c sqrt(.5 / (T / 2 + lam)) sums to 1 at lam = .033417: .2 sqrt(.5 / .247703) = .284151, .4
    sqrt(.5 / .461988) = .416130, .4 sqrt(.5 / .890560) = .299718.
    Trap: c with mean 1 would leave the channel out: (.2, .4, .4)."""
    selector = told(FEEL())
    p = selector.rule.probabilities(selector.state, IDS)
    np.testing.assert_allclose(p, [0.284151, 0.416130, 0.299718], atol=1e-6)


def test_scaled_does_not_depend_on_units():
    one = told(FEEL())
    other = told(FEEL(), NORMS * 1e3, SECONDS * 1e-3)
    np.testing.assert_allclose(
        one.rule.probabilities(one.state, IDS),
        other.rule.probabilities(other.state, IDS),
        rtol=1e-12,
    )


@given(st.integers(0, 2), st.floats(1.01, 50), st.floats(0.05, 0.95))
def test_a_slower_uplink_is_never_chosen_more_often(who, factor, rho):
    slower = SECONDS.copy()
    slower[who] *= factor
    assert schedule(C, slower, rho)[0][who] <= schedule(C, SECONDS, rho)[0][who] + 1e-12


def test_missing_norms_and_times():
    """NaN keeps the old value; never known: the largest norm, the mean time."""
    selector = told(FEEL(rho=1.0), norms=[1, np.nan, 4])
    np.testing.assert_allclose(
        selector.rule.probabilities(selector.state, IDS), np.array([1, 4, 8]) / 13
    )
    selector.observe(
        2, Reports(IDS, Outcome.PROBED, signals={"grad_norm": np.array([np.inf, 2, 4.0])})
    )
    np.testing.assert_allclose(
        selector.rule.probabilities(selector.state, IDS), np.array([1, 2, 8]) / 11
    )


def test_stale_norms_are_per_step():
    selector = told(FEEL(rho=1.0, norm_source="stale"), norms=[np.nan] * 3)
    assert selector.rule.needs().probed == {"upload_estimate_s": None}
    selector.observe(
        1,
        Reports(
            IDS[:2],
            Outcome.ACCEPTED,
            local_steps=np.array([2.0, 4.0]),
            signals={"update_norm": np.array([2.0, 8.0])},
        ),
    )
    np.testing.assert_allclose(
        selector.rule.probabilities(selector.state, IDS), np.array([1, 2, 4]) / 7
    )


def test_cap_bounds_and_equal_signals_are_uniform():
    assert told(FEEL(cap=0.1)).select(1, IDS, 2).weights.max() <= 0.05
    selector = told(FEEL(), [2, 2, 1], [3, 3, 3])
    counts = np.zeros(3)
    for t in range(1, 1201):
        counts[np.searchsorted(IDS, selector.select(t, IDS, 1).ids)] += 1
    assert (abs(counts / 1200 - 1 / 3) < 4.5 * (2 / 9 / 1200) ** 0.5).all()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"rho": 0.0}, "got rho = 0.0; expected"),
        ({"cap": 0.0}, "got cap"),
        ({"probe_batches": 0}, "got probe_batches"),
        ({"norm_source": "stale", "probe_batches": 2}, "measures nothing"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "feel", **record})
