"""Clustered sampling: urns worked by hand, and what its theory says of any urns."""

from __future__ import annotations

import numpy as np
import pytest

from motley.core.keys import Key
from motley.core.records import Outcome, Reports
from motley.selectors import Selector
from motley.selectors.clustered_sampling import (
    ClusteredSampling,
    angles,
    by_similarity,
    by_sizes,
    urn_shares,
)

SIZES = np.array([5.0, 3.0, 2.0, 2.0])
ALIKE = np.array([[0.0, 2, 1, 2], [2, 0, 2, 0.5], [1, 2, 0, 2], [2, 0.5, 2, 0]])
"""Clients 1 and 3 are alike, then 0 and 2."""


def urns_of(p, m, distances=None):
    if distances is None:
        return urn_shares(*by_sizes(p, m), len(p), m)
    at, amounts, _ = by_similarity(p, m, distances)
    return urn_shares(at, amounts, len(p), m)


def drawn(rng, clients):
    """Return shares and distances of as many clients, some of them larger than an urn."""
    n = rng.integers(1, 40, clients) ** 2.0
    points = rng.normal(size=(clients, 4))
    return n / n.sum(), angles(points, np.arange(clients) % 5 > 0)


def test_urns_by_size() -> None:
    found = urns_of(SIZES / 12, 2)
    assert found == pytest.approx(np.array([[5, 1, 0, 0], [0, 2, 2, 2]]) / 6)


def test_urns_by_similarity() -> None:
    """0 and 2 are the next two that are alike, but 5/6 + 2/6 is more than an urn holds."""
    at, amounts, groups = by_similarity(SIZES / 12, 2, ALIKE)
    assert groups == 3
    found = urn_shares(at, amounts, 4, 2)
    assert found == pytest.approx(np.array([[5, 0, 1, 0], [0, 3, 1, 2]]) / 6)


def test_a_client_larger_than_an_urn_fills_urns_alone() -> None:
    """m = 4 and shares (.7, .1, .1, .1): 2.8 urns of client 0; .8 of it beside .2 of 1, say."""
    p = np.array([0.7, 0.1, 0.1, 0.1])
    far = np.full((4, 4), 2.0) - 2.0 * np.eye(4)
    found = urns_of(p, 4, far)
    assert (found[:, 0] == 1).sum() == 2
    assert sorted(found[:, 0])[:2] == pytest.approx([0.0, 0.8])


@pytest.mark.parametrize("by", ["sizes", "similarity"])
def test_the_draw_is_unbiased_and_varies_less_than_draws_with_replacement(by) -> None:
    """Equations 4 and 16-20 of the paper, exactly: the urns are full, they hold m p_k of client k,
    no client's coefficient varies more than under m draws with replacement, and nobody's chance
    to take part is less."""
    rng = np.random.default_rng(0)
    for clients, m in [(7, 3), (20, 5), (31, 12), (5, 5), (6, 1)]:
        p, distances = drawn(rng, clients)
        r = urns_of(p, m, distances if by == "similarity" else None)
        assert r.sum(axis=1) == pytest.approx(np.ones(m))
        assert r.sum(axis=0) == pytest.approx(m * p)
        variance = (r * (1 - r)).sum(axis=0) / m**2
        assert (variance <= p * (1 - p) / m + 1e-12).all()
        assert variance.sum() < (p * (1 - p) / m).sum() or m == 1
        assert (1 - (1 - r).prod(axis=0) >= 1 - (1 - p) ** m - 1e-12).all()


@pytest.mark.parametrize("by", ["sizes", "similarity"])
def test_the_rule_draws_by_its_urns(by) -> None:
    """500 draws: mean coefficients within 4.5 standard errors of p, variances as worked."""
    selector = Selector(ClusteredSampling(by), seed=0)
    ids = np.array([2, 3, 5, 7])
    selector.observe(0, Reports(ids, Outcome.ENROLLED, signals={"num_examples": SIZES}))
    angle = np.array([0.0, 2.0, 0.5, 2.1])
    gradients = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    signals = {"gradient_sketch": gradients}
    selector.observe(1, Reports(ids, Outcome.ACCEPTED, signals=signals))
    a = np.zeros((500, 4))
    for t in range(len(a)):
        cohort = selector.select(t + 2, ids, m=2)
        assert cohort.multiplicity is not None
        assert cohort.multiplicity.sum() == 2
        a[t, np.searchsorted(ids, cohort.ids)] = cohort.weights
    r = urns_of(SIZES / 12, 2, ALIKE if by == "similarity" else None)
    variance = (r * (1 - r)).sum(axis=0) / 4
    error = np.abs(a.mean(axis=0) - SIZES / 12) / np.sqrt(variance / len(a))
    assert error.max() < 4.5
    assert a.var(axis=0) == pytest.approx(variance, rel=0.25)


def test_what_rounding_lifts_above_one_is_no_angle() -> None:
    """A vector's cosine with another of its direction can be one and a rounding error."""
    directions = np.random.default_rng(0).normal(size=(200, 7))
    found = angles(np.concatenate([directions, 3.0 * directions]), np.ones(400, bool))
    assert np.isfinite(found).all()
    assert found[np.arange(200), np.arange(200, 400)].max() < 1e-7


def test_clients_that_are_alike_are_not_drawn_together() -> None:
    """Six clients of one size in three pairs: with m = 3 each pair has an urn of its own."""
    selector = Selector(ClusteredSampling(vectors="gradient"), seed=1)
    ids = np.arange(6)
    selector.observe(0, Reports(ids, Outcome.ENROLLED, signals={"num_examples": np.ones(6)}))
    gradients = np.eye(3)[ids % 3] * (1.0 + ids[:, None])
    selector.observe(1, Reports(ids, Outcome.ACCEPTED, signals={"gradient": gradients}))
    for t in range(2, 40):
        cohort = selector.select(t, ids, m=3)
        assert sorted(cohort.ids % 3) == [0, 1, 2]
        assert cohort.notes["groups"] == 3


def test_clients_that_never_reported_are_one_group_away_from_the_others() -> None:
    found = angles(
        np.array([[1.0, 0], [1, 1], [5, 5], [0, 0]]), np.array([True, True, False, False])
    )
    right = np.pi / 2
    half = np.pi / 4
    assert found == pytest.approx(
        np.array(
            [
                [0, half, right, right],
                [half, 0, right, right],
                [right, right, 0, 0],
                [right, right, 0, 0],
            ]
        )
    )


def test_a_million_clients_by_size() -> None:
    """The line is a sort and a running sum, so a large population needs no urns in memory."""
    n = 1.0 + np.floor(100 * Key(0).uniform(np.arange(1_000_000))[:, 0])
    at, amounts = by_sizes(n / n.sum(), 1000)
    assert amounts.sum() == pytest.approx(1000)
    assert (np.diff(n[at]) <= 0).all()
