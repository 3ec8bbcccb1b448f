"""Whether two versions of the code give the same results, to the last bit.

scripts/same-results OLD [NEW]              two commits; NEW is the working tree where it is left
                                            out, or .
scripts/same-results --keep FILE COMMIT     one commit's digests into a file, nothing is compared
scripts/same-results --against FILE [NEW]   a commit, or the working tree, beside a file's digests
scripts/same-results --coverage [COMMIT]    what of the registry no experiment of the list uses
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from same_results import trees
from same_results.digests import asked, names
from same_results.renames import Renames

__all__ = ["differences", "main"]

ROOT = Path(__file__).resolve().parents[2]
HERE = "."
"""The working tree."""
NEEDED = ("packages", "motley", "tests")
"""What of a version is needed to run it, where it has it: ``packages`` since it has three
distributions, ``motley`` before."""


# ------------------------------------------------------------------------------------- versions


def lay_out(version: str, folder: Path) -> None:
    """Put a commit's files, or a copy of the working tree's as they are now, into a folder."""
    if version == HERE:
        command = [
            "git",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "--",
            *NEEDED,
        ]
        for name in filter(None, _git(*command[1:]).decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)
        return
    there = set(_git("ls-tree", "--name-only", version).decode().split())
    wanted = [name for name in NEEDED if name in there]
    with tarfile.open(fileobj=io.BytesIO(_git("archive", version, *wanted))) as packed:
        packed.extractall(folder, filter="data")


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words[:2])}: {done.stderr.decode().strip()}")
    return done.stdout


def environment(tree: Path) -> dict[str, str]:
    """The environment in which a version runs: its own code first, one thread."""
    path = os.pathsep.join(map(str, [*trees.sources(tree), ROOT / "scripts"]))
    alone = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    data = packs()
    return {
        **os.environ,
        **alone,
        "PYTHONPATH": path,
        **({} if data is None else {"MOTLEY_DATA": str(data)}),
    }


def packs() -> Path | None:
    """The folder of data packs, where there is one."""
    given = os.environ.get("MOTLEY_DATA")
    places = [Path(given)] if given else [ROOT / "data", ROOT.parent / "shared" / "data"]
    return next((place for place in places if place.is_dir()), None)


# ------------------------------------------------------------------------------------- running


def run_all(versions: list[str], chosen: list[str], jobs: int, quiet: bool) -> list[dict[str, Any]]:
    """The digests of each version; at most so many processes at a time, and a version alone is
    divided among them."""
    parts = jobs if len(versions) == 1 else 1
    labels = [_label(version) for version in versions]  # HEAD may move while they run
    with tempfile.TemporaryDirectory() as place:
        work = []
        for number, version in enumerate(versions):
            tree = Path(place) / f"tree-{number}"
            lay_out(version, tree)
            work += [
                (tree, Path(place) / f"{number}-{part}.json", chosen[part::parts])
                for part in range(parts)
            ]
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            found = list(pool.map(lambda one: _run(*one, quiet), work))
    out = []
    for number, label in enumerate(labels):
        mine = found[number * parts : (number + 1) * parts]
        together = {name: digests for part in mine for name, digests in part["experiments"].items()}
        in_order = {name: together[name] for name in chosen}
        out.append({"version": label, "old": mine[0]["old"], "experiments": in_order})
    return out


def _label(version: str) -> str:
    """The short hash of a commit, or that it is the working tree."""
    return (
        "working tree"
        if version == HERE
        else _git("rev-parse", "--short", f"{version}^{{commit}}").decode().strip()
    )


def _run(tree: Path, out: Path, chosen: list[str], quiet: bool) -> dict[str, Any]:
    """One process of one version."""
    listed = out.with_suffix(".names")
    listed.write_text(json.dumps(chosen), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "same_results.digests",
        str(tree),
        str(out),
        "--names",
        str(listed),
    ]
    data = packs()
    command += [] if data is None else ["--data", str(data)]
    done = subprocess.run(
        command,
        cwd=tree,
        env=environment(tree),
        stderr=subprocess.PIPE if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the runner ended with {done.returncode}\n{done.stderr or ''}")
    return json.loads(out.read_text(encoding="utf-8"))


# ------------------------------------------------------------------------------------- comparing


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], renames: Renames
) -> Iterator[str]:
    """Lines about everything that is not the same; columns and tables that are new are not told."""
    for name, then in before["experiments"].items():
        now = after["experiments"].get(name)
        if now is None:
            continue
        if "skipped" in then or "skipped" in now:
            if then.get("skipped") != now.get("skipped"):
                yield f"{name}: {then.get('skipped') or now.get('skipped')} on one side only"
            continue
        for when, one in (("before", then), ("now", now)):
            if "error" in one:
                yield f"{name}: failed {when}: {one['error']}"
        if "error" in then or "error" in now:
            continue
        tables = (
            renames.to_new(then["tables"]) if before["old"] and not after["old"] else then["tables"]
        )
        yield from _tables(name, tables, now["tables"])


def _tables(name: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for table, columns in then.items():
        if table not in now:
            yield f"{name}: there is no table {table} any more"
            continue
        for column, digest in columns.items():
            other = now[table].get(column)
            if other is None:
                yield f"{name}: {table} has no column {column} any more"
            elif any(
                digest.get(part) != other.get(part) for part in ("type", "rows", "words", "digest")
            ):
                yield f"{name}: {table}.{column}: {_first(digest, other)}"


def _first(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What is different first."""
    for part in ("type", "rows"):
        if then[part] != now[part]:
            return f"{part} {then[part]}, now {now[part]}"
    if "values" in then and "values" in now:
        rows = [
            row
            for row, (a, b) in enumerate(zip(then["values"], now["values"], strict=True))
            if repr(a) != repr(b)
        ]
        if rows:
            a = then["values"][rows[0]]
            b = now["values"][rows[0]]
            return f"row {rows[0]}: {a!r}, now {b!r} ({len(rows)} of {then['rows']} rows differ)"
    if then.get("words") != now.get("words"):
        return f"words {then.get('words')}, now {now.get('words')}"
    return f"bits {then['digest']}, now {now['digest']}"


