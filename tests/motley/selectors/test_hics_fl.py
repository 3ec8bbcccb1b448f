"""HiCS-FL: entropies, groups and odds worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.records import Outcome, Reports
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.selectors import Selector
from motley.selectors.common.clustering import ward_groups
from motley.selectors.hics_fl import HiCSFL, distances, drawn_by_groups, entropies

IDS = np.arange(8)
EVEN = np.zeros(3)
SKEWED = np.log([4.0, 1.0, 1.0])


def heard(rule, bias, horizon=10):
    """Return a selector to which every client has sent its bias once."""
    selector = Selector(rule, seed=0, horizon=horizon)
    selector.observe(1, Reports(IDS, Outcome.ACCEPTED, signals={"output_bias": bias}))
    return selector


def test_entropies_by_hand() -> None:
    """Softmax (.5, .25, .25); even; one class alone, however far; half the temperature squares the
    odds: (2/3, 1/6, 1/6)."""
    bias = np.array([np.log([2.0, 1, 1]), EVEN, [1e6, 0, 0]])
    found = entropies(bias, 1.0)
    assert found == pytest.approx([1.5 * np.log(2), np.log(3), 0.0], abs=1e-12)
    wanted = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 6))
    assert entropies(bias[:1], 0.5)[0] == pytest.approx(wanted)


def test_distances_by_hand() -> None:
    """A right angle, the same direction, and lambda times the difference of entropies."""
    bias = np.array([[1.0, 0], [0, 2], [3, 0]])
    h = np.array([0.5, 0.5, 0.2])
    right = np.pi / 2
    wanted = [[0, right, 3.0], [right, 0, right + 3.0], [3.0, right + 3.0, 0]]
    assert distances(bias, h, 10.0) == pytest.approx(np.array(wanted))


def test_groups_of_ward() -> None:
    x = np.array([0.0, 5, 0.1, 5.2, 9])
    assert ward_groups(np.abs(x[:, None] - x), 3).tolist() == [0, 1, 0, 1, 2]
    assert ward_groups(np.zeros((2, 2)), 5).tolist() == [0, 1]
    assert ward_groups(np.zeros((1, 1)), 3).tolist() == [0]


def test_everybody_is_drawn_once_first() -> None:
    selector = Selector(HiCSFL(), seed=3, horizon=10)
    seen: list[int] = []
    for t in (1, 2, 3):
        cohort = selector.select(t, IDS, m=3)
        seen += cohort.ids.tolist()
        late = Reports(cohort.ids, np.array([Outcome.LATE] * 3))
        selector.observe(t, late)
    assert set(seen) == set(IDS.tolist())
    assert len(set(seen[:8])) == 8  # the ninth was drawn beside the last two


def test_balanced_groups_are_preferred_and_then_no_more() -> None:
    """Groups of 2 and 6 clients with H = ln 3 and 1.5 ln 2: the first is drawn with the odds
    exp(gamma .058892), 1.265625 at gamma 4; 2,000 draws of one client, 4.5 standard errors. gamma
    falls from 4 in round 1 to 0 after the last."""
    h = np.where(IDS < 2, np.log(3), 1.5 * np.log(2))
    rng = Key(0).fold("draws").numpy()
    for gamma, odds in ((4.0, 1.265625), (0.0, 1.0)):
        drawn = [drawn_by_groups(1 * (IDS > 1), h, gamma, 1, rng)[0] for _ in range(2000)]
        p = odds / (1 + odds)
        assert abs(np.mean(np.array(drawn) < 2) - p) < 4.5 * np.sqrt(p * (1 - p) / 2000)
    bias = np.where(IDS[:, None] < 2, EVEN, SKEWED)
    selector = heard(HiCSFL(temperature=1.0, groups=2), bias)
    notes = [selector.select(t, IDS, m=1, step=t).notes for t in (1, 6, 11)]
    assert [note["gamma"] for note in notes] == pytest.approx([4.0, 2.0, 0.0])
    assert {note["groups"] for note in notes} == {2.0}


def test_a_group_is_drawn_no_more_than_it_has_clients() -> None:
    bias = np.where(IDS[:, None] < 2, EVEN, SKEWED)
    selector = heard(HiCSFL(temperature=0.01, preference=1e3, groups=2), bias)
    for t in range(2, 12):
        ids = selector.select(t, IDS, m=5).ids
        assert len(set(ids.tolist())) == 5
        assert {0, 1} <= set(ids.tolist())


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"temperature": 0}, "got temperature = 0.0; expected a positive number"),
        ({"distance": -1}, "got distance = -1.0; expected a number of at least 0"),
        ({"groups": 0}, "got groups = 0; expected a whole number of at least 1"),
    ],
)
def test_options_out_of_range_are_refused(rule, message) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment(**KEYS, selector={"name": "hics_fl", **rule})


KEYS = {
    "task": "quadratic",
    "population": 4,
    "cohort": 2,
    "partition": "by_writer",
    "stop": {"rounds": 2},
}


def test_a_model_without_an_output_bias_is_refused() -> None:
    with pytest.raises(ConfigError, match="bias of the last linear layer, and the model has none"):
        build(Experiment(**KEYS, selector="hics_fl"))
