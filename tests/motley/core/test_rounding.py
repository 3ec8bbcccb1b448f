import numpy as np
import pytest

from motley.core.rounding import DIGITS, deviations, rounded


def test_numbers_are_rounded_to_34_binary_digits_by_hand():
    """1 + 2^-33 has 34 digits and stays; 1 + 2^-35 does not; half of the last digit goes up."""
    assert DIGITS == 34
    given = np.array([1 + 2.0**-33, 1 + 2.0**-35, 1 + 2.0**-34, -1 - 2.0**-34, 0.0])
    assert rounded(given).tolist() == [1 + 2.0**-33, 1.0, 1 + 2.0**-33, -1 - 2.0**-33, 0.0]


def test_every_float32_stays_and_the_input_is_not_changed():
    given = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    assert (rounded(given) == given).all()
    third = np.array([1 / 3])
    assert rounded(third) != third
    assert third[0] == 1 / 3


def test_infinite_numbers_and_nan_stay():
    given = np.array([np.inf, -np.inf, np.nan, 5e-324])
    np.testing.assert_array_equal(rounded(given), [np.inf, -np.inf, np.nan, 0.0])


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_sums_in_another_order_are_equal(scale):
    parts = scale * np.random.default_rng(1).random(100)
    one, other = parts.sum(), parts[::-1].cumsum()[-1]
    assert one != other
    assert rounded(np.array([one])) == rounded(np.array([other]))


def test_equal_points_have_no_deviation():
    """The mean of three times 0.1 is not 0.1 in float64."""
    points = np.full((3, 2), 0.1)
    assert (points.sum(axis=0) / 3 != points).any()
    assert (deviations(points) == 0).all()
    assert deviations(np.array([[1.0], [3.0]])).tolist() == [[-1.0], [1.0]]
