"""TiFL: a round's cohort comes from one tier of equally fast clients, so that nobody waits for a straggler.

Chai, Ali, Zawad, et al.: *TiFL: A Tier-based Federated Learning System*, HPDC 2020. Specification: selectors-baselines 14b
(formulas INTERPRETATION-R).

    tiers          n_t = 5, by quantiles of the known durations, fastest first; renewed every 50 rounds
    each round     draw a tier with the tier probabilities (1 / n_t at first) until one with credits comes; spend one credit;
                   m of its available clients uniformly; all credits spent: m of all available, uniformly
    every I = 20   where the tier used last is no more accurate than I rounds ago: the n tiers with credits, sorted by accuracy,
                   worst first, get probability (n - i) / (n (n - 1) / 2), i = 1 .. n

Symbols: ``I`` interval between looks; a tier starts with ``ceil(horizon / n_t)`` credits. Accuracy is read off the mean validation
loss of a tier's clients: less loss is more accurate.

State, per client: ``duration``, ``tier`` (0 the fastest); per tier: ``spent`` credits, ``losses`` at the last look; ``worst``
and ``then``: losses and spent credits when the probabilities were last set; ``used``, the tier of the last round (-1: none).
Needs: the planner's estimates of durations once; the horizon (unless ``credits`` is given); probed ``val_loss``.
Probe cost: in rounds 1, I + 1, 2 I + 1, ... one download and one evaluation of the validation part for every available client;
in all other rounds nothing.

``Cohort.notes``: ``tier`` (-1: no credits left), ``credits`` left, ``max_probability``, ``cv_probability`` over the available.

Deviations and readings
-----------------------
* INTERPRETATION-D: I, 50 and the credits. A tier with fewer than m available is topped up from the next slower ones, then from
  the next faster; a tier without anybody available is not drawn.
* INTERPRETATION-D: the tier used is read off the reports: the fastest tier of those sent out, because who tops up is slower. So a
  credit is spent where somebody was sent out. Where even all slower tiers together are too few, a faster tier pays.
* The most accurate tier has probability 0. When only tiers of probability 0 have credits left, they are drawn uniformly.
* Equal durations stay in one tier. INTERPRETATION-D: a client whose duration is not known is in the slowest.
* A tier without a known loss counts as the mean of the others; equal losses keep the order of the tiers.

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(TiFL(tiers=2, credits=9), seed=0)
>>> selector.observe(0, Reports(range(4), Outcome.ENROLLED, signals={"compute_estimate_s": [9, 1, 8, 2]}))
>>> sorted(selector.select(1, available_ids=range(4), m=2).ids.tolist()) in ([1, 3], [0, 2])
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.paper import Paper
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.base import SelectionRule
from motley.selectors.common.durations import ESTIMATES, estimated_s, measured_s

__all__ = ["TiFL", "TiFLState"]

LARGEST = 1e150
"""Losses above it, of runs that diverge, count as it: means of tiers stay finite."""


@dataclass(frozen=True)
class TiFLState:
    """As named in the module's docstring; every array is ``[n_t]``."""

    clients: ClientTable
    spent: Floats
    losses: Floats
    worst: Floats
    then: Floats
    used: int = -1


