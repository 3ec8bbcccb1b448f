"""AdaSample: the worked numbers of docs/methods/selectors.md#adasample, the solver against a dense
search, the pilots, unbiasedness."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter1d

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.adasample import AdaSample, _inverse, bound_constant, pilot_constant, solve
from motley.selectors.selector import Selector

IDS = np.array([4, 7, 9])
P = np.array([0.5, 0.3, 0.2])
G = np.array([1.0, 1, 2])
TAU = np.array([1.0, 2, 4])
B = (P * G) ** 2
TABLE = [
    (0.0, 0.0, (0.548166, 0.232567, 0.219267), 2.973087),
    (0.5, -0.412173, (0.592107, 0.216160, 0.191734), 3.892754),
    (1.0, -0.613642, (0.630134, 0.199591, 0.170275), 4.767476),
    (5.0, -0.923643, (0.777699, 0.124283, 0.098019), 10.889946),
]


def objective(q, bound=B, tau=TAU, c0=0.0):
    return (q @ tau) * ((bound / q).sum() + c0)


def probed(rule, norms=G, seconds=TAU, seed=0):
    selector = Selector(rule, seed)
    selector.observe(0, Reports(IDS, Outcome.ENROLLED, signals={"num_examples": P * 100}))
    signals = {
        "grad_norm": np.asarray(norms, float),
        "compute_estimate_s": np.asarray(seconds, float),
    }
    selector.observe(1, Reports(IDS, Outcome.PROBED, signals=signals))
    return selector


@pytest.mark.parametrize(("c0", "mu", "q", "f"), TABLE)
def test_worked_solutions(c0, mu, q, f):
    got, found = solve(B, TAU, c0)
    np.testing.assert_allclose(got, q, atol=1e-6)
    assert found == pytest.approx(mu, abs=2e-6)
    assert objective(got, c0=c0) == pytest.approx(f, abs=1e-6)
    selector = probed(AdaSample(c0=c0))
    np.testing.assert_allclose(selector.rule.probabilities(selector.state, IDS), got, rtol=1e-9)


def test_reference_points():
    """c0 = 1: uniform 7/3 * 2.5 = 5.833333, q = p 1.9 * 2.6 = 4.94; c0 = 0: f = (sum p G
    sqrt(tau))^2."""
    assert objective(np.full(3, 1 / 3), c0=1.0) == pytest.approx(5.833333, abs=1e-6)
    assert objective(P, c0=1.0) == pytest.approx(4.94)
    assert objective(solve(B, TAU, 0.0)[0]) == pytest.approx((P * G @ np.sqrt(TAU)) ** 2)
    np.testing.assert_allclose(solve(B, np.ones(3), 3.0)[0], P * G / (P @ G))  # equal tau: q ~ p G
    assert solve(B, TAU, 1e9)[0][0] > 0.99  # c0 to infinity: the fastest client


@settings(max_examples=40)
@given(st.integers(2, 8), st.integers(0, 9999), st.floats(0.0, 100.0))
def test_solver_is_no_worse_than_a_dense_search(k, seed, c0):
    rng = np.random.default_rng(seed)
    bound = rng.lognormal(sigma=1.5, size=k)
    tau = rng.lognormal(sigma=1.5, size=k)
    best = np.inf
    for u in np.geomspace(1e-9, 1, 400):
        q = np.sqrt(bound / (tau - tau.min() + tau.min() * u))
        q = np.clip(q / q.sum(), 1e-7, 1)
        best = min(best, objective(q / q.sum(), bound, tau, c0))
    assert objective(solve(bound, tau, c0)[0], bound, tau, c0) <= best * (1 + 1e-6)


def test_expected_round_time_of_the_solution():
    """E max = sum (Q_i^m - Q_{i-1}^m) tau_i with tau ascending, against all draws; 1.890367 and
    2.480424 for m = 1, 2."""
    q, _ = solve(B, TAU, 0.0)
    upto = np.concatenate([[0], np.cumsum(q)])
    for m, expected in ((1, 1.890367), (2, 2.480424)):
        brute = sum(
            q[list(draw)].prod() * TAU[list(draw)].max()
            for draw in itertools.product(range(3), repeat=m)
        )
        assert np.diff(upto**m) @ TAU == pytest.approx(brute)
        assert brute == pytest.approx(expected, abs=1e-6)


def test_bound_constant():
    """M = .5 + .3 + .8 = 1.6, N = 3 (.25 + .09 + .16) = 1.5; true c0 = 2: R_w : R_u = 3.6 : 3.5, as
    R ~ X + c0."""
    assert bound_constant(P, G, np.array([3.5]), np.array([3.6]))[0] == pytest.approx(2.0)
    assert np.isnan(bound_constant(P, G, np.array([3.0]), np.array([3.0]))[0])


def test_pilots_with_a_known_law_give_c0_back():
    """1 / loss rises by 1 / (X + 2) each round, X = N for uniform and M for weighted. Long pilots,
    so smoothing hardly matters; the weighted one goes on where the uniform one ended, and the
    answer is that of equal starts."""
    t = np.arange(400)
    uniform = 1 / (50 + t / 3.5)
    weighted = 1 / (1 / uniform[-1] + t / 3.6)
    assert pilot_constant(P, G, uniform, weighted) == pytest.approx(2.0, abs=0.3)
    assert pilot_constant(P, G, uniform, uniform) == 0.0  # R_u = R_w
    assert pilot_constant(P, G, uniform, uniform[::-1]) == 0.0  # nothing learned


def test_rounds_between_two_evaluations_of_a_pilot(monkeypatch):
    """Levels 5, 10, .., 25 of the rise of 1 / loss. The weighted pilot reaches them in 1, .., 5
    rounds, the uniform one in 2 - 3.5 / 4.5 = 1.2222, 3 - 3 / 4.5 = 2.3333, 4 - 2 / 4 = 3.5,
    5 - 1 / 4 = 4.75 and 6. M = 1, N = 2 (.64 + .04) = 1.36: c0 is .62, 1.16, 1.16, .92 and .8."""
    monkeypatch.setattr("motley.selectors.adasample._inverse", lambda losses: 1 / losses)
    p = np.array([0.8, 0.2])
    uniform = 1 / (1 + np.array([0, 4, 8.5, 13, 17, 21, 25]))
    weighted = 1 / (1 + np.array([0, 5, 10, 15, 20, 25.0]))
    assert pilot_constant(p, np.ones(2), uniform, weighted) == pytest.approx(4.66 / 5)


def test_pilots_that_contradict_the_bound_give_0():
    """R_u : R_w = 3 : 2 would be c0 = (2 * 1.5 - 3 * 1.6) / 1 = -1.8."""
    assert bound_constant(P, G, np.array([3.0]), np.array([2.0]))[0] == pytest.approx(-1.8)
    assert pilot_constant(P, G, np.linspace(2, 1.2, 30), np.linspace(2, 1, 30)) == 0.0


def test_losses_are_smoothed_over_five_rounds():
    """An impulse of 1 on a loss of 1 keeps the share 1 / sum exp(-x^2 / 50) = .079788 of its
    height."""
    losses = np.ones(61)
    losses[30] = 2.0
    assert 1 / _inverse(losses)[30] == pytest.approx(1.079788, abs=1e-5)


def test_divisor_of_the_constant():
    """The notebook's c0 / m: 2 over 2 is as 1."""
    solved = []
    for rule in (AdaSample(c0=2.0, c0_divisor=2.0), AdaSample(c0=1.0)):
        selector = Selector(rule, 0)
        selector.observe(0, Reports(range(3), Outcome.ENROLLED, num_examples=1000 * P))
        signals = {"grad_norm": G, "compute_estimate_s": np.array([1.0, 2, 4])}
        selector.observe(1, Reports(range(3), Outcome.PROBED, signals=signals))
        solved.append(selector.rule.probabilities(selector.state, np.arange(3)))
    np.testing.assert_allclose(solved[0], solved[1])
    np.testing.assert_allclose(solved[0], [0.630134, 0.199591, 0.170275], atol=1e-5)


