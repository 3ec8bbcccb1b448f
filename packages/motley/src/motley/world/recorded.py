"""Devices, networks, availability and failures as a run recorded them: the law of each client in a
CSV file, as ``motley twin`` writes it.

Reference: docs/twin.md.

A file has the same number P of rows for every client, in order of the clients: the column
``client`` (0, 1, ...) and columns of seconds, whose P values rise and are the quantiles of the
client's law at ``0, 1 / (P - 1), ..., 1``. Between them a draw is interpolated, so one row a client
is a constant. Every client and round draws its own quantile:

    seconds(k, t) = Q_k(W^-1(u_kt)) exp(unsure_k z_k)

Every seed is another federation that the records allow. ``z_k`` is a standard normal number of the
client, the same in all rounds: how far its usual seconds may lie from what few rounds said;
``unsure`` (a column, 0 where it is left out) is its deviation. W says how likely what was recorded
is: it rises from 0 to 1 by steps that are ``Gamma(values / (P - 1))``, divided by their sum, the
same for all clients (the Bayesian bootstrap; Rubin, Annals of Statistics 1981). ``values`` (of the
component; none: W is the identity) is the number of values that the laws rest on. A population that
is larger than the file takes its clients in turn.

``u_kt`` is uniform, and of clients in the same round dependent by a normal copula,

    u_kt = Phi(sqrt(common) g_t + sqrt(1 - common) z_kt),

with one standard normal number g_t of the round for all clients: in a round in which the machine or
the link is loaded, everybody is slower. ``common = 0``, the default, is independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import ConfigError, DataError
from motley.core.files import files_digest
from motley.core.keys import Key, normal_quantile
from motley.world.availability import chain_online, first_slot
from motley.world.draws import check_positive, key_of
from motley.world.interfaces import Availability, Device, Failures, Network
from motley.world.traces import columns

PRESENCE = ("went", "online_s", "came", "offline_s")
DROP_OUTS = ("dropped", "answered")


@dataclass(frozen=True)
class RecordedDevice(Device):
    """Seconds per local step, drawn from each client's recorded ones anew in every round.

    Parameters
    ----------
    file: CSV or Parquet, see the module: ``client``, ``step_s`` and perhaps ``unsure``.
    values: recorded ones behind the laws, see the module; None: the laws are known.
    common: share of what varies that all clients of a round have in common, 0 <= common < 1.
    """

    follows_examples: ClassVar[bool] = False

    file: str
    values: int | None = None
    common: float = 0.0

    def __post_init__(self) -> None:
        _check_values(self.values)
        _check_common(self.common)
        _laws(self.file, "step_s", "unsure")

    def files_digest(self) -> str:
        """Return a hash of the file's bytes."""
        return files_digest(self.file)

    @override
    def step_s(self, key: Key, ids: Ids, round_index: int, examples: Ints, steps: Ints) -> Floats:
        laws = _laws(self.file, "step_s", "unsure")
        return _drawn(laws, self.values, self.common, key, ids=ids, round_index=round_index)


@dataclass(frozen=True)
class RecordedNetwork(Network):
    """Seconds that a megabit (10^6 bits) takes up and down, drawn from each client's recorded ones
    anew in every round; 0 seconds are an infinite link.

    Parameters
    ----------
    file: CSV or Parquet, see the module: ``client``, ``up_s`` and ``down_s`` (seconds per megabit),
    and perhaps ``up_unsure``, ``down_unsure``.
    values: recorded ones behind the laws, see the module; None: the laws are known.
    together: both ways have the same quantile in a round, as where their seconds were measured as
    one.
    common: share of what varies that all clients of a round have in common, 0 <= common < 1.
    """

    file: str
    values: int | None = None
    together: bool = False
    common: float = 0.0

    def __post_init__(self) -> None:
        _check_values(self.values)
        _check_common(self.common)
        for way in ("up", "down"):
            _laws(self.file, f"{way}_s", f"{way}_unsure")

    def files_digest(self) -> str:
        """Return a hash of the file's bytes."""
        return files_digest(self.file)

    @override
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return self._mbps("up", key, ids, round_index)

    @override
    def downlink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return self._mbps("down", key, ids, round_index)

    def _mbps(self, way: str, key: Key, ids: Ids, round_index: int) -> Floats:
        laws = _laws(self.file, f"{way}_s", f"{way}_unsure")
        of = key if self.together else key.fold(way)
        drawn = _drawn(laws, self.values, self.common, key=of, ids=ids, round_index=round_index)
        with np.errstate(divide="ignore"):
            return 1.0 / drawn


