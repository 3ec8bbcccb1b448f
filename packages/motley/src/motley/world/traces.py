"""Traces: columns of measured numbers from a CSV or Parquet file, read once and checked.

Relative paths start at the current folder. Rows are assigned to clients in turn (client id modulo
the number of rows, as FedScale does) or at random (``assign = "random"``: each client draws a row
by its key).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.files import is_file, user_path, where_paths_start
from motley.core.keys import Key

Assign = Literal["in_turn", "random"]


def columns(file: str, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Floats]:
    """Return columns of numbers, float64 ``[rows]`` each; optional ones only if the file has them.

    Raises
    ------
    DataError: no such file, not a CSV or Parquet file, a needed column is missing, no rows, or a
    value that is no number.
    """
    path = user_path(file)
    if not file or not is_file(path):
        raise DataError(
            f"got {file!r}; expected the path of a .csv or .parquet file that "
            f"exists{where_paths_start(file)}"
        )
    try:
        return _read(str(path.resolve()), path.stat().st_mtime_ns, tuple(needed), tuple(optional))
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


@lru_cache(maxsize=16)
def _read(
    path: str, changed_ns: int, needed: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, Floats]:
    """Read the file; again only when it has changed."""
    from pyarrow import ArrowException, csv, parquet

    if not path.endswith((".csv", ".parquet")):
        raise DataError("expected a .csv or a .parquet file")
    try:
        table = csv.read_csv(path) if path.endswith(".csv") else parquet.read_table(path)
    except (ArrowException, OSError) as error:
        raise DataError(f"cannot be read ({str(error).splitlines()[0]})") from None
    for name in needed:
        if name not in table.column_names:
            there = ", ".join(table.column_names) or "none"
            raise DataError(
                f"there is no column {name!r}{suggest(name, table.column_names)}; its columns: "
                f"{there}"
            )
    for name in (*needed, *optional):
        if table.column_names.count(name) > 1:
            raise DataError(f"there is more than one column {name!r}; give each a name of its own")
    if not table.num_rows:
        raise DataError("it has no rows")
    out = {}
    for name in (*needed, *(name for name in optional if name in table.column_names)):
        try:
            values = np.array(table[name].to_numpy(), np.float64)
        except (TypeError, ValueError):
            raise DataError(f"column {name!r} holds a value that is no number") from None
        if np.isnan(values).any():
            raise DataError(
                f"column {name!r} has no number in row "
                f"{int(np.flatnonzero(np.isnan(values))[0]) + 1}"
            )
        values.flags.writeable = False  # the same arrays are handed out again
        out[name] = values
    return out


def assigned(key: Key, ids: Ids, rows: int, assign: Assign) -> Ids:
    """Return the row of each client ``[len(ids)]``, in [0, rows)."""
    if assign == "in_turn":
        return np.asarray(ids, np.int64) % rows
    return (key.fold("trace").uniform(ids)[:, 0] * rows).astype(np.int64)


def check_assign(assign: str) -> None:
    """Raise ConfigError unless ``assign`` is ``"in_turn"`` or ``"random"``."""
    if assign not in ("in_turn", "random"):
        raise ConfigError(
            f"got assign = {assign!r}; expected 'in_turn' (client id modulo the rows) or 'random'"
        )
