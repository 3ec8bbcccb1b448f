"""Oort chooses clients by one score: statistical utility plus a staleness bonus, discounted for
slow clients.

Lai, Zhu, Madhyastha, Chowdhury: *Oort: Efficient Federated Learning via Guided Participant
Selection*, OSDI 2021.

    U_k = |B_k| sqrt(mean of squared losses over B_k),   |B_k| = min(n_k, local steps * batch size)
          utility, as reported
    base_k = (min(U_k, clip) - lo) / rg,   lo = .999 min U,   rg = max(max U - lo, 1e-4),
          clip = the q-quantile of U
    score_k = [base_k + sqrt(.1 ln t / L_k)] g_k,   g_k = (T / tau_k)^alpha where tau_k > T, else 1
    T = the thr-th percentile of all known durations, infinite for thr = 100

    explore  eps_t = max(.9 * .98^(t - 1), .2) by number of selections;
             n_xpt = min(m - floor(m eps_t), explored clients)
    exploit  of the explored with score >= c * (score at rank n_xpt, from 0), n_xpt drawn in
             proportion to their score
    explore  of the unexplored, the 5 n_e heaviest by
             e_k = min(n_k, local steps * batch size) g_k; n_e drawn in proportion
    pacer    every W rounds from 2W on, with h the mean U of the exploited:
             last = sum h[-2W:-W], cur = sum h[-W:];
             |cur - last| <= .1 last: thr + step;
             |cur - last| >= 5 last: thr - step, at least step

Symbols: ``L_k`` the last *round* in which k reported, not a count, so that the bonus grows with
time since then; ``tau_k`` download
+ local work + upload; ``c`` cut-off. Minima, maxima and quantiles run over the available, explored
  clients of positive utility
that are not blacklisted. The first selection is uniform. Over-commitment belongs to the synchrony,
not to the rule.

State, per client: ``num_examples``, ``utility``, ``last`` (0: unexplored), ``count`` (times
selected), ``duration``, ``steps`` (of the full local work); over all: ``selections``, ``pace``
(thr), ``history`` (h, the last 2W).
Needs: sizes and the planner's estimates of all durations once; ``loss_rms`` and durations from
participants. Probe cost: none.

``Cohort.notes``: ``epsilon``, ``exploited``, ``explored``, ``preferred_s`` (T, where finite),
``max_probability`` and ``cv_probability`` of the first draw over the available (both draws mixed in
proportion to their number).

Deviations and readings
-----------------------
* INTERPRETATION-D: the normalization pool holds explored clients only; ``norm_pool = "code"`` adds
  the unexplored with e_k.
* ``form = "raw"`` is ``min(U, clip) + bonus``, next to which the bonus vanishes.
* ``pacer = "paper"``: ``last > cur`` raises T by ``step`` *seconds*, nothing lowers it. READING: it
  starts at percentile ``thr``.
* ``explore = "speed"``. READING: in proportion to 1 / tau_k.
* INTERPRETATION-D: a cohort that is still too small is filled by the highest scores not chosen,
  blacklisted clients last. ``split = "oort"``: n_xpt = ``floor(m (1 - eps))``, with eps = 0 while
  no known client is unexplored, and a cohort that is too small is filled uniformly.
* INTERPRETATION-D: late, dropped and rejected clients only count as selected. With
  ``late = "mean"`` a client that was cut off gets the mean utility of the round's participants,
  weighted by samples, and counts as explored.
* A client that never enrolled has the mean size, one without a duration is not discounted; a
  participant without a usable loss keeps its utility, or stays unexplored. Scores are never
  negative: base_k is at least 0.
* INTERPRETATION-D: a reporting client that was explored before counts as exploited in h; a round
  without any has h = 0.

Constants
---------
| constant | paper | Oort's code | FedScale | here |
| --- | --- | --- | --- | --- |
| eps start, decay, least | .9, .98, .2 | .9, .95, .2 | .9, .98, .3 | .9, .98, .2 |
| cut-off c | .95 | .7 | .05 | .95 |
| clip quantile q | .95 | .98 | .9 | .95 |
| alpha | 2 | 2 | 2 | 2 |
| W, step | 20, - | 20, 5 | 20, 5 | 20, 5 |
| thr at the start | - | 10 | 30 | 30 |
| blacklist after, share | 10, - | off, .3 | off, .3 | off, .3 |
| over-commitment | 1.3 (INTERPRETATION-R) | 1.1 | 1.3 | the synchrony's |

Not copied: FedScale's list of explored clients that is not reset, its absolute score, indices out
of range, and a client that computes U from its last mini-batch.

Worked
------
Losses (1, 2, 2, 1): U = 6.324555. At t = 10 with U = (100, 60, 20), last rounds (9, 5, 2), tau =
(1, 4, 2), T = 2: base (1, .500125, .000250), bonus (.159951, .214597, .339307), scores (1.159951,
.178680, .339557): silent client 2 overtakes slow client 1. With n_xpt = 1 and c = .95 the pivot is
.339557 and the pool {0, 2} with probabilities (.773554, .226446). Unexplored n = (50, 200, 1000),
600 samples of work, tau = (1, 1, 4), T = 2: weights (50, 200, 150). eps reaches .2 after 75 updates
at .98. Pacer with W = 2, thr = 30: h = (10, 10, 10, 9.5) gives 35; (10, 10, 2, 1) 30; (1, 1, 10,
10) 25.

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(Oort(exploration=0.0, exploration_min=0.0), seed=0)
>>> selector.observe(0, Reports(range(4), Outcome.ENROLLED, num_examples=[10, 10, 10, 10]))
>>> trained = Reports(
...     range(4), Outcome.ACCEPTED, compute_s=[1, 1, 1, 9], signals={"loss_rms": [1, 2, 3, 3]}
... )
>>> selector.observe(1, trained)
>>> selector.select(2, available_ids=range(4), m=1).ids.tolist()
[2]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import rounded
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import (
    DURATIONS,
    ESTIMATES,
    SIZE,
    dispatched,
    estimated_s,
    measured_s,
    put_sizes,
    sizes,
)
from motley.selectors.common.sampling import Ties, probability_notes, successive_draws, top_m
from motley.selectors.selector import SelectionRule

_DEFAULTS = {
    SIZE: np.nan,
    "utility": np.nan,
    "last": 0.0,
    "count": 0.0,
    "duration": np.nan,
    "steps": np.nan,
}
_ROUNDING = 1e-9
"""Added before rounding down: (1 - .9) * 10 is 1, not 0."""
LARGEST = 1e150
"""Losses and norms above it, of runs that diverge, count as it: utilities stay finite."""


@dataclass(frozen=True)
class OortState:
    """Columns and numbers as named in the module's docstring."""

    clients: ClientTable = field(default_factory=lambda: ClientTable(_DEFAULTS))
    selections: int = 0
    pace: float = 0.0
    history: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Oort(SelectionRule[OortState]):
    """Exploit clients of high score, and explore unknown ones with a shrinking share of the cohort.

    Parameters
    ----------
    exploration, exploration_decay, exploration_min: eps_0, its factor per selection, its smallest
    value.
    cutoff: c.
    clip: the quantile q at which utilities are cut.
    alpha: strength of the speed penalty; 0 ignores speed.
    bonus: the constant under the root of the staleness bonus.
    pacer: the code's (percentage points) or the paper's (seconds).
    window: W.
    step: the pacer's step.
    threshold: thr at the start, in percent; the higher, the slower clients may be.
    blacklist: clients selected more often than this are not exploited; None: no blacklist.
    blacklist_share: largest share of the known clients that is blacklisted.
    sample_window: unexplored clients that enter the draw, per client to be drawn.
    batch_size: of the local work, where it is counted in steps; None: every client trains on all
    its samples.
    norm_pool, form, explore, late, split: variants, see above.
    widen: lower-scored clients join the pool until it has more than so many times n_xpt (FedScale:
    10); 0: they do not.
    ties: ``"random"``, or ``"lowest_id"`` for tests.
    """

    exploration: float = 0.9
    exploration_decay: float = 0.98
    exploration_min: float = 0.2
    cutoff: float = 0.95
    clip: float = 0.95
    alpha: float = 2.0
    bonus: float = 0.1
    pacer: Literal["code", "paper"] = "code"
    window: int = 20
    step: float = 5.0
    threshold: float = 30.0
    blacklist: int | None = None
    blacklist_share: float = 0.3
    sample_window: float = 5.0
    batch_size: int | None = None
    norm_pool: Literal["explored", "code"] = "explored"
    form: Literal["normalised", "raw"] = "normalised"
    explore: Literal["samples", "speed"] = "samples"
    late: Literal["ignored", "mean"] = "ignored"
    widen: int = 0
    split: Literal["fedscale", "oort"] = "fedscale"
    ties: Ties = "random"

    paper: ClassVar[Paper] = cite("lai2021oort")

    def __post_init__(self) -> None:
        for name in (
            "exploration",
            "exploration_decay",
            "exploration_min",
            "cutoff",
            "clip",
            "blacklist_share",
        ):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected a share in [0, 1]")
        for name in ("alpha", "bonus", "step", "widen"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    f"got {name} = {getattr(self, name)}; expected a number of at least 0"
                )
        if not 0 < self.threshold <= 100:
            raise ConfigError(
                f"got threshold = {self.threshold}; expected a percentile in (0, 100] (100: no "
                "preferred duration)"
            )
        if self.window < 1:
            raise ConfigError(f"got window = {self.window}; expected at least 1 round")
        if not 1 <= self.sample_window < math.inf:
            raise ConfigError(
                f"got sample_window = {self.sample_window}; expected at least 1, or too few could "
                "be drawn"
            )
        if self.blacklist is not None and self.blacklist < 1:
            raise ConfigError(
                f"got blacklist = {self.blacklist}; expected at least 1 selection (leave it out "
                "for no blacklist)"
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(
                f"got batch_size = {self.batch_size}; expected at least 1 (leave it out for whole "
                "epochs)"
            )

    @override
    def needs(self) -> SignalRequirements:
        used = DURATIONS | {"local_steps"}
        return SignalRequirements(
            enrolled=ESTIMATES | {SIZE}, reported=frozenset({"loss_rms"}), columns=used
        )

    @override
    def init(self) -> OortState:
        return OortState(pace=self.threshold if self.pacer == "code" else 0.0)

    # --------------------------------------------------------------------------------- the formulas

    def epsilon(self, state: OortState) -> float:
        """Return the share that explores in the next selection; it shrinks with every selection
        after the first."""
        return max(
            self.exploration * self.exploration_decay**state.selections, self.exploration_min
        )

    def preferred_s(self, state: OortState) -> float:
        """Return T, seconds: clients that take longer are discounted."""
        durations = state.clients.get("duration", state.clients.ids)
        durations = durations[~np.isnan(durations)]
        percent, more = (state.pace, 0.0) if self.pacer == "code" else (self.threshold, state.pace)
        if percent >= 100 or not len(durations):
            return math.inf
        at = min(_floor(len(durations) * percent / 100), len(durations) - 1)
        return float(np.partition(durations, at)[at]) + more

    def samples(self, clients: ClientTable, ids: Ids, steps: Floats) -> Floats:
        """Return ``|B_k|``: on how many samples these clients train in so many steps (NaN: on all),
        ``[n]``."""
        n = sizes(clients, ids)
        return n if self.batch_size is None else np.fmin(n, steps * self.batch_size)

    def speed(self, state: OortState, ids: Ids, preferred_s: float) -> Floats:
        """Return ``g_k``, ``[n]``; 1 where the duration is not known."""
        tau = state.clients.get("duration", ids)
        speed = np.ones(len(tau))
        slow = np.flatnonzero(tau > preferred_s)
        speed[slow] = (preferred_s / tau[slow]) ** self.alpha
        return speed

    def scores(self, state: OortState, round: int, ids: Ids) -> Floats:
        """Return the scores of these clients (sorted ids) in this round, ``[n]``; NaN where
        unexplored."""
        last = state.clients.get("last", ids)
        speed = self.speed(state, ids, self.preferred_s(state))
        return self._scores(
            state,
            round,
            ids,
            explored=last > 0,
            speed=speed,
            blacklisted=self._blacklisted(state, ids),
        )

    def _scores(
        self,
        state: OortState,
        round: int,
        ids: Ids,
        explored: Bools,
        speed: Floats,
        blacklisted: Bools,
    ) -> Floats:
        utility = state.clients.get("utility", ids)
        pool = utility[explored & ~blacklisted & (utility > 0)]
        if self.norm_pool == "code":
            fresh = ids[~explored]
            pool = np.concatenate(
                [pool, self.samples(state.clients, fresh, state.clients.get("steps", fresh))]
            )
        bonus = np.sqrt(
            self.bonus * math.log(max(round, 1)) / np.maximum(state.clients.get("last", ids), 1.0)
        )
        score = (self.base_scores(utility, pool) + bonus) * speed
        score[~explored] = np.nan
        return score

    def base_scores(self, utility: Floats, pool: Floats) -> Floats:
        """Return the utilities clipped and, in the normalized form, mapped to about [0, 1]; 0 where
        there is none."""
        if not len(pool):
            return np.zeros(len(utility))
        at = min(_floor(self.clip * len(pool)), len(pool) - 1)
        clipped = np.minimum(utility, np.partition(pool, at)[at])
        if self.form == "normalised":
            # 0.999: the worst client keeps some utility. 1e-4: equal utilities do not divide by 0.
            low = 0.999 * pool.min()
            clipped = (clipped - low) / max(pool.max() - low, 1e-4)
        return np.asarray(np.maximum(np.nan_to_num(clipped), 0.0))

    def _blacklisted(self, state: OortState, ids: Ids) -> Bools:
        """Return which clients are blacklisted, ``[n]``: the most frequently selected, at most a
        share of all known ones."""
        if self.blacklist is None:
            return np.zeros(len(ids), bool)
        everybody = state.clients.ids
        count = state.clients.get("count", everybody)
        over = np.flatnonzero(count > self.blacklist)
        most = _floor(self.blacklist_share * len(everybody))
        # Stable: of clients selected equally often those with the lowest ids are out.
        return np.isin(ids, everybody[over[np.argsort(-count[over], kind="stable")[:most]]])

    def paced(self, pace: float, history: Floats) -> float:
        """Return the pacer's next ``pace`` (percentile, or seconds) from the last 2W entries of
        h."""
        last = history[-2 * self.window : -self.window].sum()
        now = history[-self.window :].sum()
        if self.pacer == "paper":
            return pace + self.step if last > now else pace
        if abs(now - last) <= 0.1 * last:
            return min(100.0, pace + self.step)
        return max(self.step, pace - self.step) if abs(now - last) >= 5.0 * last else pace

    # ------------------------------------------------------------------------------------- choice

    @override
    def select(self, state: OortState, context: SelectionContext) -> Cohort:
        ids = context.available
        m = context.m
        if not state.selections:
            notes = {"epsilon": 1.0, "exploited": 0.0, "explored": float(m)}
            notes |= {"max_probability": 1.0 / len(ids), "cv_probability": 0.0}
            equal = np.broadcast_to(1.0 / len(ids), len(ids))
            return Cohort(
                ids[context.rng.choice(len(ids), m, replace=False)],
                notes=notes,
                probabilities=equal,
            )
        epsilon = self.epsilon(state)
        if self.split == "oort" and (state.clients.get("last", state.clients.ids) > 0).all():
            epsilon = 0.0
        preferred_s = self.preferred_s(state)
        explored = state.clients.get("last", ids) > 0
        blacklisted = self._blacklisted(state, ids)
        speed = self.speed(state, ids, preferred_s)
        scores = self._scores(
            state,
            round=context.draw,
            ids=ids,
            explored=explored,
            speed=speed,
            blacklisted=blacklisted,
        )
        exploitable = np.flatnonzero(explored & ~blacklisted)
        fresh = np.flatnonzero(~explored)
        exploit = _floor(m * (1 - epsilon)) if self.split == "oort" else m - _floor(m * epsilon)
        n_xpt = min(exploit, len(exploitable))
        n_e = min(len(fresh), m - n_xpt)
        chance = np.zeros(len(ids))
        chosen = [
            self._draw(
                exploitable,
                weight=scores[exploitable],
                pool=self.exploitation_pool(scores[exploitable], n_xpt, context.rng),
                count=n_xpt,
                chance=chance,
                rng=context.rng,
            ),
            self.draw_unexplored(
                state=state,
                ids=ids,
                fresh=fresh,
                speed=speed,
                count=n_e,
                chance=chance,
                rng=context.rng,
            ),
        ]
        short = m - n_xpt - n_e
        if short:
            free = explored.copy()
            free[chosen[0]] = False
            worth = np.zeros(len(ids)) if self.split == "oort" else scores
            for group in (np.flatnonzero(free & ~blacklisted), np.flatnonzero(free & blacklisted)):
                chosen.append(group[top_m(worth[group], short, context.rng, self.ties)])
                short -= len(chosen[-1])
        notes = {"epsilon": epsilon, "exploited": float(n_xpt), "explored": float(n_e)}
        if n_xpt + n_e:
            chance /= n_xpt + n_e
            notes |= probability_notes(chance)
        if preferred_s < math.inf:
            notes["preferred_s"] = preferred_s
        return Cohort(
            ids[np.concatenate(chosen)], notes=notes, probabilities=chance if n_xpt + n_e else None
        )

    def exploitation_pool(self, scores: Floats, n_xpt: int, rng: np.random.Generator) -> Ids:
        """Return positions of the clients to exploit from: scores not far below the one at rank
        n_xpt (or the last rank)."""
        if not n_xpt:
            return np.zeros(0, np.int64)
        at = len(scores) - 1 - min(n_xpt, len(scores) - 1)
        least = rounded(self.cutoff * np.partition(scores, at)[at])
        pool = np.flatnonzero(rounded(scores) >= least)
        if len(pool) > self.widen * n_xpt:
            return pool
        return top_m(scores, self.widen * n_xpt + 1, rng, self.ties)

    def draw_unexplored(
        self,
        state: OortState,
        ids: Ids,
        fresh: Ids,
        speed: Floats,
        count: int,
        chance: Floats,
        rng: np.random.Generator,
    ) -> Ids:
        """Draw unexplored clients among a few times as many of the largest weights."""
        if not count:
            return fresh[:0]
        if self.explore == "speed":
            tau = state.clients.get("duration", ids[fresh])
            mean = tau[~np.isnan(tau)].mean() if not np.isnan(tau).all() else 1.0
            weight = 1.0 / np.maximum(np.where(np.isnan(tau), mean, tau), np.finfo(np.float32).tiny)
        else:
            weight = (
                self.samples(state.clients, ids[fresh], state.clients.get("steps", ids[fresh]))
                * speed[fresh]
            )
        heaviest = top_m(weight, _floor(self.sample_window * count), rng, self.ties)
        return self._draw(fresh, weight, pool=heaviest, count=count, chance=chance, rng=rng)

    def _draw(
        self,
        group: Ids,
        weight: Floats,
        pool: Ids,
        count: int,
        chance: Floats,
        rng: np.random.Generator,
    ) -> Ids:
        """Draw ``count`` of the pool (positions in the group) by weight; add ``count`` times the
        probability to ``chance``."""
        w = weight[pool]
        if count:
            total = w.sum()
            chance[group[pool]] += count * (w / total if total > 0 else 1.0 / len(w))
        return np.asarray(group[pool[successive_draws(w, count, rng)]])

    # ------------------------------------------------------------------------------------- reports

    @override
    def observe(self, state: OortState, draw: int, reports: Reports) -> OortState:
        clients = put_sizes(state.clients, reports)
        enrolled = reports.of(Outcome.ENROLLED)
        if len(enrolled):
            clients = clients.put(
                enrolled.ids, {**self.durations(clients, enrolled), "steps": _steps(enrolled)}
            )
        sent = dispatched(reports)
        if not len(sent):
            return replace(state, clients=clients)
        accepted = sent.of(Outcome.ACCEPTED)
        late = sent.of(Outcome.LATE)
        before = clients.get("last", accepted.ids) > 0
        samples = self.samples(clients, accepted.ids, accepted.local_steps)
        utility = samples * np.clip(accepted.signal("loss_rms"), 0.0, LARGEST)
        present = ~np.isnan(utility)
        new = {"utility": utility, "last": np.where(present | before, float(draw), np.nan)}
        clients = clients.add("count", sent.ids).put(
            accepted.ids, {**new, **self.durations(clients, accepted)}
        )
        if self.late == "mean" and len(late) and samples[present].sum() > 0:
            mean = np.average(utility[present], weights=samples[present])
            clients = clients.put(late.ids, {"utility": mean, "last": float(draw)})
        rewards = clients.get("utility", accepted.ids[before])
        history = np.append(state.history, rewards.mean() if len(rewards) else 0.0)[
            -2 * self.window :
        ]
        pace = state.pace
        following = draw + 1
        if following >= 2 * self.window and following % self.window == 0:
            pace = self.paced(pace, history)
        return OortState(clients, state.selections + 1, pace, history)

    def durations(self, clients: ClientTable, reports: Reports) -> dict[str, Floats]:
        """Return the duration columns of these reports, all enrolled or all accepted; NaN keeps the
        number before."""
        enrolled = len(reports) > 0 and reports.outcome[0] == Outcome.ENROLLED
        return {"duration": estimated_s(reports) if enrolled else measured_s(reports)}


def _floor(value: float) -> int:
    return math.floor(value + _ROUNDING)


def _steps(reports: Reports) -> Floats:
    """Return the steps of the full local work, where the enrolment has them."""
    return np.where(reports.local_steps > 0, reports.local_steps, np.nan)
