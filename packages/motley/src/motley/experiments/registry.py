"""The kinds of components, their catalogues, and how a record of the experiment file becomes an
object.

This is the one place outside a catalogue where the names of methods matter. Packages are imported
only when asked for, so that importing this module loads no torch.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from motley.core.components import Catalogue, Option
from motley.core.errors import ConfigError, suggest
from motley.core.paper import Paper, public_code

if TYPE_CHECKING:  # they import torch
    from motley.algorithms.parts import Tuning
    from motley.experiments.disclosure import Disclosure

_WHERE = {
    "aggregator": "motley.algorithms:AGGREGATORS",
    "algorithm": "motley.algorithms:CATALOGUE",
    "allocator": "motley.transport:ALLOCATORS",
    "availability": "motley.world:AVAILABILITY",
    "budget": "motley.transport:BUDGETS",
    "capacity": "motley.world:CAPACITY",
    "compressor": "motley.transport:COMPRESSORS",
    "concept_shift": "motley.world:CONCEPT_SHIFT",
    "device": "motley.world:DEVICES",
    "dishonest": "motley.world:DISHONEST",
    "drift": "motley.world:DRIFT",
    "engine": "motley.engines:ENGINES",
    "failures": "motley.world:FAILURES",
    "feedback": "motley.transport:FEEDBACKS",
    "feature_shift": "motley.world:FEATURE_SHIFT",
    "label_noise": "motley.world:LABEL_NOISE",
    "loss": "motley.algorithms:LOSSES",
    "lr_schedule": "motley.algorithms:SCHEDULES",
    "model": "motley.tasks.models:MODELS",
    "network": "motley.world:NETWORKS",
    "optimizer": "motley.algorithms:OPTIMIZERS",
    "partition": "motley.world:PARTITIONS",
    "selector": "motley.selectors:CATALOGUE",
    "server": "motley.algorithms:SERVERS",
    "stage": "motley.rounds:STAGES",
    "synchrony": "motley.timing:SYNCHRONY",
    "task": "motley.tasks:TASKS",
}

KINDS = tuple(_WHERE)
"""The kinds of component, sorted."""

_KEYS = {"lr_schedule": "local.lr_schedule", "model": "task.model", "optimizer": "local.optimizer"}
"""Kinds whose key in an experiment is not their name."""
_PLURALS = {
    "availability": "availabilities",
    "capacity": "capacities",
    "dishonest": "dishonest",
    "failures": "failures",
    "label_noise": "label_noises",
    "loss": "losses",
    "synchrony": "synchronies",
}


def catalogue(kind: str) -> Catalogue:
    """Return the catalogue of one kind.

    Raises
    ------
    ConfigError: no such kind (with the nearest spelling).
    """
    return _imported(kind_of(kind))


@cache
def _imported(kind: str) -> Catalogue:
    module, _, attribute = _WHERE[kind].partition(":")
    value = getattr(importlib.import_module(module), attribute)
    if not isinstance(value, Catalogue):
        raise TypeError(f"{module}.{attribute} is not a Catalogue")
    return value


def kind_of(word: str, more: Sequence[str] = ()) -> str:
    """Return the kind that a word names: singular or plural, ``-`` for ``_``. ``more``: other words
    of which it may be one.

    Raises
    ------
    ConfigError: no such kind.
    """
    if word in KINDS:  # as the library itself writes it
        return word
    name = word.strip().lower().replace("-", "_")
    kinds = (*KINDS, *more)
    words = {
        **{kind: kind for kind in kinds},
        **{_PLURALS.get(kind, f"{kind}s"): kind for kind in kinds},
    }
    if name not in words:
        raise ConfigError(
            f"there is no kind {word!r}{suggest(name, words)}; expected one of: {', '.join(kinds)}"
        )
    return words[name]


def build(kind: str, record: object, key: str | None = None) -> Any:
    """Return the component that a record describes, e.g.
    ``build("selector", {"name": "power_of_choice", "d": 20})``; an object of the kind is returned
    as it is.

    Raises
    ------
    ConfigError: an unknown name or option, a wrong type, a value the component refuses, or an
    object of another kind; the message names the key.
    """
    cls = record if isinstance(record, type) else type(record)
    if not isinstance(record, str | Mapping) and not issubclass(cls, catalogue(kind).base_class):
        fitting = next(
            (candidate for candidate in KINDS if issubclass(cls, catalogue(candidate).base_class)),
            None,
        )
        if fitting is not None:
            line = f"{_KEYS.get(fitting, fitting)} = {cls.__name__}(...)"
            raise ConfigError(
                f"got {cls.__name__}, which goes under another key; write {line}", key or kind
            )
    return catalogue(kind).build(record, key or kind)


def register(kind: str, name: str, cls: type) -> None:
    """Give a class of your own a name, which experiments in this process can then use like a
    built-in one.

    Parameters
    ----------
    kind: one of ``motley list``, e.g. ``"selector"``.
    name: e.g. ``"mine"``.
    cls: frozen dataclass of options that extends the kind's base class.

    Raises
    ------
    ConfigError: no such kind, a name that is taken, or a class that does not fit.

    Example
    -------
    ``motley.register("selector", "mine", MyRule)``, then ``selector = { name = "mine", d = 3 }``
    """
    if kind_of(kind) == "engine":
        raise ConfigError(
            "engines take no options and cannot be registered; give yours the entry point "
            "motley.engine",
            "kind",
        )
    catalogue(kind).register(name, cls)


def has_clients(task: object) -> bool:
    """Return whether a task (its record, its name, or a source of data) comes with clients of its
    own, which a partition would mix: those of its kind, or of a column that it names."""
    name = task.get("name") if isinstance(task, Mapping) else task
    column = task.get("client") if isinstance(task, Mapping) else getattr(task, "client", None)
    if isinstance(column, str) and column:  # of a data frame it may be its values
        return True
    names = catalogue("task")
    kind = names.get(name) if isinstance(name, str) and name in names.targets else type(task)
    return any(getattr(kind, flag, False) for flag in ("makes_clients", "has_clients"))


def is_own(kind: str, component: object) -> bool:
    """Return whether a component, or something in its options, is not Motley's own, so that its
    code counts for a run's id."""
    return not catalogue(kind).is_builtin(type(component)) or not all(
        map(_is_plain, options_of(component).values())
    )


