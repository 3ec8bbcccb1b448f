"""Availability models: which clients are online.

Every model is a function of (key, client, time): times can be queried in any order, and nothing is
saved. Time is divided into slots: ``slot_s`` virtual seconds each, or one per round if ``slot_s``
is left out. Selection sees only online clients; while no client is online, the synchrony lets time
pass.

The Markov chain is evaluated without stored state. In slot s client k draws ``u``: below p_s the
chain is switched on, at or above ``1 - q`` it is switched off, whatever it was before; between the
two it stays. So its state is that of the last slot that switched it, and its distribution is exact
from slot 0 on (started in the past, it is stationary). A slot may switch with probability
``c = max_s p_s + q``, independently, so the gaps between such slots are geometric: in blocks of
``4 / c`` slots they are drawn one after the other, and a block without a switch refers to the block
before. The cost of a query does not depend on p and q.

Worked
------
On with p = .1, off with q = .3 per slot: .25 of the time online, mean runs online 3.33 and offline
10 slots, autocorrelation .6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import ConfigError, DataError
from motley.core.files import files_digest
from motley.core.keys import Key
from motley.core.side_by_side import by_rows
from motley.world.draws import check_positive, check_share
from motley.world.interfaces import Availability
from motley.world.traces import Assign, assigned, check_assign, columns

MOST_SLOTS = 10_000
"""Slots in which a client is looked for at a time."""
LONGEST_ROUNDING_S = 1e-3
"""The most by which a moment is put off because of rounding."""


@dataclass(frozen=True)
class AlwaysOnline(Availability):
    """Every client is always online."""

    @property
    @override
    def follows_time(self) -> bool:
        return False

    @override
    def online(self, key: Key, ids: Ids, round_index: int, time_s: float) -> Bools:
        return np.ones(len(ids), bool)


@dataclass(frozen=True)
class BernoulliAvailability(Availability):
    """Each client is online with a fixed probability, independently in every slot.

    Parameters
    ----------
    p: probability that a client is online, in (0, 1].
    low: if given, each client's own probability is drawn once, uniformly in (``low``, ``p``): some
    are rarely online.
    slot_s: see the module.

    Example
    -------
    >>> online = BernoulliAvailability(p=0.3).online(Key(0), np.arange(10_000), 1, 0.0)
    >>> round(float(online.mean()), 1)
    0.3
    """

    p: float = 0.5
    low: float | None = None
    slot_s: float | None = None

    def __post_init__(self) -> None:
        check_share("p", self.p, zero=False)
        if self.low is not None:
            check_share("low", self.low)
            if self.low > self.p:
                raise ConfigError(f"got low = {self.low} above p = {self.p}; expected low <= p")
        _check_slot(self.slot_s)

    @property
    @override
    def follows_time(self) -> bool:
        return self.slot_s is not None

    @override
    def online(self, key: Key, ids: Ids, round_index: int, time_s: float) -> Bools:
        slot = _slot(self.slot_s, round_index, time_s)
        chance: float | Floats = self.p
        if self.low is not None:
            chance = self.low + (self.p - self.low) * key.fold("share").uniform(ids)[:, 0]
        return np.asarray(key.fold("slot", slot).uniform(ids)[:, 0] < chance)

    @override
    def back_s(self, key: Key, ids: Ids, round_index: int, time_s: float) -> float:
        return first_slot(
            availability=self,
            slot_s=self.slot_s,
            key=key,
            ids=ids,
            round_index=round_index,
            time_s=time_s,
        )


@dataclass(frozen=True)
class MarkovAvailability(Availability):
    """Clients switch between offline and online: on with probability ``p`` a slot, off with
    probability ``q`` (INTERPRETATION-D).

    A share p / (p + q) is online, for 1 / q slots on average, then offline for 1 / p; neighbouring
    slots correlate by 1 - p - q.

    Parameters
    ----------
    p, q: in (0, 1], together at most 1.
    slot_s: see the module.
    amplitude: by how much p follows the hour, ``p (1 + amplitude sin(2 pi (t / day_s + phi_k)))``
        with a phase per client, in [0, 1]; needs ``slot_s`` (0.5 for instance).
    day_s: seconds in a day.

    Example
    -------
    >>> chain = MarkovAvailability(p=0.1, q=0.3)
    >>> online = np.array([chain.online(Key(0), np.arange(10_000), t, 0.0) for t in range(5)])
    >>> round(float(online.mean()), 2)
    0.25
    """

    p: float = 0.1
    q: float = 0.3
    slot_s: float | None = None
    amplitude: float = 0.0
    day_s: float = 86_400.0

    def __post_init__(self) -> None:
        check_share("p", self.p, zero=False)
        check_share("q", self.q, zero=False)
        check_share("amplitude", self.amplitude)
        check_positive("day_s", self.day_s, "(seconds in a day)")
        _check_slot(self.slot_s)
        if self._switching > 1 + 1e-9:
            raise ConfigError(
                f"got p = {self.p}, q = {self.q}, amplitude = {self.amplitude}; expected p (1 + "
                "amplitude) + q of at most 1 (at which slots are independent): make slots shorter "
                "and both probabilities smaller"
            )
        if self.amplitude and self.slot_s is None:
            raise ConfigError(
                f"got amplitude = {self.amplitude} without slot_s; a day needs slots of seconds, "
                "e.g. slot_s = 600"
            )

    @property
    @override
    def follows_time(self) -> bool:
        return self.slot_s is not None

    @property
    def _switching(self) -> float:
        """Probability c that a slot may switch a client."""
        return self.p * (1 + self.amplitude) + self.q

    @override
    def online(self, key: Key, ids: Ids, round_index: int, time_s: float) -> Bools:
        def rise(at: Ids, slot: Ints) -> Floats:
            return self._rise(key, np.asarray(ids)[at], slot)

        slot = _slot(self.slot_s, round_index, time_s)
        return chain_online(
            key=key,
            ids=np.asarray(ids),
            slot=slot,
            rise=rise,
            fall=lambda at, _: np.full(len(at), self.q),
            switching=self._switching,
        )

    @override
    def back_s(self, key: Key, ids: Ids, round_index: int, time_s: float) -> float:
        return first_slot(
            availability=self,
            slot_s=self.slot_s,
            key=key,
            ids=ids,
            round_index=round_index,
            time_s=time_s,
        )

    def _rise(self, key: Key, ids: Ids, slot: Ints) -> Floats:
        """Return p of each client in its slot."""
        if not self.amplitude or self.slot_s is None:
            return np.full(len(ids), self.p)
        turn = slot * self.slot_s / self.day_s + key.fold("phase").uniform(ids)[:, 0]
        return np.asarray(self.p * (1 + self.amplitude * np.sin(2 * np.pi * turn)), np.float64)


def chain_online(
    key: Key,
    ids: Ids,
    slot: int,
    rise: Callable[[Ids, Ints], Floats],
    fall: Callable[[Ids, Ints], Floats],
    switching: float,
) -> Bools:
    """Return whether each client is online after its last switch, ``[len(ids)]``; see the module.

    Parameters
    ----------
    rise: positions in ``ids`` and a slot of each -> probability p of being switched on there.
    fall: the same for the probability q of being switched off.
    switching: the largest p + q, the probability c that a slot may switch a client.
    """
    out = np.zeros(len(ids), bool)
    length = int(np.ceil(4 / switching))
    open_ = np.arange(len(ids))
    block = slot // length
    while len(open_):
        last = slot - block * length if block == slot // length else length - 1
        stream = key.fold("block", block)
        begin = block * length
        state = _last_switch(
            stream=stream,
            ids=ids,
            among=open_,
            slots=(begin, begin + last),
            rise=rise,
            fall=fall,
            switching=switching,
        )
        decided = state >= 0
        out[open_[decided]] = state[decided] == 1
        open_ = open_[~decided]
        block = block - 1
    return out


def _last_switch(
    stream: Key,
    ids: Ids,
    among: Ids,
    slots: tuple[int, int],
    rise: Callable[[Ids, Ints], Floats],
    fall: Callable[[Ids, Ints], Floats],
    switching: float,
) -> Ints:
    """Return the last switch in some slots of a block (the first and the last of them), of the
    positions ``among``: 1 on, 0 off, -1 none."""
    begin, last = slots
    state = np.full(len(among), -1)
    at = np.full(len(among), begin - 1)
    open_ = np.arange(len(among))
    turn = 0
    length = int(np.ceil(4 / switching))
    c = min(switching, 1.0)
    while len(open_):
        gap, kind = stream.fold(turn).uniform(ids[among[open_]], 2).T
        at[open_] += 1
        if c < 1:
            at[open_] += np.floor(np.minimum(np.log(gap) / np.log1p(-c), length)).astype(np.int64)
        inside = at[open_] <= last
        open_ = open_[inside]
        kind = kind[inside]
        up = rise(among[open_], at[open_]) / c
        off = kind >= 1 - fall(among[open_], at[open_]) / c
        state[open_] = np.where(kind < up, 1, np.where(off, 0, state[open_]))
        turn += 1
    return state


@dataclass(frozen=True)
class DayNight(Availability):
    """Every client is online for one interval of each day, at its own hour: phones at night.

    Parameters
    ----------
    share: of the day that a client is online, in (0, 1].
    spread: share of a day over which the clients' intervals begin, in [0, 1]: 1 is all time zones
        (as many online at any time), 0 is one time zone (all online or none).
    day_s: seconds in a day of virtual time.

    Example
    -------
    >>> night = DayNight(share=0.25, spread=0.0)
    >>> client, hours = np.array([3]), (0, 5, 6, 23, 24)
    >>> [bool(night.online(Key(0), client, 1, hour * 3600.0)[0]) for hour in hours]
    [True, True, False, False, True]
    """

    share: float = 0.5
    spread: float = 1.0
    day_s: float = 86_400.0

    def __post_init__(self) -> None:
        check_share("share", self.share, zero=False)
        check_share("spread", self.spread)
        check_positive("day_s", self.day_s, "(seconds in a day)")

    @override
    def online(self, key: Key, ids: Ids, round_index: int, time_s: float) -> Bools:
        phase = key.fold("phase")
        now = time_s / self.day_s

        def awake(chunk: Ids) -> Bools:
            days = now - self.spread * phase.uniform(chunk)[:, 0]
            days -= np.floor(days)  # the bits of ``% 1.0``, several times as fast
            return np.asarray(days < self.share)

        return by_rows(awake, np.asarray(ids), np.bool_)

    @override
    def back_s(self, key: Key, ids: Ids, round_index: int, time_s: float) -> float:
        """Return when the first of the clients' intervals begins, or ``time_s`` within one."""
        if not len(ids) or self.online(key, ids, round_index, time_s).any():
            return time_s
        days = time_s / self.day_s - self.spread * key.fold("phase").uniform(ids)[:, 0]
        wait_s = self.day_s * float((np.floor(days) + 1.0 - days).min())
        return _rounded_up(
            availability=self, key=key, ids=ids, round_index=round_index, time_s=time_s + wait_s
        )


