"""Ranks and wins, with numbers worked by hand."""

from math import inf, nan

import numpy as np

from motley_papers.mean_ranks import rank, ranks


def test_ranks_share_ties_and_put_divergence_last():
    # 5 and 5 share places 1 and 2; NaN is below the lowest number
    assert ranks(np.array([[5.0, 5.0, nan, -3.0]])).tolist() == [[1.5, 1.5, 4.0, 3.0]]


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
    good, _, bad = found.standings
    # +2 with a standard deviation of 1.41 over two seeds: a tie
    assert (good.wins, good.ties, good.losses) == (1, 1, 0)
    assert (bad.wins, bad.ties, bad.losses) == (0, 1, 1)
    assert (good.median, bad.median) == (2.5, -1.0)
    assert (good.sure_wins, bad.sure_losses) == (0, 0)  # without any spread nothing is tested
    assert good.entrant == "good"
    assert not found.judged  # two seeds tell no interval


def test_differences_that_are_equal_but_for_rounding_win_nothing_surely():
    right = [84, 75, 70]  # of 360 samples
    ranking = rank(
        scores(
            base=[[100 * (n / 360) for n in right]], more=[[100 * ((n + 7) / 360) for n in right]]
        ),
        "base",
    )
    assert [standing.entrant for standing in ranking.standings if standing.sure_wins] == []


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
    assert rank({("e0", "base"): {0: 1.0}}, "base").standings == []


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
