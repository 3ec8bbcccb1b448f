"""Experiments as plain dictionaries: reading TOML, laying a user's keys over a preset,
``--set a.b=c``.

Nothing here knows what a key means, except that a table with a ``name`` is a component and that
some keys exclude each other.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from motley.core.errors import ConfigError, suggest
from motley.core.files import no_file
from motley.core.untrusted import MOST_DIGITS, MOST_LEVELS, check_limits, shortened
from motley.tasks.table_kinds import is_table_file

_RIVALS = (("cohort", "participation"), ("local.epochs", "local.steps"))
"""Keys of which only one may be given: giving one over a preset, or with ``--set``, takes the other
away."""


def read(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises
    ------
    ConfigError: no such file, not text, or not TOML (with the line).
    """
    text = read_text(path)
    if is_table_file(path):
        raise ConfigError(
            f"{path} is a table; expected an experiment file (TOML). motley inspect {path} "
            "--client COLUMN --label COLUMN prints one with this table"
        )
    keys = parse(text, str(path))
    if "printed" in keys and "base" in keys:
        raise ConfigError(
            f"{path} is a published table; expected an experiment file. motley reproduce {path} "
            "runs it"
        )
    return keys


def parse(text: str, where: str) -> dict[str, Any]:
    """Return the content of a text in TOML; ``where``: name of its file, for messages.

    Raises
    ------
    ConfigError: not TOML (with the line), nested too deeply, or with a whole number of too many
    digits.
    """
    try:
        return _limited(text, where)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_toml_sentence(where, str(error), text)) from None


def _limited(text: str, where: str) -> dict[str, Any]:
    """Return the content of a text in TOML. Raises TOMLDecodeError where it is none, ConfigError
    where it goes beyond the limits."""
    # reading it would take minutes and gigabytes
    if any(piece.count(".") > MOST_LEVELS for piece in re.split(r"[=,\n{\[]", text)):
        raise ConfigError(
            f"{where} has a key of more than {MOST_LEVELS} parts with dots between; no key is "
            "nested so deeply"
        )
    try:
        content = tomllib.loads(text)
        check_limits(content)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ConfigError(
            f"{where} holds tables or lists inside each other, more than {MOST_LEVELS} levels deep"
        ) from None
    except ValueError as error:  # Python itself refuses to read numbers of thousands of digits
        if "int_max_str_digits" in str(error):
            long = f"a value is a whole number of more than {MOST_DIGITS} digits"
        else:
            long = str(error)
        raise ConfigError(f"{where}: {long}; no key takes this") from None
    return content


_MOST_BYTES = 16 * 2**20
_OPEN_ALREADY = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Pipes at these paths have a writer: ``motley run /dev/stdin``,
``motley run <(make-experiment)``."""


def read_text(path: Path, expected: str = "an experiment file (TOML)") -> str:
    """Return the text of a file of the user's; ``expected`` says, for messages, of which kind.

    Raises
    ------
    ConfigError: no such file, a folder or a device, too large, or not UTF-8.
    """
    reason = None if str(path).startswith(_OPEN_ALREADY) else no_file(path)
    if reason == "does not exist":
        near = suggest(path.name, [p.name for p in path.parent.glob("*.toml")])
        raise ConfigError(f"there is no file {str(path)!r}{near}")
    if reason is not None:
        raise ConfigError(f"{str(path)!r} {reason}; expected {expected}")
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(raw) > _MOST_BYTES:
        raise ConfigError(
            f"{path} is larger than {_MOST_BYTES / 2**20:.0f} MiB; expected {expected}"
        )
    try:
        # editors that put a byte order mark first are forgiven
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8; expected {expected}") from None


def _toml_sentence(where: str, message: str, text: str) -> str:
    """Return ``FILE, line L, column C: not valid TOML: ...`` from tomllib's message, with what is
    to be written where that can be seen."""
    problem, _, place = message.partition(" (at ")
    lines = text.splitlines()
    at = re.match(r"line (\d+), column (\d+)", place)
    number, column = map(int, at.groups()) if at else (len(lines) or 1, 1)
    line = lines[number - 1] if number <= len(lines) else ""
    position = f"line {number}, column {column}" if at else f"line {number}"
    mend = _toml_mend(problem, line, line[column - 1 :].strip())
    return f"{where}, {position}: not valid TOML: {problem[:1].lower()}{problem[1:]}{mend}"


_PYTHON_VALUES = {"True": "write true", "False": "write false", "None": "leave the key out"}


def _toml_mend(problem: str, line: str, remainder: str) -> str:
    """Return what to write in place of a mistake that is often made, after "; "; "" for others.

    Parameters
    ----------
    problem: tomllib's message.
    line: the whole line.
    remainder: the line from where reading stopped.
    """
    word = re.match(r"[A-Za-z_][^\s,}\]]*", remainder)
    mend = ""
    if line.lstrip().startswith("{"):
        mend = 'this is like JSON; a TOML file has lines such as name = "small"'
    elif problem.startswith(("Cannot overwrite", "Cannot declare", "Duplicate")):
        mend = "this key or table stands twice; keep one"
    elif remainder[:1] in {"\u201c", "\u201d", "\u201e", "\u2018", "\u2019"}:
        mend = 'write straight quotes, "'
    elif point := re.match(r"([+-]?)(\.\d+)", remainder):
        mend = f"write a 0 before the point, {point[1]}0{point[2]}"
    elif re.search(r"=\s*[+-]?\d+,\d+\s*([,}]|$)", line):
        mend = "the decimal sign is a point"
    elif "\\" in problem:
        mend = "write paths with /, and LaTeX between '''"
    elif problem == "Invalid value" and word:
        quoted = f'text stands in quotes, "{word[0].replace(chr(92), "/")}"'
        mend = _PYTHON_VALUES.get(word[0], quoted)
    elif problem.startswith("Expected '=' after a key") and remainder.startswith(":"):
        mend = "write = in place of :"
    return mend and f"; {mend}"


def copied(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a table with those in it; components, tasks and other objects in it are not
    copied."""
    return {key: _copied(value) for key, value in table.items()}


