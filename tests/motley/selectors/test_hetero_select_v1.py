"""HeteRo-Select v1: the worked numbers of ``motley.selectors.hetero_select_v1`` (a, b, c in both
forms) and everything of "What must hold"."""
# ruff: noqa: C408

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.common.sampling import softmax
from motley.selectors.hetero_select_v1 import (
    HeteroSelectV1,
    HeteroSelectV1Components,
    column_mean,
    distributions,
    entropy,
    jensen_shannon,
)
from motley.selectors.selector import Selector

IDS = np.arange(3)
NONE = float("nan")
A = dict(
    t=10,
    loss=(2, 1, 0.5),
    before=(2.5, 1, 0.4),
    labels=((9, 1), (5, 5), (1, 9)),
    count=(4, 2, 1),
    last=(9, 5, 0),
    square=(4, 1, NONE),
    tau=1.9,
    V=(1, 0.333333, 0),
    D=(0.278907, 0, 0.278907),
    M=(0.962117, 0.5, -0.054600),
    F=(0.591716, 0.756144, 0.865333),
    St=(1.485203, 2.254232, 2.678527),
    N=(0.508163, 0.731475, 1),
    S=(1.826106, 1.575184, 1.768166),
    p=(0.351339, 0.307873, 0.340787),
    product=(0.119836, 0, 0),
    p_product=(0.347493, 0.326253, 0.326253),
)
B = dict(
    t=1,
    loss=(3, 2, 1),
    before=(NONE,) * 3,
    labels=((1, 0), (5, 5), (0, 1)),
    count=(0,) * 3,
    last=(0,) * 3,
    square=(NONE,) * 3,
    tau=1.99,
    V=(1, 0.5, 0),
    D=(0.619443, 0, 0.619443),
    M=(0.5,) * 3,
    F=(1,) * 3,
    St=(1.485203,) * 3,
    N=(1,) * 3,
    S=(2.604646, 1.485203, 1.604646),
    p=(0.459818, 0.261988, 0.278194),
    # V D M F St N = (1 * .619443 * .5 * 1.485203, 0, 0) = (.460000, 0, 0); e^(.46 / 1.99) =
    # 1.260056; p_0 = 1.260056 / 3.260056
    product=(0.460000, 0, 0),
    p_product=(0.386514, 0.306743, 0.306743),
)
C = dict(
    t=150,
    loss=(0.9, 0.6, 0.3),
    before=(1, 0.6, 0.2),
    labels=((8, 2), (6, 4), (1, 9)),
    count=(75, 50, 25),
    last=(149, 135, 100),
    square=(9, 1, 2),
    tau=1.0,
    V=(1, 0.5, 0),
    D=(0.073104, 0.007299, 0.146793),
    M=(0.744919, 0.5, -0.348284),
    F=(0.591716, 0.694444, 0.826446),
    St=(1.485203, 2.940812, 3.131166),
    N=(0.501170, 0.820821, 0.682426),
    S=(1.396111, 2.463377, 1.438547),
    p=(0.201989, 0.587266, 0.210745),
    # .073104 * .744919 * .591716 * 1.485203 * .501170 = .023985; .5 * .007299 * .5 * .694444 *
    # 2.940812 * .820821 = .003059; 0 their exponentials 1.024275, 1.003064, 1 sum to 3.027339
    product=(0.023985, 0.003059, 0),
    p_product=(0.338342, 0.331335, 0.330323),
)


def state_of(case):
    """A state with exactly these numbers, labels through enrolment."""
    selector = Selector(HeteroSelectV1())
    ids = np.arange(len(case["loss"]))
    selector.observe(
        0,
        Reports(
            ids, Outcome.ENROLLED, signals={"label_histogram": np.array(case["labels"], float)}
        ),
    )
    columns = {
        name: np.array(case[name], float) for name in ("loss", "before", "count", "last", "square")
    }
    return selector.state.put(ids, {**columns, "measured": float(case["t"])})


