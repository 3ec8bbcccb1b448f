"""Deadline rounds: more clients are asked than needed, and nobody is waited for beyond a moment.

Bonawitz, Eichner, Grieskamp et al.: *Towards Federated Learning at Scale: System Design*, MLSys 2019 (arXiv:1902.01046).
Specification: optimisation-and-compression B3.

    ask  min(K, ceil(o M))  clients;   step as soon as M have delivered, everybody has, or D seconds have passed

Symbols: ``M`` the cohort; ``o`` (``over_select``) 1.0, often 1.3; ``D`` (``seconds``), infinite by default; ``least`` fewest uploads
worth a step: with fewer the round is abandoned, the model stays, time and bytes are spent. Ties in time by number of dispatch.

``late = "drop"`` ignores who has not delivered. ``late = "partial"`` lets a client take only the steps it has time for,
``floor((D - T_down - T_up) / step_s)``; with none it counts as dropped. Use it with FedProx or FedNova, else slow clients are
weighted down without a word.

Deviations and readings
-----------------------
* INTERPRETATION-D what was cancelled before it was delivered is not billed up; its download is.
* The server cannot know that the rest will be late: without over-selection it waits for D unless everybody is in or gone.
* Whoever is slow takes part less often: the learned objective is the mixture weighted by speed. The report's participation
  panel shows it.

>>> from motley.timing.deadline import Deadline
>>> Deadline(seconds=10.0, over_select=1.3).over_select
1.3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from motley.core.errors import ConfigError
from motley.timing.synchrony import Dispatch, Step, Synchrony, View, Wait

__all__ = ["Deadline"]


@dataclass(frozen=True)
class Deadline(Synchrony):
    """Step at a deadline, or when enough have delivered.

    Parameters
    ----------
    seconds: D, virtual seconds from the moment a cohort is asked; ``inf`` for none.
    over_select: o, how many times the cohort is asked. late: what becomes of the slow, see above.
    least: fewest uploads for a server step. idle_s: how long a round lasts when nobody could be asked.
    """

    seconds: float = float("inf")
    over_select: float = 1.0
    late: Literal["drop", "partial"] = "drop"
    least: int = 1
    idle_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ConfigError(f"got seconds = {self.seconds}; expected a positive number of virtual seconds, or inf")
        if not 1 <= self.over_select < np.inf:
            raise ConfigError(f"got over_select = {self.over_select}; expected at least 1, e.g. 1.3 to ask 30% more")
        if self.late not in ("drop", "partial"):
            raise ConfigError(f"got late = {self.late!r}; expected 'drop' or 'partial'")
        if self.late == "partial" and not np.isfinite(self.seconds):
            raise ConfigError('got late = "partial" without a deadline; set seconds to the time a client has')
        if self.least < 1:
            raise ConfigError(f"got least = {self.least}; expected at least 1")
        if not 0 <= self.idle_s < np.inf:
            raise ConfigError(f"got idle_s = {self.idle_s}; expected a finite number of seconds, at least 0")

    def steps(self, whole: NDArray[np.int64], spare_s: NDArray[np.float64], step_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """At most so many steps as fit between download and upload, 0 where not one does."""
        if self.late == "drop":
            return whole
        fit = np.floor((self.seconds + spare_s) / step_s + 1e-6)
        return np.clip(fit, 0, whole).astype(np.int64)

    def decide(self, view: View) -> Dispatch | Wait | Step:
        """Dispatch once per server step; step at the M-th arrival, the last one, or the deadline."""
        if not view.asked:
            return Dispatch(int(np.ceil(self.over_select * view.cohort - 1e-6)))
        flights = view.flights
        if not len(flights):
            end = view.asked_s + self.idle_s
            return Wait(end) if end > view.now_s else Step(np.zeros(0, bool), np.zeros(0, bool))
        coming = np.flatnonzero(~flights.dropped)
        order = coming[np.lexsort((flights.dispatch[coming], flights.arrives_s[coming]))]
        deadline = view.asked_s + self.seconds
        unsure = flights.dropped.any() and np.isfinite(deadline)  # who is gone looks like who is late, until the deadline
        last = deadline if unsure else float(flights.arrives_s.max())
        enough = float(flights.arrives_s[order[view.cohort - 1]]) if len(order) >= view.cohort else last
        end = min(enough, last, deadline)
        if end > view.now_s:
            return Wait(end)
        here = order[flights.arrives_s[order] <= view.now_s][: view.cohort]
        accept = np.zeros(len(flights), bool)
        accept[here] = len(here) >= self.least
        return Step(accept, ~accept & ~(flights.dropped & (flights.arrives_s <= view.now_s)))
