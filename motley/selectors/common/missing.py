"""What to take for a client of which something is not known."""

from __future__ import annotations

from typing import Literal

import numpy as np

from motley.core.arrays import Floats

__all__ = ["filled"]


def filled(values: Floats, by: Literal["mean", "max"] = "mean", nobody: float = 1.0) -> Floats:
    """``values`` ``[K]`` with each NaN replaced by the mean, or the largest, of the others; ``nobody`` where all are NaN.

    The mean neither prefers nor avoids a client for what is not known, the largest prefers it.
    """
    missing = np.isnan(values)
    if not missing.any():
        return values
    if missing.all():
        return np.full(len(values), nobody)
    return np.where(missing, getattr(np, by)(values[~missing]), values)
