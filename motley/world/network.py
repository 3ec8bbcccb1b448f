"""How fast a client sends and receives, in megabits (10^6 bits) a second (optimisation-and-compression D13).

Bandwidth is drawn anew for every client and round unless ``per = "client"``. Without ``down_mbps`` the download is free in
time; its bits are billed all the same. Up and down are independent draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motley.core.keys import Key
from motley.world.base import Floats, Ids, Network
from motley.world.draws import Per, at, check_per, check_positive, check_range, log_normal, uniform

__all__ = ["Constant", "Free", "LogNormal", "Uniform"]

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