@pytest.mark.parametrize("case", [A, B, C], ids="abc")
def test_worked_components(case):
    parts = HeteroSelectV1().components(state_of(case), case["t"], IDS)
    for name, got in zip(("V", "D", "M", "F", "St", "N"), parts, strict=True):
        np.testing.assert_allclose(got, case[name], atol=6e-7, err_msg=name)


def evenness(form, case):
    """The coefficient of variation of the probabilities: standard deviation over mean."""
    rule = HeteroSelectV1(form)
    p = softmax(rule.scores(rule.components(state_of(case), case["t"], IDS)), case["tau"])
    return p.std() / p.mean()


def test_proposition_a5_is_false_as_stated():
    """It says that the multiplicative score has the larger coefficient of variation. In the worked
    examples the additive one has; where one product is large, in round 1 with V = 1, D near 1.7 and
    the largest staleness, the multiplicative one has."""
    assert evenness("additive", A) == pytest.approx(0.0555, abs=1e-4)
    assert evenness("multiplicative", A) == pytest.approx(0.0300, abs=1e-4)
    for case in (B, C):
        assert evenness("additive", case) > evenness("multiplicative", case)
    large = B | {"t": 30, "tau": 2.0 * 0.85, "labels": ((1, 0), (0, 1), (0, 1))}
    large |= {"before": (300, 2, 1), "loss": (3, 2, 1)}
    assert evenness("multiplicative", large) > evenness("additive", large)


def test_proposition_a5_is_false_under_its_own_premise():
    """Components in [0, 1], here uniform, of twelve clients at temperature 2: products of six are
    small, so their softmax is the more even one in each of 2,000 draws."""
    rng = np.random.Generator(np.random.Philox(0))
    draws = [HeteroSelectV1Components(*parts) for parts in rng.random((2000, 6, 12))]
    spreads = {}
    for form in ("additive", "multiplicative"):
        rule = HeteroSelectV1(form)
        p = np.array([softmax(rule.scores(parts), 2.0) for parts in draws])
        spreads[form] = p.std(axis=1) / p.mean(axis=1)
    assert (spreads["multiplicative"] < spreads["additive"]).all()


def test_lemma_a2_is_false_as_stated():
    """It says that the score falls as a client's distance from the mean gradient grows, which its
    labels' distance makes. In worked example (b) with equal losses the clients differ in their
    labels alone, and the two with one class score .619443 more than the one with both."""
    rule = HeteroSelectV1("additive")
    state = state_of(B | {"loss": (2, 2, 2)})
    alone, both, other = rule.scores(rule.components(state, B["t"], IDS))
    assert alone == pytest.approx(other)
    assert alone - both == pytest.approx(0.619443, abs=1e-6)


@pytest.mark.parametrize("case", [A, B, C], ids="abc")
@pytest.mark.parametrize(
    ("form", "score", "chance"),
    [("additive", "S", "p"), ("multiplicative", "product", "p_product")],
)
def test_worked_scores_and_probabilities(case, form, score, chance):
    rule = HeteroSelectV1(form)
    scores = rule.scores(rule.components(state_of(case), case["t"], IDS))
    np.testing.assert_allclose(scores, case[score], atol=1e-6)
    np.testing.assert_allclose(softmax(scores, case["tau"]), case[chance], atol=1e-6)
    selector = Selector(rule)
    selector.state = state_of(case)
    cohort = selector.select(case["t"], IDS, 3)
    assert cohort.notes["tau"] == pytest.approx(case["tau"])
    p = np.array(case[chance])
    assert cohort.notes["max_probability"] == pytest.approx(p.max(), abs=1e-6)
    assert cohort.notes["cv_probability"] == pytest.approx(p.std() / p.mean(), abs=1e-5)
    names = zip(
        ("value", "diversity", "momentum", "fairness", "staleness", "norm"),
        ("V", "D", "M", "F", "St", "N"),
        strict=True,
    )
    means = {f"component.{name}": np.mean(case[letter]) for name, letter in names}
    assert {name: cohort.notes[name] for name in means} == pytest.approx(means, abs=6e-7)
    np.testing.assert_allclose(cohort.scores, p[cohort.ids], atol=1e-6)
    np.testing.assert_allclose(cohort.weights, 1 / 3)


