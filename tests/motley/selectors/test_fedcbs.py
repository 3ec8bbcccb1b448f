"""Fed-CBS: the worked QCIDs of docs/methods/selectors.md#fedcbs, first and later picks by hand, and
that it is not greedy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.fedcbs import FedCBS, qcid
from motley.selectors.selector import Selector

C = {
    1: (5, 5, 5, 5, 5, 5),
    2: (6, 6, 6, 6, 6, 0),
    3: (0, 0, 0, 10, 10, 10),
    4: (10, 10, 10, 0, 0, 0),
}
WORKED = [
    ((1,), 0),
    ((1, 2), 0.008333),
    ((1, 2, 3), 0.014815),
    ((1, 3, 4), 0),
    ((2, 3, 4), 0.003704),
]
IDS = np.array([1, 2, 3, 4])


def enrolled(rule, labels=None, seed=0):
    labels = C if labels is None else labels
    selector = Selector(rule, seed)
    ids = np.array(list(labels))
    selector.observe(
        0,
        Reports(
            ids,
            Outcome.ENROLLED,
            signals={"label_histogram": np.array(list(labels.values()), float)},
        ),
    )
    return selector


def frequencies(selector, ids, t=1, n=3000):
    """Of the first pick."""
    drawn = np.array([selector.select(t, ids, 1, dispatch=d).ids[0] for d in range(n)])
    return (drawn[:, None] == ids).mean(axis=0), 4.5 * np.sqrt(0.25 / n)


@pytest.mark.parametrize(("group", "expected"), WORKED)
def test_worked_imbalance(group, expected):
    counts = np.array([C[k] for k in group], float)
    assert qcid(counts) == pytest.approx(expected, abs=6e-7)
    # the form that inner products give
    pairwise = (counts @ counts.T).sum() / counts.sum() ** 2 - 1 / 6
    assert pairwise == pytest.approx(expected, abs=6e-7)
    cohort = enrolled(FedCBS()).select(1, np.array(group), 4)
    assert set(cohort.ids.tolist()) == set(group)
    assert cohort.notes["qcid"] == pytest.approx(expected, abs=6e-7)


def test_first_pick_by_hand():
    """QCID of C2 alone is 5 / 25 - 1 / 6 = 1 / 30, of C3 and C4 1 / 3 - 1 / 6 = 1 / 6: weights 30,
    6, 6 and p = (5, 1, 1) / 7."""
    selector = enrolled(FedCBS(exploration=0))
    got, error = frequencies(selector, IDS[1:])
    np.testing.assert_allclose(got, np.array([5, 1, 1]) / 7, atol=error)
    assert selector.select(1, IDS[1:], 1).notes["max_probability"] == pytest.approx(5 / 7)


def test_first_pick_bonus_by_hand():
    """t = 9, lambda = 2, C3 never chosen (counts as once) and C4 four times: 6 + 2 sqrt(1.5 ln 9) =
    9.630888 and 6 + 2 sqrt(1.5 ln 9 / 4) = 7.815444, so p = (.552029, .447971). In round 1, ln 1 =
    0: no bonus."""
    selector = enrolled(FedCBS(exploration=2))
    for t, outcome in enumerate(
        (Outcome.ACCEPTED, Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED), start=2
    ):
        selector.observe(t, Reports([4], outcome))
    ids = IDS[2:]
    np.testing.assert_allclose(
        selector.rule.bonus(selector.state, 9, ids), (3.630888, 1.815444), atol=1e-6
    )
    assert selector.select(9, ids, 1).notes["max_probability"] == pytest.approx(0.552029, abs=1e-6)
    assert selector.select(1, ids, 1).notes["max_probability"] == pytest.approx(0.5)
    got, error = frequencies(selector, ids, t=9)
    np.testing.assert_allclose(got, (0.552029, 0.447971), atol=error)


def test_second_pick_by_hand():
    """C1 is first (its weight is 10^6 of 10^6 + 42). Then beta = 2: QCID{1,2} = 1 / 120, QCID{1,3}
    = QCID{1,4} = 1 / 24, weights 14400, 576, 576: p = (25, 1, 1) / 27."""
    selector = enrolled(FedCBS(exploration=0))
    n = 2000
    picks = [selector.select(1, IDS, 2, dispatch=d).ids.tolist() for d in range(n)]
    second = np.array([b for a, b in picks if a == 1])
    got = (second[:, None] == IDS[1:]).mean(axis=0)
    p = np.array([25, 1, 1]) / 27
    assert (abs(got - p) < 4.5 * np.sqrt(p * (1 - p) / n)).all()


def test_later_picks_have_no_bonus():
    """With a bonus that drowns all weights the first pick is uniform; after C1 the second is still
    (25, 1, 1) / 27."""
    selector = enrolled(FedCBS(exploration=1e9))
    n = 2000
    picks = [selector.select(9, IDS, 2, dispatch=d).ids.tolist() for d in range(n)]
    second = np.array([b for a, b in picks if a == 1])
    assert abs(len(second) / n - 0.25) < 4.5 * np.sqrt(0.25 * 0.75 / n)
    p = np.array([25, 1, 1]) / 27
    assert (
        abs((second[:, None] == IDS[1:]).mean(axis=0) - p)
        < 4.5 * np.sqrt(p * (1 - p) / len(second))
    ).all()


def test_greedy_misses_what_sampling_finds():
    """The paper's example: from C1, greedy takes C2 and then C3 (QCID .014815); the optimum {1, 3,
    4} has 0. Sampling takes C3 or C4 second with probability 2 / 27, and then the other for
    certain."""
    selector = enrolled(FedCBS(exploration=0))
    best = [
        set(selector.select(1, IDS, 3, dispatch=d).ids.tolist()) == {1, 3, 4} for d in range(2000)
    ]
    assert abs(np.mean(best) - 2 / 27) < 4.5 * np.sqrt(2 / 27 * 25 / 27 / 2000)


def test_greedy_from_c1_is_deterministic():
    """{1, 2}: with C3 .014815, with C4 (21, 21, 21, 11, 11, 5) / 90 .029630: a huge exponent takes
    C3 always."""
    greedy = enrolled(FedCBS(beta=1e4, exploration=0))
    assert {tuple(greedy.select(1, IDS, 3, dispatch=d).ids.tolist()) for d in range(50)} == {
        (1, 2, 3)
    }


def test_a_perfect_balance_is_not_infinitely_likely():
    """C1 and its double have QCID 0 alike and share the first pick, whatever the rounding of their
    zeros."""
    labels = {1: (5,) * 6, 2: (7,) * 6, 3: (0, 0, 0, 10, 10, 10)}
    got, error = frequencies(enrolled(FedCBS(exploration=0), labels), np.array([1, 2, 3]))
    np.testing.assert_allclose(got, (0.5, 0.5, 0), atol=error)


def test_sizes_count():
    """n_k h_k: 90 samples (30, 60) beside 10 (10, 0): the pool is (40, 60) / 100, not the mean of
    the shares (2/3, 1/3)."""
    assert qcid(np.array([[30.0, 60.0], [10.0, 0.0]])) == pytest.approx(0.02)


def test_beta_zero_is_uniform():
    selector = enrolled(FedCBS(beta=0, exploration=0))
    assert selector.select(1, IDS, 2).notes["cv_probability"] == pytest.approx(0, abs=1e-12)


def test_a_client_without_labels_counts_as_the_mean():
    """C3 and C4 known, 7 never enrolled, 8 without data: their mean is (5, 5, 5, 5, 5, 5),
    balanced, so 7 and 8 are equally likely; nobody enrolled: uniform."""
    selector = enrolled(FedCBS(exploration=0), {3: C[3], 4: C[4], 8: (0,) * 6})
    got, error = frequencies(selector, np.array([3, 4, 7, 8]))
    np.testing.assert_allclose(got, (0, 0, 0.5, 0.5), atol=error)
    nobody = Selector(FedCBS())
    assert nobody.select(5, IDS, 3).notes["cv_probability"] == pytest.approx(0, abs=1e-12)


def test_counts_that_cannot_be_are_bounded():
    """Squares of 1e308 overflow, those of 1e-310 are 0: one counts as 10^15, the other as no
    histogram, like a negative one."""
    selector = enrolled(
        FedCBS(), {1: (1e308, 0, 1e308), 2: (1e-310, 0, 0), 3: (4, 0, 0), 4: (-1e308, 3, -1e308)}
    )
    cohort = selector.select(2, IDS, 4)
    assert sorted(cohort.ids.tolist()) == [1, 2, 3, 4]
    assert np.isfinite(list(cohort.notes.values())).all()
    assert np.isnan(selector.state.get("labels", [2, 4])).all()


@given(st.data())
def test_incremental_bookkeeping_equals_the_definition(data):
    """A very large exponent is the greedy of the definition, recomputed from scratch at each
    step."""
    n = data.draw(st.integers(2, 7))
    classes = data.draw(st.integers(2, 5))
    row = st.lists(st.integers(0, 40), min_size=classes, max_size=classes).filter(any)
    counts = np.array(data.draw(st.lists(row, min_size=n, max_size=n)), float)
    ids = 5 * np.arange(n) + 2
    cohort = enrolled(
        FedCBS(beta=1e9, exploration=0), dict(zip(ids.tolist(), counts, strict=True))
    ).select(1, ids, n)
    order = np.searchsorted(ids, cohort.ids)
    for j in range(n):
        values = [qcid(counts[[*order[:j], k]]) for k in range(n) if k not in order[:j]]
        assert qcid(counts[order[: j + 1]]) <= max(min(values), FedCBS().floor) + 1e-8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": -1.0}, "beta = -1.0"),
        ({"exploration": float("inf")}, "expected numbers of at least 0"),
        ({"floor": 0.0}, r"floor = 0.0; expected a number in \(0, 1\)"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "fedcbs", **options})
