"""Noise by clients: rounding stays inside the clip, sums have the noise of the account and nothing
else, the modulus never wraps, the distance to a discrete Gaussian, and an attack below the
bound."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.core.errors import ConfigError, RoundAbandonedError
from motley_privacy.accounting import Release, bound, calibrated
from motley_privacy.discrete import discrete_gaussian
from motley_privacy.distributed_noise import ClientNoise, distance, fewest_survivors
from motley_privacy.likelihood_ratios import Observed, attacked, gaussian_ratio

DELTA = 1e-5


def seeded(seed):
    return random.Random(seed).randbytes


def made(size=100, clients=6, survivors=5, colluders=1, multiplier=2.0, clip=0.5):
    return ClientNoise(clip, size, clients, survivors, colluders, multiplier)


# ------------------------------------------------------------------------------------- one client


def test_the_numbers_by_hand():
    """D = 100: S = 1024 * 10, g = 0.5 / 10240; t - c = 4, so sigma = 2 * 10240 / 2. The largest:
    6 * 10240 + 16 * sqrt(6) * 10240 = 462,757.3..."""
    noise = made()
    assert (noise.honest, noise.sensitivity, noise.sigma) == (4, 10_240, 10_240)
    assert noise.grid == 0.5 / 10_240
    assert noise.largest == 61_440 + math.ceil(16 * math.sqrt(6) * 10_240)
    assert noise.modulus_bits == 32
    assert noise.multiplier == pytest.approx(2.0, rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(st.floats(-1e300, 1e300), min_size=7, max_size=7),
    clip=st.floats(1e-6, 1e6),
    seed=st.integers(0, 9),
)
def test_a_rounded_update_is_never_longer_than_the_clip(values, clip, seed):
    """Exactly, in whole numbers, whatever the update and the rounding."""
    noise = made(size=7, clip=clip)
    whole = noise.rounded(np.array(values), seeded(seed))
    assert sum(int(x) ** 2 for x in whole) <= noise.sensitivity**2


def test_rounding_up_everywhere_stays_inside_too():
    """The worst case: a long update, and every number rounded away from zero."""
    noise = made()

    def ones(n):
        return b"\xff" * n

    whole = noise.rounded(np.ones(100), ones)
    assert int((whole**2).sum()) <= noise.sensitivity**2
    assert int((whole**2).sum()) > 0.998 * noise.sensitivity**2  # and costs 0.1 %


def test_the_expectation_is_the_clipped_update():
    """Of 4,000 roundings: each number's standard error is at most 1/2 step over sqrt(4,000)."""
    noise = made(size=4)
    update = np.array([0.3, -0.1, 1e-5, 0.0])
    drawn = np.mean([noise.rounded(update, seeded(k)) for k in range(4000)], axis=0)
    np.testing.assert_allclose(drawn, update / noise.grid, atol=6 * 0.5 / math.sqrt(4000))


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_what_is_not_finite_counts_as_zeros(value):
    np.testing.assert_array_equal(made().rounded(np.full(100, value), seeded(0)), np.zeros(100))


# ------------------------------------------------------------------------------------- sums


def test_a_sum_less_the_plain_sum_is_the_noise_and_nothing_else():
    """Six clients, each with bytes of its own, which are read again: rounding first, then noise."""
    noise = made()
    updates = np.random.default_rng(0).normal(size=(6, 100))
    total = np.sum([noise.words(u, seeded(k)) for k, u in enumerate(updates)], axis=0, dtype="<u4")
    assert int(total[-1]) == 6
    plain = np.zeros(100, np.int64)
    drawn = np.zeros(100, np.int64)
    for k, update in enumerate(updates):
        entropy = seeded(k)
        plain += noise.rounded(update, entropy)
        drawn += discrete_gaussian(100, noise.sigma, entropy)
    assert (drawn != 0).all()
    np.testing.assert_array_equal(noise.opened(total[:-1]), (plain + drawn) * noise.grid)


def test_the_noise_of_the_fewest_honest_clients_is_that_of_the_account():
    """20,000 numbers: the variance's standard error is 1 %; z C, and at most 1e-4 more."""
    noise = made(size=20_000, multiplier=3.0)
    drawn = sum(noise.encode(np.zeros(20_000), seeded(k)) for k in range(noise.honest))
    assert drawn.std() * noise.grid == pytest.approx(3.0 * noise.clip, rel=0.03)
    assert noise.sigma * math.sqrt(noise.honest) * noise.grid / noise.clip >= 3.0
    assert noise.multiplier == pytest.approx(3.0, rel=1e-4)
    full = noise.record()["full_multiplier"]
    assert full == pytest.approx(3.0 * math.sqrt(6 / 4), rel=1e-4)


