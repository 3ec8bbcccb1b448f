"""DivFL: the worked example of docs/methods/selectors.md#divfl, who is measured when, and the traps
of its public forms."""

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.divfl import DivFL
from motley.selectors.selector import Selector

LINE = np.array([0.0, 1, 3, 10, 12, 13, 20])
IDS = np.array([5, 6, 10, 20, 21, 30, 44])


def report(selector, t, ids, vectors, outcome=Outcome.PROBED, name="gradient"):
    vectors = np.asarray(vectors, float)
    vectors = vectors[:, None] if vectors.ndim == 1 else vectors
    selector.observe(t, Reports(np.asarray(ids), outcome, signals={name: vectors}))


def measured(rule=None, ids=IDS, vectors=LINE, seed=0):
    selector = Selector(rule or DivFL(vectors="gradient"), seed)
    report(selector, 1, ids, vectors)
    return selector


@pytest.mark.parametrize("seed", range(5))
def test_the_worked_line_whatever_the_seed(seed):
    """Ids are not positions: position 3, then 1, then 6 are the clients 20, 6, 44 (sums 41, then
    18, then 8 left; derived in test_facility). No two gains are equal, so the seed has nothing to
    decide. gamma = (3, 3, 1)."""
    cohort = measured(DivFL(vectors="gradient", coefficients="clusters"), seed=seed).select(
        1, IDS, 3
    )
    assert cohort.ids.tolist() == [20, 6, 44]
    np.testing.assert_allclose(cohort.weights, np.array([3, 3, 1]) / 7)
    assert cohort.notes["distance"] == pytest.approx(8 / 7)
    assert cohort.notes["largest_cluster"] == pytest.approx(3 / 7)


def test_distances_are_not_squared():
    """Scalars (0, 0.1, 0.21, 10, 3): sums of |.| are (13.31, 13.01, 12.9, 36.69, 15.69), least for
    0.21; of squares 103.68 for 0.21, but 9 + 8.41 + 7.78 + 49 = 74.19 for 3. One public
    re-implementation squares, and is drawn to the outlier."""
    values = np.array([0.0, 0.1, 0.21, 10, 3])
    assert np.argmin(((values[:, None] - values) ** 2).sum(0)) == 4
    ids = np.arange(5)
    assert measured(ids=ids, vectors=values).select(1, ids, 1).ids.tolist() == [2]


def test_without_coefficients_the_aggregator_decides():
    assert measured().select(1, IDS, 3).weights is None
    assert DivFL().provides() == frozenset()
    assert DivFL(coefficients="clusters").provides() == {"weights"}


def test_the_objective_falls_with_m_to_zero():
    left = [measured().select(1, IDS, m).notes["distance"] for m in range(1, 8)]
    assert (np.diff(left) <= 0).all()
    assert left[-1] == 0


def test_stale_measures_everybody_once_and_then_reporters_refresh():
    selector = Selector(DivFL(vectors="gradient"))
    assert selector.probe(1, IDS, 3).tolist() == IDS.tolist()
    report(selector, 1, IDS, LINE)
    report(selector, 1, [20, 6], [100.0, -50.0], Outcome.ACCEPTED)
    assert not len(selector.probe(2, IDS, 3))
    assert selector.state.get("vector", IDS)[:, 0].tolist() == [0, -50, 3, 100, 12, 13, 20]


def test_a_client_without_a_usable_vector_is_probed_when_available():
    selector = Selector(DivFL(vectors="gradient"))
    report(selector, 1, IDS[:3], [0.0, np.nan, 1.0])
    assert selector.probe(2, IDS[1:], 3).tolist() == [6, 20, 21, 30, 44]


def test_ideal_measures_everybody_each_round_and_ignores_reports():
    selector = Selector(DivFL("ideal", vectors="gradient"))
    for t in (1, 2):
        assert selector.probe(t, IDS, 3).tolist() == IDS.tolist()
        report(selector, t, IDS, LINE + t)
        report(selector, t, IDS[:2], [900.0, 900.0], Outcome.ACCEPTED)
    assert selector.state.get("vector", IDS)[:, 0].tolist() == (LINE + 2).tolist()
    assert DivFL("ideal").needs().reported == frozenset()


@pytest.mark.parametrize("outcome", [Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED])
def test_clients_without_an_accepted_update_keep_their_vectors(outcome):
    selector = measured()
    before = selector.to_bytes()
    report(selector, 1, IDS[:2], [900.0, 900.0], outcome)
    assert selector.to_bytes() == before


def test_random_start_probes_nobody_and_its_first_cohort_is_random():
    """All vectors unknown are one vector: all gains tie, each client is in the cohort m / K of the
    time (4.5 standard errors)."""
    selector = Selector(DivFL(start="random"))
    n = 2000
    counts = np.zeros(7)
    assert not len(selector.probe(1, IDS, 2))
    assert not selector.rule.needs().probed
    for t in range(1, n + 1):
        counts[np.searchsorted(IDS, selector.select(t, IDS, 2).ids)] += 1
    assert (abs(counts / n - 2 / 7) < 4.5 * np.sqrt(2 / 7 * 5 / 7 / n)).all()
    assert Selector(DivFL(start="random", ties="lowest_id")).select(1, IDS, 2).ids.tolist() == [
        5,
        6,
    ]


def test_an_unknown_client_is_the_mean_of_the_known():
    """Known 0 and 10, one unknown at their mean 5: it is the middle of the three, hence the first
    pick."""
    selector = Selector(DivFL(start="random", vectors="gradient"))
    report(selector, 1, [1, 2], [0.0, 10.0], Outcome.ACCEPTED)
    assert selector.select(2, [1, 2, 3], 1).ids.tolist() == [3]


def test_unavailable_clients_are_covered_but_not_chosen():
    """Three clients at 10 are away; of the available 0, 4, 5 the one at 5 stands for them best:
    15 + 5 + 1 + 0 = 21 left, against 18 + 4 + 1 = 23 for 4. Without them 4 would be the middle."""
    ids = np.arange(6)
    values = [0.0, 4, 5, 10, 10, 10]
    assert measured(ids=ids, vectors=values).select(1, ids[:3], 1).ids.tolist() == [2]
    assert measured(ids=ids[:3], vectors=values[:3]).select(1, ids[:3], 1).ids.tolist() == [1]


def test_available_clients_need_not_have_the_first_ids():
    """The same with the available last: rows of the distances are clients, its columns
    candidates."""
    ids = np.arange(6)
    values = [10.0, 10, 10, 0, 4, 5]
    assert measured(ids=ids, vectors=values).select(1, ids[3:], 1).ids.tolist() == [5]
    assert measured(ids=ids, vectors=values).select(1, ids[4:], 1).notes[
        "distance"
    ] == pytest.approx(21 / 6)


def test_zero_gradients_are_ties():
    selector = measured(vectors=np.zeros((7, 4)))
    assert len({tuple(selector.select(t, IDS, 3).ids) for t in range(1, 30)}) > 10


def test_stochastic_greedy_draws_its_candidates():
    selector = measured(DivFL(vectors="gradient", greedy="stochastic"))
    assert len({tuple(selector.select(t, IDS, 3).ids) for t in range(1, 30)}) > 3


def test_sketches_are_the_default():
    assert DivFL().needs().probed == {"gradient_sketch": None}
    assert DivFL().needs().reported == {"gradient_sketch"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"variant": "ideal", "start": "random"}, "variant = 'ideal' measures everybody"),
        ({"variant": "fresh"}, "selector.variant: got 'fresh'"),
        ({"vectors": "sketch"}, "selector.vectors: got 'sketch'"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "divfl", **record})
