"""Catalogues: the names of all components of one kind, and the construction of one from
``{ name = "...", option = ... }``.

Every component but an engine is a frozen dataclass of options. A catalogue maps its name to
``"module:Class"`` and imports the module on first use. Packages installed beside Motley add names
through the entry-point group ``motley.<kind>``, a program through :meth:`Catalogue.register`, and
an experiment may say ``"module:Class"`` itself where :func:`imports` allows it.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import PurePath
from typing import Any, Literal

from typing_extensions import override

from motley.core.errors import ConfigError, DataError, suggest
from motley.core.extensions import extensions, required_extension
from motley.core.own_code import in_one_line, is_motley, place_in_own_code
from motley.core.untrusted import shortened

_IMPORTS: ContextVar[bool] = ContextVar("imports", default=False)


@contextmanager
def imports(allowed: bool) -> Iterator[None]:
    """Allow components to be named ``"module:Class"`` inside the block, which imports the module
    and so runs its code."""
    token = _IMPORTS.set(allowed or _IMPORTS.get())
    try:
        yield
    finally:
        _IMPORTS.reset(token)


def imports_allowed() -> bool:
    """Return whether code may be named, ``"module:Class"``: whether :func:`imports` allows it."""
    return _IMPORTS.get()


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a component: its name, its accepted values (in words), and its default (``...``
    if it is required)."""

    name: str
    accepts: str
    default: Any


class OwnComponent(typing.NamedTuple):
    """A component of a class that is not Motley's own, built from a record.

    Parameters
    ----------
    kind, name: of its catalogue, and in the record.
    key: of the record.
    component: what was built.
    """

    kind: str
    name: str
    key: str
    component: Any


_LONGEST = 200
"""Characters of a value in a message."""
_BUILT: ContextVar[list[OwnComponent] | None] = ContextVar("built", default=None)


@contextmanager
def own_components() -> Iterator[list[OwnComponent]]:
    """List the components of classes that are not Motley's own which catalogues build inside the
    block, also those that a component builds from its options."""
    built: list[OwnComponent] = []
    token = _BUILT.set(built)
    try:
        yield built
    finally:
        _BUILT.reset(token)


_CATALOGUES: list[Catalogue] = []
"""Every catalogue of components, for a name that stands at another's key."""


