"""Fingerprints of Python values: the same program gives the same one in every process, other code,
constants or data another.

A function counts with its bytecode, constants, defaults, closure, and the globals and own modules
that it refers to, followed recursively; a class with its bases and attributes; an object with its
class and what pickle would save of it. What belongs to an installed library (Python's, one in
``site-packages``, Motley itself) counts by its name and the library's version. Memory addresses,
file names, line numbers and the order of sets do not count.

>>> def scaled(factor):
...     return lambda x: factor * x
>>> fingerprint(scaled(2)) == fingerprint(scaled(2))
True
>>> fingerprint(scaled(2)) == fingerprint(scaled(3))
False
"""

from __future__ import annotations

import copyreg
import dis
import enum
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

from motley.core.checksum import checksums
from motley.core.errors import UserError

UNKNOWN = "unknown: "
"""How the result of :func:`fingerprint_or_reason` begins where there is no fingerprint."""

_BLOCK = 2**24
"""Bytes of an array that are hashed together; a longer one counts by the checksums of its blocks,
which are much faster than a hash."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range)
_NAMED_ONLY = {"torch", "numpy", "motley"}  # the numerics of a run record their versions
_FORMERLY = {
    "motley_data": "motley.tasks",
    "motley_data.table_preparation": "motley.tasks.preparation",
}
"""Packages and modules of Motley's repository, and where they were when fingerprints first had
them: they count by the names of then, so that the ids of runs stay."""
_CLASS_NOISE = {
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__annotations__",
    "__annotate__",
    "__annotate_func__",
    "__annotations_cache__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__abstractmethods__",
    "_abc_impl",
    "__hash__",
    "__static_attributes__",
    "__firstlineno__",
    "__slotnames__",
    "__match_args__",
    "__parameters__",
    "__orig_bases__",
}
_BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)


class FingerprintError(UserError):
    """A value has no fingerprint: nothing says what it will do (an open file, a lock, a connection,
    a running generator)."""


def fingerprint(value: object) -> str:
    """Return sixteen hex digits of a hash over a value, its code and everything that it holds or
    refers to.

    Parameters
    ----------
    value: functions, partials, methods, callable objects, classes, ``nn.Module``, tensors, arrays,
    dataclasses, containers, numbers, text, and whatever can be pickled.

    Raises
    ------
    FingerprintError: something in it cannot be fingerprinted; the sentence names the way to it.
    """
    hasher = _Hasher()
    hasher.add(value)
    return hasher.digest.hexdigest()


def fingerprint_or_reason(value: object) -> str:
    """Return the fingerprint of a value, or :data:`UNKNOWN` and the reason why there is none."""
    try:
        return fingerprint(value)
    except FingerprintError as error:
        return f"{UNKNOWN}{error}"


class _Hasher:
    """A hash over a stream of tokens; an object met again is a reference to its first place, so
    that circles end."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=8)
        # id -> number and the object, which keeps the id from being used again
        self.met: dict[int, tuple[int, object]] = {}
        self.trail: list[str] = []

    def token(self, kind: str, data: str | bytes | memoryview = b"") -> None:
        """Add one token; lengths go in, so that no two streams of tokens have the same bytes."""
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        self.digest.update(f"{kind} {len(raw)}:".encode())
        self.digest.update(raw)

    def numbers(self, raw: memoryview) -> None:
        """Add the bytes of an array."""
        if len(raw) <= _BLOCK:
            return self.token("data", raw)
        blocks = [raw[first : first + _BLOCK] for first in range(0, len(raw), _BLOCK)]
        return self.token("blocks", f"{len(raw)} {b''.join(checksums(blocks)).hex()}")

    def add(self, value: Any, where: str | None = None) -> None:
        """Add a value; ``where`` says how one comes to it from the value around it."""
        if type(value) in _PLAIN:
            return self.token(
                type(value).__name__, hex(value) if type(value) is int else repr(value)
            )
        if id(value) in self.met:
            return self.token("again", str(self.met[id(value)][0]))
        # equal ones may be one object or two, and no circle is of them alone
        if type(value) not in (tuple, frozenset):
            self.met[id(value)] = len(self.met), value
        self.trail += [where] if where else []
        try:
            self._object(value)
        except RecursionError:
            raise self.refusal("is nested too deeply") from None
        if where:
            self.trail.pop()
        return None

    def refusal(self, reason: str) -> FingerprintError:
        """Return the error for what cannot be fingerprinted, at the place where the hash is now."""
        return FingerprintError(f"{', '.join(self.trail) or 'this value'} {reason}")

    def each(self, kind: str, values: Iterable[tuple[str, Any]]) -> None:
        """Add named values in their order."""
        self.token(kind)
        for name, value in values:
            self.token("name", name)
            self.add(value, repr(name))
        self.token("end")

    def _object(self, value: Any) -> None:
        for kinds, add in _KINDS:
            if isinstance(value, kinds):
                return add(self, value)
        if _torch_value(self, value):
            return None
        return _instance(self, value)


