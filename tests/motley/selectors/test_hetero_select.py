"""HeteRo-Select v2: the worked numbers of ``motley.selectors.hetero_select`` (a, b, c) as far as
scores, choice and weights go, and what must hold."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.hetero_select import (
    HeteroSelect,
    HeteroSelectState,
    cosine_distance,
    score_weights,
)
from motley.selectors.selector import Selector

IDS = np.arange(4)
T = 100
A_LOSS = (2, 1.5, 1, 0.5)
A_D = np.array([0.6, 0.2, 0.5, 0.9])
A_COUNT = (3, 2, 2, 1)
A_LAST = (19, 15, 10, 4)
A_S = np.array([1, 0.508505, 0.142452, 0])
A_P = np.array([0.435912, 0.252481, 0.168108, 0.143499])


def state_a():
    """The state of (a): all ways to know a direction say D = (.6, .2, .5, .9). A sketch of length 1
    whose first entry is 1 - D has that cosine with (1, 0)."""
    columns = {"loss": A_LOSS, "count": A_COUNT, "last": A_LAST, "now": 1 - A_D, "cosine": 1 - A_D}
    empty = HeteroSelectState()
    sketch = np.stack([1 - A_D, np.sqrt(1 - (1 - A_D) ** 2)], axis=1)
    return HeteroSelectState(
        empty.clients.put(IDS, columns),
        empty.uploads.put(IDS, {"sketch": sketch}),
        np.array([7.0, 0.0]),
    )


def selector_of(rule, state=None, seed=0):
    selector = Selector(rule, seed, T)
    selector.state = state or selector.state
    return selector


def probe(selector, t, losses, ids=IDS, **signals):
    signals = {
        name: np.asarray(value, float) for name, value in {"loss": losses, **signals}.items()
    }
    selector.observe(t, Reports(np.asarray(ids), Outcome.PROBED, signals=signals))


def accept(selector, t, ids, outcome=Outcome.ACCEPTED, **signals):
    signals = {name: np.asarray(value, float) for name, value in signals.items()}
    selector.observe(t, Reports(np.asarray(ids), outcome, signals=signals))


@pytest.mark.parametrize("direction", ["exact", "cosine", "sketch"])
def test_worked_a(direction):
    rule = HeteroSelect(direction)
    parts = rule.components(state_a(), 20, IDS)
    np.testing.assert_allclose(parts.value, (1, 0.666667, 0.333333, 0), atol=6e-7)
    np.testing.assert_allclose(parts.direction, A_D, atol=1e-12)
    np.testing.assert_allclose(parts.fairness, (-0.5, 0, 0, 0.5), atol=1e-12)
    np.testing.assert_allclose(parts.staleness, (0, 0.513354, 0.796587, 1), atol=6e-7)
    raw = np.array(parts).T @ rule.weights
    np.testing.assert_allclose(raw, (1.08, 0.829338, 0.642651, 0.57), atol=6e-7)
    np.testing.assert_allclose(rule.scores(rule.components(state_a(), 20, IDS)), A_S, atol=6e-7)
    cohort = selector_of(rule, state_a()).select(20, IDS, 4)
    assert cohort.notes["tau"] == pytest.approx(0.9)
    assert cohort.notes["max_probability"] == pytest.approx(A_P.max(), abs=6e-7)
    assert cohort.notes["cv_probability"] == pytest.approx(A_P.std() / A_P.mean(), abs=1e-5)
    # of the four rows above, before weights
    means = {"value": 0.5, "direction": 0.55, "fairness": 0.0, "staleness": 0.577485}
    assert {name: cohort.notes[f"component.{name}"] for name in means} == pytest.approx(
        means, abs=6e-7
    )
    np.testing.assert_allclose(cohort.scores, A_S[cohort.ids], atol=6e-7)
    np.testing.assert_allclose(cohort.weights, (A_S / A_S.sum())[cohort.ids], atol=6e-7)


def cohort_of_a(rule=None, wanted=(0, 1, 3)):
    """A draw of (a) in which exactly these were chosen."""
    selector = selector_of(rule or HeteroSelect(), state_a())
    draws = (selector.select(20, IDS, len(wanted), dispatch=d) for d in range(200))
    return next(cohort for cohort in draws if set(cohort.ids.tolist()) == set(wanted))


def test_worked_a_weights_of_a_cohort():
    """{0, 1, 3} chosen: (.662908, .337092, 0). Scores made anew among the three would give client 1
    another weight; client 3, the lowest of the four, weighs nothing."""
    cohort = cohort_of_a()
    order = np.argsort(cohort.ids)
    np.testing.assert_allclose(cohort.weights[order], (0.662908, 0.337092, 0), atol=6e-7)
    np.testing.assert_allclose(cohort.scores[order], A_S[[0, 1, 3]], atol=6e-7)
    assert cohort.lr_scale is None


def test_worked_b_weights():
    """S = (1, 0, .5): shares of 1.5. S = (0, 0, 0): uniform."""
    np.testing.assert_allclose(score_weights(np.array([1, 0, 0.5])), (2 / 3, 0, 1 / 3))
    np.testing.assert_allclose(score_weights(np.zeros(3)), 1 / 3)


def test_the_lowest_score_alone_still_has_a_weight():
    """Of (a) client 3 alone: its S is 0, so the cohort's sum is 0 and its weight 1."""
    cohort = cohort_of_a(wanted=(3,))
    assert (cohort.scores.tolist(), cohort.weights.tolist()) == ([0.0], [1.0])


