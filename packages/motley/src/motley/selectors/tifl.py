"""TiFL draws each round's cohort from one tier of similarly fast clients, so that no round waits
for a straggler.

Chai, Ali, Zawad, et al.: *TiFL: A Tier-based Federated Learning System*, HPDC 2020. All formulas
are INTERPRETATION-R.

    tiers          n_t = 5, by quantiles of the known durations, fastest first; renewed every 50
                   rounds
    each round     draw a tier with the tier probabilities (1 / n_t at first) until one with
                   credits comes; spend one credit; m of its available clients uniformly;
                   all credits spent: m of all available, uniformly
    every I = 20   where the tier used last is no more accurate than I rounds ago: the n tiers with
                   credits, sorted by accuracy, worst first, get probability
                   (n - i) / (n (n - 1) / 2), i = 1 .. n

Symbols: ``I`` interval between looks; a tier starts with ``ceil(horizon / n_t)`` credits. Accuracy
is read off the mean validation loss of a tier's clients: less loss is more accurate.

State, per client: ``duration``, ``tier`` (0 the fastest); per tier: ``spent`` credits, ``losses``
at the last look; ``worst`` and ``then``: losses and spent credits when the probabilities were last
set; ``used``, the tier of the last round (-1: none).
Needs: the planner's estimates of durations once; the horizon (unless ``credits`` is given); probed
``val_loss``. Probe cost: in rounds 1, I + 1, 2 I + 1, ... one download and one evaluation of the
validation part for every available client; in all other rounds nothing.

``Cohort.notes``: ``tier`` (-1: no credits left), ``credits`` left, ``max_probability``,
``cv_probability`` over the available.

Deviations and readings
-----------------------
* INTERPRETATION-D: I, 50 and the credits. A tier with fewer than m available is topped up from the
  next slower ones, then from the next faster; a tier without anybody available is not drawn.
* INTERPRETATION-D: the tier used is read off the reports: the fastest tier of the dispatched
  clients, because a tier is topped up from slower ones. Where even all slower tiers together are
  too few, a faster tier pays the credit.
* The most accurate tier has probability 0. When only tiers of probability 0 have credits left, they
  are drawn uniformly.
* Equal durations stay in one tier. INTERPRETATION-D: a client whose duration is not known is in the
  slowest.
* A tier without a known loss counts as the mean of the others; equal losses keep the order of the
  tiers.

Worked
------
n = 5 gives the probabilities (.4, .3, .2, .1, 0): the most accurate tier rests until the order
changes.

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(TiFL(tiers=2, credits=9), seed=0)
>>> seconds = {"compute_estimate_s": [9, 1, 8, 2]}
>>> selector.observe(0, Reports(range(4), Outcome.ENROLLED, signals=seconds))
>>> sorted(selector.select(1, available_ids=range(4), m=2).ids.tolist()) in ([1, 3], [0, 2])
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import rounded
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import (
    DURATIONS,
    ESTIMATES,
    dispatched,
    estimated_s,
    measured_s,
)
from motley.selectors.selector import SelectionRule

LARGEST = 1e150
"""Losses above it, of runs that diverge, count as it: means of tiers stay finite."""


@dataclass(frozen=True)
class TiFLState:
    """Fields as named in the module's docstring; every array is ``[n_t]``."""

    clients: ClientTable
    spent: Floats
    losses: Floats
    worst: Floats
    then: Floats
    used: int = -1


