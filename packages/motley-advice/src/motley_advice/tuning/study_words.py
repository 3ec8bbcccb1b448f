"""Values, results and times of a study in words."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from motley.results.measures import Interval
from motley_advice.tuning.objectives import Objective, ObjectiveValue


def in_words(values: Mapping[str, Any]) -> str:
    """Return values by the last parts of their keys: ``lr = 0.03, mu = 0.1``."""
    return ", ".join(f"{_name(key)} = {_plain(value)}" for key, value in values.items())


def folder_name(values: Mapping[str, Any]) -> str:
    """Return values as the name of a folder: ``lr=0.03 mu=0.1``."""
    return " ".join(f"{_name(key)}={_plain(value)}" for key, value in values.items())


def _name(key: str) -> str:
    table, _, last = key.rpartition(".")
    return table.rpartition(".")[2] if last == "name" else last


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        more = ", ".join(
            f"{key} {_plain(option)}" for key, option in value.items() if key != "name"
        )
        return f"{value.get('name', '')}{f' ({more})' if more else ''}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def number(value: float, objective: Objective) -> str:
    """Return a value of an objective as text, with the unit of a cost."""
    if not isfinite(value):
        return "–"
    return f"{value:,.4g} {objective.unit}" if objective.unit else f"{value:.4f}"


def shown(objective: Objective, value: ObjectiveValue) -> str:
    """Return the value of an objective: ``0.9120``, ``> 312 s``, ``diverged``."""
    if value.diverged:
        return "diverged"
    return f"{'' if value.reached else '> '}{number(value.value, objective)}"


def with_interval(interval: Interval, objective: Objective, sign: bool = False) -> str:
    """Return a mean with its interval; ``sign``: with a plus before a gain."""
    if not isfinite(interval.mean):
        return "–"
    ends = (interval.mean, interval.low, interval.high)
    texts = [f"{'+' if sign and end > 0 else ''}{number(end, objective)}" for end in ends]
    return f"{texts[0]} ({texts[1]} to {texts[2]})" if isfinite(interval.low) else texts[0]


def long(seconds: float) -> str:
    """Return a time in a unit that a reader can picture."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
