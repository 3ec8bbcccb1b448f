"""The layers of the library: allowed imports, sizes of functions and files, unique class names,
documented public names."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT, SOURCES

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


# package, or module beside the packages -> what of ours it may import; "=a" allows the package
# itself, that is its catalogues, but not its modules
ALLOWED: dict[str, set[str]] = {
    "__init__": {"core", "experiments", "results", "selectors", "tasks"},
    "__main__": {"cli"},
    "cli": {"commands", "core", "experiments", "results"},
    "commands": {"core", "experiments", "results", "tasks"},
    "experiments": {
        "core",
        "algorithms",
        "engines",
        "results",
        "rounds",
        "selectors",
        "tasks",
        "timing",
        "transport",
        "world",
    },
    "core": set(),
    "selectors": {"core"},
    "world": {"core"},
    "timing": {"core"},
    "tasks": {"core"},
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
        "results.marks",
        "results.stream",
        "results.writer",
    },
    "motley_advice.__init__": set(),
    "motley_advice.commands": {
        "commands.shared_options",
        "core",
        "experiments",
        "results",
        "motley_advice.explanation",
        "motley_advice.inspection",
        "motley_advice.tuning",
        "motley_advice.twin",
        "motley_report",
    },
    "motley_advice.explanation": {
        *("core", "experiments", "motley_report", "results"),
        *("tasks.kept_data", "tasks.metrics", "tasks.task"),
    },
    "motley_advice.heterogeneity": {"core", "tasks", "motley_data"},
    "motley_advice.inspection": {
        "core",
        "algorithms.fednova",
        "algorithms.parts",
        "experiments",
        "results",
        "rounds",
        "tasks",
        "timing",
        "transport.ledger",
        "motley_advice.heterogeneity",
        "motley_data",
        "motley_report",
    },
    "motley_advice.tuning": {"core", "experiments", "motley_report", "results", "tasks.task"},
    "motley_advice.twin": {"=timing", "core", "experiments", "results", "rounds.planning"},
}
WHOLE = {
    "motley_data": {"motley", "motley_data"},
    "motley_flower": {"motley", "motley_data", "motley_flower", "motley_privacy"},
    "motley_papers": {"motley", "motley_advice", "motley_data", "motley_papers", "motley_report"},
    "motley_privacy": {"motley", "motley_data", "motley_privacy", "motley_report"},
    "motley_ray": {"motley", "motley_ray"},
    "motley_report": {"motley", "motley_report"},
}
"""Distributions that are held as one: what each may import. Within them circles are looked for."""
MUTUAL = {"motley_flower.recorded", "motley_flower.strategy"}
"""Packages that import each other, though none of their modules do: a strategy begins the record
that it is written into."""
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
    """``core`` and the like for Motley's own packages and the modules beside them,
    ``motley_flower.secure`` for those of another distribution."""
    parts = Path(_name(path)).with_suffix("").parts
    return parts[1] if parts[0] == "motley" else ".".join(parts[:2])


def _layer_of(module: str) -> str:
    """The same for the dotted name of a module."""
    top, _, below = module.partition(".")
    first = below.partition(".")[0] or "__init__"
    return first if top == "motley" else f"{top}.{first}"


def _package(path: Path) -> str:
    parts = Path(_name(path)).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_package(path) for path in FILES}


FACADE = "motley.__init__"


def _imports(path: Path) -> list[str]:
    """Every module imported anywhere in a file; ``from a import b`` counts as ``a.b`` where that is
    a module of ours. Of the facade only the version is taken by others: that is no import."""
    out = [alias.name for node in _nodes(path, ast.Import) for alias in node.names]
    for node in _nodes(path, ast.ImportFrom):
        assert node.level == 0, f"{path}: relative import"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            if inner != "motley.__version__":
                out.append(inner if inner in MODULES else str(node.module))
    return [FACADE if name == "motley" else name for name in out]


def _typing_only(path: Path) -> list[str]:
    """The modules of other distributions that the facade and its tasks name under
    ``if TYPE_CHECKING`` for editors and type checkers; they find them by entry points."""
    blocks = [node for node in _nodes(path, ast.If) if _dotted(node.test) == "TYPE_CHECKING"]
    return [
        str(node.module)
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom) and not str(node.module).startswith("motley.")
        for _ in node.names
    ]


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


def test_every_package_and_every_module_beside_one_is_held() -> None:
    found = {_layer(path) for path in FILES}
    assert set(ALLOWED) == {layer for layer in found if layer.partition(".")[0] not in WHOLE}


def test_arrows_point_down() -> None:
    _each(_arrows_point_down)


def _arrows_point_down(path: Path) -> None:
    imported = _imports(path)
    if _package(path) in ("motley", "motley.tasks"):
        for name in _typing_only(path):
            imported.remove(name)
    for name in imported:
        assert not _points_up(_layer(path), name), f"{_name(path)} imports {name}"


OURS = {source_name.partition(".")[0] for source_name in MODULES}
"""The distributions' packages."""