@pytest.mark.parametrize("direction", ["exact", "cosine", "sketch"])
def test_worked_c_cold_start(direction):
    selector = selector_of(HeteroSelect(direction))
    assert selector.probe(1, IDS, 2).tolist() == [0, 1, 2, 3]
    probe(selector, 1, (2.4, 2.2, 2.3, 2.3))
    np.testing.assert_allclose(selector.rule.components(selector.state, 1, IDS).direction, 0.5)
    cohort = selector.select(1, IDS, 4)
    np.testing.assert_allclose(cohort.scores, np.array([1, 0, 0.5, 0.5])[cohort.ids], atol=1e-6)
    p = np.array([0.388191, 0.142092, 0.234859, 0.234859])
    assert cohort.notes["tau"] == pytest.approx(0.995)
    assert cohort.notes["cv_probability"] == pytest.approx(p.std() / p.mean(), abs=1e-5)
    counts = np.zeros(4)
    n = 2000
    for dispatch in range(n):
        counts[selector.select(1, IDS, 1, dispatch=dispatch).ids] += 1
    assert (abs(counts / n - p) < 4.5 * np.sqrt(p * (1 - p) / n)).all()


def test_worked_c_running_mean_of_the_server_step():
    """(a)'s cohort {0, 1, 3} sends (1,0,0,-2), (0,1,0,0), (4,0,2,0): the mean is (.662908, .337092,
    0, -1.325816), the third is discarded. By hand for the second step: client 0 alone sends
    (0,0,3,0), so the mean becomes 0.9 (.662908, .337092, 0, -1.325816) + 0.1 (0,0,3,0) = (.596617,
    .303383, .3, -1.193234)."""
    empty = HeteroSelectState()
    selector = selector_of(
        HeteroSelect("sketch"),
        dataclasses.replace(empty, clients=empty.clients.put(IDS, {"score": A_S})),
    )
    accept(selector, 20, [0, 1, 3], sketch=[[1, 0, 0, -2], [0, 1, 0, 0], [4, 0, 2, 0]])
    np.testing.assert_allclose(selector.state.mean, (0.662908, 0.337092, 0, -1.325816), atol=1e-6)
    accept(selector, 21, [0], sketch=[[0, 0, 3, 0]])
    np.testing.assert_allclose(selector.state.mean, (0.596617, 0.303383, 0.3, -1.193234), atol=1e-6)


