"""Who may send how much: the published log, worked numbers, solvers, and what holds of every
allocator.

Worked numbers: docs/methods/compression.md#fedcg-lp, docs/methods/compression.md#allocators.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from motley.core.codec import decode, encode
from motley.core.errors import ConfigError, ContractError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.transport.allocators.allocator import AllocationContext
from motley.transport.allocators.by_score import ByScore
from motley.transport.allocators.fedcg_lp import FedCGProgram
from motley.transport.allocators.flexcom import FlexCom
from motley.transport.allocators.from_selector import FromSelector
from motley.transport.allocators.optrate import OptRate
from motley.transport.allocators.uniform_ratio import UniformAllocator
from motley.transport.budgets import ConstantBudget, CosineBudget

ALEXNET = 2_780_000
LOGISTIC = 7850
EVERY = [
    UniformAllocator(),
    FromSelector(),
    OptRate(),
    FlexCom(),
    FlexCom("error"),
    FlexCom(error="last_update"),
    FedCGProgram(),
    FedCGProgram("examples"),
    FedCGProgram("last_update"),
    ByScore(),
    ByScore("code"),
    ByScore(cap="none"),
    ByScore(cap="upload_only"),
]
NAME = {"ids": repr}


def load_of(m=3, theta=0.2, **given):
    """A cohort of the FedCG protocol, all alike unless said otherwise."""
    columns = {
        "examples": 500.0,
        "steps": 50.0,
        "compute_s": 15.0,
        "uplink_mbps": 3.0,
        "scores": 0.5,
        "upload_ratio": theta,
    }
    columns = {
        name: np.broadcast_to(np.asarray(given.pop(name, value), float), (m,))
        for name, value in columns.items()
    }
    return AllocationContext(
        **{
            "ids": np.arange(m),
            "budget": theta,
            "average": 0.2,
            "warm": False,
            "size": ALEXNET,
            **given,
        },
        **columns,
    )


def random_load(rng, m, theta):
    return load_of(
        m,
        theta,
        ids=rng.permutation(10 * m)[:m],
        scores=rng.uniform(size=m),
        uplink_mbps=rng.uniform(1, 5, m),
        compute_s=rng.uniform(5, 25, m),
        examples=rng.integers(10, 600, m),
        upload_ratio=rng.uniform(0.01, 1, m),
    )


def heard(ids, norms):
    return Reports(
        np.asarray(ids), Outcome.ACCEPTED, signals={"update_norm": np.asarray(norms, float)}
    )


# -------------------------------------------------------------------- what holds of every allocator


@pytest.mark.parametrize("rule", EVERY, **NAME)
@pytest.mark.parametrize("theta", [0.05, 0.2, 1.0])
def test_clients_that_are_alike_send_the_budget(rule, theta):
    # T_b grows with the average: at 1 the published ceiling is above 1
    context = load_of(7, theta, average=theta)
    np.testing.assert_allclose(rule.ratios(rule.init(), context), theta, rtol=1e-9)


@pytest.mark.parametrize("rule", EVERY, **NAME)
def test_shares_follow_the_clients(rule):
    """Another order of the cohort is another order of the shares; all lie in [least, 1]; nothing is
    drawn."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        m = int(rng.integers(1, 12))
        context = random_load(rng, m, rng.uniform(0.01, 1))
        turn = rng.permutation(m)
        state = rule.observe(
            rule.init(),
            ConstantBudget(0.2),
            heard(np.sort(context.ids)[: m // 2], rng.exponential(size=m // 2)),
            1.0,
        )
        theta = rule.ratios(state, context)
        columns = ("ids", "examples", "compute_s", "uplink_mbps", "scores", "upload_ratio")
        given = {name: getattr(context, name)[turn] for name in columns}
        turned = load_of(m, context.budget, **given)
        np.testing.assert_allclose(rule.ratios(state, turned), theta[turn], rtol=1e-7)
        assert ((theta >= 0.005) & (theta <= 1)).all()
        assert theta.tolist() == rule.ratios(state, context).tolist()


@pytest.mark.parametrize(
    "rule", [UniformAllocator(), ByScore(cap="none"), FlexCom(), FedCGProgram()], **NAME
)
def test_budgets_add_up_where_nothing_clips(rule):
    checked = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        context = random_load(rng, 10, rng.uniform(0.1, 0.4))
        theta = rule.ratios(rule.init(), context)
        if ((theta > 0.0051) & (theta < 1)).all():
            checked += 1
            assert theta.sum() == pytest.approx(10 * context.budget, rel=1e-9)
    assert checked >= 5


@pytest.mark.parametrize(
    "rule",
    [UniformAllocator(), ByScore(), ByScore("code"), FlexCom(), FlexCom("error"), FedCGProgram()],
    **NAME,
)
def test_budgets_are_not_exceeded_where_no_floor_binds(rule):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        context = random_load(rng, 10, rng.uniform(0.05, 0.9))
        theta = rule.ratios(rule.init(), context)
        if (theta > 0.0051).all() and not (isinstance(rule, FlexCom) and rule.meet == "error"):
            assert theta.sum() <= 10 * context.budget * (1 + 1e-9)


@pytest.mark.parametrize("rule", EVERY, **NAME)
def test_a_whole_budget_sends_everything(rule):
    """theta_t = 1 of a warm-up; in the code of HeteRo-Select v2 the warm-up is scaled and capped
    like any round."""
    context = random_load(np.random.default_rng(0), 8, 1.0)
    context = load_of(
        8,
        1.0,
        warm=True,
        average=1.0,
        uplink_mbps=context.uplink_mbps,
        compute_s=context.compute_s,
        scores=context.scores,
    )
    state = rule.observe(rule.init(), ConstantBudget(1.0), Reports.empty(), np.nan)
    theta = rule.ratios(state, context)
    assert (theta == 1).all() != (rule == ByScore("code"))


@pytest.mark.parametrize("rule", EVERY, **NAME)
@pytest.mark.parametrize("mbps", [np.inf, [0.0, 2.0, np.inf], 0.0], ids=str)
def test_free_and_dead_links(rule, mbps):
    theta = rule.ratios(rule.init(), load_of(3, 0.2, uplink_mbps=mbps))
    assert ((theta >= 0.005) & (theta <= 1)).all()
    if np.ndim(mbps) and rule.requires == {"uplink_mbps"}:
        assert theta[0] == 0.005 <= theta[1] < theta[2]
    if rule in (FlexCom(), UniformAllocator()) and mbps == np.inf:
        np.testing.assert_allclose(theta, 0.2)


@pytest.mark.parametrize("rule", EVERY, **NAME)
def test_an_empty_cohort(rule):
    assert rule.ratios(rule.init(), load_of(0)).tolist() == []


@pytest.mark.parametrize("rule", EVERY, **NAME)
def test_state_survives_a_checkpoint(rule):
    """Ten rounds in one go, and five, bytes, five."""
    rng = np.random.default_rng(1)
    budget = ConstantBudget(0.2)
    loads = [random_load(rng, 6, 0.2) for _ in range(10)]
    norms = rng.exponential(size=(10, 7))

    def play(state, which):
        shares = []
        for i in which:
            shares.append(rule.ratios(state, loads[i]).tolist())
            state = rule.observe(
                state, budget, heard(np.sort(loads[i].ids), norms[i, :6]), norms[i, 6]
            )
        return state, shares

    end, whole = play(rule.init(), range(10))
    half, first = play(rule.init(), range(5))
    again, second = play(decode(encode(half)), range(5, 10))
    assert first + second == whole
    assert encode(again) == encode(end)
    assert all(isinstance(column, np.ndarray) for column in end.values())


def test_the_time_model():
    """D = 2.78 M, theta 0.2, 3 Mb/s, 50 steps of 0.3 s: 15 + 5.931 = 20.931 s.
    ``motley.selectors.hetero_select`` (b): three clients."""
    context = load_of(1)
    assert (context.compute_s + 0.2 * context.whole_s)[0] == pytest.approx(20.930667, abs=5e-7)
    context = load_of(3, uplink_mbps=[1, 2.5, 5], compute_s=[10, 20, 15])
    theta = np.array([0.235282, 0.268892, 0.005])
    np.testing.assert_allclose(
        context.compute_s + theta * context.whole_s, [30.930667, 29.568266, 15.08896], atol=5e-5
    )


# ----------------------------------------------------------------------------------------- by score


def test_the_released_log():
    """CIFAR-10, seed 42, round 2: shares to 2e-4, and 31.153 MB at four bytes a number sent.
    theta_2 = 0.28 is the code's."""
    scores = [
        0.74501,
        0.43066,
        0.94511,
        0.84953,
        0.91953,
        0.75827,
        0.73676,
        0.81101,
        0.97043,
        0.77706,
    ]
    mbps = [2.302, 4.594, 4.269, 1.643, 2.989, 3.608, 3.764, 1.897, 1.58, 4.772]
    logged = [
        0.26261,
        0.15181,
        0.33315,
        0.29946,
        0.32413,
        0.26729,
        0.25971,
        0.28588,
        0.34207,
        0.27391,
    ]
    theta = CosineBudget(as_published="code").ratio(2, 100)
    context = load_of(10, theta, size=2_781_514, scores=scores, uplink_mbps=mbps)
    for variant in ("text", "code"):
        found = ByScore(variant).ratios({}, context)
        np.testing.assert_allclose(found, logged, atol=2e-4)
        assert 4 * 2_781_514 * found.sum() / 1e6 == pytest.approx(31.153, abs=2e-3)
        assert found.mean() == pytest.approx(theta, rel=1e-9)  # no ceiling binds here


def test_proportional_to_the_score():
    """S = (1, 0.5, 0.3, 0.2) has the mean 0.5: relative 2, 1, 0.6, 0.4, times 0.2."""
    context = load_of(4, scores=[1, 0.5, 0.3, 0.2], size=LOGISTIC)
    np.testing.assert_allclose(ByScore().ratios({}, context), [0.4, 0.2, 0.12, 0.08])


def test_methods_6():
    """(a) S = (1, 0.508505, 0) at theta_20 = 0.265894 without a ceiling; (b) with B = (1, 2.5, 5)
    and T_b = 20.930667: the ceiling (0.235282, 0.588204, 1.176409) binds the first. t = 100: S =
    (1, 0, 0.5) at 0.12: the floor makes the sum more than 0.36."""
    context = load_of(
        3, CosineBudget().ratio(20, 100), scores=[1, 0.508505, 0], uplink_mbps=[1, 2.5, 5]
    )
    np.testing.assert_allclose(
        ByScore(cap="none").ratios({}, context), [0.528790, 0.268892, 0.005], atol=1e-6
    )
    assert ByScore().round_s(context) == pytest.approx(20.930667, abs=5e-7)
    np.testing.assert_allclose(
        ByScore().ceiling(context), [0.235282, 0.588204, 1.176409], atol=5e-7
    )
    theta = ByScore().ratios({}, context)
    np.testing.assert_allclose(theta, [0.235282, 0.268892, 0.005], atol=1e-6)
    assert 32 * ALEXNET * theta.sum() / 1e6 == pytest.approx(45.296131, abs=1e-4)
    np.testing.assert_allclose(
        ByScore(cap="none").ratios({}, load_of(3, 0.12, scores=[1, 0, 0.5])), [0.24, 0.005, 0.12]
    )


def test_no_score_at_all():
    """Zero for all: the budget for all, under the same ceiling (code and text)."""
    np.testing.assert_allclose(
        ByScore(cap="none").ratios({}, load_of(3, 0.12, scores=0)), [0.12] * 3
    )
    capped = ByScore().ratios({}, load_of(3, 0.28, scores=0, uplink_mbps=[1, 3, 5]))
    np.testing.assert_allclose(capped, [0.235282, 0.28, 0.28], atol=5e-7)


def test_the_ceiling_of_both_models():
    """AlexNet 0.235, 0.706, 1.176 at 1, 3, 5 Mb/s; logistic regression at least 59.8."""
    links = {"uplink_mbps": [1, 3, 5]}
    np.testing.assert_allclose(
        ByScore().ceiling(load_of(**links)), [0.235, 0.706, 1.176], atol=5e-4
    )
    assert ByScore().ceiling(load_of(size=LOGISTIC, **links)).min() == pytest.approx(59.8, abs=0.05)


def test_the_ceiling_without_the_compute_time():
    """T_b = 20.930667; 15 s of work leave 5.930667 of a whole upload's 29.653333 s: 0.2. 30 s leave
    nothing: least."""
    context = load_of(3, 0.9, compute_s=[15, 30, 0], scores=1)
    np.testing.assert_allclose(
        ByScore(cap="upload_only").ratios({}, context), [0.2, 0.005, 0.705845], atol=1e-6
    )
    np.testing.assert_allclose(
        ByScore(cap="upload_only", time_budget_s=50.0).ratios({}, context)[1], 20 / 29.653333
    )


def test_the_warm_up_of_text_and_code():
    """Text: all of the first update. Code: eq. 8 as ever at theta = 1, hence below 1 under the
    ceiling (docs/methods/hetero-select.md#code, row 5)."""
    context = load_of(3, 1.0, warm=True, scores=[1, 0.5, 0], uplink_mbps=[1, 3, 5])
    assert ByScore().ratios({}, context).tolist() == [1, 1, 1]
    np.testing.assert_allclose(
        ByScore("code").ratios({}, context), [0.235282, 0.705845, 0.005], atol=1e-6
    )


# -------------------------------------------------------------------------------- from the selector


def test_the_selectors_ratios_are_honoured():
    context = load_of(3, 1.0, average=1.0, upload_ratio=[0.3, 1.0, 0.001])
    assert FromSelector().ratios({}, context).tolist() == [0.3, 1.0, 0.005]
    assert FromSelector().refuses(ConstantBudget()) is None
    assert "leave it out" in FromSelector().refuses(CosineBudget())


def test_the_program_and_the_rule_agree():
    """FedCG's own ratios and the allocator's on its cohort."""
    rng = np.random.default_rng(0)
    compute_s = rng.uniform(5, 25, 30)
    mbps = rng.uniform(1, 5, 30)
    whole_s = load_of(30, uplink_mbps=mbps).whole_s
    selector = build({"name": "fedcg", "budget": 0.2, "least": 0.01, "start": "unknown"})
    signals = {"compute_estimate_s": compute_s, "upload_estimate_s": whole_s}
    selector.observe(1, Reports(np.arange(30), Outcome.PROBED, signals=signals))
    cohort = selector.select(1, np.arange(30), 10)
    context = load_of(
        10,
        0.2,
        uplink_mbps=mbps[cohort.ids],
        compute_s=compute_s[cohort.ids],
        upload_ratio=cohort.upload_ratio,
    )
    np.testing.assert_allclose(FromSelector().ratios({}, context), cohort.upload_ratio)
    np.testing.assert_allclose(
        FedCGProgram(least=0.01).ratios({}, context), cohort.upload_ratio, rtol=1e-9
    )


@pytest.mark.parametrize(
    ("rule", "column"), [(FromSelector(), "upload_ratio"), (ByScore(), "scores")], **NAME
)
def test_what_the_selector_does_not_give(rule, column):
    assert rule.requires == {column}
    with pytest.raises(ContractError, match=f"this selector gives no {column}"):
        rule.ratios({}, AllocationContext(np.arange(1), 0.2, 0.2, False, 10, *np.ones((4, 1))))


# ----------------------------------------------------------------------------------------- OptRate


def play_optrate(rule, norms, average=0.2):
    state = rule.init()
    shares = []
    for norm in norms:
        shares.append(rule.ratios(state, load_of(2, 0.9, average=average)))
        state = rule.observe(state, ConstantBudget(average), Reports.empty(), norm)
    return np.array(shares), state


def test_the_offline_optimum():
    """A = (4, 1, 1), a = 1, mean 0.2: theta proportional to 2, 1, 1, hence 0.6 / 4 (2, 1, 1). Its
    price is A / theta^2 = 4 / 0.09."""
    shares = [
        OptRate().share({"error": np.log([A]), "price": np.log([4 / 0.09])}, 0.2)
        for A in (4.0, 1.0, 1.0)
    ]
    np.testing.assert_allclose(shares, [0.3, 0.15, 0.15])


def test_optrate_round_by_round():
    """Norms 1, 2: round 1 sends 0.2, as does round 2, whose price is A = 1 over 0.04 = 25. After it
    the mean is 0.2 and the price stays; A = 4: round 3 sends sqrt(4 / 25) = 0.4. The mean is then
    0.8 / 3 and the price 25 exp(0.5 (0.8 / 3 - 0.2) / 0.2)
    = 25 exp(1 / 6) = 29.534: with A = 4 still, sqrt(4 / 29.534) = 0.368018."""
    shares, state = play_optrate(OptRate(), [1, 2, 2, 2])
    np.testing.assert_allclose(shares[:, 0], [0.2, 0.2, 0.4, 0.368018], atol=5e-7)
    assert (shares[:, 0] == shares[:, 1]).all()
    assert state["rounds"][0] == 4
    np.testing.assert_allclose(state["spent"], shares[:, 0].sum())


def test_steps_of_one_size_send_the_average():
    shares, _ = play_optrate(OptRate(a=0.7), np.full(50, 3.0), 0.3)
    np.testing.assert_allclose(shares, 0.3, rtol=1e-9)


@pytest.mark.parametrize("law", ["noise", "falling", "jump"])
def test_the_mean_over_a_run_nears_the_average(law):
    t = np.arange(1, 1001)
    norms = {
        "noise": np.exp(np.random.default_rng(0).normal(size=1000)),
        "falling": 1 / t,
        "jump": np.where(t < 3, 10.0, 1.0),
    }[law]
    shares, _ = play_optrate(OptRate(), norms)
    assert 0.18 < shares.mean() < 0.2 * 1.02
    assert np.ptp(shares[:, 0]) > 0.1


def test_optrate_without_a_step():
    """Nothing was folded: what was known stays; steps of no or of any length leave numbers."""
    shares, state = play_optrate(OptRate(), [np.nan, np.nan, 1, np.nan, 1])
    np.testing.assert_allclose(shares, 0.2)
    assert state["rounds"][0] == 5
    for norm in (0.0, 1e-300, 1e300, np.inf):
        shares, _ = play_optrate(OptRate(), [1.0] + [norm] * 500)
        assert ((shares >= 0.005) & (shares <= 1)).all()


def test_optrate_makes_its_own_schedule():
    assert OptRate().refuses(ConstantBudget(0.2)) is None
    assert "constant budget" in OptRate().refuses(CosineBudget())
    assert "constant budget" in OptRate().refuses(ConstantBudget(0.2, 1))
    assert UniformAllocator().refuses(CosineBudget()) is None


# ----------------------------------------------------------------------------------------- FlexCom


def test_flexcom_by_hand():
    """Links 1 and 4 Mb/s: e = (4, 1), g proportional to (1/2, 1), mean 0.2: (0.4 / 3, 0.8 / 3)."""
    np.testing.assert_allclose(
        FlexCom().ratios({}, load_of(2, uplink_mbps=[1, 4])), [0.4 / 3, 0.8 / 3]
    )


def test_flexcom_with_the_error_of_the_budget():
    """The same two at the error of 0.2 for both, 1 / 0.2 + 1 / 0.2 = 10: theta = c (1, 2): 1.5 / c
    = 10, c = 0.15. Energy 4 x 0.15 + 0.3 = 0.9 in place of 1."""
    np.testing.assert_allclose(
        FlexCom("error").ratios({}, load_of(2, uplink_mbps=[1, 4])), [0.15, 0.3]
    )


@pytest.mark.parametrize("seed", range(10))
def test_flexcom_spends_least_energy(seed):
    """A general solver on the same program, error form."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 7))
    a = rng.uniform(0.4, 2)
    least = 0.02
    context = random_load(rng, m, rng.uniform(0.05, 0.6))
    theta = FlexCom("error", a, least=least).ratios({}, context)
    p = context.shares
    e = context.whole_s / context.whole_s.sum()
    allowed = context.budget**-a
    assert p @ theta**-a == pytest.approx(allowed, rel=1e-9)
    solved = minimize(
        lambda x: e @ np.exp(x),
        np.full(m, np.log(context.budget)),
        jac=lambda x: e * np.exp(x),
        bounds=[(np.log(least), 0.0)] * m,
        constraints={"type": "ineq", "fun": lambda x: 1 - p @ np.exp(-a * x) / allowed},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert e @ theta == pytest.approx(solved.fun, rel=1e-5)


def test_larger_errors_send_more():
    """Last norms 1 and 2 of two clients on equal links: A = (1, 4), g = (1, 2). The third was never
    heard: the mean 2.5."""
    rule = FlexCom(error="last_update")
    state = rule.observe(rule.init(), ConstantBudget(0.2), heard([0, 1], [1, 9]), 1.0)
    state = rule.observe(state, ConstantBudget(0.2), heard([1], [2]), 1.0)
    np.testing.assert_allclose(rule.ratios(state, load_of(2)), [0.4 / 3, 0.8 / 3])
    g = np.sqrt([1, 4, 2.5])
    np.testing.assert_allclose(rule.ratios(state, load_of(3)), 0.6 * g / g.sum())


@pytest.mark.parametrize(
    "rule", [FlexCom(error="last_update"), FedCGProgram("last_update")], **NAME
)
def test_norms_that_do_not_count(rule):
    """Of clients that were late or rejected, absent ones, and those of runs that diverge."""
    state = rule.init()
    late = Reports(
        np.arange(3),
        [Outcome.LATE, Outcome.REJECTED, Outcome.DROPPED],
        signals={"update_norm": np.ones(3)},
    )
    assert len(rule.observe(state, ConstantBudget(), late, 1.0)["ids"]) == 0
    assert len(rule.observe(state, ConstantBudget(), Reports.empty(), np.nan)["ids"]) == 0
    wild = rule.observe(
        state, ConstantBudget(), heard(np.arange(4), [np.nan, 0.0, 1e300, 1.0]), 1.0
    )
    assert wild["ids"].tolist() == [1, 2, 3]
    theta = rule.ratios(wild, load_of(4))
    assert np.isfinite(theta).all()
    still = rule.observe(state, ConstantBudget(), heard(np.arange(2), [0.0, 0.0]), 1.0)
    np.testing.assert_allclose(rule.ratios(still, load_of(2)), 0.2)


# ---------------------------------------------------------------------------------- FedCG's program


def example(theta, weights="examples"):
    context = load_of(
        3,
        theta,
        size=2_812_500,
        compute_s=[5, 15, 25],
        uplink_mbps=[5, 3, 1],
        examples=[50, 30, 20],
    )
    shares = FedCGProgram(weights, least=0.02).ratios({}, context)
    return shares, (context.compute_s + shares * context.whole_s).max()


def test_the_worked_program():
    """a = (5, 15, 25), r = (18, 30, 90), w = (.5, .3, .2), least 0.02. eps = 0.3: client 1 sends
    all by 23 s, so .3 (T - 15) / 30 + .2 (T - 25) / 90 = .2: T = 33.181818. eps = 0.8: the floor of
    client 3 decides, 25 + 1.8 = 26.8, by when client 1 (23 s) has sent all and client 2 11.8 /
    30."""
    shares, finish_s = example(0.7)
    np.testing.assert_allclose(shares, [1, 0.606061, 0.090909], atol=5e-7)
    assert finish_s == pytest.approx(33.181818, abs=5e-7)
    shares, finish_s = example(0.2)
    np.testing.assert_allclose(shares, [1, 0.393333, 0.02], atol=5e-7)
    assert finish_s == pytest.approx(26.8)


@pytest.mark.parametrize("seed", range(100))
def test_the_program_against_a_solver(seed):
    """HiGHS, in the same form: the same T; theta at it is unique only as the largest."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 12))
    weights = ("equal", "examples")[seed % 2]
    context = random_load(rng, m, rng.uniform(0.01, 1))
    theta = FedCGProgram(weights).ratios({}, context)
    w = np.full(m, 1 / m) if weights == "equal" else context.shares
    r = context.whole_s
    a = context.compute_s
    solved = linprog(
        np.append(np.zeros(m), 1.0),
        A_ub=np.vstack([np.column_stack([np.diag(r), -np.ones(m)]), np.append(-w, 0.0)]),
        b_ub=np.append(-a, -context.budget),
        bounds=[(0.005, 1.0)] * m + [(0, None)],
        method="highs",
    )
    ends = a + theta * r
    assert ends[theta < 1].max(initial=0.0) <= solved.fun * (1 + 1e-7)
    assert ends.max() <= max(solved.fun, (a + r)[theta == 1].max(initial=0.0)) * (1 + 1e-7)
    assert w @ (1 - theta) <= 1 - context.budget + 1e-9
    assert (theta >= solved.x[:m] - 1e-7).all()


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 100)), min_size=1, max_size=8),
    st.floats(0.01, 1),
)
def test_equal_weights_keep_the_traffic(clients, theta):
    """At least the budget, and exactly where no floor decides."""
    compute_s, mbps = np.array(clients).T
    context = load_of(len(clients), theta, compute_s=compute_s, uplink_mbps=mbps)
    shares = FedCGProgram().ratios({}, context)
    assert shares.mean() >= theta * (1 - 1e-6)
    if (shares > 0.00501).all():
        assert shares.mean() == pytest.approx(theta, rel=1e-6)


