"""A results writer for tests that keeps every row in memory."""

from __future__ import annotations

import json
from typing import Any


class Rows:
    """Keeps what a run writes: table name -> one dict of columns per call, in order."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}

    def add(self, table: str, columns: dict[str, Any]) -> None:
        self.tables.setdefault(table, []).append(columns)

    def flush(self) -> None:
        """Nothing lies in a buffer."""

    @property
    def notes(self) -> list[dict[str, float]]:
        """The notes of every server step."""
        return [json.loads(row["notes"] or "{}") for row in self.tables["rounds"]]
