"""Reader of Parquet files of encoded images, as the Hugging Face hub stores image data sets."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.files import is_file
from motley.tasks.task import Dataset
from motley_data.formats.sample_checks import class_labels, grouped, refuse_deep_colour
from motley_data.parquet_file import read_parquet

_IMAGE = ("image", "img")
_LABEL = ("label", "fine_label", "character")
_CLIENT = ("writer_id",)
_LARGEST = 256
"""Largest side of an image that is decoded, in pixels."""


def files(folder: Path) -> list[Path]:
    """Return the files ``train-*.parquet``, then ``test-*.parquet``, of a folder or of the newest
    snapshot below it.

    Raises
    ------
    DataError: a file of a numbered series (``train-00000-of-00002``) is missing.
    """
    paths = sorted(folder.glob("train-*.parquet")) + sorted(folder.glob("test-*.parquet"))
    if not paths:
        main = folder / "refs" / "main"
        if is_file(main):
            snapshots = [
                folder / "snapshots" / main.read_text(encoding="utf-8", errors="replace").strip()
            ]
        else:
            snapshots = []
        snapshots += sorted(
            (folder / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime, reverse=True
        )
        inner = [
            sorted({path.parent for path in folders.rglob("train-*.parquet")})
            for folders in snapshots
        ]
        return next((files(folders[0]) for folders in inner if folders), [])
    for half in ("train", "test"):
        names = [path.name for path in paths if path.name.startswith(half)]
        series = re.search(r"-of-(\d+)", names[0]) if names else None
        if series is not None and len(names) != int(series[1]):
            raise DataError(
                f"{folder} has {len(names)} of {int(series[1])} files {half}-*.parquet; get the "
                "others"
            )
    return paths


def read(folder: Path) -> Dataset:
    """Read the images of a folder's Parquet files, uint8 ``[n, C, H, W]``; ``writer_id`` makes
    natural clients.

    Raises
    ------
    DataError: missing columns, an image that cannot be decoded or has another size, or unreadable
    files.
    """
    import pyarrow as pa

    paths = files(folder)
    try:
        tables = [read_parquet(path) for path in paths]
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{folder}: its Parquet files cannot be read ({error})") from None
    if not tables:
        raise DataError(f"{folder} has no files train-*.parquet")
    image, label = (_column(tables[0], names, folder) for names in (_IMAGE, _LABEL))
    client = next((name for name in _CLIENT if name in tables[0].column_names), None)
    pixels = _decoded(
        [piece for table in tables for piece in table.column(image).to_pylist()], folder
    )
    y = np.concatenate([table.column(label).to_numpy() for table in tables])
    names = _class_names(tables[0], label)
    target, classes = class_labels(y, str(folder), len(pixels), len(names) or None)
    if client is None:
        ids = None
    else:
        ids = np.concatenate([np.asarray(table.column(client).to_pylist()) for table in tables])
    groups, writers = (None, ()) if ids is None else grouped(ids, str(folder), len(pixels))
    test = np.repeat(
        [path.name.startswith("test") for path in paths], [len(table) for table in tables]
    )
    notes = {"data": f"Parquet files of {folder.name}"}
    return Dataset(
        x=torch.from_numpy(pixels),
        y=target,
        classes=classes,
        test=test,
        groups=groups,
        names=names,
        notes=notes,
        client_names=writers,
    )


def _column(table: Any, names: Sequence[str], folder: Path) -> str:
    for name in names:
        if name in table.column_names:
            return name
    raise DataError(
        f"{folder}: the Parquet files have columns {', '.join(table.column_names)}; expected "
        f"{' or '.join(names)}"
    )


def _decoded(encoded: list[Any], folder: Path) -> NDArray[np.uint8]:
    from PIL import Image

    out: NDArray[np.uint8] | None = None
    for row, cell in enumerate(encoded):
        try:
            with Image.open(
                io.BytesIO(cell["bytes"] if isinstance(cell, dict) else cell)
            ) as picture:
                if max(picture.size) > _LARGEST:
                    raise ValueError(
                        f"{picture.size[0]} x {picture.size[1]} pixels, expected at most {_LARGEST}"
                    )
                refuse_deep_colour(picture, f"{folder}: image {row}")
                if picture.mode.startswith(("I", "F")):
                    raise DataError(
                        f"{folder}: image {row} has pixels of more than 8 bits; expected 8, or "
                        "save all pictures as an array of 16 bits in an .npz file"
                    )
                pixels = np.asarray(
                    picture.convert("L" if picture.mode in ("1", "L", "LA") else "RGB")
                )
        except (OSError, SyntaxError, TypeError, KeyError, ValueError) as error:
            raise DataError(
                f"{folder}: image {row} cannot be decoded ({error}); get it again"
            ) from None
        pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        if out is None:
            out = np.empty((len(encoded), *pixels.shape), np.uint8)
        if pixels.shape != out.shape[1:]:
            raise DataError(
                f"{folder}: image {row} has shape {list(pixels.shape)}, the first "
                f"{list(out.shape[1:])}"
            )
        out[row] = pixels
    if out is None:
        raise DataError(f"{folder} holds no images")
    return out


def _class_names(table: Any, label: str) -> tuple[str, ...]:
    """Return the names of the classes that the hub's description of the columns has."""
    about = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    names = about.get("info", {}).get("features", {}).get(label, {}).get("names", [])
    return tuple(str(name) for name in names)
