"""Reader of LEAF's JSON (Caldas et al., 2018, arXiv 1812.01097): ``train/*.json`` and
``test/*.json``, or files side by side."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.files import check_file
from motley.tasks.origin import Origin
from motley.tasks.task import Dataset
from motley_data.formats.sample_checks import class_labels, features, grouped


def _files(folder: Path) -> list[tuple[Path, bool]]:
    """Return every JSON file and whether it is of the test half."""
    halves = [
        (path, half == "test")
        for half in ("train", "test")
        for path in sorted((folder / half).glob("*.json"))
    ]
    return halves or [
        (path, False) for path in sorted([*folder.glob("*.json"), *folder.glob("all_data/*.json")])
    ]


def recognises(folder: Path) -> bool:
    """Return whether the folder has JSON files where LEAF puts them."""
    return bool(_files(folder))


def read(folder: Path) -> Dataset:
    """Read all users, which are the natural clients. Rows of a square number of values (784) become
    images ``[n, 1, s, s]``.

    Raises
    ------
    DataError: not LEAF's JSON, truncated, text, or samples of different lengths.
    """
    x: list[NDArray[Any]] = []
    y: list[NDArray[Any]] = []
    users: list[str] = []
    test: list[bool] = []
    for path, held in _files(folder):
        for user, rows, labels in _users(path):
            x.append(rows)
            y.append(labels)
            users += [user] * len(labels)
            test += [held] * len(labels)
    if not users:
        raise DataError(f"{folder}: the LEAF files hold no samples")
    if len({samples.shape[1:] for samples in x}) > 1:
        raise DataError(
            f"{folder}: samples have different lengths; expected the same number of values in all"
        )
    groups, names = grouped(np.array(users), str(folder), len(users))
    origin = Origin.of_clients(str(folder), groups, names, parts="its samples")
    pixels = features(np.concatenate(x), origin)
    side = math.isqrt(math.prod(pixels.shape[1:]))
    if pixels.dim() == 2 and side > 1 and side**2 == pixels.shape[1]:
        pixels = pixels.view(-1, 1, side, side)
    target, classes = class_labels(np.concatenate(y), origin, len(pixels))
    notes = {"data": f"LEAF JSON of {folder.name}"}
    return Dataset(
        x=pixels,
        y=target,
        classes=classes,
        test=np.array(test),
        groups=groups,
        notes=notes,
        client_names=names,
    )


def user_data(path: Path) -> dict[str, Any]:
    """Return the table ``user_data`` of one file, its values unchecked.

    Raises
    ------
    DataError: not LEAF's JSON, or truncated.
    """
    try:
        content = json.loads(check_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not readable JSON ({error}); it may be truncated") from None
    data = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(data, dict):
        raise DataError(f"{path} is not LEAF's JSON: it has no table 'user_data'")
    return data


def _users(path: Path) -> list[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Return name, samples and labels of every user of one file that has samples."""
    out = []
    for user, samples in user_data(path).items():
        if not isinstance(samples, dict) or not {"x", "y"} <= set(samples):
            raise DataError(f"{path}: user {user!r} has no x and y")
        if not isinstance(samples["x"], list) or not isinstance(samples["y"], list):
            raise DataError(f"{path}: x and y of user {user!r} are no lists")
        if any(isinstance(label, list) for label in samples["y"]):
            raise DataError(
                f"{path}: user {user!r} has labels that are lists; expected one class per sample"
            )
        if len(samples["x"]) != len(samples["y"]):
            raise DataError(
                f"{path}: user {user!r} has {len(samples['x'])} samples and {len(samples['y'])} "
                "labels"
            )
        if len(samples["y"]):
            out.append((str(user), _numbers(samples["x"], path, user), np.asarray(samples["y"])))
    return out


def _numbers(x: list[Any], path: Path, user: str) -> NDArray[Any]:
    try:
        data = np.asarray(x)
    except ValueError:
        raise DataError(f"{path}: the samples of user {user!r} have different lengths") from None
    if data.dtype.kind not in "biuf":
        raise DataError(
            f"{path}: the samples of user {user!r} are not numbers (text is not read); expected "
            "lists of numbers"
        )
    if data.ndim < 2:
        raise DataError(
            f"{path}: the samples of user {user!r} are single numbers; expected a list of numbers "
            "for each"
        )
    return data.astype(np.float32)