# ---------------------------------------------------------------------------- containers and arrays


def _sequence(to: _Hasher, value: Any) -> None:
    to.token(_type_name(to, value), str(len(value)))
    for element in value:
        to.add(element, "an item")


def _table(to: _Hasher, value: Any) -> None:
    to.token(_type_name(to, value), str(len(value)))
    for key, entry in value.items():
        to.add(key)
        to.add(entry, repr(key)[:40] if isinstance(key, _PLAIN) else "a value")


def _set(to: _Hasher, value: Any) -> None:
    to.token(_type_name(to, value), ",".join(sorted(fingerprint(element) for element in value)))


def _array(to: _Hasher, value: Any) -> None:
    to.token("array", f"{value.dtype.str} {value.dtype.descr} {value.shape}")
    if value.dtype.hasobject:
        return to.add(value.tolist())
    return to.numbers(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)


def _type_name(to: _Hasher, value: Any) -> str:
    """Return the name of a container's type; add the type itself where it is not Python's own."""
    kind = type(value)
    if kind.__module__ not in ("builtins", "collections"):
        to.add(kind)
        if hasattr(value, "__dict__"):
            to.each("state", sorted(vars(value).items()))
    return kind.__name__


# --------------------------------------------------------------------------------------------- code


def _function(to: _Hasher, value: types.FunctionType) -> None:
    if is_installed(value.__globals__.get("__name__")) and _found_by_name(value):
        return _by_name(to, value)
    to.token("function", value.__qualname__)
    names = _code(to, value.__code__)
    to.add(value.__defaults__, f"a default of {value.__name__}")
    to.add(value.__kwdefaults__, f"a default of {value.__name__}")
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        _cell(to, f"{name!r} in {value.__qualname__}", cell)
    if vars(value):
        to.each("attributes", sorted((k, v) for k, v in vars(value).items() if k != "__wrapped__"))
    # a function made by a library, around a user's perhaps
    if is_installed(value.__globals__.get("__name__")):
        return None
    for name in sorted(names.globals & value.__globals__.keys()):
        to.token("global", name)
        _reference(to, value.__globals__[name], f"{name!r} in {value.__qualname__}", names.all)
    for module in sorted(names.imports(value.__globals__)):
        _imported(to, module, names.all)
    return None


def _cell(to: _Hasher, where: str, cell: types.CellType) -> None:
    to.token("cell")
    try:
        held = cell.cell_contents
    except ValueError:  # not filled yet
        return to.token("empty")
    return to.add(held, where)


class _Names:
    """The names in a function's code: globals that it loads, modules that it imports, and all of
    them with attributes."""

    def __init__(self) -> None:
        self.globals: set[str] = set()
        self.all: set[str] = set()
        self.modules: set[tuple[str, int]] = set()

    def imports(self, scope: Mapping[str, Any]) -> set[str]:
        """Return the full names of the imported modules, for a function in a module with the
        globals ``scope``."""
        package = scope.get("__package__") or ""
        return {
            importlib.util.resolve_name("." * level + name, package) if level else name
            for name, level in self.modules
        }


def _code(to: _Hasher, code: types.CodeType, names: _Names | None = None) -> _Names:
    """Add the bytecode and constants of a function and those nested in it; return the names in
    them."""
    names = names or _Names()
    to.token("code", code.co_code)
    to.token("exceptions", getattr(code, "co_exceptiontable", b""))
    name_tables = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_flags, code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount)
    to.token("names", repr((name_tables, counts)))
    names.all |= set(code.co_names)
    level = 0
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.globals.add(str(instruction.argval))
        elif instruction.opname == "IMPORT_NAME":
            names.modules.add((str(instruction.argval), level))
        elif instruction.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and isinstance(
            instruction.argval, int
        ):
            level = instruction.argval  # of a relative import, its last number
    to.token("constants", str(len(code.co_consts)))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _code(to, constant, names)
        else:
            to.add(constant)
    return names


