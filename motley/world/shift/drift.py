"""The distribution moves with time: each client's mix of classes, or what the classes mean.

Time is ``clock = "rounds"`` or ``"seconds"`` of virtual time. Both kinds are functions of (key, client, time): nothing is remembered,
and a run that is resumed finds the data as it left them.

* ``window``: a client holds all its samples from the start but sees a part of them at a time. They lie on a ring, ordered by class; a
  window of ``share n_k`` samples goes round it once in ``period``. The number of samples seen stays the same, so local work,
  durations and weights do.
* ``swap``: from ``start`` on, pairs of classes are taken for each other (as in :mod:`~motley.world.shift.concept_shift`): at
  once for everybody, or client by client over ``width``. Training and test labels move together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from motley.core.arrays import Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.base import Drift
from motley.world.draws import check_positive, check_share
from motley.world.shift.concept_shift import swapped

__all__ = ["Still", "SwapLater", "Window"]

Clock = Literal["rounds", "seconds"]


@dataclass(frozen=True)
class Still(Drift):
    """Nothing moves."""


@dataclass(frozen=True)
class Window(Drift):
    """A moving window over each client's samples.

    Parameters
    ----------
    share: of a client's samples that it sees at a time, in (0, 1]. period: rounds or seconds in which the window goes round once.
    clock: which. common: everybody has the same order of classes and starts together, so that the whole federation drifts; else each
    client has its own order and start, so that only clients do.

    Example
    -------
    >>> first, seen = Window(share=0.5, period=4, common=True).window(Key(0), np.arange(2), np.array([8, 100]), 1, 0.0)
    >>> first.tolist(), seen.tolist()
    ([2, 25], [4, 50])
    """

    moves_window: ClassVar[bool] = True

    share: float = 0.5
    period: float = 100.0
    clock: Clock = "rounds"
    common: bool = False

    def __post_init__(self) -> None:
        check_share("share", self.share, zero=False)
        check_positive("period", self.period, "(rounds or seconds, as clock says)")
        _check_clock(self.clock)

    def order(self, key: Key, labels: Ids, owner: Ids, classes: int, population: int) -> Ids:
        """Places of the samples, client by client, each client's ring by class; random within a class."""
        ring = labels if self.common else owner * classes + labels
        rank = key.fold("classes").uniform(ring)[:, 0]
        return np.lexsort((key.fold("within").numpy().random(len(labels)), rank, owner))

    def window(self, key: Key, ids: Ids, sizes: Ids, moment: int, time_s: float) -> tuple[Ids, Ids]:
        """First place and number of places seen."""
        start = np.zeros(len(ids)) if self.common else key.fold("start").uniform(ids)[:, 0]
        turn = (start + (moment if self.clock == "rounds" else time_s) / self.period) % 1.0
        seen = np.minimum(np.ceil(self.share * sizes - 1e-6).astype(np.int64), sizes)
        return np.floor(turn * sizes + 1e-6).astype(np.int64) % np.maximum(sizes, 1), seen


@dataclass(frozen=True)
class SwapLater(Drift):
    """Pairs of classes change places at a moment.

    Parameters
    ----------
    start: the first round, or second, at which anybody does. width: rounds or seconds over which clients follow, each at its own
    moment (uniform); 0: all at once. share: of the classes that are swapped, in (0, 1]. clock: which.
    """

    renames_classes: ClassVar[bool] = True

    start: float
    width: float = 0.0
    share: float = 0.5
    clock: Clock = "rounds"

    def __post_init__(self) -> None:
        check_positive("start", self.start, "(rounds or seconds, as clock says)", zero=True)
        check_positive("width", self.width, "(rounds or seconds, as clock says)", zero=True)
        check_share("share", self.share, zero=False)
        _check_clock(self.clock)

    def tables(self, key: Key, ids: Ids, classes: int, moment: int, time_s: float) -> Ids:
        """What each client calls each class now ``[len(ids), C]``."""
        now = moment if self.clock == "rounds" else time_s
        late = now >= self.start + self.width * key.fold("start").uniform(ids)[:, 0]
        return np.where(late[:, None], swapped(key.fold("pairs"), self.share, classes), np.arange(classes))


def _check_clock(clock: str) -> None:
    if clock not in ("rounds", "seconds"):
        raise ConfigError(f"got clock = {clock!r}; expected 'rounds' or 'seconds' of virtual time")
