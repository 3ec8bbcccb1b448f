"""The verdict on a claim: whether it holds, and whether the size that the paper prints does.

*Confirmed*: every comparison's interval lies on the claimed side. *Contradicted*: one lies wholly
on the other side; where the data are not the paper's this is called *not seen here*. *Undecided*:
neither, for the seeds cannot tell. *False as stated*: a counterexample is worked out, whatever is
measured. *Not tested*: runs are missing, or nothing measured tests it.

The intervals of one claim are simultaneous (:mod:`motley_papers.sides`): the chance to confirm a
claim that is false is at most 2.5 %, and so is the chance to contradict one that is true, whether
it makes one comparison or seven. A recipe makes many claims; the verdict is what is left after
Holm's correction over the paper's claims, or over our own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np

from motley.results.measures import Censored, Interval, Spread, spread
from motley_papers.measuring import measure_of
from motley_papers.power import LEVEL, holm, pairs_needed, resolvable
from motley_papers.recipe import Cell, Claim, Exhibit
from motley_papers.recipe_claim import WHOLE, Place, Protocol
from motley_papers.sequential import SpendingPlan
from motley_papers.sides import Sides, least_std, of_all, sides_of
from motley_papers.tuning import after_tuning

Verdict = Literal[
    "confirmed", "undecided", "contradicted", "not seen here", "false as stated", "not tested"
]
DECIDED: tuple[Verdict, ...] = ("confirmed", "contradicted", "not seen here")
NamedCell = tuple[str, ...]
Values = Mapping[tuple[str, NamedCell], Mapping[int, Censored]]
"""(measure, cell) -> seed -> the number."""
Key = tuple[tuple[str, ...], int]
Units = dict[Key, Censored]
"""(values of the axes that are averaged over, seed) -> the number."""


class ClaimComparison(NamedTuple):
    """One comparison of a claim: the cells ``where`` it is made, and its sides; None of a claim
    against a number."""

    where: Place
    ours: Place | None
    rival: Place | None

    @property
    def words(self) -> str:
        """The values of ``where``."""
        return ", ".join(value for values in self.where.values() for value in values)


class _Numbers(NamedTuple):
    """What claims are judged by: measured and printed values, the looks in seeds, how many
    comparisons a claim makes, whether the data are ``theirs``, and the cells that are planned."""

    values: Values
    printed: Values
    looks: SpendingPlan | None
    of: int
    theirs: bool
    planned: Sequence[Cell] = ()

    def lacks(self, claim: Claim, exhibit: Exhibit, comparison: ClaimComparison) -> bool:
        """Return whether a planned cell that the comparison looks at has no number, or a seed
        without one: what diverged would be left out of its mean, and flatter it."""
        measures = claim.measures(exhibit.measures)
        sides = [side or {} for side in (comparison.ours, comparison.rival)]
        places = [{**comparison.where, **side} for side in sides]
        used = {_measure(claim, exhibit, place) for place in places}
        return any(
            not any(self._has(measure, cell) for measure in measures)
            or any(self._lost_seed(measure, cell) for measure in used)
            for cell in cells_of(comparison, self.planned)
        )

    def _lost_seed(self, measure: str, cell: Cell) -> bool:
        """Return whether some seeds of a cell have a number of a measure, and others none."""
        by_seed = self.values.get((measure, cell.values), {})
        return len({isfinite(number.value) for number in by_seed.values()}) > 1

    def _has(self, measure: str, cell: Cell) -> bool:
        """Return whether all seeds of a cell that ran have a number."""
        by_seed = self.values.get((measure, cell.values), {})
        return bool(by_seed) and all(isfinite(number.value) for number in by_seed.values())


@dataclass(frozen=True)
class Contrast:
    """One comparison of a claim: ``ours`` against ``rival`` (None: against a number), and the
    interval of their difference, whose end towards the claimed side allows for the number of the
    claim's comparisons. Where a side is not exact, it is only a lower bound."""

    label: str
    ours: Spread
    rival: Spread | None
    interval: Interval
    verdict: Verdict
    ours_exact: bool
    rival_exact: bool
    sides: Sides
    """One-sided p values of the paired t test that allow for the looks; NaN for fewer than two
    pairs."""
    resolves: float
    """The smallest difference that so many pairs find in 80 % of cases at the level of 5 %."""
    printed: float
    """The difference that the paper prints; NaN where it does not print both sides."""
    std: float
    """Standard deviation of the differences, at least that which whole numbers have
    (:func:`motley_papers.sides.least_std`)."""
    needs: float
    """The pairs with which the printed difference would be found in 80 % of cases."""
    plain: Interval
    """The 95 % t interval that allows neither for looks nor for other comparisons."""
    null: float
    """The difference from which the claim says that this one lies apart: its margin."""
    largest: float = inf
    """The largest difference towards the claimed side that there can be; infinite where nothing
    bounds it."""
    looks: SpendingPlan | None = None
    """The looks in pairs, for which intervals and p values allow; None: one look, at the number
    planned."""

    @property
    def exact(self) -> bool:
        """Whether no side is a bound alone."""
        return self.ours_exact and self.rival_exact

    def decided_by(self, family: int) -> float:
        """Return the pairs that would find the difference measured here in 80 % of cases, if mean
        and spread stay and ``family`` claims are corrected for together; after a plan of looks, of
        the error that is left to a longer one."""
        share = 1.0
        if self.looks is not None:
            longer = self.looks._replace(ends=(*self.looks.ends, self.looks.most + 1))
            share = longer.share(longer.most)
        level = LEVEL * share / max(1, family)
        return pairs_needed(self.interval.mean - self.null, self.std, level)

    @property
    def decidable(self) -> bool | None:
        """Whether so many pairs resolve, alone, the difference that the paper prints, or else the
        largest that there can be; None where neither is known."""
        off = abs(self.printed - self.null) if isfinite(self.printed) else self.largest
        return self.resolves <= off if isfinite(off) and isfinite(self.resolves) else None


