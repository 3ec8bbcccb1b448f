"""Federations from a table or a folder of tables, to inspect them without an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from motley.core.errors import ConfigError, suggest
from motley.core.untrusted import shortened
from motley.tasks.base import Federation
from motley.tasks.own_federation import client_files, from_arrays, from_files
from motley.tasks.raw_table import read_arrow
from motley.tasks.tables import read_columns, take_columns

__all__ = ["federation_of", "holds_tables"]

_KINDS = (".csv", ".parquet")
_WHOLE: dict[str, Any] = {"table": {"scale": "federated"}, "test_fraction": 1e-9}
"""Columns may have gaps and words, and no row is set aside for testing: all are inspected."""


def holds_tables(path: Path) -> bool:
    """Return whether a path is a table, or a folder that holds files of clients and no runs."""
    if not path.is_dir():
        return path.suffix in _KINDS
    files = (one for pattern in ("*", "*/*") for one in path.glob(pattern))
    some = any(one.suffix in (*_KINDS, ".npz") or one.name == "x.npy" for one in files)
    return some and next(path.rglob("run.json"), None) is None


def federation_of(path: Path, label: str | None, client: str | None) -> Federation:
    """Return the federation in a table with a column that says whose a row is, or in a folder with a file for each client.

    Parameters
    ----------
    label: the column of what is to be predicted; ``label`` by default. client: the column of clients, of a single table.

    Raises
    ------
    ConfigError: a column that is not named, or not there. DataError: a table that cannot be used.
    """
    if path.is_dir():
        first = path / "x.npy" if (path / "x.npy").is_file() else client_files(path)[0][1][0]
        if client is not None:
            raise ConfigError(
                f"got {client!r}, and in {path} each file is a client; leave it out, or give a single table", "client"
            )
        if first.suffix in _KINDS:
            _check(path, list(read_arrow(first).column_names), {"label": label or "label"})
        numbers = first.suffix != ".npy" and _numbers(read_columns(first, label or "label")[1])
        return from_files(path, label=label or "label", regression=numbers, **_WHOLE)
    table = read_arrow(path)
    _check(path, list(table.column_names), {"client": client, "label": label or "label"})
    rest, targets, ids = take_columns(table, label or "label", client, str(path))
    columns = {name: rest.column(name) for name in rest.column_names}
    return from_arrays(columns, targets, ids, regression=_numbers(targets), **_WHOLE)


def _check(path: Path, names: list[str], asked: dict[str, str | None]) -> None:
    """Refuse a column that is not there; the message has the line to type."""
    line = f"motley inspect {path}" + "".join(
        f" --{key} {'COLUMN' if name not in names else name}" for key, name in asked.items()
    )
    for key, name in asked.items():
        if name not in names:
            got = (
                f"{path} is a table, and nothing says which column names the client of a row"
                if name is None
                else (f"{path} has no column {name!r}{suggest(name, names)}")
            )
            raise ConfigError(f"{got}; write {line}; its columns: {shortened(', '.join(names), 300)}", key)


def _numbers(targets: Any) -> bool:
    """Return whether targets are numbers to predict, not classes."""
    values = np.asarray(targets)
    return values.dtype.kind == "f" and bool((values != np.floor(values)).any())
