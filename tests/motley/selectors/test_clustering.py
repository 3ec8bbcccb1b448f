"""k-means and spectral clustering: worked similarities, planted groups, the factor form against
matrices, exactly P coalitions."""

import hashlib
import os
import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from motley.core.keys import Key
from motley.selectors.common.clustering import (
    coalitions,
    embedding,
    fill_empty,
    k_means,
    merged,
    nearest,
    numbered,
    row_angles,
    scikit_coalitions,
    similarity,
    unit_rows,
)
from motley.selectors.fedcvr_bolt import FedCvrBolt

PLANTED = np.repeat(100.0 * np.eye(4), 5, axis=0) + Key(0).normal(np.arange(20), 4)


def test_k_means_finds_planted_groups():
    label = k_means(PLANTED, 4, Key(0), restarts=8)
    assert {frozenset(np.flatnonzero(label == h).tolist()) for h in range(4)} == {
        frozenset(range(5 * h, 5 * h + 5)) for h in range(4)
    }


def test_groups_are_numbered_by_their_first_members():
    assert numbered(np.array([2, 0, 2, 1, 0])).tolist() == [0, 1, 0, 2, 1]
    points = np.array([[9.0], [0.0], [9.1], [5.0], [0.1]])
    for seed in range(20):  # whichever group k-means++ finds first
        assert k_means(points, 3, Key(seed)).tolist() == [0, 1, 0, 2, 1]


def test_points_that_differ_by_rounding_are_one():
    """0.1 + 0.2 is not 0.3 in float64: three different points, and a fourth group would be split
    off by the last bit."""
    points = np.array([[0.3], [0.1 + 0.2], [1.0], [0.3], [2.0]])
    same, different = merged(points)
    assert same.tolist() == [[0.3], [0.3], [1.0], [0.3], [2.0]]
    assert different == 3
    assert k_means(points, 4, Key(0)).tolist() == [0, 0, 1, 0, 2]
    assert coalitions(points, 4, "gaussian", 1.0, Key(0)).tolist() == [0, 0, 1, 3, 2]


def test_angles_between_equal_directions_are_zero():
    """The cosine of (1, 1, 1) and (.1, .1, .1) is computed as 1 - 2^-53 or so, whose arc is
    1.5e-8."""
    x = np.array([[1.0, 1, 1], [0.1, 0.1, 0.1], [1, -1, 0], [0, 0, 0]])
    right = np.pi / 2
    expected = [[0, 0, right, right], [0, 0, right, right], [right, right, 0, right]]
    np.testing.assert_allclose(row_angles(x)[:3], expected, atol=1e-15)


def test_k_means_of_equal_points_has_one_group():
    assert len(set(k_means(np.ones((3, 2)), 2, Key(0)).tolist())) == 1


def test_k_means_is_a_function_of_points_and_key_in_any_process_and_with_any_number_of_threads():
    """Twenty blocks of samples, which scikit-learn would spread over threads and sum in the order
    in which they finish."""
    program = """
import hashlib
from motley.core.keys import Key
from motley.selectors.common.clustering import k_means
points = Key(1).normal(range(5000), 6)
print(hashlib.sha256(k_means(points, 12, Key(2)).tobytes()).hexdigest())
"""
    with threadpool_limits(1):
        here = hashlib.sha256(k_means(Key(1).normal(range(5000), 6), 12, Key(2)).tobytes())
    env = {**os.environ, "OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"}
    run = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == here.hexdigest()


@settings(max_examples=12)
@given(st.integers(0, 2**20), st.booleans())
def test_k_means_is_a_function_of_its_arguments(seed, equal):
    """Calls in between, and who holds the same numbers, make no difference, and it changes none."""
    x = Key(seed).normal(np.arange(40), 5)  # in no groups: another start ends elsewhere
    x = x[[0, 0, 2, 2, *range(4, 40)]] if equal else x
    before = x.copy()
    groups = k_means(x, 10, Key(seed))
    k_means(PLANTED, 4, Key(0))
    assert k_means(before.copy(), 10, Key(seed)).tolist() == groups.tolist()
    assert np.array_equal(x, before)