@dataclass(frozen=True)
class RecordedAvailability(Availability):
    """Each client switches between online and offline at rates of its own, per second.

    The rates are drawn once a client and seed: it goes at ``Gamma(went_k) / online_s_k``, and comes
    at ``Gamma(came_k) / offline_s_k``. Time is cut into slots, in which the chain of
    :mod:`motley.world.availability` has the same correlation as in continuous time.

    Parameters
    ----------
    file: CSV or Parquet with a row per client, in order: ``client``, ``went`` and ``came`` (how
    often), ``online_s`` and ``offline_s`` (seconds in which it could have), with what is known of
    the others added; above 0.
    slot_s: seconds of a slot.
    """

    file: str
    slot_s: float

    def __post_init__(self) -> None:
        check_positive("slot_s", self.slot_s, "(seconds per slot)")
        _positive(self.file, PRESENCE)

    def files_digest(self) -> str:
        """Return a hash of the file's bytes."""
        return files_digest(self.file)

    @override
    def online(self, key: Key, ids: Ids, round_index: int, time_s: float) -> Bools:
        from scipy.special import gammaincinv

        presence = _positive(self.file, PRESENCE)
        everybody = np.arange(len(presence["went"]))
        rates = [
            gammaincinv(presence[count], key.fold(count).uniform(everybody)[:, 0])
            / presence[seconds]
            for count, seconds in (("came", "offline_s"), ("went", "online_s"))
        ]
        total_rate = np.maximum(rates[0] + rates[1], np.finfo(float).tiny)
        changes = -np.expm1(-total_rate * self.slot_s)
        rows = np.asarray(ids) % len(everybody)
        rise, fall = ((rate / total_rate * changes)[rows] for rate in rates)
        slot = int(np.floor(time_s / self.slot_s))
        fastest = float(changes.max())
        return chain_online(
            key=key,
            ids=np.asarray(ids),
            slot=slot,
            rise=lambda at, _: rise[at],
            fall=lambda at, _: fall[at],
            switching=fastest,
        )

    @override
    def back_s(self, key: Key, ids: Ids, round_index: int, time_s: float) -> float:
        return first_slot(
            availability=self,
            slot_s=self.slot_s,
            key=key,
            ids=ids,
            round_index=round_index,
            time_s=time_s,
        )


@dataclass(frozen=True)
class RecordedFailures(Failures):
    """Each client drops out with a rate of its own, after a uniform share of its work.

    The rate is ``Beta(dropped_k, answered_k)``, drawn once a client and seed.

    Parameters
    ----------
    file: CSV or Parquet with a row per client, in order: ``client``, ``dropped`` and ``answered``,
    how often it did either, with what is known of the others added; above 0.
    """

    file: str

    def __post_init__(self) -> None:
        _positive(self.file, DROP_OUTS)

    def files_digest(self) -> str:
        """Return a hash of the file's bytes."""
        return files_digest(self.file)

    @override
    def drop_at(self, key: Key, ids: Ids, round_index: int) -> Floats:
        from scipy.special import betaincinv

        counts = _positive(self.file, DROP_OUTS)
        rows = np.asarray(ids) % len(counts["dropped"])
        place = key.fold("rate").uniform(ids)[:, 0]
        rate = betaincinv(counts["dropped"][rows], counts["answered"][rows], place)
        fails, share = key.fold("drop", round_index).uniform(ids, 2).T
        return np.where(fails < rate, share, np.nan)