@dataclass(frozen=True)
class Judged:
    """A claim with its comparisons. ``measure`` is empty where the comparisons name their own."""

    claim: Claim
    measure: str
    contrasts: list[Contrast]
    protocol: Protocol = WHOLE
    after_holm: Sides | None = None
    """Two-sided p values after Holm's correction; None before it."""
    family: int = 0
    """How many claims were tested that the correction is over; 0 before it."""

    @property
    def up(self) -> bool:
        """Whether the claim says more, not less."""
        return self.claim.higher is not None or self.claim.above is not None

    @property
    def sides(self) -> Sides:
        """One-sided p values of the claim; NaN where it was not tested."""
        tested = [contrast.sides for contrast in self.contrasts]
        if tested:
            return of_all(
                [contrast.confirms for contrast in tested],
                [contrast.refutes for contrast in tested],
            )
        return Sides(nan, nan)

    @property
    def alone(self) -> Verdict:
        """The verdict on the claim, as if it were the only one."""
        if self.claim.counterexample:
            return "false as stated"
        return together(contrast.verdict for contrast in self.contrasts)

    @property
    def verdict(self) -> Verdict:
        """The verdict after the correction."""
        verdict = self.alone
        after = self.after_holm
        if after is None or verdict not in DECIDED:
            return verdict
        p = after.confirms if verdict == "confirmed" else after.refutes
        return verdict if p <= LEVEL else "undecided"

    @property
    def decidable(self) -> bool | None:
        """Whether so many pairs resolve what is printed of each comparison; None where that is
        known of none."""
        resolved = [
            contrast.decidable for contrast in self.contrasts if contrast.decidable is not None
        ]
        return all(resolved) if resolved else None

    @property
    def interval(self) -> Interval:
        """The interval of the comparison that is weakest: of several, a claim says something of the
        least difference."""
        return _weakest([contrast.interval for contrast in self.contrasts], self.up)

    @property
    def printed(self) -> float:
        """The difference that the paper prints for the comparison that is weakest in it; NaN where
        it does not print all."""
        least = min if self.up else max
        if self._all_printed:
            return least((contrast.printed for contrast in self.contrasts), default=nan)
        return nan

    @property
    def size(self) -> str:
        """Whether the printed difference lies ``inside``, ``above`` or ``below`` the interval.

        ``too wide``: inside one that is at least as long as the difference is large, so that none
        at all, or twice as much, may lie inside as well. Empty where none is printed of these data,
        or the measured one is a bound or has no interval.
        """
        interval = self.interval
        printed = self.printed
        measurable = (
            all(contrast.exact for contrast in self.contrasts)
            and isfinite(interval.low)
            and isfinite(printed)
        )
        if not measurable or self.protocol.kind == "other data":
            return ""
        if interval.low <= printed <= interval.high:
            return "inside" if interval.high - interval.low < abs(printed) else "too wide"
        return "below" if printed < interval.low else "above"

    @property
    def _all_printed(self) -> bool:
        return all(isfinite(contrast.printed) for contrast in self.contrasts)


