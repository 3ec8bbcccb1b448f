"""What differs between the older and the newer code beside names of keys and columns: one function
for each difference."""

from __future__ import annotations

import csv
import importlib
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = [
    "apps",
    "is_old",
    "measured",
    "model_file",
    "module",
    "registry",
    "sites",
    "sources",
    "stand_ins",
    "tables",
    "took_part",
]


_MOVED = {
    "motley_flower": "motley.adapters.flower",
    "motley_papers": "motley.recipes",
    "tests.motley_flower": "tests.adapters.flower",
}
"""Modules that were elsewhere while there was one distribution: newer name -> older."""


def sources(tree: Path) -> list[Path]:
    """The folders in which a tree's modules lie."""
    return [tree, *sorted(tree.glob("packages/*/src"))]


def module(tree: Path, name: str) -> ModuleType:
    """Import a module of a tree by its newer name."""
    older = not (tree / "packages").is_dir()
    for new, old in _MOVED.items() if older else ():
        if name == new or name.startswith(f"{new}."):
            name = old + name.removeprefix(new)
            break
    return importlib.import_module(name)


def is_old(tree: Path) -> bool:
    """Whether a folder holds the older code: its round loop is in a package of another name."""
    return (tree / "motley" / "simulation" / "simulation.py").is_file()


def model_file(tree: Path, folder: Path) -> Path:
    """The final model in the folder of a run."""
    return folder / "model.safetensors"


def tables(tree: Path, run: Any) -> Mapping[str, Any]:
    """The Arrow tables of a loaded run, by name."""
    return run.tables


def stand_ins(tree: Path) -> None:
    """Put stand-ins in the place of Flower's own words, whether Flower is installed or not."""
    sys.modules.update(module(tree, "tests.motley_flower.stand_ins").modules())


def sites(tree: Path) -> ModuleType:
    """The tests' federation of sites in this process: ``federation(experiment, folder, delays)``
    and ``deploy(grid, ...)``."""
    return module(tree, f"tests.motley_flower.{'sites' if is_old(tree) else 'client_runtimes'}")


def measured(tree: Path, recipe: str, out: Path) -> tuple[list[Any], str]:
    """Run a recipe at its smallest scale: its runs, each once, and ``measured.csv`` as text."""
    reproduce = module(tree, "motley_papers.reproduce").reproduce
    found = reproduce(recipe, scale="smoke", out=out)
    if found.failures:
        raise RuntimeError(
            f"{len(found.failures)} runs failed, the first: {found.failures[0].error}"
        )
    papers = tree / "packages" / "motley-papers" / "src" / "motley_papers"
    name = "number_files" if (papers / "number_files.py").is_file() else "tables"
    if papers.is_dir() or (tree / "motley" / "recipes" / "tables.py").is_file():
        files = module(tree, f"motley_papers.{name}").number_files(found)
        rows = csv.reader(files["measured.csv"].splitlines())
        text = io.StringIO()
        # without what older code does not write
        csv.writer(text, lineterminator="\n").writerows(row[:6] for row in rows)
        return found.all_runs(), text.getvalue()
    return found.all_runs(), module(tree, "motley_papers.page").measured_csv(found)


def registry(tree: Path) -> ModuleType:
    """The kinds of component and what there is of each: ``KINDS`` and ``listing(kind)``."""
    return importlib.import_module("motley.experiments.registry")


def apps(tree: Path) -> ModuleType:
    """The tests' client apps on a grid in this process: ``grid(count)`` and ``model()``."""
    return module(tree, "tests.motley_flower.apps")


def took_part(tree: Path, strategy: Any) -> list[Any]:
    """The rows of who took part, of a strategy with a selector."""
    return list(strategy.motley.rows)
