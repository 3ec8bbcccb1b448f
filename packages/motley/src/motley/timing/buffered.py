"""FedBuff: clients train without waiting for each other; the server steps whenever its buffer of
updates is full.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba: *Federated Learning with Buffered Asynchronous
Aggregation*, AISTATS 2022 (arXiv:2106.06639).

    C clients in flight;  on each arrival (started from version v_k):  buffer += s(v - v_k) delta_k
    after K_b arrivals:   x <- x + lr_server buffer / K_b,   v <- v + 1;
    every arrival is replaced at once

Symbols: ``K_b`` (``buffer``), 10 in the paper (INTERPRETATION-R); ``C`` the experiment's cohort;
``s`` the staleness discount (default ``(1 + tau)^-1/2``), tau counted in server steps. The divisor
is K_b, not ``sum s``.

Deviations and readings
-----------------------
* The experiment's ``weights`` give the coefficients; left out they are ``uniform``, 1/K_b, as
  published.
* An arrival is replaced by any client that is not under way, the one that has just delivered
  included: it may be in a buffer twice. Two trainings of a client are in order, and the second
  starts from what the first left at the client; the selector hears of the last.
* READING a client that broke off is asked again after the next server step, so that there is one.
* ``refill = "idle"``: a client whose update waits in the buffer is not sent out again before the
  server step, so that a client is in a step once. Where few clients are idle the server then waits
  longer. Private runs and deployments need it.
* Updates older than ``max_staleness`` are discarded with the next server step (their traffic is
  counted, they are reported as late); they use up no round.
* INTERPRETATION-D buffers (running statistics) are averaged with weights ``s / sum s``.
* If no client is available and none is in flight, a round of ``idle_s`` without an update passes
  and counts; a part-filled buffer waits.
* Fast clients take part more often: look at participation counts. Other code often leaves out 1 /
  K_b, or averages models in place of adding updates to the current one.

Worked
------
s = 1, .707107, .577350, .5, .447214. x = 1, K_b = 2, delta = .2 at staleness 0 and .4 at 3: x =
1.2. Two clients, K_b = 1, durations 1 and 2.5: the second arrives at 2.5 with staleness 2. With K_b
= C and equal durations it is uniform FedAvg. Three clients of 0.8, 1.8 and 2.0 s, all under way,
K_b = 2: 200 steps take 174.0 s at once (by then 217 + 96 + 87 = 400 have arrived) and 200.6 s idle
(every second step waits for the third client: 2.6 + 99 * 2.0).

>>> from motley.timing.buffered import Buffered
>>> Buffered(buffer=5).buffer
5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.timing.overlapping import Discount, Overlapping, arrival_order, refill
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Wait


@dataclass(frozen=True)
class Buffered(Overlapping):
    """Take a server step when the buffer is full.

    Parameters
    ----------
    buffer: K_b.
    staleness, a, b: the discount, see :mod:`motley.timing.overlapping`.
    max_staleness: older updates are discarded.
    idle_s: how long the server waits when no client is available.
    refill: who may replace a client that has delivered: ``"at once"`` any client that is not under
    way, as published; ``"idle"`` none whose own update waits in the buffer.
    """

    paper: ClassVar[Paper] = cite("nguyen2022fedbuff")
    published_weights: ClassVar[str | None] = "uniform"

    buffer: int = 10
    staleness: Discount = "polynomial"
    a: float = 0.5
    b: float = 4.0
    max_staleness: int | None = None
    idle_s: float = 60.0
    refill: Literal["at once", "idle"] = "at once"

    def __post_init__(self) -> None:
        if self.buffer < 1:
            raise ConfigError(f"got buffer = {self.buffer}; expected at least 1 update")
        self.check_options()

    @property
    @override
    def asks_again(self) -> bool:
        """Whether a client may be sent out again while its update waits in the buffer."""
        return self.refill == "at once"

    @property
    @override
    def min_population(self) -> int:
        """The size of the buffer where a client's update is in it at most once, else 1."""
        return 1 if self.asks_again else self.buffer

    @override
    def max_uploads(self, cohort: int) -> int:
        """Return the size of the buffer."""
        return self.buffer

    @override
    def refuses(self, uploads: frozenset[str], weights: str) -> str | None:
        """Return why it cannot be used: clients that send no update which could be discounted."""
        if "delta" not in uploads:
            return (
                "a buffer discounts late updates, and this algorithm uploads none; use "
                "synchronous or deadline"
            )
        return None

    @override
    def decide(self, view: ServerView) -> Dispatch | Wait | ServerStep:
        """Step when the buffer is full, else dispatch replacements, else wait for the next
        arrival."""
        stale = view.arrived & self.too_stale(view)
        arrived = arrival_order(view, view.arrived & ~stale)
        if len(arrived) >= self.buffer:
            accept = np.zeros(len(view.in_flight), bool)
            accept[arrived[: self.buffer]] = True
            return ServerStep(accept, stale, scale=self.discounts(view))
        decision = refill(view, self.idle_s)
        return ServerStep(decision.accept, stale) if isinstance(decision, ServerStep) else decision
