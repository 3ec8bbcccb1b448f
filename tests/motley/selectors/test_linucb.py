"""LinUCB: the checks of docs/methods/selectors.md#linucb and ``motley.selectors.flash``."""

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.selectors import build
from motley.selectors.base import Selector
from motley.selectors.common.linear_bandit import factor, learn, posterior_mean, widths
from motley.selectors.linucb import LinUCB
from tests.motley.selectors.bandits import back, context, play, probed

X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
IDS = np.arange(3)


def world(seed, K, T):
    rng = np.random.default_rng(seed)
    robust = rng.uniform(1, 6, (T + 2, K))
    val = rng.uniform(1, 3, (T + 2, K))
    return lambda t: robust[t], lambda t: val[t], rng.exponential(10.0, K) + 1


def test_worked_numbers():
    """V = I + e1 e1^T + e2 e2^T = 2 I, b = (1, .2): theta = (.5, .1); width of (1, 0) is sqrt(1/2),
    of (1, 1) sqrt(2/2) = 1."""
    v, b = learn(np.eye(2), np.zeros(2), X[:2], np.array([1.0, 0.2]))
    lower = factor(v)
    mean = X @ posterior_mean(lower, b)
    width = widths(lower, X)
    np.testing.assert_allclose(mean, [0.5, 0.1, 0.6])
    np.testing.assert_allclose(width, [0.707107, 0.707107, 1], atol=5e-7)
    np.testing.assert_allclose(mean + width, [1.207107, 0.807107, 1.6], atol=5e-7)


def test_sherman_morrison():
    """Adding (1, 1) to 2 I: V = [[3, 1], [1, 3]], its inverse [[3, -1], [-1, 3]] / 8; widths and
    means need no inverse."""
    v, b = learn(2 * np.eye(2), np.array([1.0, 0.2]), X[2:], np.array([0.4]))
    inverse = np.array([[0.375, -0.125], [-0.125, 0.375]])
    np.testing.assert_allclose(widths(factor(v), X) ** 2, np.einsum("nd,de,ne->n", X, inverse, X))
    np.testing.assert_allclose(posterior_mean(factor(v), b), inverse @ b)


def test_worked_numbers_of_flash():
    """``motley.selectors.flash`` (a): V = [[3, 2.5], [2.5, 5.25]], b = (.5, .4), g = 3.960414."""
    lower = factor(np.array([[3, 2.5], [2.5, 5.25]]))
    b = np.array([0.5, 0.4])
    x = np.array([[1, 0.5], [1, 2], [1, 1]])
    scores = x @ posterior_mean(lower, b) + 3.960414 * widths(lower, x)
    np.testing.assert_allclose(scores, [2.572301, 3.620301, 2.482227], atol=1e-6)


def test_first_choice_through_the_selector():
    """After round 1 with durations (2, 4, 6) and the first evaluation, x = (1, 1, .5, 0), (1, 1, 1,
    0), (1, 1, 1.5, 0) and b = 0: the score is the width alone. V = [[4,3,3],[3,4,3],[3,3,4.5]] on
    the first three, det = 4 (18 - 9) - 3 (13.5 - 9) + 3 (9 - 12) = 13.5.

    Its adjugate: (9, -4.5, -3; -4.5, 9, -3; -3, -3, 7).
    x^T adj x for tau: 9 - 12 tau + 7 tau^2 = 4.75, 4, 6.75."""
    selector = Selector(LinUCB(tau="mean", ties="lowest_id"))
    assert len(selector.select(1, IDS, 1).ids) == 3
    selector.observe(1, back(IDS, [2, 4, 6]))
    selector.observe(2, probed(IDS, [6, 5, 3], [2, 9, 4]))
    mean, width = selector.rule.bounds(selector.state, IDS)
    assert mean.tolist() == [0, 0, 0]
    np.testing.assert_allclose(width**2, np.array([4.75, 4, 6.75]) / 13.5)
    cohort = selector.rule.select(selector.state, context(2, IDS, 2))
    assert cohort.ids.tolist() == [2, 0]
    assert cohort.notes["a"] == 1.0
    scheduled = Selector(LinUCB(schedule="algorithm"))
    scheduled.observe(1, back(IDS, [2, 4, 6]))
    assert scheduled.select(2, IDS, 2).notes["a"] == pytest.approx(4.461637, abs=5e-7)


@pytest.mark.parametrize("a", [0.0, 0.3, 30.0])
def test_a_weighs_the_width_against_the_mean(a):
    robust, val, seconds = world(2, 9, 6)
    selector = Selector(LinUCB(a=a))
    ids = np.arange(9)
    play(selector, range(1, 6), ids, 3, robust, val, seconds)
    mean, width = selector.rule.bounds(selector.state, ids)
    assert selector.select(6, ids, 9).ids.tolist() == np.argsort(-(mean + a * width)).tolist()