@dataclass(frozen=True)
class TiFL(SelectionRule[TiFLState]):
    """Cohorts from one tier at a time.

    Parameters
    ----------
    tiers: n_t. interval: I, rounds between two looks at the tiers' losses. retier: rounds between two groupings.
    credits: rounds a tier may be used; None: ceil(horizon / tiers).
    """

    tiers: int = 5
    interval: int = 20
    retier: int = 50
    credits: int | None = None

    paper: ClassVar[Paper] = Paper(
        "chai2020tifl",
        "TiFL: A Tier-based Federated Learning System",
        (
            "Zheng Chai", "Ahsan Ali", "Syed Zawad", "Stacey Truex", "Ali Anwar", "Nathalie Baracaldo", "Yi Zhou", "Heiko Ludwig",
            "Feng Yan", "Yue Cheng",
        ),
        "International Symposium on High-Performance Parallel and Distributed Computing (HPDC)",
        2020,
        "https://arxiv.org/abs/2001.09249",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name in ("tiers", "interval", "retier"):
            if getattr(self, name) < 1:
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected at least 1")
        if self.credits is not None and self.credits < 0:
            raise ConfigError(f"got credits = {self.credits}; expected at least 0 (0: always all clients)")

    def needs(self) -> SignalRequirements:
        """Estimated durations once, validation losses at the looks, the horizon for the credits."""
        return SignalRequirements(ESTIMATES, {"val_loss": None}, horizon=self.credits is None)

    def init(self) -> TiFLState:
        """Everybody in the slowest tier, no credit spent, nothing measured."""
        clients = ClientTable({"duration": np.nan, "tier": self.tiers - 1.0})
        unknown = np.full(self.tiers, np.nan)
        return TiFLState(clients, np.zeros(self.tiers), unknown, unknown, np.zeros(self.tiers))

    def credited(self, spent: Floats, horizon: int | None) -> Floats:
        """Credits left in each tier, ``[n_t]``."""
        start = math.ceil((horizon or 0) / self.tiers) if self.credits is None else self.credits
        return np.maximum(start - spent, 0.0)

    def probabilities(self, state: TiFLState, horizon: int | None) -> Floats:
        """Tier probabilities as they were last set, ``[n_t]``: equal, or the worst tier first."""
        if np.isnan(state.worst).all():
            return np.full(self.tiers, 1.0 / self.tiers)
        rich = np.flatnonzero(self.credited(state.then, horizon) > 0)
        n = len(rich)
        losses = np.where(np.isnan(state.worst), np.nanmean(state.worst), state.worst)
        out = np.zeros(self.tiers)
        shares = (n - np.arange(1, n + 1)) / (n * (n - 1) / 2) if n > 1 else np.ones(n)
        out[rich[np.argsort(-losses[rich], kind="stable")]] = shares
        return out

    def candidates(self, state: TiFLState, context: SelectionContext) -> Ids:
        """Everybody available, in rounds 1, I + 1, 2 I + 1, ..."""
        return context.available if (context.round - 1) % self.interval == 0 else context.available[:0]

    def select(self, state: TiFLState, context: SelectionContext) -> Cohort:
        """A tier, then m of it."""
        tier = state.clients.get("tier", context.available)
        there = np.bincount(tier.astype(np.int64), minlength=self.tiers)
        left = self.credited(state.spent, context.horizon)
        able = (left > 0) & (there > 0)
        if not able.any():
            anybody, everybody = context.rng.choice(len(tier), context.m, replace=False), np.array([len(tier)])
            return self._cohort(context, anybody, -1, left, np.ones(1), everybody, np.zeros(len(tier), np.int64))
        weight = self.probabilities(state, context.horizon) * able
        p = weight / weight.sum() if weight.any() else able / able.sum()
        drawn = int(context.rng.choice(self.tiers, p=p))
        at: Ids = np.zeros(0, np.int64)
        for group in (*range(drawn, self.tiers), *range(drawn - 1, -1, -1)):
            if len(at) < context.m and there[group]:
                members = np.flatnonzero(tier == group)
                more = context.rng.choice(len(members), min(context.m - len(at), len(members)), replace=False)
                at = np.concatenate([at, members[more]])
        full = np.flatnonzero(there)
        return self._cohort(context, at, drawn, left, p[full], there[full], np.searchsorted(full, tier))

    def _cohort(self, context: SelectionContext, at: Ids, tier: int, left: Floats, p: Floats, there: Ids, own: Ids) -> Cohort:
        """The clients at these positions; the law of the first draw is ``p / there`` for each client of a tier, ``own`` its row."""
        spread = math.sqrt(float(there @ (p / there * there.sum() - 1.0) ** 2) / there.sum())
        notes = {"tier": float(tier), "credits": float(left.sum()), "max_probability": float((p / there).max())}
        return Cohort(context.available[at], notes={**notes, "cv_probability": spread}, probabilities=(p / there)[own])

    def observe(self, state: TiFLState, round: int, reports: Reports) -> TiFLState:
        """Durations at enrolment and from participants; losses at a look; the credit of the tier that was used."""
        enrolled, asked = reports.of(Outcome.ENROLLED), reports.of(Outcome.PROBED)
        if len(enrolled):
            return self._group(replace(state, clients=state.clients.put(enrolled.ids, {"duration": estimated_s(enrolled)})))
        if len(asked):
            return self._look(state, asked)
        sent = reports.of(Outcome.ACCEPTED, Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED)
        if len(sent):
            used = int(state.clients.get("tier", sent.ids).min())
            done = sent.of(Outcome.ACCEPTED)
            clients = state.clients.put(done.ids, {"duration": measured_s(done)})
            state = replace(state, clients=clients, used=used, spent=state.spent + (np.arange(self.tiers) == used))
        return self._group(state) if round > 0 and round % self.retier == 0 else state

    def _group(self, state: TiFLState) -> TiFLState:
        """Tiers anew: the k-th holds those above the k-th and up to the next quantile of the known durations."""
        duration = state.clients.get("duration", state.clients.ids)
        known = duration[~np.isnan(duration)]
        if not len(known):
            return state
        cuts = np.maximum(np.ceil(len(known) * np.arange(1, self.tiers) / self.tiers - 1e-9).astype(np.int64) - 1, 0)
        edges = np.partition(known, cuts)[cuts] if len(cuts) else known[:0]
        tier = np.searchsorted(edges, duration, side="left")  # NaN sorts behind every number: the slowest
        return replace(state, clients=state.clients.put(state.clients.ids, {"tier": tier.astype(np.float64)}))

    def _look(self, state: TiFLState, asked: Reports) -> TiFLState:
        """New mean losses; probabilities are set where the tier used last has not become more accurate."""
        loss = np.clip(asked.signal("val_loss"), -LARGEST, LARGEST)
        known = ~np.isnan(loss)
        tier = state.clients.get("tier", asked.ids[known]).astype(np.int64)
        count = np.bincount(tier, minlength=self.tiers)
        total = np.bincount(tier, weights=loss[known], minlength=self.tiers)
        losses = np.divide(total, count, out=state.losses.copy(), where=count > 0)
        stuck = state.used >= 0 and count[state.used] > 0 and losses[state.used] >= state.losses[state.used]
        worst, then = (losses, state.spent) if stuck else (state.worst, state.then)
        return replace(state, losses=losses, worst=worst, then=then)
