"""FedBuff: clients work without waiting for each other; the server steps whenever a buffer of their updates is full.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba: *Federated Learning with Buffered Asynchronous Aggregation*,
AISTATS 2022 (arXiv:2106.06639). Specification: optimisation-and-compression B1.

    C clients under way;  on each arrival (started from version v_k):  buffer += s(v - v_k) delta_k
    after K_b arrivals:   x <- x + lr_server buffer / K_b,   v <- v + 1;   every arrival is replaced by a new client

Symbols: ``K_b`` (``buffer``), 10 in the paper; ``C`` the experiment's cohort; ``s`` the staleness discount (default
``(1 + tau)^-1/2``), tau counted in server steps. The divisor is K_b, not ``sum s``.

Deviations and readings
-----------------------
* The experiment's ``weights`` decide what stands for 1/K_b; ``uniform`` is the paper's.
* Updates older than ``max_staleness`` are discarded (paid for, reported as late).
* A client whose update waits in the buffer is not asked again before the step (the paper's may be).
* INTERPRETATION-D buffers (running statistics) are averaged with weights ``s / sum s``.
* Nobody can be asked and nobody is under way: a round of ``idle_s`` without an update, which counts; a part-filled buffer waits.

>>> from motley.timing.buffered import Buffered
>>> Buffered(buffer=5).buffer
5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from motley.core.errors import ConfigError
from motley.timing.staleness import Shape, check, discount
from motley.timing.synchrony import Dispatch, Step, Synchrony, View, Wait, fill_up

__all__ = ["Buffered"]


@dataclass(frozen=True)
class Buffered(Synchrony):
    """Step on a full buffer.

    Parameters
    ----------
    buffer: K_b. staleness, a, b: the discount, see :mod:`motley.timing.staleness`. max_staleness: older updates are discarded.
    idle_s: how long the server waits when nobody could be asked.
    """

    buffer: int = 10
    staleness: Shape = "polynomial"
    a: float = 0.5
    b: float = 4.0
    max_staleness: int | None = None
    idle_s: float = 60.0

    overlaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.buffer < 1:
            raise ConfigError(f"got buffer = {self.buffer}; expected at least 1 update")
        check(self.staleness, self.a, self.b, self.max_staleness)
        if not 0 < self.idle_s < np.inf:
            raise ConfigError(f"got idle_s = {self.idle_s}; expected a positive number of seconds")

    @property
    def least(self) -> int:
        """A buffer's worth: a client waits in the buffer at most once."""
        return self.buffer

    def most(self, cohort: int) -> int:
        """A buffer's worth."""
        return self.buffer

    def refuses(self, uploads: frozenset[str], weights: str) -> str | None:
        """Clients that send no update which could be discounted."""
        if "delta" not in uploads:
            return "a buffer discounts late updates, and this algorithm uploads none; use synchronous or deadline"
        return None

    def decide(self, view: View) -> Dispatch | Wait | Step:
        """Step when the buffer is full, else fill up who is under way, else wait for the next arrival."""
        flights = view.flights
        tau = view.tau
        stale = view.arrived & (tau > (np.inf if self.max_staleness is None else self.max_staleness))
        here = np.flatnonzero(view.arrived & ~stale)
        if len(here) >= self.buffer:
            first = here[np.lexsort((flights.dispatch[here], flights.arrives_s[here]))][: self.buffer]
            accept = np.zeros(len(flights), bool)
            accept[first] = True
            return Step(accept, stale, scale=discount(self.staleness, tau, self.a, self.b))
        decision = fill_up(view, self.idle_s)
        return Step(decision.accept, stale) if isinstance(decision, Step) else decision
