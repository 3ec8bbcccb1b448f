"""Gains of a selection and an algorithm, alone and beside each other."""

import numpy as np
import pytest

from motley_papers.crossing import crossings

CONTROL = "uniform x fedavg"


def _of(entrants):
    return crossings({"here": entrants}, CONTROL)


def test_what_a_pair_gains_beyond_the_sum_by_hand():
    found = _of(
        {
            "oort x fedavg": [1.0, 3.0],
            "uniform x fedyogi": [2.0, 2.0],
            "oort x fedyogi": [5.0, 7.0],
        }
    )["here"]
    assert found.selections["oort"].mean == 2.0
    assert found.algorithms["fedyogi"].mean == 2.0
    assert found.together["oort", "fedyogi"].mean == 6.0
    # (5 - 1 - 2, 7 - 3 - 2) = (2, 2): surely 2, though each gain swings
    one = found.interactions["oort", "fedyogi"]
    assert (one.mean, one.low, one.high) == (2.0, 2.0, 2.0)
    # over oort alone (4, 4), over fedyogi alone (3, 5): 4 with 12.71 standard errors of 1 at 95 %,
    # and 25.45 for two differences of one pair together
    over_selection, over_algorithm = found.beside["oort", "fedyogi"]
    assert (over_selection.mean, over_selection.low) == (4.0, 4.0)
    assert over_algorithm.mean == 4.0
    assert over_algorithm.low == pytest.approx(4.0 - 25.452, abs=1e-3)


def test_a_pair_that_cannot_run_is_left_out():
    ones = [1.0, 1.0]
    alone = {"a x fedavg": ones, "c x fedavg": ones, "uniform x b": ones}
    found = _of({**alone, "a x b": [2.0, 3.0]})["here"]
    assert set(found.interactions) == {("a", "b")}
    assert set(found.selections) == {"a", "c"}


def test_the_plain_pairs_are_no_pairs():
    found = _of({"a x fedavg": [1.0, 1.0], "uniform x b": [1.0, 2.0], "a x b": [2.0, 3.0]})
    assert set(found["here"].interactions) == {("a", "b")}


def test_an_environment_whose_runs_are_not_all_there_is_left_out():
    assert _of({"a x fedavg": [1.0, 1.0], "uniform x b": [1.0, 2.0], "a x b": [2.0]}) == {}
    assert _of({"a x fedavg": [1.0, 1.0], "uniform x b": [1.0, 2.0]}) == {}  # no pair
    assert _of({"a x fedavg": [1.0, 1.0]}) == {}


@pytest.mark.parametrize("seeds", [5, 10])
def test_gains_that_add_up_show_an_interaction_in_one_environment_of_twenty(seeds):
    rng = np.random.default_rng(7)
    names = [f"{s}{i}" for s in "sa" for i in range(5)]
    wrong, worlds = 0, 600
    for _ in range(worlds):
        # every run has noise of its own, that of the control is in every difference
        score = {
            (s, a): rng.normal(size=seeds)
            for s in ["uniform", *names[:5]]
            for a in ["fedavg", *names[5:]]
        }
        base = score.pop(("uniform", "fedavg"))
        found = _of({f"{s} x {a}": list(one - base) for (s, a), one in score.items()})["here"]
        wrong += any(one.low > 0 or one.high < 0 for one in found.interactions.values())
    assert len(found.interactions) == 25
    # dependent through the shared parts, so at most 5 %: 600 worlds leave 0.9 % of doubt
    assert 0.005 < wrong / worlds < 0.05 + 2.5 * 0.009
