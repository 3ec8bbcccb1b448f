"""A results writer for tests that keeps every row in memory."""

from __future__ import annotations

from typing import Any


class Rows:
    """Keeps what a run writes: table name -> one dict of columns per call, in order."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}

    def add(self, table: str, columns: dict[str, Any]) -> None:
        self.tables.setdefault(table, []).append(columns)

    def flush(self) -> None:
        """Nothing lies in a buffer."""
