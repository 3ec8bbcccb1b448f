"""Measure how much of the house a reader meets: ``scripts/house`` prints a table, ``--json`` the
same numbers, ``--names`` the bindings whose names say nothing."""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from inspect import signature
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLAIN = {
    "task": "quadratic",
    "partition": "by_writer",
    "population": 6,
    "cohort": 3,
    "selector": "uniform",
    "engine": "sequential",
    "stop": {"rounds": 3},
    "evaluate": {"every": 3},
}
"""The plain round that is traced is the second: FedAvg, nothing evaluated."""
EMPTY_NAMES = frozenset(
    {"one", "ones", "found", "said", "known", "some", "told", "asked", "kept", "whole", "rest"}
    | {"other", "others", "made", "given", "what", "this", "that", "thing", "things", "stuff"}
    | {"item", "items", "tmp", "temp", "foo", "it", "much", "many", "got", "took"}
)
"""Names that do not say what is bound to them."""
RUN_ON = re.compile(r"^\w[\w, *]*: .*[.;] \w[\w, *]*: ", re.MULTILINE)
"""A line of a docstring's section that describes a second parameter after the first."""
TAKES_ITEMS = frozenset(
    {"print", "max", "min", "zip", "chain", "Union", "fold", "join", "hypot"}
    | {"permute", "reshape", "transpose", "pack", "warning", "Sequential"}
    | {"declares", "non_empty", "add_row", "Progress"}
)
"""Functions whose arguments are items of a kind, as many as one likes: of Python, of tensors and
loggers and the terminal, of ours."""
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Function = ast.FunctionDef | ast.AsyncFunctionDef


def distributions() -> dict[str, Path]:
    """Return the folder of each distribution's sources, by its name."""
    return {home.name: home / "src" for home in sorted((ROOT / "packages").iterdir())}


def sources(folder: Path) -> list[Path]:
    """Return the Python files of a folder, in order of their paths."""
    return sorted(folder.rglob("*.py"))


# ----------------------------------------------------------------------------------- a plain round


def plain_round() -> dict[str, int]:
    """Run three rounds, trace the second, and return the files, functions and lines of what it
    ran."""
    from motley.experiments.build import build

    homes = tuple(str(folder) for folder in distributions().values())
    ran: set[tuple[str, int]] = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(homes):
            ran.add((code.co_filename, code.co_firstlineno))

    loop = build(PLAIN)
    loop.step()
    sys.setprofile(note)
    try:
        loop.step()
    finally:
        sys.setprofile(None)
    by_file: dict[str, set[int]] = {}
    for file, line in ran:
        by_file.setdefault(file, set()).add(line)
    lengths = [_lengths(Path(file), lines) for file, lines in by_file.items()]
    return {
        "files": len(by_file),
        "functions": sum(map(len, lengths)),
        "lines": sum(map(sum, lengths)),
    }


def _lengths(path: Path, first_lines: set[int]) -> list[int]:
    """Return the lines of the functions of a file that begin at these lines."""
    tree = ast.parse(path.read_text())
    lengths = []
    for node in ast.walk(tree):
        if isinstance(node, Function):
            first = min([node.lineno, *(line.lineno for line in node.decorator_list)])
            if first in first_lines:
                lengths.append((node.end_lineno or first) - first + 1)
    return lengths


def interfaces() -> dict[str, int]:
    """Return the size of the run's state and of the clients' interface."""
    from motley.rounds.backend import ClientBackend
    from motley.rounds.state import RunState

    public = [
        name
        for name, value in vars(ClientBackend).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    ]
    mutable = [
        name for name in public if "RunState" in str(signature(getattr(ClientBackend, name)))
    ]
    return {
        "fields of RunState": len(fields(RunState)),
        "methods of a backend": len(public),
        "of which take the run's state": len(mutable),
    }


# ------------------------------------------------------------------------------------ sizes, names


def size(folder: Path) -> int:
    """Return the lines of a folder's Python files."""
    return sum(len(path.read_text().splitlines()) for path in sources(folder))


