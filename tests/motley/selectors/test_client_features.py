"""Features and rewards: ``motley.selectors.flash`` (c), and what is not known."""

import numpy as np
import pytest

from motley.core.records import Outcome
from motley.core.table import ClientTable
from motley.selectors.common.client_features import (
    LARGEST,
    first_round_size,
    loss_rewards,
    reward_columns,
    scaled_durations,
)
from motley.selectors.flash import FLASH
from motley.selectors.neural_bandit import NeuralBandit
from tests.motley.selectors.bandits import back, probed

IDS = np.array([5, 6, 7])


def timed(seconds, round=1, ids=IDS):
    clients = ClientTable(FLASH().feature_columns())
    return FLASH().update_features(clients, round, back(ids, seconds))[0]


def test_worked_durations():
    """Durations (2, 4, 6) over their mean 4."""
    clients = timed([2, 4, 6])
    assert scaled_durations(clients, IDS, "mean").tolist() == [0.5, 1, 1.5]
    assert scaled_durations(clients, IDS, "seconds").tolist() == [2, 4, 6]
    # the slowest's 6 over the mean 4
    assert scaled_durations(clients, IDS, "round").tolist() == [1.5, 1.5, 1.5]
    assert scaled_durations(clients, IDS, "round_seconds").tolist() == [6, 6, 6]
    # the mean of all clients, not of those asked about
    assert scaled_durations(clients, IDS[:1], "mean").tolist() == [0.5]


def test_round_means_the_last_round():
    """Round 2 took 3 s, for 5 was its slowest; the clients' last durations 3, 1, 8 have mean 4. A
    report without one changes nothing."""
    clients = FLASH().update_features(timed([2, 4, 8]), 2, back([5, 6], [3, 1]))[0]
    assert scaled_durations(clients, IDS, "round_seconds").tolist() == [3, 3, 3]
    assert scaled_durations(clients, IDS, "round").tolist() == [0.75, 0.75, 0.75]
    clients = FLASH().update_features(clients, 3, back([7], [np.nan]))[0]
    assert scaled_durations(clients, IDS, "round_seconds").tolist() == [3, 3, 3]
    clients = FLASH().update_features(timed([2, 4, 60]), 2, back([5, 6], [3, 1]))[0]
    assert scaled_durations(clients, IDS, "seconds").tolist() == [3, 1, 60]


def test_unknown_durations_are_the_mean():
    clients = timed([2, np.nan, 6])
    assert scaled_durations(clients, np.array([5, 6, 99]), "seconds").tolist() == [2, 4, 4]
    assert scaled_durations(clients, np.array([5, 6, 99]), "mean").tolist() == [0.5, 1, 1]
    nobody = ClientTable(reward_columns())
    assert scaled_durations(nobody, IDS, "mean").tolist() == [1, 1, 1]
    for useless in (0.0, -1.0, np.inf):
        assert scaled_durations(timed([useless, 4, 6]), IDS, "seconds").tolist() == [5, 4, 6]


def test_download_work_and_upload_are_one_duration():
    reports = back(IDS, [2, 4, 6])
    reports = type(reports)(
        IDS, Outcome.ACCEPTED, download_s=[1, 1, 1], compute_s=[2, 4, 6], upload_s=[3, np.nan, 3]
    )
    clients = FLASH().update_features(ClientTable(FLASH().feature_columns()), 1, reports)[0]
    assert scaled_durations(clients, IDS, "seconds").tolist() == [6, 5, 10]


