"""The layers of the library: allowed imports, sizes of functions and files, unique class names,
documented public names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tests.places import SOURCES

FILES = sorted(path for source in SOURCES for path in source.rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _by_kind(path: Path) -> dict[type[ast.AST], list[Any]]:
    """All nodes of a file by their class: parsed and walked once for all tests."""
    found: dict[type[ast.AST], list[Any]] = {}
    for node in ast.walk(_tree(path)):
        found.setdefault(type(node), []).append(node)
    return found


def _nodes(path: Path, *kinds: type[ast.AST]) -> list[Any]:
    """The nodes of a file that are of these very classes."""
    return [node for kind in kinds for node in _by_kind(path).get(kind, ())]


def _dotted(node: ast.expr) -> str:
    """``a.b.c`` for names and their attributes; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


# package -> packages of ours it may import; "=a" allows the package itself, that is its catalogues,
# but not its modules
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "selectors": {"core"},
    "world": {"core"},
    "timing": {"core"},
    "tasks": {"core"},
    "heterogeneity": {"core", "world", "tasks"},
    "algorithms": {"core", "tasks.task", "tasks.own_loss", "tasks.transfer"},
    "transport": {"core"},
    "engines": {
        "core",
        "=algorithms",
        "algorithms.parts",
        "algorithms.local_optimisers",
        "algorithms.torch_optimizer",
        "algorithms.head_loss",
        "algorithms.task_loss",
        "algorithms.positions",
        "algorithms.random",
        "tasks",
    },
    "results": {"core"},
    "testing": {
        "core",
        "selectors",
        "algorithms",
        "engines",
        "tasks",
        "world",
        "timing",
        "transport",
    },
    "privacy": {"core", "selectors.selector", "algorithms.parts", "algorithms.weights"},
    "tuning": {"core", "experiments", "results", "tasks.task"},
    "rounds": {
        "core",
        "algorithms.parts",
        "algorithms.schedules",
        "algorithms.weights",
        "selectors.selector",
        "engines.engine",
        "engines.cores",
        "tasks.task",
        "tasks.metrics",
        "tasks.finite",
        "timing",
        "world.interfaces",
        "transport.allocators.allocator",
        "transport.feedback",
        "transport.ledger",
        "transport.packet",
        "transport.upload_config",
        "transport.wire",
        "privacy",
        "results.marks",
        "results.stream",
        "results.writer",
    },
}
BESIDE = {
    "motley_flower": {"motley", "motley_flower"},
    "motley_papers": {"motley", "motley_papers"},
    "motley_ray": {"motley", "motley_ray"},
}
"""Distributions beside Motley, and the distributions that each may import: Motley knows neither."""
TORCH_FREE = {"core", "selectors", "world", "timing", "results", "cli", "motley_flower.secure"}
THIRD_PARTY = {
    "core": {"numpy", "xxhash", "typing_extensions", "annotated_types"},
    "timing": {"numpy", "typing_extensions"},
}
# Class names that occur in two modules because both mean the same thing.
SAME_CONCEPT: dict[str, str] = {}


def _allows(entry: str, target: str) -> bool:
    """``"=a"`` allows the package ``a`` itself (its catalogues), ``"a"`` everything in it too."""
    return target == entry.removeprefix("=") or (entry[0] != "=" and target.startswith(entry + "."))


def _name(path: Path) -> str:
    """The file below its distribution's sources, such as ``motley/core/keys.py``."""
    return next(
        path.relative_to(source).as_posix() for source in SOURCES if path.is_relative_to(source)
    )


def _layer(path: Path) -> str:
    """``core`` and the like for Motley's own packages, ``motley_flower.secure`` for those of
    another distribution."""
    parts = Path(_name(path)).with_suffix("").parts
    return parts[1] if parts[0] == "motley" else ".".join(parts[:2])


def _package(path: Path) -> str:
    parts = Path(_name(path)).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_package(path) for path in FILES}


