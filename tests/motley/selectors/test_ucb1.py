"""UCB1: the check of docs/methods/selectors.md#ucb1, and its readings."""

import math

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.records import Outcome
from motley.selectors import build
from motley.selectors.selector import Selector
from motley.selectors.ucb1 import UCB1, UCB1State
from tests.motley.selectors.bandits import back, context

IDS = np.array([10, 20, 30])


def told(means, counts):
    """A state with these means of rewards in [0, 1] and these counts."""
    clients = (
        UCB1()
        .init()
        .clients.put(IDS, {"count": counts, "rewards": counts, "total": np.multiply(means, counts)})
    )
    return UCB1State(clients, 0.0, 1.0)


def test_worked_numbers():
    """t = 18: .5 + sqrt(2 log 18 / 10) = 1.260312, .4 + sqrt(2 log 18 / 3) = 1.788133, .45 + sqrt(2
    log 18 / 5) = 1.525244."""
    rule = UCB1(ties="lowest_id")
    state = told([0.5, 0.4, 0.45], [10.0, 3.0, 5.0])
    cohort = rule.select(state, context(18, IDS, 3))
    assert cohort.ids.tolist() == [20, 30, 10]
    for k, expected in zip(IDS, (1.260312, 1.788133, 1.525244), strict=True):
        notes = rule.select(state, context(18, [k], 1)).notes
        assert notes["mean"] + notes["bonus"] == pytest.approx(expected, abs=5e-7)


def test_rewards_by_hand():
    """Durations (2, 4, 6): tau = (.5, 1, 1.5). Losses 6, 6, 6, then 4.5, 5, 6: rewards 3, 1, 0,
    mapped by (y - 0) / 3 to 1, 1/3, 0. Then 10 alone reports 4.5 again: reward 0, mean 1.5, mapped
    1/2. The largest reward so far rises to 4 by 20's next, 5 -> 9 with tau 1: its mean is (1 + 4) /
    2, mapped 5/8, and that of 10 becomes 1.5 / 4: past rewards are mapped anew."""
    selector = Selector(UCB1(tau="mean"))
    assert len(selector.select(1, IDS, 1).ids) == 3
    selector.observe(1, back(IDS, [2, 4, 6], arrival_loss=[6, 6, 6]))
    assert selector.rule.means(selector.state, IDS).tolist() == [0, 0, 0]  # no reward yet
    selector.observe(2, back(IDS, [2, 4, 6], arrival_loss=[4.5, 5, 6]))
    np.testing.assert_allclose(selector.rule.means(selector.state, IDS), [1, 1 / 3, 0])
    selector.observe(3, back([10], [2], arrival_loss=[4.5]))
    np.testing.assert_allclose(selector.rule.means(selector.state, IDS), [1 / 2, 1 / 3, 0])
    selector.observe(4, back([20], [4], arrival_loss=[9]))
    np.testing.assert_allclose(selector.rule.means(selector.state, IDS), [1.5 / 4, 5 / 8, 0])
    assert selector.state.clients.get("count", IDS).tolist() == [3, 3, 2]


def test_unseen_clients_come_first():
    selector = Selector(UCB1(first_round="cohort"))
    seen = []
    for t in range(1, 6):
        ids = selector.select(t, np.arange(10), 2).ids
        selector.observe(t, back(ids, np.ones(2), arrival_loss=[t, t]))
        seen += ids.tolist()
    assert sorted(seen) == list(range(10))


def test_a_reporter_without_a_loss_counts_but_gives_no_reward():
    """Otherwise a client whose loss is never a number would be asked in every round for ever."""
    selector = Selector(UCB1())
    for t in range(1, 4):
        selector.observe(t, back(IDS, [1, 1, 1], arrival_loss=[np.nan, 3 - t, 3 - 2 * t]))
    assert selector.state.clients.get("count", IDS).tolist() == [3, 3, 3]
    # the mean of the others
    assert selector.rule.means(selector.state, IDS).tolist() == [0.5, 0, 1]


def test_clients_without_an_accepted_update_change_nothing():
    selector = Selector(UCB1())
    selector.observe(1, back(IDS, [1, 1, 1], Outcome.LATE, arrival_loss=[1, 2, 3]))
    assert not len(selector.state.clients)


def test_duration_divides_the_reward():
    """Same change of loss, half the duration: twice the reward. Under the round's duration both are
    divided by the longer one, 2 s, or 2 / 1.5 of the mean."""
    cases = (
        ("mean", [1.5, 0.75]),
        ("seconds", [1.0, 0.5]),
        ("round_seconds", [0.5, 0.5]),
        ("round", [0.75, 0.75]),
    )
    for tau, expected in cases:
        selector = Selector(UCB1(tau=tau))
        for t in (1, 2):
            selector.observe(t, back([0, 1], [1, 2], arrival_loss=[t, t]))
        assert selector.state.clients.get("total", [0, 1]).tolist() == expected


def test_finds_the_better_arms():
    """Changes of loss of 1 to 10 a round, noise-free, equal durations: the best three of ten are
    asked most, and ever more so."""
    selector = Selector(UCB1())
    loss = np.zeros(10)
    ids = np.arange(10)
    taken = []
    for t in range(1, 401):
        cohort = selector.select(t, ids, 3).ids
        loss[cohort] += 1 + cohort
        selector.observe(t, back(cohort, np.ones(len(cohort)), arrival_loss=loss[cohort]))
        taken.append(cohort)
    early = np.bincount(np.concatenate(taken[:200]))
    late = np.bincount(np.concatenate(taken[200:]))
    assert late[7:].sum() > early[7:].sum() > 200 * 3 * 0.3
    assert (np.sort(early + late)[-3:] == (early + late)[7:]).all()


def test_round_one_has_no_bonus_but_is_sound():
    notes = UCB1().select(told([0.5, 0.4, 0.45], [10.0, 3.0, 5.0]), context(1, IDS, 1)).notes
    assert notes["bonus"] == math.sqrt(math.log(1)) == 0


def test_needs_and_size():
    assert UCB1().needs().reported == {"arrival_loss"}
    assert not UCB1().needs().probed
    assert [UCB1().size(t, 3, 10) for t in (1, 2)] == [10, 3]


def test_bad_options():
    with pytest.raises(ConfigError, match=r"selector\.first_round: got 'some'"):
        build({"name": "ucb1", "first_round": "some"})