def test_the_running_mean_takes_the_scores_of_the_choice():
    """The whole way: losses of round 1 give S = (1, 0, .5, .5); clients 0, 2, 3 send unit vectors,
    so the mean is (.5, .25, .25). Scores recomputed after the step (counts moved: F of 0, 2, 3
    falls below that of 1) or plain weights would give another."""
    selector = selector_of(HeteroSelect("sketch"))
    probe(selector, 1, (2.4, 2.2, 2.3, 2.3))
    cohort = selector.select(1, IDS, 4)
    scores = dict(zip(cohort.ids.tolist(), cohort.scores.tolist(), strict=True))
    accept(selector, 1, [0, 2, 3], sketch=np.eye(3))
    np.testing.assert_allclose(selector.state.mean, (0.5, 0.25, 0.25), atol=1e-6)
    total = scores[0] + scores[2] + scores[3]
    np.testing.assert_allclose(
        selector.state.mean, [scores[k] / total for k in (0, 2, 3)], rtol=1e-12
    )


def test_worked_c_directions():
    """D of (1,2,0) against (2,1,1) is 1 - 4 / sqrt(30) = .269703; of (-1,-2,0) it is clipped to
    1."""
    selector = selector_of(
        HeteroSelect("sketch"), dataclasses.replace(HeteroSelectState(), mean=np.array([2.0, 1, 1]))
    )
    accept(selector, 1, [0, 1], sketch=[[1, 2, 0], [-1, -2, 0]])
    state = dataclasses.replace(selector.state, mean=np.array([2.0, 1, 1]))
    np.testing.assert_allclose(
        selector.rule.components(state, 2, IDS).direction, (0.269703, 1, 0.5, 0.5), atol=5e-7
    )
    cosine = 4 / np.sqrt(30)
    np.testing.assert_allclose(
        cosine_distance(np.array([cosine, -cosine, np.nan, 1.5])), (0.269703, 1, 0.5, 0), atol=5e-7
    )


def test_a_sketch_follows_the_mean_and_a_cosine_stays():
    """Client 0 sends (1,0) in round 1, client 1 sends (0,1) in rounds 2 to 30: D of client 0 rises
    towards 1 without a new upload. The cosine told once, .9, gives D = .1 for good."""
    moving = selector_of(HeteroSelect("sketch"))
    still = selector_of(HeteroSelect("cosine"))
    accept(moving, 1, [0], sketch=[[1, 0]])
    accept(still, 1, [0], cosine=[0.9])
    before = moving.rule.components(moving.state, 2, IDS).direction[0]
    for t in range(2, 31):
        accept(moving, t, [1], sketch=[[0, 1]])
        accept(still, t, [1], cosine=[0.2])
    assert before == pytest.approx(0.0, abs=1e-12)
    # the mean is (.9^29, 1 - .9^29) = (.047101, .952899): cos = .047101 / .954062 = .049369
    assert moving.rule.components(moving.state, 31, IDS).direction[0] == pytest.approx(
        0.950631, abs=1e-6
    )
    np.testing.assert_allclose(
        still.rule.components(still.state, 31, IDS).direction, (0.1, 0.8, 0.5, 0.5), atol=1e-12
    )


def test_the_exact_direction_is_that_of_the_last_choice():
    """Cosines (.6, 0, .5, none) give D = (.4, 1, .5, .5); told anew for the first two, (-.2, .25),
    the others keep theirs."""
    selector = selector_of(HeteroSelect())
    probe(selector, 2, (1, 1, 1, 1), last_update_cosine=[0.6, 0.0, 0.5, np.nan])
    np.testing.assert_allclose(
        selector.rule.components(selector.state, 2, IDS).direction, (0.4, 1, 0.5, 0.5)
    )
    accept(selector, 2, [0], cosine=[0.9])  # the cheap form, nobody looks at it
    probe(selector, 3, (1, 1), IDS[:2], last_update_cosine=[-0.2, 0.25])
    np.testing.assert_allclose(
        selector.rule.components(selector.state, 3, IDS).direction, (1, 0.75, 0.5, 0.5)
    )


