"""Noise on a grid: exact laws, outputs whose low bits tell nothing, sums that are exact, and
accounts that hold for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.parts import Part, Upload
from motley.core.keys import Key
from motley.core.records import HISTOGRAM
from motley_privacy.discrete import discrete_gaussian, discrete_laplace
from motley_privacy.noise import (
    MOST_STEPS,
    SystemRandomness,
    grid,
    noise_steps,
    noisy_shares,
    released,
)
from motley_privacy.options import SignalNoise
from motley_privacy.sums import MOST_UPLOADS, clipped, noised_sum

SOURCES = [Key(1), SystemRandomness()]

# ------------------------------------------------------------------------------------- laws


def probabilities(law, scale, x):
    weight = np.exp(-np.abs(x) / scale) if law == "laplace" else np.exp(-(x**2) / (2.0 * scale**2))
    return weight / weight.sum()


@pytest.mark.parametrize(
    ("law", "sampler"), [("laplace", discrete_laplace), ("gaussian", discrete_gaussian)]
)
@pytest.mark.parametrize("scale", [1, 2, 5])
def test_the_exact_samplers_have_their_laws(law, sampler, scale):
    """Chi-squared of 200,000 numbers in all cells with at least 20 of them; 8 deviations above its
    mean never happens."""
    n = 200_000
    x = np.arange(-60 * scale, 60 * scale + 1)
    expected = n * probabilities(law, scale, x)
    counts = np.bincount(sampler(n, scale) + 60 * scale, minlength=len(x))
    cells = expected >= 20
    found = ((counts - expected)[cells] ** 2 / expected[cells]).sum()
    assert abs(found - cells.sum()) < 8 * math.sqrt(2 * cells.sum())
    assert counts[~cells].sum() <= 20 + 3 * expected[~cells].sum()


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("source", SOURCES)
def test_noise_at_the_grids_own_scale(law, source):
    """Deviations of 20,000 numbers within 5 %; parities are those of a fair coin."""
    steps = noise_steps(source, np.arange(20_000), law, MOST_STEPS)
    assert steps.std() / MOST_STEPS == pytest.approx(
        math.sqrt(2.0) if law == "laplace" else 1.0, rel=0.05
    )
    assert abs((steps % 2).mean() - 0.5) < 0.03


@pytest.mark.parametrize("scale", [1e-12, 0.01, 1.0, 25.0, 3e9])
def test_a_grid_is_fine_and_never_narrows_the_noise(scale):
    step, steps = grid(scale)
    assert math.frexp(step)[0] == 0.5  # a power of two
    assert MOST_STEPS // 2 <= steps <= MOST_STEPS
    assert 0 <= steps * step - scale < step


# ------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("source", SOURCES)
def test_the_low_bits_of_a_signal_tell_nothing(law, source):
    """0, 5, pi and NaN with the noise of scale 25: all that comes out is the middle and a whole
    number of steps."""
    how = SignalNoise(5.0, 0.0, 5.0, law)
    step, _ = grid(how.scale)
    for value in (0.0, 5.0, math.pi, math.nan):
        seen = released(source, np.arange(500), "loss", np.full(500, value), how)
        assert (((seen - 2.5) / step) % 1.0 == 0.0).all()


def test_an_interval_on_the_grid_is_never_wider_than_the_account_says(monkeypatch):
    """Without noise: the ends lie at most half the width from the middle, and on the grid, also
    where the width is odd there."""
    monkeypatch.setattr("motley_privacy.noise.noise_steps", lambda *_: 0)
    for low, high, multiplier in (
        (0.0, 5.0, 5.0),
        (-1.0, 1.0 / 3.0, 7.0),
        (1e6, 1e6 + 0.1, 0.3),
        (0.0, 1.0, 1e7),
        (0.0, 1.0, 1e12),
    ):
        how = SignalNoise(multiplier, low, high)
        middle = 0.5 * (low + high)
        seen = released(Key(0), np.arange(3), "loss", np.array([low, np.inf, high]), how)
        assert seen[1] == middle
        assert (np.abs(seen - middle) <= 0.5 * how.width * (1 + 1e-9)).all()
        if multiplier < 1e6 > abs(low):
            np.testing.assert_allclose(seen, [low, middle, high], atol=2 * grid(how.scale)[0])


def test_shares_on_the_grid_never_sum_to_more_than_one(monkeypatch):
    """One third each, counts beyond all bounds and none: the sum of the steps is at most that of
    the whole."""
    seen = []
    monkeypatch.setattr(
        "motley_privacy.noise._shares", lambda values, empty: seen.append(values) or values
    )
    monkeypatch.setattr(
        "motley_privacy.noise.noise_steps",
        lambda source, ids, law, scale: np.zeros(len(ids), np.int64),
    )
    counts = np.array([[1.0, 1.0, 1.0], [1e300, 7.0, np.inf], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    for multiplier in (0.01, 2.0, 1e9):
        noisy_shares(Key(0), np.arange(4), counts, SignalNoise(multiplier).scale)
        whole = math.floor(1.0 / max(grid(2.0 * multiplier)[0], 2.0**-31))
        assert (seen[-1].sum(axis=1) <= whole).all()
        assert seen[-1][2].sum() == 0
        assert seen[-1][3].tolist() == [whole, 0, 0]


@pytest.mark.parametrize("source", SOURCES)
def test_a_noisy_histogram_still_sums_to_one(source):
    seen = released(source, np.arange(50), HISTOGRAM, np.full((50, 3), 4.0), SignalNoise(0.01))
    np.testing.assert_allclose(seen.sum(axis=1), 1.0)
    np.testing.assert_allclose(seen, 1.0 / 3.0, atol=0.4)


# ------------------------------------------------------------------------------------- sums


def test_a_sum_on_the_grid_is_exact_and_nobody_is_longer_than_the_clip():
    """300 uploads with the clip 0.3 and a weight, in two orders: the same sum to the bit, and with
    noise still on the grid."""
    rng = np.random.default_rng(0)
    step, _ = grid(1.7 * 0.3)
    sums = []
    values = [rng.normal(size=500) * 10.0 ** rng.integers(-4, 4) for _ in range(300)]
    for order in (range(300), reversed(range(300))):
        mean = Mean()
        total = mean.init()
        for k in order:
            upload = Upload({"delta": Part(torch.from_numpy(values[k]), "mean")}, 0.7, client=k)
            bounded, _ = clipped(upload, 0.3, {}, 1.7)
            steps = (bounded.parts["delta"].value / step).numpy()
            assert (steps == np.rint(steps)).all()
            assert sum(int(n) ** 2 for n in steps) <= (0.3 / step) ** 2  # in whole numbers
            total = mean.add(total, bounded)
        sums.append(mean.finish(total, "none"))
    assert torch.equal(sums[0]["delta"], sums[1]["delta"])
    empty = {"delta": Part(torch.zeros(500), "mean")}
    noised = noised_sum(sums[0], empty, 1.7 * 0.3, {}, 1.0, SystemRandomness())["delta"]
    assert ((noised / step) % 1.0 == 0.0).all()
    assert (noised - sums[0]["delta"]).std() == pytest.approx(1.7 * 0.3, rel=0.3)


def test_the_largest_sum_is_whole_numbers_of_float64():
    """The smallest multiplier and the most uploads: C has at most MOST_STEPS / z steps, 60
    deviations of noise are 60 MOST_STEPS."""
    assert MOST_UPLOADS * MOST_STEPS + 60 * MOST_STEPS < 2**52


# ------------------------------------------------------------------------------------- accounts


def delta_of(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize(("scale", "move"), [(40, 40), (64, 13), (100, 250)])
def test_discrete_laplace_noise_costs_what_laplace_noise_costs(scale, move):
    """Pure epsilon is move / scale for both; delta at any epsilon differs by at most 1 / (8
    scale^2), below 4.5e-16 on a grid."""
    x = np.arange(-50 * scale, 50 * scale + 1)
    p = probabilities("laplace", scale, x)
    q = probabilities("laplace", scale, x - move)
    assert float(np.abs(np.log(p / q)).max()) == pytest.approx(move / scale, rel=1e-9)
    for epsilon in np.linspace(0.0, move / scale, 41):
        continuous = 1.0 - math.exp(0.5 * (epsilon - move / scale))
        assert -1e-9 < delta_of(p, q, epsilon) - continuous < 1.0 / (8.0 * scale**2) + 1e-9
    assert 1.0 / (8.0 * (MOST_STEPS // 2) ** 2) < 4.5e-16


@pytest.mark.parametrize("scale", [4, 16])
def test_discrete_gaussian_noise_is_rounded_gaussian_noise_but_for_next_to_nothing(scale):
    """Gaussian noise rounded to whole numbers is as private as before it was rounded. From it the
    discrete law has the divergence 1 / (576 scale^4) a number, so that n numbers have a distance in
    total variation of at most 0.03 sqrt(n) / scale^2 (Pinsker): for a billion numbers on a grid it
    is below 4e-12."""
    from scipy.special import ndtr

    x = np.arange(-8 * scale, 8 * scale + 1)
    rounded = ndtr(-(np.abs(x) - 0.5) / scale) - ndtr(-(np.abs(x) + 0.5) / scale)
    discrete = probabilities("gaussian", scale, x)
    divergence = float((discrete * np.log(discrete / rounded)).sum())
    assert divergence == pytest.approx(1.0 / (576.0 * scale**4), rel=0.05)
    assert 0.03 * math.sqrt(1e9) / (MOST_STEPS // 2) ** 2 < 4e-12


def test_a_histogram_on_the_grid_costs_at_most_one_move_of_the_whole_sum():
    """Scale 20: a move by 30 alone, and by 10 and 20, or 15 and 15, in two coordinates."""
    x = np.arange(-400, 431)
    p = probabilities("laplace", 20, x)
    moved = {n: probabilities("laplace", 20, x - n) for n in (10, 15, 20, 30)}
    for one, other in ((10, 20), (15, 15)):
        for epsilon in np.linspace(0.0, 1.5, 16):
            both = delta_of(np.outer(p, p), np.outer(moved[one], moved[other]), epsilon)
            assert both <= delta_of(p, moved[30], epsilon) + 1e-9


@pytest.mark.parametrize("count", [1, 20])
def test_the_librarys_discrete_accounts_agree(count):
    """dp-accounting's distributions of the discrete laws against those of the continuous ones,
    composed: half a percent at scales of some hundred steps, where a grid has 2^24."""
    distributions = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    pairs = [
        (
            distributions.from_discrete_laplace_mechanism(
                1.0 / 400.0, sensitivity=80, value_discretization_interval=1e-3
            ),
            distributions.from_laplace_mechanism(
                400.0, sensitivity=80.0, value_discretization_interval=1e-3
            ),
        ),
        (
            distributions.from_discrete_gaussian_mechanism(
                400.0, sensitivity=100, value_discretization_interval=1e-3
            ),
            distributions.from_gaussian_mechanism(
                400.0, sensitivity=100.0, value_discretization_interval=1e-3
            ),
        ),
    ]
    for discrete, continuous in pairs:
        epsilons = [
            one.self_compose(count).get_epsilon_for_delta(1e-5) for one in (discrete, continuous)
        ]
        assert epsilons[0] == pytest.approx(epsilons[1], rel=5e-3)
