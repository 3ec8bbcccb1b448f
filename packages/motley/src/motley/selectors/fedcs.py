"""FedCS chooses as many clients as finish before a deadline, if downloads are shared and uploads
come one after another.

Nishio, Yonetani: *Client Selection for Federated Learning with Heterogeneous Resources in Mobile
Edge*, ICC 2019 (arXiv:1804.08333). All formulas are INTERPRETATION-R.

    Theta = 0, S = (), T^D_S = largest download in S (0 for nobody); repeat
        x = argmin over the rest of  T^D_{S+x} - T^D_S + t^UL_x + max(0, t^U_x - Theta)
        Theta' = Theta + t^UL_x + max(0, t^U_x - Theta)
        where T_cs + T^D_{S+x} + Theta' + T_agg < deadline: S = S + x, Theta = Theta';
        x leaves the rest either way
    until nobody is left, or m are taken

Symbols: ``t^D``, ``t^U``, ``t^UL`` estimated seconds of download, local update and upload;
``T_cs``, ``T_agg`` seconds of the selection and of the aggregation. The minimized sum is what x
would add to the total, so the first x that does not fit ends the search: whatever is left adds at
least as much. A client that cannot be among the next r accepted is set aside, so that a million
clients cost a few passes (see ``_contenders``).

State: the estimates of the last probe: ``round``, ``ids`` and ``seconds`` [3, n].
Needs: probed ``download_estimate_s``, ``compute_estimate_s``, ``upload_estimate_s``. Probe cost:
none in traffic or training; the planner estimates them for every available client, or for a random
share, each round.

``Cohort.notes``: ``asked`` (clients with estimates), ``planned_s`` (the total of S), ``abandoned``
(1: nobody fits the deadline).

Deviations and readings
-----------------------
* A cohort may be smaller than m, down to nobody: such a round is abandoned, and the model stays as
  it is.
* At most m are taken; the paper has no m: ``fill = True``. The paper asks a random share of the
  clients, here ``share``.
* INTERPRETATION-D: equal sums go to the lowest id. A client without all three estimates is not
  chosen.
* A deployment measures only whom it asks. Where nobody fits the deadline by what was measured last,
  nobody is asked from then on, and no round does anything; leave the deadline some room.
* Uploads are planned one after another; whether they happen so depends on the network model.

Worked
------
t^U = (10, 4, 7, 2), t^UL = (3, 5, 2, 6), t^D = (1, 2, 1, 3): deadline 15 gives [2, 0] with total
14; 20 the same (20 is not below 20); 25 gives [2, 0, 1] with total 20.

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(FedCS(deadline=25.0), seed=0)
>>> times = {"download_estimate_s": [1, 2, 1, 3], "compute_estimate_s": [10, 4, 7, 2]}
>>> times["upload_estimate_s"] = [3, 5, 2, 6]
>>> selector.observe(1, Reports(selector.probe(1, range(4), m=3), Outcome.PROBED, signals=times))
>>> selector.select(1, range(4), m=3).ids.tolist()
[2, 0, 1]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import rounded
from motley.selectors.common.client_signals import ESTIMATES, PHASES, usable_seconds
from motley.selectors.selector import SelectionRule

_FEW = 2048
"""Up to so many clients thinning them out costs more than it saves."""


@dataclass(frozen=True)
class FedCSState:
    """The clients probed in ``round``, ids sorted, and their estimates ``[3, n]`` by phase; NaN
    where one is missing."""

    round: int = 0
    ids: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    seconds: Floats = field(default_factory=lambda: np.zeros((3, 0)))


@dataclass(frozen=True)
class FedCS(SelectionRule[FedCSState]):
    """Take as many clients as finish before the deadline.

    Parameters
    ----------
    deadline: seconds a round may last; the paper's is three minutes.
    selection, aggregation: T_cs and T_agg, the seconds of a round that selection and aggregation
    take.
    share: share of the available clients that is probed for estimates, rounded up.
    fill: take every client that fits, also more than m; of a deployment all, until one delivered.
    """

    deadline: float = 180.0
    selection: float = 0.0
    aggregation: float = 0.0
    share: float = 1.0
    fill: bool = False

    takes_fewer: ClassVar[bool] = True
    paper: ClassVar[Paper] = cite("nishio2019client")

    def __post_init__(self) -> None:
        if not 0 < self.deadline < math.inf:
            raise ConfigError(
                f"got deadline = {self.deadline}; expected a positive number of seconds"
            )
        for name in ("selection", "aggregation"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    f"got {name} = {getattr(self, name)}; expected at least 0 seconds"
                )
        if self.selection + self.aggregation >= self.deadline:
            raise ConfigError(
                f"got selection + aggregation = {self.selection + self.aggregation} s and deadline "
                f"= {self.deadline} s: no time is left for any client; raise the deadline"
            )
        if not 0 < self.share <= 1:
            raise ConfigError(f"got share = {self.share}; expected a share in (0, 1]")

    @property
    def deterministic(self) -> bool:  # type: ignore[override]  # it depends on an option
        """Whether the choice involves no draw: all are probed."""
        return self.share == 1

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(probed=dict.fromkeys(sorted(ESTIMATES)))

    @override
    def init(self) -> FedCSState:
        return FedCSState()

    @override
    def size(self, draw: int, m: int, available: int) -> int:
        return available if self.fill and m else min(m, available)

    @override
    def candidates(self, state: FedCSState, context: SelectionContext) -> Ids:
        # 1e-9: 0.28 * 25 is a bit more than 7 in floats, and would ask an eighth.
        wanted = math.ceil(self.share * len(context.available) - 1e-9)
        if self.share == 1:
            return context.available
        return context.rng.choice(context.available, wanted, replace=False)

    @override
    def select(self, state: FedCSState, context: SelectionContext) -> Cohort:
        ids, (download, update, upload) = _estimates(state, context)
        taken, total = greedy(
            download,
            update,
            upload,
            self.deadline,
            most=context.m,
            selection=self.selection,
            aggregation=self.aggregation,
        )
        notes = {"asked": float(len(ids)), "planned_s": total, "abandoned": float(not len(taken))}
        return Cohort(ids[taken], notes=notes)

    @override
    def observe(self, state: FedCSState, draw: int, reports: Reports) -> FedCSState:
        probed = reports.of(Outcome.PROBED)
        if not len(probed):
            return state
        estimates = np.stack(
            [usable_seconds(probed.signal(f"{phase}_estimate_s")) for phase in PHASES]
        )
        return FedCSState(draw, probed.ids, estimates)


def _estimates(state: FedCSState, context: SelectionContext) -> tuple[Ids, Floats]:
    """Return ids and estimates ``[3, n]`` of this round's available clients that have all three,
    sorted by id."""
    ids = state.ids
    estimates = state.seconds
    if state.round != context.draw:
        return ids[:0], estimates[:, :0]
    usable = ~np.isnan(estimates).any(axis=0)
    if not np.array_equal(ids, context.available):
        # beyond the last id searchsorted points behind the end; the next line compares
        at = np.minimum(np.searchsorted(context.available, ids), len(context.available) - 1)
        usable &= context.available[at] == ids
    return (ids, estimates) if usable.all() else (ids[usable], estimates[:, usable])


def greedy(
    download: Floats,
    update: Floats,
    upload: Floats,
    deadline: float,
    most: int,
    selection: float = 0.0,
    aggregation: float = 0.0,
) -> tuple[Ids, float]:
    """Return positions in the order of acceptance, and the total seconds of these clients.

    Parameters
    ----------
    download, update, upload: t^D, t^U, t^UL, seconds ``[n]``.
    deadline, selection, aggregation: seconds.
    most: m.
    """
    candidates = np.arange(len(download))
    d = download
    u = update
    up = upload.copy()  # inf: taken
    taken: list[int] = []
    down = theta = 0.0
    while len(taken) < most and len(candidates):
        # after 1, 2, 4, 8, ...
        if len(candidates) > _FEW and (len(taken) & (len(taken) - 1)) == 0 and taken:
            spare = deadline - selection - aggregation - down - theta
            keep = _contenders(
                d=d, u=u, up=up, down=down, theta=theta, spare=spare, most=most - len(taken)
            )
            candidates = candidates[keep]
            d = d[keep]
            u = u[keep]
            up = up[keep]
            if not len(candidates):
                break
        total = np.maximum(u, theta)
        total += np.maximum(d, down)
        total += up
        x = int(np.argmin(rounded(total)))  # the first of equals: the lowest id
        if not selection + float(total[x]) + aggregation < deadline:
            break
        taken.append(int(candidates[x]))
        down = max(down, float(d[x]))
        theta = max(theta, float(u[x])) + float(up[x])
        up[x] = np.inf
    return np.array(taken, np.int64), down + theta


def _contenders(
    d: Floats, u: Floats, up: Floats, down: float, theta: float, spare: float, most: int
) -> Ids:
    """Return positions of the clients that can be among the next ``most`` accepted; the others are
    never accepted.

    The seconds a client adds, ``c = max(0, d - T^D) + max(0, u - Theta) + up``, only fall as S
    grows, by at most what S adds, and never below ``up``. So a client is left out that

    * adds ``spare`` or more, up to a rounding error of a billionth: every acceptance brings the
      total nearer to the deadline;
    * has an ``up`` above the ``most``-th smallest c (or equal to it and a higher id): so many
      others stay ahead of it;
    * has a c above the sum of the ``most`` smallest: it cannot fall that far.
    """
    c = np.maximum(d - down, 0.0)
    c += np.maximum(u - theta, 0.0)
    c += up
    c = rounded(c)
    up = rounded(up)
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
    # the most-th smallest, equals by position
    place = equal[most - int(np.count_nonzero(smallest < last)) - 1]
    keep = near & (up <= last) & (c <= smallest.sum() * (1 + 1e-9) + slack)
    keep[place + 1 :] &= up[place + 1 :] < last
    return np.flatnonzero(keep)
