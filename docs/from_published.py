"""Make the table of what published tables are worth from ``docs/published_tables.toml`` and the
numbers that are kept of them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cells import ROOT, table

from motley_papers import printed_cells, published_table, recipe
from motley_papers.referee import kept
from motley_papers.reproduce import reproduce

__all__ = ["COUNTED", "ROWS", "cell_counts", "explained_scaffold", "outcome", "published_tables"]

ROWS = ROOT / "docs" / "published_tables.toml"
COUNTED = ("found", "explained", "unexplained", "undecided")
"""What became of the printed cells."""
NOWHERE = Path("no-runs-but-those-that-are-kept")


def published_tables() -> str:
    """Return the tables in the order of the file, and what became of their cells."""
    rows = [
        _row(row, cell_counts(row["recipe"]))
        for row in tomllib.loads(ROWS.read_text(encoding="utf-8"))["table"]
    ]
    head = ("table", "cells printed", *COUNTED, "outcome", "cause", "what would settle it", "run")
    return table(head, rows)


def cell_counts(name: str) -> dict[str, int]:
    """Return what became of the cells of a recipe by the numbers that are kept of it; a cell
    without one is undecided."""
    if name in published_table.names():
        read = published_table.read(name)
        judged = kept(read)
        counts = {} if judged is None else judged.counts
        printed, inside = len(read.numbers), counts.get("inside", 0)
        explained = counts.get("outside, explained", 0)
        unexplained = counts.get("outside, unexplained", 0)
    else:
        whole = reproduce(recipe.read(name), scale="paper", out=NOWHERE, run=False)
        counts = printed_cells.counts(whole)
        printed, inside, explained = (counts[k] for k in ("printed", "inside", "explained"))
        unexplained = counts["outside"] - explained
    return {
        "printed": printed,
        "found": inside,
        "explained": explained,
        "unexplained": unexplained,
        "undecided": printed - inside - explained - unexplained,
    }


def outcome(counts: Mapping[str, int]) -> str:
    """Return a table's outcome: ``found`` or ``undecided`` where all its cells are, ``not found``
    where all are decided and none is found, else ``partly``."""
    for name in ("found", "undecided"):
        if counts[name] == counts["printed"]:
            return name
    return "partly" if counts["found"] or counts["undecided"] else "not found"


def _row(row: Mapping[str, Any], counts: Mapping[str, int]) -> tuple[str, ...]:
    return (
        f"{row['title']} ({row['source']})",
        *(str(counts[name]) for name in ("printed", *COUNTED)),
        f"*{outcome(counts)}*",
        row["cause"],
        row.get("settles", "nothing"),
        f"`{row['command']}`",
    )


def explained_scaffold() -> str:
    """Return what each of the four differences of FedBench's SCAFFOLD carries, from
    ``benchmarks/measured/explained_scaffold.json``."""
    path = ROOT / "benchmarks" / "measured" / "explained_scaffold.json"
    outcome = json.loads(path.read_text(encoding="utf-8"))
    notes = " ".join(f"{note[:1].upper()}{note[1:]}." for note in outcome["notes"])
    command = outcome["command"].replace(" --", " \\\n    --").replace('" "', '" \\\n    "')
    return (
        f"{table(outcome['heads'], outcome['rows'])}\n\n{outcome['note']} {notes} "
        f"{outcome['runs']} runs, of about 11 s of one core each.\n\n"
        f"```sh\n{command}\n```"
    )
