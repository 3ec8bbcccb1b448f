"""Run the list of experiments with one version of the code, and take a digest of every column of
what it wrote.

    python -m same_results.digests TREE OUT.json [--only PATTERN] [--part I/N]

with ``TREE`` on the path of modules. Digests are in that version's own spelling, so that the map of
renames may grow later.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import hashlib
import io
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from same_results import files, trees
from same_results.deployments import DEPLOYMENTS, STRATEGIES, chosen, deployed
from same_results.experiments import EXPERIMENTS, Case, Keys
from same_results.renames import Renames

__all__ = ["asked", "filled", "main", "names", "take"]

Digest = dict[str, Any]
Tables = dict[str, dict[str, Digest]]

RECIPES = ("chapter", "fedcvr_bolt", "flash", "hetero_select", "hetero_select_v1", "pfl_cifar10")
LEFT_OUT = {
    "": ("run_id", "label"),
    "timings": ("*",),
    "incidents": ("at",),
    "deployed clients": ("download_s", "compute_s", "upload_s", "up_mbps"),
}
"""Columns of wall times and of names of runs, in either spelling, by table; any table is ``""``,
all of a table ``*``. What a deployment knows of its clients' speed is measured by the wall's
clock."""
WALL = ("wall_s", "choosing_ms")
"""What recipes measure of wall times, in either spelling."""
KEPT_ROWS = 400
"""Values of a column are kept beside its digest up to so many rows, to tell which differ."""


class BrokenOffError(Exception):
    """Raised inside a run that is to be resumed."""


# ------------------------------------------------------------------------------------- digests


def column_digest(column: pa.ChunkedArray) -> Digest:
    """The digest of one column over its exact bits; NaN and null are one, words are numbered in the
    order of their coming."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(values, pa.ChunkedArray):  # no rows
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    out: Digest = {"type": str(kind), "rows": len(values)}
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        coded = pc.dictionary_encode(values)
        out |= {
            "type": "string",
            "words": coded.dictionary.to_pylist(),
            "digest": _hex(_bits(coded.indices)),
        }
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = _bits(pc.list_value_length(values))
        out["digest"] = _hex(lengths + _bits(pc.list_flatten(values)))
    else:
        out["digest"] = _hex(_bits(values))
    if len(values) <= KEPT_ROWS:
        out["values"] = [None if value != value else value for value in values.to_pylist()]
    return out


def _bits(values: pa.Array) -> bytes:
    """Which are null, and all others' bits."""
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False).copy()
        numbers[np.isnan(numbers)] = np.nan
        return numbers.tobytes()
    absent = values.is_null().to_numpy(zero_copy_only=False)
    filled = (
        values.fill_null(False if pa.types.is_boolean(values.type) else 0)
        if values.null_count
        else values
    )
    return absent.tobytes() + np.asarray(filled.to_numpy(zero_copy_only=False)).tobytes()


