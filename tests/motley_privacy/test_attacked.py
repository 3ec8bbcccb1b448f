"""What an adversary sees of one client in one round, against numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from motley.core.keys import Streams
from motley.selectors.selector import Selector
from motley_privacy.attacked import Canary, attacked_run
from motley_privacy.noise import noise
from motley_privacy.privacy_attack import own_runs

pytest.importorskip("dp_accounting")

Z = 2.0
CLIP = 0.05


def ratio(canary, seed, **more):
    """Return the log-likelihood ratio of the sum of one round, whose canary has its optimum at 100
    and is clipped to +C."""
    privacy = {"clip": CLIP, "noise_multiplier": Z, "delta": 1e-5, **more.pop("privacy", {})}
    given = {
        "task": {"name": "quadratic", "minima": [100.0, 0.0]},
        "population": 2,
        "cohort": 2,
        "stop": {"rounds": 1},
        "weights": "uniform",
        "selector": "uniform",
        "local": {"steps": 1},
        "privacy": privacy,
        **more,
    }
    worlds = own_runs(given, canary=0, wrong=False)
    config, engine, _, model = worlds.ready
    return attacked_run(config, engine, Selector(worlds.rule, seed, 1), model, canary).sums


def drawn(seed, step=1):
    """Return the standard normal number g of a step's noise."""
    return float(
        noise(
            Streams(seed).key("privacy").fold("step", step).fold("sum", "delta"), [0], "gaussian"
        )[0]
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_the_ratio_of_one_sum_is_that_of_two_gaussians(seed):
    """v = C, n = z C g. Far: ((n + v)^2 - n^2) / (2 z^2 C^2) = g/z + 1/(2 z^2). Near, nothing is
    sent: g/z - 1/(2 z^2)."""
    g = drawn(seed)
    assert ratio(Canary(0, far=True), seed) == pytest.approx(g / Z + 0.125, abs=1e-6)
    assert ratio(Canary(0, far=False), seed) == pytest.approx(g / Z - 0.125, abs=1e-6)


def test_correlated_noise_is_seen_in_the_sums_after_the_update_too():
    """c = (2, 1) / root 5. Entered in sum 1 of 2, v moves c_0 x_1 by c_0 C and c_1 x_1 + c_0 x_2 by
    c_1 C: together (c_0 g_1 + c_1 g_2)/z + (c_0^2 + c_1^2)/(2 z^2); entered in sum 2, c_0 g_2/z +
    c_0^2/(2 z^2)."""
    c0 = 2 / 5**0.5
    c1 = 1 / 5**0.5
    keys = {"cohort": 1, "stop": {"rounds": 2}, "privacy": {"min_separation": 2}}
    found = set()
    for seed in range(6):
        got = ratio(Canary(0, far=True), seed, **keys)
        g1 = drawn(seed)
        g2 = drawn(seed, 2)
        if got == pytest.approx((c0 * g1 + c1 * g2) / Z + 0.125, abs=1e-6):
            found.add("first")
        elif got == pytest.approx(c0 * g2 / Z + c0**2 / (2 * Z**2), abs=1e-6):
            found.add("second")
        else:
            found.add(got)
    assert found == {"first", "second"}


def test_the_opposite_lies_twice_as_far():
    """Far: ((n + 2 v)^2 - n^2) / (2 z^2 C^2) = 2 g/z + 2/z^2; near: (n^2 - (n - 2 v)^2) / (2 z^2
    C^2) = 2 g/z - 2/z^2."""
    g = drawn(3)
    assert ratio(Canary(0, far=True, opposite=True), 3) == pytest.approx(2 * g / Z + 0.5, abs=1e-6)
    assert ratio(Canary(0, far=False, opposite=True), 3) == pytest.approx(2 * g / Z - 0.5, abs=1e-6)


def test_a_hidden_cohort_has_the_ratio_of_a_mixture():
    """y = C (z g + d), d = 1 if the coin of rate 1/2 says so: log(1/2 + 1/2 exp((z g + d)/z^2 -
    1/(2 z^2)))."""
    coins = set()
    hidden = {"selector": {"name": "poisson", "rate": 0.5}, "privacy": {"cohorts": "hidden"}}
    for seed in range(6):
        g = drawn(seed)
        found = ratio(Canary(0, far=True, rate=0.5), seed, **hidden)
        expected = {
            d: float(np.log(0.5 + 0.5 * np.exp((Z * g + d) / Z**2 - 0.125))) for d in (0, 1)
        }
        coins |= {d for d, value in expected.items() if found == pytest.approx(value, abs=1e-6)}
    assert coins == {0, 1}


def test_a_clip_that_adapts_shows_a_count_too():
    """Clipped, so the canary adds -1/2 to the count, on which there is noise s h: far - near =
    1/z_u^2 + (1/2)^2 / s^2, and with 1/z_u^2 + 1/(4 s^2) = 1/z^2 both together show what z says."""
    adaptive = {"clip": {"initial": CLIP, "noise": 3.0}}
    far, near = (ratio(Canary(0, far=one), 5, privacy=adaptive) for one in (True, False))
    assert far - near == pytest.approx(1 / Z**2, abs=1e-6)


def test_a_stretched_update_is_as_long_as_the_clip():
    """C = 1000, which no update reaches: far - near = |v|^2 / (z C)^2 is far below 1/z^2, and is
    1/z^2 for an update made longer."""
    privacy = {"clip": 1000.0}
    far, near = (ratio(Canary(0, far=one), 5, privacy=privacy) for one in (True, False))
    longer, none = (
        ratio(Canary(0, far=one, stretched=True), 5, privacy=privacy) for one in (True, False)
    )
    assert 0 < far - near < 0.01
    assert abs(longer - none) == pytest.approx(1 / Z**2, abs=1e-6)
