"""LinUCB chooses the clients with the m largest upper confidence bounds of a linear reward model.

Li, Chu, Langford, Schapire: *A Contextual-Bandit Approach to Personalized News Article
Recommendation*, WWW 2010 (arXiv:1003.0146).

    V = lambda I + sum x x^T,  b = sum y x,  theta = V^-1 b
    score_k = theta . x_k + a sqrt(x_k^T V^-1 x_k);   cohort: the m largest

x and y are FLASH's client features and reward (:mod:`motley.selectors.common.client_features`),
measured and learnt in FLASH's order; the only difference is that FLASH draws theta where LinUCB
adds a width. All m of a round are scored against the same V.

Symbols: ``a`` a constant, or FLASH's g_s with s = t - 2 (``schedule``). ``disjoint``: one V and b
for each client, from that client's own rounds, as FLASH's analysis has it; a client without any has
theta = 0 and width ``a |x| / sqrt(lambda)``.

State: the columns of the features, 72 bytes per client; ``v`` [d, d] and ``b`` [d], or with
``disjoint`` per client the columns ``v``, the lower triangle of its ``sum x x^T``, and ``b`` (112
bytes more, and one small factorization per available client and round: half a second for a
million). Needs and probe cost are FLASH's: ``robust_loss`` and ``val_loss`` of everybody available
from round 2 on, or of the reporters.
``Cohort.notes``: ``a``; ``width``, the mean width of the chosen; theta by element where it is
shared. ``client_notes``: ``width``.

Deviations and readings
-----------------------
* INTERPRETATION-D a batch of m arms a round is a heuristic extension: the m largest bounds.
* Round 1 takes everybody, as FLASH does, for a fair comparison; ``first_round = "cohort"`` takes m
  at random (equal scores).
* A feature that was never measured is 0; a reward before the second evaluation is 0, as in FLASH.
* INTERPRETATION-D with ``disjoint``, s still counts rounds, and a client's own one is the one
  client K counts.

Worked
------
Observations x = (1, 0), y = 1 and x = (0, 1), y = .2, lambda = 1: theta = (.5, .1); for (1, 0), (0,
1), (1, 1) the scores at a = 1 are (1.207107, .807107, 1.6). g with d = 4, K = 50: 4.461637 at s =
0, 6.264051 at s = 1, 7.070367 at s = 10.

>>> from motley.core.records import Outcome, Reports
>>> from motley.selectors import Selector
>>> selector = Selector(LinUCB(drop="val_loss", tau="mean"), seed=0)
>>> len(selector.select(1, [0, 1, 2], m=1).ids)
3
>>> selector.observe(1, Reports([0, 1, 2], Outcome.ACCEPTED, compute_s=[2, 4, 6]))
>>> ids = selector.probe(2, [0, 1, 2], m=1)
>>> selector.observe(2, Reports(ids, Outcome.PROBED, signals={"robust_loss": [6.0, 6.0, 6.0]}))
>>> # nothing learnt yet: the largest features, the slowest client
>>> selector.select(2, [0, 1, 2], m=1).ids.tolist()
[2]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Reports, SelectionContext
from motley.core.table import ClientTable
from motley.selectors.common.client_features import TrainingPairs
from motley.selectors.common.linear_bandit import (
    LinearBandit,
    LinearBanditState,
    factor,
    posterior_mean,
    widths,
)
from motley.selectors.common.sampling import top_m


@dataclass(frozen=True)
class LinUCB(LinearBandit):
    """Take the m largest upper confidence bounds of a linear reward model.

    Parameters
    ----------
    disjoint: a model of its own for each client.
    a: with ``schedule = "constant"``; 0 is greedy.
    """

    disjoint: bool = False
    a: float = 1.0

    paper: ClassVar[Paper] = cite("li2010contextual")

    @property
    @override
    def constant(self) -> float:
        return self.a

    @override
    def init(self) -> LinearBanditState:
        own = {"v": 0.0, "b": 0.0} if self.disjoint else {}
        return replace(super().init(), clients=ClientTable(self.feature_columns() | own))

    def bounds(self, state: LinearBanditState, ids: Ids) -> tuple[Floats, Floats]:
        """Return means ``theta . x`` and widths ``sqrt(x^T V^-1 x)`` of these clients, each
        ``[n]``."""
        x = self.features(state.clients, ids)
        if self.disjoint:
            return _own_bounds(state.clients, ids, x, self.lam)
        lower = factor(state.v)
        return x @ posterior_mean(lower, state.b), widths(lower, x)

    @override
    def select(self, state: LinearBanditState, context: SelectionContext) -> Cohort:
        clients = 1 if self.disjoint else max(len(state.clients), len(context.available))
        a = self.exploration(max(context.draw - 2, 0), len(self.feature_names), clients)
        mean, width = self.bounds(state, context.available)
        at = top_m(mean + a * width, context.m, context.rng, self.ties)
        notes = {"a": a, "width": float(width[at].mean())}
        if not self.disjoint:
            theta = posterior_mean(factor(state.v), state.b)
            notes |= {
                f"theta_{name}": float(t) for name, t in zip(self.feature_names, theta, strict=True)
            }
        return Cohort(context.available[at], notes=notes, client_notes={"width": width[at]})

    @override
    def observe(self, state: LinearBanditState, draw: int, reports: Reports) -> LinearBanditState:
        if not self.disjoint:
            return super().observe(state, draw, reports)
        return replace(
            state, clients=_learn_own(*self.update_features(state.clients, draw, reports))
        )


def _learn_own(clients: ClientTable, pairs: TrainingPairs) -> ClientTable:
    """Add each client's newest pair to its own ``sum x x^T`` and ``sum y x``."""
    n, d = pairs.x.shape
    if not n:
        return clients
    # V is symmetric: half of it is kept for each client
    row, column = np.tril_indices(d)
    v = pairs.x[:, row] * pairs.x[:, column]
    b = pairs.rewards[:, None] * pairs.x
    if "v" in clients.columns:
        v = clients.get("v", pairs.ids) + v
        b = clients.get("b", pairs.ids) + b
    return clients.put(pairs.ids, {"v": v, "b": b})


def _own_bounds(clients: ClientTable, ids: Ids, x: Floats, lam: float) -> tuple[Floats, Floats]:
    """Return means and widths where every client has a V of its own, by n small Cholesky factors at
    once."""
    n, d = x.shape
    if "v" not in clients.columns:
        return np.zeros(n), np.sqrt(np.einsum("nd,nd->n", x, x) / lam)
    v = np.zeros((n, d, d))
    row, column = np.tril_indices(d)
    v[:, row, column] = clients.get("v", ids)
    v[:, range(d), range(d)] += lam
    lower = factor(v)  # reads the lower triangle
    white_x = _forward(lower, x)
    white_b = _forward(lower, clients.get("b", ids))
    return np.einsum("nd,nd->n", white_x, white_b), np.sqrt(np.einsum("nd,nd->n", white_x, white_x))


def _forward(lower: Floats, x: Floats) -> Floats:
    """Return ``L_k^-1 x_k`` for every row, by forward substitution; ``[n, d, d]`` and ``[n, d]`` to
    ``[n, d]``."""
    out = np.empty(x.shape)
    for i in range(x.shape[1]):
        out[:, i] = (x[:, i] - np.einsum("nj,nj->n", lower[:, i, :i], out[:, :i])) / lower[:, i, i]
    return out
