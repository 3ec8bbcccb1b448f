"""FEEL draws clients by gradient norm and upload time, and weights their updates without bias.

Ren, He, Wen, Yu, Huang, Guo: *Scheduling for Cellular Federated Edge Learning With Importance and
Channel Awareness*, IEEE Transactions on Wireless Communications 19(11), 2020 (arXiv:2004.00490).

    c_k = (n_k / n) ||g_k||                                            n = sum over the available
    min over p:  rho sum c_k^2 / p_k + (1 - rho) sum p_k T_k
    p_k = c_k sqrt(rho / ((1 - rho) T_k + lam)),  lam such that sum p = 1
    y_1 .. y_m successive draws from p;   q_i = p_{y_i} / (1 - sum_{j < i} p_{y_j})
    a_{y_i} = n_{y_i} / (m n) (1 / q_i + m - i)                        Cohort.weights

Symbols: ``g_k`` gradient of the received model on the client's data; ``T_k`` its upload seconds;
``rho`` importance (1) against channel (towards 0). The order of the draws matters; the coefficients
sum to 1 only in expectation, and sum a_k g_k is unbiased. They count with ``weights = "selector"``;
otherwise the aggregator weights the cohort and FEEL is a plain draw, as in FLASH.

State, per client: ``num_examples``, ``norm`` (||g_k||), ``upload_s`` (T_k); the last known ones,
NaN before.
Needs: ``num_examples`` once; probed ``upload_estimate_s``; probed ``grad_norm`` ("fresh") or
reported ``update_norm`` ("stale"). Probe cost: ``fresh``: every available client downloads the
model and takes a gradient over all its data (or ``probe_batches``), each round; ``stale``: none,
the planner knows the channel. The paper uploads one after another in shared spectrum; here the
round lasts as long as the network model says (in parallel, FLASH's maximum).
``Cohort.notes``: ``max_probability``, ``cv_probability`` over the available, ``max_weight``.

Deviations and readings
-----------------------
* INTERPRETATION-R all formulas (the abstract confirms the frame: unbiased, closed form, successive
  draws); that p is optimal and the estimator unbiased was verified numerically.
* INTERPRETATION-D the update stands for -eta g_k. ``scaled``: c to sum 1 and T to mean 1 over the
  available, rho = 0.5; otherwise the trade-off depends on units. ``scaled = False`` takes both as
  they are, as written.
* INTERPRETATION-D ``stale``: ||g_k|| = last ||Delta_k|| / steps (a common learning rate cancels
  with ``scaled``). A client without a norm has the largest known, without T the mean T. A norm or T
  that is not a number keeps the one before it.
* A client with c = 0 is never drawn (its gradient is 0); with fewer than m others the rest is
  uniform, weighing n_k / (n m). All c = 0: uniform draws. With everybody in the cohort the order is
  still drawn, and the coefficients still are the ordered ones.
* Not a_k = n_k / (n m p_k), which is biased for draws without replacement. ``cap`` bounds the
  coefficients, and biases.

Worked
------
n = (100, 100, 200), norms (1, 2, 1), T = (1, 2, 4), rho = .5: c = (.25, .5, .5), lam = -.220650, p
= (.334465, .400487, .265048), objective 1.974981. rho = .01: (.920757, .050233, .029009); rho = 1:
(.2, .4, .4). With g = (3, -1, 2) the expectation over all ordered pairs is the true 1.5.

>>> import numpy as np
>>> p, lam = schedule(np.array([0.25, 0.5, 0.5]), np.array([1.0, 2.0, 4.0]), rho=0.5)
>>> p.round(6).tolist(), round(lam, 6)
([0.334465, 0.400487, 0.265048], -0.22065)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import SIZE, filled, put_sizes, shares
from motley.selectors.common.sampling import probability_notes, successive_draws
from motley.selectors.selector import SelectionRule

LARGEST = 1e150
"""Norms above it, of runs that diverge, count as it: sums of their squares stay finite."""
_NEWTON_STEPS = 60


@dataclass(frozen=True)
class FEEL(SelectionRule[ClientTable]):
    """Draw clients with probabilities that trade the variance of the aggregated gradient against
    upload time.

    Parameters
    ----------
    rho: importance against channel, in (0, 1]; 1 ignores the channel.
    norm_source: ``"fresh"``: everybody measures its gradient norm before the choice; ``"stale"``:
    the last update's norm.
    scaled: scale importance to sum 1 and upload times to mean 1, so that rho means the same in any
    unit.
    cap: coefficients are at most cap / m (10 is usual; it breaks unbiasedness); None: no limit.
    probe_batches: batches of the fresh measurement; None means all local training data.
    """

    rho: float = 0.5
    norm_source: Literal["fresh", "stale"] = "fresh"
    scaled: bool = True
    cap: float | None = None
    probe_batches: int | None = None

    paper: ClassVar[Paper] = cite("ren2020scheduling")

    def __post_init__(self) -> None:
        if not 0 < self.rho <= 1:
            raise ConfigError(
                f"got rho = {self.rho}; expected a number in (0, 1] (0.01 is nearly the fastest "
                "client alone)"
            )
        if self.cap is not None and not 0 < self.cap < math.inf:
            raise ConfigError(
                f"got cap = {self.cap}; expected a positive number, or none for unbiased "
                "coefficients"
            )
        if self.probe_batches is not None and self.probe_batches < 1:
            raise ConfigError(
                f"got probe_batches = {self.probe_batches}; expected at least 1, or none for all "
                "data"
            )
        if self.probe_batches is not None and self.norm_source == "stale":
            raise ConfigError(
                "norm_source = 'stale' measures nothing; leave probe_batches out or take 'fresh'"
            )

    @override
    def needs(self) -> SignalRequirements:
        if self.norm_source == "stale":
            used = frozenset({"local_steps"})
            return SignalRequirements(
                frozenset({SIZE}),
                {"upload_estimate_s": None},
                frozenset({"update_norm"}),
                columns=used,
            )
        return SignalRequirements(
            frozenset({SIZE}), {"grad_norm": self.probe_batches, "upload_estimate_s": None}
        )

    @override
    def provides(self) -> frozenset[str]:
        return frozenset({"weights"})

    @override
    def init(self) -> ClientTable:
        return ClientTable({SIZE: np.nan, "norm": np.nan, "upload_s": np.nan})

    @override
    def candidates(self, state: ClientTable, context: SelectionContext) -> Ids:
        return context.available

    def probabilities(self, state: ClientTable, available: Ids) -> Floats:
        """Return p of the first draw, ``[K_A]``; all zero where no importance is positive."""
        norm = filled(state.get("norm", available), "max")
        upload = filled(state.get("upload_s", available))
        importance = shares(state, available) * norm
        if self.scaled:
            importance /= importance.sum() or 1.0
            upload = upload / (upload.mean() or 1.0)
        return schedule(importance, upload, self.rho)[0]

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        p = self.probabilities(state, context.available)
        at = successive_draws(p, context.m, context.rng)
        weights = ordered_weights(shares(state, context.available)[at], p, at)
        if self.cap is not None:
            weights = np.minimum(weights, self.cap / context.m)
        first = p if p.any() else np.full(len(p), 1.0 / len(p))
        notes = {**probability_notes(first), "max_weight": float(weights.max())}
        return Cohort(context.available[at], weights, notes=notes, probabilities=first)

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        clients = put_sizes(state, reports)
        probed = reports.of(Outcome.PROBED)
        accepted = reports.of(Outcome.ACCEPTED)
        if len(probed):
            seconds = np.clip(probed.signal("upload_estimate_s"), 0.0, LARGEST)
            clients = clients.put(
                probed.ids, {"norm": _norms(probed.signal("grad_norm")), "upload_s": seconds}
            )
        if self.norm_source == "stale" and len(accepted):
            steps = np.where(accepted.local_steps > 0, accepted.local_steps, np.nan)
            clients = clients.put(
                accepted.ids, {"norm": _norms(accepted.signal("update_norm") / steps)}
            )
        return clients


def schedule(importance: Floats, upload_s: Floats, rho: float) -> tuple[Floats, float]:
    """Return the probabilities ``p_k = c_k sqrt(rho / ((1 - rho) T_k + lam))`` that sum to 1, and
    lam.

    With x = lam + min (1 - rho) T over c_k > 0, ``S(x) = sum c_k sqrt(rho / (d_k + x))`` falls from
    infinity to 0 and ``S^-2`` is concave (a power mean of order -1/2), so Newton's steps on
    ``S^-2 = 1`` from below never overshoot and end in about five passes. They begin at
    ``max(rho c_k^2 - d_k)``, where one client alone has all the mass.

    Parameters
    ----------
    importance: c ``[K]``, at least 0; all zero gives zeros.
    upload_s: T ``[K]``, at least 0.
    rho: in (0, 1].
    """
    scale = float(importance.sum())
    if not scale > 0:
        return np.zeros(len(importance)), 0.0
    # p stays the same when c is divided by s and T by s^2, and lam is divided by s^2
    c = importance / scale
    c = np.where(c > 0, np.maximum(c, 1e-100), c)  # beside a number of 1e308 squares would vanish
    with np.errstate(over="ignore"):
        cost = np.minimum((1.0 - rho) * upload_s / scale / scale, LARGEST)
    low = float(cost.min(where=c > 0, initial=np.inf))
    d = np.maximum(cost - low, 0.0)  # clients with c = 0 may be faster; they have no mass anyway
    x = float((rho * c * c - d).max())
    for _ in range(_NEWTON_STEPS):
        gap = d + x
        p = c * np.sqrt(rho / gap)
        total = float(p.sum())
        slope = float((p / gap).sum()) / total**3  # of S^-2
        step = (1.0 - total**-2) / slope
        x += step
        # The second is for gaps of a few bits: there x cannot move any more.
        if abs(total - 1.0) < 1e-10 or step <= 1e-15 * x:
            break
    return p / total, (x - low) * scale * scale


def ordered_weights(share: Floats, p: Floats, at: Ints) -> Floats:
    """Return the unbiased coefficients of successive draws, ``[m]``, in the order of drawing.

    Parameters
    ----------
    share: ``n_k / n`` of the drawn clients ``[m]``.
    p: probabilities of the first draw ``[K]``.
    at: positions drawn ``[m]``.
    """
    m = len(at)
    drawn = p[at]
    undrawn = p.copy()
    undrawn[at] = 0.0
    # mass before each draw: exact also where it is tiny
    left = undrawn.sum() + np.cumsum(drawn[::-1])[::-1]
    if not left[0] > 0:  # uniform draws: p = 1 / K
        drawn = np.ones(m)
        left = np.arange(len(p), len(p) - m, -1.0)
    by_chance = np.divide(left, drawn, out=np.zeros(m), where=drawn > 0) + np.arange(m - 1, -1, -1)
    return np.asarray(share / m * np.where(drawn > 0, by_chance, 1.0))


def _norms(norm: Floats) -> Floats:
    return np.asarray(np.minimum(np.abs(norm), LARGEST))