def _weakest(intervals: Sequence[Interval], up: bool) -> Interval:
    """Return the interval of the least difference towards the claimed side, all whose comparisons
    were made; else one without ends."""
    if not intervals or any(interval.n < 2 for interval in intervals):
        return Interval(nan, nan, nan, min((interval.n for interval in intervals), default=0))
    least = min if up else max
    means, lows, highs = (
        [getattr(interval, end) for interval in intervals] for end in ("mean", "low", "high")
    )
    return Interval(
        least(means), least(lows), least(highs), min(interval.n for interval in intervals)
    )


def together(verdicts: Iterable[str]) -> Verdict:
    """Return the verdict on several comparisons together."""
    words = set(verdicts)
    order: tuple[Verdict, ...] = (
        "contradicted",
        "not seen here",
        "undecided",
        "not tested",
        "confirmed",
    )
    return next((verdict for verdict in order if verdict in words), "not tested")


def judge(
    claim: Claim,
    exhibit: Exhibit,
    values: Values,
    printed: Mapping[tuple[str, NamedCell], float] | None = None,
    looks: SpendingPlan | None = None,
    protocol: Protocol = WHOLE,
    planned: Sequence[Cell] = (),
) -> Judged:
    """Test a claim.

    Parameters
    ----------
    values: of the exhibit's cells, as far as they have been run; those of every measure the claim
    needs.
    printed: (measure, cell) -> the paper's number.
    looks: in seeds; None where there is one, at the number planned.
    protocol: how much of the paper's the runs are.
    planned: the exhibit's cells; a comparison of which one has no number is not tested, for a mean
    over the others is about something else.
    """
    if claim.tuned is not None:
        exhibit, values = exhibit.tuned(claim.tuned), after_tuning(exhibit, claim.tuned, values)
    of_means = printed if printed and claim.of == "mean" else {}
    paper = {key: {0: Censored(value, True)} for key, value in of_means.items()}
    named = any(
        "measure" in place for place in (claim.where, claim.higher or {}, claim.lower or {})
    )
    measure = "" if named else claim.measure or exhibit.measures[0]
    compared = [] if claim.untested or claim.counterexample else comparisons(claim)
    numbers = _Numbers(
        values=values,
        printed=paper,
        looks=looks,
        of=len(compared),
        theirs=protocol.kind != "other data",
        planned=() if claim.tuned is not None else planned,
    )
    return Judged(
        claim,
        measure,
        [_compare(claim, exhibit, comparison, numbers) for comparison in compared],
        protocol,
    )


