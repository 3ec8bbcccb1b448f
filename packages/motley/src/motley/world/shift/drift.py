"""Drift: each client's mix of classes, or the labels of the classes, change during the run.

Time is ``clock = "rounds"`` or ``"seconds"`` of virtual time. Both kinds are functions of (key,
client, time): nothing is saved, and a resumed run continues with the same data.

* ``window``: a client holds all its samples from the start but uses a part of them at a time. They
  are ordered by class on a ring; a window of ``share n_k`` samples moves round it once in
  ``period``. The number of samples in use is constant, so local work, durations and weights are
  too.
* ``swap``: from ``start`` on, pairs of classes are swapped (as in
  :mod:`~motley.world.shift.concept_shift`): at all clients at once, or client by client over
  ``width``. Training and test labels change together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.draws import check_positive, check_share, row_uniform
from motley.world.interfaces import Drift
from motley.world.shift.concept_shift import swapped

TimeUnit = Literal["rounds", "seconds"]


@dataclass(frozen=True)
class NoDrift(Drift):
    """The distribution does not change."""


@dataclass(frozen=True)
class WindowDrift(Drift):
    """A moving window over each client's samples.

    Parameters
    ----------
    share: of a client's samples that it uses at a time, in (0, 1].
    period: rounds or seconds in which the window moves round once.
    clock: the unit of ``period``.
    common: all clients have the same order of classes and start together, so that the whole
    federation drifts; else each client has its own order and start, so that only single clients
    drift.

    Example
    -------
    >>> drift = WindowDrift(share=0.5, period=4, common=True)
    >>> first, length = drift.window(Key(0), np.arange(2), np.array([8, 100]), 1, 0.0)
    >>> first.tolist(), length.tolist()
    ([2, 25], [4, 50])
    """

    share: float = 0.5
    period: float = 100.0
    clock: TimeUnit = "rounds"
    common: bool = False

    def __post_init__(self) -> None:
        check_share("share", self.share, zero=False)
        check_positive("period", self.period, "(rounds or seconds, as clock says)")
        _check_clock(self.clock)

    @property
    @override
    def follows_time(self) -> bool:
        return self.clock == "seconds"

    @override
    def order(
        self,
        key: Key,
        labels: Ints,
        owner: Ids,
        classes: int,
        population: int,
        numbers: Ints | None = None,
    ) -> Ints:
        """Return positions of the samples, client by client, by class on each client's ring; random
        within a class."""
        ring = labels if self.common else owner * classes + labels
        rank = key.fold("classes").uniform(ring)[:, 0]
        return np.lexsort((row_uniform(key.fold("within"), len(labels), numbers), rank, owner))

    @override
    def window(
        self, key: Key, ids: Ids, sizes: Ints, round_index: int, time_s: float
    ) -> tuple[Ints, Ints]:
        start = np.zeros(len(ids)) if self.common else key.fold("start").uniform(ids)[:, 0]
        turn = (start + (round_index if self.clock == "rounds" else time_s) / self.period) % 1.0
        # 1e-6, both ways: products of shares and sizes are whole numbers but for rounding.
        length = np.minimum(np.ceil(self.share * sizes - 1e-6).astype(np.int64), sizes)
        return np.floor(turn * sizes + 1e-6).astype(np.int64) % np.maximum(sizes, 1), length


@dataclass(frozen=True)
class SwapDrift(Drift):
    """Pairs of classes are swapped at some time.

    Parameters
    ----------
    start: the first round or second with swapped classes.
    width: rounds or seconds over which clients follow, each at its own time (uniform); 0: all at
    once.
    share: of the classes that are swapped, in (0, 1].
    clock: the unit of ``start`` and ``width``.
    """

    start: float
    width: float = 0.0
    share: float = 0.5
    clock: TimeUnit = "rounds"

    def __post_init__(self) -> None:
        check_positive("start", self.start, "(rounds or seconds, as clock says)", zero=True)
        check_positive("width", self.width, "(rounds or seconds, as clock says)", zero=True)
        check_share("share", self.share, zero=False)
        _check_clock(self.clock)

    @property
    @override
    def follows_time(self) -> bool:
        return self.clock == "seconds"

    @override
    def tables(self, key: Key, ids: Ids, classes: int, round_index: int, time_s: float) -> Ints:
        now = round_index if self.clock == "rounds" else time_s
        changed = now >= self.start + self.width * key.fold("start").uniform(ids)[:, 0]
        return np.where(
            changed[:, None], swapped(key.fold("pairs"), self.share, classes), np.arange(classes)
        )


def _check_clock(clock: str) -> None:
    if clock not in ("rounds", "seconds"):
        raise ConfigError(f"got clock = {clock!r}; expected 'rounds' or 'seconds' of virtual time")