def test_worked_example_reached_through_observe():
    """(a) again, but every number arrives as it does in a run: enrolment, probes of rounds 9 and
    10, reports of rounds 1 to 9. h = (4, 2, 1): rounds (1, 2, 3, 9), (4, 5) and once dropped in
    round 6; u = (4, 1, none) from norms 2 and 1."""
    selector = Selector(HeteroSelectV1())
    labels = np.array([[9.0, 1], [5, 5], [1, 9]])
    selector.observe(0, Reports(IDS, Outcome.ENROLLED, signals={"label_histogram": labels}))
    for t, (k, norm, outcome) in {
        1: (0, 9.0, Outcome.ACCEPTED),
        2: (0, 9.0, Outcome.ACCEPTED),
        3: (0, 9.0, Outcome.ACCEPTED),
        4: (1, 9.0, Outcome.ACCEPTED),
        5: (1, 1.0, Outcome.ACCEPTED),
        6: (2, 9.0, Outcome.DROPPED),
        9: (0, 2.0, Outcome.ACCEPTED),
    }.items():
        if t == 9:
            selector.observe(9, Reports(IDS, Outcome.PROBED, signals={"loss": [2.5, 1.0, 0.4]}))
        selector.observe(t, Reports([k], outcome, signals={"update_norm": [norm]}))
    selector.observe(10, Reports(IDS, Outcome.PROBED, signals={"loss": [2.0, 1.0, 0.5]}))
    rule = selector.rule
    np.testing.assert_allclose(
        rule.scores(rule.components(selector.state, 10, IDS)), A["S"], atol=6e-7
    )


def test_frequencies_follow_the_softmax():
    """(b), where a temperature left out of the draw would give (.590, .193, .217) in place of
    (.460, .262, .278)."""
    selector = Selector(HeteroSelectV1())
    counts = np.zeros(3)
    n = 2000
    selector.state = state_of(B)
    for dispatch in range(n):
        counts[selector.select(1, IDS, 1, dispatch=dispatch).ids] += 1
    p = np.array(B["p"])
    assert (abs(counts / n - p) < 4.5 * np.sqrt(p * (1 - p) / n)).all()


@pytest.mark.parametrize("form", ["additive", "multiplicative"])
def test_equal_signals_give_the_uniform_distribution(form):
    same = dict(
        t=9,
        loss=(1,) * 5,
        before=(2,) * 5,
        labels=((1, 2),) * 5,
        count=(3,) * 5,
        last=(4,) * 5,
        square=(1,) * 5,
    )
    rule = HeteroSelectV1(form)
    for state in (state_of(same), rule.init()):
        scores = rule.scores(rule.components(state, 9, np.arange(5)))
        assert np.ptp(scores) < 1e-12


def score_with(**changes):
    rule = HeteroSelectV1()
    return rule.scores(rule.components(state_of({**A, **changes}), changes.get("t", 40), IDS))


def test_score_rises_with_staleness_up_to_20_rounds_and_falls_with_participation():
    by_gap = [score_with(last=(40 - gap, 39, 39))[0] for gap in range(1, 30)]
    assert (np.diff(by_gap[:20]) > 0).all()
    assert np.ptp(by_gap[19:]) == 0
    by_count = [score_with(count=(h, 50, 50))[0] for h in range(50)]
    assert (np.diff(by_count) < 0).all()


@given(st.floats(0.01, 100), st.floats(-5, 50))
def test_value_is_invariant_to_affine_changes_of_the_losses(scale, shift):
    rule = HeteroSelectV1()
    loss = np.array([2.0, 1.0, 0.5, 1.7])
    case = dict(
        A,
        t=3,
        before=(NONE,) * 4,
        labels=((1, 1),) * 4,
        count=(0,) * 4,
        last=(0,) * 4,
        square=(NONE,) * 4,
    )
    one, other = (
        rule.components(state_of({**case, "loss": values}), 3, np.arange(4)).value
        for values in (loss, scale * loss + shift)
    )
    np.testing.assert_allclose(one, other, atol=1e-5)