@dataclass(frozen=True)
class Catalogue:
    """All components of one kind.

    Parameters
    ----------
    kind: the key in the experiment file, e.g. ``"selector"``.
    builtin: name -> ``"module:Class"``.
    base: ``"module:Class"`` of the class that every component of this kind extends.
    beside: names that a distribution of Motley's repository adds, which may not be installed, and
    the names of their classes.
    """

    kind: str
    builtin: Mapping[str, str]
    base: str = "builtins:object"
    beside: Mapping[str, str] = field(default_factory=dict)
    _classes: dict[str, type] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        _CATALOGUES.append(self)

    @cached_property
    def targets(self) -> dict[str, str]:
        """Name -> ``"module:Class"``, including entry points, which cannot replace built-in names,
        and registered names."""
        installed = {name: point.value for name, point in extensions(self.kind).items()}
        return {**installed, **self.builtin}

    @cached_property
    def base_class(self) -> type:
        """The class that every component of this kind extends."""
        return _imported(self.base)

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self.targets)

    def name_of(self, cls: type) -> str:
        """Return the name of a class in this catalogue; ``"module:Class"`` where it has none."""
        path = _path(cls)
        return next(
            (name for name, target in self.targets.items() if target == path and ":" not in name),
            path,
        )

    def is_builtin(self, cls: type) -> bool:
        """Return whether a class is Motley's own component of this kind."""
        path = _path(cls)
        beside = (self.targets.get(name) for name in self.beside)
        return path in self.builtin.values() or (is_motley(path) and path in beside)

    def get(self, name: str, key: str | None = None) -> type:
        """Return the class of a component.

        Raises
        ------
        ConfigError: an unknown name (with the nearest spelling), one of a distribution that is not
        installed, or ``"module:Class"`` where imports are not allowed or the class does not fit.
        """
        where = key or f"{self.kind}.name"
        if name in self._classes:
            return self._classes[name]
        if name in self.beside:
            return typing.cast(type, required_extension(self.kind, name, where))
        if name in self.targets:
            return _imported(self.targets[name])
        if ":" in name:
            return self._import(name, where)
        hint = self._belongs(name, where) or suggest(name, self.names())
        raise ConfigError(f"got {name!r}{hint}; expected one of: {', '.join(self.names())}", where)

    def has_options(self, name: str, wanted: Iterable[str]) -> bool:
        """Return whether a component has all of these options; one that cannot be imported has
        none."""
        try:
            options = {option.name for option in self.options(name)}
        except Exception:  # the module of a plugin may raise anything
            options = set()
        return set(wanted) <= options

    def _with_option(self, option: str) -> list[str]:
        """Return the names of the components with an option."""
        return [name for name in self.names() if self.has_options(name, (option,))]

    def _belongs(self, name: str, where: str) -> str:
        """Return where a name belongs that is of another kind, in brackets; "" for others."""
        keys = sorted(
            {catalogue.kind for catalogue in _CATALOGUES if name in catalogue.targets} - {self.kind}
        )
        if not where.startswith(self.kind) or not keys:
            return ""
        lines = " or ".join(f'{key} = "{name}"' for key in keys)
        return f" (write {lines})"

    def _import(self, name: str, where: str) -> type:
        """Return the class ``"module:Class"`` of an experiment, and remember that it was
        allowed."""
        if not imports_allowed():
            raise ConfigError(
                f"got {name!r}, which imports a module and so runs its code; if you trust it, say "
                "so: --allow-import at the command line, allow_import=True in Python",
                where,
            )
        try:
            cls = _imported(name)
        except Exception as error:  # the module's own code may raise anything
            reason = f"{in_one_line(error)}{place_in_own_code(error)}"
            module = name.replace(".py:", ":")
            expected = "module:Class" if module == name else f"a module, not its file: {module!r}"
            raise ConfigError(
                f"got {name!r}, which cannot be imported ({reason}); expected {expected}", where
            ) from error
        self._check_class(cls, where)
        self.add(name, cls)
        return cls

    def register(self, name: str, cls: type) -> None:
        """Give a class a name of this kind, in this process.

        Raises
        ------
        ConfigError: the name is taken, or the class is not a component of this kind.
        """
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"got {name!r}; expected a name such as my_{self.kind}", "name")
        if self.targets.get(name, _path(cls)) != _path(cls):
            raise ConfigError(
                f"{name!r} is taken ({self.targets[name]}); choose another name", "name"
            )
        self._check_class(cls, self.kind)
        self.add(name, cls)

    def add(self, name: str, cls: type) -> None:
        """Enter a class that was checked before, under a name or ``"module:Class"``: in another
        process, say."""
        self.targets[name] = name if ":" in name else _path(cls)
        self._classes[name] = cls

    def accept(self, component: Any, key: str | None = None) -> Any:
        """Return an object that is given in place of a record, if it is a component of this kind.

        Raises
        ------
        ConfigError: a class instead of an object, an object of another kind, or one whose class is
        no frozen dataclass.
        """
        where = key or self.kind
        if isinstance(component, type):
            line = f"{where} = {component.__name__}(...)"
            raise ConfigError(
                f"got the class {component.__name__}; give an object of it, {line}", where
            )
        cls = type(component)
        self._check_class(cls, where)
        if not self.is_builtin(cls):
            return component
        options = {f.name: getattr(component, f.name) for f in dataclasses.fields(cls) if f.init}
        # checked and converted like those of a record
        return self.build({"name": self.name_of(cls), **options}, where)

    def _check_class(self, cls: object, where: str) -> None:
        """Refuse what is no class, of another kind, abstract, or no frozen dataclass."""
        if not isinstance(cls, type):
            raise ConfigError(f"got {cls!r}; expected a class, e.g. {type(cls).__name__}", where)
        name = cls.__name__
        base = self.base_class
        if not issubclass(cls, base):
            raise ConfigError(
                f"got {name}, which is no {self.kind}; write class {name}({base.__name__})", where
            )
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise ConfigError(f"got {name}, which does not define {missing}", where)
        params = vars(cls).get("__dataclass_params__")
        if params is None or not params.frozen:
            raise ConfigError(
                f"got {name}, which is no frozen dataclass; write @dataclass(frozen=True) above "
                f"class {name}",
                where,
            )

    def options(self, name: str) -> list[Option]:
        """Return the options of a component, in order."""
        cls = self.get(name)
        hints = _hints(cls)
        out = []
        for f in dataclasses.fields(cls):
            if f.init:
                default = f.default if f.default is not dataclasses.MISSING else ...
                if f.default_factory is not dataclasses.MISSING:
                    default = f.default_factory()
                out.append(Option(f.name, describe(hints[f.name]), default))
        return out

    def build(self, record: object, key: str | None = None) -> Any:
        """Return the component that a record describes: ``{"name": "power_of_choice", "d": 20}`` or
        just a name; an object of this kind is returned as it is.

        Raises
        ------
        ConfigError: unknown name or option, wrong type, or a value the component refuses; the
        message names the key.
        DataError: a file that the component reads cannot be used; the message names the key.
        """
        where = key or self.kind
        if not isinstance(record, str | Mapping):
            ours = self.base_class is not object and isinstance(record, self.base_class)
            if ours or isinstance(record, type) or dataclasses.is_dataclass(record):
                return self.accept(record, where)
            objects = (
                ""
                if self.base_class is object
                else f", or an object of a class made from {self.base_class.__name__}"
            )
            raise ConfigError(
                f'got {record!r}; expected a name or {{ name = "...", ... }}{objects}', where
            )
        record = {"name": record} if isinstance(record, str) else dict(record)
        if "name" not in record:
            fitting = [name for name in self.names() if self.has_options(name, record)]
            raise ConfigError(
                'got no name; expected { name = "...", ... }, one of: '
                + ", ".join(fitting or self.names()),
                where,
            )
        name = record.pop("name")
        if isinstance(name, type):
            line = f"{where} = {name.__name__}(...)"
            raise ConfigError(
                f"got the class {name.__name__}; give an object of it, {line}", f"{where}.name"
            )
        if not isinstance(name, str):
            raise ConfigError(
                f"got {name!r}; expected one of: {', '.join(self.names())}", f"{where}.name"
            )
        cls = self.get(name, f"{where}.name")
        allowed = {f.name: f for f in dataclasses.fields(cls) if f.init}
        hints = _hints(cls)
        values = {}
        for option, value in record.items():
            if option not in allowed:
                near = suggest(option, allowed)
                names = ", ".join(allowed) or "none"
                raise UnknownOptionError(
                    f"{name!r} has no such option{near}; its options: {names}",
                    option=option,
                    where=where,
                    similar=bool(near),
                    owners=[] if near else self._with_option(option),
                )
            values[option] = check_option(value, hints[option], f"{where}.{option}")
        for option, f in allowed.items():
            missing = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
            if missing and option not in values:
                raise ConfigError(
                    f"{name!r} needs this option ({describe(hints[option])})", f"{where}.{option}"
                )
        component = _construct(cls, values, where, own=not self.is_builtin(cls))
        built = _BUILT.get()
        if built is not None and not self.is_builtin(cls):
            built.append(OwnComponent(self.kind, name, where, component))
        return component


