"""TiFL: the checks of docs/methods/selectors.md#tifl, worked by hand; tiers, credits and looks."""

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import Selector, build
from motley.selectors.tifl import TiFL

IDS = 3 * np.arange(10)


def enrolled(rule, seconds=range(1, 11), ids=IDS, seed=0, horizon=100):
    selector = Selector(rule, seed, horizon)
    estimates = {"compute_estimate_s": np.asarray(seconds, float)}
    selector.observe(0, Reports(ids, Outcome.ENROLLED, signals=estimates))
    return selector


def look(selector, t, losses, ids=IDS):
    selector.observe(
        t, Reports(ids, Outcome.PROBED, signals={"val_loss": np.asarray(losses, float)})
    )


def report(selector, t, ids, seconds=np.nan, outcome=Outcome.ACCEPTED):
    selector.observe(
        t, Reports(np.asarray(ids), outcome, compute_s=np.broadcast_to(float(seconds), (len(ids),)))
    )


def tier_of(selector, ids=IDS):
    return selector.state.clients.get("tier", ids).tolist()


def stuck(rule, losses, used=(0,), seed=0):
    """A selector whose tier 0 was used and did not get better, with these losses per tier of
    two."""
    selector = enrolled(rule, seed=seed)
    look(selector, 1, np.repeat(losses, 2))
    report(selector, 1, IDS[[2 * tier for tier in used]])
    look(selector, 21, np.repeat(losses, 2))
    return selector


