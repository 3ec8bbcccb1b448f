"""What a server knows of its clients' speed that has nothing but their answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motley.core.arrays import Bools, Floats, Ids
from motley.timing.synchrony import Synchrony
from motley.timing.timeline import Timelines

GUESS_S = 1.0
"""Of a step and of a transfer while nobody has delivered, for rules that order clients once, before
round 1: whoever takes fewer steps counts as the faster one."""


@dataclass
class MeasuredSpeeds:
    """How long clients took the last time they delivered.

    Parameters
    ----------
    seconds: float64 ``[K, 3]``, of a local step, of the download and of a whole upload; NaN for a
    client that never delivered.
    """

    seconds: Floats

    @classmethod
    def none(cls, population: int) -> MeasuredSpeeds:
        """Return what is known before round 1 of so many clients: nothing."""
        return cls(np.full((population, 3), np.nan))

    def learn(self, lines: Timelines, up_bits: Ids, whole_bits: int | Ids) -> Bools:
        """Take in dispatches that ended; return which of them were measured, ``[n]``.

        Parameters
        ----------
        up_bits: of each upload, ``[n]``.
        whole_bits: of one that is not compressed, a number or ``[n]``: a smaller one counts as if
        it had taken so much longer."""
        durations_s = (
            (lines.computed_s - lines.downloaded_s) / np.maximum(lines.steps, 1),
            lines.downloaded_s - lines.start_s,
            (lines.arrives_s - lines.computed_s)
            * np.maximum(whole_bits / np.maximum(up_bits, 1), 1.0),
        )
        seen = np.stack(durations_s, axis=1)
        # a late client has no arrival yet, and one that broke off did not do all its steps
        good: Bools = np.isfinite(seen).all(axis=1) & ~lines.dropped
        self.seconds[lines.client[good]] = seen[good]
        return good

    def estimates(
        self, ids: Ids, steps: Ids | Floats, whole_bits: int | Ids, guess_s: float = 0.0
    ) -> dict[str, Floats]:
        """Return the planner's signals ``[n]``: what was measured of these clients the last time
        they delivered.

        READING: a client that never delivered counts as the mean of those that did, and while none
        has, all take no time, so that a deadline lets them be tried.

        Parameters
        ----------
        steps: planned local steps of each, ``[n]``.
        whole_bits: of an upload that is not compressed, a number or ``[n]``.
        guess_s: of each transfer and each step while nobody has delivered."""
        delivered = self.seconds[np.isfinite(self.seconds).all(axis=1)]
        usual = delivered.mean(axis=0) if len(delivered) else np.full(3, guess_s)
        own = self.seconds[ids]
        step_s, down_s, up_s = np.where(np.isfinite(own), own, usual).T
        # A transfer that took no measurable time is of infinite speed.
        with np.errstate(divide="ignore", invalid="ignore"):
            mbps = whole_bits / up_s / 1e6
        return {
            "compute_estimate_s": step_s * steps,
            "download_estimate_s": down_s,
            "upload_estimate_s": up_s,
            "uplink_mbps": mbps,
        }


def steps_in_time(
    synchrony: Synchrony, planned: Ids, seconds: Floats, sent: float | Floats = 1.0
) -> Ids:
    """Return the local steps that clients are asked for, ``[m]``: as many as a deadline leaves
    them by what was measured of them, but one at least; all of them where nothing was.

    READING: what a client works besides its steps was measured as a part of them.

    Parameters
    ----------
    planned: the full local work in steps, ``[m]``.
    seconds: ``[m, 3]``, of a step, the download and a whole upload; NaN for a client of which
    nothing was measured.
    sent: share of a whole upload's bits that it will send.
    """
    step_s, down_s, up_s = seconds.T
    other_s = np.nan_to_num(down_s + up_s * np.minimum(sent, 1.0))
    # A client that nobody measured is given all its work below; the 1 s a step keeps NaN out of the
    # division meanwhile, and 1e-9 a step that took no measurable time.
    fit = synchrony.steps(planned, -other_s, np.maximum(np.nan_to_num(step_s, nan=1.0), 1e-9))
    return np.where(np.isfinite(step_s), np.maximum(fit, 1), planned)
