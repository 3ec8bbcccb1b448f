"""How fast a client sends and receives, in megabits (10^6 bits) a second (optimisation-and-compression D13).

Bandwidth is drawn anew for every client and round unless ``per = "client"``. Without ``down_mbps`` the download is free in
time; its bits are billed all the same. Up and down are independent draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError, DataError
from motley.core.keys import Key
from motley.world.base import Network
from motley.world.draws import Per, at, check_per, check_positive, check_range, log_normal, uniform
from motley.world.traces import Assign, assigned, check_assign, columns

__all__ = ["Constant", "Free", "Inverted", "LogNormal", "Trace", "Uniform"]

_UNIT = "megabits a second"


@dataclass(frozen=True)
class Free(Network):
    """Nothing on the way takes time."""

    def uplink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """Infinity."""
        return np.full(len(ids), np.inf)


@dataclass(frozen=True)
class Constant(Network):
    """The same link for everybody: ``up_mbps``, and ``down_mbps`` (None: free in time)."""

    up_mbps: float
    down_mbps: float | None = None

    def __post_init__(self) -> None:
        check_positive("up_mbps", self.up_mbps, _UNIT)
        if self.down_mbps is not None:
            check_positive("down_mbps", self.down_mbps, _UNIT)

    def uplink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """The same for all."""
        return np.full(len(ids), float(self.up_mbps))

    def downlink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """The same for all."""
        return np.full(len(ids), np.inf if self.down_mbps is None else float(self.down_mbps))


@dataclass(frozen=True)
class Uniform(Network):
    """Uniform bandwidth; U(1, 5) per client and round in HeteRo-Select v2 and FedCG.

    Parameters
    ----------
    up_mbps: lowest and highest uplink. down_mbps: the same for the downlink; None: free in time. per: see the module.
    """

    up_mbps: tuple[float, float] = (1.0, 5.0)
    down_mbps: tuple[float, float] | None = None
    per: Per = "round"

    def __post_init__(self) -> None:
        check_range("up_mbps", *self.up_mbps, _UNIT)
        if self.down_mbps is not None:
            check_range("down_mbps", *self.down_mbps, _UNIT)
        check_per(self.per)

    def uplink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """One draw per client (and round)."""
        return uniform(at(key, self.per, moment).fold("up"), ids, *self.up_mbps)

    def downlink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """One draw per client (and round), or infinity."""
        if self.down_mbps is None:
            return np.full(len(ids), np.inf)
        return uniform(at(key, self.per, moment).fold("down"), ids, *self.down_mbps)


@dataclass(frozen=True)
class LogNormal(Network):
    """``median * exp(sigma Z)``: a few very thin links.

    Parameters
    ----------
    up_mbps: median uplink. down_mbps: median downlink; None: free in time. sigma: of the logarithm.
    per: see the module.
    """

    up_mbps: float = 3.0
    sigma: float = 0.6
    down_mbps: float | None = None
    per: Per = "round"

    def __post_init__(self) -> None:
        check_positive("up_mbps", self.up_mbps, _UNIT)
        check_positive("sigma", self.sigma, "(of the logarithm)", zero=True)
        if self.down_mbps is not None:
            check_positive("down_mbps", self.down_mbps, _UNIT)
        check_per(self.per)

    def uplink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """One draw per client (and round)."""
        return log_normal(at(key, self.per, moment).fold("up"), ids, self.up_mbps, self.sigma)

    def downlink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """One draw per client (and round), or infinity."""
        if self.down_mbps is None:
            return np.full(len(ids), np.inf)
        return log_normal(at(key, self.per, moment).fold("down"), ids, self.down_mbps, self.sigma)


@dataclass(frozen=True)
class Inverted(Network):
    """The stress test of HeteRo-Select v2: who has most to tell has the thinnest link; drawn anew each round.

    ``law = "published"`` (its code): ``B_k = B_min + (B_max - B_min) (1 - L_k / max_j L_j)`` of the losses L of the current global
    model. Losses are ratios to the largest, so where they are alike *everybody* is slow: a uniform slowdown more than an
    anti-correlation. ``law = "rank"`` (INTERPRETATION, to be reported beside it): uniform draws, sorted and dealt in reverse order of
    loss, which keeps the law of the links. Ties go by the key.

    The losses are the one thing a world model takes from learning. They are those of everybody at once, because a link depends on
    all of them: ask for the whole population, then take the rows you need. INTERPRETATION: an unknown loss (NaN) counts as the mean
    of the known, an infinite one as the largest of the finite; without any, links are plain uniform draws.

    Parameters
    ----------
    law: see above. up_mbps: lowest and highest uplink. batches: of its training data on which a client's loss is measured, for the
    world's use alone (nobody is charged for it); None: all.

    Example
    -------
    >>> Inverted().coupled_mbps(Key(0), np.arange(3), 1, np.array([4.0, 3.0, 1.0])).tolist()
    [1.0, 2.0, 4.0]
    """

    law: Literal["published", "rank"] = "published"
    up_mbps: tuple[float, float] = (1.0, 5.0)
    batches: int | None = 8

    def __post_init__(self) -> None:
        if self.law not in ("published", "rank"):
            raise ConfigError(f"got law = {self.law!r}; expected 'published' or 'rank'")
        check_range("up_mbps", *self.up_mbps, _UNIT)
        if self.batches is not None and self.batches < 1:
            raise ConfigError(f"got batches = {self.batches}; expected at least 1, or none for all data")

    def wants(self) -> dict[str, int | None]:
        """The clients' losses."""
        return {"loss": self.batches}

    def uplink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """Plain uniform draws: what is known before any loss is."""
        return uniform(at(key, "round", moment).fold("up"), ids, *self.up_mbps)

    def coupled_mbps(self, key: Key, ids: Ids, moment: int, losses: Floats) -> Floats:
        """Of everybody (``ids`` is the whole population) given everybody's ``losses`` ``[len(ids)]``."""
        drawn = self.uplink_mbps(key, ids, moment)
        if np.isnan(losses).all():
            return drawn
        known = _known(np.asarray(losses, np.float64))
        if self.law == "rank":
            out = np.empty(len(ids))
            out[np.lexsort((at(key, "round", moment).fold("tie").uniform(ids)[:, 0], -known))] = np.sort(drawn)
            return out
        low, high = self.up_mbps
        largest = known.max()
        share = np.clip(known / largest, 0.0, 1.0) if largest > 0 else np.ones(len(ids))
        return np.asarray(low + (high - low) * (1 - share), np.float64)


