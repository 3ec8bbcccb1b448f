"""Facility location: the greedy's bookkeeping against its definition, distances, vectors that are
not there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.records import Outcome, Reports
from motley.core.table import ClientTable
from motley.selectors.common import facility
from motley.selectors.common.client_signals import known_vectors, put_vectors
from motley.selectors.common.facility import EXACT, cover, distances

LINE = np.array([0.0, 1, 3, 10, 12, 13, 20])[:, None]


def objective(d, chosen):
    return d[:, chosen].min(axis=1).sum()


def lazily(d, m):
    """The published form: a queue of stale gains, re-evaluated only at its head; lowest position on
    ties."""
    near = np.full(len(d), 2 * d.sum(0).max())
    chosen = []
    stale = np.full(d.shape[1], np.inf)
    for _ in range(m):
        fresh = np.zeros(d.shape[1], bool)
        while True:
            k = int(np.argmax(stale))
            if fresh[k]:
                break
            stale[k], fresh[k] = np.maximum(near - d[:, k], 0).sum(), True
        chosen.append(k)
        stale[k], near = -np.inf, np.minimum(near, d[:, k])
    return chosen


def test_the_worked_line():
    """Column sums of |x_i - x_j| over (0, 1, 3, 10, 12, 13, 20): (59, 54, 48, 41, 43, 46, 81),
    least at position 3. With 10 chosen the distances left are (10, 9, 7, 0, 2, 3, 10) = 41; taking
    1 leaves (1, 0, 2, 0, 2, 3, 10) = 18, taking 0 leaves 20, 3 leaves 20, 20 leaves 31: position 1.
    Then 20 leaves (1, 0, 2, 0, 2, 3, 0) = 8: position 6. Nearest of {10, 1, 20}: 0, 1, 3 go to 1;
    10, 12, 13 to 10; 20 to itself."""
    d = distances(LINE, np.arange(7))
    assert d.sum(axis=0).tolist() == pytest.approx([59, 54, 48, 41, 43, 46, 81], rel=1e-6)
    found = cover(d, 3, np.arange(7))
    assert found.at.tolist() == [3, 1, 6]
    np.testing.assert_allclose(found.objective, [41, 18, 8], rtol=1e-6)
    assert np.bincount(found.nearest).tolist() == [3, 3, 1]


def test_greedy_is_not_the_optimum():
    """The best pair is (1, 12) with 14, the best triple (1, 12, 20) with 6, by looking at all of
    them."""
    d = abs(LINE - LINE[:, 0])
    assert (
        objective(d, [1, 4]) == min(objective(d, [i, j]) for i in range(7) for j in range(i)) == 14
    )
    assert objective(d, [1, 4, 6]) == 6
    reached = cover(d, 3, np.arange(7)).objective[-1]
    assert reached == 8
    empty = 2 * d.sum(0).max()
    assert empty - reached >= (1 - 1 / np.e) * (empty - 6)


@given(st.integers(2, 25), st.integers(1, 25), st.integers(1, 4), st.integers(0, 10**6))
def test_each_pick_is_the_best_recomputed_from_scratch(clients, m, d, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(clients, d))
    some = rng.random(clients) < 0.7
    far = np.linalg.norm(vectors[:, None] - vectors, axis=2)[:, some]
    found = cover(far, m, np.arange(far.shape[1]))
    assert len(set(found.at.tolist())) == len(found.at) == min(m, far.shape[1])
    slack = 1e-6 * far.max(initial=0)
    for i, k in enumerate(found.at.tolist()):
        before = found.at[:i].tolist()
        others = [objective(far, [*before, j]) for j in range(far.shape[1]) if j not in before]
        assert abs(found.objective[i] - objective(far, [*before, k])) < 1e-8
        assert found.objective[i] <= min(others) + slack + 1e-8
    assert (np.diff(found.objective) <= 1e-12).all()
    if len(found.at):
        chosen = far[:, found.at]
        np.testing.assert_array_equal(chosen[np.arange(clients), found.nearest], chosen.min(axis=1))


def test_the_picks_of_a_lazy_queue():
    """Objective values, not ids: structural ties are broken by rounding in a queue."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        vectors = rng.normal(size=(40, 3))
        far = np.linalg.norm(vectors[:, None] - vectors, axis=2)
        queue = lazily(far, 12)
        np.testing.assert_allclose(
            cover(far, 12, np.arange(40)).objective[-1], objective(far, queue), rtol=2e-2
        )
        assert cover(far, 4, np.arange(40)).at.tolist() == queue[:4]