@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(1, 200))
def test_probability_is_bounded_from_below(seed, clients, t):
    """p_k >= e^((Smin + gamma log(1+d))/tau) / (e^(same) + (K_A - 1) e^((Smax + gamma log
    21)/tau)), d = min(t - l_k, 20)."""
    rng = np.random.Generator(np.random.Philox(seed))
    case = dict(
        t=t,
        loss=rng.exponential(size=clients),
        before=rng.exponential(size=clients),
        count=rng.integers(0, 9, clients),
        labels=rng.integers(0, 9, (clients, 3)) + 1,
        last=rng.integers(0, t, clients),
        square=rng.exponential(size=clients),
    )
    rule = HeteroSelectV1()
    gamma, eta = rule.strengths
    p = softmax(
        rule.scores(rule.components(state_of(case), t, np.arange(clients))),
        tau := 2.0 * (1 - 0.5 * min(t / 100, 1)),
    )
    low = 0 + 0 - 0.5 + ((1 + eta) ** -2 - 1) - rule.a  # V, D, M, F - 1, N - 1 at their smallest
    high = 1 + 2 + 1.5 + 0 + 0
    own = np.exp((low + gamma * np.log1p(np.minimum(t - case["last"], 20))) / tau)
    bound = own / (own + (clients - 1) * math.exp((high + gamma * math.log(21)) / tau))
    assert (p >= bound).all()
    assert rule.bound_ratios(p, t - case["last"], tau, 2)["corrected"] == pytest.approx(
        (p / bound).min()
    )


def test_ratios_to_the_bounds_by_hand():
    """(a) with m = 2: Smin = -.5 + (.591716 - 1) - .5 = -1.408284, Smax = 1 + 2 + 1.5 = 4.5, gamma
    log 21 = 2.131166, tau = 1.9.

    Client 2 has the smallest ratio: d = 10, low = -1.408284 + 1.678527 = .270243, p = .340787. With
    n others of e^(high / tau) the ratio is p (1 + n e^((high - low) / tau)): e^((6.631166 -
    .270243) / 1.9) = e^3.347854 = 28.44160 gives .340787 (1 + 2 * 28.44160)
    = 19.7258 corrected and .340787 (1 + 28.44160) = 10.0333 in the appendix's form (d < 20);
    e^((4.5 - .270243) / 1.9) = e^2.226188
    = 9.26447 gives .340787 (1 + 9.26447) = 3.4980 as printed.

    Client 1, p = .307873, away for 200 rounds: low = -1.408284 + .7 log 201 = 2.304029 where d is
    not capped and .722882 where it is. e^((6.631166 - .722882) / 1.9) = 22.41260 gives .307873 (1 +
    2 * 22.41260) = 14.1083 corrected, e^((6.631166 - 2.304029) / 1.9) = 9.75169 gives 3.3102 in the
    appendix's form, e^((4.5 - 2.304029) / 1.9) = 3.17648 gives 1.2858 as printed."""
    gap = 10 - np.array(A["last"], float)
    found = HeteroSelectV1().bound_ratios(np.array(A["p"]), gap, 1.9, 2)
    assert found == pytest.approx(
        {"corrected": 19.7258, "appendix": 10.0333, "printed": 3.4980}, abs=2e-4
    )
    long_away = np.array([1.0, 200.0, 1.0])
    assert HeteroSelectV1().bound_ratios(np.array(A["p"]), long_away, 1.9, 2) == pytest.approx(
        {"corrected": 14.1083, "appendix": 3.3102, "printed": 1.2858}, abs=2e-4
    )
    selector = Selector(HeteroSelectV1())
    selector.state = state_of(A)
    notes = selector.select(10, IDS, 2).notes
    assert {name: notes[f"bound.{name}"] for name in found} == pytest.approx(found, rel=1e-5)
    selector = Selector(HeteroSelectV1("multiplicative"))
    assert not [name for name in selector.select(10, IDS, 2).notes if name.startswith("bound")]