def outdated(before: Mapping[str, Any], renames: Renames) -> list[str]:
    """Names of what was run with other keys than the list has now."""
    known = set(names())
    return [
        name
        for name, then in before["experiments"].items()
        if name not in known or asked(name, before["old"], renames) != then["asked"]
    ]


def report(before: Mapping[str, Any], after: Mapping[str, Any], renames: Renames) -> bool:
    """Print what differs, or one line that nothing does; whether nothing does."""
    both = [name for name in before["experiments"] if name in after["experiments"]]
    alone = sorted(set(before["experiments"]) ^ set(after["experiments"]))
    lines = list(differences(before, after, renames))
    for line in lines:
        print(line)
    for name in alone:
        print(f"{name}: run on one side only")
    skipped = sum("skipped" in before["experiments"][name] for name in both)
    columns = sum(
        len(found)
        for name in both
        for found in before["experiments"][name].get("tables", {}).values()
    )
    said = f"{len(both) - skipped} experiments, {columns} columns" + (
        f", {skipped} skipped" if skipped else ""
    )
    if lines or alone:
        bad = {line.split(":")[0] for line in lines} | set(alone)
        print(f"{before['version']} and {after['version']} differ in {len(bad)} of {said}")
        return False
    print(f"{before['version']} and {after['version']} are the same to the last bit: {said}")
    return True


# ------------------------------------------------------------------------------------- the command


def main() -> None:
    """Run the command; exit with 1 where something differs."""
    parser = argparse.ArgumentParser(
        prog="same-results", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "versions", nargs="*", metavar="COMMIT", help="a commit, or . for the working tree"
    )
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        default="",
        help="a regular expression: experiments whose names have it",
    )
    parser.add_argument(
        "--keep", metavar="FILE", type=Path, help="write the newer (or only) version's digests"
    )
    parser.add_argument(
        "--against", metavar="FILE", type=Path, help="digests to compare with, in place of OLD"
    )
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes at a time"
    )
    parser.add_argument(
        "--coverage", action="store_true", help="what of the registry the list leaves out"
    )
    parser.add_argument("--names", action="store_true", help="print the names of all that is run")
    parser.add_argument("--quiet", action="store_true", help="do not tell of every experiment")
    given = parser.parse_args()
    if given.names:
        print("\n".join(names()))
        return
    if given.coverage:
        sys.exit(_coverage(*given.versions[:1]))
    most = 1 if given.against else 2
    if len(given.versions) > most or not (given.versions or given.against):
        parser.error(f"got {len(given.versions)} versions; see --help")
    sys.exit(0 if _compared(given) else 1)


def _compared(given: argparse.Namespace) -> bool:
    """Run what is to be run, and compare it; True where there is nothing to compare."""
    renames = Renames.read()
    began = time.monotonic()
    chosen = [name for name in names() if re.search(given.only, name)]
    versions = list(given.versions)
    before = None
    if given.against:
        before = json.loads(given.against.read_text(encoding="utf-8"))
        old = outdated(before, renames)
        if [name for name in old if name in chosen]:
            print(
                f"{given.against} was made from another list, keep it again: {', '.join(old[:8])}"
            )
            return False
        absent = [name for name in chosen if name not in before["experiments"]]
        if absent:
            print(f"not in {given.against}, and not compared: {', '.join(absent)}")
        chosen = [name for name in chosen if name in before["experiments"]]
        before["experiments"] = {name: before["experiments"][name] for name in chosen}
        versions = versions or [HERE]
    elif len(versions) == 1 and not given.keep:
        versions.append(HERE)
    found = run_all(versions, chosen, given.jobs, given.quiet)
    spent_s = round(time.monotonic() - began, 1)
    if given.keep:
        given.keep.write_text(json.dumps({**found[-1], "seconds": spent_s}), encoding="utf-8")
    if before is None and len(found) == 1:
        failed = [name for name, one in found[0]["experiments"].items() if "error" in one]
        print(
            f"{found[0]['version']}: {len(chosen)} experiments in {spent_s:g} s, {len(failed)} "
            f"failed {failed or ''}"
        )
        return not failed
    return report(before or found[0], found[-1], renames)


def _coverage(version: str = HERE) -> int:
    """Ask a version's own registry."""
    with tempfile.TemporaryDirectory() as place:
        lay_out(version, Path(place))
        command = [sys.executable, "-m", "same_results.coverage", place]
        return subprocess.run(
            command, cwd=place, env=environment(Path(place)), check=False
        ).returncode


if __name__ == "__main__":
    main()
