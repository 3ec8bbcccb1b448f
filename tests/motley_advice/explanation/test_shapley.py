"""CauseShares of causes: games worked by hand, and that shares add up."""

from __future__ import annotations

import numpy as np
import pytest

from motley_advice.explanation.shapley import (
    Combination,
    all_combinations,
    end_combinations,
    shares,
)


def game(*sums: tuple[set[int], list[float]]) -> dict[Combination, list[float]]:
    return {frozenset(members): values for members, values in sums}


def test_an_additive_game_gives_each_cause_what_it_adds() -> None:
    """Two seeds: .5 and .6, of which cause 0 adds .2 and .1, cause 1 takes .3 and adds .4."""
    carried = shares(
        game(({*()}, [0.5, 0.6]), ({0}, [0.7, 0.7]), ({1}, [0.2, 1.0]), ({0, 1}, [0.4, 1.1]))
    )
    assert carried.each == pytest.approx(np.array([[0.2, 0.1], [-0.3, 0.4]]))
    assert carried.from_a == pytest.approx(carried.each)
    assert carried.from_b == pytest.approx(carried.each)
    assert carried.left == pytest.approx([0.0, 0.0])


def test_what_two_causes_do_together_is_halved() -> None:
    """v = 0, 1, 2, 6: phi_0 = (1 + (6 - 2)) / 2 = 2.5, phi_1 = (2 + (6 - 1)) / 2 = 3.5."""
    carried = shares(game(({*()}, [0.0]), ({0}, [1.0]), ({1}, [2.0]), ({0, 1}, [6.0])))
    assert carried.each[:, 0] == pytest.approx([2.5, 3.5])
    assert carried.from_a[:, 0].tolist() == [1.0, 2.0]
    assert carried.from_b[:, 0].tolist() == [4.0, 5.0]


def left_and_right(combination: Combination) -> list[float]:
    """A left glove (cause 0) and a right one (1 or 2) make a pair."""
    return [float(0 in combination and len(combination) > 1)]


def test_three_causes_by_hand() -> None:
    """Cause 0 completes a pair unless it comes first (2 of 3 orders), cause 1 only between 0 and 2
    (1 of 6)."""
    carried = shares(
        {combination: left_and_right(combination) for combination in all_combinations(3)}
    )
    assert carried.each[:, 0] == pytest.approx([2 / 3, 1 / 6, 1 / 6])


def test_from_both_ends_what_several_do_together_is_left() -> None:
    """From A nothing makes a pair alone; from B only cause 0 is missed: shares 1/2, 0, 0."""
    combinations = end_combinations(3)
    assert len(combinations) == 8  # of three causes these are all
    carried = shares(
        {
            combination: left_and_right(combination)
            for combination in combinations
            if len(combination) != 9
        }
    )
    assert carried.left == pytest.approx([0.0])
    four = {combination: left_and_right(combination) for combination in end_combinations(4)}
    assert len(four) == 10  # of 16
    carried = shares(four)
    assert carried.each[:, 0].tolist() == [0.5, 0.0, 0.0, 0.0]
    assert carried.left.tolist() == [0.5]


@pytest.mark.parametrize("combinations", [all_combinations, end_combinations])
def test_shares_and_what_is_left_add_up_to_the_difference(combinations: object) -> None:
    rng = np.random.default_rng(0)
    assert callable(combinations)
    values = {combination: rng.normal(size=7) for combination in combinations(5)}
    carried = shares(values)
    total = values[frozenset(range(5))] - values[frozenset()]
    assert carried.each.sum(axis=0) + carried.left == pytest.approx(total, abs=1e-12)
    if combinations is all_combinations:
        assert carried.left == pytest.approx(np.zeros(7), abs=1e-12)


def test_one_cause_carries_all() -> None:
    assert all_combinations(1) == end_combinations(1) == [frozenset(), frozenset({0})]
    carried = shares(game(({*()}, [0.5]), ({0}, [0.75])))
    assert carried.each.tolist() == [[0.25]]
