"""The table of docs/methods/index.md#published-weights: every method, and what ``weights`` is where
it is left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from motley.algorithms import CATALOGUE
from motley.algorithms.local_optimisers import SGD, Solver
from motley.algorithms.parts import Algorithm
from motley.algorithms.weights import BOTH, Weighting
from motley.experiments.config import Experiment
from motley.testing.algorithms import Play
from motley.timing import SYNCHRONY

PAGE = Path(__file__).parents[3] / "docs" / "methods" / "index.md"
KEYS = {
    "task": "quadratic",
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 1},
    "partition": "by_writer",
}
UNIFORM = {
    "scaffold",
    "feddyn",
    "qfedavg",
    "ditto",
    "lg_fedavg",
    "fedbabu",
    "ifca",
    "heterofl",
    "fedrolex",
    "fiarse",
}
"""Methods whose authors average uniformly, in the paper or in the code that was read."""


def table(column: int = 1) -> dict[str, str]:
    """Return method -> weights, or another column, as the page has them."""
    section = (
        PAGE.read_text(encoding="utf-8").partition("{#published-weights}")[2].partition("\n#")[0]
    )
    lines = [line.split("|")[1:] for line in section.splitlines() if line.startswith("| `")]
    rows = [(cells[0], cells[column]) for cells in lines]
    return {
        name: weights.strip(" `")
        for names, weights in rows
        for name in re.findall(r"`([^`]+)`", names)
    }


def test_the_page_has_every_method_and_what_an_experiment_takes() -> None:
    found = table()
    buffered = found.pop('synchrony = "buffered"')
    assert set(found) == set(CATALOGUE.names())
    taken = {name: Experiment(**KEYS, algorithm=name).weighting() for name in found}
    assert taken == found
    assert Experiment(**KEYS, synchrony="buffered").weighting() == buffered


def weightings(algorithm: Algorithm, solver: Solver) -> tuple[str, ...]:
    """Return the ``weights`` that a method takes with such a local solver, first those where the
    key is left out; only these where no weights decide anything."""
    usual = algorithm.weights or "examples"
    if algorithm.local.ignores_weights() is not None:
        return (usual,)
    parts = (algorithm.local, algorithm.loss, algorithm.aggregator, algorithm.server)
    return tuple(
        mode
        for mode in dict.fromkeys((usual, *get_args(Weighting)))
        if not any(part.refuses(algorithm, solver, mode) for part in parts)
    )


def test_the_page_has_the_weightings_that_a_method_takes() -> None:
    """Each method bound to a small model, with adapters where it is made for them."""
    six = get_args(Weighting)
    names = {
        "all": set(six),
        "both": set(BOTH),
        "summing to 1": {*BOTH, "score", "selector_ratio"},
        "this one": set(),
    }
    options = {
        "fjord": {"widths": (1.0, 0.5)},
        "ifca": {"k": 2},
        "fine_tuned": {"method": {"name": "fedavg"}},
    }
    found = table(column=2)
    del found['synchrony = "buffered"']
    for name, takes in found.items():
        method = CATALOGUE.build({"name": name, **options.get(name, {})})
        taken = weightings(Play(method, "uniform", SGD(lr=0.1)).algorithm, SGD(lr=0.1))
        assert set(taken) == (names[takes] or {table()[name]}), name
        assert taken[0] == table()[name]


def test_methods_whose_authors_average_uniformly_do() -> None:
    assert {name for name, weights in table().items() if weights == "uniform"} >= UNIFORM


def test_only_fedbuff_and_fedcompass_change_the_default_of_a_method_that_says_nothing() -> None:
    found = {name: Experiment(**KEYS, synchrony=name).weighting() for name in SYNCHRONY.names()}
    assert {name for name, weights in found.items() if weights != "examples"} == {
        "buffered",
        "fedcompass",
    }
