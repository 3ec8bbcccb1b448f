"""The attack by hand, and on rules whose bound it must respect; what it finds for clear losses
refutes accounts without the choice."""

from __future__ import annotations

import math

import numpy as np
import pytest

from motley_privacy.accounting import Release, bound
from motley_privacy.likelihood_ratios import (
    Observed,
    attacked,
    ceiling,
    gaussian_ratio,
    laplace_ratio,
    lower_bound,
    statistics,
    sums_alone,
)
from motley_privacy.two_worlds import DELTA, ROWS, TwoWorlds, clipped_rows, server_rate

TRIALS = 4000


def test_the_limits_of_all_hits_and_no_false_alarm():
    """Ten of ten: the lower limit solves p^10 = 0.025, the upper limit of none of ten (1 - p)^10 =
    0.025."""
    root = 0.025**0.1
    assert float(lower_bound(10, 0, 10, 1e-3)) == pytest.approx(
        math.log((root - 1e-3) / (1 - root))
    )
    assert ceiling(10, 1e-3) == float(lower_bound(10, 0, 10, 1e-3))
    assert ceiling(20_000, 1e-5) == pytest.approx(math.log(20_000 / 3.7), abs=0.004)


def test_the_limits_of_two_hits_and_one_false_alarm_of_two():
    """Two of two: p^2 = 0.025, so 0.158. One of two: 1 - p^2 = 0.025, so 0.987. The ratio is below
    1: nothing is shown."""
    assert float(lower_bound(2, 1, 2, 0.0)) == 0.0
    low_of_one = 1 - math.sqrt(0.975)  # 1 - (1 - p)^2 = 0.025
    high_of_none = 1 - math.sqrt(0.025)  # (1 - p)^2 = 0.025
    assert low_of_one < high_of_none  # one hit of two shows nothing either
    np.testing.assert_array_equal(lower_bound([0, 1, 2], [2, 0, 2], 2, 0.0), [0.0, 0.0, 0.0])


def test_the_statistic_of_two_rounds():
    """First halves, two trials: round 1 has the canary in 2 of 2 (far) and 0 of 2 (near), so p =
    2.5/3 and q = 0.5/3, with log-odds ln 5 if it is in and -ln 5 if not; round 2 has it in 1 of 2
    in both worlds, which says nothing."""
    far = Observed(
        np.array([[1, 1], [1, 0], [1, 1], [0, 1]], bool), np.array([0.0, 0.5, 1.0, -1.0])
    )
    near = Observed(
        np.array([[0, 1], [0, 0], [0, 1], [1, 0]], bool), np.array([0.0, 0.0, 0.25, 0.0])
    )
    first, second = statistics(near, far)
    five = math.log(5)
    np.testing.assert_allclose(second, [five, five + 0.5, five + 1.0, -five - 1.0])
    np.testing.assert_allclose(first, [-five, -five, -five + 0.25, five])


def test_noisy_signals_that_are_seen_stand_for_membership():
    one = Observed(np.ones((2, 1), bool), np.array([0.5, 0.0]), np.array([1.0, 2.0]))
    np.testing.assert_array_equal(statistics(one, one)[0], [1.5, 2.0])


def test_sums_alone_leave_the_sums():
    one = Observed(np.array([[True], [False]]), np.array([0.5, 0.0]), np.array([1.0, 2.0]))
    near, far = statistics(
        sums_alone(one), sums_alone(one._replace(member=~one.member, sums=one.sums + 1))
    )
    np.testing.assert_array_equal([near, far], [[0.5, 0.0], [1.5, 1.0]])


def test_likelihood_ratios_by_hand():
    """Gaussian, deviation 2, seen (3, 0): near (0, 0), far (1, 0): (9 - 4) / 8. Laplace, b = 2,
    seen 1: near 0, far 4: (1 - 3) / 2."""
    assert (
        float(gaussian_ratio(np.array([3.0, 0.0]), np.zeros(2), np.array([1.0, 0.0]), 2.0)) == 0.625
    )
    assert float(laplace_ratio(1.0, 0.0, 4.0, 2.0)) == -1.0


def test_worlds_apart_reach_the_ceiling():
    none = np.zeros((200, 1), bool)
    found = attacked(Observed(none, np.full(200, -1.0)), Observed(none, np.full(200, 1.0)), 1e-5)
    assert found.epsilon == found.ceiling == ceiling(100, 1e-5)


@pytest.mark.parametrize("above", [True, False])
def test_the_direction_is_that_of_the_world_which_can_be_recognised(above):
    """Every second trial of one world is where the other never is: 50 hits of 100, no false alarm,
    in that direction alone."""
    never = np.zeros(200)
    half = np.tile([0.0, 1.0], 100)
    worlds = (never, half) if above else (-half, never)
    found = attacked(*(Observed(np.zeros((200, 1), bool), one) for one in worlds), 0.0)
    assert (found.above, found.threshold) == (above, 0.5 if above else -0.5)
    assert found.epsilon == float(lower_bound(50, 0, 100, 0.0)) > 0


def test_worlds_alike_show_nothing():
    same = Observed(np.zeros((200, 1), bool), np.linspace(-1, 1, 200))
    assert attacked(same, same, 1e-5).epsilon == 0.0


def test_updates_are_clipped_and_the_step_leaves_the_model_near():
    np.testing.assert_allclose(
        clipped_rows(np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), 1.0),
        [[0.6, 0.8], [0.3, 0.4], [0, 0]],
    )
    assert server_rate(20.0, 4, 25) == pytest.approx(0.5 * 4 / (20 * 5))
    assert server_rate(0.01, 4, 25) == 1.0


@pytest.mark.parametrize(
    "worlds", ROWS, ids=lambda w: f"{w.rule}-{w.m}-{w.strength:g}{'-seen' * w.losses_seen}"
)
def test_no_bound_is_exceeded_and_clear_losses_refute_the_naive_claims(worlds: TwoWorlds):
    pytest.importorskip("dp_accounting")
    seen = [worlds.trials(far, TRIALS, 0) for far in (False, True)]
    found = attacked(*seen, DELTA)
    alone = attacked(*map(sums_alone, seen), DELTA)
    known = worlds.bound(DELTA)
    assert alone.epsilon < found.ceiling
    if known is not None:
        assert max(found.epsilon, alone.epsilon) <= known
        return
    hidden = bound(
        (Release("poisson", 20.0, 10, population=40, rate=0.1),), DELTA, "replace_one"
    ).epsilon
    alone = bound((Release("gaussian", 20.0, 10),), DELTA, "replace_one").epsilon
    assert (hidden, alone) == (pytest.approx(0.097, abs=5e-4), pytest.approx(1.199, abs=5e-4))
    assert found.epsilon > max(hidden, alone)
    assert found.epsilon == pytest.approx(found.ceiling)


@pytest.mark.parametrize(
    ("worlds", "epsilon"),
    [
        (TwoWorlds("laplace"), 10.569),
        (TwoWorlds("laplace", strength=2.0), 20.569),
        (TwoWorlds("gumbel"), 19.179),
        (TwoWorlds("gumbel", 20, 2.0), 166.101),
    ],
)
def test_golden_bounds(worlds: TwoWorlds, epsilon: float):
    pytest.importorskip("dp_accounting")
    assert worlds.bound(DELTA) == pytest.approx(epsilon, abs=6e-4)