@dataclass(frozen=True)
class TraceAvailability(Availability):
    """Recorded online intervals, repeated periodically (FedScale's replay).

    Parameters
    ----------
    file: CSV or Parquet with a row per online interval: ``trace`` (its number), ``active_s``,
        ``inactive_s`` (from, to), and optionally ``finish_s`` (the period of this trace; left out:
        its last ``inactive_s``).
    assign: which client follows which trace, see :mod:`motley.world.traces`.
    """

    file: str
    assign: Assign = "in_turn"

    def __post_init__(self) -> None:
        check_assign(self.assign)
        _intervals(self.file)

    def files_digest(self) -> str:
        """Return a hash of the file's bytes."""
        return files_digest(self.file)

    @override
    def online(self, key: Key, ids: Ids, round_index: int, time_s: float) -> Bools:
        """Return whether ``active <= u <= inactive`` for some interval, at
        ``u = time_s mod finish``; by bisection."""
        inactive = _intervals(self.file)[1]
        _, begin, later, u = self._later(key, ids, time_s)
        return np.asarray((later > begin) & (u <= inactive[later - 1]))

    @override
    def back_s(self, key: Key, ids: Ids, round_index: int, time_s: float) -> float:
        """Return when the first of the clients' next intervals begins, or ``time_s`` within one."""
        if not len(ids) or self.online(key, ids, round_index, time_s).any():
            return time_s
        active, _, first, finish = _intervals(self.file)
        trace, begin, later, u = self._later(key, ids, time_s)
        over = later == first[trace + 1]  # the next one is of the next period
        start_s = np.where(over, finish[trace] + active[begin], active[np.where(over, 0, later)])
        return _rounded_up(
            availability=self,
            key=key,
            ids=ids,
            round_index=round_index,
            time_s=time_s + float((start_s - u).min()),
        )

    def _later(self, key: Key, ids: Ids, time_s: float) -> tuple[Ints, Ints, Ints, Floats]:
        """Return each client's trace, the number of its first interval and of the first that begins
        after ``time_s``, and the time within its period, ``[len(ids)]`` each."""
        active, _, first, finish = _intervals(self.file)
        trace = assigned(key, ids, len(finish), self.assign)
        u = time_s % finish[trace]
        low = first[trace]
        high = first[trace + 1]
        begin = low
        while (going := low < high).any():
            middle = (low + high) // 2
            before = going & (active[np.minimum(middle, len(active) - 1)] <= u)
            low = np.where(before, middle + 1, low)
            high = np.where(going & ~before, middle, high)
        return trace, begin, low, u


