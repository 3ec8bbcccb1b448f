"""ActiveFL: the worked numbers of docs/methods/selectors.md#activefl, and the traps of its public
re-implementations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.active_fl import ActiveFL
from motley.selectors.base import Selector
from motley.selectors.common.sampling import softmax

IDS = np.array([10, 20, 30, 40])
SIZES = np.array([100.0, 400, 25, 100])
LOSSES = np.array([1.0, 0.6, 2.2, 0.1])


def valued(rule, sizes=SIZES, losses=LOSSES, ids=IDS, seed=0):
    selector = Selector(rule, seed)
    selector.observe(
        0, Reports(ids, Outcome.ENROLLED, signals={"num_examples": np.asarray(sizes, float)})
    )
    selector.observe(1, Reports(ids, Outcome.PROBED, signals={"loss": np.asarray(losses, float)}))
    return selector


def test_valuations():
    """v = sqrt(n) L = (10 * 1, 20 * .6, 5 * 2.2, 10 * .1).

    The mean divided by sqrt(n), (.1, .03, .44, .01), would put client 2 first."""
    selector = valued(ActiveFL())
    np.testing.assert_allclose(selector.rule.valuations(selector.state, IDS), [10, 12, 11, 1])


def test_mean_losses_as_valuations_keep_a_softmax_of_temperature_1_apart_from_the_largest():
    """Mean losses (1, .6, 2.2, .1): alpha1 = .5 keeps clients 30 and 10, P = 1 / (1 + e^-1.2) =
    .768525. By sqrt(n) L it keeps 20 and 30, and with 100 times the samples their v differ by 10, P
    = 1 / (1 + e^-10) = .999955."""
    mean = valued(ActiveFL(0.5, 1.0, 0.0, valuation="mean"))
    np.testing.assert_allclose(mean.rule.valuations(mean.state, IDS), LOSSES)
    assert mean.select(1, IDS, 1).notes["max_probability"] == pytest.approx(0.768525, abs=5e-7)
    root = valued(ActiveFL(0.5, 1.0, 0.0), 100 * SIZES)
    assert root.select(1, IDS, 1).notes["max_probability"] == pytest.approx(0.999955, abs=5e-7)
    unknown = Selector(ActiveFL(valuation="mean"))
    assert unknown.rule.valuations(unknown.state, IDS).tolist() == [-np.inf] * 4


@pytest.mark.parametrize(("alpha2", "expected"), [(0.01, 0.502500), (1.0, 0.731059), (0.0, 0.5)])
def test_probabilities(alpha2, expected):
    """alpha1 = .5 drops clients 3 and 0 (v = 1 and 10); over (12, 11): P = 1 / (1 +
    exp(-alpha2))."""
    rule = ActiveFL(0.5, alpha2, 0.0)
    p = softmax(rule.log_weights(np.array([12.0, 11.0])))
    np.testing.assert_allclose(p, [expected, 1 - expected], atol=5e-7)
    selector = valued(rule)
    taken = [int(selector.select(t, IDS, 1).ids[0]) for t in range(1, 1001)]
    assert set(taken) == {20, 30}
    assert abs(taken.count(20) / 1000 - expected) < 4.5 * 0.5 / 1000**0.5
    assert selector.select(1, IDS, 1).notes["max_probability"] == pytest.approx(expected, abs=5e-7)


def test_drop_is_capped():
    """K = 12, m = 6, alpha1 = .75, alpha3 = .1: 3 would stay where n_soft = floor(5.4) = 5 are
    drawn; so 7 are dropped, not 9."""
    assert ActiveFL().parts(6, 12) == (5, 7)
    selector = valued(ActiveFL(), np.ones(12), np.arange(12.0), np.arange(12))
    for t in range(1, 20):
        assert {7, 8, 9, 10, 11} <= set(selector.select(t, np.arange(12), 6).ids.tolist())


def test_floor_is_of_decimals():
    """(1 - .9) * 10 is .99999 in binary; floor must be 1."""
    assert ActiveFL(alpha3=0.9).parts(10, 100)[0] == 1


def test_drop_floors_decimals_too():
    """.29 * 100 is 28.999999999999996 in floats; 29 are dropped."""
    assert ActiveFL(alpha1=0.29).parts(10, 100) == (9, 29)


def test_dropped_clients_return_through_the_uniform_part_only():
    never, sometimes = (valued(ActiveFL(0.5, 1.0, alpha3)) for alpha3 in (0.0, 0.5))
    assert not any({10, 40} & set(never.select(t, IDS, 2).ids.tolist()) for t in range(1, 200))
    assert any({10, 40} & set(sometimes.select(t, IDS, 2).ids.tolist()) for t in range(1, 50))


def test_valuation_is_the_loss_at_arrival_and_others_stay_stale():
    selector = valued(ActiveFL())
    # the training loss is a trap
    told = {"arrival_loss": np.array([5.0, np.nan]), "loss": np.array([99.0, 99.0])}
    selector.observe(1, Reports([10, 20], Outcome.ACCEPTED, signals=told))
    selector.observe(1, Reports([30], Outcome.LATE, signals={"arrival_loss": np.array([7.0])}))
    np.testing.assert_allclose(selector.rule.valuations(selector.state, IDS), [50, 12, 11, 1])


def test_cold_starts():
    everybody = Selector(ActiveFL())
    nobody = Selector(ActiveFL(cold_start="unseen_low"))
    assert [len(everybody.probe(t, IDS, 2)) for t in (1, 2)] == [4, 0]
    assert not len(nobody.probe(1, IDS, 2))
    assert not nobody.rule.needs().probed
    assert everybody.rule.needs().reported == {"arrival_loss"}


def test_everybody_is_measured_in_each_round_with_refresh_all():
    """Client 40 is dropped at first (v = .1), and has the largest loss in round 2, when only a
    fresh measurement tells."""
    selector = valued(ActiveFL(0.5, 1.0, 0.0, valuation="mean", refresh="all"))
    assert selector.rule.needs().probed == {"loss": None}
    assert not selector.rule.needs().reported
    assert not any(40 in selector.select(1, IDS, 2).ids for _ in range(5))
    assert selector.probe(2, IDS, 2).tolist() == IDS.tolist()
    selector.observe(
        2, Reports(IDS, Outcome.PROBED, signals={"loss": np.array([1.0, 0.5, np.nan, 9.0])})
    )
    np.testing.assert_allclose(selector.rule.valuations(selector.state, IDS), [1.0, 0.5, 2.2, 9.0])
    assert sorted(selector.select(2, IDS, 2).ids.tolist()) == [30, 40]


def test_unseen_clients_come_last_and_all_unseen_is_uniform():
    rule = ActiveFL(0.0, 1.0, 0.0, "unseen_low")
    selector = Selector(rule)
    counts = np.zeros(4)
    for t in range(1, 801):
        counts[np.searchsorted(IDS, selector.select(t, IDS, 2).ids)] += 1
    assert (abs(counts / 800 - 0.5) < 4.5 * 0.5 / 800**0.5).all()
    selector.observe(
        1, Reports([20, 30], Outcome.ACCEPTED, signals={"arrival_loss": np.array([0.0, -1.0])})
    )
    assert all(set(selector.select(t, IDS, 2).ids.tolist()) == {20, 30} for t in range(1, 30))


def test_equal_signals_select_uniformly():
    ids = np.arange(10) * 3
    n = 1500
    counts = np.zeros(10)
    selector = valued(ActiveFL(), np.ones(10), np.ones(10), ids)
    for t in range(1, n + 1):
        counts[selector.select(t, ids, 4).ids // 3] += 1
    assert (abs(counts / n - 0.4) < 4.5 * (0.24 / n) ** 0.5).all()
    fixed = valued(
        ActiveFL(alpha1=0.5, alpha3=0.0, ties="lowest_id"), np.ones(10), np.ones(10), ids
    )
    assert set(fixed.select(1, ids, 5).ids.tolist()) == {0, 3, 6, 9, 12}


@given(
    st.lists(st.floats(0, 50), min_size=3, max_size=8),
    st.integers(0, 2),
    st.floats(0.1, 9),
    st.floats(0, 3),
)
def test_raising_one_loss_never_lowers_its_weight(losses, who, more, alpha2):
    def p(values):
        return softmax(ActiveFL(alpha2=alpha2).log_weights(np.array(values)))[who]

    raised = list(losses)
    raised[who] += more
    assert p(raised) >= p(losses) - 1e-12


def test_the_cohort_is_of_those_who_were_drawn():
    """Three of four clients are drawn uniformly and probed, and two of these are chosen; who was
    drawn before and is not now has no valuation any more. Each is drawn 3/4 of the time, within 4.5
    standard errors."""
    rule = ActiveFL(0.0, 1.0, 0.0, valuation="mean", refresh="all", drawn=3)
    selector = valued(rule)
    n = 400
    counts = np.zeros(4)
    for t in range(1, n + 1):
        drawn = selector.probe(t, IDS, 2)
        assert len(set(drawn.tolist())) == 3
        selector.observe(t, Reports(drawn, Outcome.PROBED, signals={"loss": drawn / 10}))
        away = np.setdiff1d(IDS, drawn)
        assert rule.valuations(selector.state, away).tolist() == [-np.inf]
        assert set(selector.select(t, IDS, 2).ids.tolist()) <= set(drawn.tolist())
        counts += np.isin(IDS, drawn)
    assert (abs(counts / n - 0.75) < 4.5 * (0.1875 / n) ** 0.5).all()
    assert len(selector.probe(n + 1, IDS, 4)) == 4  # never fewer than are wanted


def test_a_floor_keeps_every_candidate_possible():
    """Losses 30 and 0 and one unknown: softmax (1, 9.4e-14, 0), with .25 more for those that are
    known (1.25, .25, 0) / 1.5."""
    rule = ActiveFL(0.0, 1.0, 0.0, valuation="mean", floor=0.25)
    p = softmax(rule.log_weights(np.array([30.0, 0.0, -np.inf])))
    np.testing.assert_allclose(p, [1.25 / 1.5, 0.25 / 1.5, 0.0], atol=1e-12)


def test_huge_losses_do_not_overflow():
    selector = valued(ActiveFL(alpha2=10.0), SIZES, [1e300, 1.0, 2.0, 3.0])
    assert 10 in selector.select(1, IDS, 2).ids


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"alpha1": 1.0}, "got alpha1 = 1.0; expected"),
        ({"alpha2": -1.0}, "got alpha2"),
        ({"alpha3": 1.5}, "got alpha3"),
        ({"drawn": 3}, "got drawn = 3 with refresh = 'reported'; .* and refresh = 'all'"),
        ({"drawn": 0, "refresh": "all"}, "got drawn = 0 with refresh = 'all'; expected at least 1"),
        ({"floor": -1.0}, "got floor = -1.0; expected a number of at least 0"),
        ({"refresh": "all", "cold_start": "unseen_low"}, "nobody is unseen; leave cold_start out"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "active_fl", **record})
