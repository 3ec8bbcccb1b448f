"""Reader of WILDS' folder of Camelyon17 (Koh et al., arXiv 2012.07421): ``metadata.csv``, a row for
each patch of a slide, beside ``patches/``."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.files import check_file, is_file, is_folder
from motley.tasks.task import Dataset
from motley_data.formats.image_folders import decode
from motley_data.formats.sample_checks import class_labels, grouped

_PLACE = ("patient", "node", "x_coord", "y_coord")
_NUMBERS = ("tumor", "center", "split")


def recognises(folder: Path) -> bool:
    """Return whether the folder has a list of patches beside them."""
    return is_file(folder / "metadata.csv") and is_folder(folder / "patches")


def read(folder: Path) -> Dataset:
    """Read all patches in the order of the list, ``[n, 3, H, W]`` uint8; the class is ``tumor``, 0
    or 1, the natural client is ``center``, and rows whose ``split`` is not 0 are the test half.

    READING: WILDS itself tests on the hospital 2 and validates on 1; its list holds a tenth of the
    patches out of each hospital, and these are taken here.

    Raises
    ------
    DataError: a column that is missing, a value that is no number, or a picture that is missing,
    cannot be decoded or has another size than the first.
    """
    path = folder / "metadata.csv"
    pictures, numbers = _listed(path)
    y, _ = class_labels(numbers[:, 0], str(path), len(numbers), 2)
    groups, names = grouped(numbers[:, 1], str(path), len(numbers), "center")
    decoded = decode(pictures, colour=True)
    return Dataset(
        x=torch.from_numpy(decoded.pixels),
        y=y,
        classes=2,
        test=numbers[:, 2] != 0,
        groups=groups,
        names=("normal", "tumor"),
        notes={"data": f"patches of {folder.name}", **decoded.notes},
        client_names=names,
        measured=decoded.measured,
    )


def _listed(path: Path) -> tuple[list[Path], NDArray[np.int64]]:
    """Return the file of each patch, and its class, hospital and split ``[n, 3]``."""
    pictures = []
    numbers = []
    with check_file(path).open(newline="", encoding="utf-8", errors="replace") as file:
        rows = csv.reader(file)
        head = next(rows, [])
        missing = [name for name in (*_PLACE, *_NUMBERS) if name not in head]
        if missing:
            raise DataError(
                f"{path} has the columns {', '.join(filter(None, head))}; expected "
                f"{', '.join((*_PLACE, *_NUMBERS))}; if sub-folders of patches are classes, name "
                f"that folder: {path.parent / 'patches'}"
            )
        place, number = ([head.index(name) for name in names] for names in (_PLACE, _NUMBERS))
        try:
            for row in filter(None, rows):
                patient, node, x, y = (row[column] for column in place)
                numbers.append([np.int64(row[column]) for column in number])
                stem = f"patient_{patient}_node_{node}"
                pictures.append(path.parent / "patches" / stem / f"patch_{stem}_x_{x}_y_{y}.png")
        except (IndexError, ValueError, OverflowError, csv.Error) as error:
            raise DataError(
                f"{path}, line {rows.line_num} is not as WILDS has it ({error}); expected whole "
                f"numbers as {', '.join(_NUMBERS)}"
            ) from None
    if not pictures:
        raise DataError(f"{path} lists no patches")
    return pictures, np.array(numbers, np.int64)
