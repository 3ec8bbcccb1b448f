"""Change one thing in a run's folder, as a failing disk or a stranger would, and see that it is
refused or makes no difference.

    scripts/test-hostile [--changes 600] [--seed 0]

Single bits are flipped in files of every kind, files are cut, emptied, swapped with another run's,
and replaced by links, named pipes and folders. Each changed folder is read, its model is loaded,
and the run goes on to a later end. Nothing may read as other values or fewer rows, hang, end in a
traceback or by a signal, or write through a link.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from chaos.attempts import Moment, adopt_orphans, attempt, commit
from motley.core.errors import UserError
from motley.experiments.run import run
from motley.experiments.trained import load
from motley.results.journal import FILE
from motley.results.load import Run
from motley.results.schema import EQUAL_TABLES

__all__ = ["main"]

LIMIT_S = 900.0
"""Wall seconds after which a read has hung."""
ROOM_BYTES = 4 * 2**30
"""Memory that a read may take besides what its process has."""
KEYS: dict[str, Any] = {
    "name": "hostile",
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 9},
    "task": {"name": "tabular", "data": "wine"},
    "partition": "iid",
    "seed": 7,
    "split": {"test": "client", "validation": 0.2},
    "selector": "oort",
    "algorithm": "moon",
    "local": {"epochs": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
    "client_state": "disk",
    "evaluate": {"every": 3},
    "checkpoint": {"every_rounds": 2, "every_s": 1000.0},
    "engine": {"name": "sequential", "threads": 1},
}
FURTHER = 12
"""Round to which a changed run goes on."""
_SEED = 7


def _flip(path: Path, rng: random.Random, other: Path) -> str:
    data = bytearray(path.read_bytes())
    if not data:
        return ""
    bit = rng.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return f"bit {bit} of {8 * len(data)} flipped"


def _cut(path: Path, rng: random.Random, other: Path) -> str:
    size = path.stat().st_size
    keep = rng.choice((0, size // 2, size - 1, rng.randrange(size))) if size else 0
    os.truncate(path, max(keep, 0))
    return f"cut to {keep} of {size} bytes"


def _swap(path: Path, rng: random.Random, other: Path) -> str:
    if not other.is_file():
        return ""
    shutil.copy(other, path)
    return "replaced by another run's"


def _remove(path: Path, rng: random.Random, other: Path) -> str:
    path.unlink()
    return "removed"


def _link(path: Path, rng: random.Random, other: Path) -> str:
    path.unlink()
    path.symlink_to(
        rng.choice(
            (
                path.parent.parent.parent / "precious",
                Path("/dev/zero"),
                path.parent / "nothing",
                path,
            )
        )
    )
    return f"a link to {os.readlink(path)}"


def _pipe(path: Path, rng: random.Random, other: Path) -> str:
    path.unlink()
    os.mkfifo(path)
    return "a named pipe"


def _directory(path: Path, rng: random.Random, other: Path) -> str:
    path.unlink()
    path.mkdir()
    return "a folder"


CHANGES: dict[str, tuple[Callable[[Path, random.Random, Path], str], int]] = {
    "flipped bit": (_flip, 10),
    "cut": (_cut, 4),
    "swapped": (_swap, 2),
    "removed": (_remove, 1),
    "link": (_link, 2),
    "named pipe": (_pipe, 1),
    "folder": (_directory, 1),
}
"""What is done to a file, and how often of all."""


def _read(folder: Path, out: Path) -> None:
    """Write digests of all that a folder gives away, and the sentences of what it does not."""
    limit = ROOM_BYTES + 1024 * int(
        re.findall(r"VmSize:\s*([0-9]+)", Path("/proc/self/status").read_text(encoding="utf-8"))[0]
    )
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    found: dict[str, str] = {}
    refused: list[str] = []
    for step in (_tables, _models, _later):
        try:
            found |= step(folder)
        except UserError as error:
            refused.append(str(error))
    out.write_text(json.dumps({"found": found, "refused": refused}), encoding="utf-8")


def _tables(folder: Path) -> dict[str, str]:
    return _rows("table", load(folder))


def _models(folder: Path) -> dict[str, str]:
    one = load(folder)
    if not one.finished:
        return {}
    found = {which: _weights(one.module(which)) for which in ("final", "best")}
    found |= {
        f"model of client {client}": _weights(one.clients()[client].module()) for client in range(3)
    }
    return {
        **found,
        "predictions": _digest(one.predict(np.ones((3, 13)), probabilities=True).tolist()),
    }


def _later(folder: Path) -> dict[str, str]:
    """Go on to a later end."""
    done = run({**KEYS, "stop": {"rounds": FURTHER}, "seed": _SEED}, out=folder, resume=True)
    return {**_rows("later table", done), "later model": _weights(done.module())}


def _rows(word: str, one: Run) -> dict[str, str]:
    return {
        f"{word} {name}": "".join(map(_digest, one.tables[name].to_pylist()))
        for name in EQUAL_TABLES
    }


def _earlier(key: str, found: Mapping[str, str], expected: Mapping[str, str]) -> bool:
    """Return whether a table of an interrupted run is as it was some rounds before, as after a kill
    at that moment."""
    return key.startswith("table ") and expected[key].startswith(found[key])


def _weights(module: nn.Module) -> str:
    return _digest([(name, value.tolist()) for name, value in module.state_dict().items()])


def _digest(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()


def _make(place: Path) -> dict[str, Path]:
    """Make a finished and an interrupted run, and another of each with another seed; return the
    first two."""
    for seed in (_SEED, _SEED + 1):
        keys = {**KEYS, "seed": seed}
        for name, moment in (
            ("finished", None),
            ("interrupted", Moment("rename run/checkpoints/checkpoint-#.mtly", 3)),
        ):
            folder = place / f"{name} {seed}"
            ended = attempt(partial(_run, keys, folder / "run"), folder, moment)
            if ended.killed != (moment is not None):
                raise RuntimeError(f"{name}: {ended.said}")
    return {name: place / f"{name} {_SEED}" for name in ("finished", "interrupted")}


def _run(keys: dict[str, Any], out: Path) -> None:
    run(keys, out=out)


class Hostility:
    """Makes changes, one at a time, each in a fresh copy.

    Parameters
    ----------
    place: folder for files. seed: of everything that is drawn.
    """

    def __init__(self, place: Path, seed: int) -> None:
        self.place = place
        self.seed = seed
        self.runs = _make(place)
        self.expected = {}
        for name, folder in self.runs.items():
            self.expected[name], refused, said = self._looked_at(folder, "untouched")
            if refused or said:
                raise RuntimeError(f"{name}: {refused or said}")

    def change(self, number: int) -> tuple[str, str, str]:
        """Make one change; return what it was, what kind of file it was done to, and what came of
        it."""
        rng = random.Random(f"{self.seed}/{number}")
        name = rng.choice(sorted(self.runs))
        files = sorted(
            path.relative_to(self.runs[name])
            for path in self.runs[name].rglob("*")
            if path.is_file()
        )
        file = rng.choice([path for path in files if path.name != ".lock"])
        kind = rng.choices(list(CHANGES), [often for _, often in CHANGES.values()])[0]
        folder = self.place / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.runs[name], folder)
        precious = self.place / "precious"
        precious.write_text("mine", encoding="utf-8")
        done = CHANGES[kind][0](folder / file, rng, self.place / f"{name} {_SEED + 1}" / file)
        what = f"{name}, {file}: {done}"
        if not done:
            return what, kind, "nothing to change"
        found, refused, said = self._looked_at(folder, "changed")
        if precious.read_text(encoding="utf-8") != "mine":
            return what, kind, "WRITTEN THROUGH A LINK"
        if said is not None:
            return what, kind, f"BROKEN: {said}"
        other = [key for key, value in found.items() if self.expected[name][key] != value]
        if (
            other
            and name == "interrupted"
            and file.name == FILE
            and all(_earlier(key, found, self.expected[name]) for key in other)
        ):
            return what, kind, "an earlier moment"
        if other:
            return what, kind, f"OTHER VALUES: {', '.join(other)}"
        return what, kind, "refused" if refused else "no difference"

    def _looked_at(self, folder: Path, name: str) -> tuple[dict[str, str], list[str], str | None]:
        """Return what a copy of a folder gives away, what it refuses, and what broke."""
        out = self.place / f"{name}.json"
        copy = self.place / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        if name == "untouched":
            shutil.copytree(folder, copy, symlinks=True)
        else:
            folder.rename(copy)
        ended = attempt(partial(_read, copy / "run", out), out, limit_s=LIMIT_S)
        if not ended.done:
            return {}, [], ended.said or "it was killed"
        read = json.loads(out.read_text(encoding="utf-8"))
        return read["found"], read["refused"], None


def main() -> None:
    """Make changes and print what came of them; exit with 1 if anything was believed, broken or
    written elsewhere."""
    parser = argparse.ArgumentParser(
        prog="scripts/test-hostile", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--changes", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only",
        type=int,
        action="append",
        help="number of a change to make again; may be repeated",
    )
    parser.add_argument("--summary", type=Path, help="file for the numbers")
    given = parser.parse_args()
    summary = None if given.summary is None else given.summary.resolve()
    if summary is not None:
        summary.parent.mkdir(parents=True, exist_ok=True)
    adopt_orphans()
    numbers: dict[str, Counter[str]] = {}
    bad = 0
    with tempfile.TemporaryDirectory(prefix="hostile-") as place:
        os.chdir(place)
        hostility = Hostility(Path(place), given.seed)
        for number in given.only or range(given.changes):
            what, kind, came = hostility.change(number)
            numbers.setdefault(kind, Counter())[came.split(":")[0]] += 1
            if came.isupper() or came.split(":")[0].isupper():
                bad += 1
                print(f"{number}: {what}: {came}", flush=True)
    text = json.dumps(
        {"commit": commit(), "seed": given.seed, "changes": numbers, "bad": bad}, indent=1
    )
    print(text)
    if summary is not None:
        summary.write_text(text + "\n", encoding="utf-8")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
