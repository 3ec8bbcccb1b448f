"""FedCS: as many clients as fit a deadline, where downloads go together, updates in parallel and uploads one after another.

Nishio, Yonetani: *Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge*, ICC 2019
(arXiv:1804.08333). Specification: selectors-baselines 14b (formulas INTERPRETATION-R).

    Theta = 0, S = (), T^D_S = largest download in S (0 for nobody); repeat
        x = argmin over the rest of  T^D_{S+x} - T^D_S + t^UL_x + max(0, t^U_x - Theta)
        Theta' = Theta + t^UL_x + max(0, t^U_x - Theta)
        where T_cs + T^D_{S+x} + Theta' + T_agg < deadline: S = S + x, Theta = Theta';  x leaves the rest either way
    until nobody is left, or m are taken

Symbols: ``t^D``, ``t^U``, ``t^UL`` estimated seconds of download, local update and upload; ``T_cs``, ``T_agg`` seconds of the
selection and of the aggregation. The minimised sum is what x would add to the total, so the first x that does not fit ends
the search: whatever is left adds at least as much. A client that cannot be among the next r accepted is set aside, so that a
million clients cost a few passes (see ``_contenders``).

State: the answers of the last request: ``round``, ``ids`` and ``seconds`` [3, n].
Needs: probed ``download_estimate_s``, ``compute_estimate_s``, ``upload_estimate_s``. Probe cost: none in traffic or training; the
planner tells these of every available client, or of a random share of them, each round.

``Cohort.notes``: ``asked``, ``planned_s`` (the total of S), ``abandoned`` (1: nobody fits the deadline, the round has no cohort).

Deviations and readings
-----------------------
* A cohort may be smaller than m, down to nobody: such a round is abandoned, and the model stays as it is.
* At most m are taken; the paper has no m: ``fill = True``. The paper asks a random share of the clients, here ``share``.
* INTERPRETATION-D: equal sums go to the lowest id. A client without all three estimates is not chosen.
* Uploads are planned one after another; whether they are is for the network to say.

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(FedCS(deadline=25.0), seed=0)
>>> times = {"download_estimate_s": [1, 2, 1, 3], "compute_estimate_s": [10, 4, 7, 2], "upload_estimate_s": [3, 5, 2, 6]}
>>> selector.observe(1, Reports(selector.probe(1, range(4), m=3), Outcome.PROBED, signals=times))
>>> selector.select(1, range(4), m=3).ids.tolist()
[2, 0, 1]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.paper import Paper
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.selectors.base import SelectionRule
from motley.selectors.common.durations import ESTIMATES, PARTS, seconds

__all__ = ["FedCS", "FedCSState", "greedy"]

_FEW = 2048
"""So many clients are looked through faster than they are thinned out."""


@dataclass(frozen=True)
class FedCSState:
    """Who was asked in ``round``, ids sorted, and their estimates in the order of the phases; NaN where one did not come."""

    round: int = 0
    ids: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    seconds: Floats = field(default_factory=lambda: np.zeros((3, 0)))


@dataclass(frozen=True)
class FedCS(SelectionRule[FedCSState]):
    """As many clients as are done before the deadline.

    Parameters
    ----------
    deadline: seconds a round may last; the paper's is three minutes.
    selection, aggregation: T_cs and T_agg, seconds of it that are not the clients'.
    share: of the available clients that are asked for their estimates, rounded up.
    fill: take whoever fits, also more than m.
    """

    deadline: float = 180.0
    selection: float = 0.0
    aggregation: float = 0.0
    share: float = 1.0
    fill: bool = False

    takes_fewer: ClassVar[bool] = True
    paper: ClassVar[Paper] = Paper(
        "nishio2019client",
        "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge",
        ("Takayuki Nishio", "Ryo Yonetani"),
        "IEEE International Conference on Communications (ICC)",
        2019,
        "https://arxiv.org/abs/1804.08333",
    )

    def __post_init__(self) -> None:
        if not 0 < self.deadline < math.inf:
            raise ConfigError(f"got deadline = {self.deadline}; expected a positive number of seconds")
        for name in ("selection", "aggregation"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected at least 0 seconds")
        if self.selection + self.aggregation >= self.deadline:
            raise ConfigError(
                f"got selection + aggregation = {self.selection + self.aggregation} s and deadline = {self.deadline} s: "
                "no time is left for any client; raise the deadline"
            )
        if not 0 < self.share <= 1:
            raise ConfigError(f"got share = {self.share}; expected a share in (0, 1]")

    @property
    def deterministic(self) -> bool:  # type: ignore[override]  # it depends on an option
        """Whether all are asked: nothing else is drawn."""
        return self.share == 1

    def needs(self) -> SignalRequirements:
        """The planner's estimates, asked anew in each round."""
        return SignalRequirements(probed=dict.fromkeys(sorted(ESTIMATES)))

    def init(self) -> FedCSState:
        """Nobody asked."""
        return FedCSState()

    def size(self, round: int, m: int, available: int) -> int:
        """m at most, or as many as fit."""
        return available if self.fill and m else min(m, available)

    def candidates(self, state: FedCSState, context: SelectionContext) -> Ids:
        """Everybody available, or a random share."""
        wanted = math.ceil(self.share * len(context.available) - 1e-9)
        return context.available if self.share == 1 else context.rng.choice(context.available, wanted, replace=False)

    def select(self, state: FedCSState, context: SelectionContext) -> Cohort:
        """Greedy under the deadline."""
        ids, (download, update, upload) = _answers(state, context)
        taken, total = greedy(download, update, upload, self.deadline, context.m, self.selection, self.aggregation)
        notes = {"asked": float(len(ids)), "planned_s": total, "abandoned": float(not len(taken))}
        return Cohort(ids[taken], notes=notes)

    def observe(self, state: FedCSState, round: int, reports: Reports) -> FedCSState:
        """Only the answers are kept."""
        asked = reports.of(Outcome.PROBED)
        if not len(asked):
            return state
        return FedCSState(round, asked.ids, np.stack([seconds(asked.signal(f"{part}_estimate_s")) for part in PARTS]))


