"""OptRate: one upload ratio for all clients, larger in rounds whose updates are large.

Cui, Su, Zhou, Liu: *Optimal Rate Adaption in Federated Learning with Compressed Communications*,
IEEE INFOCOM 2022 (arXiv:2112.06694).

    error model    E_t(theta) = A_t theta^-a,    A_t = |mean update of the step before|^2
    choose         min sum_t E_t(theta_t)   s.t.   mean theta = theta_avg
                   =>  theta_t proportional to A_t^(1 / (1 + a))
    online         theta_t = clip((a A_t / nu_t)^(1 / (1 + a)), least, 1)
                   nu_t+1  = nu_t exp(gain (mean theta so far - theta_avg) / theta_avg)

Symbols: ``nu`` price of a unit of the ratio, adapted until the mean ratio so far is theta_avg.

State, plain arrays ``[1]``: ``price`` (log nu, NaN before the first step), ``error`` (log A_t),
``spent`` (sum of the shares so far), ``rounds``. It evolves with every server step; the shares of a
round are a function of it alone.

Deviations and readings
-----------------------
* INTERPRETATION-D all of it: only the paper's abstract was at hand (a rate adapted to the training,
  the same for all clients).
* INTERPRETATION-D nu starts where the first measured A_t gives theta_avg; with A_t the same in all
  rounds so does every round. Before any step theta_avg is sent.
* ``a`` is an option and is not fitted to updates.
* A round in which nothing was folded keeps A_t, and counts in the mean.
* The allocator makes its own schedule: a budget that is not constant, or has a warm-up, is refused.

>>> price = np.log([4 / 0.09])
>>> states = [{"error": np.log([A]), "price": price} for A in (4.0, 1.0, 1.0)]
>>> [round(OptRate().share(state, 0.2), 6) for state in states]
[0.3, 0.15, 0.15]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Reports
from motley.transport.allocators.allocator import (
    LEAST,
    AllocationContext,
    Allocator,
    State,
    check_least,
)
from motley.transport.budgets import Budget, ConstantBudget


@dataclass(frozen=True)
class OptRate(Allocator):
    """The same upload ratio for all clients, by the size of the last server step.

    Parameters
    ----------
    a: exponent of the error model, positive.
    gain: rate at which the price adapts.
    least: smallest ratio.
    """

    a: float = 1.0
    gain: float = 0.5
    least: float = LEAST

    paper: ClassVar[Paper] = cite("cui2022optrate")

    def __post_init__(self) -> None:
        check_least(self.least)
        if not 0 < self.a < math.inf:
            raise ConfigError(f"got a = {self.a}; expected a positive exponent")
        if not 0 <= self.gain < math.inf:
            raise ConfigError(
                f"got gain = {self.gain}; expected a number of at least 0 (0 keeps the first price)"
            )

    @override
    def refuses(self, budget: Budget) -> str | None:
        if isinstance(budget, ConstantBudget) and not budget.warm_up:
            return super().refuses(budget)
        return (
            '"optrate" makes its own schedule around an average; use a constant budget without '
            "warm-up"
        )

    @override
    def init(self) -> State:
        return {
            "price": np.full(1, np.nan),
            "error": np.full(1, np.nan),
            "spent": np.zeros(1),
            "rounds": np.zeros(1),
        }

    def share(self, state: State, average: float) -> float:
        """Return theta_t, the same for all clients."""
        price = float(state["price"][0])
        error = float(state["error"][0])
        if math.isnan(price):
            wanted = math.log(average)
        else:
            wanted = (math.log(self.a) + error - price) / (1.0 + self.a)
        return max(math.exp(min(wanted, 0.0)), self.least)

    @override
    def ratios(self, state: State, context: AllocationContext) -> Floats:
        return np.full(len(context.ids), self.share(state, context.average))

    @override
    def observe(self, state: State, budget: Budget, reports: Reports, step_norm: float) -> State:
        average = budget.average
        price = state["price"]
        error = state["error"]
        spent = state["spent"] + self.share(state, average)
        rounds = state["rounds"] + 1
        if 0 < step_norm < math.inf:
            error = np.full(1, 2.0 * math.log(step_norm))
        if np.isnan(price[0]):
            price = math.log(self.a) + error - (1.0 + self.a) * math.log(average)
        else:
            price = price + self.gain * (spent / rounds - average) / average
        return {"price": price, "error": error, "spent": spent, "rounds": rounds}