def corrected(judged: Sequence[Judged]) -> list[Judged]:
    """Return the verdicts with Holm's correction: over the paper's claims together, and over our
    own together. Each claim has two hypotheses, that it is not true and that it is not false, of
    which both may hold. So a family of m claims has 2 m one-sided p values; m two-sided ones would
    bound the chance of a wrong direction for independent claims alone (J. P. Shaffer, Control of
    directional errors with stagewise multiple test procedures, Annals of Statistics 1980), and
    claims share runs."""
    out = list(judged)
    for theirs in (True, False):
        family = [i for i, judgement in enumerate(judged) if bool(judgement.claim.source) == theirs]
        adjusted = iter(holm([p for i in family for p in judged[i].sides]))
        tested = sum(judged[i].alone not in ("not tested", "false as stated") for i in family)
        for i in family:
            after = Sides(next(adjusted), next(adjusted))
            out[i] = replace(judged[i], after_holm=after, family=tested)
    return out


def comparisons(claim: Claim) -> list[ClaimComparison]:
    """Return the comparisons that a claim makes."""
    ours = claim.higher if claim.higher is not None else claim.lower
    out = []
    for where in _split(claim.where):
        rivals = (
            [rival for than in claim.than for rival in _split(than)] if ours is not None else [None]
        )
        out += [ClaimComparison(where, ours, rival) for rival in rivals]
    return out


def cells_of(comparison: ClaimComparison, cells: Sequence[Cell]) -> list[Cell]:
    """Return those of an exhibit's cells that a comparison looks at."""
    sides = [
        {**comparison.where, **side}
        for side in (comparison.ours, comparison.rival)
        if side is not None
    ] or [comparison.where]
    return [
        c
        for c in cells
        if any(
            all(c.at[a] in values for a, values in side.items() if a != "measure") for side in sides
        )
    ]


def _split(place: Place) -> list[dict[str, list[str]]]:
    """One place for each combination of the values named: a claim holds in each of them."""
    return [
        dict(zip(place, ([v] for v in values), strict=True))
        for values in itertools.product(*place.values())
    ]


def _measure(claim: Claim, exhibit: Exhibit, place: Place) -> str:
    """Return the measure that is looked at in the cells of a place."""
    return place.get("measure", [claim.measure or exhibit.measures[0]])[0]


def _units(
    claim: Claim, exhibit: Exhibit, values: Values, place: Place, varying: Sequence[str]
) -> Units:
    """The mean over the cells of a place, for each value of the axes in ``varying`` and each seed
    that has all of these cells."""
    measure = _measure(claim, exhibit, place)
    axes = list(exhibit.axes)
    wanted = [place.get(axis, list(exhibit.axes[axis])) for axis in axes]
    gathered: dict[Key, list[Censored]] = {}
    cells: dict[tuple[str, ...], int] = {}
    for cell in itertools.product(*wanted):
        if (measure, cell) in values:
            kind = tuple(cell[axes.index(axis)] for axis in varying)
            cells[kind] = cells.get(kind, 0) + 1
            for seed, value in values[measure, cell].items():
                gathered.setdefault((kind, seed), []).append(value)
    return {
        (kind, seed): _mean(numbers)
        for (kind, seed), numbers in sorted(gathered.items(), key=lambda entry: entry[0][1])
        if len(numbers) == cells[kind] and all(isfinite(number.value) for number in numbers)
    }


def _mean(numbers: Sequence[Censored]) -> Censored:
    return Censored(
        float(np.mean([number.value for number in numbers])),
        all(number.reached for number in numbers),
    )


def _by_seed(units: Units) -> Units:
    """The mean over cells of every seed that has as many as any."""
    seeds: dict[int, list[Censored]] = {}
    for (_, seed), value in units.items():
        seeds.setdefault(seed, []).append(value)
    most = max((len(numbers) for numbers in seeds.values()), default=0)
    return {((), seed): _mean(numbers) for seed, numbers in seeds.items() if len(numbers) == most}


def _sides(
    claim: Claim, exhibit: Exhibit, values: Values, where: Place, ours: Place, rival: Place
) -> tuple[Units, Units]:
    """The numbers of both sides, of the same cells and seeds."""
    varying = [axis for axis in exhibit.axes if axis not in {*where, *ours, *rival}]
    a = _units(
        claim=claim, exhibit=exhibit, values=values, place={**where, **ours}, varying=varying
    )
    b = _units(
        claim=claim, exhibit=exhibit, values=values, place={**where, **rival}, varying=varying
    )
    a, b = ({key: side[key] for key in a if key in b} for side in (a, b))
    a, b = (_by_seed(a), _by_seed(b)) if claim.pair == "seed" else (a, b)
    return (_deviations(a), _deviations(b)) if claim.of == "spread" else (a, b)


