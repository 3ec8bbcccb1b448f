"""LinUCB: a linear model of the reward, and the m largest upper confidence bounds.

Li, Chu, Langford, Schapire: *A Contextual-Bandit Approach to Personalized News Article Recommendation*, WWW 2010
(arXiv:1003.0146). Specification: selectors-baselines 10, methods 2.

    V = lambda I + sum x x^T,  b = sum y x,  theta = V^-1 b
    score_k = theta . x_k + a sqrt(x_k^T V^-1 x_k);   cohort: the m largest

x and y are FLASH's context and reward (:mod:`motley.selectors.common.client_contexts`), measured and learnt in FLASH's order; the two
differ in nothing but this: FLASH draws theta where LinUCB adds a width. All m of a round are scored against the same V.

Symbols: ``a`` a constant, or FLASH's g_s with s = t - 2 (``schedule``). ``disjoint``: one V and b for each client, from that
client's own rounds, as FLASH's analysis has it; a client without any has theta = 0 and width ``a |x| / sqrt(lambda)``.

State: the columns of the contexts, 72 bytes per client; ``v`` [d, d] and ``b`` [d], or with ``disjoint`` per client the columns
``v``, the lower triangle of its ``sum x x^T``, and ``b`` (112 bytes more, and one small factorisation per available client
and round: half a second for a million).
Needs and probe cost are FLASH's: ``robust_loss`` and ``val_loss`` of everybody available from round 2 on, or of the reporters.
``Cohort.notes``: ``a``; ``width``, the mean width of the chosen; theta by element where it is shared.

Deviations and readings
-----------------------
* INTERPRETATION-D a batch of m arms a round is a heuristic extension: the m largest bounds.
* Round 1 takes everybody, as FLASH does, for a fair comparison; ``first_round = "cohort"`` takes m at random (equal scores).
* What was never measured is 0 in the context; a reward before the second evaluation is 0, as in FLASH.
* INTERPRETATION-D with ``disjoint``, s still counts rounds, and a client's own one is the one client K counts.

>>> from motley.core.records import Outcome, Reports
>>> from motley.selectors import Selector
>>> selector = Selector(LinUCB(drop="val_loss"), seed=0)
>>> len(selector.select(1, [0, 1, 2], m=1).ids)
3
>>> selector.observe(1, Reports([0, 1, 2], Outcome.ACCEPTED, compute_s=[2, 4, 6]))
>>> ids = selector.probe(2, [0, 1, 2], m=1)
>>> selector.observe(2, Reports(ids, Outcome.PROBED, signals={"robust_loss": [6.0, 6.0, 6.0]}))
>>> selector.select(2, [0, 1, 2], m=1).ids.tolist()  # nothing learnt yet: the widest context, the slowest client
[2]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.paper import Paper
from motley.core.records import Cohort, Reports, SelectionContext
from motley.core.table import ClientTable
from motley.selectors.common.client_contexts import Learned
from motley.selectors.common.contextual import ContextualRule
from motley.selectors.common.ridge import Exploration, Schedule, factor, learn, posterior_mean, widths
from motley.selectors.common.sampling import top_m

__all__ = ["LinUCB", "LinUCBState"]


@dataclass(frozen=True)
class LinUCBState:
    """``clients``: the columns of :class:`Contexts`, and ``v``, ``b`` with ``disjoint``. ``v``: ``[d, d]``. ``b``: ``[d]``."""

    clients: ClientTable
    v: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    b: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class LinUCB(ContextualRule[LinUCBState]):
    """The m largest upper confidence bounds of a linear model.

    Parameters
    ----------
    disjoint: a model of its own for each client.
    schedule: the constant ``a``, FLASH's Algorithm 1, or FLASH's analysis.
    a: with ``schedule = "constant"``; 0 is greedy.
    lam: ridge penalty, positive.
    delta: 1 minus the confidence of the schedules, in (0, 1).
    noise, theta_norm, x_norm: R, S and L of ``schedule = "analysis"``.
    """

    disjoint: bool = False
    schedule: Schedule = "constant"
    a: float = 1.0
    lam: float = 1.0
    delta: float = 0.05
    noise: float = 1.0
    theta_norm: float = 1.0
    x_norm: float = 1.0

    paper: ClassVar[Paper] = Paper(
        "li2010contextual",
        "A Contextual-Bandit Approach to Personalized News Article Recommendation",
        ("Lihong Li", "Wei Chu", "John Langford", "Robert E. Schapire"),
        "International Conference on World Wide Web (WWW)",
        2010,
        "https://arxiv.org/abs/1003.0146",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.exploration  # checks the options it is made of

    @property
    def exploration(self) -> Exploration:
        """a as a function of s."""
        return Exploration(self.schedule, self.a, self.lam, self.delta, self.noise, self.theta_norm, self.x_norm)

    def init(self) -> LinUCBState:
        """Nobody measured; V = lambda I."""
        d = len(self.contexts.names)
        own = {"v": 0.0, "b": 0.0} if self.disjoint else {}
        return LinUCBState(ClientTable(self.contexts.columns() | own), self.lam * np.eye(d), np.zeros(d))

    def bounds(self, state: LinUCBState, ids: Ids) -> tuple[Floats, Floats]:
        """Means ``theta . x`` and widths ``sqrt(x^T V^-1 x)`` of these clients, each ``[n]``."""
        x = self.contexts.features(state.clients, ids)
        if self.disjoint:
            return _own_bounds(state.clients, ids, x, self.lam)
        lower = factor(state.v)
        return x @ posterior_mean(lower, state.b), widths(lower, x)

    def select(self, state: LinUCBState, context: SelectionContext) -> Cohort:
        """Score, rank."""
        known = 1 if self.disjoint else max(len(state.clients), len(context.available))
        a = self.exploration.at(max(context.round - 2, 0), len(self.contexts.names), known)
        mean, width = self.bounds(state, context.available)
        at = top_m(mean + a * width, context.m, context.rng, self.ties)
        notes = {"a": a, "width": float(width[at].mean())}
        if not self.disjoint:
            theta = posterior_mean(factor(state.v), state.b)
            notes |= {f"theta_{name}": float(t) for name, t in zip(self.contexts.names, theta, strict=True)}
        return Cohort(context.available[at], notes=notes)

    def observe(self, state: LinUCBState, round: int, reports: Reports) -> LinUCBState:
        """Contexts, and (x, y) of those who took part into V and b."""
        clients, news = self.contexts.observe(state.clients, round, reports)
        if self.disjoint:
            return LinUCBState(_learn_own(clients, news), state.v, state.b)
        return LinUCBState(clients, *learn(state.v, state.b, news.x, news.rewards))


def _learn_own(clients: ClientTable, news: Learned) -> ClientTable:
    """Each client's ``sum x x^T`` and ``sum y x`` with its own newest pair."""
    n, d = news.x.shape
    if not n:
        return clients
    row, column = np.tril_indices(d)
    v, b = news.x[:, row] * news.x[:, column], news.rewards[:, None] * news.x
    if "v" in clients.columns:
        v, b = clients.get("v", news.ids) + v, clients.get("b", news.ids) + b
    return clients.put(news.ids, {"v": v, "b": b})


def _own_bounds(clients: ClientTable, ids: Ids, x: Floats, lam: float) -> tuple[Floats, Floats]:
    """Means and widths where every client has a V of its own, by n small Cholesky factors at once."""
    n, d = x.shape
    if "v" not in clients.columns:
        return np.zeros(n), np.sqrt(np.einsum("nd,nd->n", x, x) / lam)
    v = np.zeros((n, d, d))
    row, column = np.tril_indices(d)
    v[:, row, column] = clients.get("v", ids)
    v[:, range(d), range(d)] += lam
    lower = factor(v)  # reads the lower triangle
    white_x, white_b = _forward(lower, x), _forward(lower, clients.get("b", ids))
    return np.einsum("nd,nd->n", white_x, white_b), np.sqrt(np.einsum("nd,nd->n", white_x, white_x))


def _forward(lower: Floats, x: Floats) -> Floats:
    """``L_k^-1 x_k`` for every row, by forward substitution; ``[n, d, d]`` and ``[n, d]`` to ``[n, d]``."""
    out = np.empty(x.shape)
    for i in range(x.shape[1]):
        out[:, i] = (x[:, i] - np.einsum("nj,nj->n", lower[:, i, :i], out[:, :i])) / lower[:, i, i]
    return out