def _hex(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def table_digests(table: pa.Table, left_out: tuple[str, ...] = ()) -> dict[str, Digest]:
    """The digests of a table by column; a column of JSON tables has one for each name in it,
    ``column.name``."""
    out: dict[str, Digest] = {}
    for name in table.column_names:
        if any(fnmatch.fnmatch(name, pattern) for pattern in left_out):
            continue
        words = table[name].to_pylist() if pa.types.is_string(table.schema.field(name).type) else []
        if any(words) and all(word is None or word.startswith("{") for word in words):
            out |= _json_digests(
                name, [None if word is None else json.loads(word) for word in words]
            )
        else:
            out[name] = column_digest(table[name])
    return out


def _json_digests(column: str, rows: list[dict[str, Any] | None]) -> dict[str, Digest]:
    """Where there is something, and for each name what is under it."""
    out = {column: column_digest(pa.chunked_array([pa.array([row is not None for row in rows])]))}
    for name in sorted({name for row in rows for name in row or {}}):
        values = [
            json.dumps(row[name], sort_keys=True) if row and name in row else "" for row in rows
        ]
        out[f"{column}.{name}"] = {
            "type": "json",
            "rows": len(rows),
            "digest": _hex("\n".join(values).encode()),
        }
        if len(rows) <= KEPT_ROWS:
            out[f"{column}.{name}"]["values"] = values
    return out


def run_digests(tables: Mapping[str, pa.Table], more: str = "") -> Tables:
    """The digests of a run's tables; ``more``: what kind of run it is, for :data:`LEFT_OUT`.

    Evaluations on validation samples, which older versions have not, count as a table of their
    own."""
    out: Tables = {}
    held = pc.starts_with(tables["evaluations"]["scope"], "validation")
    tables = {
        **tables,
        "evaluations": tables["evaluations"].filter(pc.invert(held)),
        "validation": tables["evaluations"].filter(held),
    }
    for name, table in tables.items():
        left_out = LEFT_OUT[""] + LEFT_OUT.get(name, ()) + LEFT_OUT.get(f"{more} {name}", ())
        found = table_digests(table, left_out)
        if found:
            out[name] = found
    return out


def model_digests(path: Path) -> dict[str, Digest]:
    """The digest of every tensor of a final model, by its parameter's name."""
    from safetensors.torch import load_file

    out = {}
    for name, value in sorted(load_file(path).items()):
        kind = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        out[name] = {
            "type": kind,
            "rows": value.numel(),
            "digest": _hex(value.contiguous().numpy().tobytes()),
        }
    return out


# ---------------------------------------------------------------------------------- ways of running


def experiment(case: Case, keys: Keys, tree: Path, folder: Path) -> Tables:
    """One experiment of the list, or all runs of its grid."""
    import motley

    os.environ["OMP_NUM_THREADS"] = str(case.threads)  # an engine takes no more

    if any("grid" in name for name in (case.keys, keys)):
        found = motley.compare(keys, out=folder / "runs")
        if found.failures:
            raise found.failures[0].error
        runs = {name: motley.frame(found.runs, name) for name in trees.tables(tree, found.runs[0])}
        return run_digests(runs)
    given: dict[str, Any] = {"out": folder / "run"}
    if case.own is not None:
        from same_results.own import made

        given["task"] = made(case.own)
    if case.stop_after:
        _broken_off(keys, given, case.stop_after)
    run = motley.run(keys, **given, resume=bool(case.stop_after))
    return run_digests(trees.tables(tree, run)) | {
        "model": model_digests(trees.model_file(tree, folder / "run"))
    }


def _broken_off(keys: Keys, given: Mapping[str, Any], steps: int) -> None:
    """Begin a run, and leave it after so many server steps."""
    import motley

    heard = 0

    def told(done: Any) -> None:
        nonlocal heard
        heard += 1
        if heard == steps:
            raise BrokenOffError

    try:
        # the latter in older commits
        name = "on_round" if "on_round" in signature(motley.run).parameters else "progress"
        motley.run(keys, **given, **{name: told})
    except BrokenOffError:
        return
    raise RuntimeError("the run came to its end before it could be broken off")


def recipe(name: str, tree: Path, folder: Path) -> Tables:
    """A recipe at its smallest scale: all runs' rows below one another, and what is measured of
    them."""
    runs, text = trees.measured(tree, name, folder / "recipe")
    each = [trees.tables(tree, run) for run in runs]
    out = run_digests(
        {table: pa.concat_tables([tables[table] for tables in each]) for table in each[0]}
    )
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["measure"] not in WALL]
    measured = (
        pa.table({head: [row[head] for row in rows] for head in rows[0]}) if rows else pa.table({})
    )
    return out | {"measured": table_digests(measured)} if rows else out


def deployment(keys: Keys, delays: Mapping[int, float], tree: Path, folder: Path) -> Tables:
    """A deployment on a grid in this process, whose clock is not the wall's."""
    run = deployed(tree, keys, delays, folder)
    return run_digests(trees.tables(tree, run), "deployed") | {
        "model": model_digests(trees.model_file(tree, folder / "real"))
    }