def _deviations(units: Units) -> Units:
    """Return how far each number lies from the median of all; a bound stays one."""
    if not units:
        return units
    median = float(np.median([unit.value for unit in units.values()]))
    return {key: Censored(abs(unit.value - median), unit.reached) for key, unit in units.items()}


def _compare(
    claim: Claim, exhibit: Exhibit, comparison: ClaimComparison, numbers: _Numbers
) -> Contrast:
    if numbers.lacks(claim, exhibit, comparison):
        numbers = numbers._replace(values={})
    if comparison.ours is None or comparison.rival is None:
        return _against_number(claim, exhibit, comparison.where, numbers)
    a, b = _sides(
        claim=claim,
        exhibit=exhibit,
        values=numbers.values,
        where=comparison.where,
        ours=comparison.ours,
        rival=comparison.rival,
    )
    x = [unit.value for unit in a.values()]
    y = [unit.value for unit in b.values()]
    up = claim.higher is not None
    # a lower bound can only show that its side is higher than it seems
    exact = [all(unit.reached for unit in side.values()) for side in (a, b)]
    proves, refutes = (exact[1], exact[0]) if up else (exact[0], exact[1])
    label = f"{_place(comparison.ours)} against {_place(comparison.rival)}" + (
        f" ({comparison.words})" if comparison.where else ""
    )
    sides = _sides(
        claim=claim,
        exhibit=exhibit,
        values=numbers.printed,
        where=comparison.where,
        ours=comparison.ours,
        rival=comparison.rival,
    )
    paper = [spread([unit.value for unit in side.values()]).mean for side in sides]
    off = paper[0] - paper[1]
    looks = _looks(a, numbers.looks)
    question = _Question(
        up=up,
        margin=claim.margin,
        proves=proves,
        refutes=refutes,
        printed=off,
        largest=inf,
        looks=looks,
        of=numbers.of,
        theirs=numbers.theirs,
    )
    tested = _test(x, y, question)
    return Contrast(
        label, spread(x), spread(y), ours_exact=exact[0], rival_exact=exact[1], **tested
    )


def _against_number(claim: Claim, exhibit: Exhibit, where: Place, numbers: _Numbers) -> Contrast:
    up = claim.above is not None
    bound = float(claim.above if claim.above is not None else claim.below or 0.0)
    varying = [axis for axis in exhibit.axes if axis not in where]
    units, paper = (
        _units(claim=claim, exhibit=exhibit, values=numbers_of, place=where, varying=varying)
        for numbers_of in (numbers.values, numbers.printed)
    )
    units, paper = (_by_seed(units), _by_seed(paper)) if claim.pair == "seed" else (units, paper)
    x = [unit.value for unit in units.values()]
    exact = all(unit.reached for unit in units.values())
    words = ClaimComparison(where, None, None).words
    label = f"{'above' if up else 'below'} {bound:g}" + (f" ({words})" if words else "")
    off = spread([unit.value for unit in paper.values()]).mean - bound
    looks = _looks(units, numbers.looks)
    measure = _measure(claim, exhibit, where)
    largest = inf if up else bound + claim.margin - measure_of(measure).least
    proves, refutes = exact or up, exact or not up
    question = _Question(
        up=up,
        margin=claim.margin,
        proves=proves,
        refutes=refutes,
        printed=off,
        largest=largest,
        looks=looks,
        of=numbers.of,
        theirs=numbers.theirs,
    )
    tested = _test(x, bound, question)
    return Contrast(label, spread(x), None, ours_exact=exact, rival_exact=True, **tested)


