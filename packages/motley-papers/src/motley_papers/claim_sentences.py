"""A claim of a recipe in sentences: the claim, what came of it with its numbers, what the paper
says, and the verdict last. All of it is made from the rows of ``verdicts.csv``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite, isnan

from motley.results.number_text import short_number
from motley_papers.measuring import measure_of
from motley_papers.power import LEVEL, MOST_PAIRS
from motley_papers.recipe_claim import Claim
from motley_papers.sequential import SpendingPlan

_SIDES = re.compile(r"(?P<ours>.+?) against (?P<other>.+?)(?: \((?P<where>.*)\))?")
_BOUND = re.compile(r"(?:above|below) (?P<bound>\S+)(?: \((?P<where>.*)\))?")
_DOUBT = {
    "contradicted": 0,
    "not seen here": 0,
    "undecided": 1,
    "not tested": 2,
    "confirmed": 2,
}
"""Verdict on one comparison -> its place among those that decide a claim."""
_LEADS = {
    "confirmed": "It was so",
    "contradicted": "The opposite was seen",
    "not seen here": "The opposite was seen on these data",
}
_BY_CHANCE = {
    "confirmed": "It was so, but not beyond chance among so many claims",
    "contradicted": "The opposite was seen, but not beyond chance among so many claims",
    "not seen here": "The opposite was seen, but not beyond chance among so many claims",
}


def tell(claim: Claim, rows: Sequence[Mapping[str, str]], missed: bool = False) -> str:
    """Return the claim, what came of it and the verdict, as Markdown.

    Parameters
    ----------
    rows: of the claim in ``verdicts.csv``, one a comparison, at least one of which has a
    difference.
    missed: whether a run missed its target, so that its number is a lower bound.
    """
    first = rows[0]
    alone = "" if first["alone"] == first["verdict"] else f" (alone: {first['alone']})"
    verdict = first["verdict"].capitalize()
    return f"**{claim.text}.** {what_came_of_it(claim, rows, missed)} *{verdict}*{alone}."


def what_came_of_it(claim: Claim, rows: Sequence[Mapping[str, str]], missed: bool = False) -> str:
    """Return the sentence of numbers: both sides, their difference with its interval (of several
    comparisons the weakest), what an undecided claim lacks, and what the paper says."""
    if claim.counterexample:
        return f"By calculation: {claim.counterexample.rstrip('.')}."
    up = claim.higher is not None or claim.above is not None
    compared = [row for row in rows if isfinite(float(row["difference"]))]
    weakest = min(compared, key=lambda row: (_DOUBT[row["sign"]], _towards(row, up)))
    parts = [f"{_lead(claim, weakest, up)}{_allowed(claim, weakest)}: {_numbers(claim, weakest)}"]
    if len(rows) > 1:
        held = sum(row["sign"] == "confirmed" for row in rows)
        left = len(rows) - len(compared)
        were = "was" if left == 1 else "were"
        untested = f", and {left} of which {were} not made" if left else ""
        parts.append(
            f"this is the weakest of {len(rows)} comparisons, {held} of which hold{untested}"
        )
    if missed:
        parts.append("some runs missed the target, and their numbers are lower bounds")
    if rows[0]["verdict"] == "undecided":
        leans = _towards(weakest, up) > -claim.margin
        parts += _what_it_lacks(weakest, compared if leans else [weakest])
    if weakest["looks"]:
        parts.append(_spent(weakest))
    if weakest["published"]:
        parts.append(f"published: {weakest['published'].rstrip('.')}")
    if weakest["size"]:
        parts.append(_size(rows, up))
    return "; ".join(parts) + "."


def _size(rows: Sequence[Mapping[str, str]], up: bool) -> str:
    """Return where the printed difference lies. Of several comparisons it is the least printed
    one, whose rival need not be that of the least measured one: so both are named."""
    first = rows[0]
    printed_difference = _signed(float(first["claim_printed"]))
    wide = first["size"] == "too wide"
    where = "inside" if wide else first["size"]
    end = ", too wide to tell" if wide else ""
    if len(rows) == 1:
        return f"the printed difference, {printed_difference}, lies {where} the interval{end}"
    printed = min(rows, key=lambda row: float(row["printed"]) * (1 if up else -1))
    sides = _SIDES.fullmatch(printed["comparison"])
    names = ", ".join(filter(None, (sides["other"], sides["where"]))) if sides else ""
    rival = f"against {names}" if names else printed["comparison"]
    low, high = (_signed(float(first[name])) for name in ("claim_low", "claim_high"))
    return (
        f"the least printed difference, {printed_difference} ({rival}), lies {where} "
        f"[{low}, {high}], the interval of the least measured{end}"
    )


def _lead(claim: Claim, row: Mapping[str, str], up: bool) -> str:
    """Return what came of a claim in words. The mean of a claim that is undecided leans towards the
    claim, or the other way."""
    if row["verdict"] != "undecided":
        return _LEADS[row["verdict"]]
    if row["alone"] != "undecided":
        return _BY_CHANCE[row["alone"]]
    leans = "towards the claim" if _towards(row, up) > -claim.margin else "the other way"
    return f"It cannot be told; the mean leans {leans}"


def _what_it_lacks(row: Mapping[str, str], needed_by: Sequence[Mapping[str, str]]) -> list[str]:
    """Return what so many pairs resolve, and how many would decide: a claim holds when the last of
    its comparisons does."""
    resolves = float(row["resolves"])
    if not isfinite(resolves):
        return []
    needs = [float(needing["decided_by"]) for needing in needed_by]
    pairs = max(pairs for pairs in needs if not isnan(pairs))
    unit = measure_of(row["measure"]).unit if row["measure"] else ""
    least = _with(_plain(resolves), "points" if unit == "%" else unit)
    needed = f"{pairs:,.0f}" if pairs <= MOST_PAIRS else f"more than {MOST_PAIRS:,}"
    return [
        f"{row['pairs']} pairs resolve {least}, and {needed} would decide if mean and spread stay"
    ]


def _spent(row: Mapping[str, str]) -> str:
    """Return what a plan that was lengthened, or looked at, has spent of its error, and the plain
    interval."""
    ends = [int(end) for end in row["looks"].split()]
    plan = SpendingPlan(tuple(ends), each=False)
    spent = " and ".join(f"{100 * LEVEL * plan.share(end):.2g} % at {end}" for end in ends[:-1])
    left = f"{100 * LEVEL * plan.share(ends[-1]):.2g} %"
    if spent:
        begun = f"its plan spent {spent} pairs, which leaves {left} for {ends[-1]}"
    else:
        begun = f"it was looked at after every pair of at most {ends[-1]}"
    low, high = (_signed(float(row[name])) for name in ("plain_low", "plain_high"))
    return f"{begun}; the plain 95 % interval is [{low}, {high}]"


def _allowed(claim: Claim, row: Mapping[str, str]) -> str:
    """Return what the claim allows in the other direction, or asks for, in the unit of its
    measure."""
    if not claim.margin:
        return ""
    unit = measure_of(row["measure"]).unit if row["measure"] else ""
    margin = _with(f"{abs(claim.margin):g}", "points" if unit == "%" else unit)
    if claim.margin < 0:
        return f" (more than {margin} claimed)"
    return f" (up to {margin} the other way allowed)"


def _towards(row: Mapping[str, str], up: bool) -> float:
    """Return how far the difference lies towards the claimed side."""
    return float(row["difference"]) * (1 if up else -1)


def _numbers(claim: Claim, row: Mapping[str, str]) -> str:
    """Return both sides, or one and the number it is held against, with the difference."""
    measure = measure_of(row["measure"]) if row["measure"] else None
    unit = measure.unit if measure is not None else ""
    title = measure.title.removesuffix("(%)").strip() if measure is not None else ""
    title = f"deviation of {title} over seeds" if claim.of == "spread" else title
    mean = float(row["difference"])
    apart = _with(_signed(mean), "points" if unit == "%" else unit)
    apart = f"{apart} {_ends(row)} over {row['pairs']} pairs"
    ours = _with(_plain(float(row["ours"])), unit)
    where = ""
    if bound := _BOUND.fullmatch(row["comparison"]):
        sentence, where = f"{ours}, {apart} from {bound['bound']}", bound["where"]
    elif sides := _SIDES.fullmatch(row["comparison"]):
        rival = _with(_plain(float(row["other"])), unit)
        sentence = (
            f"{ours} ({sides['ours']}) against {rival} ({sides['other']}), difference {apart}"
        )
        where = sides["where"]
    else:
        sentence = f"{row['comparison']}: {ours}, difference {apart}"
    about = ", ".join(filter(None, (title, where)))
    return f"{sentence} ({about})" if about else sentence


def _ends(row: Mapping[str, str]) -> str:
    mean, low, high = (float(row[name]) for name in ("difference", "low", "high"))
    if not isfinite(low):
        return "without an interval"
    return f"[{_signed(low, mean)}, {_signed(high, mean)}]"


def _signed(number: float, like: float | None = None) -> str:
    text = _plain(number, like)
    return f"+{text}" if number > 0 else text


def _plain(number: float, like: float | None = None) -> str:
    return short_number(number, like).replace("-", "−")


def _with(text: str, unit: str) -> str:
    return f"{text} {unit}" if unit else text
