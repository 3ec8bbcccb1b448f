"""FlexCom: clients for which sending costs more energy send less.

Li, Shi, Hou, Li, Pan, Han: *To Talk or to Work: Flexible Communication Compression for Energy
Efficient Federated Learning over Heterogeneous Mobile Edge Devices*, IEEE INFOCOM 2021
(arXiv:2012.11804).

    min  sum_k e_k theta_k     s.t.   sum_k p_k A_k theta_k^-a <= eps,    least <= theta_k <= 1
    theta_k = clip(c g_k, least, 1),    g_k = (p_k A_k / e_k)^(1 / (1 + a))

Symbols: ``e_k = 32 D / B_k`` energy of a whole upload (a client's power does not differ and
cancels); ``p_k`` share of the cohort's samples; ``A_k`` size of its error. ``c`` is what meets the
target: ``meet = "traffic"``: the mean share is the budget theta_t; ``meet = "error"``: eps is the
error of theta_t for all clients, so at the same error less energy is spent.

State, plain arrays, with ``error = "last_update"`` only: ``ids`` [n] and ``square`` [n], the
squared norm of each client's last accepted update, renewed with every server step. It holds the
clients that took part.

Deviations and readings
-----------------------
* INTERPRETATION-D all of it: only the paper's abstract was at hand (compression by client, least
  energy for computing and sending under a bound on convergence). The energy of computing does not
  depend on theta and drops out. Clients are drawn uniformly: choose ``selector = "uniform"``.
* ``error = "alike"`` (default) is A_k = 1. INTERPRETATION-D ``"last_update"``: a client without an
  accepted update has the mean A_k of the others.
* INTERPRETATION-D a dead link (B_k = 0) sends ``least`` and stays out; an infinitely fast one costs
  next to nothing; with such links alone e_k = 1.

>>> context = AllocationContext(
...     np.arange(2), budget=0.2, average=0.2, warm=False, size=10**6, examples=np.ones(2),
...     steps=np.ones(2), compute_s=np.ones(2), uplink_mbps=np.array([1.0, 4.0]),
... )
>>> FlexCom().ratios({}, context).round(6).tolist()
[0.133333, 0.266667]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Reports
from motley.core.upload_ratios import finish_time, ratios_for
from motley.transport.allocators.allocator import (
    LEAST,
    AllocationContext,
    Allocator,
    State,
    check_least,
    last_errors,
    no_errors,
    remember_errors,
)
from motley.transport.budgets import Budget

HALVINGS = 100
"""Number of bisections of the interval of the factor c."""
SMALL = 1e-12
"""The smallest error or energy, relative to the cohort's largest: lower values are raised to it."""


@dataclass(frozen=True)
class FlexCom(Allocator):
    """Upload ratios of least total energy.

    Parameters
    ----------
    meet: the target, see above.
    a: exponent of the error model, positive.
    error: what A_k is.
    least: smallest share.
    """

    meet: Literal["traffic", "error"] = "traffic"
    a: float = 1.0
    error: Literal["alike", "last_update"] = "alike"
    least: float = LEAST

    requires: ClassVar[frozenset[str]] = frozenset({"uplink_mbps"})
    paper: ClassVar[Paper] = cite("li2021flexcom")

    def __post_init__(self) -> None:
        check_least(self.least)
        if not 0 < self.a < math.inf:
            raise ConfigError(f"got a = {self.a}; expected a positive exponent")

    @override
    def init(self) -> State:
        return no_errors() if self.error == "last_update" else {}

    @override
    def ratios(self, state: State, context: AllocationContext) -> Floats:
        energy = context.whole_s
        alive = np.isfinite(energy)
        theta = np.full(len(context.ids), self.least)
        if not alive.any():
            return theta
        error = context.shares * (
            last_errors(state, context.ids) if self.error == "last_update" else 1.0
        )
        error = error[alive]
        energy = energy[alive]
        error = np.maximum(error, SMALL * error.max())
        energy = (
            np.maximum(energy, SMALL * energy.max()) if energy.max() > 0 else np.ones(len(energy))
        )
        gain = (error / energy) ** (1.0 / (1.0 + self.a))
        if self.meet == "traffic":
            theta[alive] = self._by_traffic(gain, context.budget)
        else:
            theta[alive] = self._by_error(gain, error, context.budget)
        return theta

    def _by_traffic(self, gain: Floats, theta: float) -> Floats:
        """Return ``clip(c g_k)`` of mean ``budget``: what clients with uploads of 1 / g_k seconds
        send by time c."""
        idle = np.zeros(len(gain))
        return ratios_for(
            finish_time(idle, 1.0 / gain, theta, self.least), idle, 1.0 / gain, self.least
        )

    def _by_error(self, gain: Floats, error: Floats, theta: float) -> Floats:
        """Return ``clip(c g_k)`` for the smallest c whose error is at most that of ``budget`` for
        all clients."""
        allowed = error.sum() * theta**-self.a
        if theta >= 1.0:
            return np.ones(len(gain))
        low = math.log(self.least / gain.max())
        high = math.log(1.0 / gain.min())
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            reached = error @ np.clip(math.exp(middle) * gain, self.least, 1.0) ** -self.a
            low, high = (low, middle) if reached <= allowed else (middle, high)
        return np.clip(math.exp(high) * gain, self.least, 1.0)

    @override
    def observe(self, state: State, budget: Budget, reports: Reports, step_norm: float) -> State:
        return remember_errors(state, reports) if self.error == "last_update" else state
