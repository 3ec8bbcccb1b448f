"""Devices, links and availability that differ as public measurements say, from tables that come
with Motley.

Reference: docs/worlds-from-measurements.md; ``tables/sources.toml`` says where each table is from.

Worked
------
``phones_trained_2021``: the slow phone has more than half of the shares (18,820 of 35,407), so it
is the median. With ``median_s = 1.642`` the phones need 1.642, 0.588 and 0.179 s, as was measured.

Great Britain's law of downloads has the mean .01 p1 + .04 (p1 + p5) / 2 + ... + .01 p99 of its
percentiles. Where ``technology = "4g"``, all its rates are divided by this mean and multiplied by
29.5.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import ConfigError, suggest
from motley.core.files import files_digest
from motley.core.keys import Key
from motley.world.availability import chain_online, first_slot
from motley.world.draws import Per, check_per, check_positive, check_share, key_of, weighted_rows
from motley.world.interfaces import Availability, Device, Network

_LINKS = "links_2025"
_MOBILE = "mobile_2023"
_ONLINE = "phones_online_2020"
_STARTS = "phones_starts_2020"
PLACES = np.array([0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0])
"""Where the quantiles of a country's law stand: its outermost hundredths are flat."""
SLOTS = 48
SLOT_S = 86_400.0 / SLOTS


def table_path(name: str) -> Path:
    """Return the path of a packaged table."""
    return Path(__file__).with_name("tables") / f"{name}.csv"


@lru_cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    with table_path(name).open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def _numbers(rows: Iterable[Mapping[str, str]], column: str) -> Floats:
    return np.array([float(row[column]) for row in rows])


@dataclass(frozen=True)
class MeasuredDevice(Device):
    """Each client is one device of a benchmark list, drawn once by the devices' shares.

    READING: a device's score is its relative speed in training, too. Only ``phones_trained_2021``
    and ``gpus_2026`` timed training. Scores have no unit, so ``median_s`` gives one: a device of
    rate r needs ``median_s * median rate / r``.

    Parameters
    ----------
    table: ``phones_2020`` (AI Benchmark's score of floating-point inference on the CPU; segments
        are years of release), ``phones_trained_2021`` (training timed on a slow, a medium and a
        fast phone), ``pcs_2022`` (graphics units of players' computers; segments integrated,
        laptop, desktop) or ``gpus_2026`` (training of ResNet-50; segments apple, edge, laptop,
        desktop, workstation, data_centre). Devices of ``phones_2020`` and ``gpus_2026`` have equal
        shares, for the lists say nothing of how many there are.
    median_s: seconds per local step of the table's median device, whatever ``shares``.
    shares: segment -> its share of the clients, in any unit; empty: as in the table.
    """

    follows_examples: ClassVar[bool] = False

    table: Literal["phones_2020", "phones_trained_2021", "pcs_2022", "gpus_2026"] = "phones_2020"
    median_s: float = 0.3
    shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_positive("median_s", self.median_s, "(seconds per local step)")
        segments = sorted({row["segment"] for row in _rows(self.table)})
        if self.shares:
            _check_shares("shares", self.shares, segments, f"segments of {self.table}")

    def files_digest(self) -> str:
        """Return a hash of the table's bytes."""
        return files_digest(table_path(self.table))

    @override
    def step_s(self, key: Key, ids: Ids, round_index: int, examples: Ints, steps: Ints) -> Floats:
        rows = _rows(self.table)
        rate, share = _numbers(rows, "rate"), _numbers(rows, "share")
        order = np.argsort(rate, kind="stable")
        below = np.cumsum(share[order])
        median = rate[order][np.searchsorted(below, below[-1] / 2)]
        if self.shares:
            segment = np.array([row["segment"] for row in rows])
            total = {name: share[segment == name].sum() for name in self.shares}
            share = share * [self.shares.get(name, 0.0) / total.get(name, 1.0) for name in segment]
        return np.asarray(
            self.median_s * median / rate[weighted_rows(key.fold("table"), ids, share)]
        )


@dataclass(frozen=True)
class MeasuredNetwork(Network):
    """Links as the speed tests of a country were distributed: M-Lab's NDT of October 2025.

    A client's rates are the same quantile of its country's downloads and uploads; between the nine
    published percentiles it is interpolated, below the first and above the last it is theirs.
    READING: tests stand for clients; a link that is fast one way is fast both ways (the two were
    published apart).

    Parameters
    ----------
    country: code of two letters (ISO 3166), or a table of codes and their shares of the clients.
    technology: 3g, 4g or 5g, where its mean speeds are known (GB), or empty for all ways of access
        together. INTERPRETATION: speeds of one technology differ from its mean as those of all
        tests from theirs.
    per: whether a client draws its quantile once, or anew each round. Its country it draws once.
    """

    country: str | Mapping[str, float]
    technology: Literal["", "3g", "4g", "5g"] = ""
    per: Per = "client"

    def __post_init__(self) -> None:
        check_per(self.per)
        known = {row["country"]: row["name"] for row in _rows(_LINKS)}
        for code in self._shares:
            if code not in known:
                raise ConfigError(_no_country(code, known))
        _check_shares("country", self._shares, list(known), f"countries of {_LINKS}")
        with_technology = {row["country"] for row in _rows(_MOBILE)}
        if self.technology and (others := sorted(set(self._shares) - with_technology)):
            raise ConfigError(
                f'got technology = "{self.technology}" with country {", ".join(others)}; speeds by '
                f"technology are known of {', '.join(sorted(with_technology))}: write it, or leave "
                "technology out"
            )

    @property
    def _shares(self) -> Mapping[str, float]:
        return {self.country: 1.0} if isinstance(self.country, str) else self.country

    def files_digest(self) -> str:
        """Return a hash of the tables' bytes."""
        return "".join(files_digest(table_path(name)) for name in (_LINKS, _MOBILE))

    @override
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return self._mbps("up", key, ids, round_index)

    @override
    def downlink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return self._mbps("down", key, ids, round_index)

    def _mbps(self, way: str, key: Key, ids: Ids, round_index: int) -> Floats:
        place = key_of(key.fold("quantile"), self.per, round_index).uniform(ids)[:, 0]
        share = np.array(list(self._shares.values()))
        number = weighted_rows(key.fold("country"), ids, share)
        out = np.empty(len(ids))
        for at, code in enumerate(self._shares):
            out[number == at] = np.interp(place[number == at], PLACES, self._law(way, code))
        return out

    def _law(self, way: str, code: str) -> Floats:
        """Return the rates of a country at :data:`PLACES`, megabits a second."""
        row = next(row for row in _rows(_LINKS) if row["country"] == code)
        percentiles = [float(row[f"{way}_{round(100 * place)}"]) for place in PLACES[1:-1]]
        law = np.array([percentiles[0], *percentiles, percentiles[-1]])
        for mobile in _rows(_MOBILE):
            if (mobile["country"], mobile["technology"]) == (code, self.technology):
                mean = np.diff(PLACES) @ (law[1:] + law[:-1]) / 2
                law = law * float(mobile[f"{way}_mbps"]) / mean
        return law


