"""Standstill: the end of a run whose limits cannot be reached, because nothing moves any more.

A run without a number of rounds ends when its clock, its uploads or its model reach a limit. Where
all clients have crashed, devices take no time or nothing is uploaded, that may never be. So a run
ends, too, after :data:`MOST_STILL_STEPS` server steps in a row that brought none of its limits
nearer:

    stop.rounds           every step does
    stop.virtual_hours    virtual time passed
    stop.uplink_gb        an upload was billed on the papers' account
    stop.target           an update was accepted

A step in which no client could be asked, while time passed, is neither: they may come back.
"""

from __future__ import annotations

import numpy as np

from motley.core.records import Outcome
from motley.rounds.round import Round
from motley.rounds.run_config import Stop
from motley.rounds.state import RunState

__all__ = ["MOST_STILL_STEPS", "Moment", "moment_of", "standstill", "still_steps"]

MOST_STILL_STEPS = 1_000
"""Steps in a row without a move after which a run ends."""
_TAUGHT = (int(Outcome.ACCEPTED), int(Outcome.REHEARSED))
_MISSING = {
    "virtual_hours": "no virtual time passed",
    "uplink_gb": "nothing was uploaded",
    "target": "no update was accepted",
}

Moment = tuple[float, int]
"""The clock in seconds, and the bits of the papers' account."""


def moment_of(state: RunState) -> Moment:
    """Return how far a run is."""
    return state.clients.now_s, state.ledger.paper_bits


def still_steps(stop: Stop, state: RunState, step: Round, before: Moment) -> int:
    """Return the server steps in a row, up to this one, that brought no limit nearer; ``before``:
    how far the run was before this step."""
    passed, uploaded = (now > then for now, then in zip(moment_of(state), before, strict=True))
    moves = {
        "rounds": True,
        "virtual_hours": passed,
        "uplink_gb": uploaded,
        "target": bool(np.isin(step.outcome, _TAUGHT).any()),
    }
    if any(moves[name] for name in _given(stop)):
        return 0
    waits = passed and step.nobody_there and not len(step.landed)
    return state.still_steps + (not waits)


def standstill(stop: Stop, state: RunState) -> str | None:
    """Return the sentence that says why a run ends without having reached a limit; None where it
    goes on."""
    if state.still_steps < MOST_STILL_STEPS or stop.rounds is not None:
        return None
    missing = " and ".join(_MISSING[name] for name in _given(stop))
    limits = " and ".join(f"stop.{name}" for name in _given(stop))
    return (
        f"ended after round {state.version} without having reached {limits}: in the last "
        f"{MOST_STILL_STEPS:,} rounds {missing}; look at device, network, failures and synchrony, "
        "or write stop.rounds, too"
    )


def _given(stop: Stop) -> list[str]:
    """Return the names of the limits that are given."""
    return [name for name, value in vars(stop).items() if value is not None]