def test_errors_of_the_last_updates_weigh():
    """Who has more to lose sends more: two equal clients but for a slow link and its large last
    update."""
    rule = FedCGProgram("last_update")
    context = load_of(2, 0.3, uplink_mbps=[1, 4])
    little, much = (
        rule.observe(rule.init(), ConstantBudget(), heard([0, 1], norms), 1.0)
        for norms in ([1, 1], [3, 1])
    )
    assert rule.ratios(much, context)[0] > rule.ratios(little, context)[0]
    np.testing.assert_allclose(rule.ratios(little, context), FedCGProgram().ratios({}, context))


def test_nothing_to_lose():
    """The one client with an error has a dead link: the others weigh the same."""
    rule = FedCGProgram("last_update")
    context = load_of(3, 0.2, uplink_mbps=[0, 3, 3])
    state = rule.observe(rule.init(), ConstantBudget(), heard([0, 1, 2], [1, 0, 0]), 1.0)
    np.testing.assert_allclose(rule.ratios(state, context), [0.005, 0.2, 0.2])


# ----------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ByScore(least=0.0), r"got least = 0.0; expected a share in \(0, 1\]"),
        (lambda: FlexCom(least=1.1), "got least = 1.1"),
        (lambda: FedCGProgram(least=-1.0), "got least = -1.0"),
        (lambda: FromSelector(least=2.0), "got least = 2.0"),
        (lambda: ByScore(mean_mbps=0.0), "got mean_mbps = 0.0; expected a positive number"),
        (lambda: ByScore(time_budget_s=np.inf), "got time_budget_s = inf"),
        (lambda: OptRate(a=0.0), "got a = 0.0; expected a positive exponent"),
        (lambda: OptRate(gain=-1.0), "got gain = -1.0"),
        (lambda: FlexCom(a=np.inf), "got a = inf"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