@pytest.mark.parametrize("bits", [32, 64])
def test_the_modulus_never_wraps_with_these_numbers(bits):
    """All clients at the clip in one number, with noise of 16 deviations on top: just inside. A
    sum that is beyond is refused, and so is one that has wrapped to the other end."""
    noise = made(
        size=10**6 if bits == 64 else 100,
        clients=60,
        survivors=60,
        colluders=0,
        multiplier=160.0 if bits == 64 else 80.0,
    )
    assert noise.modulus_bits == bits
    edge = np.array([noise.largest, -noise.largest], np.int64)
    kind = f"<u{bits // 8}"
    np.testing.assert_array_equal(noise.opened(edge.astype(kind)), edge * noise.grid)
    for beyond in (noise.largest + 1, -noise.largest - 1, 2 ** (bits - 1) - 1):
        with pytest.raises(RoundAbandonedError, match="a client told an untruth"):
            noise.opened(np.array([beyond]).astype(kind))


# ------------------------------------------------------------------------------------- the account


def convolved(sigma, clients, most=400):
    x = np.arange(-most, most + 1).astype(float)
    one = np.exp(-(x**2) / (2 * sigma**2))
    one = one / one.sum()
    law = np.ones(1)
    for _ in range(clients):
        law = np.convolve(law, one)
    half = len(law) // 2
    return law[half - 60 : half + 61]  # far from underflow


@pytest.mark.parametrize(("sigma", "clients"), [(0.6, 2), (0.6, 5), (0.8, 12), (1.0, 30)])
def test_the_distance_bounds_the_log_ratio_to_a_discrete_gaussian(sigma, clients):
    law = convolved(sigma, clients)
    variance = clients * sigma**2
    x = np.arange(-60.0, 61.0)
    whole = np.arange(-4000.0, 4001.0)
    near = np.abs(x) < 8 * math.sqrt(variance)
    other = -(x**2) / (2 * variance) - math.log(np.exp(-(whole**2) / (2 * variance)).sum())
    seen = np.abs(np.log(law[near]) - other[near]).max()
    assert seen <= distance(clients, sigma) * (1 + 1e-9) + 1e-12
    if clients == 2:
        assert seen > 0.5 * distance(clients, sigma)  # and is no loose bound


@pytest.mark.parametrize("alpha", [1.01, 2.0, 8.0, 64.0])
def test_the_renyi_divergence_of_such_a_sum_by_hand(alpha):
    """Sigma = 0.6, three clients, moved by 1: D_a <= a/2 (1/(sigma sqrt 3) + 2 e)^2."""
    law = convolved(0.6, 3, most=60)
    p = law[1:]
    q = law[:-1]
    keep = (p > 1e-290) & (q > 1e-290)
    terms = alpha * np.log(p[keep]) + (1 - alpha) * np.log(q[keep])
    seen = (np.logaddexp.reduce(terms)) / (alpha - 1)
    z = 1 / (0.6 * math.sqrt(3)) + 2 * distance(3, 0.6)
    assert seen <= alpha / 2 * z**2


def test_the_distance_is_nothing_from_four_steps_on_and_infinite_without_noise():
    assert 0 < distance(200, 4) < 1e-65
    assert distance(2, 0.1) == math.inf


def by_hand(rho, delta):
    """Epsilon of rho-zCDP (Canonne, Kamath, Steinke 2020, Prop. 12), the best of many orders."""
    a = np.exp(np.linspace(math.log(1.001), math.log(1e4), 200_000))
    return float((rho * a + np.log((a - 1) / a) - (math.log(delta) + np.log(a)) / (a - 1)).min())


@pytest.mark.parametrize(("z", "sums", "central"), [(4.0, 20, 4.9833), (1.0, 200, 159.4415)])
def test_epsilon_by_hand_and_beside_the_central_gaussian(z, sums, central):
    """The same z costs 7.9 % more at z = 4 and 4.1 % at z = 1: no closed form holds for discrete
    noise on many numbers, so the account is by Renyi divergences."""
    pytest.importorskip("dp_accounting")
    found = bound((Release("discrete", z, sums),), DELTA, "zero_out")
    assert found.accountant == "rdp"
    assert found.epsilon == pytest.approx(by_hand(sums / (2 * z**2), DELTA), rel=5e-3)
    assert found.epsilon >= by_hand(sums / (2 * z**2), DELTA) * (1 - 1e-6)
    assert bound((Release("gaussian", z, sums),), DELTA, "zero_out").epsilon == pytest.approx(
        central, rel=1e-3
    )
    assert found.epsilon / central == pytest.approx(1.079 if z == 4.0 else 1.041, abs=1e-3)
    assert found.epsilon == pytest.approx(
        bound((Release("gaussian", z, sums),), DELTA, "zero_out", "rdp").epsilon, rel=1e-9
    )