def test_the_forms_of_the_direction_beside_each_other():
    """Three clients with an update. D exact (.4, 1, .5): ranks 1, 3, 2. D frozen (.1, .2, .3):
    ranks 1, 2, 3, differences 0, 1, -1, so Spearman 1 - 6 (1 + 1) / (3 * 8) = .5. Staleness: quiet
    for 3, 1, 2 rounds, ranks 3, 1, 2: -1. Client 3 has none."""
    selector = selector_of(HeteroSelect(compare_directions=True))
    for t, client, cosine in ((1, 0, 0.9), (2, 2, 0.7), (3, 1, 0.8)):
        accept(selector, t, [client], cosine=[cosine], sketch=[[1.0, t]])
    probe(selector, 4, (1, 2, 3, 4), last_update_cosine=[0.6, 0.0, 0.5, np.nan])
    notes = selector.select(4, IDS, 2).notes
    assert notes["direction.exact"] == pytest.approx((0.4 + 1 + 0.5) / 3)
    assert notes["direction.cosine"] == pytest.approx(0.2)
    assert notes["direction.spread_exact"] == pytest.approx(np.std([0.4, 1, 0.5]))
    assert notes["direction.rank_cosine"] == pytest.approx(0.5)
    assert notes["direction.rank_staleness"] == pytest.approx(-1)
    plain = selector_of(HeteroSelect(), selector.state).select(4, IDS, 2)
    assert not [name for name in plain.notes if name.startswith("direction.")]
    assert plain.ids.tolist() == selector.select(4, IDS, 2).ids.tolist()
    # all at the clip: no correlation
    probe(selector, 5, (1, 2, 3, 4), last_update_cosine=[-1, -1, -1, np.nan])
    assert "direction.rank_cosine" not in selector.select(5, IDS, 2).notes


def test_available_only():
    """Minima, maxima and means run over the available: of (a) without client 3, L in (1, 2), h mean
    7 / 3, quiet in (1, 10)."""
    parts = HeteroSelect().components(state_a(), 20, IDS[:3])
    np.testing.assert_allclose(parts.value, (1, 0.5, 0), atol=1e-7)
    np.testing.assert_allclose(parts.fairness, (1 - 9 / 7, 1 / 7, 1 / 7), atol=1e-12)
    # log 2, log 6, log 11: (log 6 - log 2) / (log 11 - log 2) = 1.098612 / 1.704748 = .644442
    np.testing.assert_allclose(parts.staleness, (0, 0.644442, 1), atol=1e-6)
    for direction in ("exact", "cosine", "sketch"):
        some = HeteroSelect(direction).components(state_a(), 20, np.array([1, 3, 77]))
        np.testing.assert_allclose(some.direction, (0.2, 0.9, 0.5), atol=1e-12)


def test_fairness_is_clipped():
    """h = (9, 1, 1, 1), mean 3: 1 - 9 / 3 = -2 counts as -1, and 1 - 1 / 3 = 2/3."""
    state = HeteroSelectState()
    state = dataclasses.replace(state, clients=state.clients.put(IDS, {"count": (9, 1, 1, 1)}))
    fairness = HeteroSelect().components(state, 20, IDS).fairness
    np.testing.assert_allclose(fairness, (-1, 2 / 3, 2 / 3, 2 / 3), rtol=1e-12)


def test_staleness_is_bounded_and_its_half_cancels():
    state = HeteroSelectState()
    state = dataclasses.replace(state, clients=state.clients.put([0, 1], {"last": [99_999.0, 0.0]}))
    np.testing.assert_allclose(
        HeteroSelect().components(state, 100_000, np.array([0, 1])).staleness, (0, 1)
    )
    np.testing.assert_allclose(HeteroSelect().components(HeteroSelectState(), 7, IDS).staleness, 0)


def test_temperature_halves_by_the_horizon_and_stays():
    selector = selector_of(HeteroSelect(tau0=3.0), state_a())
    taus = [selector.select(t, IDS, 1).notes["tau"] for t in (1, 50, 100, 500)]
    assert taus == pytest.approx([2.985, 2.25, 1.5, 1.5])


def test_temperature_follows_the_horizon():
    """T = 40: round 10 is a quarter of the way."""
    selector = Selector(HeteroSelect(), 0, horizon=40)
    assert [selector.select(t, IDS, 1).notes["tau"] for t in (10, 40, 70)] == [0.875, 0.5, 0.5]


