"""FedCG's upload ratios for any selector's cohort: they minimize the time of the slowest client at
a given compression error.

Jiang, Xu, Xu, Wang, Qian: *Heterogeneity-Aware Federated Learning with Adaptive Client Selection
and Gradient Compression*, IEEE INFOCOM 2023 (arXiv:2212.09483).

    min T  s.t.  a_k + theta_k r_k <= T,   sum_k w_k (1 - theta_k) <= eps,   least <= theta_k <= 1

Symbols: ``a_k`` seconds of local work; ``r_k = 32 D / B_k``; ``w_k`` weight of the error, sum 1;
``eps = 1 - theta_t``, so with equal weights the mean share is the budget. Solved in closed form by
:mod:`motley.core.upload_ratios`.

State, plain arrays, with ``weights = "last_update"`` only: ``ids`` [n] and ``square`` [n], the
squared norm of each client's last accepted update, renewed with every server step. It holds the
clients that took part.

Deviations and readings
-----------------------
* INTERPRETATION-D the program; the paper's constants were not at hand. Its optimum in theta is not
  unique: given are the largest shares that T* allows. Where the slowest client's ``least`` decides
  T*, that is more than the budget; ``slack = "traffic"`` sends the budget.
* ``weights = "last_update"`` is p_k A_k, where a client without an accepted update has the mean A_k
  of the others.
* INTERPRETATION-D a dead link (B_k = 0) sends ``least`` and stays out of the program; an infinitely
  fast one sends all.
* FedCG itself chooses clients too, and runs without error feedback: the selector ``fedcg`` with
  ``allocator = "from_selector"``.

Worked
------
a = (5, 15, 25), r = (18, 30, 90), w = (.5, .3, .2), least .02: eps = .3 gives T* = 33.181818, theta
= (1, .606061, .090909); eps = .8 gives T* = 26.8, the third client's floor, theta = (1, .393333,
.02). It agrees with a solver (HiGHS) on random instances.

>>> context = AllocationContext(np.arange(3), budget=0.7, average=0.7, warm=False, size=2_812_500,
...             examples=np.array([50, 30, 20]), steps=np.ones(3),
...             compute_s=np.array([5.0, 15, 25]), uplink_mbps=np.array([5.0, 3, 1]))
>>> FedCGProgram(weights="examples", least=0.02).ratios({}, context).round(6).tolist()
[1.0, 0.606061, 0.090909]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.paper import Paper, cite
from motley.core.records import Reports
from motley.core.upload_ratios import Slack, upload_ratios
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


@dataclass(frozen=True)
class FedCGProgram(Allocator):
    """The upload ratios that minimize the time of the slowest client at a given compression error.

    Parameters
    ----------
    weights: of the errors: ``"equal"``, ``"examples"`` (p_k), or ``"last_update"`` (p_k A_k).
    least: smallest share.
    slack: use of ratios that T* leaves room for, ``"fidelity"``: sent; ``"traffic"``: saved.
    """

    weights: Literal["equal", "examples", "last_update"] = "equal"
    least: float = LEAST
    slack: Slack = "fidelity"

    requires: ClassVar[frozenset[str]] = frozenset({"uplink_mbps"})
    paper: ClassVar[Paper] = cite("jiang2023heterogeneity")

    def __post_init__(self) -> None:
        check_least(self.least)

    @override
    def init(self) -> State:
        return no_errors() if self.weights == "last_update" else {}

    @override
    def ratios(self, state: State, context: AllocationContext) -> Floats:
        theta = np.full(len(context.ids), self.least)
        upload_s = context.whole_s
        alive = np.isfinite(upload_s)
        if alive.any():
            weights = self._weights(state, context)[alive]
            weights = weights if weights.any() else np.ones(len(weights))
            theta[alive] = upload_ratios(
                compute_s=context.compute_s[alive],
                upload_s=upload_s[alive],
                budget=context.budget,
                least=self.least,
                weights=weights,
                slack=self.slack,
            )[0]
        return theta

    def _weights(self, state: State, context: AllocationContext) -> Floats:
        if self.weights == "equal":
            return np.ones(len(context.ids))
        return context.shares * (
            last_errors(state, context.ids) if self.weights == "last_update" else 1.0
        )

    @override
    def observe(self, state: State, budget: Budget, reports: Reports, step_norm: float) -> State:
        return remember_errors(state, reports) if self.weights == "last_update" else state
