"""Reader of folders of images: ``class/image``, ``client/class/image``, or either in ``train`` and
``test`` (or ``val``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.files import check_file, is_file, is_folder
from motley.tasks.task import Dataset
from motley_data.client_folders import hidden, warn_of_unread
from motley_data.formats.sample_checks import grouped, refuse_deep_colour

_KINDS = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
_LISTED = "val_annotations.txt"
"""The file in which TinyImageNet lists its pictures for testing."""
_Row = tuple[Path, str, str]  # image, class, client ("" if there are no clients)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not hidden(path))


def _pictures(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in _KINDS and not hidden(path)
    )


def recognises(folder: Path) -> bool:
    """Return whether there are images in sub-folders."""
    return any(
        path.parent != folder and path.suffix.lower() in _KINDS for path in folder.rglob("*")
    )


def read(folder: Path, halves: Sequence[str] = ()) -> Dataset:
    """Read all images, ``[n, C, H, W]``: one channel if the first image is grey, else RGB; uint8,
    or float32 in [0, 1] where a pixel has 16 bits or is a floating-point number.

    Classes and clients are numbered in the order of their names. Files that are no pictures of
    these folders are named in a warning.

    Parameters
    ----------
    halves: the folders to read, the last of which is the test half, all images as RGB and without
    a warning of other files; none: those that are there.

    Raises
    ------
    DataError: an image that cannot be decoded, has another size or number of bits than the first,
    or 16 bits for each of several channels; no folder of the name of a half.
    """
    train, test = _of_halves(folder, halves) if halves else _all_rows(folder)
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
    decoded = decode([row[0] for row in rows], colour=bool(halves))
    if not halves:
        read_files = {row[0] for row in rows}
        files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not hidden(path))
        warn_of_unread(
            folder, [path for path in files if path not in read_files and path.name != _LISTED]
        )
    return Dataset(
        x=torch.from_numpy(decoded.pixels),
        y=y,
        classes=len(classes),
        test=flags,
        groups=groups,
        names=tuple(classes),
        notes={"data": f"pictures of {folder.name}", **decoded.notes},
        client_names=named,
        measured=decoded.measured,
    )


def _all_rows(folder: Path) -> tuple[list[_Row], list[_Row]]:
    """Return the images for training and those for testing of a folder."""
    halves = {path.name: path for path in _folders(folder)}
    held = halves.get("test", halves.get("val"))
    if "val" in halves and is_file(halves["val"] / _LISTED):
        held = halves["val"]  # of TinyImageNet's pictures in test/ nobody has the classes
    if "train" in halves:
        return _rows(halves["train"]), _rows(held) if held is not None else []
    return _rows(folder), []


def _of_halves(folder: Path, halves: Sequence[str]) -> tuple[list[_Row], list[_Row]]:
    """Return the images for training and those for testing of folders whose names are known."""
    missing = [name for name in halves if not is_folder(folder / name)]
    if missing:
        raise DataError(
            f"{folder} has no folder {missing[0]}; expected {', '.join(halves)}: unpack the "
            "archive again"
        )
    *train, test = (_rows(folder / name) for name in halves)
    return [row for rows in train for row in rows], test


def _rows(folder: Path) -> list[_Row]:
    """Return every image with its class and client; ``val_annotations.txt`` (TinyImageNet's) is
    supported."""
    listed = folder / _LISTED
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
        len(paths) > 1 or any(path.name != "images" for path in paths) for paths in inner.values()
    )
    if by_client:
        pairs = [(client, path) for client, paths in inner.items() for path in paths]
        return [
            (picture, path.name, client) for client, path in pairs for picture in _pictures(path)
        ]
    return [(picture, outer.name, "") for outer in _folders(folder) for picture in _pictures(outer)]


class Decoded(NamedTuple):
    """Pixels ``[n, C, H, W]``, remarks on how they were read, and what was measured on all of
    them."""

    pixels: NDArray[Any]
    notes: Mapping[str, str] = {}
    measured: Mapping[str, tuple[str, str]] = {}


def decode(paths: Sequence[Path], colour: bool = False) -> Decoded:
    """Return the pixels of pictures, as :func:`read` has them.

    ``colour``: convert all to RGB, whatever the first is.

    Raises
    ------
    DataError: see :func:`read`.
    """
    from PIL import Image

    out: NDArray[Any] | None = None
    mode = "RGB"
    converted = []
    for index, path in enumerate(paths):
        try:
            with Image.open(check_file(path)) as picture:
                refuse_deep_colour(picture, str(path))
                own = _mode(picture.mode)
                mode = own if out is None and not colour else mode
                converted += [path] if own != mode else []
                deep = {own, mode} - {"L", "RGB"}
                if own != mode and deep:
                    raise DataError(
                        f"{path} has pixels of {_DEPTHS[own]}, the first picture of "
                        f"{_DEPTHS[mode]}; save all pictures alike"
                    )
                pixels = np.asarray(picture if deep else picture.convert(mode))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"{path} cannot be decoded ({error}); replace or remove it") from None
        pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        if out is None:
            out = np.empty((len(paths), *pixels.shape), _TYPES[mode])
        if pixels.shape != out.shape[1:]:
            raise DataError(
                f"{path} is {pixels.shape[2]} x {pixels.shape[1]} but the first picture is "
                f"{out.shape[3]} x {out.shape[2]}; resize all pictures to one size"
            )
        out[index] = pixels
    if out is None:
        return Decoded(np.zeros((0, 1, 1, 1), np.uint8))
    kind = "the first is grey" if mode == "L" else "the first is in colour"
    if converted:
        how = "are grey and were converted" if colour else f"were converted, {kind}"
        notes = {"pictures": f"{len(converted)} of {len(paths)} {how}"}
    else:
        notes = {}
    return Decoded(out, notes) if out.dtype == np.uint8 else _in_range(out, paths[0].parent.parent)


_TYPES = {"L": np.uint8, "RGB": np.uint8, "I;16": np.uint16, "I": np.int32, "F": np.float32}
_DEPTHS = {
    "L": "8 bits",
    "RGB": "8 bits",
    "I;16": "16 bits",
    "I": "32 bits",
    "F": "floating-point numbers",
}
"""How pixels are decoded: grey, in colour, 16 or 32 bits of grey, grey as floating-point
numbers."""


def _mode(mode: str) -> str:
    """Return how pictures of one of Pillow's modes are decoded."""
    if mode.startswith("I;16"):
        return "I;16"
    if mode in ("I", "F"):
        return mode
    return "L" if mode in ("1", "L", "LA") else "RGB"


def _in_range(pixels: NDArray[Any], folder: Path) -> Decoded:
    """Return pixels of more than 8 bits as float32 in [0, 1]: of 16 bits as shares of 65,535,
    floating-point numbers in [0, 1] as they are, and all others by the smallest and the largest of
    all pictures.

    Raises
    ------
    DataError: NaN or infinity.
    """
    low, high = float(pixels.min()), float(pixels.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise DataError(f"{folder}: NaN or infinity among the pixels; replace or remove them")
    top = 65535.0
    if pixels.dtype == np.uint16 or (pixels.dtype == np.int32 and low >= 0 and high <= top):
        note = f"16 bits, values {low:g} to {high:g}, read as shares of 65535"
        return Decoded((pixels / top).astype(np.float32), {"pixels": note})
    if pixels.dtype == np.float32 and low >= 0 and high <= 1:
        return Decoded(pixels, {"pixels": f"values {low:g} to {high:g}, read as they are"})
    note = f"values {low:g} to {high:g}, read as shares of this range"
    scaled = (pixels.astype(np.float64) - low) / ((high - low) or 1.0)
    measured = {
        "the range of the pixels is measured": (
            "task.data",
            "save the pictures with values from 0 to 1, or with 8 or 16 bits",
        )
    }
    return Decoded(scaled.astype(np.float32), {"pixels": note}, measured)