def test_the_draw_is_tempered():
    """S = (1, 0, .5, .5), tau = .2 (1 - .005) = .199: weights e^(S / .199) = (152.2, 1, 12.34,
    12.34), p_0 = .8557."""
    selector = selector_of(HeteroSelect(tau0=0.2))
    n = 1500
    probe(selector, 1, (2.4, 2.2, 2.3, 2.3))
    p = selector.select(1, IDS, 1).notes["max_probability"]
    assert p == pytest.approx(0.8557, abs=1e-4)
    first = [selector.select(1, IDS, 1, dispatch=d).ids[0] == 0 for d in range(n)]
    assert abs(np.mean(first) - p) < 4.5 * np.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize(("published", "equal"), [("text", 0.5), ("code", 1.0)])
def test_equal_scores(published, equal):
    rule = HeteroSelect(as_published=published, lr="score_adaptive")
    selector = selector_of(rule)
    probe(selector, 1, (2.0, 2.0, 2.0, 2.0))
    cohort = selector.select(1, IDS, 2)
    assert cohort.scores.tolist() == [equal, equal]
    assert cohort.weights.tolist() == [0.5, 0.5]
    assert cohort.lr_scale.tolist() == [1 + equal, 1 + equal]
    assert cohort.notes["cv_probability"] == pytest.approx(0.0, abs=1e-12)


def test_score_adaptive_rate_is_one_plus_the_score():
    cohort = cohort_of_a(HeteroSelect(lr="score_adaptive"))
    np.testing.assert_array_equal(cohort.lr_scale, 1 + cohort.scores)


@pytest.mark.parametrize("direction", ["cosine", "sketch"])
def test_a_late_client_only_counts_as_selected(direction):
    selector = selector_of(HeteroSelect(direction))
    accept(selector, 3, [0, 1], **{direction: [0.3, 0.4] if direction == "cosine" else np.eye(2)})
    before = selector.state
    for t, outcome in enumerate((Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED), start=4):
        accept(
            selector,
            t,
            [0],
            outcome,
            **{direction: [0.9] if direction == "cosine" else [[3.0, 3.0]]},
        )
    after = selector.state
    assert after.clients.get("count", [0, 1]).tolist() == [4.0, 1.0]
    assert after.clients.get("last", [0, 1]).tolist() == [3.0, 3.0]
    np.testing.assert_array_equal(
        after.clients.get("cosine", [0, 1]), before.clients.get("cosine", [0, 1])
    )
    np.testing.assert_array_equal(after.mean, before.mean)
    np.testing.assert_array_equal(
        after.uploads.get("sketch", [0, 1]), before.uploads.get("sketch", [0, 1])
    )


def test_an_update_without_a_direction_leaves_the_old_one():
    selector = selector_of(HeteroSelect("sketch"))
    accept(selector, 1, [0, 1], sketch=[[1.0, 0.0], [0.0, 2.0]])
    # zeros count in the mean, a NaN row does not
    accept(selector, 2, [0, 1], sketch=[[0.0, 0.0], [np.nan, 1.0]])
    np.testing.assert_allclose(selector.state.uploads.get("sketch", [0, 1]), [[1, 0], [0, 1]])
    np.testing.assert_allclose(selector.state.mean, (0.9 * 0.5, 0.9 * 1.0))
    # a run that diverges: no warning, no infinity
    accept(selector, 3, [2], sketch=[[1e300, -1e300]])
    assert np.isfinite(selector.state.mean).all()
    np.testing.assert_allclose(
        selector.state.uploads.get("sketch", [2]), [[np.sqrt(0.5), -np.sqrt(0.5)]]
    )
    cosine = selector_of(HeteroSelect("cosine"))
    accept(cosine, 1, [0], cosine=[0.25])
    accept(cosine, 2, [0], cosine=[np.inf])
    assert cosine.state.clients.get("cosine", [0])[0] == 0.25


