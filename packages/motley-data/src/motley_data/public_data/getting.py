"""Getting a public data set: from its public hosts or a mirror, verified twice, as archive and as
decoded arrays."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from motley.core.errors import DataError, StoreError
from motley.core.files import user_path
from motley_data.public_data import canonical, reading
from motley_data.public_data.archives import unpack
from motley_data.public_data.download import (
    DownloadLimits,
    MissingFileError,
    download,
    file_checksum,
)
from motley_data.public_data.facts import IMAGES, PACKS, PUBLIC, RemoteFile
from motley_data.public_data.places import CACHE
from motley_data.public_data.search import Found, how_to_get, search

Report = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and the bytes expected (None where the
server does not say)."""


@dataclass(frozen=True)
class Verified:
    """A data set that was read and checked.

    Parameters
    ----------
    found: where it lies.
    variant: its name.
    about: the remark that runs record.
    digest: sha256 of the decoded arrays in canonical order, of a text's file for packs of text, or
    empty.
    known: whether the digest, the means of the channels or the files are those expected.
    size: number of images or characters, with the unit.
    clients: number of natural clients, 0 where there are none.
    """

    found: Found
    variant: str
    about: str
    digest: str
    known: bool
    size: str
    clients: int = 0


def default_folder() -> Path:
    """Return where downloads go: ``MOTLEY_DATA``, or ``~/.cache/motley``."""
    return user_path(os.environ.get("MOTLEY_DATA") or CACHE)


def get(
    name: str,
    folder: Path | None = None,
    mirror: str | None = None,
    limits: DownloadLimits | None = None,
    report: Report | None = None,
) -> Verified:
    """Download a data set into a folder, unless it is there already, and verify it.

    Parameters
    ----------
    name: a key of :data:`motley_data.public_data.facts.PUBLIC`.
    folder: :func:`default_folder` by default.
    mirror: an address that has all files side by side, in place of the public hosts; it may have
    the pack instead of the original files, and ``.gz`` files that were compressed anew.

    Raises
    ------
    DataError: it could not be had whole, is damaged, or is one that users unpack themselves;
    nothing half is left where data is searched. StoreError: the disk refuses.
    """
    folder = folder or default_folder()
    limits = limits or DownloadLimits()
    location = _in_folder(name, folder)
    if location is not None:
        with contextlib.suppress(DataError):  # damaged: what is wrong is replaced
            return verify(name, location)
    public = PUBLIC[name]
    if public.by_hand:
        raise DataError(f"{public.title} is not downloaded by this command; {how_to_get(name)}")
    try:
        for file in public.downloads:
            _fetch(file, folder, mirror, limits, report=report)
    except MissingFileError:
        if mirror is None or not public.pack:
            raise
        for pack in public.pack:
            _fetch(RemoteFile(pack, (), 100.0, PACKS[pack]), folder, mirror, limits, report=report)
    location = _in_folder(name, folder)
    if location is None:
        raise DataError(
            f"what was downloaded to {folder} is not {public.title}; remove it and report this"
        )
    try:
        return verify(name, location)
    except DataError:
        if mirror is not None:
            # what it has cannot be told from damage before it is decoded
            for file in public.downloads:
                (folder / file.folder / file.name).unlink(missing_ok=True)
        raise


def verify(name: str, location: Found) -> Verified:
    """Read a data set from the place where it was found, and return its digest.

    Raises
    ------
    DataError: damaged, or other samples than the data set's.
    """
    layout = location.layout
    variant = PUBLIC[name].variants[location.layout.variant]
    if name not in IMAGES:
        text = reading.read_texts(location)
        digest = PACKS[layout.files[0]] if layout.kind == "pack" else ""
        size = f"{sum(map(len, text.train + text.test)):,} characters"
        return Verified(
            found=location,
            variant=layout.variant,
            about=text.note,
            digest=digest,
            known=bool(digest),
            size=size,
            clients=len(text.names),
        )
    data = reading.read(name, location)
    digest = canonical.digest(canonical.canonical(canonical.without(data, variant.unknown)))
    verified = digest == variant.digest or bool(variant.means) or variant.by_files
    clients = 0 if data.groups is None else len(set(data.groups.tolist()))
    return Verified(
        found=location,
        variant=layout.variant,
        about=data.notes["data"],
        digest=digest,
        known=verified,
        size=f"{len(data.test):,} images",
        clients=clients,
    )


def _in_folder(name: str, folder: Path) -> Found | None:
    """Return the data set in this very folder; None where it is not, or only in part."""
    inside = [
        location
        for location in search(name, folder)
        if location.path.is_relative_to(folder) and not location.layout.on_hub
    ]
    for location in inside:
        files = [
            file
            for file in PUBLIC[name].downloads
            if file.folder == location.layout.path and file.unpack is None
        ]
        if all(
            (location.path / file.name).is_file()
            or (location.path / file.name).with_suffix("").is_file()
            for file in files
        ):
            return location
    return None


def _fetch(
    file: RemoteFile,
    folder: Path,
    mirror: str | None,
    limits: DownloadLimits,
    report: Report | None,
) -> None:
    target = folder / file.folder / file.name if file.unpack is None else folder / file.name
    complete = (
        target.is_file()
        and bool(file.checksum)
        and file_checksum(target, file.checksum) == file.checksum
    )
    if not complete:
        _check_space(folder, int(file.mb * 1e6))
        urls = file.urls if mirror is None else (f"{mirror}/{file.name}",)
        allowed = dataclasses.replace(limits, max_bytes=int(max(2 * file.mb, 1.0) * 1e6))
        # a mirror may have compressed a file anew: the digest of the decoded arrays decides then
        anew = mirror is not None and file.unpack is None and file.name.endswith(".gz")
        progress = None if report is None else functools.partial(report, file.name)
        download(
            urls, target, checksum="" if anew else file.checksum, limits=allowed, progress=progress
        )
    if file.unpack is not None:
        unpack(target, folder / file.folder, file.unpack.split(), int(20 * file.mb * 1e6))
        target.unlink()


def _check_space(folder: Path, needed: int) -> None:
    there = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < 2 * needed:
        raise StoreError(
            f"{there} has {free / 1e6:.0f} MB free and this needs about {2 * needed / 1e6:.0f}; "
            "choose another folder, --to DIR"
        )
