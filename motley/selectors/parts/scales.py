"""Numbers brought to one scale before they are added up in a score; NaN means absent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["fill_absent", "known_mean", "loss_value"]

Floats = NDArray[np.float64]


def known_mean(values: Floats) -> float:
    """Mean of those present; 0 when none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def fill_absent(values: Floats) -> Floats:
    """Absent numbers become the mean of the others (0 when there are none): neither preferred nor avoided."""
    missing = np.isnan(values)
    return np.where(missing, known_mean(values), values) if missing.any() else values


def loss_value(loss: Floats, eps: float) -> Floats:
    """``(L - min L) / (max L - min L + eps)`` over those with a loss, their mean for the others; all 0 without any loss."""
    known = loss[~np.isnan(loss)] if np.isnan(loss).any() else loss
    if not len(known):
        return np.zeros(len(loss))
    low = known.min()
    return fill_absent((loss - low) / (known.max() - low + eps))
