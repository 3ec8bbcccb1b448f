"""FedCVR-Bolt: the worked numbers of ``motley.selectors.fedcvr_bolt``, the factor form against a
dense reference, and "What must hold" of ``motley.selectors.fedcvr_bolt``."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError, ContractError
from motley.core.keys import Key
from motley.core.records import Outcome, Reports, SelectionContext
from motley.core.table import ClientTable
from motley.selectors import build
from motley.selectors.common.clustering import fill_empty
from motley.selectors.common.innovations import append, fold, paired_products
from motley.selectors.fedcvr_bolt import FedCvrBolt, FedCvrBoltState
from motley.selectors.selector import Selector

C1 = np.array([[4, 2, 0.5], [2, 2, 0.2], [0.5, 0.2, 1]])
C2 = np.array([[1, -0.3, 0.1], [-0.3, 2, 0.4], [0.1, 0.4, 0.5]])
N = np.array([50.0, 30.0, 20.0])
THETA = np.array([[1.0], [0.8], [-0.5]])
MEAN = np.array([[0.9], [0.7], [-0.4]])


def state_of(covariances, theta=THETA, mean=MEAN, sizes=N, t=4, label=(0, 0, 1)):
    """A state before round t whose C^d are these: t - 1 times C = L L^T, so the columns of
    sqrt(t - 1) L are innovations."""
    c = np.stack(covariances)  # [D', K, K]
    factor = math.sqrt(t - 1) * np.linalg.cholesky(c)
    ids = np.arange(c.shape[1])
    columns = {
        "num_examples": sizes,
        "theta": theta,
        "mean": mean,
        "label": np.array(label, float),
        "weighted": np.einsum("dkj,j->kd", c, sizes),
        "variance": np.einsum("dkk->kd", c),
    }
    table = FedCvrBolt().init().clients
    blocks = tuple((ids, factor[:, :, s].T.astype(np.float32)) for s in range(c.shape[1]))
    return FedCvrBoltState(
        ClientTable(table.defaults, ids, columns), theta[0], t - 1, blocks, 0.0, len(set(label))
    )


def covariance(state):
    """C^d as matrices, [D', K, K], from the stored innovations."""
    ids = state.clients.ids
    total = np.zeros((len(state.initial), len(ids), len(ids)))
    for who, rows in state.innovations:
        e = np.zeros((len(ids), rows.shape[1]))
        e[np.searchsorted(ids, who)] = rows
        total += np.einsum("kd,jd->dkj", e, e)
    return total / state.rounds


def enrolled(rule, ids, initial, sizes=None, seed=0):
    selector = Selector(rule, seed)
    sizes = np.ones(len(ids)) if sizes is None else sizes
    first = np.tile(initial, (len(ids), 1))
    selector.observe(
        0, Reports(ids, Outcome.ENROLLED, signals={"num_examples": sizes, "last_layer": first})
    )
    return selector


def report(selector, t, ids, models, outcome=Outcome.ACCEPTED):
    selector.observe(
        t, Reports(np.asarray(ids), outcome, signals={"last_layer": np.asarray(models, float)})
    )


# ---- worked numbers ----


def test_value_and_probabilities_a():
    """(a) C alpha = (4 .5 + 2 .3 + .5 .2, ...) = (2.7, 1.64, .51); v_0 = 2.7^2 / 4 = 1.8225, v_1 =
    1.64^2 / 2, v_2 = .51^2 / 1. In {0, 1} p_0 = 1 / (1 + e^-(1.8225 - 1.3448)) = .617205."""
    rule = FedCvrBolt()
    state = state_of([C1])
    ids = np.arange(3)
    np.testing.assert_allclose(state.clients.get("weighted", ids)[:, 0] / 100, [2.7, 1.64, 0.51])
    v = rule.value(state, ids)
    np.testing.assert_allclose(v, [1.8225, 1.3448, 0.2601], atol=1e-6)
    group = np.array([0, 0, 1])
    np.testing.assert_allclose(rule.probabilities(v, group), [0.617205, 0.382795, 1], atol=1e-6)
    np.testing.assert_allclose(
        FedCvrBolt(beta=0.5).probabilities(v, group), [0.559430, 0.440570, 1], atol=1e-6
    )
    assert FedCvrBolt(beta=math.inf).probabilities(v, group).tolist() == [1, 0, 1]
    assert FedCvrBolt(beta=0).probabilities(v, group).tolist() == [0.5, 0.5, 1]


def test_alpha_is_the_share_of_all_clients_also_where_some_are_away():
    """v of {0, 1} beside each other is as in (a); with the sizes of these two as the whole it would
    be 1 / .64 of that."""
    np.testing.assert_allclose(
        FedCvrBolt().value(state_of([C1]), np.arange(2)), [1.8225, 1.3448], atol=1e-6
    )
    selector = Selector(FedCvrBolt(warm_up=0))
    selector.state = state_of([C1], label=(0, 0, 0))
    assert selector.select(4, np.arange(2), 1).notes["max_probability"] == pytest.approx(
        0.617205, abs=1e-6
    )


def observed(rule):
    """(b) round 4: of the coalitions {0, 1} and {2}, client 0 sends 1.2 and client 2 sends -.7."""
    selector = Selector(rule)
    selector.state = state_of([C1])
    report(selector, 4, [0, 2], [[1.2], [-0.7]])
    return selector.state


def test_one_round_b():
    """(b) rho_10 = 2 / sqrt(2 4) = .707107, thbar_1 = .848528; e = (1.2 - .9, .8 - .848528, -.7 +
    .4); C = .75 C + .25 e e^T."""
    rule = FedCvrBolt(warm_up=0)
    state = observed(rule)
    np.testing.assert_allclose(state.clients.columns["theta"][:, 0], [1.2, 0.8, -0.7])
    # afterwards
    np.testing.assert_allclose(
        state.clients.columns["mean"][:, 0], [1.2, 0.848528, -0.7], atol=1e-6
    )
    kept = observed(FedCvrBolt(warm_up=0, seen_mean="kept"))
    np.testing.assert_allclose(kept.clients.columns["mean"][:, 0], [0.9, 0.848528, -0.4], atol=1e-6)
    np.testing.assert_array_equal(covariance(kept), covariance(state))
    expected = [
        [3.0225, 1.496360, 0.3525],
        [1.496360, 1.500589, 0.153640],
        [0.3525, 0.153640, 0.7725],
    ]
    np.testing.assert_allclose(covariance(state)[0], expected, atol=1e-6)
    np.testing.assert_allclose(
        state.clients.columns["weighted"][:, 0] / 100, [2.030658, 1.229085, 0.376842], atol=1e-6
    )
    np.testing.assert_allclose(
        state.clients.columns["variance"][:, 0], np.diag(expected), atol=1e-6
    )
    np.testing.assert_allclose(
        rule.value(state, np.arange(3)), [1.364292, 1.006704, 0.183831], atol=1e-6
    )
    assert state.rounds == 4


def test_variants_of_b():
    """literal_means: e = (0, -.048528, 0). Regression: 2 / 4 * 1.2 = .6. Cosine of one positive
    coordinate each: 1, so 1.2."""
    literal = observed(FedCvrBolt(warm_up=0, literal_means=True))
    expected = [[3, 1.5, 0.375], [1.5, 1.500589, 0.15], [0.375, 0.15, 0.75]]
    np.testing.assert_allclose(covariance(literal)[0], expected, atol=1e-6)
    regression = observed(FedCvrBolt(warm_up=0, rho="regression"))
    np.testing.assert_allclose(regression.clients.columns["mean"][1, 0], 0.6, atol=1e-6)
    cosine = observed(FedCvrBolt(warm_up=0, rho="cosine"))
    np.testing.assert_allclose(cosine.clients.columns["mean"][1, 0], 1.2)


def test_aggregate_of_b():
    """n = (50, 30, 20): (50 * 1.2 - 20 * .7) / 70 = .657143, the cohort's weights on the models
    sent."""
    selector = Selector(FedCvrBolt(warm_up=0, beta=math.inf))
    selector.state = state_of([C1])
    cohort = selector.select(4, np.arange(3), 2)
    assert cohort.ids.tolist() == [0, 2]
    assert cohort.weights @ [1.2, -0.7] == pytest.approx(0.657143, abs=1e-6)


def test_second_coordinate_c():
    """(c) v adds over coordinates; one coalition of all, and {1, 2}."""
    rule = FedCvrBolt()
    ids = np.arange(3)
    np.testing.assert_allclose(
        rule.value(state_of([C2]), ids), [0.1849, 0.140450, 0.1458], atol=1e-6
    )
    v = rule.value(state_of([C1, C2], np.tile(THETA, 2), np.tile(MEAN, 2)), ids)
    np.testing.assert_allclose(v, [2.0074, 1.485250, 0.4059], atol=1e-6)
    np.testing.assert_allclose(
        rule.probabilities(v, np.zeros(3, int)), [0.557153, 0.330528, 0.112319], atol=1e-6
    )
    np.testing.assert_allclose(
        rule.probabilities(v, np.array([0, 1, 1]))[1:], [0.746371, 0.253629], atol=1e-6
    )


@given(st.integers(0, 10**6), st.integers(2, 6))
def test_value_is_the_variance_that_knowing_a_client_removes(seed, K):
    """Proposition 1 with A = {k}: Var(glob) - E Var(glob | theta_k), the conditional covariance
    being C - c_k c_k^T / C_kk."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(2, K, K))
    c = factor @ factor.transpose(0, 2, 1) + 0.1 * np.eye(K)
    n = rng.integers(1, 9, K).astype(float)
    zero = np.zeros((K, 2))
    v = FedCvrBolt(ridge=0).value(state_of(c, zero, zero, n, label=(0,) * K), np.arange(K))
    a = n / n.sum()
    for k in range(K):
        left = c - c[:, :, [k]] * c[:, [k], :] / c[:, [k], [k]][:, None]
        assert v[k] == pytest.approx((a @ c @ a).sum() - (a @ left @ a).sum(), rel=1e-6, abs=1e-9)


# ---- the factor form against matrices ----


def dense_round(rule, c, theta, mean, labels, done, models, t, warm):
    """Steps 5 to 7 as they stand, with C [D', K, K]; ``done`` has at most one client per
    coalition."""
    width = len(c)
    new = theta.copy()
    thbar = theta.copy()
    new[done] = models
    thbar[:] = new
    spread = np.einsum("dkk->dk", c)
    spread = spread + rule.ridge * spread.mean(axis=1, keepdims=True)
    for j in done:
        thbar[j] = new[j] if rule.literal_means else mean[j]
        for k in np.flatnonzero(labels == labels[j]) if not warm else ():
            if k in done:
                continue
            for d in range(width):
                below = {
                    "pearson": math.sqrt(spread[d, k] * spread[d, j]),
                    "regression": spread[d, j],
                    "cosine": 1.0,
                }[rule.rho]
                above = c[d, k, j]
                if rule.rho == "cosine":
                    above = (
                        theta[k] @ theta[j] / np.linalg.norm(theta[k]) / np.linalg.norm(theta[j])
                    )
                thbar[k, d] = (above / below if below else 0.0) * new[j, d]
    e = new - thbar
    if rule.seen_mean == "last":
        thbar[done] = new[done]
    return (1 - 1 / t) * c + np.einsum("kd,jd->dkj", e, e) / t, new, thbar


@pytest.mark.parametrize(
    "rule",
    [
        FedCvrBolt(warm_up=4),
        FedCvrBolt(warm_up=4, rho="regression", similarity="gaussian"),
        FedCvrBolt(warm_up=4, rho="cosine", similarity="cosine"),
        FedCvrBolt(warm_up=4, literal_means=True, recluster_every=3),
        FedCvrBolt(warm_up=4, seen_mean="kept"),
        FedCvrBolt(warm_up=4, exact_up_to=20),
    ],
    ids=str,
)
def test_factor_form_equals_dense_form_at_100_clients(rule):
    """16 rounds of 10 from K = 100, D' = 4, some clients silent: means, C alpha, diag C, C and v
    agree to 1e-5. C(1) = 0: nobody is worth anything before the first round."""
    K = 100
    m = 10
    width = 4
    rng = np.random.default_rng(1)
    ids = 2 * np.arange(K)
    sizes = rng.integers(5, 50, K).astype(float)
    start = rng.normal(size=width)
    home = rng.normal(size=(5, width))[np.arange(K) % 5]
    selector = enrolled(rule, ids, start, sizes)
    assert not rule.value(selector.state, ids).any()
    c = np.zeros((width, K, K))
    theta = np.tile(start, (K, 1))
    mean = np.tile(start, (K, 1))
    t = 0
    for r in range(1, 17):
        cohort = np.sort(selector.select(r, ids, m).ids)
        labels = rule.labels(selector.state, m)
        silent = rng.random(m) < 0.1
        models = home[cohort // 2] * (1 + 0.05 * r) + 0.1 * rng.normal(size=(m, width))
        outcome = np.where(silent, Outcome.DROPPED, Outcome.ACCEPTED)
        report(selector, r, cohort, models, outcome.astype(np.int8))
        t += 1
        done = cohort[~silent] // 2
        c, theta, mean = dense_round(
            rule, c, theta, mean, labels, done, models[~silent], t, r <= rule.warm_up
        )
    state = selector.state
    assert state.rounds == t
    scale = np.abs(c).max()
    np.testing.assert_allclose(state.clients.columns["mean"], mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state.clients.columns["theta"], theta)
    np.testing.assert_allclose(
        state.clients.columns["variance"].T, np.einsum("dkk->dk", c), atol=1e-5 * scale
    )
    np.testing.assert_allclose(
        state.clients.columns["weighted"].T / sizes.sum(),
        c @ sizes / sizes.sum(),
        atol=1e-5 * scale,
    )
    if rule.rho == "cosine":
        assert state.innovations == ()
    else:
        np.testing.assert_allclose(covariance(state), c, atol=1e-5 * scale)
    spread = np.einsum("dkk->kd", c)
    ridge = spread + rule.ridge * spread.mean(axis=0)
    v = np.divide(
        (c @ sizes / sizes.sum()).T ** 2, ridge, out=np.zeros_like(ridge), where=ridge > 0
    ).sum(axis=1)
    np.testing.assert_allclose(rule.value(state, ids), v, rtol=1e-5, atol=1e-5 * v.max())


def blocks_of(rng, rounds, K, width, common=0.0):
    blocks = ()
    base = rng.normal(size=(3, K, width))
    for _ in range(rounds):
        e = np.einsum("i,ikd->kd", rng.normal(size=3), base) + common * rng.normal(size=(K, width))
        blocks = append(blocks, np.arange(K), e)
    return blocks


def test_paired_products_are_entries_of_the_sum():
    rng = np.random.default_rng(0)
    ids = np.arange(0, 900, 3)
    blocks = ()
    full = np.zeros((300, 2, 300))
    for share in (1.0, 0.1, 0.7, 0.02):
        e = rng.normal(size=(300, 2)) * (rng.random(300) < share)[:, None]
        blocks = append(blocks, ids, e)
        full += np.einsum("kd,jd->kdj", e, e)
    blocks = (*blocks, *append((), ids[:200], np.ones((200, 2))))  # of a time with fewer clients
    full[:200, :, :200] += 1
    assert [len(b[0]) < 300 for b in blocks] == [False, True, False, True, True]
    mate = rng.integers(0, 300, 300)
    expected = full[np.arange(300)[:, None], np.arange(2), mate[:, None]]
    np.testing.assert_allclose(
        paired_products(blocks, ids, mate, 2), expected, rtol=1e-5, atol=1e-5
    )
    assert append((), ids, np.zeros((300, 2))) == ()


@pytest.mark.parametrize("common", [0.0, 0.3])
def test_fold_loses_the_trace_it_reports_and_bounds_every_entry(common):
    """Three common directions in all: nothing is lost. With noise: trace and, for every entry,
    |error| <= sqrt(lost_kk lost_jj)."""
    K = 40
    width = 3
    blocks = blocks_of(np.random.default_rng(2), 16, K, width, common)
    size = sum(rows.nbytes for _, rows in blocks)
    same, none = fold(blocks, size)
    assert same is blocks
    assert none == 0.0
    folded, lost = fold(blocks, size - 1)
    assert len(folded) == 12
    before, after = (
        sum(np.einsum("kd,jd->dkj", r.astype(float), r.astype(float)) for _, r in b)
        for b in (blocks, folded)
    )
    error = before - after
    assert np.einsum("dkk->", error) == pytest.approx(lost, abs=1e-4 * np.einsum("dkk->", before))
    gone = np.maximum(np.einsum("dkk->dk", error), 0)
    assert (np.abs(error) <= np.sqrt(gone[:, :, None] * gone[:, None, :]) + 1e-3).all()
    assert (lost > 1) == (common > 0)


def test_memory_limit_holds_and_its_error_is_reported():
    K = 64
    width = 16
    ids = np.arange(64)
    rng = np.random.default_rng(0)
    block = K * width * 4
    rule = FedCvrBolt(warm_up=1, memory_mb=12 * block / 2**20)
    selector = enrolled(rule, ids, np.ones(width))
    whole = enrolled(FedCvrBolt(warm_up=1), ids, np.ones(width))
    for t in range(1, 40):
        who = np.sort(whole.select(t, ids, 8).ids)
        models = rng.normal(size=(8, width))
        for each in (selector, whole):
            report(each, t, who, models)
        assert sum(rows.nbytes for _, rows in selector.state.innovations) <= 13 * block
    notes = selector.select(40, ids, 8).notes
    assert 0 < notes["folded"] < 1
    assert whole.select(40, ids, 8).notes["folded"] == 0
    kept = np.einsum("dkk->", covariance(selector.state))
    assert 1 - kept / selector.state.clients.columns["variance"].sum() == pytest.approx(
        notes["folded"], abs=1e-5
    )


# ---- traps ----


def test_a_chosen_clients_innovation_is_not_zero():
    """Algorithm 1 line 13 read literally sets the mean of a chosen client to itself: its variance
    decays to 0 and it is never worth choosing again. By default C_00 is the mean of (1 - 0)^2 and
    zeros, the plain mean of its innovations."""
    plain, literal = (
        enrolled(FedCvrBolt(warm_up=99, literal_means=flag), np.arange(3), np.zeros(1))
        for flag in (False, True)
    )
    for t in range(1, 11):
        for selector in (plain, literal):
            report(selector, t, [0], [[1.0]])
    assert plain.state.clients.columns["variance"][:, 0].tolist() == pytest.approx([0.1, 0.0, 0.0])
    assert literal.state.clients.columns["variance"][:, 0].tolist() == [0.0, 0.0, 0.0]


def test_the_mean_of_a_client_seen_in_successive_rounds():
    """A client starts at theta(1) = 0 and reports 10 in every round. Innovations with the mean
    kept: 10, 10, 10, so C = 100 for ever. With its last model as its mean: 10, 0, 0, so C = 100 /
    t, 33.3 after three rounds. In one coalition beside a client that was never worth anything (v =
    0, of equal size, so alpha = 1 / 2 and v_0 = (C_00 / 2)^2 / C_00 = C_00 / 4), it is drawn with
    probability 1 / (1 + exp(-C_00 / 4)): 1 - 1.4e-11 kept, .99976 last; when both report a model
    that is 1 away instead of 10, C_00 = 1 and 1/3: .562 and .521."""
    for away, kept_p, last_p in ((10.0, 1 - 1.4e-11, 0.999759), (1.0, 0.562177, 0.520821)):
        for seen_mean, p in (("kept", kept_p), ("last", last_p)):
            rule = FedCvrBolt(warm_up=99, seen_mean=seen_mean)
            selector = enrolled(rule, np.arange(2), np.zeros(1))
            for t in range(1, 4):
                report(selector, t, [0], [[away]])
            variance = away**2 if seen_mean == "kept" else away**2 / 3
            assert selector.state.clients.columns["variance"][:, 0].tolist() == pytest.approx(
                [variance, 0.0]
            )
            got = rule.probabilities(rule.value(selector.state, np.arange(2)), np.zeros(2, int))
            assert got[0] == pytest.approx(p, abs=1e-6)


def test_a_client_seen_once_is_predicted_in_between_under_both_readings():
    """Seen in rounds 1 and 3: in round 2, a warm-up round, its mean becomes its own model, so that
    round 3 adds 0 under both."""
    for seen_mean in ("kept", "last"):
        selector = enrolled(FedCvrBolt(warm_up=99, seen_mean=seen_mean), np.arange(2), np.zeros(1))
        for t, who in enumerate((0, 1, 0), 1):
            report(selector, t, [who], [[10.0]])
        assert selector.state.clients.columns["variance"][:, 0].tolist() == pytest.approx(
            [100 / 3, 100 / 3]
        )


# ---- Proposition 1 for several clients ----


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ([0], 1.8225),
        ([1], 1.3448),
        ([2], 0.2601),
        ([0, 1], 1.9066),
        ([0, 2], 1.85424),
        ([1, 2], 1.466959),
        ([0, 1, 2], 1.944),
    ],
)
def test_explained_variance_of_cohorts_of_a(chosen, expected):
    """C alpha = (2.7, 1.64, .51), Var(glob) = 1.944. A = {0, 2}: C_AA = [[4, .5], [.5, 1]], its
    determinant 3.75, its inverse [[1, -.5], [-.5, 4]] / 3.75: (2.7^2 - 2 .5 2.7 .51 + 4 .51^2) /
    3.75 = 6.9534 / 3.75 = 1.85424. A = {0, 1}: inverse [[2, -2], [-2, 4]] / 4: (14.58 - 17.712 +
    10.7584) / 4 = 1.9066. A = {1, 2}: inverse [[1, -.2], [-.2, 2]] / 1.96: (2.6896 - .33456 +
    .5202) / 1.96 = 1.466959. One client: v_k. All: everything."""
    share = FedCvrBolt().explained(state_of([C1]), np.array(chosen))
    assert share * 1.944 == pytest.approx(expected, abs=2e-6)


def test_explained_variance_adds_over_coordinates():
    """The second coordinate alone: C alpha = (.43, .53, .27), Var = .215 + .159 + .054 = .428;
    client 0 explains .43^2 / 1 = .1849 of it. Both: (1.8225 + .1849) / (1.944 + .428)."""
    state = state_of([C1, C2], np.tile(THETA, 2), np.tile(MEAN, 2))
    assert FedCvrBolt().explained(state, np.array([0])) == pytest.approx(2.0074 / 2.372, abs=1e-6)


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 6))
def test_explained_variance_is_what_conditioning_removes(seed, K, m):
    """Var(glob) - E Var(glob | theta_A) with the conditional covariance C - C_A C_AA^-1 C_A^T, for
    any A and any sizes."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(2, K, K))
    c = factor @ factor.transpose(0, 2, 1) + 0.1 * np.eye(K)
    n = rng.integers(1, 9, K).astype(float)
    zero = np.zeros((K, 2))
    chosen = rng.permutation(K)[: min(m, K)]
    share = FedCvrBolt().explained(state_of(c, zero, zero, n, label=(0,) * K), chosen)
    a = n / n.sum()
    whole = 0.0
    left = 0.0
    for d in range(2):
        block = c[d][:, chosen]
        whole += a @ c[d] @ a
        left += a @ (c[d] - block @ np.linalg.solve(c[d][np.ix_(chosen, chosen)], block.T)) @ a
    assert share == pytest.approx(1 - left / whole, abs=1e-4)


def test_clients_that_say_the_same_are_no_more_than_one():
    """C_AA of two clients that always move together is singular; together they explain what one of
    them does. A client that never moved explains nothing, and nothing is explained before any
    round."""
    selector = enrolled(FedCvrBolt(warm_up=99), np.arange(4), np.zeros(1))
    assert selector.rule.explained(selector.state, np.arange(2)) == 0.0
    for t, x in enumerate((1.0, -2.0, 3.0), 1):
        report(selector, t, [0, 1, 2], [[x], [x], [x * x]])
    one, two, more = (
        selector.rule.explained(selector.state, np.array(ids)) for ids in ([0], [0, 1], [0, 1, 3])
    )
    assert 0 < one < 1
    assert two == pytest.approx(one, rel=1e-6)
    assert more == pytest.approx(one, rel=1e-6)


def test_cohorts_are_noted_beside_random_ones_and_chosen_as_without():
    rng = np.random.default_rng(3)
    models = None
    plain, noting = (
        enrolled(FedCvrBolt(warm_up=2, compare=r), np.arange(12), np.zeros(2)) for r in (0, 5)
    )
    for t in range(1, 6):
        cohorts = [selector.select(t, np.arange(12), 4) for selector in (plain, noting)]
        assert cohorts[0].ids.tolist() == cohorts[1].ids.tolist()
        assert "explained.cohort" not in cohorts[0].notes
        assert ("explained.cohort" in cohorts[1].notes) == (t > 2)
        models = rng.normal(size=(4, 2))
        for selector in (plain, noting):
            report(selector, t, cohorts[0].ids, models)
    notes = cohorts[1].notes
    assert 0 < notes["explained.random"] <= 1
    share = noting.rule.explained(noting.state, cohorts[1].ids)
    assert 0 < share <= 1


def test_an_unobserved_client_of_a_warm_up_round_has_no_innovation():
    selector = enrolled(FedCvrBolt(warm_up=5), np.arange(3), np.zeros(1))
    report(selector, 1, [0], [[2.0]])
    report(selector, 2, [1], [[3.0]])  # client 0 keeps 2 and is expected at 2
    assert selector.state.clients.columns["mean"][:, 0].tolist() == [2.0, 3.0, 0.0]
    assert covariance(selector.state)[0].tolist() == [
        [2.0, 0.0, 0.0],
        [0.0, 4.5, 0.0],
        [0.0, 0.0, 0.0],
    ]


def test_rho_is_of_the_covariance_before_the_update():
    """In (b), C after the update has rho_10 = 1.496360 / sqrt(3.0225 * 1.500589) = .702622: another
    mean."""
    assert observed(FedCvrBolt(warm_up=0)).clients.columns["mean"][1, 0] / 1.2 == pytest.approx(
        0.707107, abs=1e-6
    )


def test_a_coalition_whose_chosen_client_is_lost_learns_nothing():
    selector = Selector(FedCvrBolt(warm_up=0))
    selector.state = state_of([C1])
    report(
        selector, 4, [0, 2], [[9.0], [-0.7]], np.array([Outcome.LATE, Outcome.ACCEPTED], np.int8)
    )
    assert selector.state.clients.columns["theta"][:, 0].tolist() == [1.0, 0.8, -0.7]
    assert selector.state.clients.columns["mean"][:2, 0].tolist() == [1.0, 0.8]
    before = selector.state
    report(selector, 5, [0, 2], [[9.0], [9.0]], Outcome.DROPPED)
    assert selector.state is before


def test_no_variance_is_no_value_and_no_prediction():
    selector = enrolled(FedCvrBolt(warm_up=0), np.arange(4), np.ones(2))
    assert selector.rule.value(selector.state, np.arange(4)).tolist() == [0.0] * 4
    report(selector, 1, [0, 3], [[2.0, 1.0], [1.0, 3.0]])  # C(1) = 0: the others are predicted 0
    assert set(selector.state.clients.columns["mean"][1:3].ravel().tolist()) == {0.0}


# ---- as released ----

RELEASED = {
    "clustering": "scikit_learn",
    "rho": "cosine",
    "literal_means": True,
    "covariance": "ones",
    "step": "shifted",
}
PAIRS = np.array([[1, 0], [1.92, 0.56], [0, 1], [-0.28, 0.96]])
"""Models of two coalitions, {0, 1} and {2, 3}: cosines .96 within, at most .28 between."""


def after_warm_up(**options):
    """The rule after one random round in which all four clients sent ``PAIRS``."""
    selector = enrolled(FedCvrBolt(warm_up=1, **options), np.arange(4), np.ones(2))
    report(selector, 1, np.arange(4), PAIRS)
    return selector


def test_ones_at_the_start_make_the_first_draw_uniform_within_coalitions():
    """C = ones and alpha = 1/4: (C alpha)_k = 1, C_kk = 1, v_k = 1 + 1 for two coordinates."""
    selector = after_warm_up(**RELEASED)
    assert selector.state.rounds == 0
    np.testing.assert_allclose(selector.rule.value(selector.state, np.arange(4)), 2.0, rtol=1e-8)
    cohort = selector.select(2, np.arange(4), 2)
    assert cohort.probabilities.tolist() == [0.5] * 4
    assert sorted(k // 2 for k in cohort.ids.tolist()) == [0, 1]


@pytest.mark.parametrize(
    ("step", "variance", "value"),
    [
        (
            "shifted",
            [[0.5, 0.5], [0.5, 0.6568], [0.5, 0.5], [0.5392, 2.3432]],
            [1.0, 0.749487, 1.0, 0.773458],
        ),
        (
            "constant",
            [[0.99, 0.99], [0.99, 0.993136], [0.99, 0.99], [0.990784, 1.026864]],
            [1.98, 1.973082, 1.98, 1.956697],
        ),
    ],
)
def test_one_round_as_released(step, variance, value):
    """0 sends (2, 0) and 2 sends (0, 3). rho = .96: thbar_1 = (1.92, 0), e_1 = (0, .56); thbar_3 =
    (0, 2.88), e_3 = (-.28, -1.92); the chosen ones predict themselves, e_0 = e_2 = 0.

    shifted, g = 1/2: C^1 = .5 ones + .5 e e^T: C_11 = .5 + .3136 / 2, C_33 = .5 + 3.6864 / 2, C_13
    = .5 - 1.0752 / 2 = -.0376; C^0_33 = .5 + .0784 / 2. C^1 alpha = (.5, .4048, .5, .8264), and C^0
    alpha = (.5, .5, .5, .5098): v_1 = .5 + .4048^2 / .6568, v_3 = .5098^2 / .5392 + .8264^2 /
    2.3432.
    constant: the same with .99 and .01: v_1 = .99 + .988096^2 / .993136, v_3 = .990196^2 / .990784
    + .996528^2 / 1.026864."""
    selector = after_warm_up(**{**RELEASED, "step": step})
    report(selector, 2, [0, 2], [[2, 0], [0, 3]])
    ids = np.arange(4)
    np.testing.assert_allclose(selector.rule.variance(selector.state, ids), variance, atol=1e-12)
    np.testing.assert_allclose(selector.rule.value(selector.state, ids), value, atol=2e-6)


def test_a_later_weight_is_1_over_t_plus_2():
    """Round 3 with e = 0 for all but client 1 (its leader sends (1, 0) again: thbar_1 = .96 (1, 0),
    e_1 = (.96, .56); rho of (2, 0) is .96 as that of (1, 0)): g = 1/3."""
    selector = after_warm_up(**RELEASED)
    report(selector, 2, [0, 2], [[2, 0], [0, 3]])
    report(selector, 3, [0, 2], [[1, 0], [0, 1]])
    found = selector.rule.variance(selector.state, np.arange(4))
    assert found[1].tolist() == pytest.approx([(1 + 0.96**2) / 3, (1 + 2 * 0.56**2) / 3])
    assert found[0].tolist() == pytest.approx([1 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("rho", "expected"),
    # C^0_01 = (1 + 1 * -.08) / 2 = .46, C^0_00 = (1 + 1) / 2, C^0_11 = (1 + .0064) / 2
    [("pearson", 3 * 0.46 / math.sqrt(0.5032)), ("regression", 3 * 0.46)],
)
def test_correlations_of_a_covariance_that_starts_as_ones(rho, expected):
    """At C = ones rho = 1, thbar_1 = theta_0 = (2, 0): e_0 = (2 - 1, 0), e_1 = (-.08, .56). In the
    round after, 0 sends (3, 0), and thbar_1 = rho_10 3."""
    selector = after_warm_up(covariance="ones", step="shifted", rho=rho)
    report(selector, 2, [0, 2], [[2, 0], [0, 3]])
    report(selector, 3, [0, 2], [[3, 0], [0, 3]])
    assert selector.state.clients.columns["mean"][1, 0] == pytest.approx(expected, rel=1e-6)


def test_of_ones_one_client_explains_everything():
    """C = ones: all models are one number, known from any of them; after 1/t has learned once,
    nothing is left of it."""
    selector = after_warm_up(covariance="ones", step="shifted")
    assert selector.rule.explained(selector.state, np.array([3])) == pytest.approx(1.0)
    mean, plain = after_warm_up(covariance="ones"), after_warm_up()
    np.testing.assert_array_equal(
        mean.rule.value(mean.state, np.arange(4)), plain.rule.value(plain.state, np.arange(4))
    )


def test_scikit_learns_coalitions_are_its_own():
    from sklearn.cluster import SpectralClustering

    ids = np.arange(30)
    models = np.random.default_rng(0).normal(size=(30, 5))
    selector = enrolled(FedCvrBolt(warm_up=1, clustering="scikit_learn", g=2.0), ids, np.ones(5))
    report(selector, 1, ids, models)
    unit = models / np.linalg.norm(models, axis=1, keepdims=True)
    theirs = SpectralClustering(4, gamma=2.0, random_state=0).fit(unit).labels_
    ours = selector.rule.labels(selector.state, 4)
    assert len(set(zip(theirs.tolist(), ours.tolist(), strict=True))) == 4
    assert sorted(set(ours.tolist())) == [0, 1, 2, 3]


def test_equal_models_make_as_many_coalitions_as_are_wanted():
    """Where scikit-learn has fewer labels than clusters, the largest gives up half of its members;
    the released code would raise."""
    selector = enrolled(FedCvrBolt(warm_up=1, **RELEASED), np.arange(12), np.ones(2))
    report(selector, 1, np.arange(12), np.tile([1.0, 2.0], (12, 1)))
    assert sorted(set(selector.rule.labels(selector.state, 5).tolist())) == [0, 1, 2, 3, 4]
    assert len(selector.select(2, np.arange(12), 5).ids) == 5


def test_coordinates_among_the_last_numbers_of_the_layer():
    rule = FedCvrBolt(whole=0, coordinates=5, among=5)
    selector = enrolled(rule, np.arange(2), np.arange(60.0))
    assert selector.state.initial.tolist() == [55.0, 56, 57, 58, 59]
    drawn = enrolled(dataclasses.replace(rule, among=20), np.arange(2), np.arange(60.0))
    assert len(drawn.state.initial) == 5
    assert min(drawn.state.initial) >= 40


# ---- what must hold ----


def planted(K, seed=0, width=6):
    rng = np.random.default_rng(seed)
    return np.where(np.arange(K)[:, None] % 2, 1.0, -1.0) * np.linspace(
        1, 2, width
    ) + 0.1 * rng.normal(size=(K, width))


@pytest.mark.parametrize("similar", ["gaussian_normalised", "gaussian", "cosine"])
@pytest.mark.parametrize("exact_up_to", [1000, 10])
def test_two_planted_groups_are_recovered(similar, exact_up_to):
    rule = FedCvrBolt(similarity=similar, warm_up=1, exact_up_to=exact_up_to, landmarks=15)
    ids = np.arange(60)
    selector = enrolled(rule, ids, np.ones(6))
    report(selector, 1, ids, planted(60))
    labels = rule.labels(selector.state, 2)
    assert (labels == labels[ids % 2]).all()
    assert labels[0] != labels[1]
    for seed in range(30):
        assert sorted(rule.select(selector.state, context(2, ids, 2, seed)).ids % 2) == [0, 1]


def test_models_are_compared_by_direction_by_default():
    """Models (1, 0), (10, 0), (0, 1), (10, 1): the short lie together, and the long; by direction
    (0, 1) is alone."""
    for similar, mate in (("gaussian_normalised", 1), ("cosine", 1), ("gaussian", 2)):
        rule = FedCvrBolt(similarity=similar, warm_up=1)
        selector = enrolled(rule, np.arange(4), np.ones(2))
        report(selector, 1, np.arange(4), [[1, 0], [10, 0], [0, 1], [10, 1]])
        labels = rule.labels(selector.state, 2)
        assert labels[0] == labels[mate]
        assert labels[0] != labels[3 - mate]


def context(t, ids, m, seed=0):
    return SelectionContext(t, 0, np.asarray(ids), m, Key(seed).fold("select", t).numpy(), t)


def test_one_client_per_coalition_and_beta_0_is_uniform_within():
    """24 available of 40 clients, 6 coalitions; 600 draws within 4.5 standard errors of 1 /
    size."""
    rule = FedCvrBolt(warm_up=1, beta=0)
    ids = np.arange(40)
    there = np.arange(0, 40, 5)
    selector = enrolled(rule, ids, np.ones(6))
    report(selector, 1, ids, planted(40))
    there = np.setdiff1d(ids, there)[:24]
    kept = rule.labels(selector.state, 6)
    clients = selector.state.clients.put(ids, {"label": kept})
    selector.state = dataclasses.replace(selector.state, clients=clients, coalitions=6)
    group = fill_empty(kept[there], 6)
    counts = np.zeros(len(there))
    n = 600
    for seed in range(n):
        chosen = np.searchsorted(there, rule.select(selector.state, context(2, there, 6, seed)).ids)
        assert sorted(group[chosen].tolist()) == list(range(6))
        counts[chosen] += 1
    p = 1 / np.bincount(group)[group]
    assert (abs(counts / n - p) <= 4.5 * np.sqrt(p * (1 - p) / n) + 1e-9).all()


@pytest.mark.parametrize(("rule", "rounds"), [(FedCvrBolt(warm_up=2), 2), (FedCvrBolt(), 30)])
def test_warm_up_is_uniform_and_then_clusters_are_ready(rule, rounds):
    """30 rounds where nothing else is said: 3 of 6 clients with probability 1/2 each."""
    selector = enrolled(rule, np.arange(6), np.ones(2))
    for t in range(1, rounds + 1):
        assert selector.state.coalitions == 0
        cohort = selector.select(t, np.arange(6), 3)
        assert cohort.notes["cv_probability"] == 0
        assert cohort.notes["max_probability"] == 0.5
        report(selector, t, cohort.ids, np.eye(3, 2) + 1)
    assert selector.state.coalitions == 3


def test_recluster_every_keeps_the_coalitions():
    rng = np.random.default_rng(0)
    ids = np.arange(20)
    selector = enrolled(FedCvrBolt(warm_up=1, recluster_every=3), ids, np.ones(4))
    seen = []
    for t in range(1, 9):
        who = np.sort(selector.select(t, ids, 5).ids)
        report(selector, t, who, rng.normal(size=(5, 4)))
        seen.append(selector.state.clients.get("label", ids).tolist())
    changed = [t for t in range(2, 9) if seen[t - 1] != seen[t - 2]]
    assert set(changed) <= {4, 7}
    assert changed


def test_the_nearest_of_several_observed_clients_predicts():
    """Only {0, 1, 2} of four are there and m = 2, so a coalition may give two clients; who is
    unobserved follows the nearer."""
    selector = Selector(FedCvrBolt(warm_up=0, rho="cosine"))
    theta = np.array([[1.0, 0], [0, 1], [0.1, 1], [1, 0.1]])
    selector.state = state_of([np.eye(4)] * 2, theta, theta, np.ones(4), label=(0, 0, 0, 1))
    report(selector, 4, [0, 1], [[2.0, 0], [0, 3]])
    assert selector.state.clients.columns["mean"][2, 1] == pytest.approx(3 * 1 / math.sqrt(1.01))
    # nobody of its coalition was observed
    assert selector.state.clients.columns["mean"][3].tolist() == [1, 0.1]


def test_coordinates_are_drawn_once_from_layers_that_are_too_large():
    rule = FedCvrBolt(whole=50, coordinates=20)
    selector = enrolled(rule, np.arange(2), np.arange(60.0))
    chosen = selector.state.initial
    assert len(set(chosen.tolist())) == 20
    report(selector, 1, [1], [np.arange(60.0) + 100])
    assert (selector.state.clients.columns["theta"][1] == chosen + 100).all()
    other = enrolled(dataclasses.replace(rule, key=1), np.arange(2), np.arange(60.0)).state.initial
    assert not np.array_equal(chosen, other)
    assert len(enrolled(rule, np.arange(2), np.arange(50.0)).state.initial) == 50
    assert len(enrolled(FedCvrBolt(), np.arange(2), np.zeros(2010)).state.initial) == 2010
    assert len(enrolled(FedCvrBolt(), np.arange(2), np.zeros(2011)).state.initial) == 300
    with pytest.raises(ContractError, match="last_layer has 10 coordinates in round 2, 20 before"):
        report(selector, 2, [0], [np.ones(10)])


def test_without_an_initial_model_the_first_reports_stand_for_it():
    selector = Selector(FedCvrBolt(warm_up=1))
    report(selector, 1, [4, 7], [[1.0], [3.0]])
    assert selector.state.initial.tolist() == [2.0]
    assert selector.state.clients.columns["variance"][:, 0].tolist() == [1.0, 1.0]
    assert len(selector.select(2, [4, 5, 7], 3).ids) == 3  # 5 is new, and starts there too


def test_a_diverging_run_stays_finite():
    selector = enrolled(FedCvrBolt(warm_up=1), np.arange(6), np.zeros(3))
    ids = np.arange(6)
    for t in range(1, 6):
        cohort = selector.select(t, ids, 2)
        assert np.isfinite(list(cohort.notes.values())).all()
        report(selector, t, np.sort(cohort.ids), np.full((2, 3), 10.0 ** (60 * t)) * [[1], [-1]])
    assert all(np.isfinite(column).all() for column in selector.state.clients.columns.values())


def test_needs_and_provides():
    rule = FedCvrBolt()
    assert rule.needs().enrolled == {"num_examples", "last_layer"}
    assert rule.needs().reported == {"last_layer"}
    assert not rule.needs().probed
    assert rule.provides() == {"weights"}
    assert rule.single_signals == ("last_layer",)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"g": 0.0}, "got g = 0.0; expected a positive number"),
        ({"beta": -1.0}, "got beta = -1.0; expected at least 0"),
        ({"ridge": -1.0}, "got ridge"),
        ({"memory_mb": 0.0}, "got memory_mb"),
        ({"warm_up": -1}, "got warm_up = -1"),
        ({"compare": -1}, "got compare = -1"),
        ({"among": -1}, "among = -1; expected numbers of at least 0"),
        ({"among": 7}, "got among = 7; expected at least coordinates = 300"),
        ({"step": "constant"}, "got step = 'constant' with rho = 'pearson', .* set rho = 'cosine'"),
        (
            {"clustering": "scikit_learn", "similarity": "cosine"},
            "got clustering = 'scikit_learn' with similarity = 'cosine'",
        ),
        ({"compare": 2, "rho": "cosine"}, "got compare = 2 with rho = 'cosine'"),
        ({"literal_means": True, "seen_mean": "kept"}, "got literal_means with seen_mean = 'kept'"),
        ({"seen_mean": "latest"}, "selector.seen_mean: got 'latest'"),
        ({"recluster_every": 0}, "got recluster_every = 0"),
        ({"rho": "spearman"}, "selector.rho: got 'spearman'"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "fedcvr_bolt", **record})
