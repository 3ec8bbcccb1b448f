"""Which clients the rounds selected, counted by hand.

Client 0 to 3 have 10, 20, 30 and 30 % of wrong labels, median 25 %: 2 and 3 are noisy. Their two
classes hold 8 and 2, 5 and 5, 6 and 4, 1 and 9 samples: all but 1 have one class above a half.
Round 1 takes everybody and is left out; rounds 2 to 5 take {0, 1}, {1, 2}, {1, 3} (3 is late) and
{1, 3}, round 7 {0, 2}. One of two, one of two and two of two were there before; round 7 follows no
round. Of ten picks 2, 3, 3, 2 are noisy and 0, 2, 3, 3, 0, 2 skewed.
"""

import math

import pytest

from motley.core.errors import DataError
from motley_papers import picks
from motley_papers.measuring import measure_of
from tests.motley.results import fake

ROUNDS = [1] * 4 + [2, 2, 3, 3, 4, 4, 5, 5, 7, 7]
PICKED = [0, 1, 2, 3, 0, 1, 1, 2, 1, 3, 1, 3, 0, 2]


def by_hand(
    noise=(0.1, 0.2, 0.3, 0.3),
    labels=((8, 2), (5, 5), (6, 4), (1, 9)),
    rounds=ROUNDS,
    picked=PICKED,
):
    federation = fake.table(
        "federation", client=[0, 1, 2, 3], noise=noise, labels=labels, num_train=[10] * 4
    )
    outcomes = [
        "late" if (t, k) == (4, 3) else "accepted" for t, k in zip(rounds, picked, strict=True)
    ]
    return fake.run(
        federation=federation,
        clients=fake.table("clients", round=rounds, client=picked, outcome=outcomes),
    )


def test_by_hand():
    run = by_hand()
    assert picks.cohort_overlap(run) == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    assert picks.noisy_picks(run) == 4 / 10
    assert picks.skewed_picks(run) == 6 / 10
    shown = [
        measure_of(name).of(run, None).value
        for name in ("cohort_overlap", "noisy_picks", "skewed_picks")
    ]
    assert shown == pytest.approx([200 / 3, 40, 60])


def test_rows_in_another_order_count_alike():
    order = [13, 4, 0, 7, 12, 5, 1, 9, 2, 8, 6, 3, 11, 10]
    run = by_hand(rounds=[ROUNDS[i] for i in order], picked=[PICKED[i] for i in order])
    assert picks.cohort_overlap(run) == pytest.approx(2 / 3)
    assert (picks.noisy_picks(run), picks.skewed_picks(run)) == (0.4, 0.6)


def test_nobody_stands_out():
    """The same share of wrong labels everywhere, no class above a half, labels that nobody
    reported: there is no number."""
    assert math.isnan(picks.noisy_picks(by_hand(noise=[0.2] * 4)))
    assert math.isnan(picks.noisy_picks(by_hand(noise=[None] * 4)))
    assert math.isnan(picks.skewed_picks(by_hand(labels=[[5, 5]] * 4)))
    assert math.isnan(picks.skewed_picks(by_hand(labels=[None] * 4)))


def test_a_run_that_never_chose():
    """Only round 1, with everybody; no clients at all."""
    for run in (by_hand(rounds=ROUNDS[:4], picked=PICKED[:4]), fake.run()):
        found = [picks.cohort_overlap(run), picks.noisy_picks(run), picks.skewed_picks(run)]
        assert all(math.isnan(value) for value in found)


def test_counts_of_different_lengths_are_refused():
    with pytest.raises(DataError, match="one count per class"):
        picks.skewed_picks(by_hand(labels=[[8, 2], [5, 5], [6, 4], [1, 2, 7]]))
