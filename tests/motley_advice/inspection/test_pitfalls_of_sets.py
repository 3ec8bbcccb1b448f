"""Every pitfall of a set of runs: a set that commits it, and one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from motley.experiments.config import Experiment
from motley_advice.inspection.pitfalls_of_sets import PITFALLS_OF_SETS, pitfalls_of_set

KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 20,
    "cohort": 4,
    "stop": {"rounds": 30},
}
HOURS = {"stop": {"virtual_hours": 1.0}}
PROX = [{"algorithm": {"name": "fedprox", "mu": mu}} for mu in (0.01, 0.1)]
SLOW = {"local": {"optimizer": {"name": "sgd", "lr": 0.01}}}
FAST = {"local": {"optimizer": {"name": "sgd", "lr": 0.1}}}
OTHER = {"population": 30}
NOVA = {"algorithm": "fednova"}
BUFFERED = {"synchrony": {"name": "buffered", "buffer": 2}}
DEADLINE = {"synchrony": {"name": "deadline", "seconds": 9.0}}
VALIDATED = {"split": {"validation": 0.2}}

# pitfall, a set that commits it, one that does not, the key that the sentence names
CASES = [
    (
        "compared_by_rounds",
        [{}, {"synchrony": "asynchronous"}],
        [HOURS, {**HOURS, "synchrony": "asynchronous"}],
        "virtual_hours",
    ),
    ("compared_by_rounds", [{}, BUFFERED], [{}, DEADLINE], "stop"),
    ("unequal_stops", [{}, HOURS], [{}, {"algorithm": "scaffold"}], "stop"),
    ("unequal_stops", [{}, {"stop": {"rounds": 31}}], [{}, {"seed": 1}], "stop"),
    ("one_seed", [{}, NOVA], [{}, {"seed": 1}, NOVA, {**NOVA, "seed": 1}], "--seeds"),
    ("one_seed", [{}, {"algorithm": "scaffold"}], [{}, {"seed": 1}], "--seeds"),
    ("unpaired_seeds", [{}, {"seed": 1}, {"algorithm": "scaffold"}], [{}, {"seed": 1}], "--seeds"),
    (
        "one_constant_for_all",
        [PROX[0], {**PROX[0], **OTHER}],
        [PROX[0], PROX[1], {**PROX[0], **OTHER}],
        "algorithm.mu",
    ),
    ("one_constant_for_all", [PROX[0], {**PROX[0], "cohort": 8}], [{}, OTHER], "algorithm.mu"),
    (
        "unequal_tuning",
        [SLOW, FAST, {**SLOW, **NOVA}],
        [SLOW, {**SLOW, **NOVA}],
        "local.optimizer.lr",
    ),
    ("chosen_by_test", PROX, [{**one, **VALIDATED} for one in PROX], "split.validation"),
    ("chosen_by_test", PROX, [{}, {"algorithm": "scaffold"}], "split.validation"),
    ("unlike_tests", [{}, {"split": {"test": "global"}}], [{}, {"seed": 2}], "split.test"),
]


def said(changes: list[dict[str, Any]]) -> dict[str, str]:
    runs = [Experiment(**{**KEYS, **change}).resolved() for change in changes]
    found = {look.__name__: look(runs) for look in PITFALLS_OF_SETS}
    assert pitfalls_of_set(runs) == [
        sentence for sentence in found.values() if sentence is not None
    ]
    return {name: sentence for name, sentence in found.items() if sentence is not None}


@pytest.mark.parametrize(("name", "bad", "good", "key"), CASES)
def test_a_pitfall_is_told_of_the_set_that_commits_it_and_not_of_another(
    name: str, bad: list[dict[str, Any]], good: list[dict[str, Any]], key: str
) -> None:
    assert key in said(bad)[name]
    assert name not in said(good)


def test_a_single_run_is_no_comparison() -> None:
    assert pitfalls_of_set([Experiment(**KEYS).resolved()]) == []


def test_every_pitfall_of_the_list_is_tried() -> None:
    assert {look.__name__ for look in PITFALLS_OF_SETS} == {case[0] for case in CASES}
