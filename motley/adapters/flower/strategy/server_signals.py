"""Signals that the server computes from replies; the formulas are in :mod:`motley.core.server_signals`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats

__all__ = ["LEARNING_RATES", "last_layer", "model_vector"]

Arrays = Mapping[str, NDArray[Any]]

LEARNING_RATES = "learning_rates"
"""Metric key under which a client reports the sum of its local steps' learning rates."""
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def _parameters(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """All floating arrays but BatchNorm's running statistics, in the record's order."""
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f" and not name.endswith(_STATISTICS)}


def _flat(arrays: Iterable[NDArray[Any]]) -> Floats:
    parts = [np.asarray(array, np.float64).ravel() for array in arrays]
    return np.concatenate(parts) if parts else np.zeros(0)


def model_vector(arrays: Arrays) -> Floats:
    """Return a model's parameters as one vector ``[D]``: all floating arrays but BatchNorm's running statistics, in order."""
    return _flat(_parameters(arrays).values())


def last_layer(arrays: Arrays) -> Floats:
    """Return weights and bias of a model's last matrix ``[d]``; all parameters where the model has no matrix."""
    parameters = list(_parameters(arrays).values())
    matrices = [i for i, array in enumerate(parameters) if array.ndim == 2]
    if not matrices:
        return _flat(parameters)
    weight, following = parameters[matrices[-1]], parameters[matrices[-1] + 1 : matrices[-1] + 2]
    return _flat([weight, *(array for array in following if array.shape == weight.shape[:1])])
