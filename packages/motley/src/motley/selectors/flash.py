"""FLASH chooses clients by linear Thompson sampling: a contextual bandit over each client's losses
and durations.

Chang, Ahmed, Krishnamurthy, Guler, Swami, Oymak, Roy-Chowdhury: *FLASH: Federated Learning Across
Simultaneous Heterogeneities*, arXiv:2402.08769, 2024. Reference: docs/methods/flash.md. (Its
noise-robust local loss belongs to the algorithms.)

    x_t(i) = [ L_robust^t / L_robust^1,  CE^t(V_i) / CE^1(V_i),  tau_(t-1),  r_(t-1)(i) ]
             features, d = 4
    r_t(i) = | L_robust^t - L_robust^(t-1) | / tau_(t-1)
             reward
    tau_t = duration of round t, that of its slowest client (Section IV-B)
    V <- V + sum x x^T,  b <- b + sum r x  over those who took part;
    V = lambda I, b = 0 at the start
    theta_hat = V^-1 b;  theta ~ N(theta_hat, g_s^2 V^-1);  cohort: the m largest theta . x
    g_s = sqrt(lambda) + sqrt(d log((1 + s K) / delta)),  s = 0, 1, ...

One theta is shared by all clients. ``V = L L^T`` (Cholesky), ``theta = theta_hat + g L^-T z``, z
standard normal: no inverse.

Order: round 1 takes every available client and probes nobody. From round t = 2 on, every available
client evaluates the model that round t - 1 produced. That gives x and r of one paper round, s = t -
2: the (x, r) of the clients that took part enter V and b, and the same x of all clients are scored
for the cohort of round t.

State: per client the columns of ``ContextualBandit.feature_columns``, 72 bytes; ``v`` [d, d] and
``b`` [d].
Needs: ``robust_loss`` and ``val_loss``, probed, or reported with ``probe = "last_report"``;
durations of the participants. Probe cost: ``all``: from round 2 on every available client downloads
the model and evaluates its training data (or ``probe_batches`` batches of it) and its validation
data; ``last_report``: none, the participants evaluate the model they received, and the features of
all others grow stale.
``Cohort.notes``: ``g``, and the drawn theta by element, ``theta_robust_loss`` and so on.

Deviations and readings
-----------------------
* READING losses are of the client's own evaluations, ``L^1`` its first; r is 0 before the second.
  tau is the round's duration, as Section IV-B defines it: one number for everybody, so that it
  ranks nobody. READING it is taken over the mean of all clients' last durations, so that features
  share a scale and the unit changes nothing; ``tau = "round_seconds"`` is literal. The index i of
  tau_(t-1)(i) in Section II-C can also mean the client's own last duration: ``tau = "mean"``, over
  the mean of all, or ``"seconds"``. Where devices draw a new duration every round that is stale
  noise, and the same clients are taken again and again.
* READING the reward is the formula of Section II-C, not the change of pseudo-label loss its text
  speaks of.
* INTERPRETATION-D a participant that is not available for the next probe enters V and b when it is
  measured again; its reward is then the change over these rounds. A feature that was never measured
  is 0, an unknown duration is the mean.
* INTERPRETATION-D K counts the clients that are known: enrolled, measured or available.
* ``schedule = "analysis"`` takes the g of the regret bound,
  ``R sqrt(d log((1 + s L^2 / lambda) / delta)) + sqrt(lambda) S``, which is not the one of
  Algorithm 1; ``"constant"`` takes ``g``, and 0 is greedy.

>>> from motley.core.records import Outcome, Reports
>>> from motley.selectors import Selector
>>> selector = Selector(FLASH(schedule="constant", g=0.0, tau="mean"), seed=0)
>>> everybody = [0, 1, 2]
>>> len(selector.select(1, everybody, m=1).ids)  # the first round takes everybody
3
>>> selector.observe(1, Reports(everybody, Outcome.ACCEPTED, compute_s=[2, 4, 6]))
>>> for t, losses in ((2, [6.0, 6.0, 6.0]), (3, [4.5, 5.5, 6.0])):
...     ids = selector.probe(t, everybody, m=1)
...     signals = {"robust_loss": losses, "val_loss": losses}
...     selector.observe(t, Reports(ids, Outcome.PROBED, signals=signals))
...     selector.observe(t, Reports(everybody, Outcome.ACCEPTED, compute_s=[2, 4, 6]))
>>> selector.state.clients.get("reward", everybody).tolist()  # tau = 0.5, 1, 1.5
[3.0, 0.5, 0.0]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.core.paper import Paper, cite
from motley.core.records import Cohort, SelectionContext
from motley.selectors.common.linear_bandit import (
    LinearBandit,
    LinearBanditState,
    Schedule,
    draw,
    factor,
)
from motley.selectors.common.sampling import top_m

__all__ = ["FLASH"]


@dataclass(frozen=True)
class FLASH(LinearBandit):
    """Take the m largest scores of a linear reward model drawn from its posterior.

    Parameters
    ----------
    schedule: how far the draw spreads: Algorithm 1, the paper's analysis, or the constant ``g``.
    g: with ``schedule = "constant"``; 0 is greedy.
    """

    schedule: Schedule = "algorithm"
    g: float = 1.0

    paper: ClassVar[Paper] = cite("chang2024flash")

    @property
    @override
    def constant(self) -> float:
        return self.g

    @override
    def select(self, state: LinearBanditState, context: SelectionContext) -> Cohort:
        known = max(len(state.clients), len(context.available))
        g = self.exploration(max(context.round - 2, 0), len(state.b), known)
        theta = draw(factor(state.v), state.b, g, context.rng.standard_normal(len(state.b)))
        scores = self.features(state.clients, context.available) @ theta
        notes = {"g": g} | {
            f"theta_{name}": float(t) for name, t in zip(self.feature_names, theta, strict=True)
        }
        return Cohort(
            context.available[top_m(scores, context.m, context.rng, self.ties)], notes=notes
        )
