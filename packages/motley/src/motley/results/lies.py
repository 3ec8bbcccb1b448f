"""Measures of runs in which clients lie."""

from __future__ import annotations

import numpy as np

from motley.results import measures
from motley.results.load import Run

__all__ = ["liar_share"]


def liar_share(run: Run) -> float:
    """Return which share of the clients that were sent out lied; NaN where the world has no
    dishonest clients."""
    liars = measures.note(run, "liars")
    rounds, selected = (
        np.asarray(run.column("rounds", name), float) for name in ("round", "selected")
    )
    chosen = float(np.nansum(selected[np.isin(rounds, liars.x)]))
    return float(liars.y.sum()) / chosen if chosen else float("nan")