def test_unbiased_by_enumeration():
    """Models (1, 2, 4), w = .5, m = 2, draws with replacement: the expected new model is 1.9 = sum
    p_k w_k."""
    models, w, (q, _) = np.array([1.0, 2, 4]), 0.5, solve(B, TAU, 0.0)
    mean = 0.0
    for draw in itertools.product(range(3), repeat=2):
        at, counts = np.unique(draw, return_counts=True)
        mean += q[list(draw)].prod() * (w + (counts * P[at] / (2 * q[at])) @ (models[at] - w))
    assert mean == pytest.approx(1.9)


def test_the_rule_fills_these_coefficients():
    selector = probed(AdaSample())
    q = solve(B, TAU, 0.0)[0]
    total = 0.0
    n = 1500
    for t in range(1, n + 1):
        cohort = selector.select(t, IDS, 2)
        at = np.searchsorted(IDS, cohort.ids)
        assert cohort.multiplicity.sum() == 2
        np.testing.assert_allclose(cohort.weights, cohort.multiplicity * P[at] / (2 * q[at]))
        total += cohort.weights @ np.array([1.0, 2, 4])[at]
    assert total / n == pytest.approx(1.9, abs=0.08)


def test_absent_clients_are_renormalised_in_q_and_p():
    selector = probed(AdaSample())
    q = solve(B, TAU, 0.0)[0][:2]
    np.testing.assert_allclose(selector.rule.probabilities(selector.state, IDS[:2]), q / q.sum())


