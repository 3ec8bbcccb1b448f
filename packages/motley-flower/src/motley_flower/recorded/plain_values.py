"""Flower's records and a strategy's own attributes as values that a checkpoint holds, and back, bit
for bit and without pickle."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from motley.core import codec
from motley_flower.messages import flower
from motley_flower.strategy.attributes import nested

_PLAIN = (type(None), bool, int, float, str, bytes)
_RECORDS = ("MetricRecord", "ConfigRecord")


class UnwritableError(Exception):
    """A value that no checkpoint can hold."""


def pack(value: Any) -> Any:
    """Return a value as plain ones: numbers, texts, arrays, lists and dicts of these, and Flower's
    records.

    Raises
    ------
    UnwritableError: anything else.
    """
    app = flower()
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biuf":
        return ("scalar" if isinstance(value, np.generic) else "array", np.array(value))
    if type(value) in (list, tuple):
        return (type(value).__name__, [pack(element) for element in value])
    if type(value) is dict and all(type(key) in (str, int) for key in value):
        return ("dict", {key: pack(element) for key, element in value.items()})
    if isinstance(value, app.ArrayRecord):
        return ("ArrayRecord", {name: pack(array) for name, array in value.items()})
    if isinstance(value, app.Array):
        return ("Array", [value.dtype, list(value.shape), value.stype, value.data])
    for name in _RECORDS:
        if isinstance(value, getattr(app, name)):
            return (name, dict(value.items()))
    raise UnwritableError(type(value).__name__)


def unpack(packed: Any) -> Any:
    """Return the value that was packed."""
    if not isinstance(packed, tuple):
        return packed
    kind, content = packed
    app = flower()
    if kind in ("scalar", "array"):
        return content[()] if kind == "scalar" else np.array(content)
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(map(unpack, content))
    if kind == "dict":
        return {key: unpack(element) for key, element in content.items()}
    if kind == "ArrayRecord":
        return app.ArrayRecord({name: unpack(array) for name, array in content.items()})
    if kind == "Array":
        dtype, shape, stype, data = content
        return app.Array(dtype, tuple(shape), stype, bytes(data))
    return getattr(app, kind)(content)


def attributes_of(strategy: Any) -> list[dict[str, Any]]:
    """Return the attributes of a strategy, and of each that it wraps (differential privacy), the
    outermost first."""
    return [
        {name: value for name, value in vars(inner).items() if name not in ("motley", "strategy")}
        for inner in nested(strategy)
    ]


@dataclasses.dataclass(frozen=True)
class AttributeValues:
    """What a strategy's attributes were before round 1, by which those are found that change from
    round to round.

    Parameters
    ----------
    strategy: that is watched.
    before: by strategy and name, an attribute's digest, or itself where it has none.
    """

    strategy: Any
    before: list[dict[str, Any]]

    @classmethod
    def of(cls, strategy: Any) -> AttributeValues:
        """Return the values of now."""
        return cls(
            strategy,
            [
                {name: _digest(value) for name, value in attributes.items()}
                for attributes in attributes_of(strategy)
            ],
        )

    def changed(self) -> tuple[list[dict[str, Any]], list[str], list[str]]:
        """Return the attributes that have changed, packed; the names and types of those that have
        and cannot be written; and those of objects that may have changed inside."""
        changes = []
        lost = []
        unsure = []
        for before, now in zip(self.before, attributes_of(self.strategy), strict=True):
            packed = {}
            for name, value in now.items():
                was = before.get(name)
                digest = _digest(value)
                if digest is not value and digest != was:
                    packed[name] = pack(value)
                elif digest is value and was is not value:
                    lost.append(f"{name!r} (a {type(value).__name__})")
                elif digest is value and not callable(value):
                    unsure.append(f"{name!r} (a {type(value).__name__})")
            changes.append(packed)
        return changes, lost, unsure

    def restore(self, changes: list[dict[str, Any]]) -> None:
        """Give the strategy the attributes that :meth:`changed` returned."""
        for inner, packed in zip(nested(self.strategy), changes, strict=True):
            for name, value in packed.items():
                setattr(inner, name, unpack(value))


def _digest(value: Any) -> Any:
    """Return a hash of a value, or the value itself where it cannot be written."""
    try:
        return hashlib.blake2b(codec.encode(pack(value)), digest_size=16).digest()
    except UnwritableError:
        return value
