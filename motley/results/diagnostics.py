"""What the notes of a diagnosed run (``evaluate = { diagnostics = true }``) say together once it is over."""

from __future__ import annotations

import numpy as np

from motley.results.load import Run
from motley.results.measures import Curve, note

__all__ = ["best_mu"]


def best_mu(run: Run) -> Curve:
    """The proximal weight that HeteRo-Select v1's Lemma A.4 calls best, at each diagnosed round.

    ``mu* = E lr (G^2 + B_sel^2) / ||w_0 - w*||^2`` with E local steps; the paper finds 0.09 to 0.11 at E = 2 and lr 0.01. Empty
    where nothing was diagnosed, or clients had no common ``E lr``; infinite where the model never moved.

    READING: w* is the model after the last diagnosed round, G and B_sel are those of the round (``diversity.G2``,
    ``diversity.B2_selected``).

    >>> import json
    >>> import pyarrow as pa
    >>> from pathlib import Path
    >>> told = {"diversity.G2": 3.0, "diversity.B2_selected": 1.0, "local_rate": 0.02, "moved_squared": 0.8}
    >>> rounds = pa.table({"round": [1, 2], "notes": [json.dumps(told), None]})
    >>> best_mu(Run(Path("."), {}, {"rounds": rounds})).y.round(6).tolist()
    [0.1]
    """
    moved, rate = note(run, "moved_squared"), note(run, "local_rate")
    square, spread = note(run, "diversity.G2"), note(run, "diversity.B2_selected")
    at = np.intersect1d(rate.x, np.intersect1d(square.x, spread.x))
    if not len(at) or not len(moved.x):
        return Curve(np.empty(0), np.empty(0))
    known = [curve.y[np.isin(curve.x, at)] for curve in (rate, square, spread)]
    with np.errstate(divide="ignore", invalid="ignore"):
        return Curve(at, known[0] * (known[1] + known[2]) / moved.y[-1])
