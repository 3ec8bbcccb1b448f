"""Marks: how much of a table's file counts, with a digest, so that nothing that was lost or changed
is taken for data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from motley.core.checksum import Checksum, checksum
from motley.core.errors import DataError

_PIECE = 2**20
_EARLIER = 16  # hex digits of a digest


@dataclass(frozen=True)
class Mark:
    """The part of a file that counts: its first bytes.

    Parameters
    ----------
    file: name of the file, without its folder.
    rows: of the table.
    bytes: length of the part.
    digest: checksum of these bytes in 32 hex digits; 16 are a blake2b hash, as earlier versions of
    Motley wrote it.
    """

    file: str
    rows: int
    bytes: int
    digest: str


def mark_of(path: Path, rows: int) -> Mark:
    """Return the mark of a whole file."""
    hasher = checksum()
    with path.open("rb") as file:
        length = _add(hasher, file, path.stat().st_size)
    return Mark(path.name, rows, length, hasher.hexdigest())


def bytes_of(directory: Path, mark: Mark) -> bytes:
    """Return the bytes that a mark counts.

    Raises
    ------
    DataError: they are not there, or are others.
    """
    path = directory / mark.file
    try:
        with path.open("rb") as file:
            data = file.read(mark.bytes)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from None
    hasher = _new(mark)
    hasher.update(data)
    reason = _difference(mark, len(data), hasher)
    if reason is not None:
        raise DataError(f"{path} {reason}")
    return data


def checksum_of(directory: Path, mark: Mark) -> Checksum | hashlib.blake2b:
    """Return the checksum of the bytes that a mark counts, which are read piece by piece; more can
    be added to it.

    Raises
    ------
    DataError: they are not there, or are others.
    """
    path = directory / mark.file
    hasher = _new(mark)
    try:
        with path.open("rb") as file:
            length = _add(hasher, file, mark.bytes)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from None
    reason = _difference(mark, length, hasher)
    if reason is not None:
        raise DataError(f"{path} {reason}")
    return hasher


def disagreement(directory: Path, marks: Mapping[str, Mark]) -> str | None:
    """Return what is wrong with the files that marks count, in words; None where all are as they
    were."""
    for mark in marks.values():
        try:
            checksum_of(directory, mark)
        except DataError as error:
            return str(error)
    return None


def checked(directory: Path, record: Mapping[str, Any], name: str) -> Path:
    """Return the path of a file of a finished run, which is as the run's record says.

    Raises
    ------
    DataError: it was changed, or the record is damaged.
    """
    path = directory / name
    mark = unpack_marks(record.get("files", {})).get(name)
    if mark is None:
        return path
    try:
        now = path.stat()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); restore the file, or make the run again"
        ) from None
    reason = _disagreement(path, now.st_size, now.st_mtime_ns, mark)
    if reason is not None:
        raise DataError(f"{reason}; restore the file, or make the run again")
    return path


@lru_cache(maxsize=4096)
def _disagreement(path: Path, size: int, changed_ns: int, mark: Mark) -> str | None:
    """Return what is wrong with a file of this size and time of change, in words: models of
    clients are read one by one from a file of gigabytes, which is hashed once."""
    reason = disagreement(path.parent, {"": mark})
    if reason is None and size > mark.bytes:
        return f"{path} is longer than what was written"
    return reason


def pack_marks(marks: Mapping[str, Mark]) -> dict[str, dict[str, Any]]:
    """Return marks as plain values."""
    return {table: asdict(mark) for table, mark in marks.items()}


def unpack_marks(packed: Any) -> dict[str, Mark]:
    """Return marks from plain values, also of a stranger's.

    Raises
    ------
    DataError: they are no marks.
    """
    try:
        marks = {str(table): Mark(**mark) for table, mark in packed.items()}
    except (AttributeError, TypeError):
        raise DataError(
            f"got {packed!r:.80}; expected the file, rows, bytes and digest of each table"
        ) from None
    for mark in marks.values():
        if not all(
            isinstance(value, kind)
            for value, kind in zip(asdict(mark).values(), (str, int, int, str), strict=True)
        ):
            raise DataError(
                f"got {mark!r:.200}; expected the file, rows, bytes and digest of a table"
            )
        if mark.file != Path(mark.file).name or min(mark.rows, mark.bytes) < 0:
            raise DataError(f"got {mark!r:.200}; expected a file of the run's folder")
    return marks


def _new(mark: Mark) -> Checksum | hashlib.blake2b:
    """Return an empty checksum of the kind that a mark holds."""
    return hashlib.blake2b(digest_size=8) if len(mark.digest) == _EARLIER else checksum()


def _add(hasher: Checksum | hashlib.blake2b, file: BinaryIO, length: int) -> int:
    """Add the first bytes of a file to a checksum; return how many there were."""
    left = length
    while left and (piece := file.read(min(left, _PIECE))):
        hasher.update(piece)
        left -= len(piece)
    return length - left


def _difference(mark: Mark, length: int, hasher: Checksum | hashlib.blake2b) -> str | None:
    """Return how bytes differ from those that a mark counts, in words; None where they are the
    same."""
    if length < mark.bytes:
        rows = f" with {mark.rows:,} rows" if mark.rows else ""
        return f"has {length:,} bytes, and {mark.bytes:,} bytes{rows} were written"
    rows = f" of its {mark.rows:,} rows" if mark.rows else ""
    return None if hasher.hexdigest() == mark.digest else f"is damaged (the digest{rows} differs)"
