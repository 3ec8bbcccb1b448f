"""FedCor: the worked numbers of docs/methods/selectors.md#fedcor, the Gaussian against dense
algebra, the schedule and its rehearsals."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.fedcor import (
    FedCor,
    discounted_mean,
    fit,
    gaussians,
    greedy,
    negative_log_likelihood,
)
from motley.selectors.selector import Selector

SIGMA = np.array([[1, 0.8, 0], [0.8, 1, 0], [0, 0, 0.5]])
P = np.array([0.35, 0.25, 0.4])
NOISE = 0.01
EVERYBODY = np.ones(3, bool)
QUICK = {"dimension": 3, "first_iterations": 300, "iterations": 20}


def embedding_of(sigma, noise=NOISE):
    return np.linalg.cholesky(sigma - noise**2 * np.eye(len(sigma)))


def first_scores(sigma, alpha, there=EVERYBODY):
    """Each client's score in the first step, read off by offering it alone."""
    return [
        greedy(embedding_of(sigma), NOISE, P, alpha, np.arange(3) == k, 1)[1][0]
        for k in np.flatnonzero(there)
    ]


def test_the_worked_picks():
    """Sigma p = (.35 + .8 x .25, .8 x .35 + .25, .5 x .4) = (.55, .53, .2), over (1, 1, sqrt .5):
    (.55, .53, .282843), so 0. Then Sigma_11 = 1 - .8^2 = .36, (Sigma p)_1 = .53 - .8 x .55 = .09,
    its score .09 / .6 = .15 < .282843: client 2, although 1 was second at first."""
    ones = np.ones(3)
    np.testing.assert_allclose(first_scores(SIGMA, ones), [0.55, 0.53, 0.282843], atol=5e-7)
    at, scores = greedy(embedding_of(SIGMA), NOISE, P, ones, EVERYBODY, 3)
    assert at.tolist() == [0, 2, 1]
    np.testing.assert_allclose(scores, [0.55, 0.282843, 0.15], atol=5e-7)


def test_the_worked_picks_annealed():
    """alpha = (.5, 1, 1): (.275, .53, .282843), so 1; then client 0 has .5 x (.55 - .8 x .53) / .6
    = .105, so 2."""
    alpha = np.array([0.5, 1, 1])
    np.testing.assert_allclose(first_scores(SIGMA, alpha), [0.275, 0.53, 0.282843], atol=5e-7)
    at, scores = greedy(embedding_of(SIGMA), NOISE, P, alpha, EVERYBODY, 3)
    assert at.tolist() == [1, 2, 0]
    np.testing.assert_allclose(scores, [0.53, 0.282843, 0.105], atol=5e-7)


def test_top_scores_without_the_downdate_would_take_twins():
    """The trap: ranking the first scores alone gives (0, 1), two clients that tell the same."""
    assert np.argsort(first_scores(SIGMA, np.ones(3)))[::-1][:2].tolist() == [0, 1]
    assert greedy(embedding_of(SIGMA), NOISE, P, np.ones(3), EVERYBODY, 2)[0].tolist() == [0, 2]


