"""Dispatches of a deployment: one record per client that was sent out, and the tables that the
round loop reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.records import Outcome
from motley.core.saved_state import FIXED
from motley.engines.engine import TrainResult
from motley.rounds.in_flight import DISPATCH_COLUMNS, InFlight
from motley.timing.timeline import Timelines


@dataclass(eq=False)
class DeployedDispatch:
    """One client that was sent out, and what became of it.

    Parameters
    ----------
    client, dispatch, version, steps: of the request.
    start_s, expires_s: when it was sent, and when it is given up. draw_index ..
    paper_bits: the columns of :data:`~motley.rounds.in_flight.DISPATCH_COLUMNS`.
    width: share of the ranks that the model sent has.
    want: signals that it is to report.
    bits_down: of the request.
    message: the transport's number of it.
    arrives_s: when the answer came; infinite before.
    compute_s: seconds of work, as the client says.
    bits_up: of its answer.
    outcome: as soon as it is known.
    result: the upload, checked.
    masked: the upload under secure aggregation.
    scale: factor for its staleness."""

    client: int
    dispatch: int
    version: int
    steps: int
    start_s: float
    expires_s: float
    draw_index: int
    model_updates: int
    examples: int
    weight: float
    lr: float
    rehearsal: bool
    score: float
    theta: float
    budget: float
    paper_bits: int
    width: float = 1.0
    want: tuple[str, ...] = ()
    bits_down: int = 0
    message: str = ""
    arrives_s: float = math.inf
    compute_s: float = math.nan
    bits_up: int = 0
    outcome: Outcome | None = field(default=None, metadata=FIXED)
    result: TrainResult | None = field(default=None, repr=False, metadata=FIXED)
    masked: bytes = field(default=b"", repr=False, metadata=FIXED)
    scale: float = 1.0


def waiting_table(dispatches: Sequence[DeployedDispatch]) -> InFlight:
    """Return dispatches as a synchrony sees them: a client that has not delivered yet arrives
    never."""
    start_s = _column(dispatches, "start_s", np.float64)
    arrives_s = _column(dispatches, "arrives_s", np.float64)
    dropped = np.array([dispatch.outcome == Outcome.DROPPED for dispatch in dispatches], bool)
    ints = {
        name: _column(dispatches, name, np.int64)
        for name in ("client", "dispatch", "version", "steps")
    }
    lines = Timelines(
        **ints,
        start_s=start_s,
        downloaded_s=arrives_s,
        computed_s=arrives_s,
        arrives_s=arrives_s,
        dropped=dropped,
    )
    return InFlight(
        lines, {name: _column(dispatches, name, dtype) for name, dtype in DISPATCH_COLUMNS.items()}
    )


def landed_table(dispatches: Sequence[DeployedDispatch]) -> InFlight:
    """Return dispatches as reports and table rows are made of them.

    READING: the server measures how long an answer took, and the client says how long it worked;
    the rest was transfer, and is divided between download and upload as their bytes are."""
    seen = waiting_table(dispatches)
    lines = seen.timelines
    down = seen.columns["bits_down"].astype(float)
    up = seen.columns["bits_up"].astype(float)
    elapsed_s = np.where(np.isfinite(lines.arrives_s), lines.arrives_s - lines.start_s, np.nan)
    work = np.fmin(np.fmax(_column(dispatches, "compute_s", np.float64), 0.0), elapsed_s)
    downloaded = lines.start_s + (elapsed_s - work) * down / np.maximum(down + up, 1.0)
    computed = downloaded + work
    arrives = np.where(np.isfinite(lines.arrives_s), lines.arrives_s, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        up_mbps = np.where(arrives > computed, up / (arrives - computed) / 1e6, np.nan)
    timed = Timelines(
        client=lines.client,
        dispatch=lines.dispatch,
        version=lines.version,
        steps=lines.steps,
        start_s=lines.start_s,
        downloaded_s=downloaded,
        computed_s=computed,
        arrives_s=arrives,
        dropped=lines.dropped,
    )
    return InFlight(timed, {**seen.columns, "up_mbps": up_mbps})


def _column(dispatches: Sequence[DeployedDispatch], name: str, dtype: Any) -> NDArray[Any]:
    return np.array([getattr(dispatch, name, 0) for dispatch in dispatches], dtype)
