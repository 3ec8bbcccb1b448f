"""Check the numbers that a client sends before they are used; each function raises a
:class:`NodeError` for anything else."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from motley.core.arrays import Floats
from motley.core.outliers import LARGEST_NUMBER
from motley.core.sketch import SKETCHES
from motley.core.untrusted import one_line, printable, shortened

LARGEST_WHOLE = 2**53
"""Metrics are numbers of 64 bits; larger whole numbers are not exact as floats."""
LONGEST_LIST = 4_000_000
"""Numbers that one metric may list."""
LONGEST_TEXT = 600
"""Characters of what is wrong with what a node sent."""
LONGEST_NAME = 120
"""Characters of the name of a record, an array or a number."""


class NodeError(Exception):
    """What a node sent cannot be used; it affects this node only. Its text holds no control
    characters and no long words of the node's own."""

    def __init__(self, text: str) -> None:
        super().__init__(shortened(printable(text).replace("\n", " "), LONGEST_TEXT))


class AppError(NodeError):
    """A :class:`NodeError` that all nodes would cause when their client app does not fit the
    request."""


def number_of(value: Any, name: str) -> float:
    """Return one finite number of at most :data:`~motley.core.outliers.LARGEST_NUMBER`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NodeError(f"{one_line(name)} is {one_line(value, 60)}; expected one finite number")
    try:
        number = float(value)
    except OverflowError:  # Python's whole numbers have no largest one
        number = math.inf
    if not math.isfinite(number):
        raise NodeError(f"{one_line(name)} is {number}; expected one finite number")
    if abs(number) > LARGEST_NUMBER:
        raise NodeError(f"{one_line(name)} is {number:g}; expected at most {LARGEST_NUMBER:.2g}")
    return number


def whole_number(value: Any, name: str, largest: int = LARGEST_WHOLE) -> int:
    """Return a whole number from 0 to ``largest``."""
    number = number_of(value, name)
    # the value itself: as a float 2^53 + 1 is 2^53
    if number != int(number) or not 0 <= value <= largest:
        raise NodeError(
            f"{one_line(name)} is {number:.17g}; expected a whole number from 0 to {largest}"
        )
    return int(value)


def numbers_of(value: Any, name: str, length: int | None = None) -> Floats:
    """Return a list of finite numbers as an array, of this length where given."""
    if (
        not isinstance(value, list)
        or not 0 < len(value) <= LONGEST_LIST
        or len(value) != (length or len(value))
    ):
        received = f"{len(value)} numbers" if isinstance(value, list) else one_line(value, 60)
        raise NodeError(
            f"{one_line(name)} is {received}; expected a list of {length or f'1 to {LONGEST_LIST}'}"
            " numbers"
        )
    return np.array([number_of(number, name) for number in value], np.float64)


def signal_shape(name: str, model_size: int) -> tuple[int, ...]:
    """Return the shape of a signal that clients measure on a model of so many parameters."""
    if name == "gradient":
        return (model_size,)
    return (SKETCHES[name],) if name in SKETCHES else ()


def signal_of(name: str, value: Any, model_size: int) -> float | Floats:
    """Return a signal from a metric record, finite and of its documented shape."""
    shape = signal_shape(name, model_size)
    if name == "last_layer":
        return numbers_of(value, name)
    return numbers_of(value, name, shape[0]) if shape else number_of(value, name)


def check_names(names: Iterable[object]) -> None:
    """Refuse names that no log should hold: longer than :data:`LONGEST_NAME` characters, or with
    control characters."""
    for name in names:
        if not isinstance(name, str) or len(name) > LONGEST_NAME or not name.isprintable():
            raise NodeError(
                f"it has the name {one_line(name)}; expected at most {LONGEST_NAME} characters, "
                "all printable"
            )


def only_metrics(content: Any) -> tuple[str, Any]:
    """Return the key and the values of the one MetricRecord that a message must hold; an
    :class:`AppError` otherwise."""
    records = content.metric_records
    if len(records) != 1:
        raise AppError(f"the reply holds {len(records)} MetricRecords; expected one")
    ((key, numbers),) = records.items()
    check_names((key, *numbers))
    return key, numbers