def _intervals(file: str) -> tuple[Floats, Floats, Ints, Floats]:
    """Return start and end of all intervals by trace and time, each trace's first interval
    ``[T + 1]`` and its period ``[T]``."""
    table = columns(file, ("trace", "active_s", "inactive_s"), ("finish_s",))
    order = np.lexsort((table["active_s"], table["trace"]))
    trace, active, inactive = (table[name][order] for name in ("trace", "active_s", "inactive_s"))
    first = np.flatnonzero(np.concatenate([[True], trace[1:] != trace[:-1]]))
    ends = np.maximum.reduceat(inactive, first)
    finish = np.maximum.reduceat(table["finish_s"][order], first) if "finish_s" in table else ends
    follows = trace[1:] == trace[:-1]
    if (active < 0).any() or (inactive < active).any() or not np.isfinite(inactive).all():
        raise DataError(f"{file}: an interval must begin at 0 or later, and end after it begins")
    if (follows & (active[1:] < inactive[:-1])).any():
        raise DataError(f"{file}: two intervals of one trace overlap; join them")
    if (finish < ends).any() or not (finish > 0).all():
        raise DataError(
            f"{file}: finish_s must be above 0 and not before the last inactive_s of its trace"
        )
    return active, inactive, np.append(first, len(active)), finish


