"""Markdown helpers that the makers of the pages share."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "ROOT",
    "code",
    "difference",
    "listed",
    "prose",
    "rate",
    "short",
    "signed",
    "table",
    "with_bounds",
    "with_deviation",
]

ROOT = Path(__file__).resolve().parents[1]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def listed(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str] | Sequence[tuple[str, str]]
) -> str:
    """Return records as a Markdown table.

    ``columns``: head -> format of a record's fields, ``"{seconds:.1f} s"``; after the colon may
    stand a name of :data:`FORMATS`. Pairs where two heads are alike."""
    pairs = columns.items() if isinstance(columns, Mapping) else columns
    heads, formats = zip(*pairs, strict=True)
    cells = _Cells()
    return table(heads, [[cells.vformat(text, (), row) for text in formats] for row in rows])


class _Cells(string.Formatter):
    """Formats the fields of a record."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value in the words of its format."""
        words = FORMATS.get(format_spec)
        return format(value, format_spec) if words is None else words(value)


def rate(value: float) -> str:
    """Return a number in whole, or with three digits where it is small."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def short(value: float) -> str:
    """Return a number in whole, or with three digits below a thousand."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def signed(value: float) -> str:
    """Return a number with its sign, to one digit."""
    return f"{value:+.1f}".replace("-", "−")


def with_deviation(pair: Sequence[float | None], digits: int = 1) -> str:
    """Return a mean and its standard deviation, each of which may be unknown."""
    mean, deviation = pair
    if mean is None:
        return "-"
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def with_bounds(bounds: Sequence[float], digits: int) -> str:
    """Return a mean and the bounds of its interval."""
    mean, low, high = (f"{value:.{digits}f}".replace("-", "−") for value in bounds)
    return f"{mean} ({low} to {high})"


def difference(bounds: Sequence[float] | None) -> str:
    """Return a difference with its interval, bold where the interval excludes zero; a dash for
    none."""
    if bounds is None:
        return "-"
    mean, low, high = map(signed, bounds)
    undecided = bounds[1] <= 0 <= bounds[2]
    return f"{mean} ({low} to {high})" if undecided else f"**{mean}** ({low} to {high})"


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "count": lambda values: str(len(values)),
    "difference": difference,
    "goal": lambda goal: f">= {goal:g}" if goal else "-",
    "magnitude": lambda value: "-" if value is None else f"{value:.0e}",
    "mean": lambda values: f"{sum(values) / len(values):.2f}",
    "median": lambda times: f"{rate(times['median'])} ({rate(times['best'])})",
    "rate": rate,
    "share": lambda share: f"{100 * share:.0f} %",
    "short": short,
    "spread": with_deviation,
    "until": lambda until: ("" if until[1] else "> ") + short(until[0]),
}
"""Name of a format -> the function that makes a text of a value."""


def prose(text: str) -> str:
    """Return a docstring's sentence as Markdown on one line."""
    text = re.sub(
        r":(?:class|func|data|meth|mod):`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", " ".join(text.split())
    )
    return text.replace("``", "`").replace("||", "‖")  # a bar would end the cell of a table


def code(value: object) -> str:
    """Return a value as it is written in an experiment file."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {code(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)
