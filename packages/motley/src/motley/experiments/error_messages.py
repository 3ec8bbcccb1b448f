"""Errors of pydantic as one sentence: the key, the value, the allowed values and the nearest
spelling."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

from motley.core.components import UnknownOptionError
from motley.core.errors import ConfigError, suggest
from motley.core.extensions import extension
from motley.experiments.document import to_toml

_NAMED = 4
"""Components that a message names at most."""

ELSEWHERE = {
    "lr": "local.optimizer.lr",
    "learning_rate": "local.optimizer.lr",
    "momentum": "local.optimizer.momentum",
    "weight_decay": "local.optimizer.weight_decay",
    "local_epochs": "local.epochs",
    "alpha": "partition.alpha",
    "clients": "population",
    "num_clients": "population",
    "n_clients": "population",
    "clients_per_round": "cohort",
    "fraction_fit": "participation",
    "num_rounds": "stop.rounds",
    "n_rounds": "stop.rounds",
    "seeds": "seed = 0, and motley compare FILE --seeds 0,1,2",
    "gpu": 'engine = { device = "cuda" }',
    "cuda": 'engine = { device = "cuda" }',
    "stop.accuracy": "stop.target.accuracy",
    "stop.loss": "stop.target.loss",
    "stop.time_s": "stop.virtual_hours",
    "stop.hours": "stop.virtual_hours",
    "data": "task.data",
    "dataset": "task.data",
    "model": "task.model",
}
"""What users write in an experiment -> the key that says it."""

_WANTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a string",
    "dict_type": 'a name, or a table { name = "...", ... }',
    "list_type": "a list",
    "dataclass_type": "a table { key = value, ... }",
    "model_type": "a table { key = value, ... }",
    "model_attributes_type": "a table { key = value, ... }",
}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


def device_hint(engine: str) -> str:
    """Return a hint for a device in place of an engine, e.g. ``"; that is a device: write ..."``;
    empty for any other name."""
    named = _DEVICE.fullmatch(engine)
    if named is None:
        return ""
    device = engine if named[1] != "gpu" else f"cuda{named[2] or ''}"
    return (
        f"; that is a device, and an engine is how clients are computed: write engine = {{ "
        f'device = "{device}" }}'
    )


_DEVICE = re.compile(r"(cpu|cuda|gpu|mps|xpu)(:\d+)?")


def config_error(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """Return the first error as a ConfigError, with the number of further errors; keys that do not
    exist come before all others, for the keys that are missing may be these."""
    faults = sorted(
        error.errors(include_url=False), key=lambda fault: fault["type"] not in _UNKNOWN
    )
    first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    loc = [str(part) for part in first["loc"]]
    return ConfigError(_sentence(first, model) + more, ".".join(loc) or None)


def with_right_place(error: UnknownOptionError, model: type[BaseModel]) -> ConfigError:
    """Return an error that names the key which an option in the wrong table may stand for, or the
    components that have it; else the error itself."""
    option = error.option
    if error.similar:
        return error
    if option in ELSEWHERE:
        place = ELSEWHERE[option]
    else:
        keys = _fields(model, ())
        inside = [f"{key}.{option}" for key in keys if option in _fields(model, (key,))]
        place = " or ".join([option] * (option in keys) + inside)
    if place not in ("", error.key):
        return ConfigError(f"{error.sentence}; did you mean the key {place}?", error.key)
    if not error.owners:
        return error
    names = ", ".join(map(repr, error.owners[:_NAMED]))
    more = len(error.owners) - _NAMED
    names += f" and {more} more" if more > 0 else ""
    return ConfigError(
        f"{error.sentence}; {names} {'have' if error.owners[1:] else 'has'} it", error.key
    )


def _sentence(fault: Mapping[str, Any], model: type[BaseModel]) -> str:
    kind = fault["type"]
    value = fault.get("input")
    context = fault.get("ctx", {})
    if kind in _UNKNOWN:
        path = fault["loc"][:-1]
        last = str(fault["loc"][-1])
        keys = _fields(model, path)
        written = ".".join(map(str, fault["loc"]))
        if written in ELSEWHERE:
            return f"there is no such key; write {ELSEWHERE[written]}"
        near = suggest(last, keys)
        inside = [] if path or near else [key for key in keys if last in _fields(model, (key,))]
        if inside:
            if all(isinstance(entry, str | int | float) for entry in _listed(value)):
                line = f"{inside[0]} = {{ {_in_one_line(last, value)} }}"
            else:
                line = f"{inside[0]}.{last}"
            return f"there is no such key; it belongs to {' or '.join(inside)}, write {line}"
        return f"there is no such key{near}; known keys: {', '.join(keys)}"
    if kind == "missing":
        return "this key is missing and has no default"
    if kind == "literal_error":
        allowed = [
            {"False": "false", "True": "true"}.get(part.strip(), part.strip(" '"))
            for part in context["expected"].replace(" or ", ", ").split(",")
        ]
        hint = suggest(value, allowed) if isinstance(value, str) else ""
        return f"got {value!r}{hint}; expected one of: {', '.join(allowed)}"
    if kind in _BOUNDS:
        word, bound = _BOUNDS[kind]
        return f"got {value!r}; expected {word} {context[bound]:g}"
    counted = {("stop",): "rounds", ("evaluate",): "every"}.get(fault["loc"])
    if counted and isinstance(value, int) and not isinstance(value, bool):
        line = f"{fault['loc'][0]} = {{ {counted} = {value} }}"
        return f"got {value!r}; expected a table that says of what, e.g. {line}"
    wanted = _WANTED.get(kind, str(fault["msg"]))
    if kind == "dict_type" and fault["loc"][0] == "pin":
        wanted = _WANTED["model_type"]
    if kind == "dict_type" and fault["loc"] == ("stop", "target"):
        wanted = "a figure by metric, e.g. { accuracy = 0.7 }"
    return f"got {value!r}; expected {wanted}"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _in_one_line(key: str, value: Any) -> str:
    """Return a key and its value as TOML; the writer puts each item of an array on its own line."""
    return re.sub(r"\n *", " ", to_toml({key: value}).strip())


def _fields(table: Any, loc: Sequence[int | str]) -> list[str]:
    """Return the names of the keys in the table at ``loc``; a table is a pydantic model or a plain
    dataclass, or one of a list or of a dictionary of them."""
    parts = iter(loc)
    for part in parts:
        if isinstance(part, int):  # which of a list
            continue
        hint = get_type_hints(table).get(str(part))
        owner = extension("table", str(part)) if hint is Any else None
        if owner is not None:
            hint = get_type_hints(owner.PrivacyFile)[str(part)]
        if get_origin(hint) is dict:
            next(parts, None)
        table = next((kind for kind in (hint, *get_args(hint)) if _is_table(kind)), None)
        if table is None:
            return []
    if issubclass(table, BaseModel):
        return list(table.model_fields)
    return [f.name for f in dataclasses.fields(table)]


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and (
        issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)
    )
