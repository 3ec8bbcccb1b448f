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
    own = [
        judgement
        for judgement in judged
        if judgement.claim.source and judgement.protocol.kind != "theory"
    ]
    words = [judgement.verdict for judgement in own]
    return {word: words.count(word) for word in ORDER if word in words}


def words_of(verdicts: Iterable[str]) -> str:
    """Return ``2 confirmed, 1 not tested``."""
    words = list(verdicts)
    return ", ".join(f"{words.count(word)} {word}" for word in ORDER if word in words)


def sizes_of(sizes: Sequence[str]) -> str:
    """Return ``1 inside, 2 outside, 3 too wide to tell`` of :attr:`Judged.size`."""
    outside = sizes.count("above") + sizes.count("below")
    inside, wide = sizes.count("inside"), sizes.count("too wide")
    return f"{inside} inside, {outside} outside, {wide} too wide to tell"


def counted_words(judged: Sequence[Judged]) -> list[Block]:
    """Say what became of the paper's own claims by scale, and of ours."""
    sentences = []
    for kind in KINDS:
        tested = [
            judgement.verdict
            for judgement in judged
            if judgement.claim.source and judgement.protocol.kind == kind
        ]
        sentences += [f"{_TESTED_AT[kind]} {words_of(tested)}"] if tested else []
    ours = [judgement.verdict for judgement in judged if not judgement.claim.source]
    if sentences:
        texts = [f"The paper's own claims, after Holm's correction: {'; '.join(sentences)}."]
    else:
        texts = []
    texts += [f"Claims of ours, corrected apart: {words_of(ours)}."] if ours else []
    sizes = [judgement.size for judgement in judged if judgement.claim.source and judgement.size]
    if sizes:
        texts.append(f"Printed differences, by their intervals: {sizes_of(sizes)}.")
    return [Text(" ".join(texts))] if texts else []