@dataclass(frozen=True)
class TiFL(SelectionRule[TiFLState]):
    """Draw each cohort from one tier.

    Parameters
    ----------
    tiers: n_t.
    interval: I, rounds between two looks at the tiers' losses.
    retier: rounds between two groupings.
    credits: rounds a tier may be used; None: ceil(horizon / tiers).
    """

    tiers: int = 5
    interval: int = 20
    retier: int = 50
    credits: int | None = None

    paper: ClassVar[Paper] = cite("chai2020tifl")

    def __post_init__(self) -> None:
        for name in ("tiers", "interval", "retier"):
            if getattr(self, name) < 1:
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected at least 1")
        if self.credits is not None and self.credits < 0:
            raise ConfigError(
                f"got credits = {self.credits}; expected at least 0 (0: always all clients)"
            )

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(
            ESTIMATES, {"val_loss": None}, horizon=self.credits is None, columns=DURATIONS
        )

    @override
    def init(self) -> TiFLState:
        clients = ClientTable({"duration": np.nan, "tier": self.tiers - 1.0})
        unknown = np.full(self.tiers, np.nan)
        return TiFLState(
            clients=clients,
            spent=np.zeros(self.tiers),
            losses=unknown,
            worst=unknown,
            then=np.zeros(self.tiers),
        )

    def credited(self, spent: Floats, horizon: int | None) -> Floats:
        """Return the credits left in each tier, ``[n_t]``."""
        start = math.ceil((horizon or 0) / self.tiers) if self.credits is None else self.credits
        return np.maximum(start - spent, 0.0)

    def probabilities(self, state: TiFLState, horizon: int | None) -> Floats:
        """Return the tier probabilities as they were last set, ``[n_t]``: equal, or the worst tier
        first."""
        if np.isnan(state.worst).all():
            return np.full(self.tiers, 1.0 / self.tiers)
        rich = np.flatnonzero(self.credited(state.then, horizon) > 0)
        n = len(rich)
        losses = np.where(np.isnan(state.worst), np.nanmean(state.worst), state.worst)
        out = np.zeros(self.tiers)
        shares = (n - np.arange(1, n + 1)) / (n * (n - 1) / 2) if n > 1 else np.ones(n)
        # The worst tier gets the largest share. Rounded: losses that are equal but for the order of
        # a sum must not change places between machines.
        out[rich[np.argsort(-rounded(losses[rich]), kind="stable")]] = shares
        return out

    @override
    def candidates(self, state: TiFLState, context: SelectionContext) -> Ids:
        return (
            context.available if (context.draw - 1) % self.interval == 0 else context.available[:0]
        )

    @override
    def select(self, state: TiFLState, context: SelectionContext) -> Cohort:
        tier = state.clients.get("tier", context.available)
        count = np.bincount(tier.astype(np.int64), minlength=self.tiers)
        left = self.credited(state.spent, context.horizon)
        usable = (left > 0) & (count > 0)
        if not usable.any():
            at = context.rng.choice(len(tier), context.m, replace=False)
            everybody = np.array([len(tier)])
            return self._cohort(
                context,
                at,
                tier=-1,
                left=left,
                p=np.ones(1),
                count=everybody,
                own=np.zeros(len(tier), np.int64),
            )
        weight = self.probabilities(state, context.horizon) * usable
        p = weight / weight.sum() if weight.any() else usable / usable.sum()
        drawn = int(context.rng.choice(self.tiers, p=p))
        at = np.zeros(0, np.int64)
        for group in (*range(drawn, self.tiers), *range(drawn - 1, -1, -1)):
            if len(at) < context.m and count[group]:
                members = np.flatnonzero(tier == group)
                more = context.rng.choice(
                    len(members), min(context.m - len(at), len(members)), replace=False
                )
                at = np.concatenate([at, members[more]])
        full = np.flatnonzero(count)
        return self._cohort(
            context,
            at,
            tier=drawn,
            left=left,
            p=p[full],
            count=count[full],
            own=np.searchsorted(full, tier),
        )

    def _cohort(
        self,
        context: SelectionContext,
        at: Ints,
        tier: int,
        left: Floats,
        p: Floats,
        count: Ints,
        own: Ints,
    ) -> Cohort:
        """Return the clients at these positions; each client's probability is ``p / count`` of its
        tier, in row ``own``."""
        spread = math.sqrt(float(count @ (p / count * count.sum() - 1.0) ** 2) / count.sum())
        notes = {
            "tier": float(tier),
            "credits": float(left.sum()),
            "max_probability": float((p / count).max()),
        }
        return Cohort(
            context.available[at],
            notes={**notes, "cv_probability": spread},
            probabilities=(p / count)[own],
        )

    @override
    def observe(self, state: TiFLState, draw: int, reports: Reports) -> TiFLState:
        enrolled = reports.of(Outcome.ENROLLED)
        probed = reports.of(Outcome.PROBED)
        if len(enrolled):
            return self._group(
                replace(
                    state,
                    clients=state.clients.put(enrolled.ids, {"duration": estimated_s(enrolled)}),
                )
            )
        if len(probed):
            return self._look(state, probed)
        sent = dispatched(reports)
        if len(sent):
            used = int(state.clients.get("tier", sent.ids).min())
            accepted = sent.of(Outcome.ACCEPTED)
            clients = state.clients.put(accepted.ids, {"duration": measured_s(accepted)})
            state = replace(
                state,
                clients=clients,
                used=used,
                spent=state.spent + (np.arange(self.tiers) == used),
            )
        return self._group(state) if draw > 0 and draw % self.retier == 0 else state

    def _group(self, state: TiFLState) -> TiFLState:
        """Return the state with new tiers: the k-th holds the clients between two quantiles of the
        known durations."""
        duration = rounded(state.clients.get("duration", state.clients.ids))
        finite = duration[~np.isnan(duration)]
        if not len(finite):
            return state
        cuts = np.maximum(
            # 1e-9: a quotient that is whole but for its last bit
            np.ceil(len(finite) * np.arange(1, self.tiers) / self.tiers - 1e-9).astype(np.int64)
            - 1,
            0,
        )
        edges = np.partition(finite, cuts)[cuts] if len(cuts) else finite[:0]
        # NaN sorts behind every number: the slowest
        tier = np.searchsorted(edges, duration, side="left")
        return replace(
            state, clients=state.clients.put(state.clients.ids, {"tier": tier.astype(np.float64)})
        )

    def _look(self, state: TiFLState, probed: Reports) -> TiFLState:
        """Return the state with new mean losses; probabilities are set if the tier used last is no
        more accurate."""
        loss = np.clip(probed.signal("val_loss"), -LARGEST, LARGEST)
        present = ~np.isnan(loss)
        tier = state.clients.get("tier", probed.ids[present]).astype(np.int64)
        count = np.bincount(tier, minlength=self.tiers)
        total = np.bincount(tier, weights=loss[present], minlength=self.tiers)
        # A tier of which nobody was measured keeps its last loss.
        losses = np.divide(total, count, out=state.losses.copy(), where=count > 0)
        stuck = (
            state.used >= 0
            and count[state.used] > 0
            and rounded(losses)[state.used] >= rounded(state.losses)[state.used]
        )
        worst, then = (losses, state.spent) if stuck else (state.worst, state.then)
        return replace(state, losses=losses, worst=worst, then=then)