def test_the_printed_bound_is_false_for_one_client_of_three():
    """m = 1: n = m - 1 = 0 makes the printed bound 1, and no client of three has probability 1; the
    ratio is the smallest p. A d of 200 is not cut at 20 either: low = -1.408284 + .7 log 201 =
    2.304029 is above what St can be worth (.722882)."""
    found = HeteroSelectV1().bound_ratios(np.array(A["p"]), np.array([1.0, 200.0, 1.0]), 1.9, 1)
    assert found["printed"] == found["appendix"] == A["p"][1]
    assert found["corrected"] > 1


@given(
    st.lists(st.floats(1e-6, 1e9), min_size=2, max_size=6), st.integers(1, 300), st.integers(0, 99)
)
def test_components_stay_in_their_ranges(losses, t, seed):
    rng = np.random.Generator(np.random.Philox(seed))
    n = len(losses)
    case = dict(
        t=t,
        loss=losses,
        before=rng.permutation(losses),
        labels=rng.integers(0, 5, (n, 4)),
        count=rng.integers(0, 5, n),
        last=rng.integers(0, t, n),
        square=rng.exponential(size=n) * 10.0 ** rng.integers(-9, 9, n),
    )
    parts = HeteroSelectV1().components(state_of(case), t, np.arange(n))
    ranges = [(0, 1), (0, 2), (-0.5, 1.486615), (1.3**-2, 1), (1, 1 + 0.7 * math.log(21)), (0.5, 1)]
    for got, (low, high), name in zip(parts, ranges, parts._fields, strict=True):
        assert (got >= low - 1e-12).all(), name
        assert (got <= high + 1e-12).all(), name


def test_momentum_is_stable_for_a_loss_that_exploded():
    """q = (1 - 1e300) / 1: exp(-5 q) overflows; the limit is -0.5."""
    parts = HeteroSelectV1().components(
        state_of({**A, "loss": (1e300, 1, 1), "before": (1, 1, 0)}), 10, IDS
    )
    assert parts.momentum.tolist() == [-0.5, 0.5, 0.5]  # the last: L(w_{t-2}) <= eps, so q = 0


def test_unknown_clients_are_neutral():
    """No loss and no histogram: V and D are the mean of those that have one; N and M are what they
    are without signals."""
    state = state_of(A)
    parts = HeteroSelectV1().components(state, 10, np.arange(4))
    assert parts.value[3] == pytest.approx(parts.value[:3].mean())
    assert parts.diversity[3] == pytest.approx(parts.diversity[:3].mean())
    assert (parts.norm[3], parts.momentum[3], parts.fairness[3]) == (1.0, 0.5, 1.0)


def test_ranges_run_over_the_available_only():
    parts = HeteroSelectV1().components(state_of(A), 10, np.array([1, 2]))
    np.testing.assert_allclose(parts.value, [1, 0], atol=1e-7)
    np.testing.assert_allclose(parts.fairness, [1.3**-2, 1.15**-2])
    np.testing.assert_allclose(parts.norm, [1 - 0.5 * math.tanh(1.5), 1])


def test_the_norm_is_squared_and_counts_move_for_everyone_sent_out():
    selector = Selector(HeteroSelectV1())
    outcome = np.array(
        [Outcome.ACCEPTED, Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED, Outcome.REHEARSED],
        np.int8,
    )
    selector.observe(7, Reports(np.arange(5), outcome, signals={"update_norm": np.full(5, 3.0)}))
    get = selector.state.get
    assert get("count", np.arange(5)).tolist() == [1, 1, 1, 1, 0]
    assert get("last", np.arange(5)).tolist() == [7, 0, 0, 0, 0]
    np.testing.assert_array_equal(get("square", np.arange(5)), [9, NONE, NONE, NONE, NONE])