def verdict_table(judged: Sequence[Judged]) -> Table:
    """Return the table of verdicts, one row per claim: the paper's own first, claims without runs
    last."""
    rows = [
        TableRow(judgement.claim.text, _claim_cells(judgement))
        for judgement in sorted(
            judged,
            key=lambda judgement: (judgement.verdict == "not tested", not judgement.claim.source),
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


def _title(judged: Judged) -> str:
    """Return what is compared, a deviation over seeds where the claim is about spreads."""
    title = measure_of(judged.measure).title
    return f"deviation over seeds of {title}" if judged.claim.of == "spread" else title


def _claim_cells(judged: Judged) -> list[TableCell]:
    words = difference_words(judged)
    words = f"{_title(judged)}: {words}" if words != DASH and judged.measure else words
    if len(judged.contrasts) > 1 and words != DASH:
        words += f" (weakest of {len(judged.contrasts)})"
    printed = "printed" if len(judged.contrasts) == 1 else "least printed"
    words += " (looks)" if any(contrast.looks for contrast in judged.contrasts) else ""
    return [
        TableCell(judged.claim.source or "ours"),
        TableCell(judged.protocol.words),
        *(TableCell(word, tone=TONES.get(word, "")) for word in (judged.verdict, judged.alone)),
        TableCell(judged.claim.published),
        TableCell(judged.claim.untested or judged.claim.counterexample or words),
        TableCell(f"{printed} {_range([judged.printed])}: {judged.size}" if judged.size else DASH),
        TableCell(_range([contrast.resolves for contrast in judged.contrasts])),
        TableCell(_range([contrast.needs for contrast in judged.contrasts], pairs=True)),
        TableCell(_would_decide(judged)),
    ]


def _would_decide(judged: Judged) -> str:
    """Return the pairs that would decide an undecided claim, of the comparison that needs most."""
    if judged.verdict != "undecided":
        return DASH
    return _range([max(c.decided_by(judged.family) for c in judged.contrasts)], pairs=True)


def _note(judged: Sequence[Judged]) -> str:
    theirs = max((judgement.family for judgement in judged if judgement.claim.source), default=0)
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
        contrast.looks
        for judgement in judged
        for contrast in judgement.contrasts
        if contrast.looks is not None
    }
    for plan in sorted(looks):
        ends = ", then ".join(map(str, plan.ends))
        each = "after every pair" if plan.each else "at each of these numbers"
        note += (
            f" Looks: at most {ends} pairs, seen {each}; the last may spend "
            f"{5 * plan.share(plan.most):.2g} % of chance, "
            f"{sum(5 * plan.share(end) for end in plan.ends):.3g} % with all before it."
        )
    return note


def _range(numbers: Sequence[float], pairs: bool = False) -> str:
    """Return the least and the most of some numbers, or of numbers of pairs (``pairs``)."""
    finite = sorted(number for number in numbers if not isnan(number))
    text = "{:.0f}".format if pairs else short_number
    ends = [f"> {MOST_PAIRS}" if isinf(end) else text(end) for end in finite[:1] + finite[-1:]]
    return " to ".join(dict.fromkeys(ends)) or DASH


def claim_blocks(judged: Sequence[Judged]) -> list[Block]:
    """Return the verdicts, the claims that were not tested, and every comparison."""
    tested = [judgement for judgement in judged if judgement.verdict != "not tested"]
    left = [
        TableRow(
            judgement.claim.text,
            [
                TableCell(judgement.claim.published or DASH),
                TableCell(judgement.claim.untested or DASH),
            ],
        )
        for judgement in judged
        if judgement.verdict == "not tested"
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
        _comparison(judgement, contrast)
        for judgement in judged
        for contrast in judgement.contrasts
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


def _comparison(judged: Judged, contrast: Contrast) -> TableRow:
    rival = contrast.rival
    interval = contrast.interval
    cells = [
        TableCell(_title(judged) if judged.measure else DASH),
        TableCell(contrast.label),
        TableCell(_mean(contrast.ours, contrast.ours_exact), contrast.ours.mean),
        TableCell(_mean(rival, contrast.rival_exact), rival.mean) if rival else TableCell(DASH),
        TableCell(_interval(judged, contrast), interval.mean),
        TableCell(str(interval.n), interval.n),
        TableCell(contrast.verdict, tone=TONES.get(contrast.verdict, "")),
        *(TableCell(_range([number]), number) for number in (*contrast.sides, contrast.resolves)),
        TableCell(_range([contrast.printed]), contrast.printed),
        TableCell(_range([contrast.needs], pairs=True), contrast.needs),
    ]
    return TableRow(judged.claim.text, cells)


def _mean(spread: Spread, exact: bool) -> str:
    return short_number(spread.mean) if exact else f"> {short_number(spread.mean)}"


def difference_words(judged: Judged) -> str:
    """Return the difference of a claim with its interval in words: of its one comparison, or of the
    weakest of several."""
    if len(judged.contrasts) == 1:
        return _interval(judged, judged.contrasts[0])
    interval = judged.interval
    if not isfinite(interval.mean) or not all(contrast.exact for contrast in judged.contrasts):
        return DASH
    return _ends(interval.mean, interval.low, interval.high).replace("-", "−")


def _ends(mean: float, low: float, high: float) -> str:
    ends = f" [{short_number(low, mean)}, {short_number(high, mean)}]" if isfinite(low) else ""
    return f"{'+' if mean > 0 else ''}{short_number(mean)}{ends}"


def _interval(judged: Judged, contrast: Contrast) -> str:
    """Mean difference, interval, and how many times the other side ours is; or how far from the
    number of the claim."""
    interval = contrast.interval
    claim = judged.claim
    if not isfinite(interval.mean) or not (contrast.ours_exact or contrast.rival_exact):
        return DASH
    text = _ends(interval.mean, interval.low, interval.high)
    if contrast.rival is None:
        text = (
            f"{short_number(contrast.ours.mean)}, that is {text} from "
            f"{claim.above if claim.below is None else claim.below:g}"
        )
    elif judged.measure and measure_of(judged.measure).log:
        text += f", x {exp(interval.mean):.3g}"
    elif contrast.rival.mean > 0 and isfinite(contrast.ours.mean):
        text += f", x {contrast.ours.mean / contrast.rival.mean:.3g}"
    if not contrast.exact:
        text = f"at most {text}" if contrast.ours_exact else f"at least {text}"
    return text.replace("-", "−")
