"""Make the table of what published tables are worth from ``docs/published_tables.toml``."""

from __future__ import annotations

import tomllib
from typing import Any

from cells import ROOT, table

__all__ = ["ROWS", "published_tables"]

ROWS = ROOT / "docs" / "published_tables.toml"
COUNTED = ("found", "explained", "unexplained", "undecided")
"""What became of the printed cells; left out: none."""


def published_tables() -> str:
    """Return the tables in the order of the file, and what became of their cells."""
    rows = [_row(row) for row in tomllib.loads(ROWS.read_text(encoding="utf-8"))["table"]]
    head = ("table", "cells printed", *COUNTED, "outcome", "cause", "what would settle it", "run")
    return table(head, rows)


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    counts = [row.get(name, 0) for name in COUNTED]
    if sum(counts) != row["printed"]:
        raise ValueError(
            f"{row['title']}: {row['printed']} cells are printed, and {sum(counts)} are counted"
        )
    return (
        f"{row['title']} ({row['source']})",
        str(row["printed"]),
        *map(str, counts),
        f"*{row['outcome']}*",
        row["cause"],
        row.get("settles", "nothing"),
        f"`{row['command']}`",
    )