def test_zero_norm_is_floored_and_unknown_is_the_mean():
    zero = probed(AdaSample(), [0, 1, 2], np.ones(3))
    unknown = probed(AdaSample(), [np.nan, 1, 3], np.ones(3))
    raw = P * np.array([0.002, 1, 2])
    np.testing.assert_allclose(zero.rule.probabilities(zero.state, IDS), raw / raw.sum())
    raw = P * np.array([2, 1, 3])
    np.testing.assert_allclose(unknown.rule.probabilities(unknown.state, IDS), raw / raw.sum())


def test_probes_in_round_1_only_and_q_is_fixed_unless_refreshed():
    fixed = probed(AdaSample())
    fresh = probed(AdaSample(refresh=2))
    assert [len(fixed.probe(t, IDS, 2)) for t in (1, 2, 9)] == [3, 0, 0]
    before = fresh.rule.probabilities(fresh.state, IDS)
    for t in (1, 2):
        for selector in (fixed, fresh):
            told = {"max_grad_norm": np.array([9.0 / t])}  # the largest counts: 9, not 4.5
            selector.observe(
                t, Reports([9], Outcome.ACCEPTED, compute_s=np.array([4.0]), signals=told)
            )
        if t == 1:
            np.testing.assert_array_equal(fresh.rule.probabilities(fresh.state, IDS), before)
    np.testing.assert_array_equal(fixed.rule.probabilities(fixed.state, IDS), before)
    raw = P * np.array([1, 1, 9]) / np.sqrt(TAU)
    np.testing.assert_allclose(fresh.rule.probabilities(fresh.state, IDS), raw / raw.sum())


def test_pilots_are_rounds_uniform_then_weighted_then_solved():
    selector = Selector(AdaSample(pilots=True, pilot_rounds=3))
    selector.observe(0, Reports(IDS, Outcome.ENROLLED, signals={"num_examples": P * 100}))
    assert not len(selector.probe(1, IDS, 2))
    laws = []
    for t in range(1, 8):
        laws.append(selector.rule.probabilities(selector.state, IDS))
        # G is of the uniform pilot only
        told = {"arrival_loss": np.full(3, 2.0), "max_grad_norm": G if t <= 3 else 9 * G}
        selector.observe(t, Reports(IDS, Outcome.ACCEPTED, compute_s=TAU, signals=told))
    np.testing.assert_allclose(laws[:3], np.full((3, 3), 1 / 3))
    np.testing.assert_allclose(laws[3:6], np.tile(P, (3, 1)))
    np.testing.assert_allclose(laws[6], TABLE[0][2], atol=1e-6)  # nothing learned: c0 = 0
    assert selector.state.phase == "solved"