def _reference(to: _Hasher, value: Any, where: str, names: set[str]) -> None:
    """Add a global; of an own module, those attributes whose names occur in the code."""
    if isinstance(value, types.ModuleType):
        return _module(to, value, names)
    return to.add(value, where)


def _module(to: _Hasher, value: types.ModuleType, names: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    to.token("module", _former(value.__name__))
    if is_installed(value.__name__):
        return to.token("version", _version(value.__name__))
    for name in sorted(names & vars(value).keys()):
        to.token("attribute", name)
        _reference(to, vars(value)[name], f"{value.__name__}.{name}", names - {name})
    return None


def _imported(to: _Hasher, name: str, names: set[str]) -> None:
    """Add a module that a function imports when it is called."""
    to.token("import", _former(name))
    if is_installed(name):
        return to.token("version", _version(name))
    try:
        return _module(to, importlib.import_module(name), names)
    except Exception as error:  # the user's module may raise anything
        raise to.refusal(f"imports {name}, which fails ({type(error).__name__}: {error})") from None


def _method(to: _Hasher, value: Any) -> None:
    to.token("method")
    to.add(value.__func__)
    to.add(value.__self__, f"the object of {value.__func__.__qualname__}")


def _built_in(to: _Hasher, value: Any) -> None:
    to.token(
        "built-in",
        f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value.__name__)}",
    )
    of = getattr(value, "__self__", None)
    if of is not None and not isinstance(of, types.ModuleType):
        to.add(of, f"the object of {value.__name__}")


def _wrapper(to: _Hasher, value: Any) -> None:
    """Add what stands for a function: class and static methods, properties, cached functions."""
    to.token("wrapper", type(value).__name__)
    for name in ("__func__", "fget", "fset", "fdel", "func", "__wrapped__"):
        to.add(getattr(value, name, None), f"the function of a {type(value).__name__}")


def _partial(to: _Hasher, value: functools.partial[Any]) -> None:
    to.token("partial")
    to.add(value.func)
    to.add(value.args, "an argument of a partial")
    to.add(value.keywords, "an argument of a partial")


def _class(to: _Hasher, value: type) -> None:
    if (is_installed(value.__module__) and _found_by_name(value)) or value.__module__ == "builtins":
        return _by_name(to, value)
    to.token("class", value.__qualname__)
    for base in value.__bases__:
        to.add(base)
    own = {name: member for name, member in vars(value).items() if name not in _CLASS_NOISE}
    return to.each("members", sorted(own.items()))


# ------------------------------------------------------------------------------------------ objects


def _named_member(to: _Hasher, value: enum.Enum) -> None:
    to.token("member", value.name)
    to.add(type(value))
    to.add(value.value)


def _instance(to: _Hasher, value: Any) -> None:
    """Add an object as pickle would save it: its class, and what rebuilds its state."""
    to.token("object")
    to.add(type(value))
    try:
        reducer = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(4) if reducer is None else reducer(value)
    except Exception as error:  # whatever the object raises
        raise to.refusal(
            f"is a {type(value).__name__}, which cannot be fingerprinted ({error})"
        ) from None
    if isinstance(reduced, str):
        return to.token("named", reduced)
    make, arguments, state, elements, pairs = (*reduced, None, None, None)[:5]
    if make is not copyreg.__newobj__ or arguments != (type(value),):  # type: ignore[attr-defined]
        to.add(make)
        to.add(arguments)
    for part in (
        state,
        *([] if elements is None else [list(elements)]),
        *([] if pairs is None else [dict(pairs)]),
    ):
        if isinstance(part, dict) and all(isinstance(name, str) for name in part):
            to.each("state", _attributes(value, part))
        else:
            to.add(part)
    return None


