"""Uploads that finish together: worked programs, a solver, weights, extremes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from motley.core.upload_ratios import finish_time, ratios_for, upload_ratios

TAU = np.array([5.0, 10, 12])
U = 40.0 / np.array([1.0, 4, 2])


def test_the_worked_program():
    """tau = (5, 10, 12), B = (1, 4, 2), s = 40, so u = (40, 10, 20); budget 0.4, least 0.05. Nobody
    is clipped at the root: (T - 5) / 40 + (T - 10) / 10 + (T - 12) / 20 = 1.2, times 40: 7 T - 5 -
    40 - 24 = 48, T = 117 / 7 = 16.714286, and theta = (11.714286 / 40, 6.714286 / 10, 4.714286 /
    20). With 0.4 for everybody the last is done at max(21, 14, 20) = 21."""
    theta, finish_s = upload_ratios(TAU, U, 0.4, 0.05)
    assert finish_s == pytest.approx(117 / 7, rel=1e-11)
    np.testing.assert_allclose(theta, [0.292857, 0.671429, 0.235714], atol=5e-7)
    np.testing.assert_allclose(TAU + theta * U, finish_s, rtol=1e-12)
    assert (TAU + 0.4 * U).max() == 21


def test_the_slowest_binds():
    """tau_3 = 20: with least 0.05 it ends at 20 + 0.05 x 20 = 21 = T_low, where the others reach
    (21 - 5) / 40 = 0.4 and min((21 - 10) / 10, 1) = 1; their sum 1.45 is above 1.2 already, and the
    slack is spent on fidelity. Uniform 0.4: 28."""
    tau = np.array([5.0, 10, 20])
    theta, finish_s = upload_ratios(tau, U, 0.4, 0.05)
    assert finish_s == 21
    np.testing.assert_allclose(theta, [0.4, 1, 0.05], atol=1e-12)
    assert (tau + 0.4 * U).max() == 28


@pytest.mark.parametrize("seed", range(60))
def test_the_program_against_a_solver(seed):
    """HiGHS on min T; the optimum in theta is not unique, T is."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 12))
    least = rng.uniform(0.005, 0.3)
    budget = rng.uniform(0.01, 1.0)
    tau = rng.exponential(10, m)
    u = rng.exponential(10, m)
    theta, finish_s = upload_ratios(tau, u, budget, least)
    solved = linprog(
        np.append(np.zeros(m), 1.0),
        A_ub=np.vstack([np.column_stack([np.diag(u), -np.ones(m)]), np.append(-np.ones(m), 0.0)]),
        b_ub=np.append(-tau, -m * budget),
        bounds=[(least, 1.0)] * m + [(0, None)],
        method="highs",
    )
    assert finish_s == pytest.approx(solved.fun, rel=1e-7)
    assert (tau + theta * u <= finish_s * (1 + 1e-12)).all()
    assert theta.sum() >= m * budget * (1 - 1e-6)
    assert ((theta >= least) & (theta <= 1)).all()


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=8),
    st.floats(0.01, 1),
    st.floats(0.001, 1),
)
def test_ratios_are_feasible_and_as_large_as_time_allows(clients, budget, least):
    tau, u = np.array(clients).T
    theta, finish_s = upload_ratios(tau, u, budget, least)
    assert ((theta >= least) & (theta <= 1)).all()
    assert theta.sum() >= len(tau) * budget * (1 - 1e-6)
    ends = tau + theta * u
    assert (ends <= finish_s * (1 + 1e-6) + 1e-6).all()
    assert ((theta == 1) | (ends >= finish_s * (1 - 1e-6) - 1e-6)).all()


def test_a_slower_link_sends_less():
    theta, _ = upload_ratios(np.full(3, 4.0), np.array([1.0, 2, 9]), 0.5, 0.01)
    assert (np.diff(theta) < 0).all()


@pytest.mark.parametrize(
    ("tau", "u", "budget", "expected"),
    [
        ([3.0, 8.0], [0.0, 0.0], 0.2, [1, 1]),  # links that take no time
        ([3.0, 8.0], [5e-324, 4.0], 0.5, [1, 0.01]),
        ([3.0, 8.0], [6.0, 4.0], 1.0, [1, 1]),
        ([0.1, 0.2, 0.3], [0.7, 0.7, 0.7], 1.0, [1, 1, 1]),
    ],
)
def test_extremes(tau, u, budget, expected):
    np.testing.assert_allclose(
        upload_ratios(np.array(tau), np.array(u), budget, 0.01)[0], expected, rtol=1e-9
    )


def test_the_order_of_clients_does_not_matter():
    theta, finish_s = upload_ratios(TAU, U, 0.4, 0.05)
    turned, same = upload_ratios(TAU[::-1], U[::-1], 0.4, 0.05)
    np.testing.assert_allclose(turned[::-1], theta)
    assert same == pytest.approx(finish_s)


@pytest.mark.parametrize("seed", range(60))
def test_the_weighted_program_against_a_solver(seed):
    """Weights that differ, one of them 0 where there are several."""
    rng = np.random.default_rng(100 + seed)
    m = int(rng.integers(1, 12))
    least = rng.uniform(0.005, 0.3)
    budget = rng.uniform(0.01, 1.0)
    tau = rng.exponential(10, m)
    u = rng.exponential(10, m)
    w = rng.exponential(1, m)
    w[0] *= m == 1 or seed % 2
    theta, finish_s = upload_ratios(tau, u, budget, least, w)
    solved = linprog(
        np.append(np.zeros(m), 1.0),
        A_ub=np.vstack([np.column_stack([np.diag(u), -np.ones(m)]), np.append(-w, 0.0)]),
        b_ub=np.append(-tau, -w.sum() * budget),
        bounds=[(least, 1.0)] * m + [(0, None)],
        method="highs",
    )
    assert finish_s == pytest.approx(solved.fun, rel=1e-7)
    assert w @ theta >= w.sum() * budget * (1 - 1e-6)
    np.testing.assert_allclose(upload_ratios(tau, u, budget, least, 7 * w)[0], theta, rtol=1e-9)


def test_time_alone_knows_no_smallest_upload():
    """Where least alone is more than the budget there is no root; the shares of a moment are cut at
    both ends."""
    assert finish_time(TAU, U, 0.4, 0.5) == 0.0
    np.testing.assert_allclose(ratios_for(15.0, TAU, U, 0.2), [0.25, 0.5, 0.2])
    assert ratios_for(100.0, TAU, U, 0.2).tolist() == [1, 1, 1]


def test_slack_is_spent_or_spared():
    """tau = (5, 15, 25), u = (1, 1, 1), budget .4, least .1: the slowest decides, T* = 25.1, so (1,
    1, .1) may be sent. The budget is 1.2: spare 1.8, asked .9, halved: (.55, .55, .1)."""
    tau = np.array([5.0, 15, 25])
    u = np.ones(3)
    whole, finish_s = upload_ratios(tau, u, 0.4, 0.1)
    spared, same = upload_ratios(tau, u, 0.4, 0.1, slack="traffic")
    assert finish_s == same == pytest.approx(25.1)
    assert whole == pytest.approx([1.0, 1.0, 0.1])
    assert spared == pytest.approx([0.55, 0.55, 0.1])
    binding, _ = upload_ratios(tau, 100 * u, 0.4, 0.1)
    np.testing.assert_allclose(
        upload_ratios(tau, 100 * u, 0.4, 0.1, slack="traffic")[0], binding, rtol=1e-9
    )
