"""The verdict on a claim: an interval for each comparison, and one of four words.

*Confirmed*: every interval lies on the claimed side. *Contradicted*: one lies wholly on the other side. *Not confirmed*: neither.
*Not tested*: runs are missing, or there is nothing to make an interval of.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

import numpy as np

from motley.recipes.measuring import measure_of
from motley.recipes.recipe import Claim, Exhibit, Place
from motley.results.measures import Censored, Interval, Spread, paired, spread

__all__ = ["Contrast", "Judged", "Values", "Verdict", "judge"]

Verdict = Literal["confirmed", "not confirmed", "contradicted", "not tested"]
Values = Mapping[tuple[str, tuple[str, ...]], Mapping[int, Censored]]
"""(measure, cell) -> seed -> the number."""
Key = tuple[tuple[str, ...], int]
Units = dict[Key, Censored]
"""(values of the axes that are averaged over, seed) -> the number."""


@dataclass(frozen=True)
class Contrast:
    """One comparison of a claim: ``ours`` against ``other`` (None: against a number), and the interval of their difference. Where a
    side is not exact, it is only a lower bound."""

    label: str
    ours: Spread
    other: Spread | None
    interval: Interval
    verdict: Verdict
    ours_exact: bool
    other_exact: bool


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict and comparisons. ``measure`` is empty where the comparisons name their own."""

    claim: Claim
    measure: str
    verdict: Verdict
    contrasts: list[Contrast]


def judge(claim: Claim, exhibit: Exhibit, values: Values) -> Judged:
    """Test a claim.

    Parameters
    ----------
    values: of the exhibit's cells, as far as they have been run; those of every measure the claim needs.
    """
    contrasts = list(_contrasts(claim, exhibit, values))
    found = {contrast.verdict for contrast in contrasts}
    order: tuple[Verdict, ...] = ("contradicted", "not confirmed", "not tested", "confirmed")
    verdict: Verdict = next((verdict for verdict in order if verdict in found), "not tested")
    named = any("measure" in place for place in (claim.where, claim.higher or {}, claim.lower or {}))
    return Judged(claim, "" if named else claim.measure or exhibit.measures[0], verdict, contrasts)


def _contrasts(claim: Claim, exhibit: Exhibit, values: Values) -> Iterator[Contrast]:
    ours = claim.higher if claim.higher is not None else claim.lower
    for place in _split(claim.where):
        words = ", ".join(v for vs in place.values() for v in vs)
        if ours is None:
            yield _against_number(claim, exhibit, values, place, words)
            continue
        for than in claim.than:
            for other in _split(than):
                yield _against_other(claim, exhibit, values, place, ours, other, words)


def _split(place: Place) -> list[dict[str, list[str]]]:
    """One place for each combination of the values named: a claim holds in each of them."""
    return [dict(zip(place, ([v] for v in one), strict=True)) for one in itertools.product(*place.values())]


def _units(claim: Claim, exhibit: Exhibit, values: Values, place: Place, rest: Sequence[str]) -> Units:
    """The mean over the cells of a place, for each value of the axes in ``rest`` and each seed that has all of these cells."""
    measure = place.get("measure", [claim.measure or exhibit.measures[0]])[0]
    axes = list(exhibit.axes)
    wanted = [place.get(axis, list(exhibit.axes[axis])) for axis in axes]
    gathered: dict[Key, list[Censored]] = {}
    cells: dict[tuple[str, ...], int] = {}
    for cell in itertools.product(*wanted):
        if (measure, cell) in values:
            kind = tuple(cell[axes.index(axis)] for axis in rest)
            cells[kind] = cells.get(kind, 0) + 1
            for seed, value in values[measure, cell].items():
                gathered.setdefault((kind, seed), []).append(value)
    return {
        (kind, seed): _mean(found)
        for (kind, seed), found in gathered.items()
        if len(found) == cells[kind] and all(isfinite(one.value) for one in found)
    }


def _mean(found: Sequence[Censored]) -> Censored:
    return Censored(float(np.mean([one.value for one in found])), all(one.reached for one in found))


def _by_seed(units: Units) -> Units:
    """The mean over cells of every seed that has as many as any."""
    seeds: dict[int, list[Censored]] = {}
    for (_, seed), value in units.items():
        seeds.setdefault(seed, []).append(value)
    most = max((len(found) for found in seeds.values()), default=0)
    return {((), seed): _mean(found) for seed, found in seeds.items() if len(found) == most}


def _against_other(
    claim: Claim, exhibit: Exhibit, values: Values, where: Place, ours: Place, other: Place, words: str
) -> Contrast:
    rest = [axis for axis in exhibit.axes if axis not in {*where, *ours, *other}]
    a = _units(claim, exhibit, values, {**where, **ours}, rest)
    b = _units(claim, exhibit, values, {**where, **other}, rest)
    a, b = ({key: one[key] for key in a if key in b} for one in (a, b))  # the same cells on both sides
    if claim.pair == "seed":
        a, b = _by_seed(a), _by_seed(b)
    x, y = [one.value for one in a.values()], [one.value for one in b.values()]
    up, interval = claim.higher is not None, paired(x, y)
    # a lower bound can only show that its side is higher than it seems
    exact = [all(one.reached for one in side.values()) for side in (a, b)]
    proves, refutes = (exact[1], exact[0]) if up else (exact[0], exact[1])
    label = f"{_place(ours)} against {_place(other)}" + (f" ({words})" if words else "")
    verdict = _verdict(interval, up, claim.margin, proves, refutes)
    return Contrast(label, spread(x), spread(y), interval, verdict, exact[0], exact[1])


def _against_number(claim: Claim, exhibit: Exhibit, values: Values, where: Place, words: str) -> Contrast:
    up = claim.above is not None
    bound = float(claim.above if claim.above is not None else claim.below or 0.0)
    units = _units(claim, exhibit, values, where, [axis for axis in exhibit.axes if axis not in where])
    units = _by_seed(units) if claim.pair == "seed" else units
    x = [one.value for one in units.values()]
    exact, interval = all(one.reached for one in units.values()), paired(x, [bound] * len(x))
    label = f"{'above' if up else 'below'} {bound:g}" + (f" ({words})" if words else "")
    verdict = _verdict(interval, up, claim.margin, exact or up, exact or not up)
    return Contrast(label, spread(x), None, interval, verdict, exact, True)


def _verdict(interval: Interval, up: bool, margin: float, proves: bool, refutes: bool) -> Verdict:
    if interval.n < 2:
        return "not tested"
    low, high = (interval.low, interval.high) if up else (-interval.high, -interval.low)
    if low > -margin:
        return "confirmed" if proves else "not confirmed"
    if high < -margin:
        return "contradicted" if refutes else "not confirmed"
    return "not confirmed"


def _place(place: Place) -> str:
    def words(axis: str, value: str) -> str:
        if axis == "measure":
            return measure_of(value).title
        return f"{axis} {value}" if value.replace(".", "").isdigit() else value

    return ", ".join(" and ".join(words(axis, v) for v in vs) for axis, vs in place.items())
