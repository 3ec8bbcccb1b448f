"""Federations from a table or a folder of tables, to inspect them without an experiment."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.errors import ConfigError, DataError, suggest
from motley.core.untrusted import shortened
from motley.tasks.client_folders import client_files, is_client_file
from motley.tasks.client_parts import is_table
from motley.tasks.own_federation import from_arrays, from_files
from motley.tasks.raw_table import TableOptions, raw_table, read_arrow
from motley.tasks.table_readers import read_columns, take_columns
from motley.tasks.task import Federation

__all__ = ["LEFT_OUT", "federation_of", "holds_tables"]

LEFT_OUT = "columns left out"
"""The federation's note of columns that are no inputs: dates, ids, and words among numbers."""
_KINDS = (".csv", ".parquet")


def holds_tables(path: Path) -> bool:
    """Return whether a path is a table, or a folder that holds files of clients and no runs."""
    if not path.is_dir():
        return path.suffix in _KINDS
    files = (one for pattern in ("*", "*/*") for one in path.glob(pattern))
    some = any(is_client_file(one) or one.name == "x.npy" for one in files)
    return some and next(path.rglob("run.json"), None) is None


def federation_of(path: Path, label: str | None, client: str | None) -> Federation:
    """Return the federation in a table with a column that says whose a row is, or in a folder with
    a file for each client.

    Columns that cannot be inputs are left out and noted, and no row is set aside for testing.

    Parameters
    ----------
    label: the column of what is to be predicted; ``label`` by default. client: the column of
    clients, of a single table.

    Raises
    ------
    ConfigError: a column that is not named, or not there. DataError: a table that cannot be used.
    """
    label = label or "label"
    if path.is_dir():
        return _of_folder(path, label, client)
    table = read_arrow(path)
    _check(path, list(table.column_names), {"client": client, "label": label})
    inputs, targets, ids = take_columns(table, label, client, str(path))
    columns = dict(zip(inputs.column_names, inputs.columns, strict=True))
    given = _options(inputs, targets)
    return _noted(from_arrays(columns, targets, ids, **given), given)


def _of_folder(path: Path, label: str, client: str | None) -> Federation:
    if client is not None:
        said = (
            f"got {client!r}, and in {path} each file is a client; leave it out, or give a "
            "single table"
        )
        raise ConfigError(said, "client")
    if (path / "x.npy").is_file():
        return from_files(path, test_fraction=_NONE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from_files names what is not read
        first = client_files(path)[0].path
    if not first.name.lower().endswith(".npz"):
        _check(path, list(read_arrow(first).column_names), {"label": label})
    inputs, targets, _ = read_columns(first, label)
    given = _options(inputs, targets)
    return _noted(from_files(path, label=label, **given), given)


def _options(inputs: Any, targets: Any) -> dict[str, Any]:
    """Return how a table becomes a federation: columns may have gaps and words, and labels that are
    no whole numbers are numbers."""
    values = np.asarray(targets)
    numbers = values.dtype.kind == "f" and bool((values != np.floor(values)).any())
    names = inputs.column_names if is_table(inputs) else ()
    table = {
        "scale": "federated",
        "drop": [name for name in names if not _usable(inputs.select([name]))],
    }
    return {"regression": numbers, "table": table, "test_fraction": _NONE}


_NONE = 1e-9
"""The share of rows that are set aside for testing: not one."""


def _usable(column: Any) -> bool:
    """Return whether a table of one column can be an input."""
    try:
        raw_table(column, TableOptions(), "")
    except DataError:
        return False
    return True


def _noted(federation: Federation, given: dict[str, Any]) -> Federation:
    """Return the federation with a note of the columns that were left out."""
    dropped = ", ".join(given["table"]["drop"])
    return (
        replace(federation, notes={**federation.notes, LEFT_OUT: dropped})
        if dropped
        else federation
    )


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
            raise ConfigError(
                f"{got}; write {line}; its columns: {shortened(', '.join(names), 300)}", key
            )
