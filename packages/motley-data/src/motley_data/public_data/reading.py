"""Reading of public data sets: from every lossless source the same arrays in the same order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from motley.core.errors import DataError
from motley.core.files import is_file
from motley.tasks.kept_data import kept
from motley.tasks.task import Dataset
from motley_data.formats import (
    binary,
    image_folders,
    leaf,
    matlab,
    npz,
    parquet_images,
    patches,
    texts,
)
from motley_data.formats.texts import TextClients
from motley_data.public_data import packs
from motley_data.public_data.canonical import by_class, checked
from motley_data.public_data.facts import PUBLIC
from motley_data.public_data.search import Found, first


def load(name: str, folder: Path | None = None) -> Dataset:
    """Return the images of a public data set from the first place that has it, uint8
    ``[n, C, H, W]``, training half first.

    Nobody writes into them: inside :func:`~motley.tasks.kept_data.last_kept` the next call may
    return the same tensors.

    Raises
    ------
    DataError: found nowhere, damaged, or other samples than the data set's.
    """
    location = first(name, folder)

    def stamp() -> tuple[object, ...]:
        files = (
            file
            for pattern in location.layout.files
            for file in sorted(location.path.glob(pattern))
            if is_file(file) or file.is_dir()
        )
        times = ((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
        return name, location, *times

    return kept(stamp, lambda: read(name, location))


def read(name: str, location: Found) -> Dataset:
    """Return the images that were found in one place, checked and in the order in which all sources
    give them.

    Raises
    ------
    DataError: damaged, or other samples than the data set's.
    """
    public = PUBLIC[name]
    kind = location.layout.kind
    variant = public.variants[location.layout.variant]
    for file in public.downloads if variant.by_files else ():
        packs.check(location.path / file.name, file.checksum)
    data = (
        packs.read(name, location.path) if kind == "pack" else _READERS[kind](name, location.path)
    )
    about = variant.about
    if kind != "pack":
        where = f"{location.where} ({public.title})"
        if tuple(data.x.shape[1:]) != public.shape or data.x.dtype != torch.uint8:
            raise DataError(
                f"{where} holds {data.x.dtype} of shape {list(data.x.shape[1:])}; expected bytes, "
                f"{'x'.join(map(str, public.shape or ()))}"
            )
        about += _without_clients(name, data)
        data = dataclasses.replace(
            data, names=public.names or data.names, notes={**data.notes, "data": about}
        )
        data = checked(by_class(data) if public.by_class else data, variant, where)
    return dataclasses.replace(
        data, notes={"data": about, **data.notes, "variant": location.layout.variant}
    )


def _without_clients(name: str, data: Dataset) -> str:
    if name == "femnist" and data.groups is not None:
        return f", {len(np.unique(data.groups))} writers as LEAF has them"
    return " without writers (they are in the pack mnist.npz)" if name == "mnist" else ""


def load_texts(name: str, folder: Path | None = None) -> TextClients:
    """Return the texts of a public data set by natural client, from the first place that has it.

    Raises
    ------
    DataError: found nowhere, or damaged.
    """
    return read_texts(first(name, folder))


def read_texts(location: Found) -> TextClients:
    """Return the texts that were found in one place.

    Raises
    ------
    DataError: damaged.
    """
    if location.layout.kind == "pack":
        packs.check(location.where)
        return texts.read_pack(location.where)
    if location.layout.kind == "leaf text":
        return texts.read_leaf(location.path)
    return texts.read_csv(location.path)


def _idx(name: str, path: Path) -> Dataset:
    public = PUBLIC[name]
    data = binary.read_idx(path, public.prefix)
    if public.prefix:  # EMNIST's images lie on their side, and its letters are numbered from 1
        shift = int(name == "emnist_letters")
        data = dataclasses.replace(data, x=data.x.transpose(2, 3).contiguous(), y=data.y - shift)
    return dataclasses.replace(data, classes=len(public.names))


def _bytes(name: str, path: Path) -> Dataset:
    """LEAF stores bytes n as numbers n / 255."""
    data = leaf.read(path)
    return dataclasses.replace(
        data, x=(data.x * 255.0).round().to(torch.uint8), classes=len(PUBLIC[name].names)
    )


def _pictures(name: str, path: Path) -> Dataset:
    public = PUBLIC[name]
    data = image_folders.read(path, public.halves)
    if public.names and data.names != public.names:
        raise DataError(
            f"{path} has folders of the classes {', '.join(data.names)}; expected "
            f"{', '.join(public.names)}: unpack the archive again"
        )
    return data


_READERS: Mapping[str, Callable[[str, Path], Dataset]] = {
    "keras": lambda name, path: npz.read(path / f"{name}.npz"),
    "idx": _idx,
    "cifar": lambda name, path: binary.read_cifar(path),
    "parquet": lambda name, path: parquet_images.read(path),
    "leaf": _bytes,
    "pictures": _pictures,
    "svhn": lambda name, path: matlab.read_svhn(path),
    "digit five": lambda name, path: matlab.read_digit_five(path),
    "patches": lambda name, path: patches.read(path),
}