def _points_up(layer: str, name: str) -> bool:
    """Whether a layer may not import a module."""
    top = name.partition(".")[0]
    if top not in OURS:
        return layer in TORCH_FREE and top in ("torch", "torchvision")
    if _layer_of(name) == layer:
        return False
    whole = layer.partition(".")[0]
    if whole in WHOLE:
        return top not in WHOLE[whole]
    return not any(_allows(entry, name.removeprefix("motley.")) for entry in ALLOWED[layer])


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


def _circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """A circle of a graph, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _module_graph() -> dict[str, set[str]]:
    """Module -> modules of ours that it imports anywhere, for type checkers too; what the facade
    and the package of tasks name is their own."""
    names = MODULES | {FACADE}
    graph = {_package(path): {*_imports(path)} & names for path in FILES}
    graph[FACADE] = graph.pop("motley")
    for name in (FACADE, "motley.tasks"):
        graph[name] = {imported for imported in graph[name] if imported.startswith("motley.")}
    return graph


def _layer_graph() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for module, imported in _module_graph().items():
        layer = _layer_of(module)
        graph.setdefault(layer, set()).update({*map(_layer_of, imported)} - {layer})
    return graph


def test_nothing_imports_in_a_circle() -> None:
    assert _circle(_module_graph()) == []


def test_no_packages_import_in_a_circle() -> None:
    graph = _layer_graph()
    assert all(graph[layer] & MUTUAL for layer in MUTUAL)
    for layer in MUTUAL:
        graph[layer] -= MUTUAL
    assert _circle(graph) == []


def _above(graph: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Every layer with each one that reaches it by imports."""
    for high in graph:
        reached: set[str] = set()
        open_layers = [high]
        while open_layers:
            fresh = graph[open_layers.pop()] - reached
            reached |= fresh
            open_layers += fresh
        yield from ((low, high) for low in reached - {high})