def first_slot(
    availability: Availability,
    slot_s: float | None,
    key: Key,
    ids: Ids,
    round_index: int,
    time_s: float,
) -> float:
    """Return ``time_s``, or when the first slot begins in which one of the clients is online; of
    :data:`MOST_SLOTS` slots without one, the last."""
    if slot_s is None or not len(ids):
        return time_s
    now = _slot(slot_s, round_index, time_s)
    for slot in range(now, now + MOST_SLOTS):
        begin_s = max(time_s, slot * slot_s)
        if availability.online(key, ids, round_index, begin_s).any():
            return begin_s
    return begin_s


def _rounded_up(
    availability: Availability, key: Key, ids: Ids, round_index: int, time_s: float
) -> float:
    """Return a moment at which a client comes online, after what rounding has taken from it."""
    step_s = float(np.spacing(time_s))
    while step_s < LONGEST_ROUNDING_S:
        if availability.online(key, ids, round_index, time_s).any():
            break
        time_s += step_s
        step_s *= 2
    return time_s


def _slot(slot_s: float | None, round_index: int, time_s: float) -> int:
    return round_index if slot_s is None else int(np.floor(time_s / slot_s))


def _check_slot(slot_s: float | None) -> None:
    if slot_s is not None:
        check_positive("slot_s", slot_s, "(seconds per slot), or none for one slot per round")
