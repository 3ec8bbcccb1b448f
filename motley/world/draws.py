"""Draws that devices and networks share: once per client, or once per client and round."""

from __future__ import annotations

from typing import Literal

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key

__all__ = ["Per", "at", "check_per", "check_positive", "check_range", "check_share", "log_normal", "uniform"]

Per = Literal["client", "round"]


def at(key: Key, per: Per, moment: int) -> Key:
    """The key of this draw; ``per = "client"`` forgets the moment."""
    return key if per == "client" else key.fold("moment", moment)


def uniform(key: Key, ids: Ids, low: float, high: float) -> Floats:
    """Uniform in (low, high), ``[len(ids)]``."""
    return low + (high - low) * key.uniform(ids)[:, 0]


def log_normal(key: Key, ids: Ids, median: float, sigma: float) -> Floats:
    """``median * exp(sigma Z)``, ``[len(ids)]``."""
    return np.asarray(median * np.exp(sigma * key.normal(ids)[:, 0]), np.float64)


def check_per(per: str) -> None:
    """Refuse anything but the two words."""
    if per not in ("client", "round"):
        raise ConfigError(f"got per = {per!r}; expected 'client' (drawn once) or 'round' (drawn anew each round)")


def check_positive(name: str, value: float, unit: str, zero: bool = False) -> None:
    """Refuse what is not a finite number above (``zero``: at least) 0."""
    if not (0 < value < np.inf or (zero and value == 0)):
        raise ConfigError(f"got {name} = {value}; expected a finite number {'of at least' if zero else 'above'} 0 {unit}")


def check_range(name: str, low: float, high: float, unit: str) -> None:
    """Refuse a range that is not 0 < low <= high < infinity."""
    if not 0 < low <= high < np.inf:
        raise ConfigError(f"got {name} = [{low}, {high}]; expected 0 < low <= high, finite, {unit}")


def check_share(name: str, value: float, zero: bool = True) -> None:
    """Refuse what is not in [0, 1] (without ``zero``: in (0, 1])."""
    if not (0 < value <= 1 or (zero and value == 0)):
        raise ConfigError(f"got {name} = {value}; expected a share in {'[0' if zero else '(0'}, 1]")
