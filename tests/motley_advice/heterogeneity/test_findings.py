"""The record of an inspection: profile, JSON that reads back to the same bits, and refusals that
name what is wrong."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from motley.core.errors import DataError
from motley_advice.heterogeneity.findings import PROFILE, Finding, Inspection


def _inspection() -> Inspection:
    noise = Finding(
        "label_noise",
        1 / 3,
        0.2,
        0.4,
        "share",
        np.array([0.1, np.nan, 2 / 3]),
        "estimated",
        "counts",
        "sums of counts",
        80,
    )
    return Inspection.of(
        [Finding("size_gini", 0.25, unit="share", how="exact"), noise], 3, ("two of three clients",)
    )


def test_a_profile_has_all_names_and_nan_where_nothing_was_measured() -> None:
    profile = _inspection().profile()
    assert tuple(profile) == PROFILE
    assert profile["size_gini"] == 0.25
    assert {name for name, value in profile.items() if not math.isnan(value)} == {
        "size_gini",
        "label_noise",
    }


def test_json_reads_back_to_the_same_bits() -> None:
    one = _inspection()
    again = Inspection.from_json(one.to_json())
    assert again.to_json() == one.to_json()
    assert again.population == 3
    assert again.notes == ("two of three clients",)
    noise = again["label_noise"]
    assert (noise.value, noise.low, noise.how, noise.federated_bytes) == (
        1 / 3,
        0.2,
        "estimated",
        80,
    )
    assert noise.per_client is not None
    np.testing.assert_array_equal(noise.per_client, [0.1, np.nan, 2 / 3])
    assert math.isnan(again["size_gini"].low)
    assert json.loads(one.to_json())["findings"][0]["low"] is None  # NaN is no JSON


def test_findings_are_added_after_those_there() -> None:
    more = _inspection().with_findings([Finding("drift", 0.5)], ("ten rounds",))
    assert list(more.findings) == ["size_gini", "label_noise", "drift"]
    assert more.notes == ("two of three clients", "ten rounds")


def test_wrong_findings_are_refused() -> None:
    with pytest.raises(
        DataError,
        match=r"'x': got how = 'guessed'; expected one of: exact, estimated, not measurable",
    ):
        Finding("x", 1.0, how="guessed")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"the value 1.0 of something not measurable"):
        Finding("x", 1.0, how="not measurable")
    with pytest.raises(DataError, match="two findings are called 'x'"):
        Inspection.of([Finding("x", 1.0), Finding("x", 2.0)], 1)
    with pytest.raises(
        DataError, match=r"per_client of shape \[2\]; expected one number per client \[3\]"
    ):
        Inspection.of([Finding("x", 1.0, per_client=np.zeros(2))], 3)
    with pytest.raises(DataError, match=r"no finding 'size_gin' \(did you mean 'size_gini'\?\)"):
        _inspection()["size_gin"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "is JSON, and this text is not"),
        ("[]", "got version 'list'"),
        ('{"version": 9}', "got version 9 of an inspection; expected 1"),
        ('{"version": 1, "population": 2, "notes": []}', "incomplete .KeyError: 'findings'"),
        (
            '{"version": 1, "population": 2, "notes": [], "findings": [{"name": "x"}]}',
            "incomplete .KeyError: 'value'",
        ),
    ],
)
def test_a_text_that_is_no_inspection_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Inspection.from_json(text)
