"""Save and restore dataclasses that evolve, by their type hints.

:func:`save` returns plain values and arrays, which :mod:`motley.core.codec` can write: tensors as
arrays on the CPU, dataclasses as their fields by name, sets as sorted lists. :func:`restore` sets
the fields again: values of the types in the hints, and dataclasses that are not frozen in place,
because others hold them. Fields with the metadata :data:`FIXED` are no part of it. An object with
methods ``save`` and ``restore`` of its own saves and restores itself. A union of two types other
than None is taken as it was saved.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from motley.core.errors import StoreError

FIXED = {"fixed": True}
"""Metadata of a dataclass field that is no part of the saved state."""


def save(value: Any) -> Any:
    """Return a value as plain values and arrays, which share their memory with it."""
    if _is_tensor(type(value)):
        return value.detach().cpu().numpy()
    if dataclasses.is_dataclass(value) or hasattr(value, "save"):
        return value.save() if hasattr(value, "save") else save_fields(value)
    if isinstance(value, Mapping):
        return {key: save(element) for key, element in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        elements = map(save, value)
        return list(elements) if isinstance(value, list) else tuple(elements)
    return value


def save_fields(value: Any) -> dict[str, Any]:
    """Return the evolving fields of a dataclass by name, as :func:`save` does."""
    return {name: save(getattr(value, name)) for name in _hints(value.__class__)}


def restore(value: Any, saved: Any) -> None:
    """Take over in place what :func:`save` returned of a value of this type.

    Raises
    ------
    StoreError: what was saved has other fields or types, as another version of Motley has.
    """
    if hasattr(value, "restore"):
        value.restore(saved)
    else:
        restore_fields(value, saved)


def restore_fields(value: Any, saved: Any) -> None:
    """Take over in place what :func:`save_fields` returned; errors as of :func:`restore`."""
    for name, hint in _checked(type(value), saved).items():
        now = getattr(value, name)
        if hasattr(now, "restore") or (dataclasses.is_dataclass(now) and not _is_frozen(now)):
            restore(now, saved[name])
        else:
            setattr(value, name, built(hint, saved[name], name))


def built(hint: Any, saved: Any, name: str = "a value") -> Any:
    """Return the value of the type ``hint`` of which :func:`save` returned ``saved``.

    Parameters
    ----------
    name: of the field, for messages.

    Raises
    ------
    StoreError: what was saved is of another type.
    """
    origin = typing.get_origin(hint) or hint
    inner = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [alternative for alternative in inner if alternative is not type(None)]
        return saved if saved is None or len(kinds) > 1 else built(kinds[0], saved, name)
    if hint is Any or not isinstance(origin, type):  # or a literal
        return saved
    if dataclasses.is_dataclass(origin):
        hints = _checked(origin, saved)
        return origin(
            **{field: built(field_hint, saved[field], field) for field, field_hint in hints.items()}
        )
    if _is_tensor(origin):
        array = built(np.ndarray, saved, name)
        return sys.modules["torch"].from_numpy(array)
    expected: Any = next((form for kind, form in _FORMS if issubclass(origin, kind)), origin)
    if not isinstance(saved, expected):
        raise _other_version(f"its {name} is a {type(saved).__name__}")
    if issubclass(origin, Mapping):
        key_hint, value_hint = inner
        return {
            built(key_hint, saved_key, name): built(value_hint, saved_value, name)
            for saved_key, saved_value in saved.items()
        }
    if issubclass(origin, list | set | frozenset):
        return origin(built(inner[0], element, name) for element in saved)
    if issubclass(origin, tuple):
        return _tuple(origin, inner, saved, name)
    make: Any = origin
    return saved if issubclass(origin, np.ndarray) else make(saved)


_FORMS: tuple[tuple[Any, Any], ...] = (
    (Mapping, Mapping),
    (tuple | list | set | frozenset, list | tuple),
    (enum.Enum, object),
    (bool | int, int | np.integer | np.bool_),
    (float, float | int | np.floating),
)
"""By type: the types in which its values are saved; of all others, its own."""


def _tuple(origin: Any, inner: tuple[Any, ...], saved: Any, name: str) -> Any:
    """Return a tuple, which may be named."""
    if hasattr(origin, "_make"):
        inner = tuple(typing.get_type_hints(origin).values())
    if inner[-1:] == (...,):
        inner = inner[:1] * len(saved)
    if len(inner) != len(saved):
        raise _other_version(f"its {name} has {len(saved)} parts")
    parts = [built(part_hint, part, name) for part_hint, part in zip(inner, saved, strict=True)]
    return origin._make(parts) if hasattr(origin, "_make") else tuple(parts)


def _checked(cls: type, saved: Any) -> Mapping[str, Any]:
    """Return the type hints of a dataclass whose fields were saved."""
    hints = _hints(cls)
    missing = hints.keys() - (saved.keys() if isinstance(saved, Mapping) else ())
    if missing:
        raise _other_version(f"it has no {', '.join(sorted(missing))}")
    return hints


def _other_version(reason: str) -> StoreError:
    return StoreError(
        f"this checkpoint is of another version of Motley ({reason}); remove the run's folder and "
        "begin again"
    )


def _is_tensor(kind: type) -> bool:
    """Return whether a type is torch's, which is not imported here: servers without torch save
    states, too."""
    return kind.__module__.partition(".")[0] == "torch"


def _is_frozen(value: Any) -> bool:
    return bool(type(value).__dataclass_params__.frozen)


@cache
def _hints(cls: Any) -> Mapping[str, Any]:
    """Return the type hints of the fields that evolve, by name."""
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    return {f.name: hints[f.name] for f in fields if not f.metadata.get("fixed")}
