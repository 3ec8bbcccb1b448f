"""JSON as every reader takes it: without NaN and Infinity, which JSON does not have.

Where a record holds such a number, null is written, and the record's key ``not_finite`` says what
it was, by its JSON pointer (RFC 6901)::

    {"stop": {"target": null}, "not_finite": {"/stop/target": "Infinity"}}
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

NOT_FINITE = "not_finite"
"""The key of a record that says which of its nulls are numbers that are not finite."""
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def finite(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with None for numbers that are not finite, and what they were.

    >>> finite({"seconds": math.inf, "shares": [0.5, math.nan]})["not_finite"]
    {'/seconds': 'Infinity', '/shares/1': 'NaN'}
    >>> finite({"seconds": 1.0})
    {'seconds': 1.0}
    """
    words = dict(_words(record, ""))
    return {**_with_nulls(record), **({NOT_FINITE: words} if words else {})}


def restored(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of which :func:`finite` returned ``record``; one that holds NaN and
    Infinity, as earlier versions wrote, stays as it is.

    Raises
    ------
    ValueError: no record, or what it says of a number that is not finite is not true of it.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"it is a {type(record).__name__} and no record")
    out = dict(record)
    words = out.pop(NOT_FINITE, {})
    if not isinstance(words, Mapping) or not all(isinstance(text, str) for text in words.values()):
        raise ValueError(f"{NOT_FINITE} is no table of texts")
    if words:  # become numbers in place, deep inside; the caller's record stays as it was read
        out = copy.deepcopy(out)
    for pointer, word in words.items():
        *way, last = pointer.split("/")[1:] or [""]
        inside: Any = out
        for step in way:
            inside = inside[_place(inside, step, pointer)]
        place = _place(inside, last, pointer)
        if inside[place] is not None or word not in _WORDS:
            raise _untrue(pointer)
        inside[place] = _WORDS[word]
    return out


def to_json(record: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Return a record as strict JSON.

    Raises
    ------
    TypeError: a value that JSON does not have.
    """
    try:  # most records hold nothing to be replaced
        return json.dumps(record, indent=indent, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # a mapping that is no dict, a number that is not finite
        return json.dumps(finite(record), indent=indent, ensure_ascii=False, allow_nan=False)


def _words(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield the pointer of each number that is not finite, and which it is."""
    if isinstance(value, float) and not math.isfinite(value):
        yield pointer, json.dumps(float(value))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _words(inner, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _words(inner, f"{pointer}/{place}")


def _with_nulls(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _with_nulls(inner) for key, inner in value.items()}
    return [_with_nulls(inner) for inner in value] if isinstance(value, list | tuple) else value


def _place(value: Any, step: str, pointer: str) -> str | int:
    """Return the key or index that a step of a pointer names in a value."""
    key = step.replace("~1", "/").replace("~0", "~")
    if isinstance(value, dict) and key in value:
        return key
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        return int(step)
    raise _untrue(pointer)


def _untrue(pointer: str) -> ValueError:
    return ValueError(f"{NOT_FINITE} names {pointer!r:.80}, where there is no null")