class UnknownOptionError(ConfigError):
    """A record has an option that its component lacks.

    Parameters
    ----------
    sentence: what is wrong.
    option: what the record calls it.
    where: key of the record.
    similar: whether an option of the component has a similar name.
    owners: other components with the option.
    """

    def __init__(
        self, sentence: str, option: str, where: str, similar: bool, owners: Sequence[str]
    ) -> None:
        super().__init__(sentence, f"{where}.{option}")
        self.sentence = sentence
        self.option = option
        self.where = where
        self.similar = similar
        self.owners = owners

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.sentence, self.option, self.where, self.similar, self.owners)
        return type(self), values, vars(self)


def _construct(cls: type, options: Mapping[str, Any], where: str, own: bool) -> Any:
    """Return the component of a class with these options; its errors, and whatever a class of the
    user's ``own`` raises, name the key."""
    try:
        return cls(**options)
    except ConfigError as error:
        raise _at_key(error, where) from None
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    except Exception as error:
        if not own:
            raise
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        reason = f"{in_one_line(error)}{place_in_own_code(error)}"
        raise ConfigError(f"{cls.__name__}({given}) cannot be made ({reason})", where) from error


def _at_key(error: ConfigError, where: str) -> ConfigError:
    """Return an error with the key of its record, or as it is where it names a key in there."""
    within = (error.key or "").startswith(f"{where}.")
    return error if within else ConfigError(str(error), where)


