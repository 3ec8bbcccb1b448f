"""Who can be asked now (optimisation-and-compression D14).

Every model is a function of (key, client, time): asked about any moment, in any order, it gives the same answer, so that nothing
has to be remembered or checkpointed. Time is cut into slots: ``slot_s`` virtual seconds each, or, where ``slot_s`` is left out, one
per round. Selection sees only who is online; where nobody is, the synchrony lets time go on.

The Markov chain without a memory. In slot s client k draws ``u``: below p_s the chain is switched on, at or above ``1 - q`` it is
switched off, whatever it was before; between the two it stays. So its state is that of the last slot that switched it, and the law is
exact from slot 0 on (started in the past, it is stationary). Slots that may switch come with chance ``c = max_s p_s + q``
independently, so the gaps between them are geometric: in blocks of ``4 / c`` slots they are drawn one after the other, and a block
without a switch refers to the one before. What a query costs does not depend on how slowly clients come and go.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError, DataError
from motley.core.keys import Key
from motley.world.base import Availability
from motley.world.draws import check_positive, check_share
from motley.world.traces import Assign, assigned, check_assign, columns

__all__ = ["Always", "Bernoulli", "DayNight", "Markov", "Trace"]

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Always(Availability):
    """Everybody, at any time."""

    def online(self, key: Key, ids: Ids, moment: int, time_s: float) -> Flags:
        """True for all."""
        return np.ones(len(ids), bool)


@dataclass(frozen=True)
class Bernoulli(Availability):
    """A coin for every client and slot.

    Parameters
    ----------
    p: share of the time that a client is online, in (0, 1].
    low: where given, a client's own share is drawn once, uniformly in (``low``, ``p``): some are hardly ever there.
    slot_s: see the module.

    Example
    -------
    >>> online = Bernoulli(p=0.3).online(Key(0), np.arange(10_000), 1, 0.0)
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

    def online(self, key: Key, ids: Ids, moment: int, time_s: float) -> Flags:
        """A coin each."""
        slot = _slot(self.slot_s, moment, time_s)
        chance = self.p if self.low is None else self.low + (self.p - self.low) * key.fold("share").uniform(ids)[:, 0]
        return np.asarray(key.fold("slot", slot).uniform(ids)[:, 0] < chance)


@dataclass(frozen=True)
class Markov(Availability):
    """Clients come and go: off to on with chance ``p`` a slot, on to off with chance ``q``.

    Online are p / (p + q) of them, for 1 / q slots on average, then away for 1 / p; neighbouring slots correlate by 1 - p - q.

    Parameters
    ----------
    p, q: in (0, 1], together at most 1. slot_s: see the module.
    swing: by how much p follows the hour, ``p (1 + swing sin(2 pi (t / day_s + phi_k)))`` with a phase per client, in [0, 1]; needs
        ``slot_s`` (the specification's diurnal variant has 0.5). day_s: seconds in a day.

    Example
    -------
    >>> chain = Markov(p=0.1, q=0.3)
    >>> online = np.array([chain.online(Key(0), np.arange(10_000), moment, 0.0) for moment in range(5)])
    >>> round(float(online.mean()), 2)
    0.25
    """

    p: float = 0.1
    q: float = 0.3
    slot_s: float | None = None
    swing: float = 0.0
    day_s: float = 86_400.0

    def __post_init__(self) -> None:
        check_share("p", self.p, zero=False)
        check_share("q", self.q, zero=False)
        check_share("swing", self.swing)
        check_positive("day_s", self.day_s, "(seconds in a day)")
        _check_slot(self.slot_s)
        if self._switching > 1 + 1e-9:
            raise ConfigError(
                f"got p = {self.p}, q = {self.q}, swing = {self.swing}; expected p (1 + swing) + q of at most 1 (there a slot knows"
                " nothing of the one before): make slots shorter and both chances smaller"
            )
        if self.swing and self.slot_s is None:
            raise ConfigError(f"got swing = {self.swing} without slot_s; a day needs slots of seconds, e.g. slot_s = 600")

    @property
    def _switching(self) -> float:
        """Chance c that a slot may switch a client."""
        return self.p * (1 + self.swing) + self.q

    def online(self, key: Key, ids: Ids, moment: int, time_s: float) -> Flags:
        """The state that the last switch left."""
        out = np.zeros(len(ids), bool)
        slot, length = _slot(self.slot_s, moment, time_s), int(np.ceil(4 / self._switching))
        open_, block = np.arange(len(ids)), slot // length
        while len(open_):
            last = slot - block * length if block == slot // length else length - 1
            state = self._last_switch(key, np.asarray(ids)[open_], block, length, last)
            known = state >= 0
            out[open_[known]] = state[known] == 1
            open_, block = open_[~known], block - 1
        return out

    def _last_switch(self, key: Key, ids: Ids, block: int, length: int, last: int) -> Ids:
        """What the last switch in places 0 to ``last`` of a block did: 1 on, 0 off, -1 there was none."""
        state, at = np.full(len(ids), -1), np.full(len(ids), -1)
        going, turn = np.arange(len(ids)), 0
        stream, c = key.fold("block", block), min(self._switching, 1.0)
        while len(going):
            gap, kind = stream.fold(turn).uniform(ids[going], 2).T
            at[going] += 1 + (np.floor(np.minimum(np.log(gap) / np.log1p(-c), length)).astype(np.int64) if c < 1 else 0)
            inside = at[going] <= last
            going, kind = going[inside], kind[inside]
            rise = self._rise(key, ids[going], block * length + at[going]) / c
            state[going] = np.where(kind < rise, 1, np.where(kind >= 1 - self.q / c, 0, state[going]))
            turn += 1
        return state

    def _rise(self, key: Key, ids: Ids, slot: Ids) -> Floats:
        """p of each client in its slot."""
        if not self.swing or self.slot_s is None:
            return np.full(len(ids), self.p)
        turn = slot * self.slot_s / self.day_s + key.fold("phase").uniform(ids)[:, 0]
        return np.asarray(self.p * (1 + self.swing * np.sin(2 * np.pi * turn)), np.float64)


