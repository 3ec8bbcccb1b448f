"""Capacity models: the share of a model's width that each client can hold.

A share is the same for a client throughout (``per = "client"``), or drawn anew for every round (``per = "round"``). Methods whose
clients train slices of the model (``heterofl``, ``fedrolex``) read it: of n units of a hidden layer the share r is ``ceil(r n)``, so a
client sends, receives and computes about r squared of what the whole model takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.base import Capacity
from motley.world.draws import Per, check_per, check_positive, check_share, key_of

__all__ = ["CapacityBySpeed", "CapacityLevels", "ConstantCapacity"]


def _check_levels(levels: tuple[float, ...]) -> None:
    if not levels or any(not 0 < level <= 1 for level in levels) or list(levels) != sorted(set(levels), reverse=True):
        raise ConfigError(f"got levels = {list(levels)}; expected falling shares in (0, 1], e.g. [1.0, 0.5, 0.25]")


@dataclass(frozen=True)
class ConstantCapacity(Capacity):
    """Every client can hold the same share ``width`` of the model's width."""

    width: float = 1.0

    def __post_init__(self) -> None:
        check_share("width", self.width, zero=False)

    @property
    @override
    def levels(self) -> tuple[float, ...]:
        return (self.width,)

    @override
    def widths(self, key: Key, ids: Ids, round_index: int, step_s: Floats) -> Floats:
        return np.full(len(ids), float(self.width))


@dataclass(frozen=True)
class CapacityLevels(Capacity):
    """Each client draws one of ``levels``, HeteroFL's by default; ``per = "client"`` is its `fix`, ``per = "round"`` its `dynamic`.

    Parameters
    ----------
    levels: shares of the width, falling. weights: how likely each level is, at least 0; all alike if left out.
    """

    levels: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625)
    weights: tuple[float, ...] = ()
    per: Per = "client"

    def __post_init__(self) -> None:
        _check_levels(self.levels)
        check_per(self.per)
        good = len(self.weights) == len(self.levels) and all(0 <= w < math.inf for w in self.weights) and any(self.weights)
        if self.weights and not good:
            said = f"got weights = {list(self.weights)}; expected a number of at least 0 for each of the"
            raise ConfigError(f"{said} {len(self.levels)} levels, not all 0")

    @override
    def widths(self, key: Key, ids: Ids, round_index: int, step_s: Floats) -> Floats:
        weights = np.array(self.weights or (1.0,) * len(self.levels))
        ends = np.cumsum(weights) / weights.sum()
        drawn = np.searchsorted(ends, key_of(key, self.per, round_index).uniform(ids)[:, 0], side="right")
        last = int(np.flatnonzero(weights)[-1])  # rounding may leave the last end below 1
        return np.array(self.levels)[np.minimum(drawn, last)]


@dataclass(frozen=True)
class CapacityBySpeed(Capacity):
    """Each client holds the widest of ``levels`` with which a step takes it at most ``step_s`` seconds, else the narrowest.

    A step of the whole model takes as long as ``device`` says, one of the share r about r squared of that.

    Parameters
    ----------
    step_s: seconds per local step, above 0. levels: shares of the width, falling.
    """

    step_s: float = 0.3
    levels: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625)

    def __post_init__(self) -> None:
        check_positive("step_s", self.step_s, "(seconds per local step)")
        _check_levels(self.levels)

    @override
    def widths(self, key: Key, ids: Ids, round_index: int, step_s: Floats) -> Floats:
        levels = np.array(self.levels)
        fits = np.square(levels) * step_s[:, None] <= self.step_s
        return np.asarray(np.where(fits.any(1), levels[fits.argmax(1)], levels[-1]), np.float64)
