"""The verdict on a claim: an interval for each comparison, and one of four words.

*Confirmed*: every interval lies on the claimed side. *Contradicted*: one lies wholly on the other side. *Not confirmed*: neither.
*Not tested*: runs are missing, or there is nothing to make an interval of. Beside it stands the verdict that is left after Holm's
correction for the number of comparisons, the smallest difference that so many pairs can resolve, and the pairs that the printed
difference would need.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import Any, Literal, NamedTuple

import numpy as np

from motley.recipes.measuring import measure_of
from motley.recipes.recipe import Cell, Claim, Exhibit, Place
from motley.recipes.tuning import after_tuning
from motley.results.measures import Censored, Interval, Spread, paired, spread
from motley.results.power import LEVEL, holm, p_value, pairs_needed, resolvable
from motley.results.sequential import level_at, sequential_p

__all__ = [
    "ClaimComparison",
    "Contrast",
    "Judged",
    "Values",
    "Verdict",
    "cells_of",
    "comparisons",
    "corrected",
    "judge",
    "together",
]

Verdict = Literal["confirmed", "not confirmed", "contradicted", "not tested"]
NamedCell = tuple[str, ...]
Values = Mapping[tuple[str, NamedCell], Mapping[int, Censored]]
"""(measure, cell) -> seed -> the number."""
Key = tuple[tuple[str, ...], int]
Units = dict[Key, Censored]
"""(values of the axes that are averaged over, seed) -> the number."""


class ClaimComparison(NamedTuple):
    """One comparison of a claim: the cells ``where`` it is made, and its sides; None of a claim against a number."""

    where: Place
    ours: Place | None
    other: Place | None

    @property
    def words(self) -> str:
        """The values of ``where``."""
        return ", ".join(value for values in self.where.values() for value in values)


class _Numbers(NamedTuple):
    """What claims are judged by: measured and printed values, and the most seeds of a sequential test."""

    values: Values
    printed: Values
    most: int | None


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
    p: float
    """Two-sided p value of the paired t test against no difference (against the claim's margin, where it has one)."""
    resolves: float
    """The smallest difference that so many pairs find in 80 % of cases at the level of 5 %."""
    printed: float
    """The difference that the paper prints; NaN where it does not print both sides."""
    std: float
    """Standard deviation of the differences."""
    needs: float
    """The pairs with which the printed difference would be found in 80 % of cases."""
    most: int | None = None
    """The most pairs of a sequential test, whose intervals and p values allow for a look after every pair; None: one look."""
    holm: float = nan
    """The p value after Holm's correction for all comparisons of the recipe."""

    @property
    def after_holm(self) -> Verdict:
        """The verdict that is left after Holm's correction."""
        decided = self.verdict in ("confirmed", "contradicted")
        return "not confirmed" if decided and not self.holm <= LEVEL else self.verdict


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict and comparisons. ``measure`` is empty where the comparisons name their own."""

    claim: Claim
    measure: str
    contrasts: list[Contrast]

    @property
    def verdict(self) -> Verdict:
        """The verdict on all comparisons together."""
        return together(contrast.verdict for contrast in self.contrasts)

    @property
    def after_holm(self) -> Verdict:
        """The verdict after Holm's correction."""
        return together(contrast.after_holm for contrast in self.contrasts)


def together(verdicts: Iterable[str]) -> Verdict:
    """Return the verdict on several comparisons together."""
    found = set(verdicts)
    order: tuple[Verdict, ...] = ("contradicted", "not confirmed", "not tested", "confirmed")
    return next((verdict for verdict in order if verdict in found), "not tested")


def judge(
    claim: Claim,
    exhibit: Exhibit,
    values: Values,
    printed: Mapping[tuple[str, NamedCell], float] | None = None,
    most: int | None = None,
) -> Judged:
    """Test a claim.

    Parameters
    ----------
    values: of the exhibit's cells, as far as they have been run; those of every measure the claim needs.
    printed: (measure, cell) -> the paper's number. most: seeds that a sequential test may use; None for a test that looks once.
    """
    if claim.tuned is not None:
        exhibit, values = exhibit.tuned(claim.tuned), after_tuning(exhibit, claim.tuned, values)
    paper = {key: {0: Censored(value, True)} for key, value in (printed or {}).items()}
    named = any("measure" in place for place in (claim.where, claim.higher or {}, claim.lower or {}))
    measure = "" if named else claim.measure or exhibit.measures[0]
    contrasts = [_compare(claim, exhibit, one, _Numbers(values, paper, most)) for one in comparisons(claim)]
    return Judged(claim, measure, contrasts)


def corrected(judged: Sequence[Judged]) -> list[Judged]:
    """Return the verdicts with Holm's correction for all their comparisons."""
    adjusted = iter(holm([contrast.p for one in judged for contrast in one.contrasts]))
    return [replace(one, contrasts=[replace(c, holm=next(adjusted)) for c in one.contrasts]) for one in judged]


def comparisons(claim: Claim) -> list[ClaimComparison]:
    """Return the comparisons that a claim makes."""
    ours, out = claim.higher if claim.higher is not None else claim.lower, []
    for where in _split(claim.where):
        others = [other for than in claim.than for other in _split(than)] if ours is not None else [None]
        out += [ClaimComparison(where, ours, other) for other in others]
    return out


def cells_of(one: ClaimComparison, cells: Sequence[Cell]) -> list[Cell]:
    """Return those of an exhibit's cells that a comparison looks at."""
    sides = [{**one.where, **side} for side in (one.ours, one.other) if side is not None] or [one.where]
    return [c for c in cells if any(all(c.at[a] in values for a, values in side.items() if a != "measure") for side in sides)]


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
        for (kind, seed), found in sorted(gathered.items(), key=lambda one: one[0][1])
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


def _sides(claim: Claim, exhibit: Exhibit, values: Values, where: Place, ours: Place, other: Place) -> tuple[Units, Units]:
    """The numbers of both sides, of the same cells and seeds."""
    rest = [axis for axis in exhibit.axes if axis not in {*where, *ours, *other}]
    a = _units(claim, exhibit, values, {**where, **ours}, rest)
    b = _units(claim, exhibit, values, {**where, **other}, rest)
    a, b = ({key: one[key] for key in a if key in b} for one in (a, b))
    return (_by_seed(a), _by_seed(b)) if claim.pair == "seed" else (a, b)


def _compare(claim: Claim, exhibit: Exhibit, one: ClaimComparison, numbers: _Numbers) -> Contrast:
    if one.ours is None or one.other is None:
        return _against_number(claim, exhibit, one.where, numbers)
    a, b = _sides(claim, exhibit, numbers.values, one.where, one.ours, one.other)
    x, y = [unit.value for unit in a.values()], [unit.value for unit in b.values()]
    up = claim.higher is not None
    # a lower bound can only show that its side is higher than it seems
    exact = [all(unit.reached for unit in side.values()) for side in (a, b)]
    proves, refutes = (exact[1], exact[0]) if up else (exact[0], exact[1])
    label = f"{_place(one.ours)} against {_place(one.other)}" + (f" ({one.words})" if one.where else "")
    sides = _sides(claim, exhibit, numbers.printed, one.where, one.ours, one.other)
    paper = [spread([unit.value for unit in side.values()]).mean for side in sides]
    tested = _test(x, y, up, claim.margin, proves, refutes, paper[0] - paper[1], _most(a, numbers.most))
    return Contrast(label, spread(x), spread(y), ours_exact=exact[0], other_exact=exact[1], **tested)


def _against_number(claim: Claim, exhibit: Exhibit, where: Place, numbers: _Numbers) -> Contrast:
    up = claim.above is not None
    bound = float(claim.above if claim.above is not None else claim.below or 0.0)
    rest = [axis for axis in exhibit.axes if axis not in where]
    units, paper = (_units(claim, exhibit, found, where, rest) for found in (numbers.values, numbers.printed))
    units, paper = (_by_seed(units), _by_seed(paper)) if claim.pair == "seed" else (units, paper)
    x = [one.value for one in units.values()]
    exact = all(one.reached for one in units.values())
    words = ClaimComparison(where, None, None).words
    label = f"{'above' if up else 'below'} {bound:g}" + (f" ({words})" if words else "")
    off = spread([one.value for one in paper.values()]).mean - bound
    most = _most(units, numbers.most)
    tested = _test(x, [bound] * len(x), up, claim.margin, exact or up, exact or not up, off, most)
    return Contrast(label, spread(x), None, ours_exact=exact, other_exact=True, **tested)


def _most(units: Units, seeds: int | None) -> int | None:
    """The most pairs of a sequential test of so many seeds."""
    return None if seeds is None else seeds * max(1, len({kind for kind, _ in units}))


def _test(
    x: Sequence[float],
    y: Sequence[float],
    up: bool,
    margin: float,
    proves: bool,
    refutes: bool,
    printed: float,
    most: int | None,
) -> dict[str, Any]:
    """Return the interval of the difference, the verdict, and what so many pairs can tell; of more pairs than a sequential test may
    use, the first."""
    x, y = x[:most], y[:most]
    level = LEVEL if most is None or len(x) < 2 else level_at(len(x), most)
    found, null = paired(x, y, 1 - level), -margin if up else margin
    differences = spread(np.subtract(x, y))
    p = p_value(differences, null)
    return {
        "interval": found,
        "verdict": _verdict(found, up, margin, proves, refutes),
        "p": p if most is None or len(x) < 2 else sequential_p(p, len(x), most),
        "resolves": resolvable(differences.std, differences.n, level),
        "printed": printed,
        "std": differences.std,
        "needs": pairs_needed(printed - null, differences.std),
        "most": most,
    }


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
