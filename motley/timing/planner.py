"""When each client will receive, compute and deliver, worked out before anything is learned. Pure functions of columns.

    download  bits_down / (down_mbps 10^6)        compute  steps * step_s        upload  bits_up / (up_mbps 10^6)

one after the other (optimisation-and-compression B0); a megabit is 10^6 bits, an infinite link takes no time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Floats
from motley.timing.timeline import Timelines

__all__ = ["FORWARD", "plan", "probe_s", "transfer_s"]


FORWARD = 1.0 / 3.0
"""A forward pass over a batch, as a share of a local step on it (the backward pass costs twice the forward)."""


def transfer_s(bits: ArrayLike, mbps: ArrayLike) -> Floats:
    """Seconds that so many bits take on links of so many megabits a second; broadcast."""
    with np.errstate(over="ignore"):  # a time without end is refused by the clock
        return np.asarray(bits, np.float64) / (np.asarray(mbps, np.float64) * 1e6)


def plan(
    client: ArrayLike,
    dispatch: ArrayLike,
    version: ArrayLike,
    steps: ArrayLike,
    start_s: ArrayLike,
    step_s: ArrayLike,
    bits_down: ArrayLike,
    down_mbps: ArrayLike,
    bits_up: ArrayLike,
    up_mbps: ArrayLike,
    drop_at: ArrayLike = np.nan,
) -> Timelines:
    """Timelines of the clients sent out together.

    Parameters
    ----------
    client: ids ``[n]``. Everything else is ``[n]`` or one number for all.
    dispatch, version, steps: number of the sending-out, version of the model received, local steps to take.
    start_s: when the download begins. step_s: seconds per local step.
    bits_down, down_mbps, bits_up, up_mbps: message sizes (0 down for a client that holds this version already) and links.
    drop_at: share of the local work after which the client is gone, in [0, 1]; NaN: it stays. A dropped client never arrives:
    its ``computed_s`` and ``arrives_s`` are the moment it is gone.
    """
    client = np.atleast_1d(np.asarray(client, np.int64))

    def column(value: ArrayLike) -> Floats:
        return np.broadcast_to(np.asarray(value, np.float64), client.shape)

    def whole(value: ArrayLike) -> NDArray[np.int64]:
        return np.broadcast_to(np.asarray(value, np.int64), client.shape).copy()

    gone = column(drop_at)
    dropped = ~np.isnan(gone)
    start = column(start_s).copy()
    downloaded = start + transfer_s(column(bits_down), down_mbps)
    computed = downloaded + whole(steps) * column(step_s) * np.where(dropped, gone, 1.0)
    arrives = np.where(dropped, computed, computed + transfer_s(column(bits_up), up_mbps))
    return Timelines(client, whole(dispatch), whole(version), whole(steps), start, downloaded, computed, arrives, dropped)


def probe_s(
    bits_down: ArrayLike,
    down_mbps: ArrayLike,
    batches: ArrayLike,
    step_s: ArrayLike,
    bits_up: ArrayLike,
    up_mbps: ArrayLike,
) -> Floats:
    """Seconds each candidate of a probe needs, ``[n]``: download (0 bits where it holds the model already), a forward pass over
    so many batches at a third of a local step each, upload of the measured numbers. The phase lasts as long as the slowest:
    ``probe_s(...).max(initial=0.0)``."""
    forward = np.asarray(batches, np.float64) * FORWARD * np.asarray(step_s, np.float64)
    return np.atleast_1d(transfer_s(bits_down, down_mbps) + forward + transfer_s(bits_up, up_mbps))
