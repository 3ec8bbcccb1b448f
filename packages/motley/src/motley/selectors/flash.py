"""FLASH chooses clients by linear Thompson sampling: a contextual bandit over each client's losses
and durations.

Chang, Ahmed, Krishnamurthy, Guler, Swami, Oymak, Roy-Chowdhury: *FLASH: Federated Learning Across
Simultaneous Heterogeneities*, arXiv:2402.08769, 2024. Its noise-robust local loss is an algorithm,
``flash_robust``.

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

Order: round 1, the paper's round 0, takes every available client and probes nobody. From round t =
2 on, every available client evaluates the model that round t - 1 produced. That gives x and r of
one paper round, s = t - 2: the (x, r) of the clients that took part enter V and b, and the same x
of all clients are scored for the cohort of round t. With ``measured_on = "received"``, as in
Algorithm 1, every available client evaluates the model of round t in round t, from round 1 on: the
(x, r) of its participants enter V and b when they have come back, and the same x of all clients are
scored for the cohort of round t + 1.

What must hold: the posterior mean is ridge regression on the history; with g = 0 the choice is
greedy; regret against an oracle on a synthetic linear world grows slower than linearly.

State: per client the columns of ``ContextualBandit.feature_columns``, 72 bytes, 136 with
``measured_on = "received"``; ``v`` [d, d] and ``b`` [d].
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
  noise, and the same clients are taken again and again; where each client has one duration for
  good (``per = "client"``), it is what makes FLASH avoid slow clients.
* READING contexts are measured on the model that the last round produced, the newest that there
  is. Algorithm 1 measures them in lines 9 to 17 on w^t, before it aggregates, and so chooses by
  contexts that are one round older: ``measured_on = "received"``, which the recipe ``flash`` has.
  Each costs one evaluation by every available client a round; the measurement of a round is billed
  before its choice in both.
* READING the validation part V_i is 20 % of a client's samples.
* READING the reward is the formula of Section II-C, not the change of pseudo-label loss its text
  speaks of, nor the evaluation of the global model of a comment in Algorithm 1.
* INTERPRETATION-D a participant that is not available for the next probe enters V and b when it is
  measured again; its reward is then the change over these rounds. A feature that was never measured
  is 0, an unknown duration is the mean.
* INTERPRETATION-D K counts the clients that are known: enrolled, measured or available.
* ``schedule = "analysis"`` takes the g of the regret bound,
  ``R sqrt(d log((1 + s L^2 / lambda) / delta)) + sqrt(lambda) S``, which is not the one of
  Algorithm 1 (the bound is of a rule like LinUCB's, with one theta per client); ``"constant"``
  takes ``g``, and 0 is greedy.

Worked
------
lambda = 1, delta = .05; s from 0. Numbers (a) to (c) are with ``tau = "mean"``.

(a) d = 2, s = 1, K = 3, participants 0 and 1 with x = (1, .5), (1, 2), r = (.4, .1); client 2 has x
= (1, 1). V = [[3, 2.5], [2.5, 5.25]], b = (.5, .4), theta_hat = (.171053, -.005263), g = 3.960414,
L = [[1.732051, 0], [1.443376, 1.779513]]. With z = (.5, -1): theta = (3.168960, -2.230824), scores
(2.053548, -1.292688, .938136). g = 0: (.168421, .160526, .165789). LinUCB: (2.572301, 3.620301,
2.482227).

(b) d = 4, K = 3, s = 0, all three took part, x = (1, 1, .5, 0), (1, 1, 1, 0), (1, 1, 1.5, 0), r =
0: V = [[4, 3, 3, 0], [3, 4, 3, 0], [3, 3, 4.5, 0], [0, 0, 0, 1]], theta_hat = 0, g = 4.461637. With
z = (1, 0, -1, .5): theta = (3.607709, 1.376891, -3.212746, 2.230818), scores (3.378228, 1.771855,
.165482); m = 2 takes {0, 1}. Then, with {0, 2} forced, s = 1, x = (.8, .9, .5, .4), (.9, 1.1, 1,
.1), (.7, .8, 1.5, .2), r_0 = .3, r_2 = .1: b = (.31, .35, .3, .14), theta_hat = (.020136, .045215,
-.006557, .092087), g = 5.186658; z = (-.5, 1, .25, -1): scores (-1.717286, .428570, .155825).

(c) p = (.7, .2, .1), y = 0, z = (.6, .3, .1): CE .356675, CE to z .927095, RCE 1.2; L_robust
5.249384 at (.1, 4), 10.883770 at (1, 8). L_robust from 6 to 4.5 with tau = 2: r = .75. Durations
(2, 4, 6): tau = (.5, 1, 1.5).

(d) The round's duration, the default. Durations (2, 4, 6) in round 1: tau = 6 / 4 = 1.5 for all
three, x = (1, 1, 1.5, 0) each, V = [[4, 3, 4.5, 0], [3, 4, 4.5, 0], [4.5, 4.5, 7.75, 0], [0, 0, 0,
1]]. Round 2 takes {0, 1}, in 2 and 10 s: last durations (2, 10, 6), tau = 10 / 6; robust losses
from (6, 5, 3) to (4.5, 5, 4): r = (.9, 0, .6). Round 3 takes {2} in 6 s: tau = 1.

(e) ``measured_on = "received"``, greedy. Round 1 measures (6, 5, 3), validation (2, 9, 4): x =
(1, 1, 1, 0), r = 0; all three take part in (2, 4, 6) s: V = [[4, 3, 3, 0], [3, 4, 3, 0], [3, 3, 4,
0], [0, 0, 0, 1]]. Round 2 measures (4.5, 5, 4) and (1, 9, 4) with tau = 1.5: r = (1, 0, 2/3), x_0 =
(.75, .5, 1.5, 0), x_1 = (1, 1, 1.5, 0); its cohort {0, 1} is chosen by (1, 1, 1, 0) of round 1, a
tie, and b = x_0 when it is back.

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
        clients = max(len(state.clients), len(context.available))
        g = self.exploration(max(context.draw - 2, 0), len(state.b), clients)
        theta = draw(factor(state.v), state.b, g, context.rng.standard_normal(len(state.b)))
        scores = self.features(state.clients, context.available) @ theta
        notes = {"g": g} | {
            f"theta_{name}": float(t) for name, t in zip(self.feature_names, theta, strict=True)
        }
        return Cohort(
            context.available[top_m(scores, context.m, context.rng, self.ties)], notes=notes
        )
