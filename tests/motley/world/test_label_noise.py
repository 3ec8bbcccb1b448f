"""Label noise: exact counts, laws, whose labels, and purity.

Worked numbers: docs/methods/timing-and-world.md#label-noise.
"""

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.world import LABEL_NOISE
from motley.world.shift.label_noise import (
    BetaNoise,
    CleanLabels,
    LabelFlip,
    PairFlip,
    SymmetricNoise,
)

KEY = Streams(0).key("shift")
OWNER = np.repeat(np.arange(30), 400)
LABELS = np.tile(np.arange(10), 1200)


def noisy(noise, key=KEY):
    return noise.apply(key, LABELS, OWNER, 10, 30)


def wrong_share(labels):
    return np.bincount(OWNER, labels != LABELS) / 400


def test_clean_labels_stay():
    labels, rates = noisy(CleanLabels())
    assert (labels == LABELS).all()
    assert (rates == 0).all()


def test_symmetric_hits_exactly_its_share_of_every_client():
    labels, rates = noisy(SymmetricNoise(0.15))
    assert (wrong_share(labels) == 0.15).all()
    assert (rates == 0.15).all()


def test_symmetric_moves_to_all_other_classes_alike():
    """12 000 labels, 40 % wrong: each of the 90 (true, given) pairs is Binomial(1200, 0.4 / 9) =
    53.3, deviation 7.1."""
    labels, _ = noisy(SymmetricNoise(0.4, mode="bernoulli"))
    table = np.bincount(LABELS * 10 + labels, minlength=100).reshape(10, 10)
    off = table[~np.eye(10, dtype=bool)]
    p = 0.4 / 9
    assert np.abs(off - 1200 * p).max() < 4.5 * np.sqrt(1200 * p * (1 - p))
    assert abs((labels != LABELS).mean() - 0.4) < 4 * np.sqrt(0.24 / 12_000)


def test_inclusive_noise_is_milder():
    """rate (1 - 1/C) of the labels become wrong: 0.4 * 0.9 = 0.36."""
    labels, rates = noisy(SymmetricNoise(0.4, mode="bernoulli", inclusive=True))
    assert rates[0] == pytest.approx(0.36)
    assert abs((labels != LABELS).mean() - 0.36) < 4 * np.sqrt(0.36 * 0.64 / 12_000)


def test_pair_flip_takes_the_next_class():
    labels, _ = noisy(PairFlip(0.25))
    hit = labels != LABELS
    assert (wrong_share(labels) == 0.25).all()
    assert (labels[hit] == (LABELS[hit] + 1) % 10).all()


@pytest.mark.parametrize(
    "noise",
    [SymmetricNoise(0.4, share=0.333), PairFlip(0.4, share=0.333), BetaNoise(0.4, share=0.333)],
    ids=repr,
)
def test_a_third_of_the_clients(noise):
    """round(0.333 * 30) = 10 clients have noisy labels, the other 20 none at all."""
    labels, rates = noisy(noise)
    assert (rates > 0).sum() == 10
    assert ((wrong_share(labels) > 0) == (rates > 0)).all()


@pytest.mark.parametrize(
    ("a", "deviation"), [(5, 0.02169), (10, 0.02985), (15, 0.03553), (20, 0.03980), (25, 0.04309)]
)
def test_beta_rates(a, deviation):
    """BetaNoise(a, 100 - a) has mean a / 100 and deviation sqrt(a (100 - a) / (10^4 101)). Of a
    client's 400 labels the nearest number to its rate is wrong, and a wrong one is each of the
    other nine classes as often: of W of them a Binomial(W, 1/9)."""
    assert round(np.sqrt(a * (100 - a) / (1e4 * 101)), 5) == deviation
    rates = BetaNoise(a / 100).rates(KEY, np.arange(20_000))
    assert abs(rates.mean() - a / 100) < 4 * deviation / np.sqrt(20_000)
    assert abs(rates.std() / deviation - 1) < 0.03
    labels, own = noisy(BetaNoise(a / 100))
    assert (wrong_share(labels) == np.rint(own * 400) / 400).all()
    ahead = np.bincount((labels - LABELS) % 10, minlength=10)[1:]
    total = ahead.sum()
    assert np.abs(ahead - total / 9).max() < 4.5 * np.sqrt(total * 8 / 81)


def test_beta_flips_what_it_says():
    labels, rates = noisy(BetaNoise(0.15))
    assert len(np.unique(rates)) == 30
    assert (wrong_share(labels) == np.rint(rates * 400) / 400).all()


def test_a_clients_rate_does_not_depend_on_the_others():
    assert (
        BetaNoise(0.15).rates(KEY, np.array([7, 3]))
        == BetaNoise(0.15).rates(KEY, np.arange(10))[[7, 3]]
    ).all()


@pytest.mark.parametrize(
    "noise",
    [SymmetricNoise(0.3), BetaNoise(0.3), PairFlip(0.3), SymmetricNoise(0.3, mode="bernoulli")],
    ids=repr,
)
def test_same_key_same_labels_other_key_others(noise):
    before = LABELS.copy()
    assert (noisy(noise)[0] == noisy(noise)[0]).all()
    assert (noisy(noise)[0] != noisy(noise, Streams(1).key("shift"))[0]).any()
    assert (before == LABELS).all()


def test_rate_one_in_exact_mode_leaves_nothing_right():
    assert (noisy(SymmetricNoise(1.0))[0] != LABELS).all()


def test_clients_without_samples_are_no_trouble():
    labels, rates = SymmetricNoise(0.5).apply(KEY, np.array([0, 1]), np.array([2, 2]), 2, 4)
    assert (labels != [0, 1]).sum() == 1
    assert len(rates) == 4


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"name": "symmetric"}, "label_noise.rate: 'symmetric' needs this option"),
        ({"name": "symmetric", "rate": 1.2}, "got rate = 1.2; expected a share"),
        ({"name": "symmetric", "rate": 0.2, "share": -1}, "got share = -1.0"),
        ({"name": "beta", "mean": 0}, "got mean = 0.0; expected a share in \\(0, 1\\)"),
        ({"name": "pair_flip", "rate": 0.2, "mode": "exakt"}, "did you mean 'exact'"),
        ({"name": "symetric", "rate": 0.2}, "did you mean 'symmetric'"),
    ],
)
def test_bad_options_are_named(record, message):
    with pytest.raises(ConfigError, match=message):
        LABEL_NOISE.build(record)


def test_one_class_is_refused():
    with pytest.raises(ConfigError, match="at least 2 classes, the data has 1"):
        PairFlip(0.1).apply(KEY, np.zeros(4, int), np.zeros(4, int), 1, 1)


def test_label_flip_turns_whole_clients_around():
    """round(0.3 * 30) = 9 clients, y becomes 9 - y; with 10 classes none maps to itself."""
    labels, rates = noisy(LabelFlip(0.3))
    assert (rates > 0).sum() == 9
    assert (wrong_share(labels) == rates).all()
    assert (labels[labels != LABELS] == 9 - LABELS[labels != LABELS]).all()
    assert set(rates) == {0.0, 1.0}


def test_label_flip_leaves_the_middle_of_an_odd_number():
    labels, rates = LabelFlip(1.0).apply(KEY, np.array([0, 1, 2, 1]), np.array([0, 0, 0, 1]), 3, 2)
    assert labels.tolist() == [2, 1, 0, 1]
    assert rates.tolist() == [2 / 3, 0.0]