def class_named(catalogues: Iterable[Catalogue], name: str) -> type:
    """Return the built-in class of a name such as ``"PowerOfChoice"``:
    ``motley.selectors.PowerOfChoice`` without an import.

    Raises
    ------
    AttributeError: there is none. ConfigError: it is of a distribution that is not installed.
    """
    for catalogue in catalogues:
        for target in catalogue.builtin.values():
            if target.endswith(f":{name}"):
                return _imported(target)
        for component, class_name in catalogue.beside.items():
            if class_name == name:
                return catalogue.get(component)
    raise AttributeError(f"there is no component {name!r} here")


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the annotations of a class; Any for all where they name what only the function around
    the class knows."""
    try:
        return typing.get_type_hints(cls)
    except NameError:
        return {f.name: Any for f in dataclasses.fields(cls)}


def _path(cls: object) -> str:
    return f"{getattr(cls, '__module__', '')}:{getattr(cls, '__qualname__', '')}"


def _imported(target: str) -> type:
    """Return the class ``"module:Class"``."""
    module, _, names = target.partition(":")
    value: Any = importlib.import_module(module)
    for name in names.split("."):
        value = getattr(value, name)
    return typing.cast(type, value)


def overrides(part: object, base: type, *methods: str) -> bool:
    """Return whether an object's class has a version of its own of any of these methods of
    ``base``: what a component can do is read from what it implements."""
    return any(getattr(type(part), name) is not getattr(base, name) for name in methods)


def declares(part: object, declaration: str, *methods: str) -> bool:
    """Return whether what an object's class declares is said of its own methods: no class below the
    one that declares it has another version of a method that the declaration is about.

    A subclass inherits declarations, and may do something else; where a promise rests on one, it
    must be made anew."""
    classes = type(part).__mro__

    def place(name: str) -> int:
        return next((i for i, cls in enumerate(classes) if name in vars(cls)), len(classes))

    return place(declaration) <= min(place(name) for name in methods)


_PLURAL = {int: "whole numbers", float: "numbers", str: "strings"}


def describe(hint: Any) -> str:
    """Return an annotation in words, e.g. ``a number or none``."""
    origin = typing.get_origin(hint)
    args = typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(a) for a in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(a) for a in args)
    if origin in (tuple, list, Sequence):
        inner = [a for a in args if a is not ...]
        if ... in args or origin is not tuple:
            return f"a list of {_PLURAL.get(inner[0]) or describe(inner[0])}" if inner else "a list"
        return f"a list of {len(inner)}: " + ", ".join(describe(a) for a in inner)
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a string",
        type(None): "none",
    }
    if inspect.isabstract(hint):  # the base class of components
        return f"an object of {hint.__name__}"
    return names.get(
        hint, "a table" if origin in (dict, Mapping) else getattr(hint, "__name__", str(hint))
    )


def check_option(value: Any, hint: Any, key: str) -> Any:
    """Return the value converted to its annotated type (int to float, list to tuple, text to path);
    raise ConfigError if it does not fit."""
    ok, out = _fit(value, hint)
    if not ok:
        hints = (
            [str(a) for a in typing.get_args(hint)] if typing.get_origin(hint) is Literal else []
        )
        near = suggest(value, hints) if isinstance(value, str) else ""
        got = shortened(repr(value), _LONGEST)
        raise ConfigError(f"got {got}{near}; expected {describe(hint)}", key)
    return out


def _fit(value: Any, hint: Any) -> tuple[bool, Any]:
    origin = typing.get_origin(hint)
    args = typing.get_args(hint)
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
    return _fit_plain(value, hint)


def _fit_plain(value: Any, hint: Any) -> tuple[bool, Any]:
    """Return whether a value fits a type that holds no others, and the value converted to it."""
    if hint is float:
        good = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1023
        good = good or (isinstance(value, float) and not math.isnan(value))
        return good, float(value) if good else value
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if isinstance(value, str) and isinstance(hint, type) and issubclass(hint, PurePath):
        return True, hint(value)
    return isinstance(value, hint) if isinstance(hint, type) else False, value
