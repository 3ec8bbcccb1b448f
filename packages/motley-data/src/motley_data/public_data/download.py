"""Downloads: resumed, limited in time and size, verified, and never visible before they are
whole."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from motley.core.errors import ConfigError, DataError, StoreError

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are there and the bytes expected (None where the server does not
say)."""

_PIECE = 1 << 18
_SLOWEST = 1000
"""Bytes per second below which a connection counts as stalled."""


@dataclass(frozen=True)
class DownloadLimits:
    """How long a download may last.

    Parameters
    ----------
    stall_s: wall seconds without a byte, or at less than a kilobyte a second, until a connection is
    given up.
    tries: attempts per address.
    pause_s: wall seconds before the second attempt, doubled each time.
    max_bytes: size that no file may exceed.
    """

    stall_s: float = 30.0
    tries: int = 5
    pause_s: float = 1.0
    max_bytes: int = 2**31


class MissingFileError(DataError):
    """None of the addresses has the file (HTTP 404 or 410)."""


def check_mirror(mirror: str) -> str:
    """Return a mirror's base address without the last slash.

    Raises
    ------
    ConfigError: not an address of http or https.
    """
    parts = urlsplit(mirror)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(
            f"got {mirror!r}; expected an address like https://host/folder", "--mirror"
        )
    return mirror.rstrip("/")


def download(
    urls: Sequence[str],
    target: Path,
    checksum: str = "",
    limits: DownloadLimits | None = None,
    progress: Progress | None = None,
) -> Path:
    """Download a file from the first address that has it whole, and return ``target``.

    What has arrived is kept as ``target.part``; a later call goes on there. ``target`` appears at
    once, whole and verified. Proxies are those of the environment (``https_proxy``, ``no_proxy``).

    Parameters
    ----------
    urls: addresses, tried in order.
    checksum: md5 (32 hex digits) or sha256 (64), empty where none is known.

    Raises
    ------
    MissingFileError: no address has it. DataError: cut, stalled, refused or with another checksum
    at every address. StoreError: the disk is full.
    """
    limits = limits or DownloadLimits()
    part = target.with_name(target.name + ".part")
    problems: list[str] = []
    absent = 0
    new_folder = not target.parent.exists()
    for url in urls:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _whole(url, part, checksum, limits, progress=progress or (lambda have, size: None))
            part.replace(target)
            return target
        except MissingFileError as error:
            absent += 1
            problems.append(str(error))
        except DataError as error:
            problems.append(str(error))
        except OSError as error:
            raise StoreError(f"cannot write {part}: {error.strerror or error}") from None
    if new_folder:
        with contextlib.suppress(OSError):  # there is something in it: what is to be resumed
            target.parent.rmdir()
    kind = MissingFileError if absent == len(problems) else DataError
    resumable = f"; {part.name} is kept, the same command goes on there" if part.exists() else ""
    raise kind(f"{target.name} could not be downloaded: {'; '.join(problems)}{resumable}")


def file_checksum(path: Path, like: str) -> str:
    """Return a file's md5 or sha256, whichever has as many hex digits as ``like``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5" if len(like) == 32 else "sha256").hexdigest()


def _whole(url: str, part: Path, checksum: str, limits: DownloadLimits, progress: Progress) -> None:
    """Download one address to ``part`` in as many attempts as allowed, each from where the last one
    ended."""
    problem = ""
    begun_anew = False
    for attempt in range(limits.tries):
        if attempt:
            time.sleep(limits.pause_s * 2 ** (attempt - 1))
        resumed = part.exists() and part.stat().st_size > 0
        try:
            # whole, but never renamed
            if not (resumed and checksum and file_checksum(part, checksum) == checksum):
                _fetch(url, part, limits, progress)
        except _TransferError as error:
            problem = str(error)
            continue
        if not checksum or (digest := file_checksum(part, checksum)) == checksum:
            return
        part.unlink()  # never resumed: one of its bytes is wrong
        problem = f"{url}: its checksum is {digest[:12]}..., expected {checksum[:12]}..."
        if begun_anew or not resumed:
            raise DataError(problem)
        begun_anew = True
    raise DataError(f"{problem} ({limits.tries} attempts)")


class _TransferError(Exception):
    """A transfer ended early; another attempt may succeed."""


def _fetch(url: str, part: Path, limits: DownloadLimits, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(
        url, headers={"User-Agent": "motley"} | ({"Range": f"bytes={have}-"} if have else {})
    )
    try:
        opener = urllib.request.build_opener()  # with the proxies that the environment has now
        with opener.open(request, timeout=limits.stall_s) as answer:
            # a server that knows no ranges sends all of it
            have = have if answer.status == 206 else 0
            length = answer.headers.get("Content-Length")
            size = have + int(length) if length is not None and length.isdigit() else None
            _copy(answer, part, have, size, url=url, limits=limits, progress=progress)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise MissingFileError(f"{url}: not there (HTTP {error.code})") from None
        if error.code == 416 and have:
            part.unlink()
        elif error.code < 500 and error.code not in (408, 416, 429):
            raise DataError(f"{url}: refused (HTTP {error.code} {error.reason})") from None
        raise _TransferError(f"{url}: HTTP {error.code}") from None
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
    ) as error:
        raise _TransferError(
            f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}"
        ) from None


def _copy(
    answer: Any,
    part: Path,
    have: int,
    size: int | None,
    url: str,
    limits: DownloadLimits,
    progress: Progress,
) -> None:
    if size is not None and size > limits.max_bytes:
        raise DataError(
            f"{url}: {size / 1e6:.0f} MB, more than the {limits.max_bytes / 1e6:.0f} MB that this "
            "file may have"
        )
    since = time.monotonic()
    begun = have
    with part.open("r+b" if have else "wb") as file:
        file.seek(have)
        file.truncate()
        while piece := answer.read1(_PIECE):
            file.write(piece)
            have += len(piece)
            if have > limits.max_bytes:
                raise DataError(
                    f"{url}: more than the {limits.max_bytes / 1e6:.0f} MB that this file may have"
                )
            progress(have, size)
            now = time.monotonic()
            if now - since > limits.stall_s:
                if have - begun < _SLOWEST * (now - since):
                    raise _TransferError(f"{url}: slower than {_SLOWEST} bytes a second")
                since = now
                begun = have
    if size is not None and have < size:
        raise _TransferError(f"{url}: cut after {have} of {size} bytes")
