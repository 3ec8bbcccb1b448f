"""Power-of-Choice: checks (a) to (e) of docs/methods/selectors.md#power-of-choice, and each trap of
its public reproductions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.power_of_choice import PowerOfChoice
from motley.selectors.selector import Selector

IDS = np.array([10, 20, 30, 40])
CASES = [  # p, losses, d, m, probability of being selected
    ("a", (0.25, 0.25, 0.25, 0.25), (4.0, 3.0, 2.0, 1.0), 2, 1, (1 / 2, 1 / 3, 1 / 6, 0)),
    ("b", (0.4, 0.3, 0.2, 0.1), (0.5, 2.0, 1.0, 3.0), 2, 1, (0, 0.532143, 0.233333, 0.234524)),
    ("c", (0.4, 0.3, 0.2, 0.1), (0.5, 2.0, 1.0, 3.0), 3, 2, (0, 0.870238, 0.680952, 0.448810)),
]


def enrolled(rule, sizes, ids=IDS, seed=0, horizon=None):
    selector = Selector(rule, seed, horizon)
    selector.observe(
        0,
        Reports(
            np.asarray(ids), Outcome.ENROLLED, signals={"num_examples": np.asarray(sizes, float)}
        ),
    )
    return selector


def report(selector, t, ids, losses, outcome=Outcome.PROBED):
    selector.observe(
        t, Reports(np.asarray(ids), outcome, signals={"loss": np.asarray(losses, float)})
    )


@pytest.mark.parametrize(("name", "p", "losses", "d", "m", "expected"), CASES)
def test_selection_probabilities_exactly(name, p, losses, d, m, expected):
    """Over all candidate sets: the law of successive draws (enumerated) times what the rule picks
    from each set."""
    got = np.zeros(4)
    for order in itertools.permutations(range(4), d):
        chance = 1.0
        left = 1.0
        for i in order:
            chance = chance * p[i] / left
            left = left - p[i]
        selector = enrolled(PowerOfChoice(d=d), p)
        report(selector, 1, IDS[list(order)], np.array(losses)[list(order)])
        got[np.searchsorted(IDS, selector.select(1, IDS, m).ids)] += chance
    np.testing.assert_allclose(got, expected, atol=5e-7)


@pytest.mark.parametrize(("name", "p", "losses", "d", "m", "expected"), CASES)
@pytest.mark.parametrize("variant", ["pow_d", "cpow_d"])
def test_selection_frequencies(name, p, losses, d, m, expected, variant):
    """The whole way: probe, measure, select; 700 rounds, each client within 4.5 standard errors."""
    selector = enrolled(PowerOfChoice(variant, d=d), np.array(p) * 1000)
    counts = np.zeros(4)
    n = 700
    for t in range(1, n + 1):
        asked = selector.probe(t, IDS, m)
        assert len(asked) == d
        report(selector, t, asked, np.array(losses)[np.searchsorted(IDS, asked)])
        counts[np.searchsorted(IDS, selector.select(t, IDS, m).ids)] += 1
    expected = np.array(expected)
    assert (abs(counts / n - expected) <= 4.5 * np.sqrt(expected * (1 - expected) / n) + 1e-9).all()
    # (e): with d > m the client of lowest loss is never selected
    assert counts[np.argmin(losses)] == 0


def test_proportional_draws_follow_the_losses():
    """Losses 1, 3, 0 and -2 (as 0): 1/4 and 3/4, and both where two are drawn; the ranked form
    always takes the second."""
    selector = enrolled(PowerOfChoice("proportional", d=4), np.ones(4))
    report(selector, 1, IDS, (1.0, 3.0, 0.0, -2.0))
    draws = 2000
    chosen = [selector.select(1, IDS, 1, dispatch=dispatch).ids[0] for dispatch in range(draws)]
    assert set(chosen) == {10, 20}
    first = chosen.count(10)
    assert abs(first / draws - 1 / 4) < 4 * np.sqrt(3 / 16 / draws)
    assert set(selector.select(1, IDS, 2).ids) == {10, 20}
    assert PowerOfChoice("proportional").top_m() is None


def test_d_equal_m_is_random_by_p_and_costs_no_probe():
    """(d) Check against the inclusion probabilities of successive draws, p = (.5, .3, .2), m =
    2."""
    ids = np.array([1, 5, 6])
    selector = enrolled(PowerOfChoice(d=2), [5, 3, 2], ids)
    counts = np.zeros(3)
    for t in range(1, 1501):
        assert not len(selector.probe(t, ids, 2))
        counts[np.searchsorted(ids, selector.select(t, ids, 2).ids)] += 1
    np.testing.assert_allclose(counts / 1500, [0.839286, 0.675, 0.485714], atol=0.055)


def test_d_of_everybody_is_the_global_top_m():
    ids = np.arange(100, 130)
    selector = enrolled(PowerOfChoice(d=999), np.ones(30), ids)
    losses = np.sin(ids)
    assert np.array_equal(selector.probe(1, ids, 4), ids)
    report(selector, 1, ids, losses)
    assert selector.select(1, ids, 4).ids.tolist() == ids[np.argsort(-losses)[:4]].tolist()


def test_candidates_are_clients_not_positions():
    """A public reproduction ranks the candidates and then indexes the list of all available with
    these ranks: with candidates {12, 17} of 10 .. 19 it returns 11 and 10."""
    ids = np.arange(10, 20)
    selector = enrolled(PowerOfChoice(d=2), np.ones(10), ids)
    report(selector, 1, [12, 17], [1.0, 2.0])
    assert selector.select(1, ids, 1).ids.tolist() == [17]
    ranks = np.argsort([-1.0, -2.0])
    assert ids[ranks].tolist() == [11, 10]  # the trap


def test_candidates_are_drawn_anew_in_every_round():
    """Another reproduction seeds its generator in every selection: its candidate set repeats."""
    selector = enrolled(PowerOfChoice(d=5), np.ones(100), np.arange(100))
    assert len({tuple(selector.probe(t, np.arange(100), 2).tolist()) for t in range(1, 21)}) == 20


def test_nan_loss_never_wins():
    selector = enrolled(PowerOfChoice(d=4), np.ones(4))
    report(selector, 1, IDS, [1.0, np.nan, np.inf, 0.5])
    assert selector.select(1, IDS, 2).ids.tolist() == [10, 40]


def test_too_few_losses_are_topped_up_from_the_candidates_then_from_all():
    taken = []
    for seed in range(40):
        selector = enrolled(PowerOfChoice(d=3), [1, 1, 1, 1], seed=seed)
        report(selector, 1, [10, 20, 30], [np.nan, 1.0, np.nan])
        ids = selector.select(1, IDS, 2).ids.tolist()
        assert ids[0] == 20
        taken.append(ids[1])
        assert set(selector.select(1, IDS, 4).ids.tolist()) == set(IDS.tolist())
    assert set(taken) == {10, 30}  # candidate 40 was not; both of the others are possible


def test_a_loss_of_an_earlier_round_is_not_ranked():
    selector = enrolled(PowerOfChoice(d=2), np.ones(4))
    report(selector, 1, [10, 20], [99.0, 98.0])
    report(selector, 2, [30, 40], [1.0, 2.0])
    assert selector.select(2, IDS, 1).ids.tolist() == [40]
    report(selector, 3, [10, 20], [np.nan, 0.1])  # not even where this round's is not a number
    assert selector.select(3, IDS, 1).ids.tolist() == [20]


def test_ties():
    from scipy import stats

    losses = np.array([1.0, 2.0, 2.0, 2.0])
    fixed = enrolled(PowerOfChoice(d=4, ties="lowest_id"), np.ones(4))
    free = enrolled(PowerOfChoice(d=4), np.ones(4))
    counts = dict.fromkeys([20, 30, 40], 0)
    for t in range(1, 601):
        for selector in (fixed, free):
            report(selector, t, IDS, losses)
        assert fixed.select(t, IDS, 2).ids.tolist() == [20, 30]
        counts[int(free.select(t, IDS, 1).ids[0])] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_rpow_d_asks_the_unseen_first_then_the_last_reported_losses():
    rule = PowerOfChoice("rpow_d", d=4)
    selector = enrolled(rule, np.ones(4))
    assert not len(selector.probe(1, IDS, 1))
    first = []
    for t in range(1, 5):
        (k,) = selector.select(t, IDS, 1).ids.tolist()
        first.append(k)
        report(selector, t, [k], [k / 10.0], Outcome.ACCEPTED)
    assert sorted(first) == IDS.tolist()  # +inf until heard of
    assert selector.select(5, IDS, 2).ids.tolist() == [40, 30]
    report(selector, 5, [40], [np.nan], Outcome.ACCEPTED)  # not a number: the loss before stays
    assert selector.select(6, IDS, 1).ids.tolist() == [40]
    report(selector, 6, [40], [0.0], Outcome.LATE)  # silent
    assert selector.select(7, IDS, 1).ids.tolist() == [40]
    report(selector, 7, [40], [0.5], Outcome.ACCEPTED)
    assert selector.select(8, IDS, 1).ids.tolist() == [30]


def test_adapow_d_probes_everybody_in_the_first_half_only():
    selector = enrolled(PowerOfChoice("adapow_d"), np.ones(4), horizon=7)
    assert [len(selector.probe(t, IDS, 2)) for t in range(1, 8)] == [4, 4, 4, 0, 0, 0, 0]
    even = enrolled(PowerOfChoice("adapow_d"), np.ones(4), horizon=4)
    assert [len(even.probe(t, IDS, 2)) for t in range(1, 5)] == [4, 4, 0, 0]
    with pytest.raises(ConfigError, match=r"stop.rounds: PowerOfChoice anneals .* pass horizon="):
        Selector(PowerOfChoice("adapow_d"))


@pytest.mark.parametrize(
    ("d", "m", "expected"),
    [(None, 1, 2), (None, 2, 4), (None, 3, 4), (1, 3, 0), (3, 2, 3), (10, 2, 4), (4, 4, 0)],
)
def test_number_of_candidates(d, m, expected):
    """d defaults to 2m and is clipped to [m, K_A]; with d = m nobody has to be asked."""
    assert len(enrolled(PowerOfChoice(d=d), np.ones(4)).probe(1, IDS, m)) == expected


def test_candidates_without_data_come_last():
    selector = enrolled(PowerOfChoice(d=3), [0, 1, 0, 1])
    assert all({20, 40} <= set(selector.probe(t, IDS, 1).tolist()) for t in range(1, 30))


def test_needs():
    assert PowerOfChoice().needs().probed == {"loss": None}
    assert PowerOfChoice("cpow_d").needs().probed == {"loss": 1}
    assert PowerOfChoice("rpow_d").needs().reported == {"loss"}
    assert not PowerOfChoice("rpow_d").needs().probed
    assert PowerOfChoice(measured="test_loss").needs().probed == {"test_loss": None}


def test_the_test_loss_is_ranked_where_it_is_measured():
    selector = enrolled(PowerOfChoice(d=3, measured="test_loss"), np.ones(4))
    told = {"test_loss": np.array([1.0, 3.0, 2.0]), "loss": np.array([9.0, 1.0, 1.0])}
    selector.observe(1, Reports(IDS[:3], Outcome.PROBED, signals=told))
    assert selector.select(1, IDS, 2).ids.tolist() == [20, 30]


def test_coefficients_are_the_simple_mean():
    assert enrolled(PowerOfChoice(), np.ones(4)).select(1, IDS, 4).weights.tolist() == [0.25] * 4


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"d": 0}, "selector: got d = 0; expected at least 1"),
        ({"variant": "adapow_d", "d": 4}, "adapow_d sets d itself"),
        (
            {"variant": "rpow_d", "measured": "test_loss"},
            "measured = 'test_loss', but rpow_d measures nothing",
        ),
        ({"variant": "powd"}, r"selector.variant: got 'powd' \(did you mean 'pow_d'\?\)"),
        ({"d": 2.5}, "selector.d: got 2.5; expected a whole number or none"),
        ({"candidates": 4}, "selector.candidates: 'power_of_choice' has no such option"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "power_of_choice", **record})


def test_candidates_drawn_uniformly_whatever_their_data():
    """Client 0 has nearly all data. Drawn by size it is a candidate in every round; uniformly, in 2
    of 4, within 4.5 standard errors."""
    ids = np.arange(4)
    n = 300
    for sampling, share in (("by_size", 1.0), ("uniform", 0.5)):
        selector = enrolled(PowerOfChoice(d=2, sampling=sampling), [1e12, 1.0, 1.0, 1.0], ids)
        found = np.mean([0 in selector.probe(t, ids, 1) for t in range(1, n + 1)])
        assert abs(found - share) <= 4.5 * (share * (1 - share) / n) ** 0.5


@pytest.mark.parametrize("variant", ["pow_d", "rpow_d"])
def test_equal_losses_select_by_data_alone(variant):
    """All losses and sizes equal, ties at random: each of 10 clients is taken m / K of the time,
    within 4.5 standard errors."""
    ids = np.arange(10) * 7
    n = 800
    counts = np.zeros(10)
    selector = enrolled(PowerOfChoice(variant, d=5), np.ones(10), ids)
    report(selector, 1, ids, np.ones(10), Outcome.ACCEPTED)
    for t in range(2, n + 2):
        asked = selector.probe(t, ids, 3)
        report(selector, t, asked, np.ones(len(asked)))
        counts[selector.select(t, ids, 3).ids // 7] += 1
    assert (abs(counts / n - 0.3) < 4.5 * (0.3 * 0.7 / n) ** 0.5).all()


@given(
    st.lists(st.integers(0, 4), min_size=4, max_size=8),
    st.integers(0, 3),
    st.floats(0.1, 3),
    st.integers(1, 3),
)
def test_raising_one_loss_never_puts_its_client_out(losses, who, more, m):
    ids = np.arange(len(losses))

    def chosen(values):
        selector = enrolled(PowerOfChoice(d=99), np.ones(len(values)), ids)
        report(selector, 1, ids, values)
        return who in selector.select(1, ids, m).ids

    raised = np.array(losses, float)
    raised[who] += more
    assert chosen(raised) >= chosen(losses) or losses.count(losses[who]) > 1