def _answers(state: FedCSState, context: SelectionContext) -> tuple[Ids, Floats]:
    """Ids and estimates ``[3, n]`` of this round's available clients that told all three, sorted by id."""
    ids, told = state.ids, state.seconds
    if state.round != context.round:
        return ids[:0], told[:, :0]
    usable = ~np.isnan(told).any(axis=0)
    if not np.array_equal(ids, context.available):
        at = np.minimum(np.searchsorted(context.available, ids), len(context.available) - 1)
        usable &= context.available[at] == ids
    return (ids, told) if usable.all() else (ids[usable], told[:, usable])


def greedy(
    download: Floats,
    update: Floats,
    upload: Floats,
    deadline: float,
    most: int,
    selection: float = 0.0,
    aggregation: float = 0.0,
) -> tuple[Ids, float]:
    """Positions in the order of acceptance, and the total seconds of these clients.

    Parameters
    ----------
    download, update, upload: t^D, t^U, t^UL, seconds ``[n]``. deadline, selection, aggregation: seconds. most: m.
    """
    rest, d, u, up = np.arange(len(download)), download, update, upload.copy()  # inf in ``up``: left the rest
    taken: list[int] = []
    down = theta = 0.0
    while len(taken) < most and len(rest):
        if len(rest) > _FEW and (len(taken) & (len(taken) - 1)) == 0 and taken:  # after 1, 2, 4, 8, ...
            spare = deadline - selection - aggregation - down - theta
            keep = _contenders(d, u, up, down, theta, spare, most - len(taken))
            rest, d, u, up = rest[keep], d[keep], u[keep], up[keep]
            if not len(rest):
                break
        total = np.maximum(u, theta)
        total += np.maximum(d, down)
        total += up
        x = int(np.argmin(total))  # the first of equals: the lowest id
        if not selection + float(total[x]) + aggregation < deadline:
            break
        taken.append(int(rest[x]))
        down, theta = max(down, float(d[x])), max(theta, float(u[x])) + float(up[x])
        up[x] = np.inf
    return np.array(taken, np.int64), down + theta


def _contenders(d: Floats, u: Floats, up: Floats, down: float, theta: float, spare: float, most: int) -> Ids:
    """Positions of who can be among the next ``most`` accepted; the others never come up.

    What a client adds, ``c = max(0, d - T^D) + max(0, u - Theta) + up``, only falls as S grows, by at most what S adds, and
    never below ``up``. So nobody counts who

    * adds ``spare`` or more: with every other accepted the total only comes nearer to the deadline;
    * has an ``up`` above the ``most``-th smallest c (or equal to it and a higher id): so many others stay ahead for good;
    * has a c above the sum of the ``most`` smallest: it cannot fall so far in time.

    In the first point a rounding error of a billionth is allowed for.
    """
    c = np.maximum(d - down, 0.0)
    c += np.maximum(u - theta, 0.0)
    c += up
    slack = 1e-9 * (1.0 + abs(spare) + down + theta)
    near = c < spare + slack
    most = min(most, int(np.count_nonzero(near)))
    if most == int(np.count_nonzero(near)) and most:  # no m: so many uploads fit one after another
        most = max(int(np.searchsorted(np.cumsum(np.sort(up[near])), spare + slack)), 1)
    if not most:
        return np.zeros(0, np.int64)
    smallest = np.partition(c, most - 1)[:most]
    last = smallest.max()
    equal = np.flatnonzero(c == last)
    place = equal[most - int(np.count_nonzero(smallest < last)) - 1]  # the most-th smallest, equals by position
    keep = near & (up <= last) & (c <= smallest.sum() * (1 + 1e-9) + slack)
    keep[place + 1 :] &= up[place + 1 :] < last
    return np.flatnonzero(keep)
