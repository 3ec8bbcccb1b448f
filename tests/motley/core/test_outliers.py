"""Which uploads stand out and how much a number of samples may weigh, worked by hand."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from motley.core.outliers import excessive, outlying, outlying_of_arrays, weight_cap


def _all(*vectors: list[float]) -> list[np.ndarray]:
    return [np.array(one, np.float32) for one in vectors]


def test_the_distance_that_is_too_far_by_hand() -> None:
    """With 0, the values are 0, 1, 1, 1, u: their median is 1 and every other distance 0, so the
    limit is factor * |m| = 10."""
    assert outlying(_all([1], [1], [1], [11.0]), factor=10.0) == []
    assert outlying(_all([1], [1], [1], [11.5]), factor=10.0) == [3]
    assert outlying(_all([1], [1], [1], [-9.5]), factor=10.0) == [3]


def test_distances_of_the_others_count_where_the_middle_is_zero() -> None:
    """The median of 0, 3, -3, 4, -4, u is 0 or, above, 1.5: with u = 90 the others lie 1.5, 4.5,
    2.5 and 5.5 from 1.5, in the middle 3.5, so that 88.5 is above 25 and not above 26 times as
    far."""
    vectors = _all([3], [-3], [4], [-4], [90])
    assert outlying(vectors, factor=25.0) == [4]
    assert outlying(vectors, factor=26.0) == []


def test_of_two_uploads_the_huge_one_stands_out_and_of_one_none() -> None:
    assert outlying(_all([1, -1, 1], [1e15, 1e15, -1e15])) == [1]
    assert outlying(_all([1e30, -1e30])) == []
    assert outlying(_all([1e15, 1e15], [-1e15, 1e15])) == []
    assert outlying([]) == []


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_uploads_that_are_not_finite_are_named_and_hide_nothing(wrong: float) -> None:
    assert outlying(_all([1, 2], [wrong, 2], [1, 1e9], [2, 1], [1, 1])) == [1, 2]
    assert outlying(_all([wrong, 1], [wrong, 1])) == [0, 1]


def test_squares_may_overflow() -> None:
    assert outlying([np.array([1.0]), np.array([2.0]), np.array([1e200])]) == [2]


def test_fewer_than_half_that_agree_are_all_named_and_more_accuse_nobody() -> None:
    honest = [np.random.default_rng(i).normal(size=50) for i in range(6)]
    assert outlying([*honest, *[np.full(50, 1000.0)] * 5]) == [6, 7, 8, 9, 10]
    assert outlying([*honest[:2], *[np.full(50, 1000.0)] * 5]) == []


def test_nothing_is_named_where_nothing_stands_out() -> None:
    """Updates of 10^3 clients whose norms differ by a factor of 20, of two alike, and zeros."""
    uploads = [(1 + i % 20) * np.random.default_rng(i).normal(size=20) for i in range(1000)]
    assert outlying(uploads) == []
    assert outlying([*uploads, np.full(20, 1e5)]) == [1000]
    assert outlying([np.ones(3)] * 2) == outlying([np.zeros(3)] * 4) == []


def test_an_upload_of_several_arrays_is_one_vector() -> None:
    """The middle is 0; distances 3 and 4 in two arrays make 5, and of the others' 0, 0.14 and 0.1
    the median is 0.1."""
    arrays = [
        [np.zeros(1), np.zeros(1), np.full(1, 3.0), np.full(1, 0.1)],
        [np.full((2, 1), v) for v in (0.0, 0.1, 0.0, 0.0)],
        [np.full(1, v) for v in (1, 2, 10**9, 3)],
    ]
    arrays[1][2] = np.array([[4.0], [0.0]])
    assert outlying_of_arrays(arrays, factor=49.0) == [2]
    assert outlying_of_arrays(arrays, factor=51.0) == []
    assert outlying_of_arrays([[np.ones(1, np.int64), np.full(1, 10**12)]]) == []
    with pytest.raises(
        ValueError, match=r"got uploads of shapes \[\(1,\), \(2,\)\]; expected one shape"
    ):
        outlying([np.zeros(1), np.zeros(2)])


def test_memory_does_not_grow_with_the_model() -> None:
    """Thirty uploads of 4 MB are 120 MB; what is taken beside them is less than 80."""
    uploads = [np.ones(1_000_000, np.float32)] * 29 + [np.full(1_000_000, 1e6, np.float32)]
    tracemalloc.start()
    assert outlying(uploads) == [29]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 110e6


def test_the_cap_of_weights_by_hand() -> None:
    assert weight_cap([10, 30, 20]) == 200.0
    assert weight_cap([10, 30, 20, 40], multiple=2.0) == 40.0
    assert weight_cap([7]) == 70.0
    assert weight_cap([5, 2**53]) == 50.0
    assert weight_cap([0, 0, 5]) == 50.0
    assert weight_cap([0]) == weight_cap([]) == math.inf
    assert np.minimum([100, 2**53, 0], weight_cap([100, 2**53, 0])).tolist() == [100, 1000, 0]


def test_numbers_far_beyond_those_of_the_others_by_hand() -> None:
    """Of client 2's others the median is (0.5 + 4) / 2 = 2.25, and 1000 times that 2250."""
    losses = {0: {"loss": 0.5}, 1: {"loss": 4.0}, 2: {"loss": 2250.0}, 3: {"other": 1e300}}
    assert excessive(losses) == {}  # of "other" there is one report alone
    losses[2] = {"loss": -2251.0}
    assert excessive(losses) == {
        2: "its 'loss' of 2251 is more than 1000 times what the other clients report"
    }
    assert excessive(losses, 1001.0) == {}
    # numbers up to the factor itself are never meant, nor NaN, nor lists of none
    small = {0: {"n": 0.0, "m": [np.nan], "k": []}, 1: {"n": 1000.0, "m": [1e9]}, 2: {"n": 0.0}}
    assert excessive(small) == {}
    lists = {0: {"s": [1.0, -3.0]}, 1: {"s": [2.0, 2.0]}, 2: {"s": [0.0, -1e308]}}
    assert list(excessive(lists)) == [2]