@settings(max_examples=12)
@given(st.integers(0, 2**20), st.sampled_from(["gaussian", "cosine"]), st.booleans())
def test_coalitions_are_a_function_of_their_arguments(seed, kernel, equal):
    """Calls in between, and who holds the same numbers, make no difference, and they change
    none."""
    x = Key(seed).normal(np.arange(40), 5)  # in no groups: another start ends elsewhere
    x = x[[0, 0, 2, 2, *range(4, 40)]] if equal else x
    unit = unit_rows(x)
    before, unit_before = x.copy(), unit.copy()
    groups = coalitions(unit, 10, kernel, 1.0, Key(seed))
    by_scikit = scikit_coalitions(x, 10, 1.0, 7)
    coalitions(PLANTED, 4, kernel, 1.0, Key(0))
    scikit_coalitions(PLANTED, 3, 1.0, 0)
    assert coalitions(unit_before.copy(), 10, kernel, 1.0, Key(seed)).tolist() == groups.tolist()
    assert scikit_coalitions(before.copy(), 10, 1.0, 7).tolist() == by_scikit.tolist()
    assert np.array_equal(x, before)
    assert np.array_equal(unit, unit_before)


def test_nearest_centre_by_hand():
    """Squared distances of (1, 0) to (0, 0), (3, 0), (2, 0): 1, 4, 1; the first of equals."""
    assert nearest(np.array([[1.0, 0], [4, 1]]), np.array([[0.0, 0], [3, 0], [2, 0]])).tolist() == [
        0,
        1,
    ]


def test_worked_similarities():
    """FedCVR-Bolt's (c), with its g."""
    x = np.array([[1.0, 0], [0.8, 0.6], [0, 1]])
    w = similarity(x, "gaussian", FedCvrBolt().g)
    np.testing.assert_allclose(w[np.triu_indices(3, 1)], [0.343737, 0.080177, 0.247766], atol=1e-6)
    np.testing.assert_allclose(np.diag(w), [0.553816, 0.471776, 0.631049], atol=1e-6)
    np.testing.assert_allclose(
        similarity(x, "cosine")[np.triu_indices(3, 1)], [0.8, 0, 0.6], atol=1e-12
    )
    np.testing.assert_allclose(unit_rows(5 * x), x)


def test_all_landmarks_give_the_exact_subspace():
    """With every client a landmark the factor is the matrix: both embeddings span the same space,
    up to rotation."""
    x = unit_rows(np.random.default_rng(0).normal(size=(40, 5)))
    for kernel in ("gaussian", "cosine"):
        exact, factor = (embedding(x, 3, kernel, 1.0, Key(0), limit, 40) for limit in (100, 0))
        np.testing.assert_allclose(exact @ exact.T, factor @ factor.T, atol=1e-6)


@given(st.integers(1, 25), st.integers(1, 25), st.integers(0, 3), st.booleans(), st.booleans())
def test_exactly_m_coalitions_none_empty(K, m, kinds, big, cosine):
    """Also of identical models (few kinds of them, or all zero)."""
    x = unit_rows(
        np.random.default_rng(K).normal(size=(kinds + 1, 3))[np.arange(K) % (kinds + 1)]
        * (kinds > 0)
    )
    kernel = "cosine" if cosine else "gaussian"
    labels = coalitions(x, m, kernel, 1.0, Key(0), 0 if big else 1000, 10)
    assert sorted(set(labels.tolist())) == list(range(min(m, K)))


def test_fill_empty_halves_the_largest():
    assert fill_empty(np.array([5, 5, 5, 5, 2]), 4).tolist() == [1, 3, 2, 2, 0]
    assert fill_empty(np.zeros(0, np.int64), 0).tolist() == []