@given(st.integers(2, 14), st.integers(1, 5), st.floats(0.01, 1), st.integers(0, 10**6))
def test_each_pick_is_that_of_the_whole_matrix(clients, d, noise, seed):
    """The definition, with the rank-one downdate of the whole Sigma at each step; scores within
    1e-8, picks the same. The rows and columns of picked clients are 0 there, so the sum over all j
    equals that over the others."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(clients, d))
    p = rng.dirichlet(np.ones(clients))
    alpha = rng.uniform(0.3, 1, clients)
    there = rng.random(clients) < 0.8
    m = int(there.sum())
    at, scores = greedy(x, noise, p, alpha, there, m)
    sigma = x @ x.T + noise**2 * np.eye(clients)
    for i, k in enumerate(at.tolist()):
        score = alpha * (sigma @ p) / np.sqrt(np.maximum(np.diag(sigma), noise**2))
        left = there & ~np.isin(np.arange(clients), at[:i])
        assert score[left].max() <= score[k] + 1e-8
        assert abs(score[k] - scores[i]) < 1e-8
        others = ~np.isin(np.arange(clients), at[:i])
        assert abs(sigma[k, others] @ p[others] - sigma[k] @ p) < 1e-8
        sigma = sigma - np.outer(sigma[:, k], sigma[k]) / sigma[k, k]
        assert abs(sigma[k]).max() < 1e-8
    assert sorted(at.tolist()) == np.flatnonzero(there).tolist()


def test_scaling_sigma_changes_nothing():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 4))
    p = rng.dirichlet(np.ones(30))
    alpha = rng.uniform(0.5, 1, 30)
    one, other = (greedy(x * c, 0.1 * c, p, alpha, np.ones(30, bool), 12)[0] for c in (1.0, 7.0))
    assert one.tolist() == other.tolist()


def test_beyond_the_dimension_the_order_is_by_p_and_alpha():
    """Once the embedding is exhausted Sigma is nearly noise^2 I, and a score alpha_k p_k noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2))
    p = rng.dirichlet(np.ones(12))
    alpha = np.ones(12)
    at, scores = greedy(x, 1e-4, p, alpha, np.ones(12, bool), 12)
    assert scores[0] > 1e3 * scores[4]
    np.testing.assert_allclose(scores[-1], p[at[-1]] * 1e-4, rtol=0.6)


def test_the_discounted_mean():
    """g = .9, y = -1 at e = 1 and -.5 at e = 3, t = 3: (.81 x -1 + 1 x -.5) / 1.81 = -.723757."""
    weights = 0.9 ** (3 - np.array([1.0, 3.0]))
    assert discounted_mean(np.array([[-1.0, -0.5]]), weights)[0] == pytest.approx(
        -0.723757, abs=5e-7
    )
    assert discounted_mean(np.array([[np.nan, -0.5]]), weights)[0] == -0.5


@pytest.fixture
def holes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 2))
    r = rng.normal(size=(6, 5))
    w = rng.random(5)
    r[0, 1] = r[3, 2] = r[2, 3] = r[3, 3] = np.nan
    r[:, 4] = np.nan  # nobody was measured
    return x, r, w


def dense_likelihood(x, r, w, noise):
    from scipy.stats import multivariate_normal

    sigma = x @ x.T + noise**2 * np.eye(len(x))
    total = 0.0
    for e in range(r.shape[1]):
        o = ~np.isnan(r[:, e])
        if o.any():
            total -= w[e] * multivariate_normal(cov=sigma[np.ix_(o, o)]).logpdf(r[o, e])
    return total


def test_likelihood_against_dense_algebra(holes):
    """A client that was not measured is left out of its round: the marginal Gaussian."""
    x, r, w = holes
    value, _ = negative_log_likelihood(x, gaussians(r, w), 0.3)
    assert value == pytest.approx(dense_likelihood(x, r, w, 0.3), abs=1e-8)


def test_gradient_against_differences(holes):
    x, r, w = holes
    _, slope = negative_log_likelihood(x, gaussians(r, w), 0.3)
    for at in np.ndindex(x.shape):
        h = np.zeros_like(x)
        h[at] = 1e-6
        difference = (
            dense_likelihood(x + h, r, w, 0.3) - dense_likelihood(x - h, r, w, 0.3)
        ) / 2e-6
        assert slope[at] == pytest.approx(difference, abs=1e-6)


