"""How long a client takes: download, local work and upload, one after the other, in seconds."""

from __future__ import annotations

import numpy as np

from motley.core.arrays import Floats
from motley.core.records import Reports

__all__ = ["ESTIMATES", "PARTS", "estimated_s", "measured_s", "seconds"]


PARTS = ("download", "compute", "upload")
ESTIMATES = frozenset(f"{part}_estimate_s" for part in PARTS)
"""The planner's estimates: system signals, free of bits."""
LONGEST = 1e15
"""Seconds beyond it count as it: sums and squares of durations stay finite."""


def seconds(values: Floats) -> Floats:
    """The same where it can be a duration, at most :data:`LONGEST`; NaN where it is negative, infinite or absent."""
    return np.where((values >= 0) & (values < np.inf), np.minimum(values, LONGEST), np.nan)


def measured_s(reports: Reports) -> Floats:
    """What each client took, ``[n]``."""
    return _total([getattr(reports, f"{part}_s") for part in PARTS])


def estimated_s(reports: Reports) -> Floats:
    """What the planner expects each client to take, ``[n]``."""
    return _total([reports.signal(f"{part}_estimate_s") for part in PARTS])


def _total(parts: list[Floats]) -> Floats:
    """The sum; an absent part counts nothing, but NaN where all are absent or one cannot be a duration."""
    whole, known = np.zeros(len(parts[0])), np.zeros(len(parts[0]), bool)
    for part in parts:
        there = ~np.isnan(part)
        known |= there
        whole += np.where(there, seconds(part), 0.0)
    return np.where(known, whole, np.nan)
