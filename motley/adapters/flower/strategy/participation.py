"""The table of which clients took part in which round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from motley.core.server_signals import Value

__all__ = ["ParticipationRow", "participation"]


@dataclass(frozen=True)
class ParticipationRow:
    """One client in one round.

    Parameters
    ----------
    outcome: ``"accepted"``, ``"dropped"`` or ``"rejected"``. seconds: from sending to arrival; NaN without a reply.
    bits_down, bits_up: sizes of the message and the reply. signals: what the selector observes. reason: of a loss or rejection.
    """

    round: int
    client: int
    outcome: str
    seconds: float
    bits_down: float
    bits_up: float
    signals: Mapping[str, Value] = field(default_factory=dict)
    reason: str = ""


def participation(rows: Iterable[ParticipationRow]) -> str:
    """Return a table to print: outcome, loss, seconds from sending to arrival, kilobytes down and up, and the reason of a loss.

    >>> lost = ParticipationRow(1, 2, "dropped", math.nan, 8000.0, 0.0)
    >>> print(participation([ParticipationRow(1, 0, "accepted", 2.5, 8000.0, 8000.0, {"loss": 0.7}), lost]))
    round  client  outcome       loss  seconds  kB down    kB up
        1       0  accepted    0.7000      2.5      1.0      1.0
        1       2  dropped          -        -      1.0      0.0
    """
    lines = ["round  client  outcome       loss  seconds  kB down    kB up"]
    for row in rows:
        value = row.signals.get("loss", row.signals.get("loss_rms"))
        loss = "-" if value is None or np.ndim(value) else f"{float(value):.4f}"
        seconds = "-" if math.isnan(row.seconds) else f"{row.seconds:.1f}"
        numbers = f"{seconds:>9}{row.bits_down / 8000:>9.1f}{row.bits_up / 8000:>9.1f}"
        reason = f"  {' '.join(row.reason.split())[:60]}" if row.reason else ""
        lines.append(f"{row.round:>5}  {row.client:>6}  {row.outcome:<10}{loss:>8}{numbers}{reason}")
    return "\n".join(lines)
