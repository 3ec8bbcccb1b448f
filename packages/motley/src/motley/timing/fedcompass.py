"""FedCompass: clients get as many local steps as bring those of a group back together.

Li, Chaturvedi, He, Chen, Singh, Kindratenko, Huerta, Kim, Madduri: *FedCompass: Efficient
Cross-Silo Federated Learning on Heterogeneous Client Devices Using a Computing Power-Aware
Scheduler*, ICLR 2024 (arXiv:2309.14675).

    S_k <- (1 - m) S_k + m (seconds from dispatch to arrival) / (local steps)     its first as it is
    before a client's first update: Q_max steps and no group
    a group g: when its updates are expected, T_g, and when it ends at the latest, L_g
    at time t, client by client, the quickest first:
    no group:  a new one, q = Q_max
    join:      q = floor((T_g - t) / S_k) of the groups where Q_min <= q <= Q_max; the largest
    else:      a new one: q_g = floor((L_g + Q_max min_{j in g} S_j - t) / S_k), all g with t < L_g;
               q = the largest q_g <= Q_max, but Q_min at least; Q_max where there is none
    new group: T = t + q S_k,    L = t + lambda q S_k
    the server steps when all of a group have delivered, or at L_g on those that have; an update
    that comes later waits for the next group's step, and its client is sent out at once
    x <- x + sum_k alpha s(tau_k) / K delta_k        form = "updates"
    x <- x + sum_k alpha s(tau_k) / K (w_k - x)      form = "models"

Symbols: ``S_k`` seconds per step, ``m`` the option ``momentum``, lambda ``latest``, ``Q_min`` and
``Q_max`` ``min_steps`` and ``max_steps``, ``s`` the staleness discount (``(1 + tau)^-1/2``), ``K``
the experiment's cohort: in the paper, all clients. An update without a group is a step alone.

State, per client: ``speed`` (S_k); ``dispatch``, its newest, with ``group``, ``expected_s`` (T_g)
and ``latest_s`` (L_g); ``heard``, the last dispatch that S_k knows.

Deviations and readings
-----------------------
* READING the paper was read in its abstract and the authors' code alone (APPFL/FedCompass,
  af96db2; APPFL, 100d7f2, schedules alike): equations have no numbers here. Defaults are those of
  that code's example: Q 20 to 100, m = .9, lambda = 1.5, alpha = .9, updates.
* READING seconds per step hold both transfers, as in the code, which knows arrivals alone.
* READING K is the cohort, of which all are always under way. Where more clients than these exist,
  the selector fills free places; one that never delivered gets Q_max.
* A client whose late update waits while its next one arrives is in a step once, with the newer one.
* A step that ends when it was expected is in time (1e-6 of a step).
* A client that broke off is waited for until L_g, and asked again after the next server step.
* ``weights`` are ``uniform`` if left out, as published; under others the mean over a step's updates
  takes their place.
* A deployment and a private run refuse it: a client is asked again while its update waits.

Worked
------
Q 3 to 10, lambda = 1.5, three clients of 1, 2 and 5 s per step. At 0 all get 10. At 10 client 0: a
step alone; no group, so T = 20, L = 25. At 20 client 1, alone; then client 0's group. Client 0:
T = 30, L = 35; client 1 joins with floor(10 / 2) = 5. At 30 and 40 both together, at 50 client 2,
alone, then both: client 0 T = 60, L = 65, client 1 joins with 5; client 2 would have
floor(10 / 5) = 2 < 3: a group of its own with floor((65 + 10 - 50) / 5) = 5 steps, T = 75,
L = 87.5.

x = 1, K = 2, alpha = .9, staleness 1, received 0, delta = .4: alpha s / K = .318198; updates give
1.127279, models 1 + .318198 (.4 - 1) = .809081.

>>> from motley.timing.fedcompass import FedCompass
>>> FedCompass(min_steps=3, max_steps=10).latest
1.5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.table import ClientTable
from motley.timing.overlapping import Discount, Overlapping, arrival_order, refill
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Wait

NO_GROUP = -1
"""The group of a client that never delivered."""
REPLACED = -2
"""The group of an update that came late, and whose client is under way again."""


class Group(NamedTuple):
    """A group of arrival: when its updates are expected, when it ends, and the seconds per step of
    its quickest client."""

    expected_s: float
    latest_s: float
    quickest: float


class Groups(NamedTuple):
    """Where updates in flight belong, ``[n]`` each.

    Parameters
    ----------
    number: of the group, or :data:`NO_GROUP`, :data:`REPLACED`.
    latest_s: when the group ends.
    late: whether an update arrived after that.
    """

    number: Ints
    latest_s: Floats
    late: Bools


@dataclass(frozen=True)
class FedCompass(Overlapping):
    """Take a server step when a group of clients has delivered, which local steps by speed bring
    back together.

    Parameters
    ----------
    min_steps, max_steps: Q_min and Q_max, local steps of a client.
    momentum: weight of the newest seconds per step.
    latest: lambda, how long a group is waited for, as a multiple of the time that it should take.
    alpha: weight of a fresh update.
    form: what is added, see the module.
    staleness, a, b: the discount, see :mod:`motley.timing.overlapping`.
    max_staleness: older updates are discarded.
    idle_s: how long the server waits when no client is available.
    """

    paper: ClassVar[Paper] = cite("li2024fedcompass")
    published_weights: ClassVar[str | None] = "uniform"

    min_steps: int = 20
    max_steps: int = 100
    momentum: float = 0.9
    latest: float = 1.5
    alpha: float = 0.9
    form: Literal["updates", "models"] = "updates"
    staleness: Discount = "polynomial"
    a: float = 0.5
    b: float = 4.0
    max_staleness: int | None = None
    idle_s: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_steps <= self.max_steps:
            raise ConfigError(
                f"got min_steps = {self.min_steps} and max_steps = {self.max_steps}; expected at "
                "least 1, and not more than max_steps"
            )
        for name in ("momentum", "alpha"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(
                    f"got {name} = {getattr(self, name)}; expected more than 0 and at most 1"
                )
        if not 1 <= self.latest < np.inf:
            raise ConfigError(f"got latest = {self.latest}; expected a finite number of at least 1")
        if self.form not in ("updates", "models"):
            raise ConfigError(f"got form = {self.form!r}; expected 'updates' or 'models'")
        self.check_options()

    @property
    @override
    def asks_again(self) -> bool:
        """Whether a client is sent out again while its late update waits: yes."""
        return True

    @override
    def refuses(self, uploads: frozenset[str], weights: str) -> str | None:
        """Return why it cannot be used: clients that send no update which could be discounted, or
        more than a model that could be mixed."""
        if "delta" not in uploads:
            return (
                "groups of arrival discount late updates, and this algorithm uploads none; use "
                "synchronous or deadline"
            )
        more = sorted(uploads - {"delta"})
        if more and self.form == "models":
            return (
                'form = "models" mixes models, but this algorithm also uploads '
                f'{", ".join(more)}; use form = "updates"'
            )
        return None

    @override
    def init(self) -> ClientTable:
        none = dict.fromkeys(("dispatch", "heard", "group"), -1.0)
        return ClientTable({"speed": np.nan, "expected_s": 0.0, "latest_s": 0.0, **none})

    @override
    def observed(self, view: ServerView) -> ClientTable:
        """Return the memory with the speeds of clients that have arrived."""
        memory = _memory(view)
        lines = view.in_flight
        newest = memory.get("dispatch", lines.client) == lines.dispatch
        fresh = newest & (memory.get("heard", lines.client) != lines.dispatch) & view.arrived
        if not fresh.any():
            return memory
        ids = lines.client[fresh]
        taken = (lines.arrives_s - lines.start_s)[fresh] / np.maximum(lines.steps[fresh], 1)
        old = memory.get("speed", ids)
        moved = (1 - self.momentum) * old + self.momentum * taken
        speed = np.where(np.isnan(old), taken, moved)
        return memory.put(ids, {"speed": speed, "heard": lines.dispatch[fresh]})

    @override
    def assigned(self, view: ServerView, ids: Ids, dispatch: int) -> tuple[Ints, ClientTable]:
        """Return the local steps of clients that are sent out now, ``[m]``, and the memory with
        their groups."""
        memory = _memory(view)
        groups = self._groups(view)
        speeds = memory.get("speed", ids)
        number = int(memory.get("group", memory.ids).max(initial=NO_GROUP))
        steps = np.full(len(ids), self.max_steps)
        for i in np.lexsort((ids, speeds)).tolist():  # NaN comes last
            speed = float(speeds[i])
            group, joined = Group(0.0, 0.0, speed), NO_GROUP
            if np.isfinite(speed):
                joined, steps[i] = self._joined(groups, view.now_s, speed)
                if joined == NO_GROUP:
                    steps[i] = self._steps_alone(groups, view.now_s, speed)
                    number += 1
                    joined = number
                    spare_s = float(steps[i]) * speed
                    ends_s = view.now_s + self.latest * spare_s
                    group = Group(view.now_s + spare_s, ends_s, speed)
                else:
                    group = groups[joined]
                quickest = min(speed, group.quickest)
                groups[joined] = group._replace(quickest=quickest)
            row = {"dispatch": dispatch + i, "group": joined}
            row |= {"expected_s": group.expected_s, "latest_s": group.latest_s}
            memory = memory.put(ids[i : i + 1], row)
        return steps, memory

    def _joined(self, groups: dict[int, Group], now_s: float, speed: float) -> tuple[int, int]:
        """Return the number of the group that a client joins, :data:`NO_GROUP` for none, and its
        steps."""
        best = NO_GROUP, -1
        for number, group in sorted(groups.items()):
            steps = _fit(group.expected_s - now_s, speed)
            if max(self.min_steps, best[1]) <= steps <= self.max_steps:
                best = number, steps
        return best

    def _steps_alone(self, groups: dict[int, Group], now_s: float, speed: float) -> int:
        """Return the steps of a client that begins a group."""
        fits = [
            _fit(group.latest_s + group.quickest * self.max_steps - now_s, speed)
            for group in groups.values()
            if now_s < group.latest_s
        ]
        fitting = [steps for steps in fits if steps <= self.max_steps]
        return max(self.min_steps, *fitting) if fitting else self.max_steps

    def _places(self, view: ServerView) -> Groups:
        """Return where the updates in flight belong."""
        memory = _memory(view)
        lines = view.in_flight
        newest = memory.get("dispatch", lines.client) == lines.dispatch
        number = np.where(newest, memory.get("group", lines.client), REPLACED).astype(np.int64)
        latest_s = memory.get("latest_s", lines.client)
        late = view.arrived & (number >= 0) & (lines.arrives_s > latest_s)
        return Groups(number, latest_s, late)

    def _groups(self, view: ServerView) -> dict[int, Group]:
        """Return the groups of which somebody is under way or waits, by number."""
        memory = _memory(view)
        places = self._places(view)
        groups: dict[int, Group] = {}
        for row in np.flatnonzero((places.number >= 0) & ~places.late).tolist():
            client = view.in_flight.client[row : row + 1]
            number = int(places.number[row])
            speed = float(memory.get("speed", client)[0])
            before = groups[number].quickest if number in groups else np.inf
            expected_s = float(memory.get("expected_s", client)[0])
            groups[number] = Group(expected_s, float(places.latest_s[row]), min(before, speed))
        return groups

    @override
    def decide(self, view: ServerView) -> Dispatch | Wait | ServerStep:
        """Step on an update without a group, then on a group that is complete or has ended, with
        what came late before; else send free clients out; else wait for an arrival or the end of a
        group."""
        places = self._places(view)
        arrived = view.arrived
        alone = arrival_order(view, arrived & (places.number == NO_GROUP))
        if len(alone):
            return self._step(view, np.arange(len(arrived)) == alone[0])
        waits = arrived & (places.number >= 0) & ~places.late
        for number in np.unique(places.number[waits]).tolist():
            mine = places.number == number
            ended = view.now_s >= places.latest_s[mine][0]
            if ended or not (mine & ~arrived).any():
                general = arrived & (places.late | (places.number == REPLACED))
                return self._step(view, (mine & waits) | general)
        return refill(view, self.idle_s, waits, places.latest_s[waits])

    def _step(self, view: ServerView, accept: Bools) -> ServerStep:
        """Return the step on these updates, of each client its newest."""
        lines = view.in_flight
        rows = np.flatnonzero(accept)
        order = rows[np.lexsort((lines.dispatch[rows], lines.client[rows]))]
        last = np.append(lines.client[order[1:]] != lines.client[order[:-1]], True)
        taken = np.zeros(len(lines), bool)
        taken[order[last]] = True
        taken &= ~self.too_stale(view)
        share = self.alpha * taken.sum() / view.cohort
        return ServerStep(
            taken, accept & ~taken, share * self.discounts(view), mix=self.form == "models"
        )


def _memory(view: ServerView) -> ClientTable:
    """Return what is remembered.

    Raises
    ------
    ConfigError: the view has none.
    """
    if view.memory is None:
        raise ConfigError("fedcompass decides by what it remembers; give the view its memory")
    return view.memory


def _fit(seconds: float, speed: float) -> int:
    """Return how many steps fit into so many seconds; below 0 for none."""
    return int(np.floor(min(seconds / max(speed, 1e-12), 1e12) + 1e-6))
