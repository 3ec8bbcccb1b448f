"""Readers of tables of numbers with a column of labels: Parquet, CSV, ``.npz``, and scikit-learn's own small sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError, suggest
from motley.tasks.base import Dataset
from motley.tasks.formats.checks import class_labels, features, grouped, multilabel
from motley.tasks.formats.npz import arrays

__all__ = ["BUILTIN", "Columns", "feature_names", "make_dataset", "read_columns", "read_table", "standardised"]

BUILTIN = ("breast_cancer", "diabetes", "iris", "wine")
"""Data sets of scikit-learn; ``diabetes`` has a number as its target."""

Columns = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]
"""Features ``[n, ...]``, targets ``[n]`` or ``[n, d]``, client ids ``[n]`` or None."""


def read_table(data: str, label: str, client: str | None, classes: bool) -> Dataset:
    """Return the data set of a name of :data:`BUILTIN` or a path to an ``.npz``, ``.parquet`` or ``.csv`` file.

    Parameters
    ----------
    label, client: names of columns (an ``.npz`` always has the arrays ``y`` and ``client``).
    classes: whether targets are classes; else numbers.
    """
    if data in BUILTIN:
        return _builtin(data, classes)
    path = Path(data).expanduser()
    if not path.is_file():
        raise DataError(
            f"task.data: got {data!r}{suggest(data, BUILTIN)}; expected one of: {', '.join(BUILTIN)}, or the path of an .npz, "
            ".parquet or .csv file that exists"
        )
    x, y, ids = read_columns(path, label, client)
    return make_dataset(x, y, ids, classes, str(path))


def make_dataset(
    x: NDArray[Any],
    y: NDArray[Any],
    client: NDArray[Any] | None,
    classes: bool,
    where: str,
    several: bool = False,
    whole: bool = False,
) -> Dataset:
    """Return a data set of checked tensors; labels that are strings become classes in alphabetical order.

    ``several``: a sample may have several labels, ``[n, C]``, 0 or 1 each. ``whole``: whether features that are whole numbers stay so,
    as in :func:`~motley.tasks.formats.checks.features`."""
    rows = features(x, where, whole)
    groups = None if client is None else grouped(client, where, len(rows))
    notes, test = {"data": Path(where).name}, np.zeros(len(rows), bool)
    if not classes:
        target = features(y, where).float()
        if len(target) != len(rows):
            raise DataError(f"{where}: {len(target)} targets for {len(rows)} samples")
        return Dataset(rows, target.view(len(rows), -1), None, test, groups, (), notes)
    names: tuple[str, ...] = ()
    if several:
        target, count = multilabel(y, where, len(rows))
        return Dataset(rows, target, count, test, groups, names, notes)
    labels = np.asarray(y)
    if labels.dtype.kind == "O" and not all(isinstance(word, str) for word in labels.ravel()):
        raise DataError(f"{where}: some labels are missing; fill or drop these rows")
    if labels.dtype.kind in "UO":
        words, labels = np.unique(labels.astype(str), return_inverse=True)
        names = tuple(str(word) for word in words)
    target, count = class_labels(labels, where, len(rows), len(names) or None, positions=True)
    return Dataset(rows, target, count, test, groups, names, notes)


def _builtin(name: str, classes: bool) -> Dataset:
    from sklearn import datasets

    if classes and name == "diabetes":
        raise DataError("task.data: diabetes has a number as its target; use task.name = 'tabular_regression'")
    loaders = {
        "breast_cancer": datasets.load_breast_cancer, "diabetes": datasets.load_diabetes,
        "iris": datasets.load_iris, "wine": datasets.load_wine,
    }  # fmt: skip
    data = loaders[name]()
    return make_dataset(data.data, data.target, None, classes, f"scikit-learn's {name}")


def feature_names(path: Path, label: str) -> list[str]:
    """Return the feature columns of a Parquet or CSV file, in order; none for other files."""
    if path.suffix not in (".parquet", ".csv"):
        return []
    return [name for name in _arrow(path).column_names if name != label]


def read_columns(path: Path, label: str = "y", client: str | None = None, like: Sequence[str] = ()) -> Columns:
    """Return features, targets and client ids of one file; every column that is neither label nor client is a feature.

    ``like``: the features to read, in this order (those of another client's file); empty: all.

    Raises
    ------
    DataError: unknown kind of file, no such column, features that are not numbers, truncated.
    """
    if path.suffix == ".npz":
        data = arrays(path)
        if "x" not in data or "y" not in data:
            raise DataError(f"{path} holds {', '.join(sorted(data)) or 'nothing'}; expected arrays x and y")
        return data["x"], data["y"], data.get("client")
    if path.suffix not in (".parquet", ".csv"):
        raise DataError(f"{path.name} is of no known kind; expected .npz, .parquet or .csv")
    table = _arrow(path)
    names = list(table.column_names)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(f"{path} has several columns {twice[0]!r}; give each a name of its own")
    for column in (label, *([client] if client else [])):
        if column not in names:
            raise DataError(f"{path} has no column {column!r}{suggest(column, names)}; its columns: {', '.join(names)}")
    values = {name: table.column(name).to_numpy() for name in names}
    inputs = [name for name in names if name not in (label, client)]
    if like and sorted(like) != sorted(inputs):
        raise DataError(f"{path} has the features {', '.join(inputs)}, another client's file has {', '.join(like)}")
    inputs = list(like) or inputs
    for name in inputs:
        if values[name].dtype.kind not in "biuf":
            raise DataError(f"{path}: column {name!r} is not of numbers ({values[name].dtype}); encode or drop it")
    x = np.stack([values[name].astype(np.float64) for name in inputs], axis=1) if inputs else np.zeros((len(table), 0))
    return x, values[label], values[client] if client else None


def _arrow(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        return parquet.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path} cannot be read as {path.suffix[1:]} ({reason}); it may be truncated or of another form"
        ) from None


def standardised(x: torch.Tensor) -> torch.Tensor:
    """Return each column scaled to mean 0 and standard deviation 1 (a constant column is only centred); float32, shape of ``x``."""
    wide = x.double()
    deviation = wide.std(0, correction=0)
    return ((wide - wide.mean(0)) / torch.where(deviation > 0, deviation, 1.0)).float()
