"""Write the tables of a running experiment, so that a kill at any moment loses at most the round being written.

While a run lives every table is an Arrow stream ``<table>.arrows`` (`motley.results.stream`); when it is done each becomes
``<table>.parquet``. Where both lie side by side (a kill between the two) the stream is the one that counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from motley.core.errors import ContractError, StoreError, suggest
from motley.core.files import replacing
from motley.results.load import read_table
from motley.results.schema import TABLES
from motley.results.stream import Stream, disk_error, replace_stream

__all__ = ["Writer"]


class Writer:
    """Collects rows per table and puts them on disk round by round.

    Parameters
    ----------
    directory: of the run; made when absent.
    resume_at: the last round that counts; rows of later rounds are cut away. None begins a new run.

    Raises
    ------
    StoreError: a new run in a folder that already holds tables; a full or read-only disk.

    Notes
    -----
    `add` only collects; `flush` writes one record batch per table; `finish` compacts. Tables without a column ``round``
    (``federation``) are written once: what a resumed run adds to them again is ignored. A finished run opened again stays as it
    is, byte for byte, as long as nothing is cut or added.
    """

    def __init__(self, directory: Path, resume_at: int | None = None) -> None:
        self.directory = Path(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, self.directory) from error
        self._rows: dict[str, list[pa.RecordBatch]] = {}
        self._streams: dict[str, Stream] = {}
        self._written_once: set[str] = set()
        present = [name for name in TABLES if self._stream(name).exists() or self._parquet(name).exists()]
        if resume_at is None and present:
            raise StoreError(
                f"{self.directory} already holds the tables of a run; go on with --resume or choose another folder"
            )
        if resume_at is not None:
            self.cut(resume_at)

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Collect rows for ``table``.

        Parameters
        ----------
        columns: name to array [n], list [n] or scalar (repeated); ``federation.labels`` is [n, C]. Absent columns and NaN are
            written as null. Arrays are copied.

        Raises
        ------
        ContractError: an unknown table or column, unequal lengths, a wrong type.
        """
        if table not in TABLES:
            raise ContractError(f"there is no table {table!r}{suggest(table, TABLES)}; there are {', '.join(TABLES)}")
        if table in self._written_once:
            return
        batch = _to_batch(table, TABLES[table], columns)
        if batch.num_rows:
            self._rows.setdefault(table, []).append(batch)

    def flush(self) -> None:
        """Write the collected rows, one record batch per table.

        Raises
        ------
        StoreError: the disk is full or failed. Each table ends with its last whole batch.
        """
        for table in list(self._rows):
            batches = self._rows[table]
            batch = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
            self._open(table).append(batch)
            del self._rows[table]

    def cut(self, round: int) -> None:
        """Delete every row of a round later than ``round``, on disk and in memory; each table is replaced in one step.

        Raises
        ------
        StoreError, DataError: the disk refused, or a file is not a table of a run.
        """
        self.close()
        for table in TABLES:
            if not (self._stream(table).exists() or self._parquet(table).exists()):
                continue
            rows = read_table(self.directory, table)
            if "round" not in rows.column_names:
                self._written_once |= {table} if rows.num_rows else set()
                continue
            kept = rows.filter(pc.less_equal(rows["round"], round))
            if kept.num_rows < rows.num_rows:
                self._restore(table, kept)

    def forget(self, table: str, round: int) -> None:
        """Delete the rows of one round from one table, on disk."""
        self.close()
        rows = read_table(self.directory, table)
        kept = rows.filter(pc.not_equal(rows["round"], round))
        if kept.num_rows < rows.num_rows:
            self._restore(table, kept)

    def finish(self) -> None:
        """Write the remaining rows and compact every stream into ``<table>.parquet``; nothing happens to a finished run.

        Raises
        ------
        StoreError: the disk refused; the streams are still there and the run can be finished later.
        """
        self.flush()
        self.close()
        tables = [name for name in TABLES if self._stream(name).exists() or not self._parquet(name).exists()]
        for table in tables:
            self._compact(table)
        for table in tables:
            self._stream(table).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files and drop rows that were not flushed. A closed writer may be used again."""
        self._rows.clear()
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _stream(self, table: str) -> Path:
        return self.directory / f"{table}.arrows"

    def _parquet(self, table: str) -> Path:
        return self.directory / f"{table}.parquet"

    def _open(self, table: str) -> Stream:
        if table not in self._streams:
            if self._parquet(table).exists():
                self._restore(table, read_table(self.directory, table))
            self._streams[table] = Stream(self._stream(table), TABLES[table])
        return self._streams[table]

    def _restore(self, table: str, rows: pa.Table) -> None:
        """Make the stream hold ``rows`` and remove a compacted file."""
        replace_stream(self._stream(table), rows)
        self._parquet(table).unlink(missing_ok=True)

    def _compact(self, table: str) -> None:
        import pyarrow.parquet as pq  # 40 ms, needed once

        path = self._parquet(table)
        try:
            with replacing(path) as file:
                pq.write_table(read_table(self.directory, table).combine_chunks(), file)
        except OSError as error:
            raise disk_error(error, path) from error


def _to_batch(table: str, schema: pa.Schema, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return columns as a simulation has them (scalars, lists, NumPy arrays) as one record batch of ``schema``.

    Scalars (also strings and None) are repeated to the length of the others; columns not given are null; NaN becomes null,
    so that equality of tables and means in SQL do what one expects.
    """
    known = schema.names
    for name in columns:
        if name not in known:
            raise ContractError(f"table {table!r} has no column {name!r}{suggest(name, known)}; it has {', '.join(known)}")
    sizes = {name: len(value) for name, value in columns.items() if not _is_scalar(value)}
    if len(set(sizes.values())) > 1:
        raise ContractError(f"the columns given for table {table!r} have unequal lengths: {sizes}")
    rows = next(iter(sizes.values()), 1)
    arrays = [_array(table, field, columns.get(field.name), rows) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str) or (not isinstance(value, Sequence) and np.ndim(value) == 0)


def _array(table: str, field: pa.Field, value: Any, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, field.type)
    try:
        if pa.types.is_list(field.type):
            return _lists(value, field.type)
        if isinstance(value, str):
            return pa.array([value] * rows, field.type)
        if np.ndim(value) == 0:
            value = np.full(rows, value)
        elif isinstance(value, np.ndarray):
            value = value.copy()  # Arrow may keep a view, and the caller may write into its array before the flush
        if pa.types.is_integer(field.type):
            _check_whole(np.asarray(value))
        return pa.array(value, field.type, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError) as error:
        raise ContractError(f"column {table}.{field.name} holds {field.type}, and these values are not: {error}") from error


def _check_whole(values: np.ndarray) -> None:
    """Refuse fractions, which Arrow would truncate silently."""
    if values.dtype.kind == "f" and np.any(np.nan_to_num(values % 1)):
        raise ValueError("not whole numbers")


def _lists(value: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(value, np.ndarray) and value.ndim == 2:  # [n, C], the common case
        offsets = np.arange(len(value) + 1, dtype=np.int32) * np.int32(value.shape[1])
        return pa.ListArray.from_arrays(offsets, pa.array(value.ravel(), kind.value_type))
    return pa.array([None if row is None else np.asarray(row) for row in value], kind)
