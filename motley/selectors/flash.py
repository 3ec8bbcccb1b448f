"""FLASH: linear contextual Thompson sampling over client contexts.

Chang, Ahmed, Krishnamurthy, Guler, Swami, Oymak, Roy-Chowdhury: *FLASH: Federated Learning Across Simultaneous
Heterogeneities*, arXiv:2402.08769, 2024. Specification: methods 2. (Its noise-robust local loss is an algorithm's part.)

    x_t(i) = [ L_robust^t / L_robust^1,  CE^t(V_i) / CE^1(V_i),  tau(i),  r_(t-1)(i) ]        context, d = 4
    r_t(i) = | L_robust^t - L_robust^(t-1) | / tau(i)                                         reward
    V <- V + sum x x^T,  b <- b + sum r x  over those who took part;  V = lambda I, b = 0 at the start
    theta_hat = V^-1 b;  theta ~ N(theta_hat, g_s^2 V^-1);  cohort: the m largest theta . x
    g_s = sqrt(lambda) + sqrt(d log((1 + s K) / delta)),  s = 0, 1, ...

One theta is shared by all clients. ``V = L L^T`` (Cholesky), ``theta = theta_hat + g L^-T z``, z standard normal: no inverse.

In what order: round 1 takes everybody and measures nobody. From round t = 2 on, the model that came out of round t - 1 is
evaluated by everybody available. That gives x and r of one paper round, s = t - 2: the (x, r) of those who took part enter V
and b, and the same x of all clients are scored for the cohort of round t.

State, per client: the columns of :class:`~motley.selectors.common.client_contexts.Contexts`, 72 bytes; ``v`` [d, d] and ``b`` [d].
Needs: ``robust_loss`` and ``val_loss``, probed, or reported with ``probe = "last_report"``; durations of those who took part.
Probe cost: ``all``: from round 2 on every available client downloads the model and evaluates its training data (or
``probe_batches`` batches of it) and its validation data; ``last_report``: none, the reporters evaluate the model they received,
and the contexts of all others grow stale.
``Cohort.notes``: ``g``, and the drawn theta by element, ``theta_robust_loss`` and so on.

Deviations and readings
-----------------------
* READING losses are of the client's own evaluations, ``L^1`` its first; r is 0 before the second; tau(i) is the client's last
  duration over the mean of all clients'. ``tau = "seconds"`` takes it in seconds; ``"round"`` takes the longest of the last
  round, one number for everybody, as the paper's Section IV-B defines it.
* READING the reward is the formula of Section II-C, not the change of pseudo-label loss its text speaks of.
* INTERPRETATION-D a client that took part and is not there to be measured enters V and b when it is measured next; its reward
  is then the change over these rounds. What was never measured is 0 in the context, an unknown duration is the mean.
* INTERPRETATION-D K counts the clients that are known: enrolled, measured or available.
* ``schedule = "analysis"`` takes the g of the regret bound, ``R sqrt(d log((1 + s L^2 / lambda) / delta)) + sqrt(lambda) S``,
  which is not the one of Algorithm 1; ``"constant"`` takes ``g``, and 0 is greedy.

>>> from motley.core.records import Outcome, Reports
>>> from motley.selectors import Selector
>>> selector = Selector(FLASH(schedule="constant", g=0.0), seed=0)
>>> everybody = [0, 1, 2]
>>> len(selector.select(1, everybody, m=1).ids)  # the first round takes everybody
3
>>> selector.observe(1, Reports(everybody, Outcome.ACCEPTED, compute_s=[2, 4, 6]))
>>> for t, losses in ((2, [6.0, 6.0, 6.0]), (3, [4.5, 5.5, 6.0])):
...     ids = selector.probe(t, everybody, m=1)
...     selector.observe(t, Reports(ids, Outcome.PROBED, signals={"robust_loss": losses, "val_loss": losses}))
...     selector.observe(t, Reports(everybody, Outcome.ACCEPTED, compute_s=[2, 4, 6]))
>>> selector.state.clients.get("reward", everybody).tolist()  # tau = 0.5, 1, 1.5
[3.0, 0.5, 0.0]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from motley.core.arrays import Floats
from motley.core.paper import Paper
from motley.core.records import Cohort, Reports, SelectionContext
from motley.core.table import ClientTable
from motley.selectors.common.contextual import ContextualRule
from motley.selectors.common.ridge import Exploration, Schedule, draw, factor, learn
from motley.selectors.common.sampling import top_m

__all__ = ["FLASH", "FLASHState"]


@dataclass(frozen=True)
class FLASHState:
    """``clients``: the columns of :class:`Contexts`. ``v``: ``[d, d]``. ``b``: ``[d]``."""

    clients: ClientTable
    v: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    b: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class FLASH(ContextualRule[FLASHState]):
    """The m largest scores of a linear model drawn from its posterior.

    Parameters
    ----------
    schedule: how far the draw spreads: Algorithm 1, the paper's analysis, or the constant ``g``.
    g: with ``schedule = "constant"``; 0 is greedy.
    lam: ridge penalty, positive.
    delta: 1 minus the confidence of the schedules, in (0, 1).
    noise, theta_norm, x_norm: R, S and L of ``schedule = "analysis"``.
    """

    schedule: Schedule = "algorithm"
    g: float = 1.0
    lam: float = 1.0
    delta: float = 0.05
    noise: float = 1.0
    theta_norm: float = 1.0
    x_norm: float = 1.0

    paper: ClassVar[Paper] = Paper(
        "chang2024flash",
        "FLASH: Federated Learning Across Simultaneous Heterogeneities",
        (
            "Xiangyu Chang",
            "Sk Miraj Ahmed",
            "Srikanth V. Krishnamurthy",
            "Basak Guler",
            "Ananthram Swami",
            "Samet Oymak",
            "Amit K. Roy-Chowdhury",
        ),
        "arXiv preprint",
        2024,
        "https://arxiv.org/abs/2402.08769",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.exploration  # checks the options it is made of

    @property
    def exploration(self) -> Exploration:
        """g as a function of s."""
        return Exploration(self.schedule, self.g, self.lam, self.delta, self.noise, self.theta_norm, self.x_norm)

    def init(self) -> FLASHState:
        """Nobody measured; V = lambda I."""
        d = len(self.contexts.names)
        return FLASHState(ClientTable(self.contexts.columns()), self.lam * np.eye(d), np.zeros(d))

    def select(self, state: FLASHState, context: SelectionContext) -> Cohort:
        """Draw theta, score, rank."""
        known = max(len(state.clients), len(context.available))
        g = self.exploration.at(max(context.round - 2, 0), len(state.b), known)
        theta = draw(factor(state.v), state.b, g, context.rng.standard_normal(len(state.b)))
        scores = self.contexts.features(state.clients, context.available) @ theta
        notes = {"g": g} | {f"theta_{name}": float(t) for name, t in zip(self.contexts.names, theta, strict=True)}
        return Cohort(context.available[top_m(scores, context.m, context.rng, self.ties)], notes=notes)

    def observe(self, state: FLASHState, round: int, reports: Reports) -> FLASHState:
        """Contexts, and (x, r) of those who took part into V and b."""
        clients, news = self.contexts.observe(state.clients, round, reports)
        v, b = learn(state.v, state.b, news.x, news.rewards)
        return FLASHState(clients, v, b)