def test_losses_shift_and_a_non_finite_one_moves_nothing():
    """Client 1 has no finite number in rounds 2 and 3: its 5 stays its loss, and in round 4 there
    is no loss of the round before."""
    selector = Selector(HeteroSelectV1())
    probes = [(1.0, 5.0), (2.0, math.nan), (3.0, math.inf), (4.0, 6.0), (4.0, 7.0)]
    expected = [
        ((1, 5), (NONE, NONE)),
        ((2, 5), (1, NONE)),
        ((3, 5), (2, NONE)),
        ((4, 6), (3, NONE)),
        ((4, 7), (4, 6)),
    ]
    for t, (losses, (now, before)) in enumerate(zip(probes, expected, strict=True), start=1):
        selector.observe(t, Reports([0, 1], Outcome.PROBED, signals={"loss": losses}))
        np.testing.assert_array_equal(selector.state.get("loss", [0, 1]), now)
        np.testing.assert_array_equal(selector.state.get("before", [0, 1]), before)


def test_momentum_after_a_missed_round():
    """Client 0 is measured in rounds 1, 3 and 4, client 1 in all: losses (3, missing, 1, .5) and
    (3, 2, 1, .5).

    Round 3: client 0 has no loss of round 2, M = .5 (with the 3: q = 2/3, M = 2 / (1 + e^-(10/3)) -
    .5 = 1.431110); client 1 has q = 1/2, M = 2 / (1 + e^-2.5) - .5 = 1.348284; in round 2 it has q
    = 1/3, M = 1.182262. Round 4: both q = 1/2. Round 5: client 0 is not measured, its loss is
    missing, M = .5."""
    selector = Selector(HeteroSelectV1())
    found = []
    for t, losses in enumerate(
        [(3.0, 3.0), (None, 2.0), (1.0, 1.0), (0.5, 0.5), (None, 0.25)], start=1
    ):
        ids = [k for k in (0, 1) if losses[k] is not None]
        selector.observe(
            t, Reports(ids, Outcome.PROBED, signals={"loss": [losses[k] for k in ids]})
        )
        found.append(selector.rule.components(selector.state, t, IDS[:2]).momentum)
    half = 1.348284
    np.testing.assert_allclose(
        found, [(0.5, 0.5), (0.5, 1.182262), (0.5, half), (half, half), (0.5, half)], atol=6e-7
    )


def test_a_second_measurement_in_one_round_is_no_round_before():
    """Rounds 1 and 2 measure 4 and 2, round 2 once more 1: q = (4 - 1) / 4, M = 2 / (1 + e^-3.75) -
    .5 = 1.454045."""
    selector = Selector(HeteroSelectV1())
    for t, loss in [(1, 4.0), (2, 2.0), (2, 1.0)]:
        selector.observe(t, Reports([0], Outcome.PROBED, signals={"loss": [loss]}))
    assert selector.rule.components(selector.state, 2, IDS[:1]).momentum == pytest.approx(
        [1.454045], abs=6e-7
    )


def test_the_round_before_of_last_report_is_the_clients_own():
    """Reports of 3 in round 1 and 1 in round 7: q = 2/3, M = 1.431110, in any later round."""
    selector = Selector(HeteroSelectV1(probe="last_report"))
    for t, loss in [(1, 3.0), (7, 1.0)]:
        selector.observe(
            t, Reports([0], Outcome.ACCEPTED, signals={"loss": [loss], "update_norm": [1.0]})
        )
    for t in (8, 30):
        assert selector.rule.components(selector.state, t, IDS[:1]).momentum == pytest.approx(
            [1.431110], abs=6e-7
        )


def test_last_report_uses_reported_losses_and_probes_nobody():
    rule = HeteroSelectV1(probe="last_report")
    selector = Selector(rule)
    assert not len(selector.probe(1, IDS, 2))
    selector.observe(
        1, Reports([1], Outcome.ACCEPTED, signals={"loss": [2.0], "update_norm": [1.0]})
    )
    # not its own: ignored
    selector.observe(2, Reports(IDS, Outcome.PROBED, signals={"loss": [9.0, 9.0, 9.0]}))
    np.testing.assert_array_equal(selector.state.get("loss", IDS), [NONE, 2.0, NONE])
    assert rule.needs().reported == {"loss", "update_norm"}
    assert not rule.needs().probed


