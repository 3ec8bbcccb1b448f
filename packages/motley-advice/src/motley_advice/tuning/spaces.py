"""Spaces: the values that tuning may give to a key.

``0.1..0.9`` (a number between), ``log:0.001..1`` (between, its logarithm evenly), ``int:1..10`` (a
whole number), ``a,b,c`` (one of).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motley.core.errors import ConfigError
from motley.experiments.sweep import parse_over

_KINDS = "a..b, log:a..b, int:a..b, or x,y,z"
_STEPS = 1000
"""A number is rounded to about a thousandth of its range, or of itself where its logarithm is
searched."""


@dataclass(frozen=True)
class NumberSpace:
    """Numbers from ``low`` to ``high``, both included. ``log``: their logarithm is spread evenly.
    ``integer``: only whole numbers."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigError(
                f"got {self.low:g}..{self.high:g}; expected a smaller number, two points, a larger "
                "one"
            )
        if self.log and self.low <= 0:
            raise ConfigError(
                f"got log:{self.low:g}..{self.high:g}; a logarithm needs numbers above 0, e.g. "
                "log:0.001..1"
            )

    @property
    def size(self) -> int | None:
        """How many values there are; None where they are a continuum."""
        return int(self.high - self.low) + 1 if self.integer else None

    @property
    def ends(self) -> tuple[float, ...]:
        """The values that are tried before anything is run: the ends."""
        return (self.value(self.low), self.value(self.high))

    def at(self, share: float) -> float:
        """Return what lies at a share in (0, 1) of the way from low to high: a number for
        :meth:`value`."""
        if self.integer:
            return float(min(int(self.low + share * (self.high - self.low + 1)), int(self.high)))
        if self.log:
            return min(
                max(self.low * math.exp(share * math.log(self.high / self.low)), self.low),
                self.high,
            )
        return self.low + share * (self.high - self.low)

    def value(self, number: float) -> float:
        """Return the value of the key for a number of the search: rounded, within the ends."""
        if self.integer:
            return int(number)
        scale = abs(number) if self.log else self.high - self.low
        digits = math.ceil(math.log10(_STEPS / scale)) if scale else 0
        return min(max(round(float(number), digits - (1 if self.log else 0)), self.low), self.high)

    def number(self, value: object) -> float | None:
        """Return the number of the search for a value of the key; None where the space lacks it."""
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not self.low <= value <= self.high
        ):
            return None
        return None if self.integer and value != int(value) else value

    def __str__(self) -> str:
        kind = ""
        if self.integer:
            kind = "int:"
        elif self.log:
            kind = "log:"
        return f"{kind}{self.low:.12g}..{self.high:.12g}"


@dataclass(frozen=True)
class ChoiceSpace:
    """One of several values, of any type. The numbers of the search are their positions."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len({repr(value) for value in self.values}) < max(2, len(self.values)):
            raise ConfigError(
                f"got {', '.join(map(str, self.values))}; expected at least two different values"
            )

    @property
    def size(self) -> int | None:
        """How many values there are."""
        return len(self.values)

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that are tried before anything is run: all of them."""
        return self.values

    def at(self, share: float) -> float:
        """Return the position that lies at a share in (0, 1) of the values."""
        return float(min(int(share * len(self.values)), len(self.values) - 1))

    def value(self, number: float) -> Any:
        """Return the value at a position."""
        return self.values[int(number)]

    def number(self, value: object) -> float | None:
        """Return the position of a value; None where it is not one of them."""
        positions = [
            i
            for i, option in enumerate(self.values)
            if option == value or (isinstance(value, Mapping) and option == value.get("name"))
        ]
        return positions[0] if positions else None

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


Space = NumberSpace | ChoiceSpace

_NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(?:(\w+):)?({_NUMBER})\.\.({_NUMBER})")


def parse_space(space: str | Sequence[Any] | Space, key: str) -> Space:
    """Return the space that a text, a list of values or a space of ``key`` means.

    Raises
    ------
    ConfigError: anything else.

    Example
    -------
    >>> parse_space("log:0.001..1", "local.optimizer.lr")
    NumberSpace(low=0.001, high=1.0, log=True, integer=False)
    """
    try:
        if isinstance(space, NumberSpace | ChoiceSpace):
            return space
        if isinstance(space, str):
            return _of_text(space, key)
        if not isinstance(space, Sequence):
            raise ConfigError(f"got {space!r}; expected {_KINDS}, or a list of values")
        return ChoiceSpace(tuple(space))
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("--over: "), key) from None


def _of_text(text: str, key: str) -> Space:
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        if ".." in text or re.match(r"(log|int):", text.strip()):
            raise ConfigError(f"got {text!r}; expected {_KINDS}, e.g. log:0.001..1")
        return ChoiceSpace(tuple(parse_over(f"{key}={text}")[1]))
    kind = match[1] or ""
    low = float(match[2])
    high = float(match[3])
    if kind not in ("", "log", "int"):
        raise ConfigError(f"got {text!r}; expected {_KINDS}, e.g. log:0.001..1")
    if kind == "int" and (low != int(low) or high != int(high)):
        raise ConfigError(f"got {text!r}; expected whole numbers, e.g. int:1..10")
    return NumberSpace(low, high, kind == "log", kind == "int")


def parse_spaces(texts: Sequence[str]) -> dict[str, str]:
    """Return ``[METHOD:]KEY`` -> text of its space, of options like
    ``local.optimizer.lr=log:0.001..1``.

    Raises
    ------
    ConfigError: one is not ``KEY=SPACE``, or a key occurs twice.
    """
    spaces: dict[str, str] = {}
    for text in texts:
        key, equals, space = (piece.strip() for piece in text.partition("="))
        if not (key and equals and space):
            raise ConfigError(
                f"got {text!r}; expected KEY=SPACE, e.g. local.optimizer.lr=log:0.001..1", "--over"
            )
        if key in spaces:
            raise ConfigError(f"got {key!r} twice; give one space for it", "--over")
        spaces[key] = space
    return spaces
