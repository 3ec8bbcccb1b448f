"""Numbers brought to one scale before they are added up in a score; NaN means absent."""

from __future__ import annotations

import numpy as np

from motley.core.arrays import Floats
from motley.selectors.common.missing import filled

__all__ = ["known_mean", "loss_value"]


def known_mean(values: Floats) -> float:
    """Mean of those present; 0 when none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def loss_value(loss: Floats, eps: float) -> Floats:
    """``(L - min L) / (max L - min L + eps)`` over those with a loss, their mean for the others; all 0 without any loss."""
    known = loss[~np.isnan(loss)] if np.isnan(loss).any() else loss
    if not len(known):
        return np.zeros(len(loss))
    low, high = 0.5 * known.min(), 0.5 * known.max()  # halved, which is exact, no difference overflows
    return filled((0.5 * loss - low) / (high - low + 0.5 * eps))