def _imports(path: Path) -> list[str]:
    """Every module imported anywhere in a file; ``from a import b`` counts as ``a.b`` where that is
    a module of ours."""
    out = [alias.name for node in _nodes(path, ast.Import) for alias in node.names]
    for node in _nodes(path, ast.ImportFrom):
        assert node.level == 0, f"{path}: relative import"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            out.append(inner if inner in MODULES else str(node.module))
    return out


def _each(check: Callable[[Path], None], files: Iterable[Path] = FILES) -> None:
    """Check all files in one test, for a test of each would take ten times as long, and tell what
    is wrong in all of them."""
    wrong = []
    for path in files:
        try:
            check(path)
        except AssertionError as error:
            wrong.append(str(error).splitlines()[0])
    assert not wrong, "\n".join(wrong)


def test_arrows_point_down() -> None:
    _each(_arrows_point_down)


def _arrows_point_down(path: Path) -> None:
    layer = _layer(path)
    distribution = _name(path).partition("/")[0]
    known = BESIDE.get(distribution, {"motley"})
    for name in _imports(path):
        top = name.partition(".")[0]
        assert top in known or top not in (*BESIDE, "motley"), f"{_name(path)} imports {name}"
        if layer in ALLOWED and name.startswith("motley."):
            target = name.removeprefix("motley.")
            fine = target.split(".")[0] == layer or any(
                _allows(entry, target) for entry in ALLOWED[layer]
            )
            assert fine, f"{_name(path)} imports {name}"
        if layer in TORCH_FREE:
            assert top not in ("torch", "torchvision"), f"{_name(path)} imports {name}"


def test_core_and_timing_stand_on_little_else_than_numpy() -> None:
    files = [path for path in FILES if _layer(path) in THIRD_PARTY]
    assert files
    _each(_stands_on_little, files)


def _stands_on_little(path: Path) -> None:
    for name in _imports(path):
        top = name.split(".")[0]
        assert top in sys.stdlib_module_names or top in THIRD_PARTY[_layer(path)] | {"motley"}, (
            f"{path} imports {name}"
        )


def _imports_at_run_time(path: Path, modules: set[str]) -> set[str]:
    """Modules of ours that a file imports anywhere, inside functions too, but not under
    ``if TYPE_CHECKING``."""
    typing_only = [
        n
        for n in _nodes(path, ast.If)
        if any(_dotted(inner).endswith("TYPE_CHECKING") for inner in ast.walk(n.test))
    ]
    skipped = {
        id(n) for block in typing_only for statement in block.body for n in ast.walk(statement)
    }
    names = set()
    for node in _nodes(path, ast.Import, ast.ImportFrom):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            names |= {full if full in modules else str(node.module) for full in inner.values()}
    return names & modules


def test_nothing_imports_in_a_circle() -> None:
    modules = {_package(path) for path in FILES}
    graph = {_package(path): _imports_at_run_time(path, modules) for path in FILES}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for other in graph[name]:
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


ONE_EACH = {"__init__.py", "__main__.py", "command.py"}
"""What a package has one of, the last for its part of the command."""


def test_no_two_modules_have_one_name() -> None:
    """A name in a traceback, or in a reader's search, means one file of all distributions."""
    found: dict[str, list[Path]] = {}
    for path in FILES:
        if path.name not in ONE_EACH:
            found.setdefault(path.name, []).append(path)
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_class_name_occurs_in_two_modules() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in _nodes(path, ast.ClassDef):
            places.setdefault(node.name, []).append(_name(path))
    twice = {
        name: files for name, files in places.items() if len(files) > 1 and name not in SAME_CONCEPT
    }
    assert not twice, f"one name, two classes: {twice}"
    assert all(len(places.get(name, [])) > 1 for name in SAME_CONCEPT)


def test_capabilities_are_declared_and_not_found_by_comparing_methods() -> None:
    """``type(x).method is not Base.method`` fails for a delegating wrapper: a class variable or
    property says it."""
    found = set()
    for path in FILES:
        for node in _nodes(path, ast.Compare):
            if not isinstance(node.ops[0], ast.Is | ast.IsNot):
                continue
            left = node.left
            right = node.comparators[0]
            same = (
                isinstance(left, ast.Attribute)
                and isinstance(right, ast.Attribute)
                and left.attr == right.attr
            )
            if same and isinstance(right.value, ast.Name) and right.value.id[0].isupper():
                found.add((_name(path), left.attr))
    assert not found, f"declare these capabilities: {sorted(found)}"


