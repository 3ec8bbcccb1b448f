"""The rooms and their doors: what may import what, how long a file may grow, who must be documented."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "motley"
FILES = sorted(ROOT.rglob("*.py"))

# package -> packages of ours it may import (design, section 5); "=a" opens only the package itself, that is its catalogues
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "selectors": {"core"},
    "world": {"core"},
    "timing": {"core"},
    "tasks": {"core"},
    "algorithms": {"core", "tasks.base"},
    "transport": {"core"},
    "engines": {"core", "=algorithms", "algorithms.base", "algorithms.local", "algorithms.random", "tasks"},
    "results": {"core"},
    "testing": {"core", "selectors", "algorithms", "engines", "tasks", "world", "timing", "transport"},
    "recipes": {"core", "experiments", "results"},
    "rounds": {
        "core", "algorithms.base", "algorithms.schedules", "algorithms.weights", "selectors.base", "engines.client_losses",
        "engines.base", "engines.cores", "tasks.base", "timing", "world.base",
        "transport.allocators.base", "transport.feedback", "transport.ledger", "transport.packet", "transport.upload_config",
        "transport.wire", "results.stream", "results.writer",
    },
}  # fmt: skip
TORCH_FREE = {"core", "selectors", "world", "timing", "results", "cli"}
THIRD_PARTY = {"core": {"numpy", "typing_extensions"}, "timing": {"numpy", "typing_extensions"}}
LONGEST = 320  # code lines without docstrings, comments and blanks


def _opens(door: str, target: str) -> bool:
    """``"=a"`` opens the package ``a`` itself (its catalogues), ``"a"`` everything in it too."""
    return target == door.removeprefix("=") or (door[0] != "=" and target.startswith(door + "."))


def _room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _package(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> list[str]:
    """Every module imported anywhere in a file; ``from a import b`` counts as ``a.b`` where that is a module of ours."""
    out = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            out += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                target = ROOT.parent / Path(*inner.split("."))
                is_module = target.with_suffix(".py").exists() or (target / "__init__.py").exists()
                out.append(inner if is_module else str(node.module))
    return out


def _code_lines(path: Path) -> int:
    tree = ast.parse(path.read_text())
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr):
            lines |= {node.lineno}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            doc = node.body[0]
            lines -= set(range(doc.lineno, (doc.end_lineno or doc.lineno) + 1))
    return len(lines)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_point_down(path: Path) -> None:
    room = _room(path)
    if room not in ALLOWED:
        return
    for name in _imports(path):
        if name.startswith("motley."):
            target = name.removeprefix("motley.")
            fine = target.split(".")[0] == room or any(_opens(door, target) for door in ALLOWED[room])
            assert fine, f"{path.relative_to(ROOT)} imports {name}"
        elif room in TORCH_FREE:
            assert name.split(".")[0] not in ("torch", "torchvision"), f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("path", [p for p in FILES if _room(p) in THIRD_PARTY], ids=lambda p: str(p.relative_to(ROOT)))
def test_core_and_timing_stand_on_numpy_alone(path: Path) -> None:
    import sys

    for name in _imports(path):
        top = name.split(".")[0]
        assert top in sys.stdlib_module_names or top in THIRD_PARTY[_room(path)] | {"motley"}, f"{path} imports {name}"


def test_nothing_imports_in_a_circle() -> None:
    graph = {_package(path): {n for n in _imports(path) if n.startswith("motley")} for path in FILES}
    # imports inside functions are deliberate doors (lazy), only those at module level can close a circle
    for path in FILES:
        top = {
            f"{n.module}.{a.name}" if f"{n.module}.{a.name}" in graph else str(n.module)
            for n in ast.parse(path.read_text()).body
            if isinstance(n, ast.ImportFrom)
            for a in n.names
        }
        graph[_package(path)] = {n for n in top if n in graph}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for other in graph[name]:
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_small_and_forbidden_things_stay_out(path: Path) -> None:
    assert _code_lines(path) <= LONGEST
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        contract = _room(path) == "testing"  # whose business is to assert
        assert contract or not isinstance(node, ast.Assert), f"{path}:{node.lineno}: assert in the library"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called != "print", f"{path}:{node.lineno}: print in the library"
            assert called not in ("np.random.seed", "random.seed", "torch.seed", "np.random.default_rng"), (
                f"{path}:{node.lineno}"
            )
            assert not called.startswith(("pickle.", "random.")), f"{path}:{node.lineno}: {called}"
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            assert node.args.kwarg is None, f"{path}:{node.lineno}: **kwargs in a public signature"


PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def test_one_file_unpickles_and_only_who_has_workers_reads_by_it() -> None:
    """What lies on a disk or comes from elsewhere is never unpickled: the adapter, the results and the data do not reach that file."""
    found, readers = set(), set()
    for path in FILES:
        name, imported = str(path.relative_to(ROOT)), _imports(path)
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        words = [keyword for call in calls for keyword in call.keywords if keyword.arg == "allow_pickle"]
        loads = [call for call in calls if ast.unparse(call.func) == "torch.load"]
        loads += [word for word in words if ast.unparse(word.value) != "False"]
        if loads or PICKLES & {one.split(".")[0] for one in imported}:
            found.add(name)
        if "motley.engines.serialization" in imported:
            readers.add(name)
    workers = {
        f"engines/{name}.py"
        for name in ("distributed", "processes", "ray_cluster", "shared_memory", "worker", "worker_process")
    }
    assert found == {"engines/serialization.py"}
    assert readers == workers | {"experiments/ray_runner.py"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_public_name_is_typed_and_documented(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{path}: no module docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            nested = isinstance(node, ast.FunctionDef) and not _is_toplevel_or_method(tree, node)
            nested |= any(ast.unparse(mark) == "override" for mark in node.decorator_list)  # the base says what it does
            assert nested or ast.get_docstring(node), f"{path}:{node.lineno}: {node.name} has no docstring"
            if isinstance(node, ast.FunctionDef):
                untyped = [
                    a.arg
                    for a in node.args.args + node.args.kwonlyargs
                    if a.annotation is None and a.arg not in ("self", "cls")
                ]
                assert not untyped, f"{path}:{node.lineno}: {node.name} leaves {untyped} untyped"
                assert node.returns is not None or nested, f"{path}:{node.lineno}: {node.name} has no return type"


def _is_toplevel_or_method(tree: ast.Module, node: ast.FunctionDef) -> bool:
    owners = [tree, *[n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]]
    return any(node in owner.body for owner in owners)