@pytest.mark.parametrize(("epsilon", "z", "central"), [(2.0, 9.611, 8.917), (8.0, 2.852, 2.684)])
def test_calibrated_noise_beside_the_central_gaussian(epsilon, z, central):
    """Twenty sums: z grows by 7.8 % at epsilon 2 and by 6.2 % at 8, for the account alone."""
    pytest.importorskip("dp_accounting")
    found = [
        calibrated(Release(kind, 1.0, 20), (), epsilon, DELTA, "zero_out")
        for kind in ("discrete", "gaussian")
    ]
    np.testing.assert_allclose(found, [z, central], rtol=1e-3)


def test_replace_one_is_twice_as_far():
    pytest.importorskip("dp_accounting")
    found = bound((Release("discrete", 4.0, 20),), DELTA, "replace_one").epsilon
    assert found == pytest.approx(by_hand(20 / (2 * 2.0**2), DELTA), rel=2e-3)


def test_noise_by_clients_and_signals_add_up():
    """20 sums at z = 4 and 40 losses of Laplace noise at 10: below the sum of both alone."""
    pytest.importorskip("dp_accounting")
    sums = Release("discrete", 4.0, 20)
    losses = Release("laplace", 10.0, 40)
    alone = [bound((one,), DELTA, "zero_out", "rdp").epsilon for one in (sums, losses)]
    assert max(alone) < bound((sums, losses), DELTA, "zero_out").epsilon < sum(alone)
    z = calibrated(sums, (losses,), 8.0, DELTA, "zero_out")
    found = bound((Release("discrete", z, 20), losses), DELTA, "zero_out").epsilon
    assert found == pytest.approx(8.0, rel=1e-3)


# ------------------------------------------------------------------------------------- an attack


def trials(noise, sent, count, rounds, whose):
    """Log-likelihood ratios of ``count`` runs in which the canary sends ``sent``: the adversary
    subtracts all that it knows; ``whose``: how many clients' noise is left."""
    shape = (count * rounds, whose, noise.size)
    drawn = discrete_gaussian(math.prod(shape), noise.sigma, seeded((count, sum(sent)).__hash__()))
    seen = drawn.reshape(shape).sum(1) + sent
    far = np.zeros(noise.size)
    deviation = noise.sigma * math.sqrt(whose)
    far[0] = noise.sensitivity
    ratio = gaussian_ratio(seen.astype(float), 0.0, far, deviation)
    return Observed(np.zeros((count, 1), bool), ratio.reshape(count, rounds).sum(1))


@pytest.mark.parametrize(("honest", "below"), [(True, True), (False, False)])
def test_an_attack_on_the_sums_stays_below_the_bound(honest, below):
    """The server and c = 2 colluders subtract all they know; the canary sends the longest update
    or zeros, ten sums at z = 3, many trials of each world. Seen without the others' noise, as by
    a server that sees single uploads, the same bytes break the bound: the attack has teeth."""
    pytest.importorskip("dp_accounting")
    noise = made(size=4, clients=40, survivors=40, colluders=2, multiplier=3.0)
    claimed = bound((Release("discrete", noise.multiplier, 10),), DELTA, "zero_out").epsilon
    longest = np.array([noise.sensitivity, 0, 0, 0])
    whose = noise.honest if honest else 1
    near, far = (
        trials(noise, sent, 10_000 if not honest else 1_500, 10, whose)
        for sent in (0 * longest, longest)
    )
    found = attacked(near, far, DELTA)
    assert found.epsilon > 0.5
    assert (found.epsilon < claimed) is below


# ------------------------------------------------------------------------------------- refusals


def test_survivors_left_out():
    assert [fewest_survivors(n, 0) for n in (3, 6, 100)] == [3, 5, 67]
    for n, c in ((10, 3), (100, 33), (9, 6)):
        t = fewest_survivors(n, c)
        assert c < 2 * t - n
        assert t >= c + 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"survivors": 7}, r"got survivors = 7 of 6 clients with colluders = 1; expected 4 to 6"),
        ({"survivors": 3}, r"no two sums are opened; write survivors = 4"),
        ({"colluders": 4}, r"got survivors = 5 of 6 clients with colluders = 4; .* survivors = 6"),
        ({"colluders": 5}, r"lower colluders, or raise cohort"),
        (
            {"size": 1, "multiplier": 0.01, "clients": 60, "survivors": 60, "colluders": 0},
            r"privacy.noise_multiplier: the noise of one client is 2 steps of the grid; expected "
            r"at least 4",
        ),
        ({"multiplier": 1e13}, r"no longer exact; lower noise_multiplier"),
    ],
)
def test_what_has_no_such_sum(changed, said):
    with pytest.raises(ConfigError, match=said):
        made(**changed)


def test_rounds_that_a_client_refuses():
    noise = made()
    assert noise.refuses(5, 6) is None
    assert "the noise of 5 of at most 6" in noise.refuses(4, 5)
    assert "the noise of 5 of at most 6" in noise.refuses(5, 7)