def _drawn(
    of: tuple[Floats, Floats],
    values: int | None,
    common: float,
    key: Key,
    ids: Ids,
    round_index: int,
) -> Floats:
    """Return a draw of each client's law in a round, ``[len(ids)]``; ``of``: see
    :func:`_laws`."""
    laws, deviation = of
    rows = np.asarray(ids) % len(laws)
    last = laws.shape[1] - 1
    place = key_of(key, "round", round_index).uniform(ids)[:, 0]
    if common:
        from scipy.special import ndtr

        everybody = key.fold("common", round_index).normal(np.zeros(1, np.int64))[0, 0]
        alone = normal_quantile(place)
        place = ndtr(np.sqrt(common) * everybody + np.sqrt(1 - common) * alone)
    place = place * last
    if values is not None and last:
        steps = np.cumsum(key.fold("law").numpy().gamma(values / last, size=last))
        place = np.interp(place, np.append(0.0, steps / steps[-1]) * last, np.arange(last + 1.0))
    below = np.minimum(place.astype(np.int64), max(last - 1, 0))
    low = laws[rows, below]
    drawn = low + (place - below) * (laws[rows, np.minimum(below + 1, last)] - low)
    return np.asarray(drawn * np.exp(deviation[rows] * key.fold("usual").normal(ids)[:, 0]))


def _laws(file: str, seconds: str, unsure: str) -> tuple[Floats, Floats]:
    """Return the quantiles of each client's law ``[K, P]`` and how unsure it is ``[K]``.

    Raises
    ------
    DataError: the file is not as the module says; the message names the file.
    """
    table = columns(file, ("client", seconds), (unsure,))
    points = int((table["client"] == 0).sum())
    _check_clients(file, table["client"], points)
    laws = table[seconds].reshape(-1, points)
    if not ((laws >= 0) & np.isfinite(laws)).all() or (np.diff(laws) < 0).any():
        raise DataError(
            f"{file}: column {seconds!r} must be finite, at least 0 seconds, and rise from row to "
            "row of a client"
        )
    deviation = table.get(unsure, np.zeros(laws.size)).reshape(laws.shape)[:, 0]
    if not ((deviation >= 0) & np.isfinite(deviation)).all():
        raise DataError(f"{file}: column {unsure!r} must be finite and at least 0")
    return laws, deviation


def _positive(file: str, names: tuple[str, ...]) -> dict[str, Floats]:
    """Return columns with a positive number per client, in order, ``[K]`` each.

    Raises
    ------
    DataError: the file is not so; the message names it.
    """
    table = columns(file, ("client", *names))
    _check_clients(file, table["client"], 1)
    for name in names:
        if not ((table[name] > 0) & np.isfinite(table[name])).all():
            raise DataError(f"{file}: column {name!r} must be above 0 and finite")
    return table


def _check_values(values: int | None) -> None:
    if values is not None and values < 1:
        raise ConfigError(f"got values = {values}; expected at least 1, or none")


def _check_common(common: float) -> None:
    if not 0 <= common < 1:
        raise ConfigError(
            f"got common = {common}; expected a share of at least 0 and below 1, 0 where clients' "
            "seconds in a round are independent"
        )


def _check_clients(file: str, client: Floats, points: int) -> None:
    """Refuse a column of clients in which not every client has so many rows, one after the
    other."""
    divides = points > 0 and len(client) % points == 0
    if not divides or not np.array_equal(client, np.arange(len(client)) // points):
        raise DataError(
            f"{file}: column 'client' must hold the clients 0, 1, ... in this order, "
            f"{max(points, 1)} row(s) each"
        )
