"""Search of the folders of a machine for a public data set, and the error that says how to get what
was not found."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from motley.core.errors import DataError
from motley.core.files import is_file
from motley_data.public_data.facts import PUBLIC, DiskLayout
from motley_data.public_data.places import hubs, places


@dataclass(frozen=True)
class Found:
    """A data set on disk.

    Parameters
    ----------
    layout: its form.
    path: the folder with its files.
    """

    layout: DiskLayout
    path: Path

    @property
    def where(self) -> Path:
        """The pack's file, or the folder of other layouts."""
        one_file = self.layout.kind in ("pack", "keras") and len(self.layout.files) == 1
        return self.path / self.layout.files[0] if one_file else self.path


def search(name: str, folder: Path | None = None) -> Iterator[Found]:
    """Yield the places at which a data set was found, the one that is used first; nothing is read
    but names of files.

    Parameters
    ----------
    name: a key of :data:`motley_data.public_data.facts.PUBLIC`.
    folder: searched first.
    """
    layouts = PUBLIC[name].layouts
    for place in dict.fromkeys(places(folder)):
        for layout in layouts:
            if not layout.on_hub and _holds(place / layout.path, layout):
                yield Found(_as_it_is(layout, place), place / layout.path)
    for hub in hubs():
        for layout in layouts:
            if layout.on_hub and _holds(hub / layout.path, layout):
                yield Found(layout, hub / layout.path)


def variants(names: Iterable[object], folder: Path | None = None) -> dict[str, str]:
    """Return the variant that would be read now of each public data set among the names; those that
    are found at all.

    Parameters
    ----------
    names: values of ``data`` of an experiment, of which others are left out.
    folder: searched first.
    """
    packs = {
        name: next(search(name, folder), None)
        for name in names
        if isinstance(name, str) and name in PUBLIC
    }
    return {name: pack.layout.variant for name, pack in packs.items() if pack is not None}


def first(name: str, folder: Path | None = None) -> Found:
    """Return the first place at which a data set was found.

    Raises
    ------
    DataError: nowhere; the message says what was looked for, where, and the command that gets it.
    """
    location = next(search(name, folder), None)
    if location is not None:
        return location
    paths = ", ".join(
        dict.fromkeys(
            f"{layout.path}/" if layout.path != "." else " and ".join(layout.files)
            for layout in PUBLIC[name].layouts
        )
    )
    raise DataError(
        f"{name} was not found: looked for {paths} in {', '.join(map(str, looked_in(folder)))}; "
        f"{how_to_get(name)}, or name the folder that has it: --data DIR, or MOTLEY_DATA"
    )


def how_to_get(name: str) -> str:
    """Return in words how to get a data set: the command that downloads it, with its size, or what
    users unpack themselves."""
    public = PUBLIC[name]
    if public.by_hand:
        return f"get it yourself: {public.by_hand}"
    return f"get it with: motley data get {name} ({public.mb:.0f} MB)"


def looked_in(folder: Path | None = None) -> list[Path]:
    """Return the folders that are searched, in order."""
    return [*dict.fromkeys(places(folder)), *hubs()]


def _holds(path: Path, layout: DiskLayout) -> bool:
    every = all if layout.kind == "pack" else any
    try:
        return path.is_dir() and every(
            next(path.glob(pattern), None) is not None for pattern in layout.files
        )
    except OSError:  # a folder that may not be looked into
        return False


def _as_it_is(layout: DiskLayout, place: Path) -> DiskLayout:
    """Return the layout, as Keras' where a file ``mnist.npz`` has no writers: Keras' file has the
    pack's name."""
    if layout.files != ("mnist.npz",):
        return layout
    if not is_file(place / "mnist.npz"):  # whoever reads it will say so
        return layout
    try:
        with zipfile.ZipFile(place / "mnist.npz") as file:
            keras = "x_train.npy" in file.namelist() and "writer_train.npy" not in file.namelist()
    except (OSError, zipfile.BadZipFile):
        keras = False
    return dataclasses.replace(layout, kind="keras") if keras else layout
