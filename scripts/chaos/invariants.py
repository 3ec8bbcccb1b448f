"""What holds of every run, whatever it is: nothing is needed to compare it with."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["broken", "prefix_differences"]

OUTCOMES = ("accepted", "late", "dropped", "rejected")
_ONE_BY_ONE = ("buffered", "asynchronous")
"""Synchronies under which several server steps may come at one moment."""


def broken(folder: Path) -> list[str]:
    """Return what does not hold of the finished run in a folder, in short sentences."""
    unread = list(_unread(folder))
    if unread:
        return unread
    from motley.results.load import load

    run = load(folder)
    tables = {
        name: {column: table[column].to_numpy() for column in table.column_names}
        for name, table in run.tables.items()
        if name in ("rounds", "clients")
    }
    checks = (_counted, _billed, _timed)
    return [
        text
        for check in checks
        for text in check(tables["rounds"], tables["clients"], run.meta["config"])
    ]


# ------------------------------------------------------------------------------------- files


def _unread(folder: Path) -> Iterator[str]:
    """Yield which files another reader than Motley's own cannot read."""
    readers: dict[str, Callable[[Path], Any]] = {
        ".json": _strict_json,
        ".jsonl": _strict_lines,
        ".toml": lambda path: tomllib.loads(path.read_text(encoding="utf-8")),
        ".parquet": _parquet,
        ".safetensors": _safetensors,
    }
    for path in sorted(folder.rglob("*")):
        if path.suffix in readers and path.is_file():
            try:
                readers[path.suffix](path)
            except Exception as error:
                yield f"{path.name} is not read back: {type(error).__name__}: {error}"


def _strict_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused)


def _strict_lines(path: Path) -> Any:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=_refused) for line in lines]


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _parquet(path: Path) -> Any:
    from pyarrow import parquet

    return parquet.read_table(path, use_threads=False).to_pylist()


def _safetensors(path: Path) -> Any:
    from safetensors.numpy import load_file

    return load_file(path)


# ------------------------------------------------------------------------------------- tables

_Columns = dict[str, Any]


def _counted(rounds: _Columns, clients: _Columns, config: dict[str, Any]) -> Iterator[str]:
    """Whoever was asked was accepted, late, dropped or rejected, or is still under way."""
    for outcome in OUTCOMES:
        told = {}
        for number in clients["round"][clients["outcome"] == outcome].tolist():
            told[number] = told.get(number, 0) + 1
        for number, count in zip(rounds["round"].tolist(), rounds[outcome].tolist(), strict=True):
            if told.get(number, 0) != count:
                yield f"round {number} counts {count} {outcome}, and {told.get(number, 0)} rows are"
    asked = int(np.nansum(rounds["selected"]))
    dispatches = clients["dispatch"].tolist()
    if len(set(dispatches)) != len(dispatches):
        yield "a dispatch has two rows"
    if config["synchrony"]["name"] == "synchronous" and asked != len(dispatches):
        yield f"{asked} clients were asked, and {len(dispatches)} were heard of"
    if asked < len(dispatches):
        yield f"{asked} clients were asked, and {len(dispatches)} were heard of"


def _billed(rounds: _Columns, clients: _Columns, config: dict[str, Any]) -> Iterator[str]:
    """The rows of clients, and the columns of a round, add up to the ledger."""
    parts = sum(rounds[f"{name}_bits"] for name in ("down", "up", "probe_down", "probe_up"))
    steps = np.diff(rounds["total_bits"])
    beside = config["recalibrate"] is not None  # its messages are in the ledger alone
    for number, step, part in zip(rounds["round"][1:], steps, parts[1:], strict=True):
        if step != part and not (beside and step > part):
            yield f"the ledger has {step:.0f} bits of round {number}, and its columns {part:.0f}"
    up = np.diff(rounds["total_up_bits"])
    own = (rounds["up_bits"] + rounds["probe_up_bits"])[1:]
    for number, step, part in zip(rounds["round"][1:], up, own, strict=True):
        if step != part and not (beside and step > part):
            yield f"the ledger has {step:.0f} bits up of round {number}, and its columns {part:.0f}"
    rows = float(np.nansum(clients["bits_up"]))
    if rows > float(rounds["up_bits"].sum()):
        yield (
            f"rows of clients sent {rows:.0f} bits up, and the ledger has "
            f"{rounds['up_bits'].sum():.0f}"
        )
    rows = float(np.nansum(clients["bits_down"]))
    if rows > float(rounds["down_bits"].sum()):
        yield (
            f"rows of clients received {rows:.0f} bits, and the ledger has "
            f"{rounds['down_bits'].sum():.0f}"
        )


def _timed(rounds: _Columns, clients: _Columns, config: dict[str, Any]) -> Iterator[str]:
    """Time goes on, and stands still only where nothing took any."""
    time_s = rounds["time_s"]
    if (np.diff(time_s) < 0).any() or (rounds["start_s"] > time_s).any():
        yield "time goes backwards"
    if config["synchrony"]["name"] in _ONE_BY_ONE:
        return
    took_s = sum(np.nan_to_num(clients[f"{name}_s"]) for name in ("download", "compute", "upload"))
    for at in range(1, len(time_s)):
        if time_s[at] > time_s[at - 1]:
            continue
        mine = clients["round"] == rounds["round"][at]
        # a rule may choose none of those who could be asked, which takes no time
        passed_over = rounds["available"][at] > 0 and rounds["selected"][at] == 0
        if not mine.any() and not passed_over:
            yield f"round {rounds['round'][at]} took no time, and nobody was heard of"
        elif mine.any() and took_s[mine].max() > 0:
            most_s = took_s[mine].max()
            yield f"round {rounds['round'][at]} took no time, and its clients {most_s:g} s"


def prefix_differences(short: Path, long: Path) -> list[str]:
    """Return which tables of a shorter run are not what a longer one begins with, to the bit.

    What the shorter run examines because it ends is left out: its last model, and new clients.
    """
    from motley.results.load import load
    from motley.results.schema import EQUAL_TABLES

    one, two = load(short), load(long)
    last, end = (max(run.column("rounds", "round").tolist(), default=0) for run in (one, two))
    out = []
    for name in EQUAL_TABLES:
        first, second = one.tables[name], two.tables[name]
        if "round" not in first.column_names:
            same = first.equals(second)
        else:
            wanted = {number for number in second["round"].to_pylist() if number <= last}
            rows, others = (
                [
                    row
                    for row in table.to_pylist()
                    if row["round"] in wanted and not (last < end and _at_end(row))
                ]
                for table in (first, second)
            )
            same = repr(rows) == repr(others)
        if not same:
            out.append(f"differs: {name}")
    return out


def _at_end(row: dict[str, Any]) -> bool:
    """Return whether a row is of new clients, who are examined where a run ends."""
    return str(row.get("scope", "")).startswith("new_")
