"""Append-only Arrow IPC streams on disk; a truncated stream is read up to its last whole batch.

The file is the serialised schema followed by serialised record batches: exactly an Arrow stream, so any Arrow library reads it.
Nothing is appended by a writer object that would have to be closed: each batch goes out in one ``write`` and is whole or torn.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from motley.core.errors import DataError, StoreError
from motley.core.files import replacing

__all__ = ["Stream", "disk_error", "read_stream", "replace_stream"]


def disk_error(error: OSError, path: Path) -> StoreError:
    """Return the StoreError for a full, read-only or broken disk; ``error`` is the error of the operating system."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StoreError(f"cannot write {path}: {reason}; make room or choose another folder; what is finished is kept")


class Stream:
    """An open stream to which whole record batches are appended.

    Parameters
    ----------
    path: the file; made (with its schema) when absent, otherwise an incomplete last batch is cut off.
    schema: of every batch.

    Raises
    ------
    StoreError: the disk refused; the file ends where it ended before the call.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise disk_error(error, path) from error
        self._end = sound_length(path)
        os.ftruncate(self._file, self._end)
        if self._end == 0:
            self._write(schema.serialize())

    def append(self, batch: pa.RecordBatch) -> None:
        """Append one record batch in one piece."""
        self._write(batch.serialize())

    def close(self) -> None:
        """Close the file; appending is over."""
        os.close(self._file)

    def _write(self, data: pa.Buffer) -> None:
        view, at = memoryview(data), self._end
        try:
            while view:
                done = os.pwrite(self._file, view, at)
                view, at = view[done:], at + done
        except OSError as error:
            os.ftruncate(self._file, self._end)
            raise disk_error(error, self.path) from error
        self._end = at


def _batches(path: Path) -> Iterator[tuple[pa.RecordBatch | None, int]]:
    """Yield (batch, offset after it), first (None, offset after the schema); ends after the last whole batch."""
    with pa.OSFile(str(path), "rb") as source:
        try:
            reader = pa.ipc.open_stream(source)
            yield None, source.tell()
            while True:
                batch = reader.read_next_batch()
                yield batch, source.tell()
        except (StopIteration, pa.ArrowInvalid, OSError):
            return


def sound_length(path: Path) -> int:
    """Return how many bytes of the file are whole messages (0 when not even the schema is)."""
    return max((end for _, end in _batches(path)), default=0)


def read_stream(path: Path, schema: pa.Schema) -> pa.Table:
    """Return every whole batch of a stream as one table.

    Raises
    ------
    DataError: the file is a stream of other columns.
    """
    batches = [batch for batch, _ in _batches(path) if batch is not None]
    try:
        return pa.Table.from_batches(batches, schema=None if batches else schema)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} is not a table of a run ({error}); delete it or restore the folder") from error


def replace_stream(path: Path, table: pa.Table) -> None:
    """Replace the file at ``path`` by a stream that holds exactly ``table``, atomically."""
    try:
        with replacing(path) as sink:
            sink.write(table.schema.serialize())
            for batch in table.combine_chunks().to_batches():
                sink.write(batch.serialize())
    except OSError as error:
        raise disk_error(error, path) from error