def test_tiers_are_quantiles_of_the_durations():
    """Durations 1 .. 10 shuffled, 5 tiers: (1, 2), (3, 4), ..."""
    seconds = np.array([10, 3, 5, 1, 2, 8, 7, 6, 9, 4])
    assert tier_of(enrolled(TiFL(), seconds)) == ((seconds - 1) // 2).tolist()


def test_equal_durations_share_a_tier_and_the_unknown_are_slowest():
    assert tier_of(enrolled(TiFL(), [1] * 10)) == [0] * 10
    assert (
        tier_of(enrolled(TiFL(tiers=2), [1, 1, 1, 1, 2, 3, 4, 5, np.nan, np.inf]))
        == [0] * 4 + [1] * 6
    )
    assert tier_of(enrolled(TiFL()), [1, 2]) == [4, 4]  # never enrolled


def test_probabilities_worked_by_hand():
    """n = 5: (4, 3, 2, 1, 0) / 10, the least accurate tier (highest loss) first: losses (1, 5, 2,
    4, 3)."""
    selector = stuck(TiFL(), [1, 5, 2, 4, 3])
    np.testing.assert_allclose(
        selector.rule.probabilities(selector.state, 100), [0.0, 0.4, 0.1, 0.3, 0.2]
    )


def test_probabilities_start_equal_and_one_tier_has_one():
    selector = enrolled(TiFL())
    assert selector.rule.probabilities(selector.state, 100).tolist() == [0.2] * 5
    single = stuck(TiFL(tiers=1), [1, 2, 3, 4, 5])
    assert single.rule.probabilities(single.state, 100).tolist() == [1.0]


def test_only_tiers_with_credits_are_ranked():
    """credits = 1, tier 0 has spent its own: of tiers 1 .. 4, n = 4: (3, 2, 1, 0) / 6."""
    selector = stuck(TiFL(credits=1), [9, 1, 2, 3, 4])
    np.testing.assert_allclose(
        selector.rule.probabilities(selector.state, 100), [0, 0, 1 / 6, 2 / 6, 3 / 6]
    )


def test_probabilities_change_only_where_the_tier_used_last_is_not_better():
    """Tier 1 was used. Its loss falls from 2 to 1.9: nothing changes; then stays at 1.9: the order
    is set."""
    selector = enrolled(TiFL())
    look(selector, 1, np.repeat([1, 2, 3, 4, 5], 2))
    report(selector, 1, IDS[2:4])
    look(selector, 21, np.repeat([9, 1.9, 9, 9, 9], 2))
    assert selector.rule.probabilities(selector.state, 100).tolist() == [0.2] * 5
    look(selector, 41, np.repeat([1, 1.9, 3, 4, 5], 2))
    np.testing.assert_allclose(
        selector.rule.probabilities(selector.state, 100), [0, 0.1, 0.2, 0.3, 0.4]
    )


def test_first_look_changes_nothing():
    selector = enrolled(TiFL())
    look(selector, 1, np.arange(10))
    assert selector.rule.probabilities(selector.state, 100).tolist() == [0.2] * 5


def test_probes_every_interval_only():
    selector = enrolled(TiFL(interval=20))
    assert [t for t in range(1, 62) if len(selector.probe(t, IDS, 2))] == [1, 21, 41, 61]
    assert selector.probe(1, IDS, 2).tolist() == IDS.tolist()


def test_cohort_is_of_one_tier_drawn_in_proportion():
    """Probabilities (.4, .3, .2, .1, 0) with losses falling from tier 0 on; 1500 draws,
    chi-square."""
    from scipy import stats

    selector = stuck(TiFL(credits=50), [5, 4, 3, 2, 1])
    counts = np.zeros(5)
    for dispatch in range(1500):
        cohort = selector.select(22, IDS, 2, dispatch)
        tiers = set(tier_of(selector, cohort.ids))
        assert tiers == {cohort.notes["tier"]}
        counts[int(cohort.notes["tier"])] += 1
    assert counts[4] == 0  # the most accurate
    assert stats.chisquare(counts[:4], 1500 * np.array([0.4, 0.3, 0.2, 0.1])).pvalue > 1e-3
    assert cohort.notes["max_probability"] == pytest.approx(0.2)  # .4 for two clients
    p = np.repeat([0.4, 0.3, 0.2, 0.1, 0.0], 2) / 2
    assert cohort.notes["cv_probability"] == pytest.approx(p.std() / p.mean())


def test_credits_are_spent_and_then_everybody_is_drawn():
    """2 credits for each of 2 tiers: after four rounds each tier was used twice, then all are drawn
    uniformly."""
    selector = enrolled(TiFL(tiers=2, credits=2))
    used = []
    for t in range(1, 5):
        cohort = selector.select(t, IDS, 3)
        used.append(int(cohort.notes["tier"]))
        report(selector, t, cohort.ids)
    assert sorted(used) == [0, 0, 1, 1]
    cohorts = [selector.select(5, IDS, 5, d) for d in range(40)]
    assert {c.notes["tier"] for c in cohorts} == {-1.0}
    assert any(len(set(tier_of(selector, c.ids))) == 2 for c in cohorts)


def test_credits_follow_the_horizon():
    """ceil(7 / 5) = 2 per tier."""
    assert enrolled(TiFL(), horizon=7).select(1, IDS, 2).notes["credits"] == 10.0
    with pytest.raises(ConfigError, match="TiFL anneals towards the last round"):
        Selector(TiFL())
    Selector(TiFL(credits=3))


def test_only_the_best_tier_has_credits_left():
    """Trap: drawing until a tier with credits comes never ends when all others have probability
    0."""
    selector = stuck(TiFL(credits=2), [5, 4, 3, 2, 1])
    for t, tier in enumerate((0, 1, 1, 2, 2, 3, 3), start=22):
        report(selector, t, IDS[2 * tier : 2 * tier + 2])
    cohort = selector.select(40, IDS, 2)
    assert cohort.notes["tier"] == 4.0
    assert cohort.notes["credits"] == 2.0


def test_topped_up_from_the_next_slower_then_from_the_faster():
    """The drawn tier has two clients; more come from the tiers after it in order, then from those
    before it, nearest first."""
    selector = enrolled(TiFL())
    for dispatch in range(30):
        cohort = selector.select(1, IDS, 7, dispatch)
        first = int(cohort.notes["tier"])
        order = [*range(first, 5), *range(first - 1, -1, -1)]
        assert tier_of(selector, cohort.ids) == [tier for tier in order for _ in range(2)][:7]


def test_a_tier_without_anybody_there_is_not_drawn():
    selector = enrolled(TiFL())
    assert {selector.select(1, IDS[4:6], 1, d).notes["tier"] for d in range(20)} == {2.0}


def test_the_tier_used_is_the_fastest_of_those_sent_out():
    selector = enrolled(TiFL())
    report(selector, 1, IDS[[5, 4, 8]], outcome=Outcome.DROPPED)
    assert selector.state.used == 2
    assert selector.state.spent.tolist() == [0, 0, 1, 0, 0]
    selector.observe(2, [])
    assert selector.state.spent.sum() == 1


def test_tiers_are_renewed_from_measured_durations():
    """The fastest turns out the slowest; in round 50 and not before it moves to the last tier."""
    selector = enrolled(TiFL())
    report(selector, 1, IDS[:1], 99.0)
    assert tier_of(selector)[0] == 0
    selector.observe(49, [])
    assert tier_of(selector)[0] == 0
    selector.observe(50, [])
    assert tier_of(selector) == [4, 0, 0, 1, 1, 2, 2, 3, 3, 4]


def test_losses_of_a_diverging_model_stay_finite():
    rule = TiFL(tiers=1, interval=1, credits=9)
    selector = Selector(rule, 0)
    with np.errstate(all="raise"):
        selector.observe(
            1, Reports(range(4), Outcome.PROBED, signals={"val_loss": np.full(4, 1e308)})
        )
    assert np.isfinite(selector.state.losses).all()


def test_spread_of_equal_tiers_is_zero():
    """Tiers of two clients each: every client has 1 / 10 in the first draw, and the spread is 0,
    not a rounding error."""
    selector = Selector(TiFL(credits=9), 0)
    selector.observe(
        0, Reports(range(10), Outcome.ENROLLED, signals={"compute_estimate_s": np.arange(10.0)})
    )
    notes = selector.select(1, range(10), 2).notes
    assert (notes["max_probability"], notes["cv_probability"]) == (
        pytest.approx(0.1),
        pytest.approx(0.0, abs=1e-12),
    )


@pytest.mark.parametrize("option", ["tiers", "interval", "retier"])
def test_bad_options(option):
    with pytest.raises(ConfigError, match=f"got {option} = 0; expected at least 1"):
        build({"name": "tifl", option: 0}, horizon=10)
    with pytest.raises(ConfigError, match="got credits = -1"):
        TiFL(credits=-1)