def _known(losses: Floats) -> Floats:
    """Losses without gaps."""
    finite = losses[np.isfinite(losses)]
    largest, mean = (finite.max(), finite.mean()) if len(finite) else (1.0, 1.0)
    return np.where(np.isnan(losses), mean, np.minimum(losses, largest))


@dataclass(frozen=True)
class Trace(Network):
    """Measured links that stay as they are.

    Parameters
    ----------
    file: CSV or Parquet with a row per device: ``up_mbps`` and, where downloads are to take time, ``down_mbps``.
    assign: which client has which row, see :mod:`motley.world.traces`.
    """

    file: str
    assign: Assign = "in_turn"

    def __post_init__(self) -> None:
        check_assign(self.assign)
        for name, values in self._columns().items():
            if not (values > 0).all():
                raise DataError(f"{self.file}: column {name!r} must be above 0 {_UNIT}")

    def uplink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """That of the client's row."""
        values = self._columns()["up_mbps"]
        return values[assigned(key, ids, len(values), self.assign)]

    def downlink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """That of the client's row, or infinity."""
        values = self._columns().get("down_mbps")
        return np.full(len(ids), np.inf) if values is None else values[assigned(key, ids, len(values), self.assign)]

    def _columns(self) -> dict[str, Floats]:
        return columns(self.file, ("up_mbps",), ("down_mbps",))