def record_of(kind: str, component: object) -> dict[str, Any]:
    """Return the record of a component: its name (``"module:Class"`` where it has none) and the
    options that are not their defaults, as JSON values."""
    return {"name": catalogue(kind).name_of(type(component)), **chosen(component)}


def plain(component: Any) -> dict[str, Any]:
    """Return all options of a component, defaults included, as JSON values; what JSON has no value
    for, in words."""
    return {name: _json(value) for name, value in options_of(component).items()}


def chosen(component: Any) -> dict[str, Any]:
    """Return the options of a component that are not their defaults, as JSON values."""
    usual = {
        f.name: f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        for f in dataclasses.fields(component)
    }
    return {name: value for name, value in plain(component).items() if value != _json(usual[name])}


def options_of(component: Any) -> dict[str, Any]:
    """Return all options of a component, as they are."""
    return {f.name: getattr(component, f.name) for f in dataclasses.fields(component) if f.init}


def _is_plain(value: object) -> bool:
    """Return whether an option is a JSON value, or one of Motley's own components with such
    options."""
    if value is None or isinstance(value, str | int | float):
        return True
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(entry) for key, entry in value.items())
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    kind = _kind_of_object(value)
    return kind is not None and not is_own(kind, value)


def _kind_of_object(value: object) -> str | None:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    return next((kind for kind in KINDS if isinstance(value, catalogue(kind).base_class)), None)


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _json(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_json(entry) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = _kind_of_object(value)
        return plain(value) if kind is None else record_of(kind, value)
    if _is_plain(value):
        return value
    if isinstance(value, PurePath):
        return str(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def papers(components: Iterable[object]) -> list[Paper]:
    """Return the publications of these components, each once, in order."""
    by_key: dict[str, Paper] = {}
    for component in components:
        # a component may wrap another one
        for part in (component, getattr(component, "inner", None)):
            paper = getattr(type(part), "paper", None)
            if isinstance(paper, Paper):
                by_key.setdefault(paper.key, paper)
    return list(by_key.values())


def listing(kind: str) -> list[dict[str, Any]]:
    """Return one row per name: ``name``, ``about`` (one line), ``upload_visibility``, ``reveals``,
    ``leaves``, ``paper``, ``code``, ``options``. ``leaves``: what leaves a client under a selector
    or an algorithm with its default options."""
    names = catalogue(kind)
    return [_entry(names, name) for name in names.names()]


def _entry(names: Catalogue, name: str) -> dict[str, Any]:
    cls = names.get(name)
    about = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ").strip()
    options = names.options(name) if dataclasses.is_dataclass(cls) else []
    paper = getattr(cls, "paper", None)
    cited = paper if isinstance(paper, Paper) else None
    leaves = _leaves(cls, options)
    if leaves:
        visibility = leaves["visibility"]
    else:
        visibility = getattr(cls, "upload_visibility", None)
    return {
        **_row(
            name,
            about,
            upload_visibility=visibility,
            paper=cited,
            options=options,
            reveals=getattr(cls, "reveals", ""),
        ),
        "leaves": leaves,
    }


def _leaves(cls: type, options: Iterable[Option]) -> dict[str, Any] | None:
    """Return what leaves a client under a selector or an algorithm with its default options; None
    for other kinds."""
    named = issubclass(cls, (catalogue("selector").base_class, catalogue("algorithm").base_class))
    if not named or any(option.default is ... for option in options):
        return None
    return dataclasses.asdict(disclosure(cls()))


def disclosure(component: object) -> Disclosure:
    """Return what leaves a client under a selection rule, or under an algorithm on plain FedAvg."""
    from motley.algorithms.fedavg import plain_fedavg
    from motley.experiments.disclosure import algorithm_disclosure, selector_disclosure
    from motley.selectors.selector import SelectionRule

    if isinstance(component, SelectionRule):
        return selector_disclosure(component)
    method: Any = component
    return algorithm_disclosure(method.change(plain_fedavg()))


def fine_tuning(algorithm: str | Mapping[str, Any]) -> Tuning | None:
    """Return how the clients of an algorithm fine-tune the model before it is examined; None where
    they do not."""
    from motley.algorithms import CATALOGUE
    from motley.algorithms.fedavg import plain_fedavg

    tuning: Tuning | None = CATALOGUE.build(algorithm, "algorithm").change(plain_fedavg()).tuning
    return tuning


def _row(
    name: str,
    about: str,
    upload_visibility: str | None = None,
    paper: Paper | None = None,
    options: Iterable[Option] = (),
    reveals: str = "",
) -> dict[str, Any]:
    return {
        "name": name,
        "about": about,
        "upload_visibility": upload_visibility,
        "reveals": reveals,
        "leaves": None,
        "paper": paper.key if paper else None,
        "code": _code(paper),
        "options": [_option(option) for option in options],
    }


def _code(paper: Paper | None) -> str | None:
    """Return where the authors' public code of a paper lies; None where nothing is known."""
    code = public_code(paper.key) if paper else None
    return f"{code.repository} at {code.commit}" if code and code.repository else None


def _option(option: Option) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": option.name,
        "accepts": option.accepts,
        "required": option.default is ...,
    }
    if option.default is not ...:
        row["default"] = _json(option.default)
    return row
