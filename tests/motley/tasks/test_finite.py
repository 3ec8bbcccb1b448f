"""What became infinite or NaN, beside what a model holds by design."""

from __future__ import annotations

import pytest
import torch

from motley.tasks.finite import all_finite, became_non_finite, without_constants

INF, NAN = torch.inf, torch.nan


@pytest.mark.parametrize(
    ("after", "before", "became"),
    [
        ([0.0, -INF], [1.0, -INF], False),
        ([NAN, 1.0], [NAN, 2.0], False),
        ([0.0, -INF], [0.0, INF], True),  # another one
        ([0.0, NAN], [0.0, INF], True),
        ([NAN, -INF], [0.0, -INF], True),
        ([3.0, 2.0], [INF, NAN], False),  # the smallest value so far, from the first batch on
        ([0.0, -INF], [-INF], True),  # another shape
        ([], [], False),
    ],
)
def test_what_became_so(after: list[float], before: list[float], became: bool) -> None:
    assert became_non_finite(torch.tensor(after), torch.tensor(before)) is became
    assert became_non_finite(torch.tensor(after)) is not all_finite(torch.tensor(after))


def test_rows_are_compared_one_by_one_and_other_types_with_the_numbers_they_hold() -> None:
    before = torch.tensor([-INF, 0.0])
    rows = torch.tensor([[-INF, 1.0], [-INF, NAN]], dtype=torch.float64)
    found = without_constants(rows, before)
    torch.testing.assert_close(
        found, torch.tensor([[0.0, 1.0], [0.0, NAN]]).double(), equal_nan=True
    )
    finite = torch.ones(2)
    assert without_constants(finite, before) is finite
    assert all_finite(torch.arange(3))