def limited_copy(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a table, as :func:`copied`.

    Raises
    ------
    ConfigError: it is nested too deeply, or holds a whole number of too many digits.
    """
    try:
        check_limits(table)
    except ValueError as error:
        raise ConfigError(f"{error}; no key takes this") from None
    return copied(table)


def of_python(value: Any) -> Any:
    """Return a value with Python's own numbers in place of NumPy's, also in tables and lists, lists
    in place of arrays, as loops over ``np.arange`` have them, and text in place of paths."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, dict):
        return {key: of_python(entry) for key, entry in value.items()}
    return [of_python(entry) for entry in value] if isinstance(value, list) else value


def _copied(value: Any) -> Any:
    if isinstance(value, str | int | float):  # most are, and other questions take longer
        return value
    if isinstance(value, Mapping):
        return copied(value)
    return [_copied(entry) for entry in value] if isinstance(value, list) else value


def presets() -> list[str]:
    """Return the names of the presets for ``method = "..."``."""
    folder = resources.files("motley.experiments") / "presets"
    return sorted(
        file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml")
    )


def preset(name: str) -> dict[str, Any]:
    """Return the bundle of components that a method is published with.

    Raises
    ------
    ConfigError: no such preset.
    """
    if name not in presets():
        raise ConfigError(
            f"got {name!r}{suggest(name, presets())}; expected one of: {', '.join(presets())}",
            "method",
        )
    return tomllib.loads(_preset_text(name))


def preset_rows() -> list[dict[str, Any]]:
    """Return a row for each preset: ``name``, ``about`` (the first line of its file), ``keys``."""
    return [
        {
            "name": name,
            "about": _preset_text(name).partition("\n")[0].removeprefix("# "),
            "keys": preset(name),
        }
        for name in presets()
    ]


def _preset_text(name: str) -> str:
    return (resources.files("motley.experiments") / "presets" / f"{name}.toml").read_text(
        encoding="utf-8"
    )


def lay_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``below`` overlaid by ``above``: tables are merged, a component of another name
    replaces the one below as a whole."""
    above = _component_like(below, above)
    hidden = [
        loser for pair in _RIVALS for loser, winner in (pair, pair[::-1]) if _has(above, winner)
    ]
    return _merge(_without(below, hidden), above)


def _component_like(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``above`` with bare names written as tables where ``below`` has a component."""
    return {
        k: {"name": v} if isinstance(v, str) and _is_component(below.get(k)) else v
        for k, v in above.items()
    }


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    out = copied(below)
    for key, value in above.items():
        old = out.get(key)
        if (
            isinstance(old, dict)
            and isinstance(value, Mapping)
            and value.get("name", old.get("name")) == old.get("name")
        ):
            out[key] = _merge(old, value)
        else:
            out[key] = _copied(value)
    return out


def _is_component(value: object) -> bool:
    return isinstance(value, Mapping) and "name" in value


def _has(table: Mapping[str, Any], path: str) -> bool:
    head, _, remainder = path.partition(".")
    inner = table.get(head)
    return inner is not None and (
        not remainder or (isinstance(inner, Mapping) and _has(inner, remainder))
    )


def _without(table: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    out = copied(table)
    _drop(out, paths)
    return out


def _drop(table: dict[str, Any], paths: Iterable[str]) -> None:
    for path in paths:
        *parents, last = path.split(".")
        inner: Any = table
        for parent in parents:
            inner = inner.get(parent, {}) if isinstance(inner, dict) else {}
        if isinstance(inner, dict):
            inner.pop(last, None)


def override(document: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Return the document after ``--set a.b=c`` for each setting.

    Raises
    ------
    ConfigError: a setting that is not ``key=value``, or a path through something that is not a
    table.
    """
    return set_keys(document, parse_settings(settings))


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Return the key and value of each setting ``a.b=c``.

    Raises
    ------
    ConfigError: a setting that is not ``key=value``.
    """
    return {path: parse_value(text) for path, text in map(parse_setting, settings)}


def parse_setting(
    setting: str, option: str = "--set", example: str = "local.optimizer.lr=0.05"
) -> tuple[str, str]:
    """Split ``"a.b=c"`` into ``("a.b", "c")``; ``option`` is the command-line option named in the
    error."""
    path, equals, text = setting.partition("=")
    path = path.strip()
    text = text.strip()
    if not equals or not path or not text or not all(path.split(".")):
        raise ConfigError(f"got {setting!r}; expected key=value, e.g. {example}", option)
    return path, text


def parse_value(text: str) -> Any:
    """Return a TOML value, or the text itself where it is no TOML (so that quotes may be left
    out)."""
    try:
        document = _limited(f"value = {text}", shortened(text, 60))
    except tomllib.TOMLDecodeError:
        return text
    return document["value"] if set(document) == {"value"} else text


def to_toml(document: Mapping[str, Any]) -> str:
    """Return a document as TOML; keys without a value (None) are left out.

    >>> print(to_toml({"cohort": 2, "seed": None, "stop": {"rounds": 3}}), end="")
    cohort = 2
    <BLANKLINE>
    [stop]
    rounds = 3
    """
    return tomli_w.dumps(_with_values(document))


def _with_values(value: Any) -> Any:
    """Return a document without the keys whose value is None, for which TOML has no word."""
    if isinstance(value, Mapping):
        return {key: _with_values(entry) for key, entry in value.items() if entry is not None}
    return [_with_values(entry) for entry in value] if isinstance(value, list | tuple) else value


def set_keys(document: Mapping[str, Any], *changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document after one set of changes after the other; of each, names of components
    are set first, so that an option meets the component it is meant for."""
    out = copied(document)
    for each in changes:
        for path in sorted(each, key=lambda path: not path.endswith(".name")):
            _set(out, path, _copied(each[path]))
    return out


def _set(out: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    if len(parents) > MOST_LEVELS:
        raise ConfigError(
            f"got a key of {len(parents) + 1} parts; expected at most {MOST_LEVELS}",
            shortened(path, 60),
        )
    _drop(
        out, [loser for pair in _RIVALS for loser, winner in (pair, pair[::-1]) if winner == path]
    )
    table = out
    for depth, parent in enumerate(parents):
        inner = table.get(parent)
        if isinstance(inner, str):
            inner = {"name": inner}  # a component written as a bare name
        elif inner is None:
            inner = {}
        if dataclasses.is_dataclass(inner) and depth == len(parents) - 1:
            table[parent] = (
                {"name": value} if last == "name" else _changed(inner, last, value, path)
            )
            return
        if not isinstance(inner, dict):
            raise ConfigError(
                f"{'.'.join(parents[: depth + 1])} is {inner!r}, which has no keys of its own", path
            )
        table[parent] = inner
        table = inner
    if last == "name" and parents not in ([], ["engine"]) and table.get("name", value) != value:
        table.clear()
    table[last] = value


def _changed(component: Any, option: str, value: Any, path: str) -> Any:
    """Return a component that was given as an object, with one option changed."""
    names = [f.name for f in dataclasses.fields(component) if f.init]
    if option not in names:
        name = type(component).__name__
        options = ", ".join(names) or "none"
        raise ConfigError(
            f"{name} has no such option{suggest(option, names)}; its options: {options}", path
        )
    return dataclasses.replace(component, **{option: value})
