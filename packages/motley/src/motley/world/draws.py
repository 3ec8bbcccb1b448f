"""Random draws and range checks that devices, networks, availability and failures share."""

from __future__ import annotations

from typing import Literal

import numpy as np

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.side_by_side import by_rows

Per = Literal["client", "round"]
"""Whether a number is drawn once per client, or anew for each client and round."""


def key_of(key: Key, per: Per, round_index: int) -> Key:
    """Return the key of a draw; ``per = "client"`` ignores the round."""
    # the string is part of published results
    return key if per == "client" else key.fold("moment", round_index)


def uniform(key: Key, ids: Ids, low: float, high: float) -> Floats:
    """Return a uniform number in (low, high) per client, ``[len(ids)]``."""
    return by_rows(
        lambda chunk: low + (high - low) * key.uniform(chunk)[:, 0], np.asarray(ids), np.float64
    )


def weighted_rows(key: Key, ids: Ids, weights: Floats) -> Ints:
    """Return a number in [0, len(weights)) per client, ``[len(ids)]``, each as likely as its
    weight, of which at least one is above 0."""
    drawn = np.searchsorted(
        np.cumsum(weights) / weights.sum(), key.uniform(ids)[:, 0], side="right"
    )
    last = int(np.flatnonzero(weights)[-1])  # rounding may leave the last end below 1
    return np.minimum(drawn, last)


def log_normal(key: Key, ids: Ids, median: float, sigma: float) -> Floats:
    """Return ``median * exp(sigma Z)`` per client, ``[len(ids)]``."""
    return by_rows(
        lambda chunk: median * np.exp(sigma * key.normal(chunk)[:, 0]), np.asarray(ids), np.float64
    )


def row_uniform(key: Key, count: int, numbers: Ints | None) -> Floats:
    """Return a uniform number in (0, 1) per row, ``[count]``: a function of the row's own number,
    or without ``numbers`` of its place among all."""
    return key.numpy().random(count) if numbers is None else key.uniform(numbers)[:, 0]


def row_integers(key: Key, low: int, high: int, count: int, numbers: Ints | None) -> Ints:
    """Return a whole number in ``low .. high - 1`` per row, ``[count]``, as
    :func:`row_uniform`."""
    if numbers is None:
        return np.asarray(key.numpy().integers(low, high, size=count))
    return low + (key.uniform(numbers)[:, 0] * (high - low)).astype(np.int64)


def check_per(per: str) -> None:
    """Raise ConfigError unless ``per`` is ``"client"`` or ``"round"``."""
    if per not in ("client", "round"):
        raise ConfigError(
            f"got per = {per!r}; expected 'client' (drawn once) or 'round' (drawn anew each round)"
        )


def check_positive(name: str, value: float, unit: str, zero: bool = False) -> None:
    """Raise ConfigError unless the value is a finite number above (``zero``: at least) 0."""
    if not (0 < value < np.inf or (zero and value == 0)):
        raise ConfigError(
            f"got {name} = {value}; expected a finite number {'of at least' if zero else 'above'} "
            f"0 {unit}"
        )


def check_range(name: str, low: float, high: float, unit: str) -> None:
    """Raise ConfigError unless 0 < low <= high < infinity."""
    if not 0 < low <= high < np.inf:
        raise ConfigError(f"got {name} = [{low}, {high}]; expected 0 < low <= high, finite, {unit}")


def check_share(name: str, value: float, zero: bool = True) -> None:
    """Raise ConfigError unless the value is in [0, 1] (without ``zero``: in (0, 1])."""
    if not (0 < value <= 1 or (zero and value == 0)):
        raise ConfigError(f"got {name} = {value}; expected a share in {'[0' if zero else '(0'}, 1]")