def test_every_import_that_points_up_is_refused() -> None:
    """An import of a layer planted in any layer below it: refused by what the lower one may import,
    or, within a distribution that is held as a whole, a circle."""
    graph = _layer_graph()
    module = {_layer(path): _package(path) for path in FILES} | {"__init__": FACADE}
    pairs = [(low, high) for low, high in _above(graph) if low not in MUTUAL or high not in MUTUAL]
    assert {low for low, _ in pairs} >= {"commands", "experiments", "cli", "core", "rounds"}
    assert {low for low, _ in pairs} >= {"motley_advice.inspection", "motley_advice.twin"}
    for low, high in pairs:
        held_as_one = low.partition(".")[0] == high.partition(".")[0] in WHOLE
        planted = _circle(graph | {low: graph[low] | {high}})
        assert planted if held_as_one else _points_up(low, module[high]), f"{low} imports {high}"


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("motley/experiments/run.py", "from motley.commands.watch import watch"),
        ("motley/experiments/run.py", "from motley.testing import selectors"),
        ("motley/experiments/run.py", "from motley_privacy.run_secret import keep_secret"),
        ("motley/cli.py", "from motley_report.report import report"),
        ("motley/rounds/loop.py", "import motley_privacy.private_rounds"),
        ("motley/experiments/run.py", "def late():\n    import motley"),
        ("motley/commands/watch.py", "from motley.cli import app"),
        ("motley/commands/watch.py", "import motley_advice.commands.twin"),
        ("motley/cli.py", "from motley_papers.command import reproduce"),
        ("motley/cli.py", "import torch"),
        ("motley/__init__.py", "from motley.cli import main"),
        ("motley/__init__.py", "from motley_advice.tuning.spaces import parse_spaces"),
        ("motley/__init__.py", "from motley_advice.tuning.study import tune"),
        ("motley_advice/heterogeneity/sizes.py", "from motley_advice.inspection import words"),
        ("motley_advice/twin/fit.py", "from motley_advice.commands import twin"),
        ("motley_advice/inspection/words.py", "from motley_papers import recipe"),
        ("motley_flower/secure/terms.py", "from motley_papers import recipe"),
    ],
)
def test_a_planted_import_that_points_up_is_seen(file: str, line: str, tmp_path: Path) -> None:
    source = next(path for path in FILES if _name(path) == file)
    _arrows_point_down(source)
    copy = tmp_path / file
    copy.parent.mkdir(parents=True)
    copy.write_text(f"{source.read_text()}\n\n{line}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "SOURCES", [tmp_path])
        with pytest.raises(AssertionError, match=f"{file} imports "):
            _arrows_point_down(copy)


OF_LIBRARIES = {"_asdict", "_fields", "_make", "_replace", "_version"}
"""Names of named tuples and of torch's tensors."""


def _room(path: Path) -> str:
    """The package that a file's private names belong to; a distribution's modules beside its
    packages are one."""
    return ".".join(Path(_name(path)).parts[:-1][:2])


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in OF_LIBRARIES


def _private_definitions(path: Path) -> set[str]:
    named = [node.name for node in _nodes(path, ast.ClassDef, ast.FunctionDef)]
    named += [node.id for node in _nodes(path, ast.Name) if isinstance(node.ctx, ast.Store)]
    named += [node.attr for node in _nodes(path, ast.Attribute) if isinstance(node.ctx, ast.Store)]
    return set(filter(_is_private, named))


def test_no_package_takes_what_is_private_to_another() -> None:
    defined: dict[str, set[str]] = {}
    for path in FILES:
        defined.setdefault(_room(path), set()).update(_private_definitions(path))
    rooms = {_package(path): _room(path) for path in FILES}
    wrong = []
    for path in FILES:
        others = set().union(*(names for room, names in defined.items() if room != _room(path)))
        taken = {
            node.attr
            for node in _nodes(path, ast.Attribute)
            if _is_private(node.attr) and _dotted(node.value) not in ("self", "cls")
        }
        wrong += [f"{_name(path)}: {name}" for name in taken & (others - defined[_room(path)])]
        for node in _nodes(path, ast.ImportFrom):
            wrong += [
                f"{_name(path)}: {node.module}.{alias.name}"
                for alias in node.names
                if _is_private(alias.name) and rooms.get(node.module, _room(path)) != _room(path)
            ]
    assert wrong == []


ONE_EACH = {"__init__.py", "__main__.py", "command.py"}
"""What a package has one of, the last for its part of the command."""


def test_no_two_modules_have_one_name() -> None:
    """A name in a traceback, or in a reader's search, means one file of the distributions."""
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


PASSED_ON = {("flower_partitions", "from_flower"), ("inspect", "inspect")}
"""Functions whose further options are declared once elsewhere: those of ``from_clients``, and the
flags of tables, which the command line shows one by one."""


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
        public = not node.name.startswith("_") and (path.stem, node.name) not in PASSED_ON
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
    assert found == {"motley/engines/serialization.py", "motley_data/formats/pickled_arrays.py"}
    allowed = next(path for path in FILES if path.name == "pickled_arrays.py").read_text()
    assert {
        ast.unparse(n)
        for n in ast.walk(ast.parse(allowed))
        if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "pickle"
    } == {"pickle.Unpickler"}
    assert readers == workers | {
        "motley/experiments/chosen_jobs.py",
        "motley/experiments/parallel.py",
        "motley/experiments/shared_samples.py",
    }


def test_files_that_the_code_names_are_there() -> None:
    _each(_files_that_it_names_are_there)


def _files_that_it_names_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"(?<![\w/.-])(?:packages|docs|tests|benchmarks)/[\w/.-]+\.\w+\b", text):
        assert name == "tests/FILE.py" or (ROOT / name).exists(), f"{_name(path)} names {name}"


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