def test_without_any_loss_and_with_some():
    """Nobody told a loss: V = 0. One did not: it has the mean V of the others, (1 + 0 + .5) / 3."""
    rule = HeteroSelect()
    np.testing.assert_array_equal(rule.components(rule.init(), 1, IDS).value, 0)
    selector = selector_of(rule)
    probe(selector, 1, (3.0, 1.0, 2.0, np.nan))
    np.testing.assert_allclose(
        rule.components(selector.state, 1, IDS).value, (1, 0, 0.5, 0.5), atol=1e-7
    )


def test_losses_at_the_ends_of_the_floats():
    """max - min would overflow: V is still (1, 0, .5)."""
    selector = selector_of(HeteroSelect())
    probe(selector, 1, (1.7e308, -1.7e308, 0.0), IDS[:3])
    np.testing.assert_allclose(
        selector.rule.components(selector.state, 1, IDS[:3]).value, (1, 0, 0.5)
    )


def test_terms_can_be_left_out():
    """Only V: S = V's own minmax, (1, 2/3, 1/3, 0); nothing is reported then."""
    rule = HeteroSelect("sketch", w_direction=0, w_fairness=0, w_staleness=0)
    np.testing.assert_allclose(
        rule.scores(rule.components(state_a(), 20, IDS)), (1, 2 / 3, 1 / 3, 0), atol=1e-7
    )
    assert rule.needs().reported == frozenset()
    selector = selector_of(rule)
    probe(selector, 1, A_LOSS)
    accept(selector, 1, [0, 1], sketch=np.eye(2))
    assert len(selector.state.uploads) == 0
    assert "score" not in selector.state.clients.columns


def test_nobody_is_probed_for_a_term_that_is_left_out():
    rule = HeteroSelect("cosine", w_value=0)
    assert not rule.needs().probed
    assert not len(selector_of(rule).probe(1, IDS, 2))
    assert len(selector_of(rule).select(1, IDS, 2).ids) == 2
    assert not HeteroSelect(w_value=0, w_direction=0).needs().probed
    # which the server knows
    assert HeteroSelect(w_value=0).needs().probed == {"last_update_cosine": None}
    # the scores of the choice weigh the running mean
    assert HeteroSelect("sketch", w_value=0).needs().probed == {"loss": 8}


def test_needs_follow_the_direction():
    assert HeteroSelect().needs().reported == frozenset()
    assert HeteroSelect("cosine").needs().reported == frozenset({"cosine"})
    assert HeteroSelect("sketch", probe_batches=3).needs().reported == frozenset({"sketch"})
    assert HeteroSelect("cosine", probe_batches=3).needs().probed == {"loss": 3}
    assert HeteroSelect(probe_batches=3).needs().probed == {"loss": 3, "last_update_cosine": None}
    with pytest.raises(ConfigError, match="must know it"):
        Selector(HeteroSelect())


def test_sketches_are_kept_of_participants_alone():
    """100,000 clients probed, 10 took part: 10 rows of 64 numbers, and five columns of the rest."""
    selector = selector_of(HeteroSelect("sketch"))
    ids = np.arange(100_000)
    for t in (1, 2):
        probe(selector, t, np.cos(ids), ids)
        chosen = np.sort(selector.select(t, ids, 5).ids)
        accept(selector, t, chosen, sketch=np.random.default_rng(t).normal(size=(5, 64)))
    assert selector.state.uploads.columns["sketch"].shape == (10, 64)
    assert len(selector.to_bytes()) / len(ids) < 60


