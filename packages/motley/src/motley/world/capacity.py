"""Capacity models: how much of a model's width a client can hold, or how many samples of a batch.

A share of the width is the same for a client throughout (``per = "client"``), or drawn anew for
every round (``per = "round"``). Methods whose clients train slices of the model (``heterofl``,
``fedrolex``) read it: of n units of a hidden layer the share r is ``ceil(r n)``, so a client sends,
receives and computes about r squared of what the whole model takes. Under methods of low-rank
adapters (``lora_fedavg``, ``flexlora``, ``flora``, ``hetlora``) it is the share of the ranks of
each adapter, and a client sends and, but under ``flora``, receives about r of what the whole
adapters take.

With ``batch_size`` or ``batch_sizes`` clients hold the whole model and so many samples of it at a
time, under any method: their local steps are of the smaller of this and ``local.batch_size``, and
an epoch of theirs has more steps. INTERPRETATION: a step on b samples in place of B takes b / B of
the time. Messages stay as they are.

Worked
------
Samples held, B = 32, 1 s a step, n = 40: with 32 two steps and 2 s, with 8 five steps of .25 s. All
clients with 8 are a run with ``local.batch_size = 8``, bit for bit. ``by_speed`` gives a client the
largest size with which a step takes at most ``step_s``, by its speed in round 1, ``by_memory`` the
largest that fits into its memory. FedNova is made for such unequal numbers of steps.

Shares by score, levels (1, 1/2, 1/4): clients 4, 7, 1, 9 are chosen with the scores .2, .9, .2, .5.
In order 7, 9, 1, 4 (of equal scores the smaller id first), the places 0, 3/4, 6/4, 9/4 of the
levels, rounded down, give them 1, 1, 1/2, 1/4. Client 9 can hold 1/4, and is given that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world import CAPACITY
from motley.world.draws import (
    Per,
    check_per,
    check_positive,
    check_range,
    check_share,
    key_of,
    uniform,
    weighted_rows,
)
from motley.world.interfaces import Capacity

WIDTHS = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""HeteroFL's shares of the width."""


def _check_levels(levels: tuple[float, ...], batch_sizes: tuple[int, ...]) -> None:
    if batch_sizes and levels != WIDTHS:
        problem = f"got levels = {list(levels)} and batch_sizes = {list(batch_sizes)}"
        raise ConfigError(
            f"{problem}; expected one of them: levels are shares of the model's width"
        )
    if (
        not levels
        or any(not 0 < level <= 1 for level in levels)
        or list(levels) != sorted(set(levels), reverse=True)
    ):
        raise ConfigError(
            f"got levels = {list(levels)}; expected falling shares in (0, 1], e.g. [1.0, 0.5, 0.25]"
        )
    if any(size < 1 for size in batch_sizes) or list(batch_sizes) != sorted(
        set(batch_sizes), reverse=True
    ):
        raise ConfigError(
            f"got batch_sizes = {list(batch_sizes)}; expected falling whole numbers of at least 1, "
            "e.g. [32, 16, 8]"
        )


def _outer(within: str | Mapping[str, Any]) -> Capacity | None:
    capacity: Capacity | None = CAPACITY.build(within, "capacity.within") if within != "" else None
    return capacity


def _check_outer(capacity: CapacityByDeadline | CapacityByScore) -> None:
    outer = capacity.outer
    if outer is not None and (outer.batch_sizes or any(member.requires for member in outer.chain)):
        raise ConfigError(
            f"got within = {capacity.within!r}; expected a capacity that says which share each "
            'client can hold, e.g. { name = "by_memory", low = 0.5, high = 2.0 }'
        )


@dataclass(frozen=True)
class ConstantCapacity(Capacity):
    """Every client can hold the same share ``width`` of the model's width, or the same
    ``batch_size`` of the whole model."""

    measure: ClassVar[Literal["time", "bytes", "round", "nothing"]] = "nothing"

    width: float = 1.0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_share("width", self.width, zero=False)
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(
                f"got batch_size = {self.batch_size}; expected a whole number of at least 1"
            )
        if self.batch_size is not None and self.width < 1:
            raise ConfigError(
                f"got width = {self.width:g} and batch_size = {self.batch_size}; expected one of "
                "them"
            )

    @property
    @override
    def levels(self) -> tuple[float, ...]:
        return (self.width,)

    @property
    @override
    def batch_sizes(self) -> tuple[int, ...]:
        return () if self.batch_size is None else (self.batch_size,)

    @override
    def level(self, key: Key, ids: Ids, round_index: int, step_s: Floats, cost: Floats) -> Ids:
        return np.zeros(len(ids), np.int64)


