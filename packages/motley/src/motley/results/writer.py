"""Write the tables of a running experiment, so that nothing is lost by a kill or a power cut but
what comes after a checkpoint.

While a run lives every table is an Arrow stream ``<table>.arrows`` (`motley.results.stream`), and a
journal says after every round how much of each counts (`motley.results.journal`); when it is done
each becomes ``<table>.parquet``. A checkpoint holds the marks of all tables
(`motley.results.marks`), which are durable before it is written; a run goes on from tables that
agree with them, and from no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from motley.core.errors import ContractError, StoreError, suggest
from motley.core.files import disk_error, replacing, sync_folder
from motley.core.freed_memory import release_freed_memory
from motley.results.journal import FILE, Journal
from motley.results.load import read_blocks
from motley.results.marks import Mark, disagreement, mark_of
from motley.results.schema import TABLES
from motley.results.stream import Stream

MOST_VALUES = 2**31 - 1
"""Values that an Arrow array of lists can hold: its offsets are 32-bit integers."""
ROW_GROUP = 2**17
"""Rows of a row group of a Parquet file, and as many as the writer holds of a table while it makes
one."""
FEW_ROWS = 64
"""Rows up to which a batch is made row by row."""


class Writer:
    """Collects rows per table and puts them on disk round by round.

    Parameters
    ----------
    directory: of the run; made when absent.
    marks: what counts of the tables of a run that goes on, as :meth:`sync` or :meth:`finish`
    returned it; everything else in them is cut away or removed. None begins a new run.

    Raises
    ------
    StoreError: a new run in a folder that already holds tables; tables that do not agree with the
    marks; a full or read-only disk.

    Notes
    -----
    `add` only collects; `flush` writes one record batch per table; `finish` compacts. While rows
    are written every table is a stream.
    """

    def __init__(self, directory: Path, marks: Mapping[str, Mark] | None = None) -> None:
        self.directory = Path(directory)
        self._rows: dict[str, list[pa.RecordBatch]] = {}
        self._streams: dict[str, Stream] = {}
        self._marks: dict[str, Mark] = {}
        self._journal: Journal | None = None
        self._named = False  # whether the names of the files are durable
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if marks is not None:
                self._go_on(marks)
                return
        except OSError as error:
            raise disk_error(error, self.directory) from error
        if any(self._stream(name).exists() or self._parquet(name).exists() for name in TABLES):
            raise StoreError(
                f"{self.directory} already holds the tables of a run; go on with --resume or "
                "choose another folder"
            )

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Collect rows for ``table``.

        Parameters
        ----------
        columns: name to array [n], list [n] or scalar (repeated); ``federation.labels`` is [n, C].
            Absent columns and NaN are written as null. Arrays are copied.

        Raises
        ------
        ContractError: an unknown table or column, unequal lengths, a wrong type.
        """
        if table not in TABLES:
            raise ContractError(
                f"there is no table {table!r}{suggest(table, TABLES)}; there are "
                f"{', '.join(TABLES)}"
            )
        for part in _parts(columns):
            batch = to_batch(table, part)
            if batch.num_rows:
                self._rows.setdefault(table, []).append(batch)

    def flush(self) -> None:
        """Write the collected rows, one record batch per table, or as many as hold its lists.

        Raises
        ------
        StoreError: the disk is full or failed. Each table ends with its last whole batch.
        """
        if not self._rows:
            return
        journal = self._opened_journal()
        for table in list(self._rows):
            for batch in _combined(self._rows[table]):
                self._open(table).append(batch)
            del self._rows[table]
        self._note(journal)

    def sync(self) -> dict[str, Mark]:
        """Write the collected rows, make all that was written durable, and return what counts of
        each table.

        Raises
        ------
        StoreError: the disk is full or failed.
        """
        self.flush()
        try:
            for stream in self._streams.values():
                stream.sync()
            if self._journal is not None:
                self._journal.sync()
            if not self._named:
                sync_folder(self.directory)
                self._named = True
        except OSError as error:
            raise disk_error(error, self.directory) from error
        return dict(self._marks)

    def forget(self, table: str, round: int, scopes: str = "") -> None:
        """Delete the rows of one round from one table, on disk; ``scopes``: only those of scopes
        that begin so."""

        def left(batch: pa.RecordBatch) -> pa.RecordBatch:
            here = pc.equal(batch["round"], round)
            return batch.filter(
                pc.invert(pc.and_(here, pc.starts_with(batch["scope"], scopes)) if scopes else here)
            )

        if table in self._marks:
            self._open(table).drop(left)
            self._note(self._opened_journal())

    def finish(self) -> dict[str, Mark]:
        """Write the remaining rows, make every table a durable ``<table>.parquet``, and return what
        counts of each.

        The streams stay until :func:`remove_streams`, and so do the marks of :meth:`sync`, from
        which the run can go on until then.

        Raises
        ------
        StoreError: the disk refused; the run can be finished later.
        """
        self.flush()
        self.close()
        # of the rounds, before whole row groups and the last checkpoint are gathered
        release_freed_memory()
        marks = {table: self._compact(table) for table in TABLES}
        pa.default_memory_pool().release_unused()
        try:
            sync_folder(self.directory)
        except OSError as error:
            raise disk_error(error, self.directory) from error
        return marks

    def close(self) -> None:
        """Close the files and drop rows that were not flushed. A closed writer may be used
        again."""
        self._rows.clear()
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _stream(self, table: str) -> Path:
        return self.directory / f"{table}.arrows"

    def _parquet(self, table: str) -> Path:
        return self.directory / f"{table}.parquet"

    def _go_on(self, marks: Mapping[str, Mark]) -> None:
        """Make every table the stream of the rows that count."""
        reason = disagreement(self.directory, marks)
        if reason is not None:
            raise StoreError(f"{reason}; restore the file, or remove the folder and begin again")
        for table, mark in marks.items():
            if mark.file == self._stream(table).name:
                self._marks[table] = mark
            else:
                self._restore(table, read_blocks(self.directory, table, marks))
        self._opened_journal()
        for table in TABLES:
            if table in self._marks:
                self._open(table)
            else:
                self._stream(table).unlink(missing_ok=True)
            if table not in marks or marks[table].file != self._parquet(table).name:
                self._parquet(table).unlink(missing_ok=True)

    def _restore(self, table: str, blocks: Iterator[pa.RecordBatch]) -> None:
        """Make a stream of a table that was compacted."""
        first = next(blocks, None)
        if first is not None:
            path = self._stream(table)
            path.unlink(missing_ok=True)
            self._streams[table] = Stream(path, TABLES[table])
            for batch in chain((first,), blocks):
                self._streams[table].append(batch)
            self._marks[table] = self._streams[table].mark

    def _open(self, table: str) -> Stream:
        if table not in self._streams:
            self._named = self._named and table in self._marks
            self._streams[table] = Stream(
                self._stream(table), TABLES[table], self._marks.get(table)
            )
        return self._streams[table]

    def _opened_journal(self) -> Journal:
        if self._journal is None:
            self._named = False
            try:
                self._journal = Journal(self.directory, self._marks)
            except OSError as error:
                raise disk_error(error, self.directory) from error
        return self._journal

    def _note(self, journal: Journal) -> None:
        """Write down what counts now."""
        self._marks |= {table: stream.mark for table, stream in self._streams.items()}
        try:
            journal.append(self._marks)
        except OSError as error:
            raise disk_error(error, self.directory) from error

    def _compact(self, table: str) -> Mark:
        path = self._parquet(table)
        try:
            with replacing(path) as file:
                if table in self._marks:
                    blocks = read_blocks(self.directory, table, self._marks)
                    rows = _write_parquet(file, table, blocks)
                else:
                    rows = 0
                    file.write(_empty_parquet(table))
            return mark_of(path, rows)
        except OSError as error:
            raise disk_error(error, path) from error


