"""Deadline rounds: more clients are dispatched than needed, and the server waits for none of them
beyond a deadline.

Bonawitz, Eichner, Grieskamp et al.: *Towards Federated Learning at Scale: System Design*, MLSys
2019 (arXiv:1902.01046).

    dispatch  min(K, ceil(o M))  clients;
    step      as soon as M or all have delivered, or D seconds have passed since the dispatch

Symbols: ``M`` the cohort; ``o`` (``over_select``) 1.0, often 1.3 (INTERPRETATION-R); ``D``
(``seconds``), infinite by default; ``min_uploads`` fewest uploads for a server step: with fewer the
round is abandoned, the model stays, time and traffic are spent. Ties in time are broken by the
number of the dispatch.

``late = "drop"`` ignores clients that have not delivered. ``late = "partial"`` lets a client take
only the steps it has time for, ``floor((D - T_down - T_up) / step_s)``; with none it counts as
dropped. A server that only measures its clients asks each for the steps that would have been in
time by what was measured of it last, late or not, but for one at least. Use it with FedProx or
FedNova, else the updates of slow clients are smaller and silently count less.

Deviations and readings
-----------------------
* INTERPRETATION-D a simulated client that is late is cut when the server steps: what it has sent
  of its upload by then is billed, and its seconds are not known. A real one cannot be cut; its
  upload is billed in full when it comes.
* The server cannot know that the remaining clients will be late: without over-selection it waits
  for D unless all have arrived.
* An upload that arrives at the deadline itself is in time, and up to 1e-6 of D later, so that
  rounding makes nobody late.
* Slow clients take part less often: the learned objective is the mixture weighted by speed. The
  report's participation panel shows it.

Worked
------
Durations (4, 7, 9, 12, 30): 5 dispatched, 3 wanted: 9 s, clients {0, 1, 2}; D = 10: the same
clients, 10 s. Steps of 1 s, 2 s of transfer, D = 10: 8 steps.

>>> from motley.timing.deadline import Deadline
>>> Deadline(seconds=10.0, over_select=1.3).over_select
1.3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ints
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Synchrony, Wait, check_idle

ROUNDING = 1e-6
"""Share of a step, or of the deadline, by which what ends at the deadline itself may miss it: three
steps of 0.1 s take 0.30000000000000004 s."""


@dataclass(frozen=True)
class Deadline(Synchrony):
    """Take a server step at a deadline, or as soon as enough clients have delivered.

    Parameters
    ----------
    seconds: D, virtual seconds from the dispatch of a cohort; ``inf`` for none.
    over_select: o, dispatched clients as a multiple of the cohort.
    late: the treatment of slow clients, see above.
    min_uploads: fewest uploads for a server step.
    idle_s: how long a round lasts when no client is available, or all have dropped out and no
    deadline ends it before; 0: until a client is back.
    """

    paper: ClassVar[Paper] = cite("bonawitz2019towards")
    seconds: float = float("inf")
    over_select: float = 1.0
    late: Literal["drop", "partial"] = "drop"
    min_uploads: int = 1
    idle_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ConfigError(
                f"got seconds = {self.seconds}; expected a positive number of virtual seconds, or "
                "inf"
            )
        if not 1 <= self.over_select < np.inf:
            raise ConfigError(
                f"got over_select = {self.over_select}; expected at least 1, e.g. 1.3 to ask 30% "
                "more"
            )
        if self.late not in ("drop", "partial"):
            raise ConfigError(f"got late = {self.late!r}; expected 'drop' or 'partial'")
        if self.late == "partial" and not np.isfinite(self.seconds):
            raise ConfigError(
                'got late = "partial" without a deadline; set seconds to the time a client has'
            )
        if self.min_uploads < 1:
            raise ConfigError(f"got min_uploads = {self.min_uploads}; expected at least 1")
        check_idle(self.idle_s, zero=True)

    @property
    @override
    def limits_work(self) -> bool:
        return self.late == "partial"

    @property
    @override
    def min_population(self) -> int:
        return self.min_uploads

    @override
    def asked(self, cohort: int) -> int:
        """Return how many clients a round asks: ``ceil(o M)``."""
        # 1e-6: 1.1 * 10 is a bit more than 11 in floats, and would ask a twelfth client.
        return int(np.ceil(self.over_select * cohort - 1e-6))

    @override
    def steps(self, planned: Ints, spare_s: Floats, step_s: Floats) -> Ints:
        """Return at most so many steps as fit between download and upload; 0 where not even one
        does."""
        if not self.limits_work:
            return planned
        fit = np.floor((self.seconds + spare_s) / step_s + ROUNDING)
        return np.clip(fit, 0, planned).astype(np.int64)

    def _ends_s(self, dispatched_s: float, arrives_s: Floats) -> float:
        """Return when the server stops waiting, of uploads that arrive at these moments ``[n]``: at
        the deadline, or with the last of those that only rounding has put behind it."""
        in_time = arrives_s <= dispatched_s + self.seconds * (1 + ROUNDING)
        return float(arrives_s[in_time].max(initial=dispatched_s + self.seconds))

    @override
    def decide(self, view: ServerView) -> Dispatch | Wait | ServerStep:
        """Dispatch once per server step; step at the M-th arrival, the last one, or the
        deadline."""
        if not view.dispatched:
            return Dispatch(self.asked(view.cohort))
        in_flight = view.in_flight
        if not len(in_flight):
            end = view.idle_until_s(self.idle_s)
            if not view.found_none:
                end = min(end, view.dispatched_s + self.seconds)
            return (
                Wait(end) if end > view.now_s else ServerStep(np.zeros(0, bool), np.zeros(0, bool))
            )
        coming = np.flatnonzero(~in_flight.dropped)
        order = coming[np.lexsort((in_flight.dispatch[coming], in_flight.arrives_s[coming]))]
        deadline = self._ends_s(view.dispatched_s, in_flight.arrives_s[coming])
        # before it, dropped and late look the same to the server
        uncertain = in_flight.dropped.any() and np.isfinite(deadline)
        last = deadline if uncertain else float(in_flight.arrives_s.max())
        if not len(coming):
            last = max(last, view.idle_until_s(self.idle_s))
        if len(order) >= view.cohort:
            enough = float(in_flight.arrives_s[order[view.cohort - 1]])
        else:
            enough = last
        end = min(enough, last, deadline)
        if end > view.now_s:
            return Wait(end)
        arrived = order[in_flight.arrives_s[order] <= view.now_s][: view.cohort]
        accept = np.zeros(len(in_flight), bool)
        accept[arrived] = len(arrived) >= self.min_uploads
        return ServerStep(
            accept, ~accept & ~(in_flight.dropped & (in_flight.arrives_s <= view.now_s))
        )
