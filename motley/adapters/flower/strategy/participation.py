"""Who took part, as a table to read."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from motley.adapters.flower.strategy.coordinator import Row

__all__ = ["participation"]


def participation(rows: Iterable[Row]) -> str:
    """One line for each client and round: outcome, loss, seconds from sending to arrival, kilobytes down and up, and why not.

    >>> print(participation([Row(1, 0, "accepted", 2.5, 8000.0, 8000.0, {"loss": 0.7}), Row(1, 2, "dropped", math.nan, 8000.0, 0.0)]))
    round  client  outcome       loss  seconds  kB down    kB up
        1       0  accepted    0.7000      2.5      1.0      1.0
        1       2  dropped          -        -      1.0      0.0
    """
    lines = ["round  client  outcome       loss  seconds  kB down    kB up"]
    for row in rows:
        loss = row.signals.get("loss", row.signals.get("loss_rms"))
        said = "-" if loss is None or np.ndim(loss) else f"{float(loss):.4f}"
        numbers = f"{_seconds(row.seconds):>9}{row.bits_down / 8000:>9.1f}{row.bits_up / 8000:>9.1f}"
        reason = f"  {' '.join(row.reason.split())[:60]}" if row.reason else ""
        lines.append(f"{row.round:>5}  {row.client:>6}  {row.outcome:<10}{said:>8}{numbers}{reason}")
    return "\n".join(lines)


def _seconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"