def _write_parquet(file: IO[bytes], table: str, blocks: Iterable[pa.RecordBatch]) -> int:
    """Write the rows of a table as Parquet; return how many they are."""
    import pyarrow.parquet as pq  # 40 ms, needed once

    rows = 0
    with pq.ParquetWriter(
        file, TABLES[table], write_page_checksum=True, **_encodings(table)
    ) as writer:
        for group in _row_groups(blocks, TABLES[table]):
            writer.write_table(group, row_group_size=ROW_GROUP)
            rows += group.num_rows
    return rows


@cache
def _empty_parquet(table: str) -> bytes:
    """Return a table without rows as Parquet: half the tables of most runs."""
    file = BytesIO()
    _write_parquet(file, table, ())
    return file.getvalue()


def _encodings(table: str) -> dict[str, list[str]]:
    """Return how Parquet keeps the columns of a table: hardly any two clients have the same number
    and speed, and a dictionary of them takes longer to make than all the rest."""
    if table != "federation":
        return {}
    fields = {
        f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name: field.type
        for field in TABLES[table]
    }
    numbers = [name for name, kind in fields.items() if pa.types.is_floating(kind)]
    encoded = [name for name in fields if name not in (*numbers, "client")]
    return {"use_dictionary": encoded, "use_byte_stream_split": numbers}


