"""Oort: the checks of docs/methods/selectors.md#oort, worked by hand, and the traps of the public
code."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports, SelectionContext
from motley.selectors import Selector, build
from motley.selectors.common.client_signals import estimated_s, measured_s
from motley.selectors.oort import Oort

GREEDY = {"exploration": 0.0, "exploration_min": 0.0}  # exploit only


def enrolled(rule, ids, sizes, estimates=None, steps=None, seed=0):
    selector = Selector(rule, seed)
    signals = {} if estimates is None else {"compute_estimate_s": np.asarray(estimates, float)}
    selector.observe(
        0, Reports(ids, Outcome.ENROLLED, num_examples=sizes, local_steps=steps, signals=signals)
    )
    return selector


def report(selector, t, ids, rms, seconds=1.0, outcome=Outcome.ACCEPTED, steps=None):
    rms = np.broadcast_to(np.asarray(rms, float), (len(ids),))
    times = np.broadcast_to(np.asarray(seconds, float), (len(ids),))
    selector.observe(
        t, Reports(ids, outcome, compute_s=times, local_steps=steps, signals={"loss_rms": rms})
    )


def example_b(**options):
    """(b): U = (100, 60, 20) as n * 1, L = (9, 5, 2), tau = (1, 4, 2), T = 2: the median of
    three."""
    selector = enrolled(Oort(threshold=50.0, **options), [4, 7, 9], [100, 60, 20])
    for t, k, tau in ((2, 9, 2.0), (5, 7, 4.0), (9, 4, 1.0)):
        report(selector, t, [k], 1.0, tau)
    return selector


def test_utility_is_size_times_root_mean_square():
    """(a) losses (1, 2, 2, 1): root mean square sqrt(10 / 4) = 1.581139, times 4 = 6.324555 (the
    mean would give 6)."""
    selector = enrolled(Oort(), [3], [4])
    report(selector, 1, [3], math.sqrt(10 / 4))
    assert selector.state.clients.get("utility", [3])[0] == pytest.approx(6.324555, abs=1e-6)


def test_utility_counts_the_samples_trained_on():
    """5 steps of 10 samples are 50, of a client with 80; whole epochs (no batch size) count 80."""
    for batch, expected in ((10, 100.0), (None, 160.0)):
        selector = enrolled(Oort(batch_size=batch), [3], [80])
        report(selector, 1, [3], 2.0, steps=[5.0])
        assert selector.state.clients.get("utility", [3])[0] == expected


def test_scores_worked_by_hand():
    """(b) t = 10, alpha = 2, q = .95: clip = 100, lo = .999 * 20 = 19.98, rg = 80.02.

    base = (80.02, 40.02, .02) / 80.02; bonus = sqrt(.1 ln 10 / (9, 5, 2)) = (.159951, .214597,
    .339307); g = (1, (2/4)^2, 1). The stale client 9 overtakes the slow client 7."""
    selector = example_b()
    assert selector.rule.preferred_s(selector.state) == 2.0
    scores = selector.rule.scores(selector.state, 10, np.array([4, 7, 9]))
    np.testing.assert_allclose(scores, [1.159951, 0.178680, 0.339557], atol=1e-6)


def test_the_bonus_is_of_rounds_not_counts():
    """Trap: L is the last round, not how often: clients of equal utility, one heard of in round 2,
    one in rounds 7, 8 and 9."""
    selector = enrolled(Oort(), [1, 2], [10, 10])
    report(selector, 2, [1], 1.0)
    for t in (7, 8, 9):
        report(selector, t, [2], 1.0)
    base = 0.01 / 0.01  # all U equal: base 1, because lo = .999 U and rg = .001 U
    expected = base + np.sqrt(0.1 * np.log(10) / np.array([2, 9]))
    np.testing.assert_allclose(selector.rule.scores(selector.state, 10, np.array([1, 2])), expected)


def test_there_is_no_bonus_in_the_first_round():
    """ln 1 = 0: the utility counts alone, which is 1 where all are equal."""
    selector = enrolled(Oort(), [1], [10])
    report(selector, 1, [1], 1.0)
    assert selector.rule.scores(selector.state, 1, np.array([1])) == pytest.approx([1.0])


def test_raw_form_drowns_the_bonus():
    """(vii) the paper adds the bonus to the raw utility: (100 + .16, (60 + .2146) / 4, 20 +
    .34)."""
    selector = example_b(form="raw")
    scores = selector.rule.scores(selector.state, 10, np.array([4, 7, 9]))
    np.testing.assert_allclose(scores, [100.159951, 15.053649, 20.339307], atol=1e-6)


def test_exploitation_pool_worked_by_hand():
    """(c) n_xpt = 1, c = .95: the score at index 1 is .339557, times .95 = .322579: pool {4, 9},
    .773554 to .226446. A pivot at index 0 would leave client 4 alone."""
    selector = example_b(**GREEDY)
    counts = {4: 0, 7: 0, 9: 0}
    for dispatch in range(2000):
        cohort = selector.select(10, [4, 7, 9], 1, dispatch)
        counts[int(cohort.ids[0])] += 1
    assert cohort.notes["max_probability"] == pytest.approx(0.773554, abs=1e-6)
    assert counts[7] == 0
    assert abs(counts[4] / 2000 - 0.773554) < 4.5 * math.sqrt(0.7736 * 0.2264 / 2000)


def test_exploration_weights_worked_by_hand():
    """(d) n = (50, 200, 1000), 6 steps of 100, tau = (1, 1, 4), T = 2: (50, 200, 600 / 4) -> (.125,
    .5, .375)."""
    ids = np.array([10, 20, 30, 40])
    selector = enrolled(
        Oort(batch_size=100, threshold=70.0), ids, [50, 200, 1000, 10], [1, 1, 4, 2], [6.0] * 4
    )
    selector.observe(
        1,
        Reports(
            [40],
            Outcome.ACCEPTED,
            compute_s=[2.0],
            local_steps=[6.0],
            signals={"loss_rms": [np.nan]},
        ),
    )
    state = selector.state
    assert selector.rule.preferred_s(state) == 2.0  # sorted (1, 1, 2, 4), index floor(4 * .7) = 2
    chance = np.zeros(4)
    rng = np.random.default_rng(0)
    speed = selector.rule.speed(state, ids, 2.0)
    selector.rule.draw_unexplored(state, ids, np.arange(3), speed, 1, chance, rng)
    np.testing.assert_allclose(chance[:3], [0.125, 0.5, 0.375])


def test_paper_explores_by_speed():
    """READING: in proportion to 1 / tau = (1, 1, 1/4): (4, 4, 1) / 9."""
    ids = np.array([10, 20, 30])
    selector = enrolled(Oort(explore="speed"), ids, [50, 200, 1000], [1, 1, 4])
    chance = np.zeros(3)
    selector.rule.draw_unexplored(
        selector.state, ids, np.arange(3), np.ones(3), 1, chance, np.random.default_rng(0)
    )
    np.testing.assert_allclose(chance, np.array([4, 4, 1]) / 9)


@pytest.mark.parametrize(("decay", "updates"), [(0.98, 75), (0.95, 30)])
def test_epsilon_counts_selections(decay, updates):
    """(e) .9 * .98^75 = .198 < .2 <= .9 * .98^74; .9 * .95^30 = .193. Rounds without anybody do not
    count."""
    selector = enrolled(Oort(exploration_decay=decay), [1], [1])
    for t in range(1, updates):
        report(selector, 2 * t, [1], 1.0)
        selector.observe(2 * t + 1, [])
    assert selector.rule.epsilon(selector.state) > 0.2
    report(selector, 1000, [1], 1.0, outcome=Outcome.DROPPED)
    assert selector.rule.epsilon(selector.state) == 0.2


def test_epsilon_rounds_down_safely():
    """m = 10, eps = .9 * .98 = .882: floor(8.82) = 8 explore, 2 exploit; floor(10 * (1 - .9)) must
    be 1, not 0."""
    selector = enrolled(Oort(), range(100), [10] * 100)
    report(selector, 1, range(10), 1.0)
    notes = selector.select(2, range(100), 10).notes
    assert (notes["exploited"], notes["explored"]) == (2.0, 8.0)
    exact = enrolled(
        Oort(exploration=1 - 0.9, exploration_decay=1.0, exploration_min=0.0),
        range(100),
        [10] * 100,
    )
    report(exact, 1, range(10), 1.0)
    assert exact.select(2, range(100), 10).notes["explored"] == 1.0


@pytest.mark.parametrize(
    ("history", "code", "paper"),
    [([10, 10, 10, 9.5], 35.0, 35.0), ([10, 10, 2, 1], 30.0, 35.0), ([1, 1, 10, 10], 25.0, 30.0)],
)
def test_pacer_worked_by_hand(history, code, paper):
    """(f) W = 2, thr = 30, step 5. Sums 20 | 19.5: |-.5| <= 2, relax. 20 | 3: neither. 2 | 20: 18
    >= 10, tighten. The paper's pacer: relax, relax, no change."""
    assert Oort(window=2).paced(30.0, np.array(history, float)) == code
    assert Oort(window=2, pacer="paper").paced(30.0, np.array(history, float)) == paper


