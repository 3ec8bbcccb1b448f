"""Restless bandit: the checks of docs/methods/selectors.md#restless-bandit."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome
from motley.selectors import build
from motley.selectors.restless_bandit import RestlessBandit, compared_means
from motley.selectors.selector import Selector
from tests.motley.selectors.bandits import back, context

IDS = np.arange(3)


def told(rounds, rule=None):
    """The state after rounds of rewards ``{client: reward}``."""
    rule = rule or RestlessBandit()
    state = rule.init()
    for rewards in rounds:
        state = rule.compare(
            state, np.array(sorted(rewards)), np.array([float(rewards[k]) for k in sorted(rewards)])
        )
    return rule, state


def dense(rounds, K, lam):
    """A and c as docs/methods/selectors.md#restless-bandit writes them."""
    a = np.zeros((K, K))
    c = np.zeros(K)
    for rewards in rounds:
        mean = sum(rewards.values()) / len(rewards)
        for k in rewards:
            c[k] += rewards[k] - mean
            for j in rewards:
                a[k, j] += (k == j) - 1 / len(rewards)
    return np.linalg.solve(a + lam * np.eye(K), c)


def test_worked_numbers():
    """Rounds {0: 5, 1: 4}, {1: 1, 2: 3}: A = [[.5, -.5, 0], [-.5, 1, -.5], [0, -.5, .5]], c = (.5,
    -.5 - 1, 1). Without lambda, u_0 - u_1 = 1 and u_2 - u_1 = 2, and sum u = 0 gives (0, -1, 1):
    client 2 is best. Raw means (5, 2.5, 3) prefer client 0."""
    rounds = [{0: 5, 1: 4}, {1: 1, 2: 3}]
    rule, state = told(rounds)
    np.testing.assert_allclose(rule.index(state, IDS), [0.052083, -0.9375, 0.885417], atol=5e-7)
    rule, tiny = told(rounds, RestlessBandit(lam=1e-9))
    np.testing.assert_allclose(rule.index(tiny, IDS), [0, -1, 1], atol=1e-6)
    rule, state = told(rounds, RestlessBandit(explore=1e-9, ties="lowest_id"))
    seen = {"count": [1.0, 2.0, 1.0]}
    state = type(state)(state.clients.put(IDS, seen), state.members, state.starts)
    assert rule.select(state, context(3, IDS, 1)).ids.tolist() == [2]


def random_rounds(rng, K, T, m):
    return [
        dict(
            zip(
                rng.choice(K, m, replace=False).tolist(),
                rng.exponential(size=m).tolist(),
                strict=True,
            )
        )
        for _ in range(T)
    ]


@pytest.mark.parametrize(("K", "T", "m"), [(6, 1, 2), (6, 3, 2), (12, 40, 5), (60, 200, 10)])
def test_cohorts_kept_are_the_dense_matrix(K, T, m):
    """Disconnected graphs too (few rounds): lambda resolves them, and a client never compared has u
    = 0."""
    rounds = random_rounds(np.random.default_rng(K + T), K, T, m)
    rule, state = told(rounds)
    np.testing.assert_allclose(rule.index(state, np.arange(K)), dense(rounds, K, 0.1), atol=1e-9)
    assert len(state.members) == T * m


def test_rewards_that_cancel_leave_a_system_that_is_still_solved():
    """Every second round mirrors the one before, so c is rounding or 0 while the last u is not. A
    residual measured against such a c can never be small enough: the steps went on until a quotient
    of two numbers too small for a float."""
    ids = np.arange(5)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        for lam in (0.1, 0.01, 1e-3, 1e-9):
            rule = RestlessBandit(lam=lam)
            state = rule.init()
            for y in rng.choice([0, 0.1, 1, 2, 3, 1e3], (3, 5)):
                state = rule.compare(rule.compare(state, ids, y), ids, 2 * y.mean() - y)
            # with a small lambda the rounding of sum c may shift all of them
            assert np.ptp(rule.index(state, ids)) < 1e-6


def test_conjugate_gradients_at_3550_clients():
    """A u + lambda u = c holds, with A applied as written, for FLASH's FEMNIST population."""
    rng = np.random.default_rng(0)
    K = 3550
    T = 60
    m = 710
    cohorts = [np.sort(rng.choice(K, m, replace=False)) for _ in range(T)]
    c = np.zeros(K)
    n = np.zeros(K)
    for members in cohorts:
        y = rng.exponential(size=m)
        c[members] += y - y.mean()
        n[members] += 1
    u = compared_means(n + 0.1, c, np.concatenate(cohorts), np.arange(T + 1) * m, np.zeros(K))
    image = (n + 0.1) * u
    for members in cohorts:
        image[members] -= u[members].mean()
    np.testing.assert_allclose(image, c, atol=1e-8)


