"""Virtual time: the clock, and when each dispatched client receives, computes and delivers, planned
before any training.

    download  bits_down / (down_mbps 10^6)
    compute   steps * step_s
    upload    bits_up / (up_mbps 10^6)

one after the other (docs/methods/timing-and-world.md#clock); a megabit is 10^6 bits, an infinite
link takes no time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import ConfigError, ContractError
from motley.core.work import FORWARD


@dataclass
class VirtualClock:
    """A clock of virtual seconds since the start of the run, which only advances.

    Its whole state is one number: ``VirtualClock(old.now_s)`` continues where ``old`` stopped.

    Example
    -------
    >>> clock = VirtualClock()
    >>> clock.advance(2.5)
    >>> clock.now_s
    2.5
    """

    now_s: float = 0.0

    def __post_init__(self) -> None:
        began_s, self.now_s = self.now_s, 0.0
        self.advance(began_s)

    def advance(self, to_s: float) -> None:
        """Set the clock to ``to_s``, which may not be earlier than now.

        Raises
        ------
        ContractError: a time before now. ConfigError: an infinite or undefined time, because a
        device or link never finishes.
        """
        if not math.isfinite(to_s):
            problem = (
                f"at {self.now_s} s of virtual time the next event would be at {to_s} s; "
                "expected a finite time"
            )
            raise ConfigError(f"{problem}: look at the options of device and network")
        if to_s < self.now_s:
            raise ContractError(f"the clock at {self.now_s} s was asked to go back to {to_s} s")
        self.now_s = float(to_s)


@dataclass(frozen=True)
class Timelines:
    """When dispatched clients receive, compute and deliver: one row per client, in virtual seconds.

    Parameters
    ----------
    client, dispatch, version, steps: int64 ``[n]``; version is the model version the client trains
    from.
    start_s, downloaded_s, computed_s, arrives_s: float64 ``[n]``, seconds since the start of the
    run. The upload of a dropped client never arrives: its ``arrives_s`` is the time at which it
    drops out.
    dropped: bool ``[n]``.
    """

    client: Ids
    dispatch: Ints
    version: Ints
    steps: Ints
    start_s: Floats
    downloaded_s: Floats
    computed_s: Floats
    arrives_s: Floats
    dropped: Bools

    def __len__(self) -> int:
        return len(self.client)

    def __getitem__(self, which: ArrayLike | slice) -> Timelines:
        at: Any = which if isinstance(which, slice) else np.asarray(which)
        return Timelines(*(getattr(self, name)[at] for name in _COLUMNS))

    def sent_share(self, until_s: float) -> Floats:
        """Return the share of each upload that has left its client by then, ``[n]``, in [0, 1]; 0
        of a client that drops out."""
        there = (self.arrives_s <= until_s) & ~self.dropped
        # 0 / 0 of an upload that takes no time: it is there, and the share is not used.
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (until_s - self.computed_s) / (self.arrives_s - self.computed_s)
        on_the_way = (self.computed_s < until_s) & ~there & ~self.dropped
        return np.where(there, 1.0, np.where(on_the_way, share, 0.0))

    def known_until(self, until_s: float) -> Timelines:
        """Return what a server knows of these clients by then: of those that are under way no
        seconds, nor that they will drop out."""
        away = self.arrives_s > until_s
        moments = {
            name: np.where(away, np.nan, getattr(self, name))
            for name in ("downloaded_s", "computed_s", "arrives_s")
        }
        return replace(self, dropped=self.dropped & ~away, **moments)

    @classmethod
    def empty(cls) -> Timelines:
        """Return timelines without rows."""
        ints = np.zeros(0, np.int64)
        floats = np.zeros(0)
        return cls(
            client=ints,
            dispatch=ints,
            version=ints,
            steps=ints,
            start_s=floats,
            downloaded_s=floats,
            computed_s=floats,
            arrives_s=floats,
            dropped=np.zeros(0, bool),
        )

    @classmethod
    def concat(cls, first: Timelines, second: Timelines) -> Timelines:
        """Return the rows of ``first`` followed by those of ``second``."""
        if not len(first):
            return second
        return cls(
            *(np.concatenate([getattr(first, name), getattr(second, name)]) for name in _COLUMNS)
        )


_COLUMNS = tuple(f.name for f in fields(Timelines))


def transfer_s(bits: ArrayLike, mbps: ArrayLike) -> Floats:
    """Return the seconds that so many bits take on links of so many megabits a second; arguments
    broadcast."""
    with np.errstate(over="ignore"):  # the clock refuses an infinite time
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
    """Return the timelines of clients that are dispatched together.

    Parameters
    ----------
    client: ids ``[n]``. Everything else is ``[n]`` or one number for all.
    dispatch, version, steps: number of the dispatch, version of the model received, local steps to
    take.
    start_s: when the download begins.
    step_s: seconds per local step.
    bits_down, down_mbps, bits_up, up_mbps: message sizes (0 down for a client that holds this
    version already) and links.
    drop_at: share of the local work after which the client drops out, in [0, 1]; NaN if it does
    not.
    """
    client = np.atleast_1d(np.asarray(client, np.int64))

    def column(value: ArrayLike) -> Floats:
        return np.full(client.shape, value, np.float64)

    def whole(value: ArrayLike) -> Ints:
        return np.full(client.shape, value, np.int64)

    drop_share = column(drop_at)
    dropped = ~np.isnan(drop_share)
    start = column(start_s)
    downloaded = start + transfer_s(column(bits_down), down_mbps)
    computed = downloaded + whole(steps) * column(step_s) * np.where(dropped, drop_share, 1.0)
    arrives = np.where(dropped, computed, computed + transfer_s(column(bits_up), up_mbps))
    return Timelines(
        client=client,
        dispatch=whole(dispatch),
        version=whole(version),
        steps=whole(steps),
        start_s=start,
        downloaded_s=downloaded,
        computed_s=computed,
        arrives_s=arrives,
        dropped=dropped,
    )


def probe_s(
    bits_down: ArrayLike,
    down_mbps: ArrayLike,
    batches: ArrayLike,
    step_s: ArrayLike,
    bits_up: ArrayLike,
    up_mbps: ArrayLike,
) -> Floats:
    """Return the seconds that each probed client needs, ``[n]``.

    The client downloads the model (0 bits where it holds it already), does a forward pass over
    ``batches`` batches at a third of a local step each, and uploads the measured numbers. The
    probing phase lasts as long as its slowest client: ``probe_s(...).max(initial=0.0)``.
    """
    forward = np.asarray(batches, np.float64) * FORWARD * np.asarray(step_s, np.float64)
    return np.atleast_1d(transfer_s(bits_down, down_mbps) + forward + transfer_s(bits_up, up_mbps))
