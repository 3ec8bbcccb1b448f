"""When a run ends: the first limit reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Stop"]


@dataclass(frozen=True)
class Stop:
    """Limits; whichever comes first.

    Parameters
    ----------
    rounds: server steps. virtual_hours: of the federation's clock. uplink_gb: gigabytes (10^9 bytes) sent up, in the papers'
    accounting. target: headline metric to reach, e.g. ``{"accuracy": 0.9}`` (a loss is reached from above).
    """

    rounds: int | None = None
    virtual_hours: float | None = None
    uplink_gb: float | None = None
    target: Mapping[str, float] = field(default_factory=dict)

    def reached(self, version: int, now_s: float, uplink_bits: float, score: float) -> bool:
        """Whether any limit is reached; an unknown score (NaN) reaches no target."""
        hit = [score <= wanted if name == "loss" else score >= wanted for name, wanted in self.target.items()]
        return (
            (self.rounds is not None and version >= self.rounds)
            or (self.virtual_hours is not None and now_s >= 3600 * self.virtual_hours)
            or (self.uplink_gb is not None and uplink_bits >= 8e9 * self.uplink_gb)
            or any(hit)
        )
