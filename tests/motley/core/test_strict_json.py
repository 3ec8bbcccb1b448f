"""Records with numbers that JSON does not have: what a strict parser reads, and what comes back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.files import changed, with_digest
from motley.core.strict_json import finite, restored, to_json


def strict(text: str) -> Any:
    """Return what a parser reads that takes only what RFC 8259 allows."""

    def refused(word: str) -> float:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refused)


def test_what_is_not_finite_is_null_and_says_what_it_was() -> None:
    record = {"a/b": {"~": [1.5, math.inf]}, "seconds": -math.inf, "rows": [{"x": math.nan}]}
    assert strict(to_json(record)) == {
        "a/b": {"~": [1.5, None]},
        "seconds": None,
        "rows": [{"x": None}],
        "not_finite": {"/a~1b/~0/1": "Infinity", "/seconds": "-Infinity", "/rows/0/x": "NaN"},
    }


@given(
    st.dictionaries(
        st.text(max_size=4).filter(lambda name: name != "not_finite"),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=4), one),
            max_leaves=6,
        ),
        max_size=3,
    )
)
def test_any_record_comes_back(record: dict[str, Any]) -> None:
    assert restored(strict(to_json(record))) == record


def test_a_record_of_an_earlier_version_stays_as_it_is() -> None:
    record = restored(json.loads('{"seconds": Infinity, "none": null}'))
    assert record == {"seconds": math.inf, "none": None}


@pytest.mark.parametrize(
    "record",
    [
        {"x": 1.0, "not_finite": {"/x": "NaN"}},
        {"x": None, "not_finite": {"/x": "nothing"}},
        {"x": None, "not_finite": {"/y": "NaN"}},
        {"x": [None], "not_finite": {"/x/1": "NaN"}},
        {"x": [None], "not_finite": {"/x/a": "NaN"}},
        {"x": None, "not_finite": {"/x/0": "NaN"}},
        {"x": None, "not_finite": {"": "NaN"}},
    ],
)
def test_an_explanation_of_what_is_no_null_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^not_finite names '.*', where there is no null$"):
        restored(record)


@pytest.mark.parametrize("told", [[], {"/x": 1}, "x"])
def test_an_explanation_that_is_none_is_refused(told: object) -> None:
    with pytest.raises(ValueError, match="not_finite is no table of texts"):
        restored({"x": None, "not_finite": told})


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(ValueError, match="it is a list and no record"):
        restored([["x", 1]])  # type: ignore[arg-type]


def test_a_digest_is_of_the_record_as_it_is_written() -> None:
    record = with_digest({"seconds": math.inf, "name": "a"})
    assert record == strict(to_json(record))
    assert not changed(record)
    assert changed({**record, "not_finite": {"/seconds": "NaN"}})
    assert finite(record) == record