@dataclass(frozen=True)
class CapacityLevels(Capacity):
    """Each client draws one of ``levels``, HeteroFL's by default, or of ``batch_sizes``;
    ``per = "client"`` is HeteroFL's `fix`, ``per = "round"`` its `dynamic`.

    Parameters
    ----------
    levels: shares of the width, falling.
    weights: how likely each level is, at least 0; all alike if left out.
    batch_sizes: samples of a batch in place of shares, falling.
    """

    measure: ClassVar[Literal["time", "bytes", "round", "nothing"]] = "nothing"

    levels: tuple[float, ...] = WIDTHS
    weights: tuple[float, ...] = ()
    per: Per = "client"
    batch_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_levels(self.levels, self.batch_sizes)
        check_per(self.per)
        if self.batch_sizes and self.per == "round":
            raise ConfigError(
                'got per = "round" with batch_sizes; expected "client": a client\'s memory is the '
                "same in every round"
            )
        count = len(self._held)
        good = (
            len(self.weights) == count
            and all(0 <= w < math.inf for w in self.weights)
            and any(self.weights)
        )
        if self.weights and not good:
            problem = (
                f"got weights = {list(self.weights)}; expected a number of at least 0 for each "
                "of the"
            )
            raise ConfigError(f"{problem} {count} levels, not all 0")

    @property
    def _held(self) -> tuple[float, ...]:
        return self.batch_sizes or self.levels

    @override
    def level(self, key: Key, ids: Ids, round_index: int, step_s: Floats, cost: Floats) -> Ids:
        weights = np.array(self.weights or (1.0,) * len(self._held))
        return weighted_rows(key_of(key, self.per, round_index), ids, weights)


@dataclass(frozen=True)
class CapacityBySpeed(Capacity):
    """Each client holds the widest of ``levels``, or the largest of ``batch_sizes``, with which a
    step takes it at most ``step_s`` seconds, else the least.

    A step of the whole model takes as long as ``device`` says, one of the share r about r squared
    of that; of the share r of the ranks of adapters what the operations of the narrower ones say.

    Parameters
    ----------
    step_s: seconds per local step, above 0.
    levels: shares of the width, falling.
    batch_sizes: samples of a batch in place of shares, falling.
    """

    step_s: float = 0.3
    levels: tuple[float, ...] = WIDTHS
    batch_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_positive("step_s", self.step_s, "(seconds per local step)")
        _check_levels(self.levels, self.batch_sizes)

    @override
    def level(self, key: Key, ids: Ids, round_index: int, step_s: Floats, cost: Floats) -> Ids:
        fits = cost * step_s[:, None] <= self.step_s
        return np.asarray(np.where(fits.any(1), fits.argmax(1), len(cost) - 1), np.int64)


@dataclass(frozen=True)
class CapacityByDeadline(Capacity):
    """Each client holds the widest of ``levels`` with which its round takes it at most ``seconds``,
    else the least.

    A round is the download and the upload of what it holds, without headers, and its local steps,
    at the speed and on the links that it has in this round; so slow clients of a ``deadline`` do
    less in place of coming late. Leave a deadline some milliseconds more for the headers. Under
    ``flora`` a stack counts like the client's own ranks.

    Parameters
    ----------
    seconds: virtual seconds of a round, above 0.
    levels: shares of the width, or of the ranks of adapters, falling.
    within: another ``capacity``, whose shares are limits, too, e.g. of memory; empty: none.
    """

    measure: ClassVar[Literal["time", "bytes", "round", "nothing"]] = "round"

    seconds: float = 60.0
    levels: tuple[float, ...] = WIDTHS
    within: str | Mapping[str, Any] = ""

    def __post_init__(self) -> None:
        check_positive("seconds", self.seconds, "(virtual seconds of a round)")
        _check_levels(self.levels, ())
        _check_outer(self)

    @cached_property
    @override
    def outer(self) -> Capacity | None:
        return _outer(self.within)

    @property
    @override
    def batch_sizes(self) -> tuple[int, ...]:
        return ()

    @override
    def level(self, key: Key, ids: Ids, round_index: int, step_s: Floats, cost: Floats) -> Ids:
        fits = cost <= self.seconds
        return np.asarray(np.where(fits.any(1), fits.argmax(1), cost.shape[1] - 1), np.int64)


