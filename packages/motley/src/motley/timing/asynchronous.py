"""FedAsync: the server mixes each client's model into its own as soon as it arrives.

Xie, Koyejo, Gupta: *Asynchronous Federated Optimization*, 2019 (arXiv:1903.03934).

    alpha_t = alpha s(v - v_k);     x <- (1 - alpha_t) x + alpha_t w_k;     v <- v + 1

Symbols: ``w_k`` the *model* of the client (not its update added to x: with a stale start these
differ); ``alpha`` 0.6 or 0.9; ``s`` the staleness discount: ``constant``, ``polynomial`` (a = 0.5)
or ``hinge`` (a = 10, b = 4). The paper's clients minimize with a proximal term of 0.005 or 0.01:
choose ``algorithm = { name = "fedprox", mu = 0.005 }``.

Deviations and readings
-----------------------
* ``alpha_t`` is computed from the constant alpha at every arrival; multiplying a stored alpha by s
  each time would let it decay.
* Buffers are mixed with the same ``alpha_t``. Methods that upload more than an update are refused:
  their other parts cannot be mixed.
* Updates older than ``max_staleness`` are discarded (their traffic is counted, they are reported as
  late). An arrival is a server step, so that each of them uses up a round of ``stop.rounds``.

Worked
------
alpha = .6: polynomial .6, .424264, .346410, .3, .268328; hinge .6 up to 4, .0545455 at 5, .0285714
at 6.

>>> from motley.timing.asynchronous import Asynchronous
>>> Asynchronous(alpha=0.9, staleness="hinge", a=10.0).alpha
0.9
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.timing.overlapping import Discount, Overlapping, arrival_order, refill
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Wait


@dataclass(frozen=True)
class Asynchronous(Overlapping):
    """Take a server step on every arrival, mixing models.

    Parameters
    ----------
    alpha: share of a fresh model.
    staleness, a, b: the discount, see :mod:`motley.timing.overlapping`.
    max_staleness: older models are discarded.
    idle_s: how long the server waits when no client is available.
    """

    paper: ClassVar[Paper] = cite("xie2019asynchronous")
    alpha: float = 0.6
    staleness: Discount = "polynomial"
    a: float = 0.5
    b: float = 4.0
    max_staleness: int | None = None
    idle_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ConfigError(f"got alpha = {self.alpha}; expected more than 0 and at most 1")
        self.check_options()

    @override
    def max_uploads(self, cohort: int) -> int:
        """Return 1: every arrival is a server step of its own."""
        return 1

    @override
    def refuses(self, uploads: frozenset[str], weights: str) -> str | None:
        """Return why it cannot be used: uploads of more than an update, or coefficients that would
        scale the mixing."""
        if "delta" not in uploads:
            return (
                "asynchronous mixing is defined for models, and this algorithm uploads none; "
                "use synchronous or deadline"
            )
        more = sorted(uploads - {"delta"})
        if more:
            return (
                "asynchronous mixing is defined for models, but this algorithm also uploads "
                f"{', '.join(more)}; use buffered"
            )
        if weights in ("horvitz_thompson", "selector"):
            return (
                f'asynchronous mixing has its own alpha; weights = "{weights}" would scale it '
                'again, use "uniform"'
            )
        return None

    @override
    def decide(self, view: ServerView) -> Dispatch | Wait | ServerStep:
        """Process one arrival at a time, in order of arrival and dispatch; then refill; then
        wait."""
        arrived = arrival_order(view, view.arrived)
        if not len(arrived):
            return refill(view, self.idle_s)
        first = np.arange(len(view.in_flight)) == arrived[0]
        stale = first & self.too_stale(view)
        return ServerStep(first & ~stale, stale, self.alpha * self.discounts(view), mix=True)
