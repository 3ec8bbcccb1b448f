"""What a killed and resumed run has that an undisturbed one has not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.files import SECRET

__all__ = ["differences", "leftovers"]

WALL = ("timings",)
"""Tables of wall times, of which the rounds alone are compared."""
STATE = (
    "server",
    "selector",
    "stages",
    "ledger",
    "downloads",
    "scores",
    "under_way",
    "version",
    "selections",
    "draw_index",
    "dispatch",
    "model_updates",
)
"""Parts of a checkpoint that are compared as they are."""


def leftovers(whole: Path, killed: Path) -> list[str]:
    """Return the names of files in one folder and not in the other."""
    one, two = (
        ({str(path.relative_to(root)) for path in root.rglob("*")}) for root in (whole, killed)
    )
    return [
        *(f"left behind: {name}" for name in sorted(two - one)),
        *(f"missing: {name}" for name in sorted(one - two)),
    ]


def differences(whole: Path, killed: Path) -> list[str]:
    """Return what differs between two folders of runs: tables, models, the record, and the state in
    the last checkpoint. Two private runs have secrets of their own, also of one ``noise_seed``."""
    found = []
    for file in sorted(path for path in whole.rglob("*") if path.is_file()):
        other = killed / file.relative_to(whole)
        if file.name != SECRET and other.is_file() and not _alike(file, other):
            found.append(f"differs: {file.relative_to(whole)}")
    return found


def _alike(one: Path, two: Path) -> bool:
    if one.read_bytes() == two.read_bytes():
        return True
    if one.suffix == ".parquet":
        import pyarrow.parquet as pq

        first, second = (pq.read_table(path, use_threads=False) for path in (one, two))
        if one.stem in WALL:
            first = first.select(["round"])
            second = second.select(["round"])
        return bool(first.equals(second))
    if one.name == "run.json":
        return bool(_record(one) == _record(two))
    if one.suffix == ".mtly":
        return _same(*map(_state, (one, two)))
    # rows are compared by their checksums
    return one.suffix == ".rows" or one.read_bytes() == two.read_bytes()


def _record(path: Path) -> dict[str, Any]:
    """Return a run's record without the command line, marks of wall times, and its own digest; of
    the engine, what ``auto`` and products that were left out meant, which is written when a run is
    resumed; ``numerics`` has both."""
    record = json.loads(path.read_bytes())
    chosen = {"name": record["numerics"]["engine"], "products": None}
    config = {**record["config"], "engine": {**record["config"]["engine"], **chosen}}
    marks = {name: mark for name, mark in record.get("tables", {}).items() if name not in WALL}
    record |= {"config": config, "command": None, "tables": marks, "digest": None}
    if record.get("privacy"):
        record["privacy"] = {**record["privacy"], "commitment": None}
    return record


def _state(path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds, less what says where things lie."""
    from motley.core import codec

    saved: dict[str, Any] = codec.decode(path.read_bytes())
    placeless = {name: _placeless(saved[name]) for name in ("stages", "clients")}
    return {**{name: saved[name] for name in STATE}, **placeless}


def _placeless(saved: Any) -> Any:
    """Return client states without the rows in which they lie on disk (checksums by client), and
    last updates without their files."""
    if not isinstance(saved, Mapping):
        return saved
    if "checksums" in saved:
        return dict(zip(saved["clients"].tolist(), saved["checksums"].tolist(), strict=True))
    if "files" in saved:
        return saved["norms"]
    return {key: _placeless(value) for key, value in saved.items()}


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, Mapping):
        return (
            isinstance(two, Mapping)
            and one.keys() == two.keys()
            and all(_same(one[key], two[key]) for key in one)
        )
    if isinstance(one, list | tuple):
        return type(one) is type(two) and len(one) == len(two) and all(map(_same, one, two))
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    return bool(one == two or (one != one and two != two))