def test_training_finds_the_groups():
    """Two groups whose losses move together, independently of each other: the trained Sigma says
    so, the initial one does not, and the first two picks are one of each."""
    rng = np.random.default_rng(0)
    changes = np.repeat(rng.normal(size=(2, 30)), 4, axis=0) + 0.05 * rng.normal(size=(8, 30))
    x = fit(rng.normal(size=(8, 3)) / 3**0.5, changes, np.ones(30), 0.1, 0.02, 500)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    alike = unit @ unit.T
    assert alike[:4, :4].min() > 0.9
    assert alike[4:, 4:].min() > 0.9
    assert abs(alike[:4, 4:]).max() < 0.7
    at, _ = greedy(x, 0.1, np.full(8, 1 / 8), np.ones(8), np.ones(8, bool), 2)
    assert {k // 4 for k in at.tolist()} == {0, 1}


# ---- the schedule ----


def test_the_schedule():
    """warmup 3, interval 2: epochs 0 to 3 are the warm-up, 4 is the first later multiple of 2, so a
    rehearsal follows round 5."""
    rule = FedCor(warmup=3, interval=2)
    expected = [
        (0, False),
        (1, False),
        (2, False),
        (3, False),
        (4, False),
        (4, True),
        (5, False),
        (6, False),
        (6, True),
        (7, False),
    ]
    assert [rule.schedule(t) for t in range(1, 11)] == expected
    assert FedCor().schedule(52) == (50, True)
    assert FedCor(warmup=50).schedule(102) == (100, True)


class World:
    """K clients whose losses are told by a function of the model's version, and a rehearsed model
    of its own."""

    def __init__(self, rule, K=8, m=3, seed=0):
        self.selector = Selector(rule, seed)
        self.ids = 5 + 2 * np.arange(K)
        self.m = m
        self.selector.observe(
            0, Reports(self.ids, Outcome.ENROLLED, signals={"num_examples": np.arange(1.0, K + 1)})
        )
        self.rng = np.random.default_rng(1)
        self.losses = {}
        self.cohorts = []
        self.probed = []

    def round(self, t, accepted=True):
        asked = self.selector.probe(t, self.ids, self.m)
        self.probed.append(len(asked))
        if len(asked):
            self.losses[t] = self.rng.exponential(size=len(asked))
            self.selector.observe(
                t, Reports(asked, Outcome.PROBED, signals={"loss": self.losses[t]})
            )
        cohort = self.selector.select(t, self.ids, self.m)
        self.cohorts.append(cohort)
        if cohort.rehearsal and accepted:
            self.losses[t, "rehearsed"] = self.rng.exponential(size=len(asked))
            self.selector.observe(
                t, Reports(asked, Outcome.PROBED, signals={"loss": self.losses[t, "rehearsed"]})
            )
        outcome = (
            (Outcome.REHEARSED if cohort.rehearsal else Outcome.ACCEPTED)
            if accepted
            else Outcome.DROPPED
        )
        self.selector.observe(t, Reports(cohort.ids, outcome))
        return cohort

    def column(self, name):
        return self.selector.state.clients.get(name, self.ids)


def test_schedule_of_measurements_and_trainings():
    """warmup 2, interval 2: rounds 1 to 4 probe (the change of round 3 is known in round 4), round
    4 = epoch 3 is the first greedy one, round 6 rehearses for epoch 4, round 9 for epoch 6. The
    changes are differences of consecutive warm-up probes, and rehearsed minus received within a
    rehearsal: never across."""
    world = World(FedCor(warmup=2, interval=2, **QUICK))
    for t in range(1, 10):
        world.round(t)
    assert world.probed == [8, 8, 8, 8, 0, 8, 0, 0, 8]
    assert [cohort.rehearsal for cohort in world.cohorts] == [False] * 5 + [
        True,
        False,
        False,
        True,
    ]
    assert [cohort.notes["greedy"] for cohort in world.cohorts] == [0, 0, 0, 1, 1, 0, 1, 1, 0]
    loss = world.losses
    expected = [loss[2] - loss[1], loss[3] - loss[2], loss[4] - loss[3]]
    expected += [loss[6, "rehearsed"] - loss[6], loss[9, "rehearsed"] - loss[9]]
    np.testing.assert_allclose(world.column("changes"), np.transpose(expected))
    assert world.selector.state.epochs.tolist() == [0, 1, 2, 4, 6]


def test_the_gaussian_is_trained_at_the_end_of_the_warm_up_and_in_rehearsals():
    world = World(FedCor(warmup=2, interval=2, **QUICK))
    trained = []
    for t in range(1, 8):
        world.round(t)
        trained.append(world.column("embedding"))
    assert all(np.isnan(x).all() for x in trained[:3])
    assert np.isfinite(trained[3]).all()
    np.testing.assert_array_equal(trained[3], trained[4])
    assert not np.array_equal(trained[4], trained[5])
    np.testing.assert_array_equal(trained[5], trained[6])


def test_annealing():
    """alpha is .9^3 = .729 after three picks; warm-up and rehearsal cohorts are not annealed, and a
    rehearsal sets it to 1."""
    world = World(FedCor(warmup=0, interval=5, **QUICK), m=8)
    for t in (1, 2, 3, 4):
        world.round(t)
    # rounds 2, 3, 4; round 1 is the warm-up
    np.testing.assert_allclose(world.column("alpha"), 0.9**3)
    assert world.round(5).notes["min_alpha"] == pytest.approx(0.729)
    world.round(6)
    assert world.selector.rule.schedule(7) == (5, True)
    world.round(7)
    assert (world.column("alpha") == 1).all()


def test_only_dispatched_clients_are_annealed_also_dropped_ones():
    world = World(FedCor(warmup=0, interval=5, **QUICK))
    world.round(1)
    cohort = world.round(2, accepted=False)
    alpha = world.column("alpha")
    assert (alpha[np.isin(world.ids, cohort.ids)] == 0.9).all()
    assert (alpha[~np.isin(world.ids, cohort.ids)] == 1).all()


def test_a_rehearsal_that_failed_teaches_nothing():
    """Nobody came back: the second probe is left out, and the next rehearsal does not take the loss
    of this one for its own."""
    world = World(FedCor(warmup=0, interval=1, **QUICK))
    for t in range(1, 3):
        world.round(t)
    assert world.round(3, accepted=False).rehearsal
    before = world.selector.state.epochs.tolist()
    world.round(4)
    world.round(5)
    assert world.selector.state.epochs.tolist() == [*before, 2]
    np.testing.assert_allclose(
        world.column("changes")[:, -1], world.losses[5, "rehearsed"] - world.losses[5]
    )


def test_old_changes_are_forgotten():
    """Round e is kept while e + M >= t: with M = 2 the changes of epochs 0 to 4 leave 2, 3, 4."""
    world = World(FedCor(warmup=4, interval=50, history=2, **QUICK))
    for t in range(1, 7):
        world.round(t)
    assert world.selector.state.epochs.tolist() == [2, 3, 4]
    assert world.column("changes").shape == (8, 3)


def test_a_gap_between_warm_up_probes_is_no_change_of_one_round():
    world = World(FedCor(warmup=6, interval=50, **QUICK))
    for t in (1, 2, 4, 5):  # nobody was there in round 3
        world.round(t)
    assert world.selector.state.epochs.tolist() == [0, 3]


def test_missing_losses_are_masked():
    selector = Selector(FedCor(warmup=2, interval=50, **QUICK))
    for t, losses in enumerate(([1.0, 2, 3], [0.5, np.nan, 2], [0.25, 1, np.inf]), start=1):
        selector.observe(
            t, Reports(np.arange(3), Outcome.PROBED, signals={"loss": np.array(losses)})
        )
        selector.observe(t, Reports.empty())
    changes = selector.state.clients.get("changes", np.arange(3))
    np.testing.assert_array_equal(changes, [[-0.5, -0.25], [np.nan, np.nan], [-1, np.nan]])


def test_unavailable_clients_count_in_the_sum_but_are_not_chosen():
    """Without the sum over all, a client whose friends are away would look as if it stood for
    nobody."""
    x = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1.3]])
    p = np.full(4, 0.25)
    there = np.array([True, False, False, True])
    assert greedy(x, NOISE, p, np.ones(4), there, 1)[0].tolist() == [0]
    assert greedy(x[there], NOISE, p[there], np.ones(2), there[there], 1)[0].tolist() == [1]


