"""``.npz`` files: ``x``, ``y`` and optionally ``client`` and ``test``; or ``x_train``, ``y_train``, ``x_test``, ``y_test``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from motley.core.errors import DataError
from motley.tasks.base import Pool
from motley.tasks.formats.checks import as_images, class_labels, features, grouped
from motley.tasks.packs import arrays

__all__ = ["read"]


def read(path: Path) -> Pool:
    """Samples of one file. Names of classes may be given as ``classes``; ``test`` flags rows of the set's own test half.

    Raises
    ------
    DataError: pickled objects, missing arrays, NaN features, labels out of range, lengths that differ.
    """
    data = dict(arrays(path))
    where = str(path)
    if {"x_train", "y_train", "x_test", "y_test"} <= set(data):
        data["x"] = np.concatenate([data["x_train"], data["x_test"]])
        data["y"] = np.concatenate([data["y_train"], data["y_test"]])
        data["test"] = np.repeat([False, True], [len(data["y_train"]), len(data["y_test"])])
    if "x" not in data or "y" not in data:
        found = ", ".join(sorted(data)) or "nothing"
        raise DataError(f"{where} holds {found}; expected arrays x and y (or x_train, y_train, x_test, y_test)")
    x = as_images(features(data["x"], where))
    names = tuple(str(name) for name in data["classes"]) if "classes" in data else ()
    y, classes = class_labels(data["y"], where, len(x), len(names) or None)
    test = np.asarray(data.get("test", np.zeros(len(x))), bool)
    if test.shape != (len(x),):
        raise DataError(f"{where}: test flags of shape {list(test.shape)} for {len(x)} samples; expected one per sample")
    groups = grouped(data["client"], where, len(x)) if "client" in data else None
    return Pool(x, torch.as_tensor(y), classes, test, groups, names, {"data": path.name})
