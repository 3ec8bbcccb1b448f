"""ActiveFL draws clients with a probability exponential in their valuation: last known loss times
the root of the data size.

Goetz, Malik, Bui, Moon, Liu, Kumar: *Active Federated Learning*, arXiv:1909.12641, 2019. (Not
*agnostic* federated learning, which is also abbreviated AFL.)

    v_k = sqrt(n_k) L_k   ("mean": v_k = L_k)
           valuation, L_k the mean loss of a received model on all training data
    n_soft = floor((1 - alpha3) m),  n_drop = min(floor(alpha1 K_A), K_A - n_soft)
    E      the available clients without the n_drop smallest v
    P_k    = exp(alpha2 (v_k - max v)) / sum over E, 0 outside E
    S1     n_soft successive draws from P;
    S2     m - n_soft uniformly from all available outside S1;   cohort S1, S2

Symbols: ``alpha1`` share of clients that are dropped, ``alpha2`` inverse temperature, ``alpha3``
share drawn uniformly, ``n_k`` samples, ``K_A`` available. Defaults (0.75, 0.01, 0.1); FedCVR-Bolt's
comparison takes (0.8, 1, 0).

State, per client: ``num_examples``; ``loss``, the last known one, NaN before (valuation -inf).
Needs: ``num_examples`` once; reported ``arrival_loss``: the received model before any local step,
which costs each chosen client one forward pass. Probe cost: ``cold_start = "eval_all"``: in round 1
everybody available downloads the model and evaluates it; ``"unseen_low"``: none.
``refresh = "all"``: that evaluation in every round, and no ``arrival_loss``. ``Cohort.notes``:
``max_probability``, ``cv_probability`` of P over the available, ``eligible`` = |E|.

Deviations and readings
-----------------------
* INTERPRETATION-R the paper's 1 / sqrt(n_k) multiplies the client's *summed* loss, hence sqrt(n_k)
  times the mean.
* INTERPRETATION-D n_drop is capped so that n_soft clients stay (12 clients, m = 6, alpha1 = 0.75
  would leave 3).
* INTERPRETATION-D with ``eval_all``, a client that appears after round 1, or whose loss was not
  returned, is treated as in ``unseen_low``: it enters through S2, or where fewer than n_soft
  clients of E have a valuation (then uniformly among the others of E; with no valuation at all
  everything is uniform).
* INTERPRETATION two variants for the comparison of FedCVR-Bolt's paper, whose figures the published
  form cannot give with its alpha2 = 1 and alpha3 = 0. With sqrt(n_k) L_k an inverse temperature of
  1 is 100 times the published one, and one client can have all the probability (.99998):
  ``valuation = "mean"`` leaves the factor out. And where nobody is drawn uniformly, clients that
  were not chosen keep the losses of the first model for ever: ``refresh = "all"`` measures
  everybody in each round; ``drawn`` so many, drawn uniformly, and ``floor`` is added to their
  probabilities. Who is not drawn has no valuation.
* Equal valuations at the edge of E are dropped at random. A loss that is not a number keeps the
  valuation before it; valuations of clients that are not chosen grow stale. A client that never
  enrolled has the mean size. ``Cohort.weights`` is not filled.

Worked
------
n = (100, 400, 25, 100), mean losses (1, .6, 2.2, .1): v = (10, 12, 11, 1). With alpha1 = .5 clients
3 and 0 are dropped; over (1, 2) P is (.502500, .497500) at alpha2 = .01 and (.731059, .268941) at
alpha2 = 1. With ``valuation = "mean"`` and alpha2 = 1 the first and the third client stay, and P =
(.231475, .768525).

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(ActiveFL(alpha1=0.5, alpha3=0.0), seed=0)
>>> ids = selector.probe(1, available_ids=range(10, 20), m=5)
>>> selector.observe(1, Reports(ids, Outcome.PROBED, signals={"loss": ids / 10.0}))
>>> sorted(selector.select(1, available_ids=range(10, 20), m=5).ids.tolist())
[15, 16, 17, 18, 19]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import rounded
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import SIZE, put_sizes, sizes
from motley.selectors.common.sampling import Ties, gumbel_top_m, probability_notes, softmax
from motley.selectors.selector import SelectionRule

LARGEST = 1e150
"""Losses above it, of runs that diverge, count as it: valuations stay finite."""


@dataclass(frozen=True)
class ActiveFL(SelectionRule[ClientTable]):
    """Draw by a softmax over cached valuations.

    Parameters
    ----------
    alpha1: share of the available clients that is dropped, lowest valuations first; in [0, 1).
    alpha2: inverse temperature of the softmax; 0 is uniform over the clients left.
    alpha3: share of the cohort that is drawn uniformly; in [0, 1].
    cold_start: ``"eval_all"``: everybody evaluates the first model in round 1; ``"unseen_low"``:
    unseen clients come last.
    ties: which clients of equal valuation are kept at the edge of the dropped ones: ``"random"``,
    or ``"lowest_id"`` for tests.
    valuation: ``"root_sum"``: sqrt(n_k) L_k, as published; ``"mean"``: L_k, for softmaxes of
    temperature near 1.
    refresh: whose valuations are new in a round: of the clients that report, or of everybody
    available, who is probed.
    drawn: number of clients drawn uniformly in each round, of which alone the cohort is chosen and
    who alone are probed (at least m); None: everybody available. Only with ``refresh = "all"``.
    floor: added to every P_k of E before they are normalized again.
    """

    alpha1: float = 0.75
    alpha2: float = 0.01
    alpha3: float = 0.1
    cold_start: Literal["eval_all", "unseen_low"] = "eval_all"
    ties: Ties = "random"
    valuation: Literal["root_sum", "mean"] = "root_sum"
    refresh: Literal["reported", "all"] = "reported"
    drawn: int | None = None
    floor: float = 0.0

    paper: ClassVar[Paper] = cite("goetz2019active")

    def __post_init__(self) -> None:
        if not 0 <= self.alpha1 < 1:
            raise ConfigError(
                f"got alpha1 = {self.alpha1}; expected a share in [0, 1): of the clients, those "
                "dropped"
            )
        if not 0 <= self.alpha2 < math.inf:
            raise ConfigError(
                f"got alpha2 = {self.alpha2}; expected a number of at least 0 (0 is uniform over "
                "the clients left)"
            )
        if not 0 <= self.alpha3 <= 1:
            raise ConfigError(
                f"got alpha3 = {self.alpha3}; expected a share in [0, 1]: of the cohort, those "
                "drawn uniformly"
            )
        if self.refresh == "all" and self.cold_start == "unseen_low":
            raise ConfigError(
                "got refresh = 'all' with cold_start = 'unseen_low', but then nobody is unseen; "
                "leave cold_start out"
            )
        if self.drawn is not None and (self.drawn < 1 or self.refresh != "all"):
            raise ConfigError(
                f"got drawn = {self.drawn} with refresh = {self.refresh!r}; expected at least 1 "
                "client, and refresh = 'all', which measures those who are drawn"
            )
        if not 0 <= self.floor < math.inf:
            raise ConfigError(f"got floor = {self.floor}; expected a number of at least 0")

    @override
    def needs(self) -> SignalRequirements:
        if self.refresh == "all":
            return SignalRequirements(frozenset({SIZE}), {"loss": None})
        first: dict[str, int | None] = {"loss": None} if self.cold_start == "eval_all" else {}
        return SignalRequirements(frozenset({SIZE}), first, frozenset({"arrival_loss"}))

    @override
    def init(self) -> ClientTable:
        return ClientTable({SIZE: np.nan, "loss": np.nan})

    @override
    def candidates(self, state: ClientTable, context: SelectionContext) -> Ids:
        if self.drawn is not None:
            count = min(max(self.drawn, context.m), len(context.available))
            return context.rng.choice(context.available, count, replace=False, shuffle=False)
        first = self.cold_start == "eval_all" and context.draw == 1
        return context.available if first or self.refresh == "all" else np.zeros(0, np.int64)

    def valuations(self, state: ClientTable, available: Ids) -> Floats:
        """Return ``v_k``, ``[K_A]``; ``-inf`` without a loss."""
        loss = state.get("loss", available)
        value = loss * np.sqrt(sizes(state, available)) if self.valuation == "root_sum" else loss
        return np.where(np.isnan(value), -np.inf, value)

    def parts(self, m: int, available: int) -> tuple[int, int]:
        """Return n_soft and n_drop for a cohort of m."""
        # 1e-9: (1 - 0.8) * 10 is a bit less than 2 in floats.
        n_soft = math.floor((1.0 - self.alpha3) * m + 1e-9)
        return n_soft, min(math.floor(self.alpha1 * available + 1e-9), available - n_soft)

    def log_weights(self, value: Floats) -> Floats:
        """Return the logarithm of P over the eligible clients, not normalized; equal for all if
        there are no valuations."""
        valued = value > -np.inf
        if not valued.any():
            return np.zeros(len(value))
        out = np.full(len(value), -np.inf)
        np.multiply(self.alpha2, value - value.max(), out=out, where=valued)
        if self.floor:
            out[valued] = np.log(softmax(out[valued]) + self.floor)
        return out

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        n_soft, n_drop = self.parts(context.m, len(context.available))
        value = self.valuations(state, context.available)
        eligible = _largest(value, len(value) - n_drop, context.rng, self.ties)
        log_weights = self.log_weights(value[eligible])
        soft = eligible[gumbel_top_m(log_weights, n_soft, context.rng)]
        remaining = np.delete(context.available, soft)
        uniform = context.rng.choice(remaining, context.m - n_soft, replace=False, shuffle=False)
        p = np.zeros(len(value))
        p[eligible] = softmax(log_weights)
        notes = {**probability_notes(p), "eligible": float(len(eligible))}
        return Cohort(
            np.concatenate([context.available[soft], uniform]), notes=notes, probabilities=p
        )

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        clients = put_sizes(state, reports)
        if self.drawn is not None and len(reports.of(Outcome.PROBED)):  # earlier draws are over
            unknown = {"loss": np.full(len(clients), np.nan)}
            clients = replace(clients, columns={**clients.columns, **unknown})
        for part, name in (
            (reports.of(Outcome.PROBED), "loss"),
            (reports.of(Outcome.ACCEPTED), "arrival_loss"),
        ):
            if len(part):
                clients = clients.put(
                    part.ids, {"loss": np.clip(part.signal(name), -LARGEST, LARGEST)}
                )
        return clients


def _largest(value: Floats, count: int, rng: np.random.Generator, ties: Ties) -> Ints:
    """Return the positions, ascending, of the ``count`` largest values."""
    if count >= len(value):
        return np.arange(len(value))
    value = rounded(value)
    edge = np.partition(value, len(value) - count)[len(value) - count] if count else np.inf
    inside = value > edge
    tied = np.flatnonzero(value == edge)
    wanted = count - int(np.count_nonzero(inside))
    if ties == "lowest_id":
        taken = tied[:wanted]
    else:
        taken = rng.choice(tied, wanted, replace=False, shuffle=False)
    inside[taken] = True
    return np.flatnonzero(inside)
