"""The journal of a run that goes on: after every round, how much of each table's stream counts, and
its digest.

Records have equal lengths and a checksum each. A process that is killed leaves a short last record,
which does not count; a record of the right length that was changed is an error, never a shorter
table.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from motley.core.errors import ContractError, DataError
from motley.core.files import create, write_whole
from motley.results.marks import Mark, unpack_marks

FILE = "tables.journal"
RECORD = 1280
"""Bytes of a record, padded with blanks."""
_FIELDS = ("file", "rows", "bytes", "digest")
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class Journal:
    """The journal of a folder, open for writing.

    Parameters
    ----------
    directory: of the run.
    marks: by table, what counts now; the journal begins with them.
    """

    def __init__(self, directory: Path, marks: Mapping[str, Mark]) -> None:
        path = directory / FILE
        new = directory / f"{FILE}.new"
        with create(new) as file:
            file.write(_record(marks))
        new.replace(path)
        self._file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        self._end = RECORD

    def append(self, marks: Mapping[str, Mark]) -> None:
        """Write down what counts from now on.

        Raises
        ------
        OSError: the disk refuses, and the journal ends where it ended before.
        """
        record = _record(marks)
        try:
            write_whole(self._file, record, self._end)
        except OSError:
            # Half a record at the end would read as damage.
            os.ftruncate(self._file, self._end)
            raise
        self._end += len(record)

    def sync(self) -> None:
        """Make the records durable."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_journal(directory: Path) -> dict[str, Mark] | None:
    """Return the last marks of a journal, by table; None where a run has none.

    Raises
    ------
    DataError: it was changed.
    """
    path = directory / FILE
    try:
        with path.open("rb") as file:
            n_records = file.seek(0, os.SEEK_END) // RECORD
            file.seek(max(n_records - 1, 0) * RECORD)
            record = file.read(RECORD)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from None
    text, _, check = record.rstrip(b" \n").rpartition(b" ")
    if len(record) < RECORD or check != _check(text) or record != _padded(text):
        raise DataError(
            f"{path} is damaged; go on with --resume, which returns to the last checkpoint"
        )
    try:
        listed = {
            table: dict(zip(_FIELDS, mark, strict=True)) for table, mark in json.loads(text).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not the journal of a run ({error})") from None
    return unpack_marks(listed)


def _record(marks: Mapping[str, Mark]) -> bytes:
    by_table = {table: [m.file, m.rows, m.bytes, m.digest] for table, m in marks.items()}
    record = _padded(_to_json(by_table).encode())
    if len(record) != RECORD:
        raise ContractError(
            f"the marks of {len(marks)} tables take {len(record)} bytes of a journal; expected at "
            f"most {RECORD}"
        )
    return record


def _padded(text: bytes) -> bytes:
    """Return a record with its checksum; a text that is too long makes a longer one."""
    return (text + b" " + _check(text)).ljust(RECORD - 1) + b"\n"


def _check(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()