def test_pacer_bounds():
    assert Oort(window=1).paced(98.0, np.array([1.0, 1.0])) == 100.0
    assert Oort(window=1).paced(7.0, np.array([1.0, 9.0])) == 5.0


def test_pacer_leaves_a_change_between_a_tenth_and_five_times():
    """15% less is not "as before", and not 5 times: unchanged; 10% less is relaxed."""
    assert Oort(window=1).paced(30.0, np.array([10.0, 8.5])) == 30.0
    assert Oort(window=1).paced(30.0, np.array([10.0, 9.0])) == 35.0


def test_pacer_looks_every_window_rounds_from_two_windows_on():
    """Only who was explored before counts in h; W = 2: looks before rounds 4, 6 and 8.

    h = (0, 10, 10): last = 0, cur = 20 >= 5 * 0, tightened to 25; then 20 | 20 twice: relaxed to 30
    and 35."""
    selector = enrolled(Oort(window=2), [1], [10])
    paces = []
    for t in range(1, 8):
        report(selector, t, [1], 1.0)
        paces.append(selector.state.pace)
    assert selector.state.history.tolist() == [10.0] * 4
    assert paces == [30, 30, 25, 25, 30, 30, 35]


@pytest.mark.parametrize(("n", "expected"), [(20, 20), (100, 96)])
def test_clip_is_an_order_statistic(n, expected):
    """(g) 1 .. 20: index floor(.95 * 20) = 19, the 20; 1 .. 100: index 95, the 96."""
    base = Oort(form="raw").base_scores(np.arange(1.0, n + 1), np.arange(1.0, n + 1))
    assert base.max() == expected


