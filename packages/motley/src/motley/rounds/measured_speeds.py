"""What a server knows of its clients' speed that has nothing but their answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motley.core.arrays import Bools, Floats, Ids
from motley.timing.timeline import Timelines

__all__ = ["MeasuredSpeeds"]


@dataclass
class MeasuredSpeeds:
    """How long clients took the last time they delivered.

    Parameters
    ----------
    seconds: float64 ``[K, 3]``, of a local step, of the download and of the upload; NaN for a
    client that never delivered.
    """

    seconds: Floats

    @classmethod
    def none(cls, population: int) -> MeasuredSpeeds:
        """Return what is known before round 1 of so many clients: nothing."""
        return cls(np.full((population, 3), np.nan))

    def learn(self, lines: Timelines) -> Bools:
        """Take in dispatches that ended; return which of them were measured, ``[n]``."""
        took = (
            (lines.computed_s - lines.downloaded_s) / np.maximum(lines.steps, 1),
            lines.downloaded_s - lines.start_s,
            lines.arrives_s - lines.computed_s,
        )
        seen = np.stack(took, axis=1)
        good: Bools = np.isfinite(seen).all(axis=1) & ~lines.dropped
        self.seconds[lines.client[good]] = seen[good]
        return good

    def estimates(self, ids: Ids, steps: Ids | Floats, up_bits: int) -> dict[str, Floats]:
        """Return the planner's signals ``[n]``: what was measured of these clients the last time
        they delivered.

        READING: a client that never delivered counts as the mean of those that did, and while none
        has, one second is taken for each transfer and each step.

        Parameters
        ----------
        steps: planned local steps of each, ``[n]``. up_bits: of an upload."""
        known = self.seconds[np.isfinite(self.seconds).all(axis=1)]
        usual = known.mean(axis=0) if len(known) else np.ones(3)
        own = self.seconds[ids]
        step_s, down_s, up_s = np.where(np.isfinite(own), own, usual).T
        with np.errstate(divide="ignore"):
            mbps = up_bits / up_s / 1e6
        return {
            "compute_estimate_s": step_s * steps,
            "download_estimate_s": down_s,
            "upload_estimate_s": up_s,
            "uplink_mbps": mbps,
        }