def told_sigma(rule, alpha=(1.0, 1.0, 1.0)):
    """A selector that has learned SIGMA, of clients 4, 7, 9 with sizes in the proportions P."""
    selector = Selector(rule)
    ids = np.array([4, 7, 9])
    selector.observe(0, Reports(ids, Outcome.ENROLLED, signals={"num_examples": 100 * P}))
    clients = selector.state.clients.put(
        ids, {"embedding": embedding_of(SIGMA), "alpha": np.array(alpha)}
    )
    selector.state = dataclasses.replace(selector.state, clients=clients)
    return selector, ids


def test_the_worked_picks_through_the_selector():
    """p_k comes from the sizes enrolled, alpha from the state; ids are not positions."""
    for alpha, picks, score in (((1.0, 1, 1), [4, 9], 0.55), ((0.5, 1, 1), [7, 9], 0.53)):
        selector, ids = told_sigma(FedCor(warmup=0, dimension=3), alpha)
        cohort = selector.select(9, ids, 2)
        assert cohort.ids.tolist() == picks
        assert cohort.notes["score"] == pytest.approx(score, abs=5e-7)


def test_unavailable_clients_count_in_the_sum():
    """Without client 4: client 7 keeps .8 x .35 + .25 = .53, of which .28 is what it says of client
    4."""
    selector, ids = told_sigma(FedCor(warmup=0, dimension=3))
    cohort = selector.select(9, ids[1:], 1)
    assert cohort.ids.tolist() == [7]
    assert cohort.notes["score"] == pytest.approx(0.53, abs=5e-7)


