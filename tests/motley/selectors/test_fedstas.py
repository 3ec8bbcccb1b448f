"""FedSTaS: the allocation of docs/methods/selectors.md#fedstas, strata, spreads and weights by
hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.fedstas import FedSTaS, allocate, spreads
from motley.selectors.selector import Selector


def report(selector, t, ids, sketches, outcome=Outcome.PROBED):
    selector.observe(
        t,
        Reports(np.asarray(ids), outcome, signals={"gradient_sketch": np.asarray(sketches, float)}),
    )


def test_worked_allocation():
    """N = (10, 30, 60), S = (4, 2, 1), m = 10: N S = (40, 60, 60) of 160, so (2.5, 3.75, 3.75);
    floors (2, 3, 3) leave 2, which go to the larger remainders. Proportional allocation would give
    (1, 3, 6)."""
    assert allocate(np.array([10, 30, 60]), np.array([4.0, 2.0, 1.0]), 10).tolist() == [2, 4, 4]


@pytest.mark.parametrize(
    ("sizes", "spread", "m", "expected"),
    [
        ((10, 10), (1, 1), 5, (3, 2)),  # 2.5 each: the first of equal remainders
        ((5, 50, 50), (0, 1, 1), 10, (1, 5, 4)),  # at least 1; the other 9 are halved
        # fewer than strata: the first by its spread, nothing varies in the others
        ((1, 1, 1), (5, 0, 0), 2, (1, 1, 0)),
        ((2, 50), (100, 1), 10, (2, 8)),  # 200 : 50 would be 8 of 2 clients
        ((10, 30), (0, 0), 8, (2, 6)),  # nothing varies: by size
        ((3, 4), (2, 7), 7, (3, 4)),  # everybody
        ((2, 0, 2), (1, 0, 1), 3, (2, 0, 1)),  # an empty stratum gets none
        ((3, 3), (0, 1), 5, (2, 3)),  # the one that varies is used up
    ],
)
def test_allocation_by_hand(sizes, spread, m, expected):
    assert allocate(np.array(sizes), np.array(spread, float), m).tolist() == list(expected)


@given(st.data())
def test_allocation_holds(data):
    n = data.draw(st.integers(1, 8))
    sizes = np.array(data.draw(st.lists(st.integers(1, 30), min_size=n, max_size=n)))
    spread = np.array(data.draw(st.lists(st.floats(0, 1e12), min_size=n, max_size=n)))
    m = data.draw(st.integers(1, int(sizes.sum())))
    got = allocate(sizes, spread, m)
    assert got.sum() == m
    assert ((got >= 0) & (got <= sizes)).all()
    assert (got >= 1).all() or m < n
    exact = m * sizes * spread / max((sizes * spread).sum(), 1e-300)
    if ((exact >= 1) & (exact <= sizes)).all():  # nothing is clipped: Neyman's, to less than one
        assert (abs(got - exact) < 1 + 1e-6).all()


def test_spread_by_hand():
    """(0,0), (2,0), (4,0) about (2,0): squares 4 + 0 + 4 over 3 - 1 is 4, so S = 2. A single
    client: 0. (0,0), (0,2): sqrt(2 / 1)."""
    points = np.array([[0, 0], [9, 9], [2, 0], [4, 0], [0, 0], [0, 2.0]])
    np.testing.assert_allclose(spreads(points, np.array([0, 1, 0, 0, 2, 2])), (2, 0, np.sqrt(2)))


def test_released_spread_by_hand():
    """The variance, summed over the coordinates: 8 / 3, 0 and 2 / 2."""
    points = np.array([[0, 0], [9, 9], [2, 0], [4, 0], [0, 0], [0, 2.0]])
    got = spreads(points, np.array([0, 1, 0, 0, 2, 2]), "variance")
    np.testing.assert_allclose(got, (8 / 3, 0, 1))


@pytest.mark.parametrize(
    ("options", "p"),
    [
        ({}, np.array([0, 10, 1, 101**0.5]) / (11 + 101**0.5)),  # norms 0, 10, 1, sqrt 101
        # (0, 0) becomes (-1, -1), and so on: every norm is sqrt 2
        ({"standardise": True}, np.full(4, 0.25)),
    ],
)
def test_standardised_gradients_by_hand(options, p):
    selector = Selector(FedSTaS(strata=1, **options))
    report(selector, 1, [2, 3, 5, 8], [[0, 0], [0, 10], [1, 0], [1, 10]])
    cohort = selector.select(1, [2, 3, 5, 8], 1)
    assert cohort.notes["max_probability"] == pytest.approx(p.max())


def test_standardised_gradients_of_unlike_clients_by_hand():
    """x: deviations (-1, -1, 3, -1) 3 / 4, of standard deviation 3 sqrt 3 / 4; y likewise. Clients
    2 and 8 are at (-1, -1) / sqrt 3, of norm sqrt(2 / 3), client 3 at (-1, 3) / sqrt 3 and client 5
    at its mirror image, of norm sqrt(10 / 3): p = sqrt 5 / (2 + 2 sqrt 5) at most."""
    selector = Selector(FedSTaS(strata=1, standardise=True))
    report(selector, 1, [2, 3, 5, 8], [[0, 0], [0, 10], [3, 0], [0, 0]])
    cohort = selector.select(1, [2, 3, 5, 8], 1)
    expected = 5**0.5 / (2 + 2 * 5**0.5)
    assert cohort.notes["max_probability"] == pytest.approx(expected)


@pytest.mark.parametrize(("spread", "counts"), [("deviation", [2, 3]), ("variance", [1, 4])])
def test_the_form_of_the_spread_decides_the_shares(spread, counts):
    """Five clients one apart and five two apart: twice the deviation, (5/3, 10/3) of m = 5; four
    times the variance, (1, 4)."""
    ids = np.arange(10)
    selector = Selector(FedSTaS(strata=2, spread=spread))
    report(selector, 1, ids, [[x] for x in (1, 2, 3, 4, 5, 101, 103, 105, 107, 109)])
    chosen = selector.select(1, ids, 5).ids
    assert [np.count_nonzero(chosen < 5), np.count_nonzero(chosen >= 5)] == counts


SKETCHES = [[1, 0], [3, 0], [5, 0], [0, 50], [0, 51], [0, 52], [0, 53]]
IDS = np.array([2, 3, 5, 8, 13, 21, 34])


def test_cohort_by_hand():
    """Strata {2, 3, 5} (S = 2) and {8, 13, 21, 34} (S^2 = (2.25 + .25 + .25 + 2.25) / 3 = 5 / 3): N
    S = (6, 5.163978), m = 3 gives (1.612, 1.388), rounded (2, 1). Stratified mean: 3 / (7 * 2)
    twice and 4 / (7 * 1) once."""
    selector = Selector(FedSTaS(strata=2))
    assert selector.probe(1, IDS, 3).tolist() == IDS.tolist()
    report(selector, 1, IDS, SKETCHES)
    cohort = selector.select(1, IDS, 3)
    weight = dict(zip(cohort.ids.tolist(), cohort.weights.tolist(), strict=True))
    assert sum(k in (2, 3, 5) for k in weight) == 2
    assert all(w == pytest.approx(3 / 14 if k in (2, 3, 5) else 4 / 7) for k, w in weight.items())
    # largest chance of a first draw: client 5, 2 of 3 from its stratum, 5 of 9 inside it
    assert cohort.notes["max_probability"] == pytest.approx(2 / 3 * 5 / 9)
    assert cohort.notes["strata"] == 2


@pytest.mark.usefixtures("clustered_once")
def test_inside_a_stratum_in_proportion_to_the_norm():
    """One stratum of norms 1, 3, 5 and one client wanted: p = (1, 3, 5) / 9."""
    selector = Selector(FedSTaS(strata=1))
    counts = np.zeros(3)
    n = 1500
    report(selector, 1, IDS[:3], SKETCHES[:3])
    for d in range(n):
        counts += IDS[:3] == selector.select(1, IDS[:3], 1, dispatch=d).ids[0]
    p = np.array([1, 3, 5]) / 9
    assert (abs(counts / n - p) < 4.5 * np.sqrt(p * (1 - p) / n)).all()


def test_strata_are_drawn_from_in_order_of_their_smallest_clients():
    """Clients 0 and 3 are alike, as are 1 and 2: the strata are {0, 3} and {1, 2}, whatever k-means
    calls them, and the cohort holds one client of the first before one of the second."""
    sketches = {"gradient_sketch": [[1.0, 0], [0, 90], [0, 80], [2, 0]]}
    for seed in range(8):
        selector = Selector(FedSTaS(strata=2), seed)
        selector.observe(1, Reports(np.arange(4), Outcome.PROBED, signals=sketches))
        first, second = selector.select(1, np.arange(4), m=2).ids.tolist()
        assert first in (0, 3)
        assert second in (1, 2)


def test_no_more_strata_than_clients_wanted():
    """Ten strata of seven clients, two wanted: two strata, one of each, the weights N_h / N."""
    selector = Selector(FedSTaS())
    report(selector, 1, IDS, SKETCHES)
    cohort = selector.select(1, IDS, 2)
    assert cohort.notes["strata"] == 2
    assert sorted(cohort.weights.tolist()) == pytest.approx([3 / 7, 4 / 7])


def test_the_unmeasured_are_a_stratum_of_their_own():
    """Clients 8 .. 34 never measured: N = (3, 4), both of S = 2: 12 / 7 and 16 / 7 of m = 4,
    rounded (2, 2)."""
    selector = Selector(FedSTaS(strata=1, probe="last_report"))
    assert not len(selector.probe(1, IDS, 4))
    # nobody measured: one stratum, uniform
    assert selector.select(1, IDS, 4).weights.tolist() == [0.25] * 4
    report(selector, 1, IDS[:3], SKETCHES[:3], Outcome.ACCEPTED)
    cohort = selector.select(2, IDS, 4)
    known = np.isin(cohort.ids, IDS[:3])
    assert known.sum() == 2
    np.testing.assert_allclose(cohort.weights, np.where(known, 3 / 14, 4 / 14))


def test_weights_sum_to_one_where_a_stratum_gets_nobody():
    """Measured and not, one client wanted: whoever it is stands for its stratum alone."""
    selector = Selector(FedSTaS(probe="last_report"))
    report(selector, 1, IDS[:3], SKETCHES[:3], Outcome.ACCEPTED)
    assert selector.select(2, IDS, 1).weights.tolist() == [1.0]


def test_missing_and_non_finite_gradients_are_not_stored():
    selector = Selector(FedSTaS(probe="last_report"))
    report(selector, 1, [1, 2], [[1, 2], [3, 4]], Outcome.ACCEPTED)
    report(selector, 2, [1], [[7, 7]], Outcome.LATE)
    report(selector, 3, [2], [[np.nan, 7]], Outcome.ACCEPTED)
    report(selector, 3, [3], [[1e300, -1e300]], Outcome.ACCEPTED)
    np.testing.assert_array_equal(selector.state.get("sketch", [1, 2]), [[1, 2], [3, 4]])
    assert np.isfinite(selector.select(4, [1, 2, 3], 2).weights).all()


def test_measured_every_so_often():
    selector = Selector(FedSTaS(every=3))
    assert [len(selector.probe(t, IDS, 2)) for t in range(1, 8)] == [7, 0, 0, 7, 0, 0, 7]
    assert FedSTaS(probe_batches=4).needs().probed == {"gradient_sketch": 4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strata": 0}, "strata = 0"),
        ({"every": 0}, "every = 0"),
        ({"probe_batches": 0}, "probe_batches = 0"),
        ({"probe": "last_report", "every": 2}, "leave every and probe_batches out"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "fedstas", **options})