def test_a_pilot_keeps_small_losses_as_they_are():
    selector = Selector(AdaSample(pilots=True, pilot_rounds=3))
    selector.observe(0, Reports(IDS, Outcome.ENROLLED, signals={"num_examples": P * 100}))
    told = {"arrival_loss": np.array([0.2, 0.4, 0.1])}
    selector.observe(1, Reports(IDS, Outcome.ACCEPTED, compute_s=TAU, signals=told))
    # 0.5 * 0.2 + 0.3 * 0.4 + 0.2 * 0.1
    np.testing.assert_allclose(selector.state.uniform, [0.24])


def test_where_no_gradient_is_known_all_are_as_likely():
    for clients in (1, 4):
        q, mu = solve(np.zeros(clients), np.ones(clients), 1.0)
        assert (q.tolist(), mu) == ([1 / clients] * clients, 0.0)


@pytest.mark.parametrize("fall", [0.3, 0.5, 0.7])
def test_a_fallen_loss_ends_the_uniform_pilot_early(fall):
    """In the first round whose smoothed loss is at most 1 - fall of the first one's."""
    selector = Selector(AdaSample(pilots=True, pilot_rounds=50, pilot_fall=fall))
    losses = 2.0 / np.arange(1, 40)
    for t, loss in enumerate(losses, 1):
        selector.observe(
            t, Reports(IDS, Outcome.ACCEPTED, signals={"arrival_loss": np.full(3, loss)})
        )
    smoothed = (gaussian_filter1d(losses[:t], 5.0, mode="nearest") for t in range(1, 40))
    fallen = [bool(row[-1] <= (1.0 - fall) * row[0]) for row in smoothed]
    assert len(selector.state.uniform) == fallen.index(True) + 1 < 39
    assert selector.state.phase != "uniform"


@given(st.integers(0, 2), st.floats(1.01, 50), st.floats(0, 10))
def test_a_slower_client_is_never_chosen_more_often(who, factor, c0):
    slower = TAU.copy()
    slower[who] *= factor
    assert solve(B, slower, c0)[0][who] <= solve(B, TAU, c0)[0][who] + 1e-6


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"c0": -1.0}, "got c0 = -1.0"),
        ({"c0": 1.0, "pilots": True}, "pilots estimate c0"),
        ({"pilot_fall": 1.0}, "got pilot_fall"),
        ({"pilot_rounds": 1}, "got pilot_rounds"),
        ({"refresh": 0}, "got refresh"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "adasample", **record})


def test_a_duration_of_which_nothing_is_known_is_the_mean_of_the_others():
    """A deployment's estimates before the first delivery are 0: with q ~ p G / sqrt(tau) they would
    send everybody there. After client 0 took 8 s all count as 8 s."""
    rule = AdaSample(refresh=1)
    selector = Selector(rule, seed=0)
    sizes = {"num_examples": np.ones(3)}
    selector.observe(0, Reports(np.arange(3), Outcome.ENROLLED, signals=sizes))
    nothing = {f"{phase}_estimate_s": np.zeros(3) for phase in ("download", "compute", "upload")}
    norms = {"grad_norm": np.ones(3)}
    who = selector.probe(1, np.arange(3), 2)
    selector.observe(1, Reports(who, Outcome.PROBED, signals={**nothing, **norms}))
    assert selector.select(1, np.arange(3), 2).probabilities == pytest.approx([1 / 3] * 3)
    took = Reports(
        np.array([0]),
        Outcome.ACCEPTED,
        download_s=np.array([1.0]),
        compute_s=np.array([6.0]),
        upload_s=np.array([1.0]),
        signals={"max_grad_norm": np.ones(1)},
    )
    selector.observe(1, took)
    selector.probe(2, np.arange(3), 2)
    assert selector.select(2, np.arange(3), 2).probabilities == pytest.approx([1 / 3] * 3)
