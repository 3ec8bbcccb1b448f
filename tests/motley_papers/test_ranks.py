"""Ranks, tests and wins, with numbers worked by hand."""

from math import inf, isnan, nan

import numpy as np
import pytest

from motley_papers.ranks import critical_difference, friedman_p, rank, ranks, signed_rank_p


def test_ranks_share_ties_and_put_divergence_last():
    # 5 and 5 share places 1 and 2; NaN is below the lowest number
    assert ranks(np.array([[5.0, 5.0, nan, -3.0]])).tolist() == [[1.5, 1.5, 4.0, 3.0]]


def test_friedman_by_hand():
    # three entrants, four environments, always in the same order: rank sums 4, 8, 12, mean 8.
    # chi2 = 12 / (4 * 3 * 4) * (16 + 0 + 16) = 8 with two degrees of freedom: p = exp(-4)
    ranked = np.tile([1.0, 2.0, 3.0], (4, 1))
    assert friedman_p(ranked) == pytest.approx(np.exp(-4))
    assert friedman_p(np.full((4, 3), 2.0)) == 1.0  # all ties
    assert isnan(friedman_p(ranked[:1]))


def test_critical_difference_by_hand():
    # Demsar (2006), table 5: q = 2.728 of five entrants at 5 %; sqrt(5 * 6 / (6 * 10)) = sqrt(1 /
    # 2)
    assert critical_difference(5, 10) == pytest.approx(2.728 / np.sqrt(2), abs=5e-4)


def test_signed_ranks_by_hand():
    # five differences, all above zero: two of the 2^5 signs are as extreme
    assert signed_rank_p(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == pytest.approx(2 / 32)
    # W- = 1 (the smallest alone is negative): {}, {1} and their mirror images, 4 of 32
    assert signed_rank_p(np.array([-1.0, 2.0, 3.0, 4.0, 5.0])) == pytest.approx(4 / 32)
    assert signed_rank_p(np.array([0.0, 0.0])) == 1.0
    # ties: sizes 1, 1, 2 have ranks 1.5, 1.5, 3; W+ = 6 of a mean of 3; variance (2.25 + 2.25 + 9)
    # / 4
    assert signed_rank_p(np.array([1.0, 1.0, 2.0])) == pytest.approx(
        2 * 0.5 * (1 - _erf(3 / np.sqrt(13.5 / 4) / np.sqrt(2))), abs=1e-6
    )


def _erf(x):
    from math import erf

    return erf(x)


def scores(**entrants):
    """Entrant -> one list of seeds for each environment."""
    return {
        (f"e{i}", name): dict(enumerate(seeds))
        for name, environments in entrants.items()
        for i, seeds in enumerate(environments)
    }


def test_a_ranking_by_hand():
    found = rank(
        scores(
            base=[[10.0, 12.0], [20.0, 20.0]],
            good=[[13.0, 15.0], [21.0, 23.0]],  # +3 and +3 exactly; +1 and +3
            bad=[[8.0, 10.0], [20.0, 20.0]],  # -2 exactly; 0
        ),
        "base",
    )
    assert [(one.entrant, one.mean_rank) for one in found.standings] == [
        ("good", 1.0),
        ("base", 2.25),
        ("bad", 2.75),
    ]
    good, base, bad = found.standings
    # +2 with a standard deviation of 1.41 over two seeds: a tie
    assert (good.wins, good.ties, good.losses) == (1, 1, 0)
    assert (bad.wins, bad.ties, bad.losses) == (0, 1, 1)
    assert (good.median, bad.median) == (2.5, -1.0)
    assert (good.sure_wins, bad.sure_losses) == (1, 1)  # differences without any spread have p = 0
    assert isnan(base.p)
    assert isnan(good.p_leader)
    # mean rank of base: 2 and 2.5, standard deviation 0.354, t(1) = 12.71: 2.25 -+ 12.71 * 0.354 /
    # sqrt(2)
    assert base.high == pytest.approx(2.25 + 12.706 * 0.25, abs=1e-3)
    assert found.leader == "good"
    assert found.open == ["good", "base", "bad"]  # two environments decide nothing: p = 2 / 4


def test_less_can_be_better_and_missed_targets_are_last():
    found = rank(
        scores(base=[[5.0, 5.0]], slow=[[inf, inf]], fast=[[3.0, 4.0]], lost=[[nan, nan]]),
        "base",
        higher=False,
    )
    assert [one.entrant for one in found.standings] == ["fast", "base", "slow", "lost"]
    both = rank(
        scores(base=[[inf, inf]], other=[[inf, inf]], better=[[inf, 9.0]]), "base", higher=False
    )
    assert {one.entrant: one.median for one in both.standings} == {
        "base": 0.0,
        "other": 0.0,
        "better": inf,
    }


def test_seeds_are_paired_and_gaps_are_left_out():
    values = scores(base=[[1.0, 9.0, 5.0]], ours=[[2.0, 10.0]], elsewhere=[[3.0, 3.0]])
    values["e1", "elsewhere"] = {0: 4.0}
    found = rank(values, "base")
    assert found.differences["e0", "ours"].mean == 1.0  # seeds 0 and 1 alone
    assert found.environments == ["e0"]  # the control has no number in e1
    assert rank({("e0", "base"): {0: 1.0}}, "base").leader is None


def test_an_entrant_that_lacks_an_environment_is_unranked():
    values = scores(base=[[1.0], [1.0]], whole=[[2.0], [2.0]], part=[[3.0]])
    found = rank(values, "base")
    assert found.unranked == ["part"]
    assert found.environments == ["e0", "e1"]


def test_holm_counts_every_cell():
    # differences 1, 2, 3 over three seeds: mean 2, standard deviation 1, t = 3.46, p = 0.074; 9.9,
    # 10, 10.1: t = 173, p = 3.3e-5
    found = rank(
        scores(base=[[0.0, 0.0, 0.0]] * 2, ours=[[9.9, 10.0, 10.1], [1.0, 2.0, 3.0]]), "base"
    )
    ours = next(one for one in found.standings if one.entrant == "ours")
    assert (ours.wins, ours.ties, ours.sure_wins) == (1, 1, 1)
