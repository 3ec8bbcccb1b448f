"""Unpacking of archives: chosen plain files only, each below the target, and no more bytes than
allowed."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO

from motley.core.errors import DataError

_PIECE = 1 << 20


def unpack(archive: Path, target: Path, patterns: Sequence[str], max_bytes: int) -> Path:
    """Unpack the files of a tar or zip archive whose names match, into one folder, and return it;
    the folder appears when it is whole.

    Folders inside the archive are dropped, links and devices are refused.

    Parameters
    ----------
    patterns: of file names, e.g. ``*.bin``.
    max_bytes: of all files together, unpacked.

    Raises
    ------
    DataError: damaged, a name that leads outside, a link, two files of one name, more bytes than
    allowed, or nothing that matches.
    """
    fresh = target.with_name(target.name + ".part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    left = max_bytes
    try:
        for name, file in _members(archive, patterns, max_bytes):
            with file, (fresh / name).open("xb") as out:
                while piece := file.read(_PIECE):
                    left -= len(piece)
                    if left < 0:
                        raise DataError(
                            f"{archive.name} unpacks to more than {max_bytes / 1e6:.0f} MB; it is "
                            "not what it should be"
                        )
                    out.write(piece)
        if not any(fresh.iterdir()):
            raise DataError(f"{archive.name} holds none of {', '.join(patterns)}")
        if not target.exists():
            fresh.replace(target)
        else:
            for path in fresh.iterdir():
                path.replace(target / path.name)
    except FileExistsError as error:
        raise DataError(
            f"{archive.name} holds two files {Path(str(error.filename)).name}"
        ) from None
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OSError,
    ) as error:
        raise DataError(f"{archive.name} cannot be unpacked ({error}); get it again") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _too_large(archive: Path, max_bytes: int) -> DataError:
    return DataError(
        f"{archive.name} unpacks to more than {max_bytes / 1e6:.0f} MB; it is not what it should be"
    )


def _members(
    archive: Path, patterns: Sequence[str], max_bytes: int
) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of every plain file that is wanted."""
    with _opened(archive) as file:
        if isinstance(file, zipfile.ZipFile):
            for entry in file.infolist():
                name = _safe(entry.filename, archive)
                if not entry.is_dir() and _wanted(name, patterns):
                    yield name, file.open(entry)
            return
        total = 0
        for member in file:
            total += member.size
            if total > max_bytes:  # also what is not wanted has to be unpacked to be passed over
                raise _too_large(archive, max_bytes)
            name = _safe(member.name, archive)
            if member.issym() or member.islnk() or member.isdev():
                raise DataError(
                    f"{archive.name} holds a link or device, {member.name!r}; it is not what it "
                    "should be"
                )
            content = (
                file.extractfile(member) if member.isreg() and _wanted(name, patterns) else None
            )
            if content is not None:
                yield name, content


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            yield zipped
    else:
        with tarfile.open(archive) as tarred:
            yield tarred


def _safe(name: str, archive: Path) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name:
        raise DataError(
            f"{archive.name} holds the name {name!r}, which leads outside; nothing was unpacked"
        )
    return path.name


def _wanted(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