def test_forbidden_things_stay_out() -> None:
    _each(_forbidden_things_stay_out)


def _forbidden_things_stay_out(path: Path) -> None:
    contract = _layer(path) == "testing"  # contract suites assert
    for node in _nodes(path, ast.Assert):
        assert contract, f"{path}:{node.lineno}: assert in the library"
    for node in _nodes(path, ast.Call):
        called = _dotted(node.func)
        assert called != "print", f"{path}:{node.lineno}: print in the library"
        assert called not in (
            "np.random.seed",
            "random.seed",
            "torch.seed",
            "np.random.default_rng",
        ), f"{path}:{node.lineno}: {called}"
        assert not called.startswith(("pickle.", "random.")), f"{path}:{node.lineno}: {called}"
    for node in _nodes(path, ast.FunctionDef):
        public = not node.name.startswith("_")
        assert not public or node.args.kwarg is None, (
            f"{path}:{node.lineno}: **kwargs in a public signature"
        )


PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def test_one_module_unpickles_freely_and_only_worker_engines_import_it() -> None:
    """Messages from elsewhere are never unpickled, and files on disk only through an allow-list
    that calls nothing."""
    found = set()
    readers = set()
    for path in FILES:
        name = _name(path)
        imported = _imports(path)
        calls = _nodes(path, ast.Call)
        words = [
            keyword for call in calls for keyword in call.keywords if keyword.arg == "allow_pickle"
        ]
        whole = [call for call in calls if _dotted(call.func) == "torch.load"]
        # tensors alone, by torch
        loads = [
            call for call in whole if "weights_only=True" not in map(ast.unparse, call.keywords)
        ]
        loads += [word for word in words if ast.unparse(word.value) != "False"]
        if loads or PICKLES & {one.split(".")[0] for one in imported}:
            found.add(name)
        if "motley.engines.serialization" in imported:
            readers.add(name)
    workers = {f"motley/engines/{name}.py" for name in ("distributed", "processes", "workers")}
    names = ("actors", "cluster", "compared_nodes", "spread_runs")
    workers |= {f"motley_ray/{name}.py" for name in names}
    assert found == {"motley/engines/serialization.py", "motley/tasks/formats/pickled_arrays.py"}
    allowed = next(path for path in FILES if path.name == "pickled_arrays.py").read_text()
    assert {
        ast.unparse(n)
        for n in ast.walk(ast.parse(allowed))
        if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "pickle"
    } == {"pickle.Unpickler"}
    assert readers == workers | {"motley/experiments/parallel.py"}


def test_every_public_name_is_typed_and_documented() -> None:
    _each(_every_public_name_is_typed_and_documented)


def _every_public_name_is_typed_and_documented(path: Path) -> None:
    tree = _tree(path)
    assert ast.get_docstring(tree), f"{path}: no module docstring"
    owners = [tree, *_nodes(path, ast.ClassDef)]
    owned = {id(node) for owner in owners for node in owner.body}
    for node in _nodes(path, ast.ClassDef, ast.FunctionDef):
        if not node.name.startswith("_"):
            nested = isinstance(node, ast.FunctionDef) and id(node) not in owned
            # the base says what it does
            nested |= any(_dotted(mark) == "override" for mark in node.decorator_list)
            assert nested or ast.get_docstring(node), (
                f"{path}:{node.lineno}: {node.name} has no docstring"
            )
            if isinstance(node, ast.FunctionDef):
                untyped = [
                    a.arg
                    for a in node.args.args + node.args.kwonlyargs
                    if a.annotation is None and a.arg not in ("self", "cls")
                ]
                assert not untyped, f"{path}:{node.lineno}: {node.name} leaves {untyped} untyped"
                assert node.returns is not None or nested, (
                    f"{path}:{node.lineno}: {node.name} has no return type"
                )