@dataclass(frozen=True)
class DayNight(Availability):
    """Every client is online for one stretch of each day, at its own hour: phones at night.

    Parameters
    ----------
    share: of the day that a client is online, in (0, 1]. spread: share of a day over which the clients' stretches begin, in [0, 1]:
        1 is the whole globe (as many online at any time), 0 one time zone (all or nobody).
    day_s: seconds in a day of virtual time.

    Example
    -------
    >>> night = DayNight(share=0.25, spread=0.0)
    >>> [bool(night.online(Key(0), np.array([3]), 1, hour * 3600.0)[0]) for hour in (0, 5, 6, 23, 24)]
    [True, True, False, False, True]
    """

    share: float = 0.5
    spread: float = 1.0
    day_s: float = 86_400.0

    def __post_init__(self) -> None:
        check_share("share", self.share, zero=False)
        check_share("spread", self.spread)
        check_positive("day_s", self.day_s, "(seconds in a day)")

    def online(self, key: Key, ids: Ids, moment: int, time_s: float) -> Flags:
        """Whether its stretch of today has begun and not ended."""
        begins = self.spread * key.fold("phase").uniform(ids)[:, 0]
        return np.asarray((time_s / self.day_s - begins) % 1.0 < self.share)


@dataclass(frozen=True)
class Trace(Availability):
    """Recorded comings and goings, repeated for ever (FedScale's replay).

    Parameters
    ----------
    file: CSV or Parquet with a row per stretch of being online: ``trace`` (whose), ``active_s``, ``inactive_s`` (from, to), and
        optionally ``finish_s`` (when this trace begins anew; left out: its last ``inactive_s``).
    assign: which client follows which trace, see :mod:`motley.world.traces`.
    """

    file: str
    assign: Assign = "in_turn"

    def __post_init__(self) -> None:
        check_assign(self.assign)
        _stretches(self.file)

    def online(self, key: Key, ids: Ids, moment: int, time_s: float) -> Flags:
        """Whether ``active <= u <= inactive`` of some stretch, at ``u = time_s mod finish``; by bisection."""
        active, inactive, first, finish = _stretches(self.file)
        trace = assigned(key, ids, len(finish), self.assign)
        u, low, high = time_s % finish[trace], first[trace], first[trace + 1]
        begin = low
        while (going := low < high).any():  # the first stretch that begins after u
            middle = (low + high) // 2
            before = going & (active[np.minimum(middle, len(active) - 1)] <= u)
            low, high = np.where(before, middle + 1, low), np.where(going & ~before, middle, high)
        return np.asarray((low > begin) & (u <= inactive[low - 1]))


def _stretches(file: str) -> tuple[Floats, Floats, Ids, Floats]:
    """Begin and end of every stretch in order of trace and time, where each trace's begin ``[T + 1]``, its period ``[T]``."""
    table = columns(file, ("trace", "active_s", "inactive_s"), ("finish_s",))
    order = np.lexsort((table["active_s"], table["trace"]))
    trace, active, inactive = (table[name][order] for name in ("trace", "active_s", "inactive_s"))
    first = np.flatnonzero(np.concatenate([[True], trace[1:] != trace[:-1]]))
    ends = np.maximum.reduceat(inactive, first)
    finish = np.maximum.reduceat(table["finish_s"][order], first) if "finish_s" in table else ends
    follows = trace[1:] == trace[:-1]
    if (active < 0).any() or (inactive < active).any() or not np.isfinite(inactive).all():
        raise DataError(f"{file}: a stretch must begin at 0 or later, and end after it begins")
    if (follows & (active[1:] < inactive[:-1])).any():
        raise DataError(f"{file}: two stretches of one trace overlap; join them")
    if (finish < ends).any() or not (finish > 0).all():
        raise DataError(f"{file}: finish_s must be above 0 and not before the last inactive_s of its trace")
    return active, inactive, np.append(first, len(active)), finish


def _slot(slot_s: float | None, moment: int, time_s: float) -> int:
    return moment if slot_s is None else int(np.floor(time_s / slot_s))


def _check_slot(slot_s: float | None) -> None:
    if slot_s is not None:
        check_positive("slot_s", slot_s, "(seconds per slot), or none for one slot per round")