def test_all_utilities_equal_and_zero():
    same = Oort().base_scores(np.array([5.0, 5.0, 0.0, np.nan]), np.array([5.0, 5.0]))
    np.testing.assert_allclose(same, [1, 1, 0, 0])  # zero utility: clamped at 0 and not at -999
    assert Oort().base_scores(np.array([0.0]), np.zeros(0)).tolist() == [0.0]


def test_negative_scores_do_not_become_large():
    """Trap (ii): FedScale takes abs(score), and a client far below the pool would win."""
    selector = enrolled(Oort(bonus=0.0, **GREEDY), range(3), [100, 90, 1])
    report(selector, 1, range(3), [1.0, 1.0, 0.0])
    scores = selector.rule.scores(selector.state, 2, np.arange(3))
    assert scores[2] == 0.0
    assert all(2 not in selector.select(2, range(3), 2, d).ids for d in range(50))


def test_pivot_is_bounded_and_cohorts_are_full():
    """Traps (i), (iii): n_xpt = all explored would index one past the end; without unexplored
    clients nobody comes twice."""
    selector = enrolled(Oort(**GREEDY), range(8), [10] * 8)
    report(selector, 1, range(4), [1, 2, 3, 4])
    assert sorted(selector.select(2, range(4), 3).ids.tolist())[0] >= 0
    ids = selector.select(2, range(8), 6).ids
    assert {0, 1, 2, 3} <= set(ids.tolist())
    assert len(set(ids.tolist())) == 6
    tired = enrolled(Oort(), range(8), [10] * 8)
    for t in (1, 2, 3):
        report(tired, t, range(8), np.arange(1, 9))
        ids = tired.select(t + 1, range(8), 5).ids
        assert len(set(ids.tolist())) == 5


