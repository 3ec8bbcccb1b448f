"""Network models: uplink and downlink of each client in megabits (10^6 bits) a second.

Bandwidth is drawn anew for every client and round unless ``per = "client"``. Without ``down_mbps``
downloads take no time; their traffic is counted all the same. Up and down are independent draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError, DataError
from motley.core.files import files_digest
from motley.core.keys import Key
from motley.world.draws import (
    Per,
    check_per,
    check_positive,
    check_range,
    key_of,
    log_normal,
    uniform,
)
from motley.world.interfaces import Network
from motley.world.traces import Assign, assigned, check_assign, columns

_UNIT = "megabits a second"


@dataclass(frozen=True)
class NoDelay(Network):
    """Transfers take no time."""

    @override
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return np.full(len(ids), np.inf)


@dataclass(frozen=True)
class ConstantNetwork(Network):
    """Every client has the same link: ``up_mbps``, and ``down_mbps`` (None: downloads take no
    time)."""

    up_mbps: float
    down_mbps: float | None = None

    def __post_init__(self) -> None:
        check_positive("up_mbps", self.up_mbps, _UNIT)
        if self.down_mbps is not None:
            check_positive("down_mbps", self.down_mbps, _UNIT)

    @override
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return np.full(len(ids), float(self.up_mbps))

    @override
    def downlink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return np.full(len(ids), np.inf if self.down_mbps is None else float(self.down_mbps))


@dataclass(frozen=True)
class UniformNetwork(Network):
    """Uniform bandwidth; U(1, 5) per client and round in HeteRo-Select v2 and FedCG.

    Parameters
    ----------
    up_mbps: lowest and highest uplink.
    down_mbps: the same for the downlink; None: downloads take no time.
    per: see the module.
    """

    up_mbps: tuple[float, float] = (1.0, 5.0)
    down_mbps: tuple[float, float] | None = None
    per: Per = "round"

    def __post_init__(self) -> None:
        check_range("up_mbps", *self.up_mbps, _UNIT)
        if self.down_mbps is not None:
            check_range("down_mbps", *self.down_mbps, _UNIT)
        check_per(self.per)

    @override
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return uniform(key_of(key, self.per, round_index).fold("up"), ids, *self.up_mbps)

    @override
    def downlink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        if self.down_mbps is None:
            return np.full(len(ids), np.inf)
        return uniform(key_of(key, self.per, round_index).fold("down"), ids, *self.down_mbps)


@dataclass(frozen=True)
class LogNormalNetwork(Network):
    """Log-normal bandwidth, ``median * exp(sigma Z)``: a few very slow links.

    Parameters
    ----------
    up_mbps: median uplink.
    down_mbps: median downlink; None: downloads take no time.
    sigma: of the logarithm.
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

    @override
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return log_normal(
            key_of(key, self.per, round_index).fold("up"), ids, self.up_mbps, self.sigma
        )

    @override
    def downlink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        if self.down_mbps is None:
            return np.full(len(ids), np.inf)
        return log_normal(
            key_of(key, self.per, round_index).fold("down"), ids, self.down_mbps, self.sigma
        )


@dataclass(frozen=True)
class InvertedNetwork(Network):
    """The stress test of HeteRo-Select v2: clients with the highest loss have the slowest links;
    drawn anew each round.

    ``law = "published"`` (its code): ``B_k = B_min + (B_max - B_min) (1 - L_k / max_j L_j)`` of the
    losses L of the current global model. Losses are divided by the largest, so where they are
    similar *all* clients are slow: a uniform slowdown more than an anti-correlation (in the
    released log, seed 42, all chosen clients have 1.01 to 1.03 Mb/s in round 1, 1.46 to 2.69 in
    round 100).
    ``law = "rank"`` (INTERPRETATION, to be reported beside it): uniform draws, sorted and assigned
    in reverse order of loss, which keeps the distribution of the links. Ties go by the key.

    The losses are the only input that a world model takes from learning. A link depends on the
    losses of all clients: call it for the whole population, then take the rows you need.
    INTERPRETATION: an unknown loss (NaN) counts as the mean of the known, an infinite one as the
    largest of the finite; without any, links are plain uniform draws.

    Parameters
    ----------
    law: see above.
    up_mbps: lowest and highest uplink.
    batches: of its training data on which a client's loss is measured (not billed, because only the
    network model sees it); None: all.

    Example
    -------
    >>> InvertedNetwork().coupled_mbps(Key(0), np.arange(3), 1, np.array([4.0, 3.0, 1.0])).tolist()
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
            raise ConfigError(
                f"got batches = {self.batches}; expected at least 1, or none for all data"
            )

    @override
    def wants(self) -> dict[str, int | None]:
        return {"loss": self.batches}

    @override
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        """Return uniform draws, which hold until losses are known."""
        return uniform(key_of(key, "round", round_index).fold("up"), ids, *self.up_mbps)

    @override
    def coupled_mbps(self, key: Key, ids: Ids, round_index: int, losses: Floats) -> Floats:
        drawn = self.uplink_mbps(key, ids, round_index)
        if np.isnan(losses).all():
            return drawn
        filled_losses = _known(np.asarray(losses, np.float64))
        if self.law == "rank":
            out = np.empty(len(ids))
            out[
                np.lexsort(
                    (
                        key_of(key, "round", round_index).fold("tie").uniform(ids)[:, 0],
                        -filled_losses,
                    )
                )
            ] = np.sort(drawn)
            return out
        low, high = self.up_mbps
        largest = filled_losses.max()
        share = np.clip(filled_losses / largest, 0.0, 1.0) if largest > 0 else np.ones(len(ids))
        return np.asarray(low + (high - low) * (1 - share), np.float64)


def _known(losses: Floats) -> Floats:
    """Return the losses with unknown ones filled in."""
    finite = losses[np.isfinite(losses)]
    largest, mean = (finite.max(), finite.mean()) if len(finite) else (1.0, 1.0)
    return np.where(np.isnan(losses), mean, np.minimum(losses, largest))


@dataclass(frozen=True)
class TraceNetwork(Network):
    """Measured links, constant over time.

    Parameters
    ----------
    file: CSV or Parquet with a row per device: ``up_mbps`` and, if downloads shall take time,
    ``down_mbps``.
    assign: which client has which row, see :mod:`motley.world.traces`.
    """

    file: str
    assign: Assign = "in_turn"

    def __post_init__(self) -> None:
        check_assign(self.assign)
        for name, values in self._columns().items():
            if not (values > 0).all():
                raise DataError(f"{self.file}: column {name!r} must be above 0 {_UNIT}")

    def files_digest(self) -> str:
        """Return a hash of the file's bytes."""
        return files_digest(self.file)

    @override
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        values = self._columns()["up_mbps"]
        return values[assigned(key, ids, len(values), self.assign)]

    @override
    def downlink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        values = self._columns().get("down_mbps")
        if values is None:
            return np.full(len(ids), np.inf)
        return values[assigned(key, ids, len(values), self.assign)]

    def _columns(self) -> dict[str, Floats]:
        return columns(self.file, ("up_mbps",), ("down_mbps",))