@given(st.lists(st.floats(-50, 50), min_size=8, max_size=8), st.integers(0, 1000))
def test_what_a_round_shares_drops_out(shifts, seed):
    rounds = random_rounds(np.random.default_rng(seed), 7, 8, 3)
    shifted = [{k: y + s for k, y in r.items()} for r, s in zip(rounds, shifts, strict=True)]
    rule, one = told(rounds)
    _, other = told(shifted)
    np.testing.assert_allclose(
        rule.index(one, np.arange(7)), rule.index(other, np.arange(7)), atol=1e-7
    )


def test_each_client_is_chosen_once_before_any_twice():
    for variant in ("differencing", "filter"):
        selector = Selector(RestlessBandit(variant))
        seen = []
        for t in range(1, 5):
            ids = selector.select(t, np.arange(12), 3).ids
            selector.observe(t, back(ids, np.ones(3), arrival_loss=np.ones(3)))
            seen += ids.tolist()
        assert sorted(seen) == list(range(12))


def test_exploration_set_by_hand():
    """N = (2, 1, 3, 5), t = 6: log 7 = 1.9459, so X = {1}, and u decides the other seat: (0, 0,
    1, 2) gives client 3. With D = 2, 2 log 7 = 3.89, X = {0, 1, 2}: least first, 1 then 0, and
    client 3 with the largest u is not asked."""
    ids = np.arange(4)
    columns = {"count": [2.0, 1.0, 3.0, 5.0], "u": [0.0, 0.0, 1.0, 2.0]}
    for explore, m, expected in ((1.0, 2, [1, 3]), (2.0, 2, [1, 0]), (2.0, 4, [1, 0, 2, 3])):
        rule = RestlessBandit(explore=explore, ties="lowest_id")
        state = type(rule.init())(rule.init().clients.put(ids, columns))
        cohort = rule.select(state, context(6, ids, m))
        assert cohort.ids.tolist() == expected
    assert cohort.notes["explored"] == 3


def test_exploration_grows_with_the_logarithm_of_the_next_round():
    """N = (2, 3), u = (0, 1): log 7 = 1.95 in round 6 is enough, log 8 = 2.08 in round 7 sends
    client 0 once more."""
    rule = RestlessBandit(ties="lowest_id")
    state = type(rule.init())(
        rule.init().clients.put(np.arange(2), {"count": [2.0, 3.0], "u": [0.0, 1.0]})
    )
    assert [rule.select(state, context(t, np.arange(2), 1)).ids.tolist() for t in (6, 7)] == [
        [1],
        [0],
    ]


def test_rewards_through_the_selector():
    """Durations 1: losses 9, 9, 9 then 8, 7, 6: rewards 1, 2, 3, so c = (-1, 0, 1) and A = I - 1/3:
    A has eigenvalue 1 on vectors of sum 0, so u = c / 1.1. A lone reporter, and one without a loss,
    count but compare nothing."""
    selector = Selector(RestlessBandit())
    selector.observe(1, back(IDS, [1, 1, 1], arrival_loss=[9, 9, 9]))
    assert len(selector.state.members) == 0
    selector.observe(2, back(IDS, [1, 1, 1], arrival_loss=[8, 7, 6]))
    np.testing.assert_allclose(selector.rule.index(selector.state, IDS), np.array([-1, 0, 1]) / 1.1)
    selector.observe(3, back([0], [1], arrival_loss=[1]))
    selector.observe(4, back([0, 1], [1, 1], arrival_loss=[5, np.nan]))
    assert len(selector.state.members) == 3
    assert selector.state.clients.get("count", IDS).tolist() == [4, 3, 2]
    selector.observe(5, back(IDS, [1, 1, 1], Outcome.DROPPED, arrival_loss=[1, 1, 1]))
    assert selector.state.clients.get("count", IDS).tolist() == [4, 3, 2]


def filtered(mu, belief, **options):
    rule = RestlessBandit("filter", **options)
    mu = np.array(mu, float)
    state = rule.init()
    clients = state.clients.put(
        np.arange(len(mu)), {"mu0": mu[:, 0], "mu1": mu[:, 1], "count": np.ones(len(mu))}
    )
    return rule, type(state)(clients, belief=np.array(belief))


