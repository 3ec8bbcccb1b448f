"""The picture a recipe's report opens with: the size of every comparison of every claim, with its
interval and the paper's own number."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import isfinite, nan
from typing import TYPE_CHECKING

from motley.results.blocks import DASH, Picture
from motley.results.number_text import short_number
from motley_papers.measuring import measure_of
from motley_papers.verdict_tables import difference_words, words_of
from motley_papers.verdicts import Contrast, Judged, Verdict
from motley_report.figures import NARROW, mark, new_figure, styled, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TONES: dict[Verdict, str] = {"confirmed": "#00694D", "contradicted": "#A84300"}
WIDTH = 84
"""Letters of a line of a claim."""
LINE = 0.145
"""Inches of a line."""
BAR = 0.65
"""Lines that a comparison takes, and the gap between two claims."""


def verdict_picture(judged: Sequence[Judged]) -> Picture | None:
    """Draw for each claim that was tested its sentence, its difference in words, and a dot with a
    bar for each of its comparisons; None where none was tested.

    A dot is the mean difference, right of the middle on the claimed side, in the colour of the
    claim's verdict if its own is the same; its bar is the interval, and a diamond the difference
    that the paper prints, where the runs are the paper's own protocol. Every claim has a scale of
    its own, in the unit of its measure.
    """
    rows = [
        (judgement, there)
        for judgement in judged
        if (there := [c for c in judgement.contrasts if isfinite(c.interval.low)])
    ]
    if not rows:
        return None
    sentences = [textwrap.wrap(judgement.claim.text, WIDTH) for judgement, _ in rows]
    sizes = [textwrap.wrap(_size_words(judgement), WIDTH) for judgement, _ in rows]
    tall = [
        len(sentence) + len(size) + BAR * (len(there) + 1)
        for sentence, size, (_, there) in zip(sentences, sizes, rows, strict=True)
    ]
    with styled():
        figure = new_figure(NARROW, 0.95 + LINE * sum(tall))
        axes = figure.add_subplot()
        axes.axvline(0, color="#888888", linewidth=0.8)
        top = 0.0
        for y, ((judgement, contrasts), sentence, size, height) in enumerate(
            zip(rows, sentences, sizes, tall, strict=True)
        ):
            for i, line in enumerate([*sentence, *size]):
                axes.text(
                    -1.1,
                    top + i + 0.4,
                    line,
                    fontsize=7.5,
                    va="center",
                    color="#555555" if i >= len(sentence) else "#222222",
                    bbox={"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 0.5},
                )
            scale = reach(judgement, contrasts)
            for i, contrast in enumerate(contrasts):
                at = top + len(sentence) + len(size) + BAR * (i + 0.5)
                _draw_contrast(axes, (y, at, scale), judgement, contrast)
            top += height
            axes.axhline(top - BAR / 2, color="#ECECEC", linewidth=0.8)
        axes.set(xlim=(-1.1, 1.1), ylim=(top, -0.3), yticks=[])
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False)
        axes.set_xticks([-0.7, 0, 0.7], ["← against the claim", "its limit", "as claimed →"])
        axes.tick_params(axis="x", length=0)
        printed = any(
            isfinite(printed_here(judgement, c)) for judgement, there in rows for c in there
        )
        figure.suptitle(
            "dot: mean difference, with its 95% interval"
            + ("; diamond: published" if printed else "")
            + "\nEvery claim has a scale of its own.",
            x=0.01,
            ha="left",
            fontsize=8,
        )
        words = words_of(judgement.verdict for judgement, _ in rows)
        about = f"Where the comparisons of {len(rows)} claims lie: {words}"
        return to_svg(figure, "verdicts", about)


def _size_words(judged: Judged) -> str:
    """The verdict, the measure, and the difference of a claim, of the weakest comparison of
    several."""
    title = f"{measure_of(judged.measure).title}, " if judged.measure else ""
    several = f", the weakest of {len(judged.contrasts)}" if len(judged.contrasts) > 1 else ""
    words = difference_words(judged)
    return judged.verdict if words == DASH else f"{judged.verdict}: {title}{words}{several}"


def _draw_contrast(
    axes: Axes, place: tuple[int, float, float], judged: Judged, contrast: Contrast
) -> None:
    """Draw one comparison; ``place``: the claim's number, the height, and the
    difference that a length of 1 stands for."""
    y, at, scale = place
    interval = contrast.interval
    decides = contrast.verdict == judged.verdict
    colour = TONES.get(contrast.verdict, "#777777") if decides else "#777777"
    ends = [towards(judged, end) / scale for end in (interval.low, interval.high)]
    axes.plot(ends, [at, at], color=colour, linewidth=2, alpha=0.4)
    drawn = axes.plot(
        towards(judged, interval.mean) / scale,
        at,
        "o",
        color=colour,
        markersize=4,
        markeredgewidth=0,
    )
    alone = " alone" if contrast.verdict in TONES and not decides else ""
    mark(drawn[0], y, f"{contrast.label}: {contrast.verdict}{alone}")
    printed = printed_here(judged, contrast)
    if isfinite(printed):
        drawn = axes.plot(
            towards(judged, printed) / scale,
            at,
            "D",
            color="#333333",
            markersize=4,
            fillstyle="none",
        )
        mark(drawn[0], y, f"{contrast.label}: published {short_number(printed)}")


def towards(judged: Judged, difference: float) -> float:
    """Return how far a difference lies on the claimed side, in the unit of the measure: above 0 it
    is as claimed, with what the claim allows in the other direction."""
    return (difference if judged.up else -difference) + judged.claim.margin


def printed_here(judged: Judged, contrast: Contrast) -> float:
    """Return the difference that the paper prints; NaN where the runs are not the paper's whole
    protocol, so that it is not the same thing."""
    return contrast.printed if judged.protocol.kind == "whole" else nan


def reach(judged: Judged, contrasts: Sequence[Contrast]) -> float:
    """Return the largest distance from 0 that is drawn for a claim; 1 where all is 0."""
    drawn = [
        towards(judged, value)
        for contrast in contrasts
        for value in (
            contrast.interval.mean,
            contrast.interval.low,
            contrast.interval.high,
            printed_here(judged, contrast),
        )
    ]
    return max((abs(value) for value in drawn if isfinite(value)), default=0.0) or 1.0