@pytest.mark.parametrize(("split", "exploited"), [("fedscale", 2), ("oort", 1)])
def test_share_of_the_cohort_that_is_exploited(split, exploited):
    """Second selection: eps = .9 * .98 = .882, m = 10: 10 - floor(8.82) = 2, floor(1.18) = 1."""
    selector = enrolled(Oort(split=split), np.arange(40), np.full(40, 10))
    report(selector, 1, np.arange(20), np.arange(20) + 1.0)
    cohort = selector.select(2, np.arange(40), 10)
    assert (cohort.notes["exploited"], cohort.notes["explored"]) == (exploited, 10 - exploited)


def test_own_code_stops_exploring_when_nobody_is_unexplored():
    """All 20 explored: eps = 0, so all 10 are drawn from the pool; FedScale's keeps eps."""
    for split, epsilon, exploited in (("fedscale", 0.882, 2), ("oort", 0.0, 10)):
        selector = enrolled(Oort(split=split), np.arange(20), np.full(20, 10))
        report(selector, 1, np.arange(20), np.arange(20) + 1.0)
        notes = selector.select(2, np.arange(20), 10).notes
        assert (notes["epsilon"], notes["exploited"]) == (pytest.approx(epsilon), exploited)


def test_own_code_fills_uniformly():
    """Client 9 is unexplored, but away. eps = .5, m = 2: one of the two best of five, and one more.
    FedScale's takes the other one of the two, Oort's own code each of the other four alike."""
    options = {"exploration": 0.5, "exploration_decay": 1.0, "exploration_min": 0.5}
    for split, share in (("fedscale", 0.0), ("oort", 0.25)):
        selector = enrolled(Oort(split=split, **options), [1, 2, 3, 4, 5, 9], [10] * 6)
        report(selector, 1, [1, 2, 3, 4, 5], [1.0, 2.0, 3.0, 9.0, 10.0])
        cohorts = [selector.select(2, [1, 2, 3, 4, 5], 2, dispatch) for dispatch in range(1000)]
        got = np.mean([1 in cohort.ids for cohort in cohorts])
        assert abs(got - share) <= 4.5 * math.sqrt(share * (1 - share) / 1000)


def test_fill_takes_the_highest_scores_then_the_blacklisted():
    """m = 5 of 6, nobody unexplored, eps = 1: all five are filled in order of score; (iv)
    floor(.3 * 6) = 1 is blacklisted, the most frequent of two, and comes last."""
    rule = Oort(exploration=1.0, exploration_decay=1.0, blacklist=1, bonus=0.0, ties="lowest_id")
    selector = enrolled(rule, range(6), [10] * 6)
    report(selector, 1, range(6), [1, 2, 3, 4, 5, 6])
    report(selector, 2, [5, 4], [5, 6])
    report(selector, 3, [5], [6])
    assert selector.select(4, range(6), 5).ids.tolist() == [4, 3, 2, 1, 0]
    assert selector.select(4, range(6), 6).ids.tolist() == [4, 3, 2, 1, 0, 5]


