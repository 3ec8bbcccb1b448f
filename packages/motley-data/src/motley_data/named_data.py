"""What the library asks of data that are read: sets that have a name, and images at a path. Motley
finds this module by its entry point, ``named`` of the group ``motley.data``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from motley.core.errors import DataError, suggest
from motley.core.files import no_file, user_path
from motley.tasks.table_kinds import table_kind
from motley.tasks.task import Dataset
from motley_data.datasets import DATASETS, load_dataset
from motley_data.formats import read
from motley_data.public_classes import with_classes
from motley_data.public_data.facts import PUBLIC, spelled
from motley_data.public_data.places import places
from motley_data.table_readers import BUILTIN

__all__ = ["DATASETS", "about", "download_mb", "images", "task_of"]


def task_of(name: str) -> str | None:
    """Return the name of the task that reads a data set of this name, or a table of this path; None
    for other names."""
    if name in DATASETS:
        return "image"
    return "tabular" if name in BUILTIN or table_kind(Path(name)) else None


def images(
    data: str, classes: int | Sequence[str] | None, folder: Path | None, key: str
) -> Dataset:
    """Return images as stored.

    Parameters
    ----------
    data: the name of a public data set, or a path (relative ones are searched like data packs).
    classes: of a path, their number or names; None: those that the labels show.
    folder: searched first.
    key: of the experiment, for messages.

    Raises
    ------
    DataError: there is no such set or path, or what is there is damaged.
    """
    if data in DATASETS:
        return load_dataset(data, folder)
    for place in (Path(), *places(folder)):
        path = place / user_path(data)
        if data and no_file(path) != "does not exist":
            return with_classes(read(path), classes, data)
    names = ["digits", *DATASETS]
    meant = spelled(data)
    near = f" (did you mean {meant!r}?)" if meant in DATASETS else suggest(data, names)
    raise DataError(
        f"{key}: got {data!r}{near}; expected one of: {', '.join(names)}, "
        "or the path of a folder or .npz file that exists"
    )


def about(name: str, variant: str) -> str:
    """Return a variant of a public data set in words."""
    return PUBLIC[name].variants[variant].about


def download_mb(name: str) -> float | None:
    """Return the size of a public data set's download in units of 10^6 bytes; None for other
    data."""
    return PUBLIC[name].mb if name in PUBLIC else None