def _row_groups(blocks: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of blocks in tables of :data:`ROW_GROUP` rows, the last one with the rest: one
    at least."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for block in blocks:
        waiting.append(block)
        rows += block.num_rows
        while rows > ROW_GROUP:
            table = pa.Table.from_batches(waiting, schema)
            waiting = table.slice(ROW_GROUP).to_batches()
            rows = rows - ROW_GROUP
            yield table.slice(0, ROW_GROUP).combine_chunks()
    last = pa.Table.from_batches(waiting, schema).combine_chunks()
    waiting = []
    block = None
    yield last


def remove_streams(directory: Path) -> None:
    """Remove what the tables of a run were while it went on, after its end was recorded."""
    for name in (*(f"{table}.arrows" for table in TABLES), FILE):
        (directory / name).unlink(missing_ok=True)


def to_batch(table: str, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return columns as a simulation has them (scalars, lists, NumPy arrays) as one record batch of
    a table.

    Scalars (also strings and None) are repeated to the length of the others; columns not given are
    null; NaN becomes null, so that equality of tables and means in SQL do what one expects.
    """
    fields = _fields(table)
    unknown = [name for name in columns if name not in fields]
    if unknown:
        raise ContractError(
            f"table {table!r} has no column {unknown[0]!r}{suggest(unknown[0], fields)}; it has "
            f"{', '.join(fields)}"
        )
    sizes = {name: len(value) for name, value in columns.items() if not _is_scalar(value)}
    if len(set(sizes.values())) > 1:
        raise ContractError(f"the columns given for table {table!r} have unequal lengths: {sizes}")
    rows = next(iter(sizes.values()), 1)
    few = _of_few_rows(table, columns, rows, sizes) if rows <= FEW_ROWS else None
    if few is not None:
        return few
    arrays = [
        _array(
            table, field, value=columns.get(field.name), rows=rows, repeated=field.name not in sizes
        )
        for field in TABLES[table]
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TABLES[table])


@cache
def _fields(table: str) -> Mapping[str, set[type]]:
    """Return, for each column of a table, the types of values that Arrow takes as they are; none of
    a column of lists."""
    kinds: Mapping[pa.DataType, set[type]] = {
        pa.float64(): {float, int, np.float64, type(None)},
        pa.int64(): {int, np.int64, type(None)},
        pa.string(): {str, type(None)},
    }
    return {field.name: kinds.get(field.type, set()) for field in TABLES[table]}


@cache
def _row_type(table: str) -> pa.DataType:
    return pa.struct(list(TABLES[table]))


def _of_few_rows(
    table: str, columns: Mapping[str, Any], rows: int, sizes: Mapping[str, int]
) -> pa.RecordBatch | None:
    """Return a batch that is made of whole rows at once, in half the time of one column after the
    other; None where a value is not of its column's type as it is.

    ``sizes``: by column that has a value for each row.
    """
    values = []
    for name, types in _fields(table).items():
        column: Any = columns.get(name)
        if name not in sizes:
            column = [column] * rows
        elif isinstance(column, np.ndarray):
            column = column.tolist()
        if not types.issuperset(map(type, column)):
            return None
        values.append(column)
    try:
        together = pa.array(list(zip(*values, strict=True)), _row_type(table), from_pandas=True)
    except (pa.ArrowInvalid, OverflowError):  # the column by itself says which
        return None
    return pa.RecordBatch.from_struct_array(together)


def _parts(columns: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the columns in parts whose lists have no more values than one array of lists can."""
    lists = [value for value in columns.values() if _is_matrix(value)]
    width = max((value.shape[1] for value in lists), default=0)
    rows = max((len(value) for value in lists), default=0)
    step = max(1, MOST_VALUES // max(width, 1))
    if rows <= step:
        yield columns
        return
    for first in range(0, rows, step):
        yield {
            name: value if _is_scalar(value) else value[first : first + step]
            for name, value in columns.items()
        }


def _combined(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """Return one batch with the rows of all, or the batches as they are where their lists have more
    values than one array of lists can."""
    if len(batches) == 1 or _values(batches) > MOST_VALUES:
        return batches
    together: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return together


def _values(batches: Iterable[pa.RecordBatch]) -> int:
    """Return how many values the longest column of lists has in some batches together."""
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return max(
        sum(len(part.values) for part in column if pa.types.is_list(part.type))
        for column in columns
    )


def _is_matrix(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 2


def _is_scalar(value: Any) -> bool:
    if isinstance(value, np.ndarray):  # asked first: what a small round has most
        return value.ndim == 0
    if value is None or isinstance(value, (str, int, float, np.generic)):
        return True
    return not isinstance(value, Sequence) and np.ndim(value) == 0


def _array(table: str, field: pa.Field, value: Any, rows: int, repeated: bool) -> pa.Array:
    """Return the values of a column; ``repeated``: whether one value stands for all rows."""
    if value is None:
        return pa.nulls(rows, field.type)
    is_list, is_whole = _kind(field.type)
    try:
        if is_list:
            return _lists(value, field.type)
        if isinstance(value, str):
            return pa.array([value] * rows, field.type)
        if repeated:
            value = np.full(rows, value)
        elif isinstance(value, np.ndarray):
            # Arrow may keep a view, and the caller may write into its array before the flush
            value = value.copy()
        if is_whole:
            _check_whole(np.asarray(value))
        return pa.array(value, field.type, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError) as error:
        raise ContractError(
            f"column {table}.{field.name} holds {field.type}, and these values are not: {error}"
        ) from error


@cache
def _kind(kind: pa.DataType) -> tuple[bool, bool]:
    """Return whether a column has lists, and whether it has whole numbers."""
    return pa.types.is_list(kind), pa.types.is_integer(kind)


def _check_whole(values: np.ndarray) -> None:
    """Refuse fractions, which Arrow would truncate silently."""
    if values.dtype.kind == "f" and np.any(np.nan_to_num(values % 1)):
        raise ValueError("not whole numbers")


def _lists(value: Any, kind: pa.DataType) -> pa.Array:
    if _is_matrix(value):  # [n, C], the common case
        if value.size > MOST_VALUES:
            raise ValueError(f"{value.size:,} values; an array of lists has {MOST_VALUES:,}")
        offsets = np.arange(len(value) + 1, dtype=np.int32) * np.int32(value.shape[1])
        return pa.ListArray.from_arrays(offsets, pa.array(value.ravel(), kind.value_type))
    return pa.array([None if row is None else np.asarray(row) for row in value], kind)
