"""The tables of many runs as one, for pandas, Polars, DuckDB or whatever else reads Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import pyarrow as pa

from motley.core.errors import ConfigError, StoreError
from motley.results.labels import label_runs
from motley.results.load import Run, load_all
from motley.results.schema import TABLES

__all__ = ["frame"]


def frame(runs: str | Path | Sequence[Run], table: str) -> pa.Table:
    """One table of all runs, whose first columns tell them apart: ``run_id``, ``label`` (what differs, as in reports), ``seed``.

    ``motley.frame("runs/whom", "evaluations").to_pandas()`` is a pandas frame, ``polars.from_arrow(...)`` of it a Polars one.

    Parameters
    ----------
    runs: a folder with runs in or below it, or loaded runs.
    table: rounds, clients, evaluations, federation or timings.

    Raises
    ------
    ConfigError: there is no such table. StoreError: there are no runs. DataError: a run's files are damaged.
    """
    if table not in TABLES:
        near = get_close_matches(table, TABLES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"got {table!r}; expected one of {', '.join(TABLES)}{hint}", "table")
    loaded = load_all(runs) if isinstance(runs, str | Path) else list(runs)
    if not loaded:
        raise StoreError("a table of runs needs at least one run, got none")
    parts = []
    for run, label in zip(loaded, label_runs(loaded), strict=True):
        rows = run.tables[table]
        first = {
            "run_id": pa.repeat(pa.scalar(str(run.meta.get("run_id", run.directory.name))), rows.num_rows),
            "label": pa.repeat(pa.scalar(label), rows.num_rows),
            "seed": pa.repeat(pa.scalar(run.seed), rows.num_rows),
        }
        parts.append(pa.table([*first.values(), *rows.columns], names=[*first, *rows.column_names]))
    return pa.concat_tables(parts)
