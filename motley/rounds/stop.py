"""When a run ends: the first limit reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt, Le

from motley.core.bounds import Count, Positive

__all__ = ["Stop", "Target"]


@dataclass(frozen=True)
class Target:
    """What is good enough, on the global test set where there is one, else on the mean over the clients' own. One is needed."""

    accuracy: Annotated[float, Gt(0), Le(1)] | None = None
    """Share of correct answers, reached from below."""
    loss: Positive | None = None
    """Mean loss, reached from above (for tasks without accuracy)."""

    @property
    def empty(self) -> bool:
        """Whether neither figure is given."""
        return self.accuracy is None and self.loss is None

    def reached(self, score: float) -> bool:
        """Return whether the headline metric reaches one of the figures; an unknown score (NaN) reaches none."""
        return (self.accuracy is not None and score >= self.accuracy) or (self.loss is not None and score <= self.loss)


@dataclass(frozen=True)
class Stop:
    """When a run ends: at the first of the limits given. At least one is needed."""

    rounds: Count | None = None
    """Rounds (server steps)."""
    virtual_hours: Positive | None = None
    """Hours of virtual time; the run ends with the first server step at or after it."""
    uplink_gb: Positive | None = None
    """Uploaded traffic in 10^9 bytes, in the papers' accounting."""
    target: Target | None = None
    """End as soon as an evaluation reaches this."""

    def reached(self, version: int, now_s: float, uplink_bits: float, score: float) -> bool:
        """Return whether any limit is reached after ``version`` server steps; ``score`` is the newest headline metric."""
        return (
            (self.rounds is not None and version >= self.rounds)
            or (self.virtual_hours is not None and now_s >= 3600 * self.virtual_hours)
            or (self.uplink_gb is not None and uplink_bits >= 8e9 * self.uplink_gb)
            or (self.target is not None and self.target.reached(score))
        )