def test_filter_worked_numbers():
    """Likelihoods of .8 around 1 and 0 with sigma .5: exp(-.08) and exp(-1.28), so the posterior of
    state 0 is 1 / (1 + exp(-1.2)) = .768525, and the prediction .9 * .768525 + .2 * .231475 =
    .737967."""
    rule, state = filtered([[1, 0]], [0.5, 0.5], stay=(0.9, 0.8), sigma=0.5)
    after = rule.filter(state, np.array([0]), np.array([0.8]))
    np.testing.assert_allclose(after.belief, [0.737967, 0.262033], atol=5e-7)
    posterior = np.array([0.768525, 0.231475])
    mu = [after.clients.get(f"mu{z}", [0])[0] for z in (0, 1)]
    np.testing.assert_allclose(
        mu, [1, 0] + posterior / (1 + posterior) * (0.8 - np.array([1, 0])), atol=1e-6
    )
    rule, state = filtered(
        [[0.2, 0.9], [0.6, 0.1], [0.5, 0.5]], [0.737967, 0.262033], ties="lowest_id"
    )
    np.testing.assert_allclose(rule.index(state, IDS), [0.383423, 0.468984, 0.5], atol=1e-6)
    assert rule.select(state, context(5, IDS, 2)).ids.tolist() == [2, 1]


def test_filter_works_with_the_mean_reward_of_the_cohort():
    """Three equal rewards tell as much as one: posterior as in the worked number."""
    rule, state = filtered([[1, 0]] * 3, [0.5, 0.5], stay=(0.9, 0.8), sigma=0.5)
    after = rule.filter(state, IDS, np.array([0.3, 0.8, 1.3]))
    np.testing.assert_allclose(after.belief, [0.737967, 0.262033], atol=5e-7)


def test_filter_starts_at_the_pooled_mean():
    """Rewards 1, 2, 3: mean 2, deviation sqrt(2/3). States start at 2 plus and minus it; with the
    mean reward in the middle the belief stays even; each mean moves by .5 / 1.5 of its distance to
    the reward."""
    rule = RestlessBandit("filter")
    state = rule.filter(rule.init(), IDS, np.array([1.0, 2.0, 3.0]))
    s = (2 / 3) ** 0.5
    assert (state.seen, state.mean) == (3, 2.0)
    assert rule.deviation(state) == pytest.approx(s)
    np.testing.assert_allclose(state.belief, [0.5, 0.5])
    start = np.array([2 + s, 2 - s])
    np.testing.assert_allclose(
        rule.emissions(state, IDS), start + (np.array([[1], [2], [3]]) - start) / 3
    )
    np.testing.assert_allclose(rule.emissions(state, np.array([99])), [start])


def test_filter_follows_a_common_state():
    """All rewards are near 5 or near 1, switching every 15 rounds: the belief of the upper state
    follows."""
    rng = np.random.default_rng(0)
    rule = RestlessBandit("filter")
    state = rule.init()
    believed = []
    for t in range(120):
        high = (t // 15) % 2 == 0
        state = rule.filter(
            state,
            rng.choice(20, 5, replace=False),
            (5.0 if high else 1.0) + 0.3 * rng.normal(size=5),
        )
        believed.append((state.belief[0] > 0.5) == high)
    assert np.mean(believed[30:]) > 0.85
    assert np.isfinite(rule.index(state, np.arange(20))).all()


def test_filter_survives_extreme_rewards():
    rule = RestlessBandit("filter", sigma=1e-3)
    state = rule.init()
    for y in itertools.chain([0, 1e3] * 20):
        state = rule.filter(state, IDS, np.full(3, float(y)))
    assert np.isfinite(state.belief).all()
    assert state.belief.sum() == pytest.approx(1.0)


def test_state_without_a_matrix():
    """A million clients in round 1 have no rewards yet; after rounds of 100 the cohorts hold 100
    ids each."""
    selector = Selector(RestlessBandit())
    for t in range(1, 4):
        selector.observe(t, back(np.arange(100), np.ones(100), arrival_loss=np.full(100, float(t))))
    assert len(selector.state.members) == 200
    assert selector.state.starts.tolist() == [0, 100, 200]


def test_needs_and_size():
    assert RestlessBandit().needs().reported == {"arrival_loss"}
    assert not RestlessBandit().needs().probed
    assert RestlessBandit().size(1, 3, 10) == 3
    assert RestlessBandit(first_round="all").size(1, 3, 10) == 10


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"lam": 0.0}, "selector: got lam = 0.0, explore = 1.0; expected positive numbers"),
        ({"explore": 0.0}, "expected positive numbers"),
        ({"variant": "filter", "stay": [1.0, 0.9]}, "expected two probabilities in"),
        ({"variant": "filter", "sigma": 0.0}, "got sigma = 0.0"),
        (
            {"variant": "filter", "lam": 1.0},
            "options of variant = 'differencing' with variant = 'filter'",
        ),
        ({"sigma": 1.0}, "options of variant = 'filter' with variant = 'differencing'"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "restless_bandit", **record})