MEGABYTE = 1_000_000


@dataclass(frozen=True)
class CapacityByMemory(Capacity):
    """Each client holds the widest of ``levels``, or the largest of ``batch_sizes``, with which
    training fits into its memory, drawn once, uniformly in (``low``, ``high``) megabytes.

    What training takes is estimated from the model (:mod:`motley.engines.memory`).

    Parameters
    ----------
    low, high: megabytes of 10^6 bytes that a client has for training.
    too_little: a client that cannot hold the least level is an error (``refuse``), or holds it all
    the same (``least``).
    levels: shares of the width, or of the ranks of adapters, falling.
    batch_sizes: samples of a batch in place of shares, falling.
    """

    measure: ClassVar[Literal["time", "bytes", "round", "nothing"]] = "bytes"

    low: float = 256.0
    high: float = 1024.0
    too_little: Literal["refuse", "least"] = "refuse"
    levels: tuple[float, ...] = WIDTHS
    batch_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_range("megabytes", self.low, self.high, "(megabytes)")
        _check_levels(self.levels, self.batch_sizes)

    @override
    def level(self, key: Key, ids: Ids, round_index: int, step_s: Floats, cost: Floats) -> Ids:
        memory = MEGABYTE * uniform(key, ids, self.low, self.high)
        fits = cost <= memory[:, None]
        poor = np.flatnonzero(~fits.any(1))
        if len(poor) and self.too_little == "refuse":
            least = (self.batch_sizes or self.levels)[-1]
            held = f"batches of {least}" if self.batch_sizes else f"the share {least:g}"
            has, takes = memory[poor[0]] / MEGABYTE, cost[-1] / MEGABYTE
            raise ConfigError(
                f"client {ids[poor[0]]} has {has:.4g} MB (so {len(poor)} of {len(ids)} clients "
                f"have too little), and training takes {takes:.4g} MB even with {held}; list less, "
                f'give low = {takes:.4g}, or write too_little = "least"',
                "capacity",
            )
        return np.asarray(np.where(fits.any(1), fits.argmax(1), len(cost) - 1), np.int64)


@dataclass(frozen=True)
class CapacityByScore(Capacity):
    """The chosen clients of a round are given ``levels`` by the selector's scores, the best the
    widest, and never more than they can hold by ``within``.

    INTERPRETATION: who is more informative learns with more. After the choice the m clients are
    ordered by falling score, of equal scores the smaller id first; the i-th of them, from 0, is
    given the level floor(i L / m) of L, or what it can hold, if that is less. Before the choice a
    client's estimates and probes are of what it can hold, and so are its evaluations.

    Parameters
    ----------
    levels: shares of the width, or of the ranks of adapters, falling.
    within: another ``capacity``, whose shares are limits.
    empty: clients can hold all.
    """

    measure: ClassVar[Literal["time", "bytes", "round", "nothing"]] = "nothing"
    requires: ClassVar[frozenset[str]] = frozenset({"scores"})

    levels: tuple[float, ...] = WIDTHS
    within: str | Mapping[str, Any] = ""

    def __post_init__(self) -> None:
        _check_levels(self.levels, ())
        _check_outer(self)

    @cached_property
    @override
    def outer(self) -> Capacity | None:
        return _outer(self.within)

    @property
    @override
    def batch_sizes(self) -> tuple[int, ...]:
        return ()

    @override
    def level(self, key: Key, ids: Ids, round_index: int, step_s: Floats, cost: Floats) -> Ids:
        return np.zeros(len(ids), np.int64)

    @override
    def widths(
        self, key: Key, ids: Ids, round_index: int, step_s: Floats, cost: Floats | None = None
    ) -> Floats:
        return np.ones(len(ids))  # before the choice a client can hold all that ``within`` lets it

    @override
    def chosen(self, ids: Ids, scores: Floats) -> Floats:
        place = np.empty(len(ids), np.int64)
        place[np.lexsort((ids, -scores))] = np.arange(len(ids))
        return np.asarray(np.array(self.levels)[place * len(self.levels) // max(len(ids), 1)])