def test_selected_as_often_as_allowed_is_not_blacklisted():
    """blacklist = 2: the client chosen twice is still exploited, the one chosen three times is
    not."""
    selector = enrolled(Oort(blacklist=2, bonus=0.0, cutoff=1.0, **GREEDY), range(10), [10] * 10)
    report(selector, 1, range(10), 1.0)
    report(selector, 2, [4, 7], [8.0, 9.0])
    report(selector, 3, [7], [9.0])
    assert {int(selector.select(4, range(10), 1, d).ids[0]) for d in range(30)} <= set(
        range(10)
    ) - {7}
    assert any(selector.select(4, range(10), 1, d).ids[0] == 4 for d in range(30))


def test_exploration_draws_among_the_heaviest_few():
    """sample_window = 5, one to explore: of 20 unexplored with n = 1 .. 20 only the five largest
    can be drawn."""
    selector = enrolled(Oort(ties="lowest_id"), range(21), np.arange(1, 22))
    report(selector, 1, [20], 1.0)
    drawn = {int(selector.select(2, range(20), 1, d).ids[0]) for d in range(80)}
    assert drawn == {15, 16, 17, 18, 19}


def test_a_diverging_loss_stays_finite():
    selector = enrolled(Oort(), [1, 2], [1000, 10])
    with np.errstate(all="raise"):
        report(selector, 1, [1, 2], [1e308, 1.0])
    assert np.isfinite(selector.state.clients.get("utility", [1, 2])).all()


def test_late_and_dropped_only_count_as_selected():
    selector = enrolled(Oort(), [1, 2, 3], [10, 20, 30])
    outcome = np.array([Outcome.ACCEPTED, Outcome.LATE, Outcome.DROPPED])
    selector.observe(
        1, Reports([1, 2, 3], outcome, compute_s=[1, 2, 3], signals={"loss_rms": [1.0, 9.0, 9.0]})
    )
    clients = selector.state.clients
    assert clients.get("count", [1, 2, 3]).tolist() == [1, 1, 1]
    assert clients.get("last", [1, 2, 3]).tolist() == [1, 0, 0]
    assert np.isnan(clients.get("utility", [2, 3])).all()
    assert np.isnan(clients.get("duration", [2, 3])).all()


def test_late_clients_can_get_the_mean_utility():
    """Participants have U = 10 * 1 and 30 * 2, samples 10 and 30: (10 * 10 + 30 * 60) / 40 =
    47.5."""
    selector = enrolled(Oort(late="mean"), [1, 2, 3], [10, 30, 5])
    outcome = np.array([Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.LATE])
    selector.observe(1, Reports([1, 2, 3], outcome, signals={"loss_rms": [1.0, 2.0, np.nan]}))
    assert selector.state.clients.get("utility", [3])[0] == 47.5
    assert selector.state.clients.get("last", [3])[0] == 1


def test_a_loss_that_is_not_a_number():
    """Without a utility before, the client stays unexplored; with one, it keeps it, and was heard
    of."""
    selector = enrolled(Oort(), [1, 2], [10, 10])
    report(selector, 1, [1, 2], [1.0, np.inf])
    report(selector, 2, [1], [np.nan])
    clients = selector.state.clients
    assert clients.get("last", [1, 2]).tolist() == [2, 0]
    assert clients.get("utility", [1])[0] == 10


def test_durations():
    """Download + compute + upload; an absent part counts nothing, an impossible one makes the whole
    unknown."""
    reports = Reports(
        range(4),
        Outcome.ACCEPTED,
        download_s=[1, np.nan, 1, np.nan],
        compute_s=[2, 2, np.inf, np.nan],
        upload_s=[3, np.nan, 3, np.nan],
    )
    np.testing.assert_array_equal(measured_s(reports), [6, 2, np.nan, np.nan])
    told = Reports(
        [1], Outcome.ENROLLED, signals={"compute_estimate_s": [2.0], "upload_estimate_s": [-1.0]}
    )
    assert np.isnan(estimated_s(told)).all()


