"""The page docs/how-a-round-works.md beside a round that is traced."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import motley
from motley.experiments.build import build

HOME = Path(motley.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "how-a-round-works.md"
KEYS = {
    "task": "quadratic",
    "partition": "by_writer",
    "population": 6,
    "cohort": 3,
    "selector": "uniform",
    "engine": "sequential",
    "stop": {"rounds": 2},
    "evaluate": {"every": 2},
}


@pytest.fixture(scope="module")
def traced() -> dict[str, dict[int, int]]:
    """File below the package -> first line of each function that ran in the second of two rounds ->
    calls."""
    loop = build(KEYS)
    loop.step()
    found: dict[str, dict[int, int]] = {}

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(HOME)):
            lines = found.setdefault(str(Path(code.co_filename).relative_to(HOME)), {})
            lines[code.co_firstlineno] = lines.get(code.co_firstlineno, 0) + 1

    sys.setprofile(note)
    try:
        loop.step()
    finally:
        sys.setprofile(None)
    return found


def functions(path: Path) -> dict[int, tuple[str, int]]:
    """First line (of the first decorator) of each function and method of a file, without those
    within functions -> its qualified name and its number of lines."""
    found = {}
    tree = ast.parse(path.read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for owner, body in [("", tree.body), *((one.name + ".", one.body) for one in classes)]:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                first = min(node.lineno, *(one.lineno for one in node.decorator_list), node.lineno)
                found[first] = (owner + node.name, (node.end_lineno or first) - first + 1)
    return found


def page() -> tuple[list[str], str, list[str]]:
    """The files that are followed, the text about them, and the files and folders left out."""
    text = PAGE.read_text()
    head, rest = text.split("## One value", 1)
    body, left = rest.split("## What is left out", 1)
    rows = [line.split("|")[1] for line in left.splitlines() if line.startswith("| `")]
    followed = re.findall(r"^\| `(.+?)` \|", head, re.MULTILINE)
    return followed, body.split("## What cuts through")[0], re.findall(r"`(.+?)`", "".join(rows))


def test_the_page_names_all_that_runs_and_nothing_else(traced):
    followed, body, left = page()
    named = set(re.findall(r"`((?:\w+\.)?\w+)`", body))
    known: set[str] = set()
    names: set[str] = set()
    for file in followed:
        here = functions(HOME / file)
        known |= {name for name, _ in here.values()}
        names |= {here[line][0] for line in traced[file] if line in here}
    assert names - named == set()  # that run and are not on the page
    assert (named & known) - names == set()  # on the page, and do not run
    dotted = {name for name in named if "." in name}
    assert dotted <= known, f"on the page, and nowhere: {sorted(dotted - known)}"
    others = traced.keys() - set(followed)
    assert {file for file in others if not file.startswith(tuple(left))} == set()
    assert {one for one in left if not any(file.startswith(one) for file in others)} == set()


def test_a_reader_follows_six_files_and_1500_lines(traced):
    """All of the loop, the round, the choice and learning; of the other two files what runs."""
    followed, _, _ = page()
    assert len(followed) <= 6
    whole = {"rounds/loop.py", "rounds/round.py", "rounds/choosing.py", "rounds/learning.py"}
    assert whole < set(followed)
    lines = sum(len((HOME / file).read_text().splitlines()) for file in whole)
    for file in set(followed) - whole:
        here = functions(HOME / file)
        lines += sum(here[line][1] for line in traced[file] if line in here)
    assert lines <= 1500
    assert len(PAGE.read_text().split()) <= 900
