"""Numbers as text, for every table, picture and message of results."""

from __future__ import annotations

from collections.abc import Collection
from math import floor, isfinite, log10

from motley.results.measures import Spread

MB = 8e6
"""Bits in a megabyte (decimal, as the papers count)."""


def short_number(value: float, like: float | None = None) -> str:
    """Format with about four significant digits, thousands apart: ``86.93``, ``1 204``, ``0.012``;
    a dash for no number.

    ``like``: another number whose count of decimals is taken, so that a mean and its spread line
    up.
    """
    if not isfinite(value):
        return "–"
    size = abs(value if like is None else like)
    if 0 < size < 1e-4:
        return f"{value:.1e}"
    if size >= 1000:
        digits = 0
    elif size >= 100:
        digits = 1
    elif size >= 1 or size == 0:
        digits = 2
    else:
        digits = max(3, 1 - floor(log10(size)))
    return with_decimals(value, digits)


def with_decimals(value: float, digits: int) -> str:
    """Format with so many decimals, thousands apart: ``1 204.5``."""
    return f"{value:,.{digits}f}".replace(",", "\u202f")


def whole(number: float) -> str:
    """Format a count (or the mean of counts) with thin spaces between thousands and no idle
    decimals; a dash for no number."""
    return with_decimals(number, 1).removesuffix(".0") if isfinite(number) else "–"


def number_range(numbers: Collection[int]) -> str:
    """Format whole numbers, one at least, by the least and the most of them: ``3``, ``2 to 5``."""
    return " to ".join(dict.fromkeys((str(min(numbers)), str(max(numbers)))))


def plus_minus(spread: Spread, digits: int | None = None) -> str:
    """Format ``mean ± standard deviation over seeds``; the mean alone for one seed. ``digits``:
    decimals."""
    if digits is not None and isfinite(spread.mean):
        return with_decimals(spread.mean, digits) + (
            f" ± {with_decimals(spread.std, digits)}" if isfinite(spread.std) else ""
        )
    return short_number(spread.mean) + (
        f" ± {short_number(spread.std, spread.mean)}" if isfinite(spread.std) else ""
    )