def test_normalisation_pool_of_the_code():
    """(vi) explored U = 10 and 20; an unexplored client's placeholder 1000 flattens both to nearly
    0 and takes part in clip."""
    for pool, top in (("explored", 1.0), ("code", (20 - 9.99) / (1000 - 9.99))):
        selector = enrolled(Oort(norm_pool=pool, bonus=0.0), [1, 2, 3], [10, 20, 1000])
        report(selector, 1, [1, 2], 1.0)
        assert selector.rule.scores(selector.state, 2, np.array([1, 2, 3]))[1] == pytest.approx(top)


def test_widened_pool_is_larger_than_so_many_times():
    scores = np.linspace(0, 1, 101)
    rng = np.random.default_rng(0)
    assert len(Oort().exploitation_pool(scores, 1, rng)) < 10
    assert len(Oort(widen=10).exploitation_pool(scores, 1, rng)) == 11


def test_first_selection_is_uniform_and_all_are_taken_where_few_are():
    selector = enrolled(Oort(), range(6), [1, 1, 1, 1, 1, 1000])
    counts = np.zeros(6)
    for dispatch in range(1200):
        counts[selector.select(1, range(6), 2, dispatch).ids] += 1
    assert (abs(counts / 1200 - 1 / 3) < 4.5 * math.sqrt(2 / 9 / 1200)).all()
    assert sorted(selector.select(1, range(6), 9).ids.tolist()) == list(range(6))


@given(
    st.lists(st.floats(0.1, 10), min_size=3, max_size=8), st.floats(0.1, 20), st.integers(1, 100)
)
def test_a_slower_client_never_scores_higher(durations, more, threshold):
    """Raising tau_k alone never raises score_k, and never lowers the score of another."""

    def scores(times):
        n = len(times)
        selector = enrolled(Oort(threshold=float(threshold)), range(n), np.arange(1, n + 1))
        report(selector, 3, range(n), 1.0, times)
        return selector.rule.scores(selector.state, 9, np.arange(n))

    before = scores(durations)
    after = scores([durations[0] + more, *durations[1:]])
    assert after[0] <= before[0]
    assert (after[1:] >= before[1:]).all()


@given(st.integers(1, 12), st.integers(0, 12), st.integers(2, 60), st.integers(0, 2**31))
def test_every_cohort_is_full_and_its_probabilities_sum_to_one(m, heard, t, seed):
    selector = enrolled(Oort(blacklist=1), range(12), np.arange(1, 13), seed=seed)
    for t0 in (1, 2):
        report(selector, t0, range(heard), np.arange(heard) % 4, np.arange(heard) % 3 + 1.0)
    cohort = selector.select(t, range(12), m)
    assert len(set(cohort.ids.tolist())) == m
    assert 0 <= cohort.notes.get("max_probability", 0.0) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"cutoff": 1.5}, "got cutoff = 1.5; expected a share"),
        ({"alpha": -1.0}, "got alpha = -1.0"),
        ({"threshold": 0.0}, "got threshold = 0.0; expected a percentile"),
        ({"window": 0}, "got window = 0"),
        ({"sample_window": 0.5}, "got sample_window = 0.5"),
        ({"blacklist": 0}, "leave it out for no blacklist"),
        ({"batch_size": 0}, "got batch_size = 0"),
        ({"pacer": "papers"}, r"got 'papers' \(did you mean 'paper'\?\)"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "oort", **record})


def test_a_rule_works_without_a_selector():
    rule = Oort()
    cohort = rule.select(
        rule.init(), SelectionContext(1, 0, np.arange(5), 2, np.random.default_rng(0), 1)
    )
    assert len(cohort.ids) == 2
