"""Who is measured again, by hand, and how often a method that does not help is named."""

from math import inf, nan

import numpy as np
import pytest

from motley_papers.advice import Gain
from motley_papers.earlier import MeasuredRow
from motley_papers.naming import chosen, costs, differences, gains, most_gaining


def row(environment, entrant, seed, value, measure="stable", exact="true"):
    return MeasuredRow(
        "shared", f"{environment} / {entrant}", measure, seed, str(value), exact, "", ""
    )


ROWS = [
    *(row("labels", "uniform FedAvg", seed, value) for seed, value in enumerate((70.0, 72.0))),
    *(row("labels", "one", seed, value) for seed, value in enumerate((71.0, 75.0, 90.0))),
    *(row("labels", "two", seed, value) for seed, value in enumerate((72.0, 74.0))),
    row("labels", "three", 0, nan),
]


def test_differences_are_paired_by_seed_and_a_diverged_run_is_far_behind():
    assert differences(ROWS, "shared", "stable", (0, 1, 2)) == {
        "labels": {"one": [1.0, 3.0], "two": [2.0, 2.0], "three": [-170.0]}
    }
    assert differences(ROWS, "shared", "stable", (1,)) == {"labels": {"one": [3.0], "two": [2.0]}}
    assert differences(ROWS, "personal", "stable", (0, 1)) == {}
    assert differences(ROWS, "shared", "stable", (0, 1), "two")["labels"]["one"] == [-1.0, 1.0]


def test_what_gains_most_against_its_spread_is_chosen():
    # variances 2 and 0, the median 1: 2 / (1.5)^0.5 = 1.6 and 2 / 0.5^0.5 = 2.8
    assert chosen(differences(ROWS, "shared", "stable", (0, 1))) == {"labels": "two"}
    # without any spread the sign decides
    assert chosen({"here": {"worse": [-1.0, -1.0], "none": [0.0, 0.0], "good": [0.1, 0.1]}}) == {
        "here": "good"
    }
    assert chosen({"here": {"once": [9.0]}}) == {}  # one seed chooses nobody


def test_the_winner_is_in_nearly_all_environments():
    found = {f"place {i}": {"all": [1.0], "some": [9.0]} for i in range(8)}
    found |= {f"place {i}": {"all": [1.0]} for i in range(8, 10)}
    assert most_gaining(found) == "all"


def test_costs_are_ratios_where_they_are_told_apart():
    made = {"uniform FedAvg": (10, 30), "one": (5, 25), "two": (10, 20)}
    rows = [
        row("labels", name, seed, value, "s")
        for name, values in made.items()
        for seed, value in enumerate(values)
    ]
    rows += [row("labels", "three", 0, inf, "s", "false")]
    found = costs(rows, "shared", "s", (0, 1))
    assert found["labels", "one"] == 0.75  # 5 less both times
    assert np.isnan(found["labels", "two"])  # 0 and 10 less
    assert np.isnan(found["labels", "three"])  # missed


def test_gains_are_of_the_second_seeds_where_there_are_some():
    choice = {"labels": {"one": [5.0, 6.0], "two": [1.0, 1.0]}, "even": {"one": [0.0, 1.0]}}
    again = {"labels": {"one": [2.0, 3.0, 4.0]}}
    found = gains(choice, again, {("labels", "one"): 0.5}, {("labels", "one"): 2.0})
    assert found == {
        "labels": {"one": Gain([2.0, 3.0, 4.0], True, 0.5, 2.0)},
        "even": {"one": Gain([0.0, 1.0], again=False)},
    }


def test_what_helps_nobody_is_named_in_one_case_of_forty():
    """Forty entrants without any gain, two seeds that choose, five that measure again."""
    draw = np.random.default_rng(7)
    named = 0
    trials = 2_000
    for _ in range(trials):
        first = draw.normal(size=(40, 2))
        (best,) = chosen({"here": {str(i): list(some) for i, some in enumerate(first)}}).values()
        assert best
        named += Gain(list(draw.normal(size=5))).interval.low > 0
    # 50 of 2,000 are expected, with a deviation of 7
    assert named / trials == pytest.approx(0.025, abs=0.0105)