def test_everybody_chosen_leaves_nothing():
    d = distances(LINE, np.arange(7))
    found = cover(d, 99, np.arange(7))
    assert sorted(found.at.tolist()) == list(range(7))
    assert found.objective[-1] == 0


def test_ties_go_by_rank():
    """Two clients alone are each other's only beneficiaries: their gains are equal, whatever the
    rounding."""
    far = distances(np.array([[0.1], [0.3 + 1e-9]]), np.arange(2))
    assert cover(far, 1, np.array([0, 1])).at.tolist() == [0]
    assert cover(far, 1, np.array([1, 0])).at.tolist() == [1]
    same = distances(np.full((5, 3), 0.1), np.arange(5))
    assert cover(same, 5, np.array([3, 0, 4, 1, 2])).at.tolist() == [1, 3, 4, 0, 2]


def test_stochastic_greedy_looks_at_a_part():
    rng = np.random.default_rng(0)
    far = distances(rng.normal(size=(60, 4)), np.arange(60))
    full = cover(far, 6, np.arange(60))
    assert cover(far, 6, np.arange(60), 60, rng).at.tolist() == full.at.tolist()
    runs = [cover(far, 6, np.arange(60), 10, np.random.default_rng(i)) for i in range(20)]
    assert len({tuple(run.at) for run in runs}) > 10
    assert all(len(set(run.at.tolist())) == 6 for run in runs)
    assert np.mean([run.objective[-1] for run in runs]) < 1.15 * full.objective[-1]
    assert sorted(cover(far, 60, np.arange(60), 1, rng).at.tolist()) == list(range(60))


def test_distances_are_not_squared_and_survive_float32():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(400, 40)) + 100.0
    which = np.array([3, 399, 0])
    exact = np.linalg.norm(vectors[:, None] - vectors[which], axis=2)
    np.testing.assert_allclose(distances(vectors, which), exact, rtol=1e-6)
    import motley.selectors.common.facility as facility

    assert vectors.size * 3 < EXACT
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facility, "EXACT", 0)
        np.testing.assert_allclose(distances(vectors, which), exact, rtol=1e-4, atol=1e-5)
        assert distances(vectors, which)[which, range(3)].tolist() == [0, 0, 0]


def test_a_vector_with_a_hole_is_left_out_whole():
    table = ClientTable({"vector": np.nan})
    first = Reports(
        np.array([4, 7]), Outcome.PROBED, signals={"gradient": np.array([[1.0, 2.0], [3.0, 5.0]])}
    )
    holes = Reports(
        np.array([4, 9]),
        Outcome.PROBED,
        signals={"gradient": np.array([[8.0, np.nan], [np.nan, 1.0]])},
    )
    table = put_vectors(
        put_vectors(table, "vector", first, "gradient"), "vector", holes, "gradient"
    )
    vectors, known = known_vectors(table, "vector", np.array([4, 7, 9]))
    assert vectors.tolist() == [[1, 2], [3, 5], [2, 3.5]]
    assert known.tolist() == [True, True, False]


def test_without_any_known_vector_all_clients_are_equal():
    vectors, known = known_vectors(ClientTable({"vector": np.nan}), "vector", np.array([1, 2]))
    assert vectors.tolist() == [[0], [0]]
    assert not known.any()


@pytest.mark.parametrize("exact", [facility.EXACT, 0])
def test_vectors_of_a_run_that_diverges_stay_finite(monkeypatch, exact):
    """In a large federation too, where the products are float32."""
    monkeypatch.setattr(facility, "EXACT", exact)
    wild = Reports(
        np.arange(3),
        Outcome.PROBED,
        signals={"gradient": np.array([[1e300, 1], [-1e300, 1], [0, 1]])},
    )
    table = put_vectors(ClientTable({"vector": np.nan}), "vector", wild, "gradient")
    far = distances(known_vectors(table, "vector", np.arange(3))[0], np.arange(3))
    assert np.isfinite(far).all()
    assert cover(far, 2, np.arange(3)).objective[-1] < np.inf