def test_learns_the_same_as_flash():
    """Same features, same rewards, same V and b where the same clients take part: the rules differ
    in the score alone."""
    robust, val, seconds = world(0, 8, 6)
    one = Selector(LinUCB())
    other = Selector(build("flash").rule)
    for t in range(1, 6):
        for selector in (one, other):
            ids = selector.probe(t, np.arange(8), 3)
            if len(ids):
                selector.observe(t, probed(ids, robust(t), val(t)))
            took = np.array([0, t, 7])
            selector.observe(t, back(took, seconds[took]))
    np.testing.assert_array_equal(one.state.v, other.state.v)
    np.testing.assert_array_equal(one.state.b, other.state.b)


@pytest.mark.parametrize("probe", ["all", "last_report"])
def test_disjoint_is_ridge_regression_of_each_client(probe):
    """Against a plain LinUCB per client, fed with its own pairs and solved by the normal
    equations."""
    robust, val, seconds = world(3, 7, 9)
    rule = LinUCB(tau="mean", disjoint=True, lam=0.5, probe=probe)
    selector = Selector(rule)
    ids = np.arange(7)
    v = np.stack([0.5 * np.eye(4)] * 7)
    b = np.zeros((7, 4))
    for t in range(1, 10):
        if probe == "all" and t > 1:
            due = selector.state.clients.get("due", ids) > 0
            selector.observe(t, probed(ids, robust(t), val(t)))
        chosen = selector.select(t, ids, 2).ids
        selector.observe(
            t, back(chosen, seconds[chosen], robust_loss=robust(t)[chosen], val_loss=val(t)[chosen])
        )
        if probe == "last_report":
            due = np.isin(ids, chosen)
        if probe == "last_report" or t > 1:
            x = rule.features(selector.state.clients, ids)
            r = selector.state.clients.get("reward", ids)
            v += np.where(due, 1, 0)[:, None, None] * x[:, :, None] * x[:, None, :]
            b += (due * r)[:, None] * x
    mean, width = rule.bounds(selector.state, ids)
    x = rule.features(selector.state.clients, ids)
    np.testing.assert_allclose(mean, [x[i] @ np.linalg.solve(v[i], b[i]) for i in ids], atol=1e-12)
    np.testing.assert_allclose(width, [np.sqrt(x[i] @ np.linalg.solve(v[i], x[i])) for i in ids])


def test_disjoint_of_a_client_never_seen():
    """theta = 0; width |x| / sqrt(lambda) with x = (0, 0, 1, 0): nothing measured, the duration the
    mean."""
    mean, width = LinUCB(disjoint=True, lam=4.0).bounds(Selector(LinUCB(disjoint=True)).state, IDS)
    assert mean.tolist() == [0, 0, 0]
    assert width.tolist() == [0.5] * 3
    assert LinUCB(disjoint=True, schedule="algorithm").select(
        Selector(LinUCB(disjoint=True)).state, context(3, np.arange(50), 1)
    ).notes["a"] == pytest.approx(1 + (4 * np.log(2 / 0.05)) ** 0.5)


@pytest.mark.parametrize("disjoint", [False, True])
def test_regret_grows_sublinearly(disjoint):
    """As for FLASH: rewards are .6 v_i - .1 tau_i, v_i the validation ratio, plus noise."""
    rng = np.random.default_rng(0)
    K = 20
    m = 4
    T = 160
    v = rng.uniform(1, 5, K)
    seconds = rng.uniform(1, 3, K)
    tau = seconds / seconds.mean()
    expected = 0.6 * v - 0.1 * tau
    loss = np.full(K, 500.0)
    ids = np.arange(K)
    selector = Selector(LinUCB(tau="mean", disjoint=disjoint))
    regret = []
    for t in range(1, T + 1):
        if t > 1:
            selector.observe(t, probed(ids, loss, np.ones(K) if t == 2 else v))
            loss = loss + np.where(loss > 500, -1, 1) * tau * (expected + rng.uniform(-0.1, 0.1, K))
        cohort = selector.select(t, ids, m).ids
        selector.observe(t, back(cohort, seconds[cohort]))
        regret.append(np.sort(expected)[-m:].sum() - expected[cohort].sum() if t > 2 else 0.0)
    first = sum(regret[: T // 2])
    second = sum(regret[T // 2 :])
    assert second <= 0.5 * first + 1e-9  # the shared model makes no mistake at all
    assert first + second < 0.2 * T * (np.sort(expected)[-m:].sum() - m * expected.mean())


def test_equal_scores_are_broken_at_random():
    taken = {
        tuple(Selector(LinUCB(first_round="cohort"), seed).select(1, np.arange(6), 2).ids.tolist())
        for seed in range(30)
    }
    assert len(taken) > 10


def test_the_unit_of_seconds_does_not_change_the_choice():
    robust, val, seconds = world(1, 9, 9)
    chosen = [
        play(Selector(LinUCB()), range(1, 9), np.arange(9), 3, robust, val, seconds * u)
        for u in (1.0, 60.0, 1e-3)
    ]
    assert chosen[0] == chosen[1] == chosen[2]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"a": -1.0}, "selector: got -1.0 for exploration; expected a number of at least 0"),
        ({"a": 2.0, "schedule": "algorithm"}, "only schedule = 'constant' uses"),
        ({"lam": -1.0}, "expected a positive number"),
        ({"disjoint": 2}, "selector.disjoint: got 2; expected true or false"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "linucb", **record})
