"""How long a client's turn took, as every rule counts it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from motley.core.records import Reports

__all__ = ["durations"]


def durations(reports: Reports) -> NDArray[np.float64]:
    """Compute plus upload in seconds, ``[n]`` (selectors-baselines 0.1); a part that is absent counts as 0.

    NaN where neither part is told, or the sum is not a positive finite number: nothing is divided by it.
    """
    parts = np.stack([reports.compute_s, reports.upload_s])
    total = np.nansum(parts, axis=0)
    return np.where(np.isfinite(total) & (total > 0), total, np.nan)
