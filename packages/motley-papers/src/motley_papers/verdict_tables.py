"""The claims of a recipe in tables: whose each is, how much of the paper's protocol tests it, its
verdict, and every comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, isfinite, isinf, isnan
from typing import Literal

from motley.results.blocks import DASH, Block, Section, Table, TableCell, TableRow, Text, non_empty
from motley.results.measures import Spread
from motley.results.number_text import short_number
from motley_papers.measuring import measure_of
from motley_papers.power import MOST_PAIRS
from motley_papers.recipe_claim import KINDS
from motley_papers.verdicts import Contrast, Judged, Verdict

__all__ = [
    "ORDER",
    "TONES",
    "claim_blocks",
    "counted_words",
    "difference_words",
    "headline",
    "sizes_of",
    "verdict_table",
    "words_of",
]

TONES: dict[Verdict, Literal["", "good", "bad"]] = {
    "confirmed": "good",
    "contradicted": "bad",
    "false as stated": "bad",
}
ORDER: tuple[Verdict, ...] = (
    "confirmed",
    "undecided",
    "contradicted",
    "not seen here",
    "false as stated",
    "not tested",
)
_TESTED_AT = {
    "whole": "with the whole protocol",
    "theory": "on theory, with data of ours",
    "reduced": "on a reduced scale",
    "other data": "on other data",
}


def headline(judged: Sequence[Judged]) -> dict[Verdict, int]:
    """Return how many of the paper's own claims have which verdict, after the correction, without
    its theory: what is held against data of ours repeats no experiment of the paper."""
    own = [one for one in judged if one.claim.source and one.protocol.kind != "theory"]
    words = [one.verdict for one in own]
    return {word: words.count(word) for word in ORDER if word in words}


def words_of(verdicts: Iterable[str]) -> str:
    """Return ``2 confirmed, 1 not tested``."""
    found = list(verdicts)
    return ", ".join(f"{found.count(word)} {word}" for word in ORDER if word in found)


def sizes_of(sizes: Sequence[str]) -> str:
    """Return ``1 inside, 2 outside, 3 too wide to tell`` of :attr:`Judged.size`."""
    outside = sizes.count("above") + sizes.count("below")
    inside, wide = sizes.count("inside"), sizes.count("too wide")
    return f"{inside} inside, {outside} outside, {wide} too wide to tell"


def counted_words(judged: Sequence[Judged]) -> list[Block]:
    """Say what became of the paper's own claims by scale, and of ours."""
    said = []
    for kind in KINDS:
        tested = [one.verdict for one in judged if one.claim.source and one.protocol.kind == kind]
        said += [f"{_TESTED_AT[kind]} {words_of(tested)}"] if tested else []
    ours = [one.verdict for one in judged if not one.claim.source]
    texts = [f"The paper's own claims, after Holm's correction: {'; '.join(said)}."] if said else []
    texts += [f"Claims of ours, corrected apart: {words_of(ours)}."] if ours else []
    sizes = [one.size for one in judged if one.claim.source and one.size]
    if sizes:
        texts.append(f"Printed differences, by their intervals: {sizes_of(sizes)}.")
    return [Text(" ".join(texts))] if texts else []


def verdict_table(judged: Sequence[Judged]) -> Table:
    """Return the table of verdicts, one row per claim: the paper's own first, claims without runs
    last."""
    rows = [
        TableRow(one.claim.text, _claim_cells(one))
        for one in sorted(
            judged, key=lambda one: (one.verdict == "not tested", not one.claim.source)
        )
    ]
    heads = (
        "claim",
        "whose",
        "tested on",
        "verdict",
        "alone",
        "published",
        "measured",
        "size",
        "resolves",
        "needs",
        "would decide",
    )
    return Table(heads, rows, _note(judged))


def _claim_cells(one: Judged) -> list[TableCell]:
    said = difference_words(one)
    said = f"{measure_of(one.measure).title}: {said}" if said != DASH and one.measure else said
    said += f" (weakest of {len(one.contrasts)})" if len(one.contrasts) > 1 and said != DASH else ""
    printed = "printed" if len(one.contrasts) == 1 else "least printed"
    said += " (looks)" if any(contrast.looks for contrast in one.contrasts) else ""
    return [
        TableCell(one.claim.source or "ours"),
        TableCell(one.protocol.words),
        *(TableCell(word, tone=TONES.get(word, "")) for word in (one.verdict, one.alone)),
        TableCell(one.claim.published),
        TableCell(one.claim.untested or one.claim.counterexample or said),
        TableCell(f"{printed} {_range([one.printed])}: {one.size}" if one.size else DASH),
        TableCell(_range([contrast.resolves for contrast in one.contrasts])),
        TableCell(_range([contrast.needs for contrast in one.contrasts], whole=True)),
        TableCell(_would_decide(one)),
    ]


def _would_decide(one: Judged) -> str:
    """Return the pairs that would decide an undecided claim, of the comparison that needs most."""
    if one.verdict != "undecided":
        return DASH
    return _range([max(c.decided_by(one.family) for c in one.contrasts)], whole=True)


