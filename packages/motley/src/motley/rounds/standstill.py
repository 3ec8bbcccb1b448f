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
from typing_extensions import override

from motley.core.records import Outcome
from motley.rounds.round import Round
from motley.rounds.run_config import Stop
from motley.rounds.stage import Stage
from motley.rounds.state import RunState

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


class Standstill(Stage):
    """Counts the server steps of a run without a number of rounds that bring it no nearer to its
    end.

    Parameters
    ----------
    stop: when the run ends.

    Attributes
    ----------
    still_steps: server steps since one brought a limit nearer, with somebody to ask.
    idle_steps: the same with nobody to ask.
    """

    name = "standstill"

    def __init__(self, stop: Stop) -> None:
        self.limits = given_limits(vars(stop))
        self.still_steps = 0
        self.idle_steps = 0
        # the clock in seconds, and the bits of the papers' account, before the step under way
        self._before = (0.0, 0)

    @override
    def save(self, state: RunState[Any]) -> Mapping[str, Any]:
        return {"limits": self.limits, "still": self.still_steps, "idle": self.idle_steps}

    @override
    def restore(self, state: RunState[Any], saved: Mapping[str, Any]) -> None:
        if saved["limits"] == self.limits:  # else another limit may be nearer
            self.still_steps = saved["still"]
            self.idle_steps = saved["idle"]

    def begin(self, state: RunState[Any]) -> None:
        """Take in how far a run is before a server step."""
        self._before = (state.clients.now_s, state.ledger.paper_bits)

    def count(self, state: RunState[Any], step: Round) -> None:
        """Count a server step if it brought no limit nearer, else begin anew."""
        seconds, bits = self._before
        passed = state.clients.now_s > seconds
        moves = {
            "virtual_hours": passed,
            "uplink_gb": state.ledger.paper_bits > bits,
            "target": bool(np.isin(step.outcome, _TAUGHT).any()),
        }
        if any(moves[name] for name in self.limits):
            self.still_steps = 0
            self.idle_steps = 0
        elif passed and step.nobody_there and not len(step.landed):
            self.idle_steps += 1
        elif state.under_way.asked:
            self.still_steps += 1

    def reason(self, state: RunState[Any]) -> str | None:
        """Return the sentence that says why the run ends without having reached a limit; None where
        it goes on."""
        still = self.still_steps >= MOST_STILL_STEPS
        if not still and self.idle_steps < MOST_IDLE_STEPS:
            return None
        missing = " and ".join(_MISSING[name] for name in self.limits)
        limits = " and ".join(f"stop.{name}" for name in self.limits)
        ended = f"ended after round {state.version} without having reached {limits}: in the last"
        if still:
            return (
                f"{ended} {MOST_STILL_STEPS:,} rounds {missing}; look at device, network, failures "
                "and synchrony, or write stop.rounds, too"
            )
        return (
            f"{ended} {MOST_IDLE_STEPS:,} rounds {missing}, as no client was online; look at "
            "availability, change synchrony.idle_s, or write stop.rounds, too"
        )


def given_limits(stop: Mapping[str, Any]) -> list[str]:
    """Return the names of the limits that are given; ``metric`` belongs to ``patience``."""
    return [name for name, value in stop.items() if value is not None and name != "metric"]
