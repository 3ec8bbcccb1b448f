"""Append-only Arrow IPC streams on disk.

The file is the serialized schema followed by serialized record batches: exactly an Arrow stream, so
any Arrow library reads it. Nothing is appended by a writer object that would have to be closed:
each batch goes out in one ``write`` and is whole or torn. Batches of many rows are compressed: of a
million clients the disk takes a fourth of the bytes, in a third of the processor's time. How much
of the file counts, and the digest of that, is its :class:`~motley.results.marks.Mark`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from motley.core.checksum import Checksum, checksum
from motley.core.errors import DataError, StoreError
from motley.core.files import disk_error, write_whole
from motley.results.marks import Mark, bytes_of, checksum_of


class Stream:
    """An open stream to which whole record batches are appended.

    Parameters
    ----------
    path: the file.
    schema: of every batch.
    mark: what counts of the file, which is cut there; None: nothing does.

    Raises
    ------
    StoreError: the disk refused, and the file ends where it ended before the call; or the file has
    other columns, of another version of Motley. DataError: the file does not agree with the mark.
    """

    def __init__(self, path: Path, schema: pa.Schema, mark: Mark | None = None) -> None:
        self.path = path
        self.schema = schema
        self._digest: Checksum | hashlib.blake2b = checksum()
        self._end = 0
        self._rows = 0
        if mark is not None:
            self._digest = checksum_of(path.parent, mark)
            with pa.OSFile(str(path), "rb") as source:
                if not pa.ipc.open_stream(source).schema.equals(schema):
                    raise StoreError(
                        f"{path} was written by another version of Motley; remove the folder and "
                        "begin again"
                    )
            self._end = mark.bytes
            self._rows = mark.rows
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            os.ftruncate(self._file, self._end)
        except OSError as error:
            raise disk_error(error, path) from error
        self._durable = False
        if self._end == 0:
            self._write(schema.serialize())

    @property
    def mark(self) -> Mark:
        """The mark of the whole stream as it is now."""
        return Mark(self.path.name, self._rows, self._end, self._digest.hexdigest())

    def append(self, batch: pa.RecordBatch) -> None:
        """Append one record batch in one piece."""
        self._write(batch.serialize() if batch.num_rows < _MANY else _compressed(batch))
        self._rows += batch.num_rows

    def drop(self, wanted: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Filter the last batches, from the first one that ``wanted`` makes shorter; up to there
        the file stays as it is."""
        data = bytes_of(self.path.parent, self.mark)
        at = 0
        rows = 0
        batches = _batches(pa.BufferReader(data))
        for batch, end in batches:
            if batch is not None:
                left = wanted(batch)
                if left.num_rows < batch.num_rows:
                    later = [
                        left,
                        *(
                            wanted(later_batch)
                            for later_batch, _ in batches
                            if later_batch is not None
                        ),
                    ]
                    self._cut(data[:at], rows)
                    for later_batch in later:
                        if later_batch.num_rows:
                            self.append(later_batch)
                    return
                rows += batch.num_rows
            at = end

    def sync(self) -> None:
        """Make everything durable that was appended.

        Raises
        ------
        StoreError: the disk refused.
        """
        # A second sync of the same bytes costs the disk's time again.
        if not self._durable:
            try:
                os.fsync(self._file)
            except OSError as error:
                raise disk_error(error, self.path) from error
            self._durable = True

    def close(self) -> None:
        """Close the file; appending is over."""
        os.close(self._file)

    def _cut(self, head: bytes, rows: int) -> None:
        """Cut the file to its first bytes, which hold so many rows."""
        os.ftruncate(self._file, len(head))
        self._digest = checksum()
        self._end = len(head)
        self._rows = rows
        self._durable = False
        self._digest.update(head)

    def _write(self, data: pa.Buffer) -> None:
        self._durable = False
        try:
            write_whole(self._file, memoryview(data), self._end)
        except OSError as error:
            os.ftruncate(self._file, self._end)
            raise disk_error(error, self.path) from error
        self._digest.update(data)
        self._end += len(data)


_MANY = 2**14
"""Rows of a batch from which on it is compressed."""


def _compressed(batch: pa.RecordBatch) -> pa.Buffer:
    """Return what ``batch.serialize()`` does, compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
        end = sink.tell()  # the mark of the stream's end follows
    head = len(batch.schema.serialize())  # which the file has once
    return sink.getvalue().slice(head, end - head)


def read_stream(directory: Path, mark: Mark, schema: pa.Schema) -> pa.Table:
    """Return the rows of a stream that a mark counts.

    Raises
    ------
    DataError: the file does not agree with the mark, or is no stream.
    """
    rows = _table(directory / mark.file, pa.BufferReader(bytes_of(directory, mark)), schema)
    if rows.num_rows != mark.rows:
        raise DataError(
            f"{directory / mark.file} has {rows.num_rows:,} rows, and {mark.rows:,} were written"
        )
    return rows


def stream_blocks(directory: Path, mark: Mark) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream that a mark counts, one at a time in memory.

    Raises
    ------
    DataError: the file does not agree with the mark, or is no stream.
    """
    path = directory / mark.file
    rows = 0
    checksum_of(directory, mark)
    try:
        with pa.OSFile(str(path), "rb") as source:
            for batch, end in _batches(source):
                if end > mark.bytes:
                    break
                if batch is not None:
                    batch.validate(full=True)
                    rows += batch.num_rows
                    yield batch
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path} is not a table of a run ({error}); delete it or restore the folder"
        ) from error
    if rows != mark.rows:
        raise DataError(f"{path} has {rows:,} rows, and {mark.rows:,} were written")


def read_unmarked(path: Path, schema: pa.Schema) -> pa.Table:
    """Return every whole batch of a stream that has no mark, as earlier versions of Motley left it.

    Raises
    ------
    DataError: the file is no stream of tables.
    """
    with pa.OSFile(str(path), "rb") as source:
        return _table(path, source, schema)


def _table(path: Path, source: pa.NativeFile, schema: pa.Schema) -> pa.Table:
    try:
        batches = [batch for batch, _ in _batches(source) if batch is not None]
        table = pa.Table.from_batches(batches, schema=None if batches else schema)
        table.validate(full=True)
    except (pa.ArrowException, ValueError) as error:  # also names that are no text
        raise DataError(
            f"{path} is not a table of a run ({error}); delete it or restore the folder"
        ) from error
    return table


def _batches(source: pa.NativeFile) -> Iterator[tuple[pa.RecordBatch | None, int]]:
    """Yield (batch, offset after it), first (None, offset after the schema); ends after the last
    whole batch."""
    try:
        reader = pa.ipc.open_stream(source)
        yield None, source.tell()
        while True:
            batch = reader.read_next_batch()
            yield batch, source.tell()
    except (StopIteration, pa.ArrowException, ValueError, OSError):
        return
