"""The budget of a round: the printed values, the exact means, both readings of the cosine.

Worked numbers: docs/methods/compression.md#schedule.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.transport.budgets import ConstantBudget, CosineBudget


def rounds(budget, horizon):
    return np.array([budget.ratio(t, horizon) for t in range(1, horizon + 1)])


def test_the_printed_values():
    """``motley.selectors.hetero_select`` (b): theta at t = 1, 2, 20, 51, 100 of 100. By hand at t
    = 100: cos pi = -1, 0.2 (1 - 0.4) = 0.12; at t = 2: cos(pi / 99) = 0.999496, 0.2 (1 + 0.399799)
    = 0.279960. The floor of 0.08 binds where the amplitude is 0.8: 0.2 (1 - 0.8) = 0.04."""
    theta = rounds(CosineBudget(), 100)
    np.testing.assert_allclose(
        theta[[0, 1, 19, 50, 99]], [1, 0.279960, 0.265894, 0.198731, 0.12], atol=5e-7
    )
    assert theta[1:].min() == pytest.approx(0.12)
    assert CosineBudget(amplitude=0.8).ratio(100, 100) == 0.08


def test_means_of_the_published_run():
    """Text: 100 rounds of the cosine sum to 20, round 1 gives 1 in place of 0.28: 20.72 / 100.
    Code: the cosine runs over rounds 2..100, its mean there is 0.2, and with round 1 (19.8 + 1) /
    100."""
    text = rounds(CosineBudget(), 100)
    code = rounds(CosineBudget(as_published="code"), 100)
    assert text.mean() == pytest.approx(0.2072, rel=1e-12)
    assert text[1:].mean() == pytest.approx(0.199192, abs=5e-7)
    assert code[1:].mean() == pytest.approx(0.2, rel=1e-12)
    assert code.mean() == pytest.approx(0.208, rel=1e-12)
    assert code[1] == pytest.approx(0.28)
    assert code[99] == pytest.approx(0.12)


@given(st.floats(0.01, 0.5), st.floats(0, 1), st.integers(2, 300))
def test_the_mean_is_the_average_exactly(average, amplitude, horizon):
    """cos(pi (t - 1) / (T - 1)) over t = 1..T pairs t with T + 1 - t to 0."""
    theta = rounds(CosineBudget(average, 0, amplitude, 0.0), horizon)
    assert theta.mean() == pytest.approx(average, rel=1e-12)
    assert ((theta >= -1e-15) & (theta <= 1)).all()
    assert (np.diff(theta) <= 1e-15).all()


def test_the_floor():
    """Amplitude 1: the last is 0 without a floor."""
    theta = rounds(CosineBudget(0.2, 0, 1.0, 0.05), 50)
    assert theta.min() == 0.05
    assert theta[0] == 0.4


def test_warm_up():
    budget = CosineBudget(warm_up=3)
    assert rounds(budget, 10)[:3].tolist() == [1, 1, 1]
    assert [budget.warm(t) for t in (1, 3, 4)] == [True, True, False]
    assert rounds(ConstantBudget(0.2, 1), 4).tolist() == [1, 0.2, 0.2, 0.2]
    assert CosineBudget(warm_up=3, as_published="code").ratio(4, 10) == pytest.approx(0.28)


def test_a_constant_knows_no_end():
    assert ConstantBudget().ratio(7, None) == 1.0
    assert ConstantBudget(0.3).ratio(7, None) == 0.3


@pytest.mark.parametrize("variant", ["text", "code"])
@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_short_runs(variant, horizon):
    theta = rounds(CosineBudget(warm_up=0, as_published=variant), horizon)
    assert theta[0] == pytest.approx(0.28)
    assert all(math.isfinite(x) for x in rounds(CosineBudget(as_published=variant), horizon))


def test_rounds_after_the_last_stay():
    assert CosineBudget().ratio(130, 100) == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConstantBudget(0.0), r"got average = 0.0; expected a share in \(0, 1\]"),
        (lambda: ConstantBudget(1.5), "got average = 1.5"),
        (lambda: ConstantBudget(0.2, -1), "got warm_up = -1"),
        (lambda: CosineBudget(amplitude=1.2), "got amplitude = 1.2; expected a number from 0"),
        (lambda: CosineBudget(0.8), "amplitude of at most 0.25"),
        (
            lambda: CosineBudget(floor=0.3),
            r"got floor = 0.3; expected a share from 0 to average = 0.2",
        ),
        (lambda: CosineBudget().ratio(2, None), "needs the number of rounds"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