def _attributes(value: Any, state: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return an object's attributes in the order of their names, without what cached properties
    have kept."""
    cached = {
        name
        for name in state
        if isinstance(getattr(type(value), name, None), functools.cached_property)
    }
    return [(name, state[name]) for name in sorted(state.keys() - cached)]


def _torch_value(to: _Hasher, value: Any) -> bool:
    """Add a tensor or one of torch's small values; return whether it was one."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(value, torch.Tensor):
        _tensor(to, value, torch)
    elif isinstance(value, torch.nn.Module):
        _network(to, value)
    elif isinstance(value, torch.Generator):
        to.token("generator", str(value.device))
        to.add(value.get_state())
    elif isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        to.token("torch", repr(value))
    else:
        return False
    return True


def _tensor(to: _Hasher, value: Any, torch: Any) -> None:
    if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
        raise to.refusal(
            f"is a tensor of {value.layout} on {value.device}, which cannot be fingerprinted"
        )
    to.token(type(value).__name__, f"{value.dtype} {tuple(value.shape)} {value.requires_grad}")
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        raise to.refusal(
            "is a tensor kept from inside a training step, which has no numbers of its own; keep "
            "it with detach().clone(), or not at all"
        )
    plain = (
        torch.view_as_real(value.detach().resolve_conj()) if value.is_complex() else value.detach()
    )
    raw = plain.cpu().contiguous().reshape(-1).view(torch.uint8)
    to.numbers(raw.numpy().data)


def _network(to: _Hasher, value: Any) -> None:
    """Add a module: its class and all attributes. The numbers of its hooks count up in a process
    and say nothing."""
    to.token("network")
    to.add(type(value))
    # weak references
    state = {
        name: attribute
        for name, attribute in _attributes(value, vars(value))
        if name != "_flat_weight_refs"
    }
    to.each(
        "state",
        [
            (name, list(attribute.values()) if "_hooks" in name else attribute)
            for name, attribute in state.items()
        ],
    )


# ---------------------------------------------------------------------------------------- libraries


def is_installed(name: object) -> bool:
    """Return whether a module belongs to Python, to an installed library or to Motley, so that its
    name says enough."""
    top = _former(str(name)).partition(".")[0]
    if top in sys.stdlib_module_names or top == "motley" or name is None:
        return True
    origin = getattr(sys.modules.get(str(name)), "__file__", None) or getattr(
        sys.modules.get(top), "__file__", None
    )
    if origin is None and str(name) not in sys.modules:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            spec = None
        origin = spec.origin if spec else None
    return origin is not None and bool(
        {"site-packages", "dist-packages"} & set(PurePath(origin).parts)
    )


def _former(name: str) -> str:
    """Return the name by which a module counts."""
    top, dot, below = name.partition(".")
    return _FORMERLY.get(name) or _FORMERLY.get(top, top) + dot + below


def _version(name: str) -> str:
    top = _former(name).partition(".")[0]
    if top in _NAMED_ONLY:
        return ""
    version = getattr(sys.modules.get(top), "__version__", None)
    if version is None:
        try:
            version = importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:
            version = ""
    return str(version)


def _by_name(to: _Hasher, value: Any) -> None:
    module = value.__module__ and _former(value.__module__)
    to.token("installed", f"{module}.{value.__qualname__} {_version(value.__module__ or '')}")


def _found_by_name(value: Any) -> bool:
    """Return whether a function or class is what its module holds under its name."""
    attribute: Any = sys.modules.get(value.__module__ or "")
    for part in value.__qualname__.split("."):
        attribute = getattr(attribute, part, None)
    return attribute is value or getattr(attribute, "__func__", None) is value


_KINDS: tuple[tuple[Any, Callable[[_Hasher, Any], None]], ...] = (
    (enum.Enum, _named_member),
    ((list, tuple), _sequence),
    ((dict, types.MappingProxyType), _table),
    ((set, frozenset), _set),
    (np.ndarray, _array),
    (np.generic, lambda to, value: _array(to, np.asarray(value))),
    (np.dtype, lambda to, value: to.token("dtype", repr(value))),
    (np.ufunc, lambda to, value: to.token("ufunc", value.__name__)),
    (PurePath, lambda to, value: to.token("path", str(value))),
    (types.FunctionType, _function),
    (types.MethodType, _method),
    (types.ModuleType, _module),
    (functools.partial, _partial),
    (
        (
            staticmethod,
            classmethod,
            property,
            functools.cached_property,
            functools._lru_cache_wrapper,
        ),
        _wrapper,
    ),
    (_BUILT_IN, _built_in),
    (types.GenericAlias | types.UnionType, lambda to, value: to.token("type", repr(value))),
    (type, _class),
)
