"""FedCG chooses a diverse cohort and gives its clients compression ratios with which all finish
together.

Jiang, Xu, Xu, Wang, Qian: *Heterogeneity-Aware Federated Learning with Adaptive Client Selection
and Gradient Compression*, IEEE INFOCOM 2023 (arXiv:2212.09483); journal form IEEE Transactions on
Mobile Computing 2024.

    cohort: facility location on the last known update vectors, exactly as DivFL's
    min T  s.t.  tau_k + theta_k u_k <= T,   sum_k theta_k >= m budget,   least <= theta_k <= 1
           (motley.core.upload_ratios)
    theta_k = clip((T* - tau_k) / u_k, least, 1)                    Cohort.upload_ratio

Symbols: ``tau_k`` seconds of the client's local work; ``u_k = s / B_k`` seconds of an uncompressed
upload (s = 32 D bits); ``theta_k`` share of the update sent; ``budget`` its mean over the cohort.
Ratios are for the allocator ``from_selector``.

State, per client: ``vector`` [d] (NaN: none yet), ``compute_s``, ``upload_s`` and ``probed``, the
round they are of.
Needs: reported vectors; probed ``compute_estimate_s`` and ``upload_estimate_s`` (hence u_k without
knowing s). Probe cost: none, both estimates are the planner's. ``start = "everybody"``: round 1
trains every available client. A round costs O(K^2 d) for the distances and about O(K^2 log m) for
the picks; the program O(m log m).

``Cohort.notes``: ``finish_s`` (T*), ``mean_ratio``, ``distance`` (mean over all clients to the
nearest of the cohort), ``known`` (share of the clients with a vector), ``runs`` (of the greedy).

Deviations and readings
-----------------------
* Confirmed of the paper: submodular maximization for diversity, a linear program for ratios,
  coupled by iteration, no error buffer. INTERPRETATION-R the utility. INTERPRETATION-D the program,
  its defaults, and that slack is spent on fidelity (where uploads are short beside the slowest
  client's work nearly everything is sent; ``slack = "traffic"`` sends the budget).
* INTERPRETATION-D ``start``: DivFL measures everybody's gradient in round 1. What a rule probes is
  the same in all rounds, and here system estimates are probed in each: so everybody trains in round
  1 instead. ``"unknown"`` goes without.
* INTERPRETATION-D an unknown vector is the mean of the known, as in DivFL. All unknown clients then
  count as one: with ``"unknown"`` hardly more than one client a round is chosen for the first time.
* INTERPRETATION-D ties of the greedy are drawn, as in DivFL: without ``time_aware`` diversity alone
  decides, not speed.
* READING ``time_aware``: up to 3 times, drop the clients that cannot finish by 1.5 T0 even with
  ``least``, pick and solve again, until none is dropped; the m fastest always stay. T0 is the T* of
  the cohort without ``least`` and T_low: when its fast clients alone would have sent the budget.
  With T* itself nothing could ever change, since no pick finishes after T*, and the greedy's picks
  stay its picks when others are dropped. With m budget <= 1 T0 is the fastest pick's own time.
* A client whose probe of this round lacks an estimate (a dead link) is not available: the cohort
  may be smaller. One that was never probed sends ``budget`` and stays out of the program.
* The rows of AdaSample, OptRate and FlexCom in HeteRo-Select v2's tables are copied from FedCG's
  paper and were not run again there.

Worked
------
tau = (5, 10, 12), B = (1, 4, 2), message 40, budget .4, least .05: T* = 16.714286, theta =
(.292857, .671429, .235714); a uniform theta would take 21. tau = (5, 10, 20): the floor binds, T* =
21, theta = (.4, 1, .05).

>>> from motley.selectors import Selector
>>> selector = Selector(FedCG(start="unknown"), seed=0)
>>> selector.select(1, available_ids=range(4), m=2).upload_ratio.tolist()
[0.2, 0.2]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import rounded
from motley.core.table import ClientTable
from motley.core.upload_ratios import Slack, finish_time, upload_ratios
from motley.selectors.common.client_signals import known_vectors, put_vectors, usable_seconds
from motley.selectors.common.facility import Vectors, cover, distances
from motley.selectors.common.sampling import Ties
from motley.selectors.selector import SelectionRule

RUNS = 3
"""Times that the coupling picks again."""
PATIENCE = 1.5
"""The coupling drops clients that need more than so many times T0."""
_DEFAULTS = {"vector": np.nan, "compute_s": np.nan, "upload_s": np.nan, "probed": 0.0}


@dataclass(frozen=True)
class FedCG(SelectionRule[ClientTable]):
    """Take a diverse cohort, with upload ratios that equalize finishing times.

    Parameters
    ----------
    budget: mean ratio of the cohort, in (0, 1].
    least: smallest ratio of a client, in (0, 1].
    slack: ``"fidelity"`` sends all that the finishing time allows, ``"traffic"`` no more than the
    budget.
    time_aware: whether slow clients are left out of the choice.
    start: ``"everybody"``: all clients train in round 1 and report vectors; ``"unknown"``: vectors
    come as clients are chosen.
    vectors: sketches of 256 numbers that keep distances, or exact pseudo-gradients.
    ties: ``"random"``, or ``"lowest_id"`` for tests.
    """

    budget: float = 0.2
    least: float = 0.01
    slack: Slack = "fidelity"
    time_aware: bool = False
    start: Literal["everybody", "unknown"] = "everybody"
    vectors: Vectors = "gradient_sketch"
    ties: Ties = "random"

    takes_fewer: ClassVar[bool] = True
    paper: ClassVar[Paper] = cite("jiang2023heterogeneity")

    def __post_init__(self) -> None:
        if not 0 < self.budget <= 1:
            raise ConfigError(
                f"got budget = {self.budget}; expected a mean ratio in (0, 1] (1 sends whole "
                "updates)"
            )
        if not 0 < self.least <= 1:
            raise ConfigError(f"got least = {self.least}; expected a ratio in (0, 1]")
        if self.least > self.budget:
            raise ConfigError(
                f"got least = {self.least}, budget = {self.budget}; expected a smallest ratio not "
                "above the mean"
            )

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(
            probed={"compute_estimate_s": None, "upload_estimate_s": None},
            reported=frozenset({self.vectors}),
        )

    @override
    def provides(self) -> frozenset[str]:
        return frozenset({"upload_ratio"})

    @override
    def init(self) -> ClientTable:
        return ClientTable(_DEFAULTS)

    @override
    def size(self, draw: int, m: int, available: int) -> int:
        return available if self.start == "everybody" and draw == 1 and m else min(m, available)

    @override
    def candidates(self, state: ClientTable, context: SelectionContext) -> Ids:
        return context.available

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        get = state.get
        lost = np.isnan(get("compute_s", context.available)) | np.isnan(
            get("upload_s", context.available)
        )
        pool = context.available[~(lost & (get("probed", context.available) == context.draw))]
        if not len(pool):
            return Cohort(pool)
        compute_s = get("compute_s", pool)
        upload_s = get("upload_s", pool)
        everybody = np.union1d(state.ids, pool)
        vectors, present = known_vectors(state, "vector", everybody)
        far = distances(vectors, np.searchsorted(everybody, pool))
        rank = context.rng.permutation(len(pool)) if self.ties == "random" else np.arange(len(pool))
        # an unknown time drops no client
        floor = rounded(np.nan_to_num(compute_s + self.least * upload_s))
        left = np.arange(len(pool))
        for run in range(1 + RUNS * self.time_aware):
            covering = cover(far[:, left] if run else far, context.m, rank[left])
            chosen = left[covering.at]
            theta, finish_s = upload_ratios(
                compute_s[chosen], upload_s[chosen], self.budget, self.least, slack=self.slack
            )
            in_time = floor[left] <= self._patience(
                compute_s[chosen], upload_s[chosen], floor[left]
            )
            if in_time.all():
                break
            left = left[in_time]
        notes = {
            "finish_s": finish_s,
            "mean_ratio": theta.mean(),
            "distance": covering.objective[-1] / len(everybody),
        }
        notes |= {"known": present.mean(), "runs": run + 1}
        return Cohort(
            pool[chosen],
            upload_ratio=theta,
            notes={name: float(value) for name, value in notes.items()},
        )

    def _patience(self, compute_s: Floats, upload_s: Floats, floor: Floats) -> float:
        """Return the seconds after which a candidate is dropped; at least those of the m
        fastest."""
        present = ~np.isnan(compute_s + upload_s)
        tau = compute_s[present]
        u = upload_s[present]
        limit = PATIENCE * finish_time(tau, u, self.budget, 0.0) if present.any() else np.inf
        fastest = np.partition(floor, len(present) - 1)[len(present) - 1]
        return float(rounded(np.array([limit, fastest])).max())

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        clients = state
        probed = reports.of(Outcome.PROBED)
        if len(probed):
            new = {
                f"{phase}_s": usable_seconds(probed.signal(f"{phase}_estimate_s"))
                for phase in ("compute", "upload")
            }
            clients = clients.put(
                probed.ids, {**new, "probed": np.full(len(probed), float(draw))}, keep_nan=True
            )
        return put_vectors(clients, "vector", reports.of(Outcome.ACCEPTED), self.vectors)