@given(st.data())
def test_what_must_hold(data):
    """S and D in [0, 1], weights a distribution, whatever was told; both clients at the ends of S
    are there."""
    n = data.draw(st.integers(2, 8))
    number = st.floats(-1e6, 1e6)
    state = HeteroSelectState()
    columns = {
        "loss": data.draw(st.lists(st.one_of(st.just(np.nan), number), min_size=n, max_size=n)),
        "count": data.draw(st.lists(st.integers(0, 50), min_size=n, max_size=n)),
        "last": data.draw(st.lists(st.integers(0, 60), min_size=n, max_size=n)),
        "now": data.draw(
            st.lists(st.one_of(st.just(np.nan), st.floats(-1.1, 1.1)), min_size=n, max_size=n)
        ),
    }
    state = dataclasses.replace(state, clients=state.clients.put(np.arange(n), columns))
    rule = HeteroSelect()
    t = data.draw(st.integers(1, 60))
    parts = rule.components(state, t, np.arange(n))
    assert ((parts.direction >= 0) & (parts.direction <= 1)).all()
    assert ((parts.staleness >= 0) & (parts.staleness <= 1)).all()
    assert (abs(parts.fairness) <= 1).all()
    scores = rule.scores(rule.components(state, t, np.arange(n)))
    assert (scores == 0.5).all() or (scores.min(), scores.max()) == (0.0, 1.0)
    cohort = selector_of(rule, state).select(t, np.arange(n), data.draw(st.integers(1, n)))
    assert cohort.weights.sum() == pytest.approx(1.0)
    assert (cohort.weights >= 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau0": 0.0}, "tau0 = 0.0; expected a positive number"),
        ({"w_direction": -0.3}, "expected numbers of at least 0"),
        ({"w_value": float("inf")}, "expected numbers of at least 0"),
        ({"probe_batches": 0}, "probe_batches = 0; expected at least 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "hetero_select", **options}, horizon=T)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 100.0])
def test_the_cosine_is_the_better_of_the_cheap_forms(alpha):
    """Softmax regression on ten Gaussian classes, Dirichlet labels, 100 clients, 10 a round, 50
    local steps with mu = 0.1, updates cut to their largest fifth. D by the text's own words, from
    whole updates, against both options: the cosine of the upload is nearer and orders the clients
    better than 64 numbers can."""
    rng = np.random.default_rng(0)
    classes = 10
    width = 200
    clients = 100
    m = 10
    rounds = 60
    mu = 0.1
    size = classes * width
    centres = 0.25 * rng.normal(size=(classes, width))
    labels = np.array(
        [rng.choice(classes, 100, p=rng.dirichlet(np.full(classes, alpha))) for _ in range(clients)]
    )
    data = centres[labels] + rng.normal(size=(clients, 100, width))
    project = rng.normal(size=(size, 64)) / 8
    told = {name: selector_of(HeteroSelect(name)) for name in ("cosine", "sketch")}
    model = np.zeros((classes, width))
    momentum = np.zeros(size)
    mean = np.zeros(size)
    last = {}
    found = []

    def update(k):
        w = model.copy()
        for _ in range(50):
            batch = rng.integers(0, 100, 20)
            p = np.exp(data[k, batch] @ w.T)
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(20), labels[k, batch]] -= 1
            w -= 0.05 * (p.T @ data[k, batch] / 20 + mu * (w - model))
        delta = (w - model).ravel()
        return np.where(abs(delta) >= np.quantile(abs(delta), 0.8), delta, 0.0)

    for t in range(1, rounds + 1):
        seen = np.array(sorted(last))
        if t > 10:
            exact = np.clip([1 - _cosine(last[k], mean) for k in seen], 0, 1)
            got = {
                name: one.rule.components(one.state, t, seen).direction
                for name, one in told.items()
            }
            found.append(
                [[abs(d - exact).mean(), np.corrcoef(d, exact)[0, 1]] for d in got.values()]
            )
        ids = np.sort(rng.choice(clients, m, replace=False))
        deltas = np.array([update(k) for k in ids])
        if t > 1:
            accept(told["cosine"], t, ids, cosine=[_cosine(delta, mean) for delta in deltas])
        accept(told["sketch"], t, ids, sketch=deltas @ project)
        step = deltas.mean(axis=0)
        mean = step if t == 1 else 0.9 * mean + 0.1 * step
        last.update(zip(ids.tolist(), deltas, strict=True))
        momentum = 0.5 * momentum + step
        model = model + momentum.reshape(model.shape)
    (cosine_error, cosine_order), (sketch_error, sketch_order) = np.mean(found, axis=0)
    assert cosine_error < 0.7 * sketch_error
    assert cosine_order > sketch_order


def _cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