def test_needs_and_named_strategies():
    needs = HeteroSelectV1(probe_batches=3).needs()
    assert (needs.enrolled, needs.probed, needs.reported) == (
        {"label_histogram"},
        {"loss": 3},
        {"update_norm"},
    )
    assert HeteroSelectV1().strengths == (0.7, 0.3)
    assert HeteroSelectV1(strategy="exploitative").strengths == (0.05, 0.1)
    assert HeteroSelectV1(strategy="exploitative", eta=0.0).strengths == (0.05, 0.0)


def test_weights_of_the_components():
    rule = HeteroSelectV1(
        w_value=0.0, w_diversity=2.0, w_momentum=0.0, w_fairness=0.0, w_staleness=0.5, w_norm=0.0
    )
    parts = rule.components(state_of(A), 10, IDS)
    np.testing.assert_allclose(
        rule.scores(parts), 2 * parts.diversity + 0.5 * (parts.staleness - 1)
    )


def test_divergence_of_worked_pairs():
    """JS((1,0) || (.5,.5)) = H(.75,.25) - 0/2 - 1/2 = .811278 - .5 = .311278 bits; disjoint
    distributions: 1 bit."""
    p = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(
        jensen_shannon(p, np.array([0.5, 0.5]), entropy(p)), [0.311278, 0, 0.311278], atol=5e-7
    )
    np.testing.assert_allclose(
        jensen_shannon(p, np.array([0.0, 1.0]), entropy(p))[[0, 2]], [1, 0], atol=1e-15
    )
    many = np.tile(p, (50_000, 1))  # more than one thread's share
    divergence = jensen_shannon(many, p[0], entropy(many)).reshape(-1, 3)
    assert (divergence == divergence[0]).all()
    np.testing.assert_allclose(divergence[0], jensen_shannon(p, p[0], entropy(p)))
    np.testing.assert_allclose(column_mean(many), [0.5, 0.5], rtol=1e-12)


def test_distributions_refuse_what_is_none():
    got = distributions(np.array([[1.0, 3.0], [0.0, 0.0], [np.nan, 1.0], [-1.0, 5.0]]))
    np.testing.assert_array_equal(got, [[0.25, 0.75], [NONE, NONE], [NONE, NONE], [NONE, NONE]])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"gamma": -1.0}, "selector: got gamma = -1.0, eta = None; expected numbers of at least 0"),
        ({"tau0": 0}, "got tau0 = 0.0, eps = 1e-08; expected positive"),
        ({"eps": float("inf")}, "expected positive numbers"),
        ({"a": 1.5}, r"got a = 1.5; expected a number in \[0, 1\]"),
        ({"probe_batches": 0}, "got probe_batches = 0; expected at least 1"),
        ({"form": "multiplicative", "w_norm": 2.0}, "the multiplicative form has no weights"),
        ({"w_norm": float("inf")}, "expected finite numbers"),
        ({"form": "aditive"}, r"selector.form: got 'aditive' \(did you mean 'additive'\?\)"),
        ({"tau0": float("nan")}, "selector.tau0: got nan; expected a number"),
        ({"probe": "some"}, "selector.probe: got 'some'; expected one of 'all', 'last_report'"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "hetero_select_v1", **record})


def test_a_diverging_client_is_penalised_without_a_warning():
    """Norms 1e200 and 1: u / mean u = 2 and 0 (to 1e-300), N = 1 - .5 tanh(3) and 1. Loss 1e-7 ->
    1e305: q = -inf, M = -.5."""
    selector = Selector(HeteroSelectV1(), seed=0)
    selector.observe(1, Reports([0, 1], Outcome.PROBED, signals={"loss": [1e-7, 1.0]}))
    selector.observe(1, Reports([0, 1], Outcome.ACCEPTED, signals={"update_norm": [1e200, 1.0]}))
    selector.observe(2, Reports([0, 1], Outcome.PROBED, signals={"loss": [1e305, 1.0]}))
    found = selector.rule.components(selector.state, 2, np.array([0, 1]))
    assert found.norm == pytest.approx([1 - 0.5 * np.tanh(3.0), 1.0])
    assert found.momentum.tolist() == [-0.5, 0.5]
