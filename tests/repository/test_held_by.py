"""Every module has a test at the mirrored place, or a line in ``tests/held_by.toml`` that names the
test which holds it."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.places import ROOT, SOURCES

IMPORT = re.compile(r"^ *(?:from|import) ([\w.]+)(?: import (\([^)]*\)|.*))?$", re.MULTILINE)
DEFINED = re.compile(r"^(?:def|class) ([a-zA-Z]\w+)", re.MULTILINE)

sys.path.insert(0, str(ROOT / "scripts"))
house = importlib.import_module("measured_house")
sys.path.remove(str(ROOT / "scripts"))


@cache
def _files() -> dict[str, Path]:
    """The file of each module of ours, packages too, by its dotted name."""
    found = {}
    for source in SOURCES:
        for path in source.rglob("*.py"):
            parts = path.relative_to(source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def _imported(path: Path) -> frozenset[str]:
    """The modules that a file imports anywhere, and what it takes from them, as ``module.name``."""
    names = set()
    for module, taken in IMPORT.findall(path.read_text()):
        names |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", taken))}
    return frozenset(names)


@cache
def _public() -> dict[str, str]:
    """Public functions and classes that one module alone has, and whose names are no words of
    English -> that module."""
    names = [
        (name, module)
        for module, path in _files().items()
        for name in DEFINED.findall(path.read_text())
    ]
    often = Counter(name for name, _ in names)
    return {name: module for name, module in names if often[name] == 1 and not name.islower()} | {
        name: module for name, module in names if often[name] == 1 and "_" in name
    }


@cache
def _commands() -> dict[str, str]:
    """Command of another distribution -> the module that has it."""
    projects = [tomllib.loads(file.read_text()) for file in ROOT.glob("packages/*/pyproject.toml")]
    return {
        name: value.partition(":")[0]
        for project in projects
        for name, value in project["project"]
        .get("entry-points", {})
        .get("motley.command", {})
        .items()
    }


@cache
def _used(test: Path) -> frozenset[str]:
    """The modules that a test, or a helper that it imports, imports or names: by one of their
    public names, by ``"name"`` of a component, of a command, or as ``-m package``."""
    text, imported = test.read_text(), set(_imported(test))
    for name in [name for name in imported if name.startswith("tests.")]:
        helper = ROOT / Path(*name.split(".")).with_suffix(".py")
        if helper.exists():
            text += helper.read_text()
            imported |= _imported(helper)
    words = set(re.findall(r"\w+", text.replace("-", "_")))
    quoted = set(re.findall(r'"([\w-]+)"', text))
    named = {module for name, module in _public().items() if name in words}
    components = {name for name in _files() if name.rpartition(".")[2] in quoted}
    commands = {module for name, module in _commands().items() if name in quoted}
    started = {f"{name}.__main__" for name in re.findall(r'"-m", "(\w+)"', text)}
    return frozenset((imported | named | components | commands | started) & _files().keys())


def _imported_by(modules: Iterable[str]) -> set[str]:
    """Modules of ours, and those that they import."""
    there = set(modules) & _files().keys()
    return there | {name for one in there for name in _imported(_files()[one])} & _files().keys()


def _exercises(test: Path, module: str) -> bool:
    """Whether a test uses a module, or one that imports it; or is named after it, or is the
    mirrored test of a module that reaches it in two imports."""
    if test.stem == f"test_{module.rpartition('.')[2]}":
        return True
    mirrored = ".".join((*test.parent.relative_to(ROOT / "tests").parts, test.stem[5:]))
    return module in _imported_by(_used(test)) | _imported_by(_imported_by([mirrored]))


def test_every_module_has_a_test_at_its_place_or_a_line() -> None:
    lines = house.held_elsewhere().keys()
    assert not lines & house.mirrored(), "these have a test at the mirrored place"
    without = house.modules().keys() - house.mirrored() - lines
    assert not without, "add a test at the mirrored place, or a line to tests/held_by.toml"
    assert not lines - house.modules().keys(), "there are no such modules"


def test_every_line_names_a_test_that_exercises_the_module() -> None:
    wrong = [
        f"{module}: {test}"
        for module, test in house.held_elsewhere().items()
        if not (ROOT / test).is_file() or not _exercises(ROOT / test, module)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("motley.world.partition.dirichlet", "tests/motley/core/test_codec.py"),
        ("motley_flower.secure.terms", "tests/motley/world/test_partitions.py"),
        ("motley.experiments.private_runs", "tests/motley/selectors/test_sampling.py"),
    ],
)
def test_a_test_that_knows_nothing_of_a_module_does_not_hold_it(module: str, test: str) -> None:
    assert not _exercises(ROOT / test, module)