def test_trainings_are_discounted_and_of_the_given_length():
    """Epochs 0, 1, 2 in the first training (after two epochs: g^2, g, 1; 30 steps), and those and 4
    in the second (7 steps), which starts where the first ended."""
    world = World(
        FedCor(warmup=2, interval=2, discount=0.5, dimension=3, first_iterations=30, iterations=7)
    )
    g = 0.5
    for t in range(1, 7):
        world.round(t)
        if t == 4:
            first = world.column("embedding")
    drawn = world.selector.rule.embedding(world.selector.rule.init().clients, world.ids)
    changes = world.column("changes")
    np.testing.assert_allclose(
        first, fit(drawn, changes[:, :3], g ** np.array([2.0, 1, 0]), NOISE, 0.01, 30)
    )
    again = fit(first, changes, g ** np.array([4.0, 3, 2, 0]), NOISE, 0.01, 7)
    np.testing.assert_allclose(world.column("embedding"), again)


def test_newcomers_have_an_embedding_of_their_own():
    world = World(FedCor(warmup=1, interval=50, **QUICK))
    for t in (1, 2, 3):
        world.round(t)
    ids = np.append(world.ids, [90, 91])
    assert len(world.selector.select(4, ids, 10).ids) == 10
    rows = world.selector.rule.embedding(world.selector.state.clients, np.array([90, 91]))
    assert np.isfinite(rows).all()
    assert not np.array_equal(rows[0], rows[1])


def test_the_first_embedding_has_the_published_law():
    """N(0, 1) / sqrt(d), by embedding_seed and id alone."""
    rule = FedCor()
    rows = rule.embedding(rule.init().clients, np.arange(4000))
    assert rows.std() == pytest.approx(15**-0.5, rel=0.02)
    np.testing.assert_array_equal(
        rows[[7, 70]], rule.embedding(rule.init().clients, np.array([7, 70]))
    )
    other = FedCor(embedding_seed=1)
    assert not np.array_equal(rows[:3], other.embedding(other.init().clients, np.arange(3)))


def test_needs():
    assert FedCor().needs().probed == {"loss": None}
    assert FedCor(measured="val_loss").needs().probed == {"val_loss": None}
    assert FedCor().needs().enrolled == {"num_examples"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"interval": 0}, "interval = 0"),
        ({"discount": 0.0}, r"discount = 0.0, annealing = 0.9; expected numbers in \(0, 1\]"),
        ({"annealing": 1.5}, "annealing = 1.5"),
        ({"noise": 0.0}, "noise = 0.0"),
        ({"noise": 1e-200}, "at least 1e-06, below which Sigma cannot be solved"),
        ({"dimension": 0}, "dimension = 0"),
        ({"measured": "losses"}, "selector.measured: got 'losses'"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "fedcor", **record})
