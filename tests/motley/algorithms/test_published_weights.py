"""The table of docs/methods/index.md#published-weights: every method, and what ``weights`` is where
it is left out."""

from __future__ import annotations

import re
from pathlib import Path

from motley.algorithms import CATALOGUE
from motley.experiments.config import Experiment
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
}
"""Methods whose authors average uniformly, in the paper or in the code that was read."""


def table() -> dict[str, str]:
    """Return method -> weights, as the page has them."""
    section = (
        PAGE.read_text(encoding="utf-8").partition("{#published-weights}")[2].partition("\n#")[0]
    )
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
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


def test_methods_whose_authors_average_uniformly_do() -> None:
    assert {name for name, weights in table().items() if weights == "uniform"} >= UNIFORM


def test_only_fedbuff_changes_the_default_of_a_method_that_says_nothing() -> None:
    found = {name: Experiment(**KEYS, synchrony=name).weighting() for name in SYNCHRONY.names()}
    assert {name for name, weights in found.items() if weights != "examples"} == {"buffered"}