@lru_cache(maxsize=1)
def _nodes(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes of a file, for which several things are counted."""
    return list(ast.walk(tree))


def bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that code binds, with its line: parameters, assignments, loops, fields."""
    for node in _nodes(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def positional_calls(tree: ast.AST, least: int) -> int:
    """Return how many calls have at least so many positional arguments, beside those whose
    arguments are items of a kind."""
    return sum(
        isinstance(node, ast.Call) and len(node.args) >= least and not _takes_items(node)
        for node in _nodes(tree)
    )


def _takes_items(call: ast.Call) -> bool:
    """Whether a call takes any number of alike arguments."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in TAKES_ITEMS


def conditional_expressions(tree: ast.AST) -> dict[str, int]:
    """Return how many conditional expressions there are, how many of them a reader has to take
    apart (over a line long, or inside another one), and how many stand in a comprehension."""
    counts = {"all": 0, "nested or long": 0, "in comprehensions": 0}

    def count(node: ast.AST, inside: frozenset[str]) -> None:
        if isinstance(node, ast.IfExp):
            counts["all"] += 1
            long = node.end_lineno != node.lineno
            counts["nested or long"] += long or "conditional" in inside
            counts["in comprehensions"] += "comprehension" in inside
            inside |= {"conditional"}
        elif isinstance(node, Comprehension):
            inside |= {"comprehension"}
        elif isinstance(node, ast.stmt):
            inside = frozenset()
        for child in ast.iter_child_nodes(node):
            count(child, inside)

    count(tree, frozenset())
    return counts


def run_on_sections(tree: ast.AST) -> tuple[int, int]:
    """Return how many docstrings' sections put several parameters into one line, and how many
    sections there are."""
    run_on = 0
    sections = 0
    for node in _nodes(tree):
        if not isinstance(node, Function | ast.ClassDef):
            continue
        text = ast.get_docstring(node) or ""
        for section in re.findall(r"(?:Parameters|Attributes)\n-+\n(.*?)(?:\n\n|\Z)", text, re.S):
            sections += 1
            joined = " ".join(section.split("\n"))
            entries = re.findall(r"(?<=[.;] )([\w*]+(?:, [\w*]+)*): ", joined)
            starts = re.findall(r"^([\w*]+(?:, [\w*]+)*): ", section, re.MULTILINE)
            apart = [entry for entry in entries if entry not in starts]
            run_on += any(described(node).issuperset(entry.split(", ")) for entry in apart)
    return run_on, sections


def described(node: ast.AST) -> set[str]:
    """Return the names that a docstring's sections may describe: parameters, fields, methods and
    attributes of ``self``."""
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg):
            names.add(inner.arg)
        elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            names.add(inner.target.id)
        elif isinstance(inner, ast.Attribute):
            names.add(inner.attr)
        elif isinstance(inner, Function):
            names.add(inner.name)
    return names


def language() -> dict[str, float]:
    """Return what the sources of all distributions sound like."""
    names: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for folder in distributions().values():
        for path in sources(folder):
            text = path.read_text()
            tree = ast.parse(text)
            names.update(name for name, _ in bindings(tree))
            counts["positional calls, 5 or more"] += positional_calls(tree, 5)
            counts["positional calls, 7 or more"] += positional_calls(tree, 7)
            counts.update(conditional_expressions(tree))
            run_on, sections = run_on_sections(tree)
            counts["run-on sections"] += run_on
            counts["sections"] += sections
            counts["lines"] += len(text.splitlines())
            counts["comments"] += sum(line.lstrip().startswith("#") for line in text.splitlines())
    empty = sum(names[name] for name in EMPTY_NAMES)
    return {
        "bound names": names.total(),
        "empty names": empty,
        "empty names, %": round(100 * empty / names.total(), 2),
        "positional calls, 5 or more": counts["positional calls, 5 or more"],
        "positional calls, 7 or more": counts["positional calls, 7 or more"],
        "conditional expressions, per 1000 lines": round(1000 * counts["all"] / counts["lines"], 1),
        "of which nested or over a line long": counts["nested or long"],
        "of which in comprehensions": counts["in comprehensions"],
        "lines of comment, %": round(100 * counts["comments"] / counts["lines"], 2),
        "docstring sections": counts["sections"],
        "of which run on": counts["run-on sections"],
    }


def empty_bindings() -> Iterator[str]:
    """Yield where names are bound that say nothing."""
    for folder in distributions().values():
        for path in sources(folder):
            for name, line in bindings(ast.parse(path.read_text())):
                if name in EMPTY_NAMES:
                    yield f"{path.relative_to(ROOT)}:{line}: {name}"


# ------------------------------------------------------------------------------------------- tests


def modules() -> dict[str, Path]:
    """Return the file of each module below its distribution's sources, by its dotted name."""
    return {
        ".".join(path.relative_to(folder).with_suffix("").parts): path.relative_to(folder)
        for folder in distributions().values()
        for path in sources(folder)
        if path.name != "__init__.py"
    }


def mirrored() -> set[str]:
    """Return the modules that have a test at the mirrored place."""
    return {
        name
        for name, inside in modules().items()
        if (ROOT / "tests" / inside.parent / f"test_{inside.name}").exists()
    }


def held_elsewhere() -> dict[str, str]:
    """Return the test that holds each other module, by the module's name, as ``tests/held_by.toml``
    has it."""
    held: dict[str, str] = tomllib.loads((ROOT / "tests" / "held_by.toml").read_text())
    return held


def tests() -> dict[str, int]:
    """Return how many modules there are, and where the tests are that hold them."""
    return {
        "modules": len(modules()),
        "with a mirrored test": len(mirrored()),
        "held by a test elsewhere": len(held_elsewhere().keys() & modules().keys()),
    }


def measured() -> dict[str, float]:
    """Return all figures, by name."""
    sizes = {f"lines of {name}": size(folder) for name, folder in distributions().items()}
    figures: dict[str, float] = {}
    figures |= {f"plain round: {name}": number for name, number in plain_round().items()}
    figures |= interfaces()
    figures |= sizes
    figures["lines together"] = sum(sizes.values())
    figures["lines of page builders"] = size(ROOT / "docs")
    figures |= language()
    figures |= tests()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/house", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--names", action="store_true", help="list the names that say nothing")
    chosen = parser.parse_args()
    if chosen.names:
        print("\n".join(empty_bindings()))
        return
    figures = measured()
    if chosen.json:
        print(json.dumps(figures, indent=2))
        return
    width = max(map(len, figures))
    for name, number in figures.items():
        print(f"{name:<{width}}  {number:>10,}")


if __name__ == "__main__":
    main()
