"""AdaSample draws clients from one distribution that minimizes rounds to a target times seconds per
round.

Luo, Xiao, Wang, Huang, Tassiulas: *Tackling System and Statistical Heterogeneity for Federated
Learning with Adaptive Client Sampling*, INFOCOM 2022 (arXiv:2112.11256; journal version
arXiv:2404.13804).

    min over q:  f(q) = (sum q_k tau_k) (sum B_k / q_k + c0),   B_k = p_k^2 G_k^2,  sum q = 1
    q_k ~ sqrt(B_k / (tau_k + mu)),  mu in (-min tau, 0];
    c0 = 0: mu = 0, q_k ~ p_k G_k / sqrt(tau_k)
    each round m draws from q with replacement;
    Cohort.weights: a_k = multiplicity_k p_k / (m q_k)
    pilots: R_u rounds with q = 1 / K and R_w rounds with q = p that reach the same loss give
    c0 = (R_w N - R_u M) / (R_u - R_w),   M = sum p_k G_k^2,   N = K sum p_k^2 G_k^2

Symbols: ``G_k`` largest stochastic-gradient norm; ``tau_k`` seconds of download, compute and
upload; ``p_k`` share of the data; ``c0`` beta / alpha of the convergence bound. The coefficients
are unbiased, and count with ``weights = "selector"``.

State: ``phase``; ``c0``; the loss after each pilot round; per client ``num_examples``, ``norm``
(G_k), ``seconds`` (mean tau_k), ``count`` (durations in it), ``q`` (NaN: not solved yet).
Needs: ``num_examples`` once. Without pilots: probed ``grad_norm`` and the planner's estimates of
download, compute and upload in round 1, and reported ``max_grad_norm`` where ``refresh`` is set.
With pilots: reported ``max_grad_norm`` and ``arrival_loss``. Probe cost: without pilots everybody
available in round 1 downloads the model and takes one gradient over its data, later nothing. With
pilots none, but the pilot rounds are rounds of the run: they train, are timed and billed, and
count.
``Cohort.notes``: ``max_probability``, ``cv_probability`` over the available, ``max_weight``,
``phase``, ``c0``.

Deviations and readings
-----------------------
* INTERPRETATION-R the bound behind f; f, c0 and the coefficients are those of the released code.
* INTERPRETATION-D without pilots (default): c0 = 0 unless given, G from one gradient at the first
  model.
* READING the paper's pilots start twice from the first model; here the weighted pilot continues
  where the uniform one ended, and no training is thrown away. Both are compared by how much they
  raise 1 / loss: the bound has loss ~ (alpha X + beta) / R, so equal starts give the published
  count of rounds to equal losses, and only the ratio R_w : R_u enters c0. It takes the loss's
  optimum as 0. ``c0`` is the mean over 5 levels, from losses smoothed by a Gaussian of 5 rounds,
  interpolated between rounds.
* The pilot's loss is ``arrival_loss`` averaged over the reporting clients, with weights p_k / q_k.
  R_u = R_w at all levels, or no progress in a pilot: c0 = 0. c0 < 0: 0. G of 0 counts as 0.001 max
  G.
* INTERPRETATION-D an unknown G or tau (or one estimated as 0) is the mean of the others. A client
  that appears after q was solved has the mean q per share of data. q is renormalized over the
  available clients. A norm or duration that is not a number is left out.
* INTERPRETATION-D as in ``uniform``'s weighted_wr there are ``min(m, K_A)`` draws also where that
  is everybody.

Worked
------
p = (.5, .3, .2), G = (1, 1, 2), tau = (1, 2, 4). As c0 grows without bound q tends to the fastest
client; with equal tau it is p_k G_k, normalized.

| c0 | mu | q | f |
| --- | --- | --- | --- |
| 0 | 0 | (.548166, .232567, .219267) | 2.973087 |
| .5 | -.412173 | (.592107, .216160, .191734) | 3.892754 |
| 1 | -.613642 | (.630134, .199591, .170275) | 4.767476 |
| 5 | -.923643 | (.777699, .124283, .098019) | 10.889946 |

>>> import numpy as np
>>> q, mu = solve(np.array([0.25, 0.09, 0.16]), np.array([1.0, 2.0, 4.0]), c0=1.0)
>>> q.round(4).tolist(), round(mu, 4)
([0.6301, 0.1996, 0.1703], -0.6136)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, get_args

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import (
    DURATIONS,
    ESTIMATES,
    SIZE,
    estimated_s,
    filled,
    measured_s,
    put_sizes,
    shares,
)
from motley.selectors.common.sampling import probability_notes, with_replacement
from motley.selectors.selector import SelectionRule

Phase = Literal["uniform", "weighted", "solved"]
LARGEST = 1e140
"""Norms and losses above it, of runs that diverge, count as it: f stays finite."""
FLOOR = 1e-7
LEVELS = 5
SMOOTHING = 5.0
_GRID = 100
_DEFAULTS = {SIZE: np.nan, "norm": np.nan, "seconds": np.nan, "count": 0.0, "q": np.nan}


@dataclass(frozen=True)
class AdaSampleState:
    """The phase of the rule and its measurements.

    Parameters
    ----------
    phase: the pilot that is running, or ``"solved"`` (draws from q).
    c0: the constant in use once solved.
    uniform, weighted: the loss in each round of the two pilots, ``[rounds]``.
    clients: columns as named in the module's docstring.
    """

    phase: Phase
    c0: float = 0.0
    uniform: Floats = field(default_factory=lambda: np.zeros(0))
    weighted: Floats = field(default_factory=lambda: np.zeros(0))
    clients: ClientTable = field(default_factory=lambda: ClientTable(_DEFAULTS))


@dataclass(frozen=True)
class AdaSample(SelectionRule[AdaSampleState]):
    """Draw independently from one optimal distribution.

    Parameters
    ----------
    pilots: estimate c0, G and tau in two pilots, which are the run's first rounds; otherwise G and
    tau are probed in round 1.
    c0: beta / alpha of the bound, where it is known; not with pilots, which estimate it.
    pilot_fall: the uniform pilot ends when the loss has fallen by this share; the weighted when 1 /
    loss has risen as much.
    pilot_rounds: the longest that either pilot lasts.
    refresh: solve anew every so many rounds, with the norms and durations reported since; None: q
    is fixed, as published.
    c0_divisor: c0 is divided by it; the released notebook has the cohort size here.
    """

    pilots: bool = False
    c0: float = 0.0
    pilot_fall: float = 0.5
    pilot_rounds: int = 50
    refresh: int | None = None
    c0_divisor: float = 1.0

    paper: ClassVar[Paper] = cite("luo2022tackling")

    def __post_init__(self) -> None:
        if not 0 <= self.c0 < math.inf or not 0 < self.c0_divisor < math.inf:
            raise ConfigError(
                f"got c0 = {self.c0}, c0_divisor = {self.c0_divisor}; expected c0 >= 0 and "
                "c0_divisor > 0"
            )
        if self.pilots and self.c0:
            raise ConfigError(
                f"got c0 = {self.c0}, but pilots estimate c0; leave it out or take pilots = false"
            )
        if not 0 < self.pilot_fall < 1:
            raise ConfigError(
                f"got pilot_fall = {self.pilot_fall}; expected a share of the first loss in (0, 1)"
            )
        if self.pilot_rounds < 2:
            raise ConfigError(
                f"got pilot_rounds = {self.pilot_rounds}; expected at least 2 (some tens for a "
                "usable estimate)"
            )
        if self.refresh is not None and self.refresh < 1:
            raise ConfigError(
                f"got refresh = {self.refresh}; expected at least 1 round, or none to solve once"
            )

    @override
    def needs(self) -> SignalRequirements:
        if self.pilots:
            return SignalRequirements(
                frozenset({SIZE}),
                {},
                frozenset({"max_grad_norm", "arrival_loss"}),
                columns=DURATIONS,
            )
        probed: dict[str, int | None] = dict.fromkeys(("grad_norm", *sorted(ESTIMATES)))
        if not self.refresh:
            return SignalRequirements(frozenset({SIZE}), probed)
        return SignalRequirements(
            frozenset({SIZE}), probed, frozenset({"max_grad_norm"}), columns=DURATIONS
        )

    @override
    def provides(self) -> frozenset[str]:
        return frozenset({"weights"})

    @override
    def init(self) -> AdaSampleState:
        return AdaSampleState(
            "uniform" if self.pilots else "solved", 0.0 if self.pilots else self.c0
        )

    @override
    def candidates(self, state: AdaSampleState, context: SelectionContext) -> Ids:
        return context.available if not self.pilots and context.draw == 1 else np.zeros(0, np.int64)

    def probabilities(self, state: AdaSampleState, available: Ids) -> Floats:
        """Return q over the available clients, ``[K_A]``, sums to 1."""
        if state.phase == "uniform":
            return np.full(len(available), 1.0 / len(available))
        p = shares(state.clients, available)
        if state.phase == "weighted":
            return p
        q = state.clients.get("q", available)
        missing = np.isnan(q)
        if missing.any():
            mass = float(p[~missing].sum())
            q = np.where(missing, p * (float(q[~missing].sum()) / mass if mass > 0 else 1.0), q)
        return np.asarray(q / q.sum())

    @override
    def select(self, state: AdaSampleState, context: SelectionContext) -> Cohort:
        q = self.probabilities(state, context.available)
        at, counts = with_replacement(q, context.m, context.rng)
        weights = counts * shares(state.clients, context.available)[at] / (context.m * q[at])
        phase = float(get_args(Phase).index(state.phase))
        notes = {
            **probability_notes(q),
            "max_weight": float(weights.max()),
            "phase": phase,
            "c0": float(state.c0),
        }
        return Cohort(context.available[at], weights, counts, notes=notes, probabilities=q)

    @override
    def observe(self, state: AdaSampleState, draw: int, reports: Reports) -> AdaSampleState:
        clients = put_sizes(state.clients, reports)
        probed = reports.of(Outcome.PROBED)
        accepted = reports.of(Outcome.ACCEPTED)
        if len(probed):
            estimate = estimated_s(probed)
            estimate = np.where(estimate > 0, estimate, np.nan)  # 0: nothing was measured yet
            measured = _put_measured(clients, probed.ids, probed.signal("grad_norm"), estimate)
            return self._solved(replace(state, clients=measured))
        if len(accepted) and (state.phase != "solved" or self.refresh):
            if state.phase == "uniform" or self.refresh:
                norm = accepted.signal("max_grad_norm")
            else:
                norm = np.full(len(accepted), np.nan)
            clients = _put_measured(clients, accepted.ids, norm, measured_s(accepted), average=True)
        state = replace(state, clients=clients)
        if len(reports.of(Outcome.ENROLLED)):  # not the end of a round
            return state
        if state.phase != "solved":
            return self._pilot(state, accepted)
        return self._solved(state) if self.refresh and draw % self.refresh == 0 else state

    def _pilot(self, state: AdaSampleState, accepted: Reports) -> AdaSampleState:
        """Return the state after one more round of a pilot; the end of the second pilot solves for
        q."""
        losses = state.uniform if state.phase == "uniform" else state.weighted
        loss = np.clip(accepted.signal("arrival_loss"), 0.0, LARGEST)
        measured = accepted.ids[~np.isnan(loss)]
        if len(measured):
            if state.phase == "uniform":
                weight = shares(state.clients, measured)
            else:
                weight = np.ones(len(measured))
            weight = weight if weight.any() else np.ones(len(measured))
            losses = np.append(losses, np.average(loss[~np.isnan(loss)], weights=weight))
        elif len(losses):
            # a round without reports counts, and brought no progress
            losses = np.append(losses, losses[-1])
        else:
            return state
        rise = _rise(losses)
        long = len(losses) >= self.pilot_rounds
        if state.phase == "uniform":
            over = (
                long or rise[-1] >= self.pilot_fall / (1.0 - self.pilot_fall) * _inverse(losses)[0]
            )
            return replace(state, uniform=losses, phase="weighted" if over else "uniform")
        state = replace(state, weighted=losses)
        if not (long or rise[-1] >= _rise(state.uniform)[-1] > 0):
            return state
        p = shares(state.clients, state.clients.ids)
        c0 = pilot_constant(
            p, filled(state.clients.get("norm", state.clients.ids)), state.uniform, losses
        )
        return self._solved(replace(state, phase="solved", c0=c0))

    def _solved(self, state: AdaSampleState) -> AdaSampleState:
        """Return the state with q of every client known so far."""
        clients = state.clients
        ids = state.clients.ids
        if not len(ids):
            return state
        norm = filled(clients.get("norm", ids))
        # A thousandth at least: a client whose gradient happened to vanish would have q = 0, and
        # its next norm would never be seen.
        bound = (shares(clients, ids) * np.maximum(norm, 1e-3 * norm.max(initial=0.0))) ** 2
        q, _ = solve(bound, filled(clients.get("seconds", ids)), state.c0 / self.c0_divisor)
        return replace(state, clients=clients.put(ids, {"q": q}))


def solve(bound: Floats, tau: Floats, c0: float) -> tuple[Floats, float]:
    """Return the q that minimizes ``(sum q tau) (sum B / q + c0)``, and its mu.

    The minimum lies in the family ``q ~ sqrt(B / (tau + mu))``. Along it f needs two sums only:
    with ``r = sqrt(tau + mu)``, ``S = sum sqrt(B) / r`` and ``U = sum sqrt(B) r`` it is
    ``(U - mu S) / S * (S U + c0)``. f varies slowly in log u, where ``mu = -min tau (1 - u)``: 100
    points of u in [1e-9, 1], then a bounded search around the best.

    Parameters
    ----------
    bound: B ``[K]``, at least 0.
    tau: ``[K]``, at least 0 (0 counts as a billionth of the largest).
    c0: at least 0.
    """
    root = np.sqrt(bound)
    if not root.any():
        return np.full(len(bound), 1.0 / max(len(bound), 1)), 0.0
    root = root / (size := float(root.sum()))
    # In units of the slowest client and of the sum of roots: the search below then has the same
    # range of u for any seconds and any norms.
    unit = float(tau.max()) or 1.0
    tau = np.maximum(tau / unit, 1e-9) if tau.any() else np.ones(len(tau))
    low = float(tau.min())
    above = tau - low
    constant = c0 / size / size

    def along(log_u: float) -> float:
        x = low * math.exp(log_u)
        r = np.sqrt(above + x)
        s = float((root / r).sum())
        u = float(root @ r)
        return math.log((u + (low - x) * s) / s) + math.log(s * u + constant)

    best = 0.0
    if constant > 0 and above.any():
        grid = np.linspace(math.log(1e-9), 0.0, _GRID)
        at = int(np.argmin([along(point) for point in grid]))
        # the bound may have several minima: the grid finds the valley, the search its bottom
        edges = grid[max(at - 1, 0)], grid[min(at + 1, _GRID - 1)]
        from scipy.optimize import minimize_scalar  # takes a tenth of the start of every run

        minimum = minimize_scalar(along, bounds=edges, method="bounded", options={"xatol": 1e-10})
        # a bounded search does not try its ends, of which the upper one may be the best
        best = min(float(minimum.x), 0.0, key=along)
    x = low * math.exp(best)
    q = root / np.sqrt(above + x)
    floor = min(FLOOR, 0.1 / len(q))
    q = np.clip(q / q.sum(), floor, 1.0 - floor)
    return q / q.sum(), (x - low) * unit


def bound_constant(
    p: Floats, norm: Floats, rounds_uniform: Floats, rounds_weighted: Floats
) -> Floats:
    """Return ``c0 = (R_w N - R_u M) / (R_u - R_w)`` for each pair of round counts ``[n]``; NaN
    where they are equal.

    Parameters
    ----------
    p, norm: shares and G of the clients ``[K]``.
    """
    square = p * norm**2
    m = square.sum()
    n = len(p) * (p * square).sum()
    gap = rounds_uniform - rounds_weighted
    return np.asarray(
        np.divide(
            rounds_weighted * n - rounds_uniform * m,
            gap,
            out=np.full(len(gap), np.nan),
            where=gap != 0,
        )
    )


def pilot_constant(p: Floats, norm: Floats, uniform: Floats, weighted: Floats) -> float:
    """Return c0 from the losses after 0, 1, 2, .. rounds of the two pilots ``[rounds]``; 0 where it
    cannot be estimated."""
    rises = [np.maximum.accumulate(_rise(losses)) for losses in (uniform, weighted)]
    top = min(rise[-1] for rise in rises)
    if not top > 0:
        return 0.0
    levels = top * np.arange(1, LEVELS + 1) / LEVELS
    rounds = []
    for rise in rises:
        # first round at or above each level, from 1
        after = np.minimum(np.searchsorted(rise, levels), len(rise) - 1)
        rounds.append(after - (rise[after] - levels) / (rise[after] - rise[after - 1]))
    constants = bound_constant(p, norm, *rounds)
    constants = constants[np.isfinite(constants)]
    return max(float(constants.mean()), 0.0) if len(constants) else 0.0


def _inverse(losses: Floats) -> Floats:
    """Return 1 / loss, of the smoothed losses."""
    from scipy.ndimage import gaussian_filter1d

    return np.asarray(1.0 / np.maximum(gaussian_filter1d(losses, SMOOTHING, mode="nearest"), 1e-12))


def _rise(losses: Floats) -> Floats:
    return np.asarray(_inverse(losses) - _inverse(losses)[0])


def _put_measured(
    clients: ClientTable, ids: Ids, norm: Floats, seconds: Floats, average: bool = False
) -> ClientTable:
    """Write largest norms and durations; with ``average`` mean durations, where the first measured
    one replaces the estimate."""
    new = {
        "norm": np.fmax(clients.get("norm", ids), np.minimum(np.abs(norm), LARGEST)),
        "seconds": seconds,
    }
    if average:
        old = clients.get("seconds", ids)
        count = clients.get("count", ids)
        new["seconds"] = np.where(count > 0, old + (seconds - old) / (count + 1.0), seconds)
        new["count"] = count + ~np.isnan(seconds)
    return clients.put(ids, new)