def strategy(record: Any, tree: Path, folder: Path) -> Tables:
    """A selector in a strategy of Flower: who took part, and the arrays in the end."""
    rows, arrays = chosen(tree, record)
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    last = pa.table({name: value.ravel() for name, value in arrays.items()})
    return {"participation": table_digests(table), "arrays": table_digests(last)}


# ------------------------------------------------------------------------------------- the list


def names() -> list[str]:
    """The names of all that is run."""
    others = {"deployment": DEPLOYMENTS, "strategy": STRATEGIES, "recipe": RECIPES}
    return [*EXPERIMENTS, *(f"{kind} {name}" for kind, some in others.items() for name in some)]


def asked(name: str, old: bool, renames: Renames) -> Any:
    """What is run under a name, in the spelling of the older or the newer code."""
    kind, _, rest = name.partition(" ")
    if kind == "recipe":
        return {"recipe": rest, "scale": "smoke"}
    if name in EXPERIMENTS:
        keys = EXPERIMENTS[name].keys
    else:
        keys = DEPLOYMENTS[rest][0] if kind == "deployment" else {"selector": STRATEGIES[rest]}
    return json.loads(json.dumps(renames.to_old(keys) if old else keys))


def _way(name: str, keys: Keys, tree: Path) -> Callable[[Path], Tables]:
    kind, _, rest = name.partition(" ")
    if name in EXPERIMENTS:
        return partial(experiment, EXPERIMENTS[name], keys, tree)
    if kind == "recipe":
        return partial(recipe, rest, tree)
    if kind == "strategy":
        return partial(strategy, keys["selector"], tree)
    return partial(deployment, keys, DEPLOYMENTS[rest][1], tree)


def filled(value: Any, folder: Path) -> Any:
    """The keys with the folder of files in its places."""
    if isinstance(value, Mapping):
        return {key: filled(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, folder) for item in value]
    return value.replace("{files}", str(folder)) if isinstance(value, str) else value


def take(tree: Path, chosen: list[str], data: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run what is chosen, and give name and digests of each; the error of what fails, and why
    something was skipped."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    renames = Renames.read()
    old = trees.is_old(tree)
    with tempfile.TemporaryDirectory() as place:
        files.write(Path(place) / "files")
        for number, name in enumerate(chosen):
            keys = asked(name, old, renames)
            folder = Path(place) / str(number)
            began = time.monotonic()
            found: dict[str, Any] = {"asked": keys}
            pack = EXPERIMENTS[name].pack if name in EXPERIMENTS else None
            if pack is not None and (data is None or not (data / pack).is_file()):
                yield name, {"asked": keys, "skipped": f"{pack} is not there"}
                continue
            try:
                found["tables"] = _way(name, filled(keys, Path(place) / "files"), tree)(folder)
            except Exception as problem:
                found["error"] = f"{type(problem).__name__}: {problem}"
                found["trace"] = traceback.format_exc()
            yield name, {**found, "seconds": round(time.monotonic() - began, 2)}


def main() -> None:
    """Run one version's part of the list and write its digests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tree", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--names", type=Path, required=True, help="a JSON list of what is run")
    parser.add_argument("--data", type=Path, help="the folder of data packs")
    given = parser.parse_args()
    import motley

    if not Path(motley.__file__).resolve().is_relative_to(given.tree.resolve()):
        raise SystemExit(f"motley was imported from {motley.__file__}, not from {given.tree}")
    out = {}
    for name, found in take(
        given.tree, json.loads(given.names.read_text(encoding="utf-8")), given.data
    ):
        out[name] = found
        print(
            f"{found.get('seconds', 0.0):6.1f} s  {name}  "
            f"{found.get('error') or found.get('skipped') or ''}",
            file=sys.stderr,
        )
    text = json.dumps({"old": trees.is_old(given.tree), "experiments": out})
    given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