def _looks(units: Units, seeds: SpendingPlan | None) -> SpendingPlan | None:
    """The looks in pairs, of those in seeds."""
    kinds = max(1, len({kind for kind, _ in units}))
    return None if seeds is None else seeds._replace(ends=tuple(end * kinds for end in seeds.ends))


class _Question(NamedTuple):
    """What is asked of the differences: whether they are ``up``, whether they can prove or refute
    it, what is printed, and the largest difference towards the claimed side that can be."""

    up: bool
    margin: float
    proves: bool
    refutes: bool
    printed: float
    largest: float
    looks: SpendingPlan | None
    of: int
    theirs: bool


def _test(x: Sequence[float], y: Sequence[float] | float, question: _Question) -> dict[str, Any]:
    """Return the interval of the differences of ``x`` from ``y`` (the other side, or one number),
    the verdict, and what so many pairs can tell; of more pairs than there may be, the first."""
    looks = question.looks
    most = looks.most if looks is not None else None
    ours = np.asarray(x, float)[:most]
    theirs = None if isinstance(y, float) else np.asarray(y, float)[:most]
    difference = spread(ours - (y if theirs is None else theirs))
    null = -question.margin if question.up else question.margin
    n = difference.n
    if n > 1:
        difference = replace(
            difference,
            std=max(difference.std, float(least_std(ours, theirs, difference.mean - null))),
        )
    levels = {
        of: LEVEL / of if looks is None or n < 2 else looks.level(n, LEVEL / of)
        for of in (1, max(1, question.of))
    }
    interval = _bounds(difference, levels[1], levels[max(1, question.of)], question.up)
    sides = _sides_of(difference, null, question)
    return {
        "interval": interval,
        "verdict": _verdict(interval, question),
        "sides": sides,
        "resolves": resolvable(difference.std, n, levels[1]),
        "printed": question.printed,
        "std": difference.std,
        "needs": pairs_needed(question.printed - null, difference.std),
        "plain": _bounds(difference, LEVEL, LEVEL, question.up),
        "null": null,
        "largest": question.largest,
        "looks": looks,
    }


def _bounds(difference: Spread, near: float, far: float, up: bool) -> Interval:
    """Return the interval: its end on the side of the null has the two-sided level ``near``, that
    on the claimed side ``far``."""
    if difference.n < 2 or not isfinite(difference.std):
        return Interval(difference.mean, nan, nan, difference.n)
    from scipy.special import stdtrit

    below, above = (
        -float(stdtrit(difference.n - 1, level / 2)) * difference.std / sqrt(difference.n)
        for level in ((near, far) if up else (far, near))
    )
    return Interval(difference.mean, difference.mean - below, difference.mean + above, difference.n)


def _sides_of(difference: Spread, null: float, question: _Question) -> Sides:
    """The one-sided p values, which allow for the looks; 1 for what a bound cannot show."""
    if difference.n < 2:
        return Sides(nan, nan)
    towards = (difference.mean - null) * (1 if question.up else -1)
    sides = (
        sides_of(towards, difference.std, difference.n) if difference.std else Sides(*(0.5, 0.5))
    )
    if question.looks is not None:
        sides = Sides(*(question.looks.p(min(1.0, 2 * float(p)), difference.n) / 2 for p in sides))
    return Sides(
        float(sides.confirms) if question.proves else 1.0,
        float(sides.refutes) if question.refutes else 1.0,
    )


def _verdict(interval: Interval, question: _Question) -> Verdict:
    if interval.n < 2:
        return "not tested"
    low, high = (interval.low, interval.high) if question.up else (-interval.high, -interval.low)
    if low > -question.margin and question.proves:
        return "confirmed"
    if high < -question.margin and question.refutes:
        return "contradicted" if question.theirs else "not seen here"
    return "undecided"


def _place(place: Place) -> str:
    def words(axis: str, value: str) -> str:
        if axis == "measure":
            return measure_of(value).title
        return f"{axis} {value}" if value.replace(".", "").isdigit() else value

    return ", ".join(" and ".join(words(axis, v) for v in vs) for axis, vs in place.items())
