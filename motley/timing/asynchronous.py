"""FedAsync: the server mixes in each model as it arrives.

Xie, Koyejo, Gupta: *Asynchronous Federated Optimization*, 2019 (arXiv:1903.03934). Specification: optimisation-and-compression B2.

    alpha_t = alpha s(v - v_k);     x <- (1 - alpha_t) x + alpha_t w_k;     v <- v + 1

Symbols: ``w_k`` the *model* of the client (not its update added to x: with a stale start these differ); ``alpha`` 0.6 or 0.9;
``s`` the staleness discount: ``constant``, ``polynomial`` (a = 0.5) or ``hinge`` (a = 10, b = 4). The paper's clients minimise with a
proximal pull of 0.005 or 0.01: choose ``algorithm = { name = "fedprox", mu = 0.005 }``.

Deviations and readings
-----------------------
* ``alpha_t`` is made of the constant alpha at every arrival; multiplying a stored alpha by s each time would let it decay.
* Buffers are mixed with the same ``alpha_t``. Methods that upload more than an update are refused: their parts do not mix.
* Updates older than ``max_staleness`` are discarded (paid for, reported as late).

>>> from motley.timing.asynchronous import Asynchronous
>>> Asynchronous(alpha=0.9, staleness="hinge", a=10.0).alpha
0.9
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from motley.core.errors import ConfigError
from motley.timing.staleness import Shape, check, discount
from motley.timing.synchrony import Dispatch, Step, Synchrony, View, Wait, fill_up

__all__ = ["Asynchronous"]


@dataclass(frozen=True)
class Asynchronous(Synchrony):
    """Step on every arrival, mixing models.

    Parameters
    ----------
    alpha: share of a fresh model. staleness, a, b: the discount, see :mod:`motley.timing.staleness`.
    max_staleness: older models are discarded. idle_s: how long the server waits when nobody could be asked.
    """

    alpha: float = 0.6
    staleness: Shape = "polynomial"
    a: float = 0.5
    b: float = 4.0
    max_staleness: int | None = None
    idle_s: float = 60.0

    overlaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ConfigError(f"got alpha = {self.alpha}; expected more than 0 and at most 1")
        check(self.staleness, self.a, self.b, self.max_staleness)
        if not 0 < self.idle_s < np.inf:
            raise ConfigError(f"got idle_s = {self.idle_s}; expected a positive number of seconds")

    def most(self, cohort: int) -> int:
        """Every arrival is a step of its own."""
        return 1

    def refuses(self, uploads: frozenset[str], weights: str) -> str | None:
        """Uploads of more than an update, and coefficients that would scale the mixing."""
        if "delta" not in uploads:
            return "asynchronous mixing is defined for models, and this algorithm uploads none; use synchronous or deadline"
        more = sorted(uploads - {"delta"})
        if more:
            return f"asynchronous mixing is defined for models, but this algorithm also uploads {', '.join(more)}; use buffered"
        if weights in ("horvitz_thompson", "selector"):
            return f'asynchronous mixing has its own alpha; weights = "{weights}" would scale it again, use "uniform"'
        return None

    def decide(self, view: View) -> Dispatch | Wait | Step:
        """One arrival at a time, in order of arrival and dispatch; then fill up; then wait."""
        flights = view.flights
        tau = view.tau
        here = np.flatnonzero(view.arrived)
        if len(here):
            first = here[np.lexsort((flights.dispatch[here], flights.arrives_s[here]))[0]]
            taken = np.arange(len(flights)) == first
            stale = taken & (tau > (np.inf if self.max_staleness is None else self.max_staleness))
            return Step(taken & ~stale, stale, self.alpha * discount(self.staleness, tau, self.a, self.b), mix=True)
        return fill_up(view, self.idle_s)