def test_worked_reward():
    """L_robust 6 -> 4.5 with tau 2: .75. Durations (6, 1, 2): mean 3, tau of the first is 2."""
    clients = ClientTable(reward_columns())
    clients, rewards = loss_rewards(
        clients, 1, back(IDS, [6, 1, 2], arrival_loss=[6, 1, 1]), "arrival_loss", "mean"
    )
    assert np.isnan(rewards).all()  # nothing to compare with
    clients, rewards = loss_rewards(
        clients, 2, back(IDS, [6, 1, 2], arrival_loss=[4.5, np.nan, 2]), "arrival_loss", "mean"
    )
    np.testing.assert_allclose(rewards, [0.75, np.nan, 1.5])
    _, rewards = loss_rewards(
        clients, 3, back(IDS, [6, 1, 2], arrival_loss=[4.5, 3, 2]), "arrival_loss", "mean"
    )
    np.testing.assert_allclose(rewards, [0, 6, 0])  # against the last loss that was a number


def test_a_loss_that_is_not_a_number_moves_nothing():
    rule = FLASH()
    clients, _ = rule.update_features(timed([1, 1, 1]), 2, probed(IDS, [4, 4, 4], [2, 2, 2]))
    clients, _ = rule.update_features(clients, 3, probed(IDS, [2, 2, 2], [1, 1, 1]))
    clients, pairs = rule.update_features(clients, 4, probed(IDS, [np.nan, 1, 1], [1, np.nan, 1]))
    assert len(pairs.ids) == 0
    np.testing.assert_allclose(
        rule.features(clients, IDS), [[0.5, 0.5, 1, 0], [0.25, 0.5, 1, 2], [0.25, 0.5, 1, 2]]
    )
    assert clients.get("reward", IDS).tolist() == [2, 1, 1]


def test_what_is_absent_in_a_feature():
    """Never measured; measured with a first loss of 0."""
    for rule, absent in ((FLASH(), 0.0), (NeuralBandit(), np.nan)):
        clients, _ = rule.update_features(timed([1, 1, 1]), 2, probed(IDS[1:], [0, 4], [2, np.nan]))
        clients, _ = rule.update_features(clients, 3, probed(IDS[1:], [3, 4], [2, np.nan]))
        expected = [[absent, absent, 1, 0], [absent, 1, 1, 0], [1, absent, 1, 0]]
        np.testing.assert_array_equal(rule.features(clients, IDS), expected)


def test_diverging_numbers_count_as_the_largest():
    rule = FLASH()
    clients, _ = rule.update_features(timed([1, 1, 1]), 2, probed(IDS, [1, 1e-300, 1], [1, 1, 1]))
    clients, pairs = rule.update_features(clients, 3, probed(IDS, [1e308, 1e308, 0], [1e308, 1, 1]))
    assert clients.get("reward", IDS).tolist() == [LARGEST, LARGEST, 1]
    np.testing.assert_array_equal(
        rule.features(clients, IDS)[:2, :2], [[LARGEST, LARGEST], [LARGEST, 1]]
    )
    assert len(pairs.ids) == 0


def test_only_participants_give_training_pairs_and_once():
    rule = FLASH(tau="mean")
    clients = ClientTable(rule.feature_columns())
    clients, _ = rule.update_features(clients, 1, back(IDS[:2], [1, 3]))
    clients, pairs = rule.update_features(clients, 2, probed(IDS, [1, 1, 1], [1, 1, 1]))
    assert pairs.ids.tolist() == [5, 6]
    np.testing.assert_allclose(pairs.x, [[1, 1, 0.5, 0], [1, 1, 1.5, 0]])
    assert pairs.rewards.tolist() == [0, 0]
    clients, pairs = rule.update_features(clients, 3, probed(IDS, [1, 1, 1], [1, 1, 1]))
    assert len(pairs.ids) == 0
    assert pairs.x.shape == (0, 4)


@pytest.mark.parametrize(
    ("first", "round", "m", "expected"),
    [("all", 1, 3, 9), ("all", 2, 3, 3), ("cohort", 1, 3, 3), ("all", 1, 0, 0)],
)
def test_first_size(first, round, m, expected):
    assert first_round_size(first, round, m, 9) == expected


def test_enrolled_clients_are_known():
    clients, _ = FLASH().update_features(
        ClientTable(FLASH().feature_columns()), 0, back(IDS, outcome=Outcome.ENROLLED)
    )
    assert len(clients) == 3
