"""Failures: who breaks off and when, and what becomes of updates."""

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.world import FAILURES
from motley.world.failures import Corrupted, Crash, DropOut, NoFailures, NonFinite

KEY = Streams(0).key("fail")
MANY = np.arange(20_000)
ALL = [
    DropOut(0.3),
    DropOut(0.3, at=0.5),
    DropOut(0.5, low=0.1),
    Crash(0.05),
    NonFinite(0.1),
    Corrupted(0.3),
]


def gone(failures, round_index=1, ids=MANY):
    return ~np.isnan(failures.drop_at(KEY, ids, round_index))


def near(share, p, n=20_000):
    return abs(share - p) < 4 * np.sqrt(p * (1 - p) / n)


def test_nobody_fails():
    assert not gone(NoFailures()).any()
    assert (NoFailures().upload_factor(KEY, MANY, 1) == 1).all()


@pytest.mark.parametrize("failures", ALL, ids=repr)
def test_failures_are_pure(failures):
    """The same answer twice, for any company of ids; another seed, another answer; shares of work
    in [0, 1]."""
    for ask in (failures.drop_at, failures.upload_factor):
        assert np.array_equal(ask(KEY, MANY, 3), ask(KEY, MANY, 3), equal_nan=True)
        assert np.array_equal(
            ask(KEY, np.array([9, 4]), 3), ask(KEY, MANY, 3)[[9, 4]], equal_nan=True
        )
    other = Streams(1).key("fail")
    answers = [
        np.stack([f.drop_at(k, MANY, 3), f.upload_factor(k, MANY, 3)])
        for f, k in ((failures, KEY), (failures, other))
    ]
    assert not np.array_equal(*answers, equal_nan=True)
    share = failures.drop_at(KEY, MANY, 3)
    assert ((share >= 0) & (share <= 1) | np.isnan(share)).all()


def test_drop_out_is_its_rate_and_uniform_over_the_work():
    share = DropOut(0.3).drop_at(KEY, MANY, 1)
    left = ~np.isnan(share)
    assert near(left.mean(), 0.3)
    assert abs(np.nanmean(share) - 0.5) < 4 * np.sqrt(1 / 12 / left.sum())
    # rounds are independent
    assert near((gone(DropOut(0.3), 1) & gone(DropOut(0.3), 2)).mean(), 0.09)


def test_drop_out_rates_of_clients_differ():
    """Rates U(0.1, 0.5): mean 0.3; two rounds of a client correlate by its rate: E[rate^2] =
    0.3^2 + 0.4^2 / 12."""
    both = gone(DropOut(0.5, low=0.1), 1) & gone(DropOut(0.5, low=0.1), 2)
    assert near(gone(DropOut(0.5, low=0.1)).mean(), 0.3)
    assert near(both.mean(), 0.09 + 0.16 / 12)


def test_drop_out_at_a_share_and_the_ends_of_the_rate():
    assert set(DropOut(1.0, at=0.25).drop_at(KEY, MANY[:9], 1)) == {0.25}
    assert not gone(DropOut(0.0)).any()


def test_crashed_clients_stay_away():
    """Alive after t rounds: 0.95^t; who is gone stays gone, at once from the round after its
    crash."""
    crash = Crash(0.05)
    before = np.zeros(len(MANY), bool)
    for round_index in (1, 2, 10, 40):
        now = gone(crash, round_index)
        assert near(now.mean(), 1 - 0.95**round_index)
        assert now[before].all()
        assert (crash.drop_at(KEY, MANY, round_index + 1)[now] == 0).all()
        before = now


def test_only_a_share_ever_crashes():
    assert near(gone(Crash(1.0, share=0.2), 1).mean(), 0.2)
    assert near(gone(Crash(0.5, share=0.2), 100).mean(), 0.2)
    assert not gone(Crash(0.0), 1000).any()
    assert gone(Crash(1.0), 1).all()


def test_non_finite_uploads():
    factor = NonFinite(0.1).upload_factor(KEY, MANY, 1)
    assert near(np.isnan(factor).mean(), 0.1)
    assert set(factor[~np.isnan(factor)]) == {1.0}


def test_corrupted_uploads_are_the_same_clients_always():
    """30 %: sign flipped, or ten times as long."""
    flip = Corrupted(0.3)
    scale = Corrupted(0.3, "scaling", 10.0)
    first = flip.upload_factor(KEY, MANY, 1)
    assert near((first == -1).mean(), 0.3)
    assert (first == flip.upload_factor(KEY, MANY, 2)).all()
    assert ((scale.upload_factor(KEY, MANY, 1) == 10.0) == (first == -1)).all()
    assert (flip.corrupted(KEY, MANY) == (first < 0)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DropOut(1.5), "got rate = 1.5; expected a share in \\[0, 1\\]"),
        (lambda: DropOut(at=-0.1), "got at = -0.1"),
        (lambda: DropOut(0.1, low=0.2), "got low = 0.2 above rate = 0.1; expected low <= rate"),
        (lambda: Crash(float("nan")), "got rate = nan"),
        (lambda: Crash(share=2), "got share = 2"),
        (lambda: NonFinite(-1), "got rate = -1"),
        (lambda: Corrupted(scale=0), "got scale = 0; expected a finite number above 0"),
        (lambda: Corrupted(kind="flip"), "got kind = 'flip'; expected 'sign_flip' or 'scaling'"),
        (lambda: Corrupted(kind="scaling"), "which changes nothing"),
        (lambda: FAILURES.build({"name": "drop_out", "rate": 2}), "failures: got rate = 2.0"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