def _note(judged: Sequence[Judged]) -> str:
    theirs = max((one.family for one in judged if one.claim.source), default=0)
    note = (
        "95% t intervals of mean differences, paired by seed, simultaneous over what a claim "
        "compares. Confirmed: every interval lies on the claimed side; contradicted: one lies "
        "wholly on the other, or, with other data than the paper's, not seen here; undecided: "
        "neither; false as stated: a counterexample is worked out; not tested: fewer than two "
        "pairs, or nothing measured tests it. The verdict is "
        f"what Holm's correction leaves, over the paper's {theirs} claims and over ours apart; "
        "alone: without it. Size: whether the printed difference lies inside the interval, above "
        "or below (of several comparisons the least printed, and the interval of the least "
        "measured); too wide: inside one at least as long as it is large. Resolves: the smallest "
        "true difference that so many pairs find in 80 % of cases at 5 %. Needs: the pairs that "
        "would find the printed difference as often. Would decide: the pairs that would find the "
        "measured difference as often, if mean and spread stay, after a correction for all claims. "
        "A > before a number: a target was missed, and this is a lower bound."
    )
    looks = {
        contrast.looks for one in judged for contrast in one.contrasts if contrast.looks is not None
    }
    for one in sorted(looks):
        ends = ", then ".join(map(str, one.ends))
        each = "after every pair" if one.each else "at each of these numbers"
        note += (
            f" Looks: at most {ends} pairs, seen {each}; the last may spend "
            f"{5 * one.share(one.most):.2g} % of chance, "
            f"{sum(5 * one.share(end) for end in one.ends):.3g} % with all before it."
        )
    return note


def _range(numbers: Sequence[float], whole: bool = False) -> str:
    """Return the least and the most of some numbers, or of numbers of pairs (``whole``)."""
    known = sorted(number for number in numbers if not isnan(number))
    ends = [
        f"> {MOST_PAIRS}" if isinf(end) else f"{end:.0f}" if whole else short_number(end)
        for end in known[:1] + known[-1:]
    ]
    return " to ".join(dict.fromkeys(ends)) or DASH


def claim_blocks(judged: Sequence[Judged]) -> list[Block]:
    """Return the verdicts, the claims that were not tested, and every comparison."""
    tested = [one for one in judged if one.verdict != "not tested"]
    left = [
        TableRow(
            one.claim.text,
            [TableCell(one.claim.published or DASH), TableCell(one.claim.untested or DASH)],
        )
        for one in judged
        if one.verdict == "not tested"
    ]
    heads = [
        "claim",
        "measure",
        "comparison",
        "ours",
        "other",
        "difference, 95% interval",
        "pairs",
        "sign",
    ]
    heads += ["p it holds", "p it fails", "resolves", "printed", "needs"]
    rows = [
        _comparison(one, contrast)
        for one in judged
        for contrast in one.contrasts
        if contrast.interval.n
    ]
    if not judged:
        return []
    return list(
        non_empty(
            verdict_table(tested) if tested else None,
            Section(
                f"Not tested: {len(left)} claim{'s' if len(left) > 1 else ''}",
                [Table(("claim", "published", "why"), left)] if left else [],
                folded=True,
            ),
            Section("Every comparison", [Table(heads, rows)] if rows else [], folded=True),
        )
    )


def _comparison(one: Judged, contrast: Contrast) -> TableRow:
    other = contrast.other
    got = contrast.interval
    cells = [
        TableCell(measure_of(one.measure).title if one.measure else DASH),
        TableCell(contrast.label),
        TableCell(_mean(contrast.ours, contrast.ours_exact), contrast.ours.mean),
        TableCell(_mean(other, contrast.other_exact), other.mean) if other else TableCell(DASH),
        TableCell(_interval(one, contrast), got.mean),
        TableCell(str(got.n), got.n),
        TableCell(contrast.verdict, tone=TONES.get(contrast.verdict, "")),
        *(TableCell(_range([number]), number) for number in (*contrast.sides, contrast.resolves)),
        TableCell(_range([contrast.printed]), contrast.printed),
        TableCell(_range([contrast.needs], whole=True), contrast.needs),
    ]
    return TableRow(one.claim.text, cells)


def _mean(one: Spread, exact: bool) -> str:
    return short_number(one.mean) if exact else f"> {short_number(one.mean)}"


def difference_words(one: Judged) -> str:
    """Return the difference of a claim with its interval in words: of its one comparison, or of the
    weakest of several."""
    if len(one.contrasts) == 1:
        return _interval(one, one.contrasts[0])
    got = one.interval
    if not isfinite(got.mean) or not all(contrast.exact for contrast in one.contrasts):
        return DASH
    return _ends(got.mean, got.low, got.high).replace("-", "−")


def _ends(mean: float, low: float, high: float) -> str:
    ends = f" [{short_number(low, mean)}, {short_number(high, mean)}]" if isfinite(low) else ""
    return f"{'+' if mean > 0 else ''}{short_number(mean)}{ends}"


def _interval(judged: Judged, contrast: Contrast) -> str:
    """Mean difference, interval, and how many times the other side ours is; or how far from the
    number of the claim."""
    got = contrast.interval
    claim = judged.claim
    if not isfinite(got.mean) or not (contrast.ours_exact or contrast.other_exact):
        return DASH
    text = _ends(got.mean, got.low, got.high)
    if contrast.other is None:
        text = (
            f"{short_number(contrast.ours.mean)}, that is {text} from "
            f"{claim.above if claim.below is None else claim.below:g}"
        )
    elif judged.measure and measure_of(judged.measure).log:
        text += f", x {exp(got.mean):.3g}"
    elif contrast.other.mean > 0 and isfinite(contrast.ours.mean):
        text += f", x {contrast.ours.mean / contrast.other.mean:.3g}"
    bound = "" if contrast.exact else "at most " if contrast.ours_exact else "at least "
    return (bound + text).replace("-", "−")
