"""Neural bandit: the checks of docs/methods/selectors.md#neural-bandit, gradients by finite
differences, training by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.selectors import build, neural_bandit
from motley.selectors.flash import FLASH
from motley.selectors.neural_bandit import NeuralBandit, bonus, forward, gradients, train
from motley.selectors.selector import Selector
from tests.motley.selectors.bandits import back, play, probed

SCALAR = np.array([2.0, 0.0, 0.5, 0.0])  # w1, b1, w2, b2


def test_worked_bonus_of_a_linear_model():
    """f = theta . x has gradient x = (3, 4): sqrt(9 + 16) = 5; after U = (1, 1) + (9, 16):
    sqrt(9/10 + 16/17) = 1.356900."""
    g = np.array([[3.0, 4.0]])
    assert bonus(g, np.ones(2), 1.0, 1.0).tolist() == [5.0]
    np.testing.assert_allclose(bonus(g, np.ones(2) + g[0] ** 2, 1.0, 1.0), 1.356900, atol=5e-7)


def test_worked_scalar_network():
    """w1 = 2, w2 = .5, x = 1.5: a = 3, f = .5 * 3 = 1.5; df/dw1 = .5 * 1.5 = .75, df/db1 = .5,
    df/dw2 = 3, df/db2 = 1. Without biases |(.75, 3)| = 3.092329, and sigma is that for any lambda,
    as U starts at lambda."""
    x = np.array([[1.5]])
    assert forward(SCALAR, x).tolist() == [1.5]
    g = gradients(SCALAR, x)
    assert g.tolist() == [[0.75, 0.5, 3.0, 1.0]]
    for lam in (1e-3, 1.0, 7.0):
        np.testing.assert_allclose(
            bonus(g[:, [0, 2]], np.full(2, lam), lam, 1.0), 3.092329, atol=5e-7
        )


def test_dead_unit_has_gradient_in_the_last_bias_alone():
    """x = -1.5: a = -3, nothing passes."""
    assert gradients(SCALAR, np.array([[-1.5]])).tolist() == [[0, 0, 0, 1]]


@pytest.mark.parametrize(("d", "h"), [(1, 1), (4, 7), (3, 20)])
def test_gradients_are_finite_differences(d, h):
    rng = np.random.default_rng(d * h)
    weights = rng.normal(size=(d + 2) * h + 1)
    x = rng.normal(size=(5, d))
    step = 1e-6
    for j, direction in enumerate(np.eye(len(weights))):
        slope = (
            forward(weights + step * direction, x) - forward(weights - step * direction, x)
        ) / (2 * step)
        np.testing.assert_allclose(gradients(weights, x)[:, j], slope, atol=1e-7)


@given(st.integers(0, 10**6))
def test_the_bonus_never_grows_with_what_is_learnt(seed):
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(4, 9))
    more = rng.normal(size=(3, 9))
    u = np.full(9, 0.1)
    assert (bonus(g, u + (more**2).sum(0), 0.1, 1.0) <= bonus(g, u, 0.1, 1.0)).all()


def test_one_training_step_by_hand(monkeypatch):
    """y = 1: error .5, gradient of the square 2 * .5 * g = g = (.75, .5, 3, 1); rate .01, decay .1
    on (2, 0, .5, 0)."""
    monkeypatch.setattr(neural_bandit, "STEPS", 1)
    out = train(SCALAR, np.array([[1.5]]), np.array([1.0]), 0.1, np.random.default_rng(0))
    np.testing.assert_allclose(
        out, [2 - 0.01 * (0.75 + 0.2), -0.005, 0.5 - 0.01 * (3 + 0.05), -0.01]
    )


def test_training_stops_at_a_good_pass_and_learns():
    """A fitted network is left alone after one pass; a linear target within reach is fitted."""
    rng = np.random.default_rng(0)
    exact = np.array([[1.5]])
    assert (train(SCALAR, exact, np.array([1.5]), 0.0, rng) == SCALAR).all()
    start = NeuralBandit().init().weights
    x = rng.uniform(-1, 1, (50, 4))
    y = 1 + x[:, 0] - 0.5 * x[:, 1]
    after = train(start, x, y, 1e-3, rng)
    assert ((forward(after, x) - y) ** 2).mean() < 0.02 * ((forward(start, x) - y) ** 2).mean()


def test_a_good_pass_is_one_of_a_small_mean_error(monkeypatch):
    """Errors of .03 on each of three pairs: the mean of squares is 9e-4, the sum 2.7e-3. One pass,
    three steps, is enough."""
    x = np.full((3, 1), 1.5)
    y = np.full(3, 1.53)
    whole = train(SCALAR, x, y, 0.0, np.random.default_rng(0))
    monkeypatch.setattr(neural_bandit, "STEPS", 3)
    assert (train(SCALAR, x, y, 0.0, np.random.default_rng(0)) == whole).all()


def test_the_score_is_prediction_plus_bonus():
    """nu = 0 ranks by the prediction alone, a large one by the gradient."""
    robust, val, seconds = world(3, 12, 5)
    orders = []
    for nu in (0.0, 1.0, 1e4):
        selector = Selector(NeuralBandit(hidden=6, nu=nu, first_round="all"))
        ids = np.arange(12)
        selector.observe(1, back(ids, seconds))
        selector.observe(2, probed(ids, robust(2), val(2)))
        selector.observe(2, back(ids, seconds))
        selector.observe(3, probed(ids, robust(3), val(3)))
        state = selector.state
        x = neural_bandit.standardised(selector.rule.features(state.clients, ids), state.x_moments)
        g = gradients(state.weights, x)
        score = forward(state.weights, x) + np.sqrt((0.001 * nu * g**2 / state.u).sum(axis=1))
        orders.append(selector.select(3, ids, 12).ids.tolist())
        assert orders[-1] == np.argsort(-score).tolist()
    assert orders[0] != orders[2]


def test_a_training_that_diverges_leaves_the_network_as_it_was():
    x = np.full((20, 4), 1e3)
    start = NeuralBandit().init().weights
    assert (train(start, x, np.full(20, 1e3), 1e-3, np.random.default_rng(0)) == start).all()


def test_heavy_tails_do_not_diverge():
    rng = np.random.default_rng(0)
    rule = NeuralBandit()
    state = rule.init()
    for t in range(1, 6):
        x = np.exp(2 * rng.normal(size=(40, 4)))
        y = np.exp(2 * rng.normal(size=40))
        state = replace(state, x_moments=neural_bandit.add_moments(state.x_moments, x))
        after = rule.learn(state, t, x, y)
        assert (after.weights != state.weights).any()
        state = after
    assert np.isfinite(state.weights).all()


def test_moments_are_those_of_everything_so_far():
    rng = np.random.default_rng(0)
    parts = [rng.normal(3, 2, (n, 2)) for n in (1, 7, 0, 30)]
    parts[1][::2, 0] = np.nan
    moments = np.zeros((3, 2))
    for part in parts:
        moments = neural_bandit.add_moments(moments, part)
    whole = np.concatenate(parts)
    np.testing.assert_allclose(moments[1], np.nanmean(whole, axis=0))
    np.testing.assert_allclose(neural_bandit.deviation(moments), np.nanstd(whole, axis=0))


def test_standardised_features():
    """Mean 2, deviation 2, and a constant element: (6 - 2) / 2 = 2; 100 is cut off at 3; what is
    absent is 0."""
    moments = np.array([[4.0, 4.0], [2.0, 1.0], [16.0, 0.0]])
    x = np.array([[6.0, 1.0], [100.0, 1.5], [np.nan, np.nan]])
    assert neural_bandit.standardised(x, moments).tolist() == [[2, 0], [3, 0.5], [0, 0]]


def world(seed, K, T):
    rng = np.random.default_rng(seed)
    robust = rng.uniform(1, 6, (T + 2, K))
    val = rng.uniform(1, 3, (T + 2, K))
    return lambda t: robust[t], lambda t: val[t], rng.exponential(10.0, K) + 1


def test_learns_from_the_pairs_of_flash():
    """Played with the same participants, the buffer's pairs give FLASH's V and b; U is lambda plus
    the squared gradients."""
    robust, val, seconds = world(0, 8, 6)
    one = Selector(NeuralBandit(hidden=5))
    other = Selector(FLASH())
    for t in range(1, 6):
        for selector in (one, other):
            ids = selector.probe(t, np.arange(8), 3)
            if len(ids):
                selector.observe(t, probed(ids, robust(t), val(t)))
            took = np.array([0, t, 7])
            selector.observe(t, back(took, seconds[took]))
    x = one.state.x
    y = one.state.y
    assert x.shape == (12, 4)
    np.testing.assert_allclose(np.eye(4) + x.T @ x, other.state.v)
    np.testing.assert_allclose(x.T @ y, other.state.b)
    assert one.state.u[-1] == pytest.approx(0.001 + 12)  # df/db2 = 1


def test_u_by_hand():
    rule = NeuralBandit(hidden=3)
    state = rule.init()
    state = replace(state, x_moments=np.array([[9.0] * 4, [0.0] * 4, [9.0] * 4]))
    x = np.array([[1, 0, -1, 2], [0.5, 1, 0, 0]])
    after = rule.learn(state, 1, x, np.array([1.0, 2.0]))
    np.testing.assert_allclose(after.u, 0.001 + (gradients(state.weights, x) ** 2).sum(0))
    assert (after.x == x).all()


def test_the_buffer_keeps_the_newest():
    rule = NeuralBandit(hidden=2, buffer=5)
    state = rule.init()
    for t in range(1, 4):
        state = rule.learn(state, t, np.full((2, 4), float(t)), np.full(2, float(t)))
    assert state.y.tolist() == [1, 2, 2, 3, 3]
    state = rule.learn(state, 4, np.arange(400.0).reshape(100, 4), np.arange(100.0))
    assert len(set(state.y.tolist())) == 5
    assert state.y.max() > 10  # not just the first ones
    assert (state.x[:, 0] == 4 * state.y).all()


def test_prefers_what_pays():
    """Rewards are 3 for validation ratios of about 2 and .5 for others, which no linear model can
    say."""
    rng = np.random.default_rng(0)
    K = 30
    m = 5
    v = np.concatenate([np.full(10, 1.0), np.full(10, 2.0), np.full(10, 3.0)])
    pay = np.where(v == 2.0, 3.0, 0.5)
    loss = np.full(K, 500.0)
    ids = np.arange(K)
    good = []
    selector = Selector(NeuralBandit(hidden=30, drop="reward", first_round="all"))
    for t in range(1, 61):
        if t > 1:
            selector.observe(t, probed(ids, loss, np.ones(K) if t == 2 else v))
            loss = loss + np.where(loss > 500, -1, 1) * (pay + rng.uniform(-0.1, 0.1, K))
        cohort = selector.select(t, ids, m).ids
        selector.observe(t, back(cohort, np.ones(len(cohort))))
        good.append((v[cohort] == 2.0).mean())
    assert np.mean(good[-20:]) > 0.8


def test_seeds():
    """The selector's seed decides the first round; the rule's the network."""
    first = [
        Selector(NeuralBandit(), seed).select(1, range(50), 5).ids.tolist() for seed in (0, 0, 1)
    ]
    assert first[0] == first[1] != first[2]
    assert (NeuralBandit(seed=0).init().weights == NeuralBandit().init().weights).all()
    assert (NeuralBandit(seed=1).init().weights != NeuralBandit().init().weights).any()
    assert abs(NeuralBandit().init().weights[:500]).max() <= 0.5
    assert abs(NeuralBandit().init().weights[500:]).max() <= 0.1


def test_first_round_and_needs():
    assert NeuralBandit().size(1, 3, 10) == 3
    assert NeuralBandit(first_round="all").size(1, 3, 10) == 10
    assert NeuralBandit().needs() == FLASH().needs()
    assert len(NeuralBandit().init().weights) == 6 * 100 + 1


def test_the_unit_of_seconds_does_not_change_the_choice():
    robust, val, seconds = world(1, 9, 6)
    rule = NeuralBandit(hidden=6)
    chosen = [
        play(Selector(rule), range(1, 6), np.arange(9), 3, robust, val, seconds * unit)
        for unit in (1.0, 4096.0)
    ]
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"hidden": 0}, "selector: got hidden = 0, buffer = 5000; expected at least 1"),
        ({"lam": 0.0}, "expected lam above 0"),
        ({"nu": -1.0}, "nu of at least 0"),
        ({"probe_batches": 0}, "got probe_batches = 0"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "neural_bandit", **record})
