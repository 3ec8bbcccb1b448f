"""The map of what is called otherwise in the newer code, and how experiments and digests are read
by it.

>>> values = {"engine.name": {"cohort": "batched"}}
>>> renames = Renames.of({"toml_keys": {"stop.hours": "stop.time"}, "toml_values": values})
>>> renames.to_old({"stop": {"time": 2}, "engine": "batched"})
{'stop': {'hours': 2}, 'engine': 'cohort'}
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["MAP", "Renames"]

MAP = Path(__file__).with_name("renames.toml")
_ONE = re.compile(r"(?P<key>\w+)\[(?P<name>\w+)\]")


@dataclass(frozen=True)
class Renames:
    """All pairs of names, older first; see ``renames.toml``."""

    toml_keys: Mapping[str, str] = field(default_factory=dict)
    toml_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    toml_added: tuple[str, ...] = ()
    tables: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = MAP) -> Renames:
        """Read the map from its file."""
        return cls.of(tomllib.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def of(cls, sections: Mapping[str, Any]) -> Renames:
        """Make the map from its sections."""
        added = tuple(sections.get("toml_added", {}).get("keys", ()))
        return cls(**{**sections, "toml_added": added})

    # ------------------------------------------------------------------ experiments, newer to older

    def to_old(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Say an experiment's keys as the older code knows them."""
        out: dict[str, Any] = {}
        for path, value in _leaves(keys):
            named = _named(path, keys)
            if any(_prefix(key, path, named) for key in self.toml_added):
                continue
            if path[-1] == "grid":
                value = (
                    [self._grid(one) for one in value]
                    if isinstance(value, list)
                    else self._grid(value)
                )
            _put(out, self._path(path, named), self._value(path, named, value))
        return out

    def _grid(self, grid: Mapping[str, Any]) -> dict[str, Any]:
        """Translate the dotted keys of a grid, and the values listed under each."""
        out = {}
        for key, values in grid.items():
            path = tuple(key.split("."))
            old = [self._inner(path, value) for value in values]
            out[".".join(self._path(path, {}))] = old
        return out

    def _inner(self, path: tuple[str, ...], value: Any) -> Any:
        """Translate one value of a grid, which may be a whole component."""
        if not isinstance(value, Mapping):
            return self._value(path, {}, value)
        whole: dict[str, Any] = {}
        _put(whole, path, value)
        found: Any = self.to_old(whole)
        for step in self._path(path, {}):
            found = found[step]
        return found

    def _path(self, path: tuple[str, ...], named: Mapping[str, str]) -> tuple[str, ...]:
        """The older path of a key: that of the longest newer path which it begins with, and the
        rest."""
        fits = [
            (len(new.split(".")), old)
            for old, new in self.toml_keys.items()
            if _prefix(new, path, named)
        ]
        if not fits:
            return path
        length, old = max(fits)
        return (*(_ONE.sub(r"\g<key>", step) for step in old.split(".")), *path[length:])

    def _value(self, path: tuple[str, ...], named: Mapping[str, str], value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._value(path, named, item) for item in value]
        if isinstance(value, str):
            for key, pairs in self.toml_values.items():
                if _whole(key, path, named) or _whole(key, (*path, "name"), named):
                    value = {new: old for old, new in pairs.items()}.get(value, value)
        return value

    # ---------------------------------------------------------------------- digests, older to newer

    def to_new(self, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Say one experiment's digests, of the older code, in the newer spelling: table -> column
        -> digest."""
        out: dict[str, dict[str, Any]] = {}
        for table, columns in tables.items():
            newer = self.tables.get(table, table)
            for column, digest in columns.items():
                head, dot, note = column.partition(".")
                head = self.columns.get(newer, {}).get(head, head)
                if head and newer:
                    said = self.words.get(f"{newer}.{head}", {})
                    if "words" in digest:
                        kept = {
                            part: [said.get(word, word) for word in digest[part]]
                            for part in ("words", "values")
                            if part in digest
                        }
                        digest = {**digest, **kept}
                    name = head + dot + (note if newer == "model" else self.notes.get(note, note))
                    out.setdefault(newer, {})[name] = digest
        return out


def _leaves(
    keys: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key that holds no table (a grid is not looked into), with its path."""
    for key, value in keys.items():
        if isinstance(value, Mapping) and key != "grid" and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _named(path: tuple[str, ...], keys: Mapping[str, Any]) -> dict[str, str]:
    """The names of the components on the way to a key, by the component's key."""
    out: dict[str, str] = {}
    at: Any = keys
    for step in path:
        at = at[step] if isinstance(at, Mapping) else None
        name = at if isinstance(at, str) else at.get("name") if isinstance(at, Mapping) else None
        if isinstance(name, str):
            out[step] = name
    return out


def _prefix(key: str, path: tuple[str, ...], named: Mapping[str, str]) -> bool:
    """Whether a path begins with a key of the map, and goes through the component that the key has
    in brackets."""
    steps = key.split(".")
    return len(steps) <= len(path) and all(
        _step(step, at, named) for step, at in zip(steps, path, strict=False)
    )


def _whole(key: str, path: tuple[str, ...], named: Mapping[str, str]) -> bool:
    return len(key.split(".")) == len(path) and _prefix(key, path, named)


def _step(step: str, at: str, named: Mapping[str, str]) -> bool:
    found = _ONE.fullmatch(step)
    return step == at if found is None else found["key"] == at and named.get(at) == found["name"]


def _put(table: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set a key by its path; a bare name on the way becomes a table with that name."""
    for step in path[:-1]:
        inner = table.setdefault(step, {})
        if not isinstance(inner, dict):
            table[step] = inner = {"name": inner}
        table = inner
    table[path[-1]] = value
