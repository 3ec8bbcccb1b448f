"""Files: replaced whole, durable, and never through a link; digests, by which a change of a record
or of a user's own file is seen."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from motley.core.errors import ConfigError, DataError, StoreError
from motley.core.strict_json import to_json

SECRET = "secret.json"
"""The file of a run's folder from which its noise is made: never in a copy that is given away."""
SECRET_FILES = (SECRET, f"{SECRET}.new")
"""Files of a folder in which something private began, but has no record yet."""


def disk_error(error: OSError, path: Path) -> StoreError:
    """Return the StoreError for a full, read-only or broken disk; ``error`` is the error of the
    operating system."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StoreError(
        f"cannot write {path}: {reason}; make room or choose another folder; what is finished is "
        "kept"
    )


def create(path: Path, mode: int = 0o666) -> BinaryIO:
    """Create a file in place of what is there and open it for writing; a link there is removed, and
    its target stays as it is.

    ``mode``: permissions of the new file, of which those that the process's umask names are taken
    away.

    Raises
    ------
    OSError: there is a folder, or the disk refuses.
    """
    path.unlink(missing_ok=True)
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def private_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, which only their owner may enter; raises
    OSError where that fails."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def private_files() -> Iterator[None]:
    """Within the block, files and folders that this process makes can be opened by its user alone
    (``0600``, ``0700``)."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def replacing(path: Path, new: Path | None = None, private: bool = False) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of ``path`` when the block ends; until then, and if it
    fails, what is there stays.

    The bytes are on the disk (fsync) before the file takes its place. It has the permissions of any
    file of the user's, or is ``private``.

    Parameters
    ----------
    new: name of the file until then; ``<path>.new`` by default. One that a killed process left
    there is overwritten.
    private: whether only its owner may read the file.

    Raises
    ------
    OSError: the disk is full or refuses.
    """
    new = new or path.with_name(path.name + ".new")
    try:
        with create(new, 0o600 if private else 0o666) as file:
            yield file
            # Bytes before the name: in the other order a power cut could leave an empty file under
            # it.
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def write_whole(handle: int, data: bytes | memoryview, at: int) -> None:
    """Write all bytes at an offset of an open file: a disk that fills up may take the first of them
    alone, without an error.

    Raises
    ------
    OSError: the disk refuses the rest.
    """
    view = memoryview(data)
    while view:
        done = os.pwrite(handle, view, at)
        view = view[done:]
        at = at + done


def irregular(directory: Path) -> Path | None:
    """Return a file in or below a folder that is none: a named pipe, a socket or a device, which
    would be waited for or read for ever; None where there is none. Links count as what they lead
    to, and one that leads nowhere as nothing."""
    for folder, _, names in os.walk(directory):
        for path in (Path(folder, name) for name in names):
            with suppress(OSError):
                if not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
                    return path
    return None


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable: files that were made, replaced or removed in it stay so
    after a power cut.

    Raises
    ------
    OSError: the disk refuses.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that has no such thing
            raise
    finally:
        os.close(handle)


def with_digest(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record that is written as strict JSON (:mod:`motley.core.strict_json`) with a
    ``digest`` of all its other values."""
    plain: dict[str, Any] = json.loads(
        to_json({key: value for key, value in record.items() if key != "digest"})
    )
    return {**plain, "digest": _of_record(plain)}


def changed(record: Mapping[str, Any]) -> bool:
    """Return whether a record differs from the one that its ``digest`` was made of; one without a
    digest does not."""
    return "digest" in record and record["digest"] != _of_record(record)


def _of_record(record: Mapping[str, Any]) -> str:
    plain = json.dumps(
        {key: value for key, value in record.items() if key != "digest"}, sort_keys=True
    )
    return hashlib.blake2b(plain.encode(), digest_size=8).hexdigest()


def is_file(path: Path) -> bool:
    """Return whether there is a regular file at a path of the user's; no for a path that cannot be
    looked at (a name too long)."""
    return no_file(path) is None


def is_folder(path: Path) -> bool:
    """Return whether there is a folder at a path of the user's; no for a path that cannot be looked
    at."""
    return no_file(path) == _FOLDER


_FOLDER = "is a folder"


def no_file(path: Path) -> str | None:
    """Return why there is no regular file at a path, ``"is a folder"``; None where there is one.
    Opening a named pipe would wait for ever, and reading a device never end."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "is a link to a file that is not there" if path.is_symlink() else "does not exist"
    except (OSError, ValueError) as error:  # a name too long, links in a circle, a zero byte
        return f"cannot be read ({getattr(error, 'strerror', None) or error})"
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return _FOLDER
    return "is a named pipe" if stat.S_ISFIFO(mode) else "is a device or a socket"


def check_file(path: Path) -> Path:
    """Return the path of a file that can be opened without waiting.

    Raises
    ------
    DataError: there is none, or a folder, a named pipe, a device or a link to nothing.
    """
    reason = no_file(path)
    if reason is not None:
        raise DataError(f"{path} {reason}; expected a file of data")
    return path


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a path as a shell has it: with the home folder in place of ``~`` at its start, which a
    shell leaves in ``--out=~/runs`` and Python everywhere. Arrow would do so on its own.

    Raises
    ------
    ConfigError: it is no path.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"got {path!r}; expected a path: a string or a pathlib.Path")
    try:
        return Path(path).expanduser()
    except RuntimeError:  # nobody here has this name, so it is that of a file
        return Path(path)


def files_digest(path: str | Path) -> str:
    """Return a hash of a file's bytes, or of the names and bytes of all files in and below a
    folder; empty where there is none.

    A file is read again only when its size or its time of change differ."""
    digest = _of_path(user_path(path))
    for noted in _noting:
        noted.setdefault(str(path), digest)
    return digest


_noting: list[dict[str, str]] = []


@contextmanager
def digests_noted() -> Iterator[dict[str, str]]:
    """Yield a dictionary, path -> digest, to which the first call of :func:`files_digest` for each
    path within the block adds."""
    noted: dict[str, str] = {}
    _noting.append(noted)
    try:
        yield noted
    finally:
        _noting.remove(noted)


def _of_path(root: Path) -> str:
    if is_file(root):
        return _of_file(root)
    if not is_folder(root):
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(file for file in root.rglob("*") if is_file(file)):
        digest.update(
            f"{file.relative_to(root).as_posix()}\0{_of_file(file)}\0".encode(
                errors="surrogateescape"
            )
        )
    return digest.hexdigest()


def where_paths_start(path: str | Path) -> str:
    """Return words for a message about a file that is not there: where its relative path starts;
    empty for an absolute one."""
    return "" if user_path(path).is_absolute() else f" (relative paths start at {Path.cwd()})"


def _of_file(path: Path) -> str:
    try:
        now = path.stat()
        return _of_bytes(path.resolve(), now.st_size, now.st_mtime_ns)
    except OSError:  # whoever reads it says what is wrong
        return ""


@lru_cache(maxsize=4096)
def _of_bytes(path: Path, size: int, changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
