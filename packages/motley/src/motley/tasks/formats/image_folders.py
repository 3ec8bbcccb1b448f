"""Reader of folders of images: ``class/image``, ``client/class/image``, or either in ``train`` and
``test`` (or ``val``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.files import check_file, is_file
from motley.tasks.formats.sample_checks import grouped
from motley.tasks.task import Dataset

__all__ = ["read", "recognises"]

_KINDS = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
_Row = tuple[Path, str, str]  # image, class, client ("" if there are no clients)


def _folders(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in _KINDS)


def recognises(folder: Path) -> bool:
    """Return whether there are images in sub-folders."""
    return any(
        path.parent != folder and path.suffix.lower() in _KINDS for path in folder.rglob("*")
    )


def read(folder: Path) -> Dataset:
    """Read all images, uint8 ``[n, C, H, W]``: one channel if the first image is grey, else RGB.

    Classes and clients are numbered in the order of their names.

    Raises
    ------
    DataError: an image that cannot be decoded, or has another size than the first.
    """
    halves = {path.name: path for path in _folders(folder)}
    held = halves.get("test", halves.get("val"))
    if "train" in halves:
        train = _rows(halves["train"])
        test = _rows(held) if held is not None else []
    else:
        train = _rows(folder)
        test = []
    rows = [*train, *test]
    if not rows:
        raise DataError(f"{folder} has no pictures in sub-folders of classes")
    classes = sorted({row[1] for row in rows})
    number = {name: index for index, name in enumerate(classes)}
    y = torch.tensor([number[row[1]] for row in rows])
    clients = np.array([row[2] for row in rows])
    groups, named = (
        grouped(clients, str(folder), len(rows)) if (clients != "").all() else (None, ())
    )
    flags = np.arange(len(rows)) >= len(train)
    notes = {"data": f"pictures of {folder.name}"}
    pixels = torch.from_numpy(_decode([row[0] for row in rows]))
    return Dataset(
        pixels, y, len(classes), flags, groups, tuple(classes), notes, client_names=named
    )


def _rows(folder: Path) -> list[_Row]:
    """Return every image with its class and client; ``val_annotations.txt`` (TinyImageNet's) is
    supported."""
    listed = folder / "val_annotations.txt"
    if is_file(listed):
        text = listed.read_text(encoding="utf-8", errors="replace")
        lines = [line.split("\t") for line in text.splitlines() if line.strip()]
        short = [line for line in lines if len(line) < 2]
        if short:
            raise DataError(
                f"{listed} has the line {short[0][0]!r}; expected a picture and its class with a "
                "tab between"
            )
        return [(folder / "images" / line[0], line[1], "") for line in lines]
    inner = {outer.name: _folders(outer) for outer in _folders(folder)}
    by_client = any(
        len(found) > 1 or any(path.name != "images" for path in found) for found in inner.values()
    )
    if by_client:
        pairs = [(client, path) for client, found in inner.items() for path in found]
        return [
            (picture, path.name, client) for client, path in pairs for picture in _pictures(path)
        ]
    return [(picture, outer.name, "") for outer in _folders(folder) for picture in _pictures(outer)]


def _decode(paths: list[Path]) -> NDArray[np.uint8]:
    """``[n, C, H, W]``."""
    from PIL import Image

    out: NDArray[np.uint8] | None = None
    mode = "RGB"
    for index, path in enumerate(paths):
        try:
            with Image.open(check_file(path)) as picture:
                if out is None:
                    mode = "L" if picture.mode in ("1", "L", "LA") else "RGB"
                pixels = np.asarray(picture.convert(mode))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"{path} cannot be decoded ({error}); replace or remove it") from None
        pixels = pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)
        if out is None:
            out = np.empty((len(paths), *pixels.shape), np.uint8)
        if pixels.shape != out.shape[1:]:
            raise DataError(
                f"{path} is {pixels.shape[2]} x {pixels.shape[1]} but the first picture is "
                f"{out.shape[3]} x {out.shape[2]}; resize all pictures to one size"
            )
        out[index] = pixels
    return out if out is not None else np.zeros((0, 1, 1, 1), np.uint8)
