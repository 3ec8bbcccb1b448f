"""Standstill: the end of a run whose limits cannot be reached, because nothing moves any more.

A run without a number of rounds ends when its clock, its uploads or its model reach a limit. Where
all clients have crashed, devices take no time or nothing is uploaded, that may never be. So a run
ends, too, after :data:`MOST_STILL_STEPS` server steps in a row that brought none of its limits
nearer:

    stop.rounds           every step does
    stop.virtual_hours    virtual time passed
    stop.uplink_gb        an upload was billed on the papers' account
    stop.target           an update was accepted
    stop.patience         every step does

Only steps for which clients were asked count: where updates arrive at the same moment and each
makes a step, as under ``asynchronous``, those after the first work off what has arrived. A step in
which no client could be asked, while time passed, is neither: they may come back. After
:data:`MOST_IDLE_STEPS` of those since a limit came nearer, the run ends as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from motley.core.records import Outcome
from motley.rounds.round import Round
from motley.rounds.run_config import Stop
from motley.rounds.state import RunState

__all__ = [
    "MOST_IDLE_STEPS",
    "MOST_STILL_STEPS",
    "Moment",
    "count_steps",
    "given_limits",
    "moment_of",
    "standstill",
]

MOST_STILL_STEPS = 1_000
"""Steps in a row without a move after which a run ends."""
MOST_IDLE_STEPS = 100_000
"""Steps with nobody to ask, and without a move since, after which a run ends."""
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


def count_steps(stop: Stop, state: RunState, step: Round, before: Moment) -> None:
    """Count this server step in ``state`` if it brought no limit nearer, else begin anew;
    ``before``: how far the run was before it."""
    passed, uploaded = (now > then for now, then in zip(moment_of(state), before, strict=True))
    moves = {
        "rounds": True,
        "virtual_hours": passed,
        "uplink_gb": uploaded,
        "target": bool(np.isin(step.outcome, _TAUGHT).any()),
        "patience": True,
    }
    if any(moves[name] for name in given_limits(vars(stop))):
        state.still_steps = state.idle_steps = 0
    elif passed and step.nobody_there and not len(step.landed):
        state.idle_steps += 1
    elif state.asked:
        state.still_steps += 1


def standstill(stop: Stop, state: RunState) -> str | None:
    """Return the sentence that says why a run ends without having reached a limit; None where it
    goes on."""
    still = state.still_steps >= MOST_STILL_STEPS
    idle = state.idle_steps >= MOST_IDLE_STEPS
    endless = stop.rounds is None and stop.patience is None
    if not (endless and (still or idle)):
        return None
    names = given_limits(vars(stop))
    missing = " and ".join(_MISSING[name] for name in names)
    limits = " and ".join(f"stop.{name}" for name in names)
    ended = f"ended after round {state.version} without having reached {limits}: in the last"
    if still:
        return (
            f"{ended} {MOST_STILL_STEPS:,} rounds {missing}; look at device, network, failures and "
            "synchrony, or write stop.rounds, too"
        )
    return (
        f"{ended} {MOST_IDLE_STEPS:,} rounds {missing}, as no client was online; look at "
        "availability, change synchrony.idle_s, or write stop.rounds, too"
    )


def given_limits(stop: Mapping[str, Any]) -> list[str]:
    """Return the names of the limits that are given; ``metric`` belongs to ``patience``."""
    return [name for name, value in stop.items() if value is not None and name != "metric"]
