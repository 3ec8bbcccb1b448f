"""Catalogues: the names of all components of one kind, and the construction of one from ``{ name = "...", option = ... }``.

Every component is a frozen dataclass of options. A catalogue maps its name to ``"module:Class"`` and imports the module on first
use. Packages installed beside Motley add names through the entry-point group ``motley.<kind>``.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from typing import Any, Literal

from motley.core.errors import ConfigError, DataError, suggest

__all__ = ["Catalogue", "Option", "check_option", "require_declared"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a component: its name, its accepted values (in words), and its default (``...`` if it is required)."""

    name: str
    accepts: str
    default: Any


@dataclass(frozen=True)
class Catalogue:
    """All components of one kind.

    Parameters
    ----------
    kind: the key in the experiment file, e.g. ``"selector"``.
    builtin: name -> ``"module:Class"``.
    planned: names that are known but not implemented yet.
    """

    kind: str
    builtin: Mapping[str, str]
    planned: tuple[str, ...] = ()

    @cached_property
    def targets(self) -> dict[str, str]:
        """Name -> ``"module:Class"``, including entry points, which cannot replace built-in names."""
        found = {point.name: point.value for point in metadata.entry_points(group=f"motley.{self.kind}")}
        return {**found, **self.builtin}

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self.targets)

    def get(self, name: str, key: str | None = None) -> type:
        """Return the class of a component.

        Raises
        ------
        ConfigError: an unknown name (with the nearest spelling), or one that is only planned.
        """
        if name in self.targets:
            module, _, attribute = self.targets[name].partition(":")
            return typing.cast(type, getattr(importlib.import_module(module), attribute))
        where = key or f"{self.kind}.name"
        if name in self.planned:
            raise ConfigError(f"{name!r} is known but not built yet; built: {', '.join(self.names())}", where)
        hint = suggest(name, self.names())
        raise ConfigError(f"got {name!r}{hint}; expected one of: {', '.join(self.names())}", where)

    def options(self, name: str) -> list[Option]:
        """Return the options of a component, in order."""
        cls = self.get(name)
        hints = typing.get_type_hints(cls)
        out = []
        for f in dataclasses.fields(cls):
            if f.init:
                default = f.default if f.default is not dataclasses.MISSING else ...
                if f.default_factory is not dataclasses.MISSING:
                    default = f.default_factory()
                out.append(Option(f.name, describe(hints[f.name]), default))
        return out

    def build(self, record: str | Mapping[str, Any], key: str | None = None) -> Any:
        """Return the component that a record describes: ``{"name": "power_of_choice", "d": 20}`` or just a name.

        Raises
        ------
        ConfigError: unknown name or option, wrong type, or a value the component refuses; the message names the key.
        DataError: a file that the component reads cannot be used; the message names the key.
        """
        where = key or self.kind
        if not isinstance(record, str | Mapping):
            raise ConfigError(f'got {record!r}; expected a name or {{ name = "...", ... }}', where)
        record = {"name": record} if isinstance(record, str) else dict(record)
        if "name" not in record:
            raise ConfigError(f'got no name; expected {{ name = "...", ... }}, one of: {", ".join(self.names())}', where)
        name = record.pop("name")
        if not isinstance(name, str):
            raise ConfigError(f"got {name!r}; expected one of: {', '.join(self.names())}", f"{where}.name")
        cls = self.get(name, f"{where}.name")
        allowed = {f.name: f for f in dataclasses.fields(cls) if f.init}
        hints = typing.get_type_hints(cls)
        values = {}
        for option, value in record.items():
            if option not in allowed:
                known = ", ".join(allowed) or "none"
                raise ConfigError(
                    f"{name!r} has no such option{suggest(option, allowed)}; its options: {known}", f"{where}.{option}"
                )
            values[option] = check_option(value, hints[option], f"{where}.{option}")
        for option, f in allowed.items():
            missing = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
            if missing and option not in values:
                raise ConfigError(f"{name!r} needs this option ({describe(hints[option])})", f"{where}.{option}")
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(str(error), where) from None
        except DataError as error:
            raise DataError(f"{where}: {error}") from None


def require_declared(cls: type, base: type, flags: Mapping[str, str]) -> None:
    """Raise TypeError if a class overrides a method of ``base`` without declaring the flag that announces the override.

    Called from ``base.__init_subclass__``, so that a forgotten flag cannot switch an override off in silence.

    Parameters
    ----------
    flags: method name -> name of the class variable (or property) that subclasses must set when they override the method.
    """
    ours = cls.__mro__[: cls.__mro__.index(base)]
    for method, flag in flags.items():
        if any(method in vars(c) for c in ours) and not any(flag in vars(c) for c in ours):
            raise TypeError(f"{cls.__name__} overrides {method} and must say so: set the class variable {flag}")


_PLURAL = {int: "whole numbers", float: "numbers", str: "strings"}


def describe(hint: Any) -> str:
    """Return an annotation in words, e.g. ``a number or none``."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(a) for a in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(a) for a in args)
    if origin in (tuple, list, Sequence):
        inner = [a for a in args if a is not ...]
        if ... in args or origin is not tuple:
            return f"a list of {_PLURAL.get(inner[0]) or describe(inner[0])}" if inner else "a list"
        return f"a list of {len(inner)}: " + ", ".join(describe(a) for a in inner)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", type(None): "none"}
    return names.get(hint, "a table" if origin in (dict, Mapping) else getattr(hint, "__name__", str(hint)))


def check_option(value: Any, hint: Any, key: str) -> Any:
    """Return the value converted to its annotated type (int to float, list to tuple); raise ConfigError if it does not fit."""
    ok, out = _fit(value, hint)
    if not ok:
        hints = [str(a) for a in typing.get_args(hint)] if typing.get_origin(hint) is Literal else []
        near = suggest(value, hints) if isinstance(value, str) else ""
        raise ConfigError(f"got {value!r}{near}; expected {describe(hint)}", key)
    return out


def _fit(value: Any, hint: Any) -> tuple[bool, Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True, value
    if origin is Literal:
        return any(value == a and type(value) is type(a) for a in args), value
    if origin in (typing.Union, types.UnionType):
        for arm in args:
            ok, out = _fit(value, arm)
            if ok:
                return True, out
        return False, value
    if origin in (tuple, list, Sequence):
        if not isinstance(value, list | tuple):
            return False, value
        inner = [args[0]] * len(value) if (origin is not tuple or ... in args) else list(args)
        if len(inner) != len(value):
            return False, value
        fitted = [_fit(v, a) for v, a in zip(value, inner, strict=True)]
        return all(ok for ok, _ in fitted), tuple(out for _, out in fitted)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping), value
    if hint is float:
        good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1023
        good = good or (isinstance(value, float) and math.isinf(value))
        return good, float(value) if good else value
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    return isinstance(value, hint) if isinstance(hint, type) else False, value
