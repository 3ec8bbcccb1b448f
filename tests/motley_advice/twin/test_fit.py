"""Shrinkage and laws, by hand."""

import numpy as np
import pytest

from motley_advice.twin.fit import POINTS, beta_counts, common, fitted, held_out, presence, usual


def test_two_clients_in_three_rounds_by_hand():
    """Logarithms 0, 1, 2 and 4, 6: means 1 and 5, W = (2 + 2) / (5 - 2) = 4/3, Var(m) = 8, and
    B = 8 - 4/3 (1/3 + 1/2) / 2 = 67/9; mu = 3. A third client was never asked."""
    found = usual(np.array([0.0, 1, 2, 4, 6]), np.array([0, 0, 0, 1, 1]), 3)
    within, between = 4 / 3, 67 / 9
    assert (found.within, found.between) == pytest.approx((within, between))
    wholes = [n * between + within for n in (3, 2)]
    means = [(3 * between * 1 + within * 3) / wholes[0], (2 * between * 5 + within * 3) / wholes[1]]
    assert found.mean == pytest.approx([*means, 3])
    variances = [within * between / w + (within / w) ** 2 * 8 / 2 for w in wholes]
    assert found.deviation**2 == pytest.approx([*variances, between + 8 / 2])


def test_few_rounds_are_believed_less():
    """Clients that are as alike as chance makes them have no level of their own."""
    found = usual(np.array([0.0, 2, 2, 0]), np.array([0, 0, 1, 1]), 2)
    assert found.between == 0
    assert found.mean.tolist() == [1, 1]


def test_a_client_that_never_varies_is_believed_at_once():
    found = usual(np.array([1.0, 1, 5]), np.array([0, 0, 1]), 3)
    assert found.mean.tolist() == [1, 5, 3]
    assert found.deviation[:2].tolist() == [0, 0]
    assert found.deviation[2] > 0


def test_what_never_varies_is_given_back():
    law = fitted(np.array([2.0, 2, 8, 8]), np.array([0, 0, 1, 1]), np.array([1, 2, 1, 2]), 2)
    assert law.quantiles == pytest.approx(np.repeat([[2.0], [8.0]], POINTS, axis=1))
    assert law.unsure.max() < 1e-12
    assert (fitted(np.zeros(3), np.arange(3), np.zeros(3, int), 3).quantiles == 0).all()


def test_a_slow_answer_does_not_make_a_slow_client():
    """Client 0 answers about 1 s, and once after e^3; client 1 about e^2: its usual seconds stay,
    and the slow answer is the highest quantile."""
    jitter = np.tile([-0.1, 0.1, -0.05, 0.05], 2)
    logs = np.concatenate([jitter[:4], [3.0], 2 + jitter[4:]])
    law = fitted(np.exp(logs), np.array([0] * 5 + [1] * 4), np.arange(9), 2)
    assert np.log(law.quantiles[0, POINTS // 2]) == pytest.approx(0, abs=0.1)
    assert np.log(law.quantiles[1, POINTS // 2]) == pytest.approx(2, abs=0.1)
    assert np.log(law.quantiles[0, -1]) == pytest.approx(3, abs=0.1)


def test_intervals_hold_what_comes():
    """Log-normal seconds of 40 clients: of those of later rounds the 80 % intervals hold about 80
    %, four standard errors of 0.4 / sqrt(400) apart, and clustered by client."""
    rng = np.random.Generator(np.random.Philox(5))
    client = np.tile(np.arange(40), 30)
    usual_s = rng.normal(0, 1, 40)
    seconds = np.exp(usual_s[client] + rng.normal(0, 0.3, len(client)))
    inside, count = held_out(seconds, client, np.repeat(np.arange(30), 40), 40)
    assert count == 400
    assert abs(inside / count - 0.8) < 0.08


def test_what_is_common_to_a_round_by_hand():
    """Both clients take e^0, e^0 and e^3 in rounds 1, 2 and 3: residuals -1, -1, 2 of both, W =
    12 / 4 = 3, products 6, bracket 3 (1 - 2/3 + 3/9) = 2, so C = 3 and C / W = 1, cut to 0.95. Of
    the six values, two a round, 6 / 1.95 = 3 are independent."""
    logs = np.array([0.0, 0, 0, 0, 3, 3])
    client, at = np.array([0, 1] * 3), np.array([1, 1, 2, 2, 3, 3])
    law = fitted(np.exp(logs), client, at, 2)
    assert law.common == 0.95
    assert law.values == 3
    # the second client's rounds the other way round: products -2 - 2 + 1 < 0
    apart = fitted(np.exp(logs[[0, 5, 2, 3, 4, 1]]), client, at, 2)
    assert apart.common == 0
    assert apart.values == 6


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_the_share_that_is_common_to_a_round_is_found(share):
    """Over 200 recordings of ten rounds of three of eight clients the estimate of C, not cut at 0,
    is C on average, within four standard errors."""
    rng = np.random.Generator(np.random.Philox(6))
    found = []
    at = np.repeat(np.arange(10), 3)
    for _ in range(200):
        client = np.concatenate([rng.choice(8, 3, replace=False) for _ in range(10)])
        together = np.sqrt(share) * rng.normal(0, 1, 10)[at]
        values = together + np.sqrt(1 - share) * rng.normal(0, 1, 30)
        count = np.bincount(client, minlength=8)
        means = np.bincount(client, values, 8) / np.maximum(count, 1)
        found.append(common(values - means[client], client, at))
    assert abs(np.mean(found) - share) < 4 * np.std(found) / np.sqrt(200)


def test_drop_outs_count_with_ten_of_all():
    """Two of eight dropped out: 2.5 and 7.5 are added to each client's own."""
    dropped, answered = beta_counts(
        np.array([True, True, *[False] * 6]), np.array([0] * 4 + [1] * 4), 3
    )
    assert dropped.tolist() == [4.5, 2.5, 2.5]
    assert answered.tolist() == [9.5, 11.5, 7.5]


def test_changes_that_change_nothing_and_come_too_late():
    """Client 0 goes twice and is back after the end; nobody came: half a change in 4 s counts."""
    changes = [(0, False, 6.0), (0, False, 7.0), (0, True, 12.0)]
    found = presence(changes, 10.0, 1)
    assert {name: values.tolist() for name, values in found.items()} == {
        "went": [2.0],
        "online_s": [12.0],
        "came": [1.0],
        "offline_s": [12.0],
    }
    gone = presence([(0, False, 0.0)], 10.0, 2)
    assert gone["went"].tolist() == [1, 1]
    assert gone["offline_s"].tolist() == [30, 20]