@dataclass(frozen=True)
class MeasuredAvailability(Availability):
    """Clients are online while a phone is charging, idle and on Wi-Fi.

    Measured on 723 phones of the trace of PKU's FLASH (WWW 2021) over five days of 2020: 12 % of
    them at 5 o'clock, 5 to 6 % from 13 to 15.

    Every half hour an offline phone comes online with the hour's probability, multiplied by the
    phone's own factor, and an online one goes with the hour's. READING: a phone's factor, how often
    it came over how often all phones would have at its hours, is drawn once from the 21 quantiles
    of the trace's phones. A quarter of them never came in five days: these factors are 0.

    Parameters
    ----------
    alike: whether all clients have the factor 1.
    begin_h: hour of the day at which the run begins.
    spread: share of a day over which the clients' clocks differ, in [0, 1]: 0 is one time zone, 1
        all.
    """

    alike: bool = False
    begin_h: float = 0.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        check_share("spread", self.spread)
        if not 0 <= self.begin_h < 24:
            raise ConfigError(f"got begin_h = {self.begin_h}; expected an hour in [0, 24)")

    def files_digest(self) -> str:
        """Return a hash of the tables' bytes."""
        return "".join(files_digest(table_path(name)) for name in (_ONLINE, _STARTS))

    @override
    def online(self, key: Key, ids: Ids, round_index: int, time_s: float) -> Bools:
        rise_by_hour, fall_by_hour = (_numbers(_rows(_ONLINE), name) for name in ("rise", "fall"))
        starts = _numbers(_rows(_STARTS), "starts")
        factor, largest = np.ones(len(ids)), 1.0
        if not self.alike:
            place = key.fold("starts").uniform(ids)[:, 0]
            factor = np.interp(place, _numbers(_rows(_STARTS), "quantile"), starts)
            largest = starts.max()
        clock = SLOTS * (self.begin_h / 24 + self.spread * key.fold("phase").uniform(ids)[:, 0])

        def hour(at: Ids, slot: Ints) -> Ints:
            return np.floor(slot + clock[at]).astype(np.int64) % SLOTS

        def fall(at: Ids, slot: Ints) -> Floats:
            return fall_by_hour[hour(at, slot)]

        def rise(at: Ids, slot: Ints) -> Floats:
            return np.minimum(rise_by_hour[hour(at, slot)] * factor[at], 1 - fall(at, slot))

        switching = np.minimum(rise_by_hour * largest + fall_by_hour, 1.0).max()
        return chain_online(
            key=key,
            ids=np.asarray(ids),
            slot=int(np.floor(time_s / SLOT_S)),
            rise=rise,
            fall=fall,
            switching=float(switching),
        )

    @override
    def back_s(self, key: Key, ids: Ids, round_index: int, time_s: float) -> float:
        return first_slot(
            availability=self,
            slot_s=SLOT_S,
            key=key,
            ids=ids,
            round_index=round_index,
            time_s=time_s,
        )


def _no_country(code: str, known: Mapping[str, str]) -> str:
    """Return the sentence on a country that is not in the table: the nearest name, and all
    codes."""
    codes = {word.lower(): code for code, name in known.items() for word in (name, code)}
    near = get_close_matches(code.lower(), codes, n=1)
    hint = f" (did you mean {codes[near[0]]!r}?)" if near else ""
    return f"got country {code!r}{hint}; expected a code of two letters: {', '.join(known)}"


def _check_shares(option: str, shares: Mapping[str, float], allowed: list[str], what: str) -> None:
    for name, share in shares.items():
        if name not in allowed:
            raise ConfigError(
                f"got {option} of {name!r}{suggest(name, allowed)}; expected {what}: "
                f"{', '.join(allowed)}"
            )
        number = isinstance(share, int | float) and not isinstance(share, bool)
        if not number or not 0 <= share < np.inf:
            raise ConfigError(
                f"got {option}.{name} = {share!r}; expected a finite number of at least 0"
            )
    if not any(shares.values()):
        raise ConfigError(
            f"got {option} = {dict(shares)}; expected a share above 0 for one of them"
        )
