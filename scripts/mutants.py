"""Change one operator or number of the code at a time, and tell how many changes the tests notice.

::

    python scripts/mutants.py --count 300 --jobs 2 --log build/mutants.jsonl
    python scripts/mutants.py --tree ../old --code motley/selectors --tests tests/selectors ...

A mutant is one change in one function of the code: a comparison or an operator of arithmetic
becomes its neighbour, ``and`` becomes ``or``, ``not`` goes, a number grows by one. They are drawn
with a seed from all such places, each as likely. A mutant is killed if a test fails or takes three
times as long as all tests take without it, first of the files that name its module, then of all.
The tests must pass before anything is changed. What is done stands in the log and is not done
again: a log is of one commit (``benchmarks/measured/mutants-COMMIT.jsonl``).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

PACKAGES = ("selectors", "transport", "rounds")
SWAPPED = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
"""Operator -> how it is written, and what is written in its place."""


class Mutant(NamedTuple):
    """A change: the file, the place in its bytes, and what stands there after and before."""

    path: str
    start: int
    end: int
    text: str
    was: str
    line: int


class Source:
    """A file of code, with the changes that can be made in its functions.

    Parameters
    ----------
    path, root: of the file, and of the tree that names it.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self._name = path.relative_to(root).as_posix()
        self._source = path.read_bytes()
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        """Yield the changes."""
        seen = set()
        for function in ast.walk(ast.parse(self._source)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in (found for part in function.body for found in ast.walk(part)):
                if id(node) not in seen:
                    yield from self._changed(node)
                seen.add(id(node))

    def _changed(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left=left, ops=[kind], comparators=[right]):
                yield from self._swapped(left, right, kind)
            case ast.BinOp(left=left, op=kind, right=right):
                yield from self._swapped(left, right, kind)
            case ast.BoolOp(op=kind, values=[left, right, *_]):
                yield from self._swapped(left, right, kind)
            case ast.UnaryOp(op=ast.Not()):
                start = self._start(node)
                yield Mutant(self._name, start, start + len("not "), "", "not ", node.lineno)
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                start, end = self._start(node), self._end(node)
                was = self._source[start:end].decode()
                yield Mutant(
                    self._name, start, end, str(ast.literal_eval(was) + 1), was, node.lineno
                )

    def _swapped(self, left: ast.expr, right: ast.expr, kind: ast.AST) -> Iterator[Mutant]:
        if type(kind) in SWAPPED:
            was, text = SWAPPED[type(kind)]
            at = self._source.find(was.encode(), self._end(left), self._start(right))
            if at >= 0:
                yield Mutant(self._name, at, at + len(was), text, was, left.end_lineno or 0)

    def _start(self, node: ast.expr) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr) -> int:
        return self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def drawn(root: Path, code: list[str], count: int, seed: int) -> list[Mutant]:
    """Return mutants of the files below these folders, drawn without replacement."""
    files = sorted(path for folder in code for path in (root / folder).rglob("*.py"))
    every = [mutant for path in files for mutant in Source(path, root).mutants()]
    print(f"{len(every)} places in {len(files)} files", flush=True)
    return random.Random(seed).sample(every, min(count, len(every)))


def judged(mutant: Mutant, copy: Path, tests: list[str], limit: float) -> dict[str, Any]:
    """Return what the tests say of a mutant, made in a copy of the tree and taken back."""
    path = copy / mutant.path
    source = path.read_bytes()
    stamp = path.stat()
    path.write_bytes(source[: mutant.start] + mutant.text.encode() + source[mutant.end :])
    begun = time.monotonic()
    module = path.stem if path.stem != "__init__" else path.parent.name
    every = [one for folder in tests for one in sorted((copy / folder).rglob("test_*.py"))]
    near = [one for one in every if module in one.stem or f"{module} import" in one.read_text()]
    near.sort(key=lambda one: module not in one.stem)
    killed = ""
    try:
        for stage, files in (("near", near), ("all", [one for one in every if one not in near])):
            if files and _fails(copy, files, limit):
                killed = stage
                break
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    return {**mutant._asdict(), "killed": killed, "seconds": round(time.monotonic() - begun, 1)}


def seconds_unchanged(copy: Path, tests: list[str]) -> float:
    """Return how long all tests take on the unchanged code; ends the script if one fails."""
    begun = time.monotonic()
    if _fails(copy, [copy / folder for folder in tests], 3600):
        raise SystemExit("A test fails on the unchanged code: then every mutant would be killed.")
    return time.monotonic() - begun


def _fails(copy: Path, files: list[Path], limit: float) -> bool:
    """Return whether a test fails, or does not end in this many seconds."""
    sources = [str(one) for one in (copy / "packages").glob("*/src")] or [str(copy)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*sources, str(copy)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    names = [str(one.relative_to(copy)) for one in files]
    try:
        done = subprocess.run(
            [*command, "-p", "no:xdist", *names],
            cwd=copy,
            env=environment,
            capture_output=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in (0, 5)


def main() -> None:
    """Draw mutants, judge those that the log lacks, and print how many are killed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tree", type=Path, default=Path())
    parser.add_argument("--code", nargs="+", default=None)
    parser.add_argument("--tests", nargs="+", default=None)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path("build/mutants.jsonl"))
    given = parser.parse_args()
    root = given.tree.resolve()
    code = given.code or [f"packages/motley/src/motley/{name}" for name in PACKAGES]
    tests = given.tests or [f"tests/motley/{name}" for name in PACKAGES]
    todo = drawn(root, code, given.count, given.seed)
    given.log.parent.mkdir(parents=True, exist_ok=True)
    lines = given.log.read_text().splitlines() if given.log.is_file() else []
    done = {(row["path"], row["start"], row["text"]): row for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder:
        copies: Queue[Path] = Queue()
        ignored = shutil.ignore_patterns(".git", ".venv*", "runs", "site", "build")
        for number in range(given.jobs):
            copy = Path(folder) / str(number)
            shutil.copytree(root, copy, ignore=ignored)
            copies.put(copy)

        limit = 3 * seconds_unchanged(Path(folder) / "0", tests)

        def judge(mutant: Mutant) -> None:
            copy = copies.get()
            try:
                row = judged(mutant, copy, tests, limit)
            finally:
                copies.put(copy)
            done[mutant.path, mutant.start, mutant.text] = row
            with given.log.open("a") as log:
                log.write(json.dumps(row) + "\n")
            print(row, flush=True)

        missing = [one for one in todo if (one.path, one.start, one.text) not in done]
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(judge, missing))
    rows = [done[one.path, one.start, one.text] for one in todo]
    killed = sum(bool(row["killed"]) for row in rows)
    print(f"{killed} of {len(rows)} killed")


if __name__ == "__main__":
    main()
