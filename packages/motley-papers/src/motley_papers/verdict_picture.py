"""The picture a recipe's report opens with: where each comparison of each claim lies, on one
scale."""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign, inf, isfinite
from typing import TYPE_CHECKING

from motley.results.blocks import Picture
from motley.results.figures import NARROW, mark, new_figure, shorter, styled, to_svg
from motley_papers.verdicts import Contrast, Judged, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["verdict_picture"]

FARTHEST = 5.0
"""Half widths of an interval from which on a comparison is drawn as an arrow at the edge."""
TONES: dict[Verdict, str] = {"confirmed": "#00694D", "contradicted": "#A84300"}


def verdict_picture(judged: Sequence[Judged]) -> Picture | None:
    """Draw a row for each claim that was tested and a dot for each of its comparisons; None where
    none was tested.

    A dot's place is the mean difference towards the claimed side, in half widths of its interval:
    right of the band the interval lies wholly on the claimed side, left of it wholly on the other,
    and within the band the seeds cannot tell.
    """
    rows = [
        (one, there)
        for one in judged
        if (there := [c for c in one.contrasts if isfinite(c.interval.low)])
    ]
    if not rows:
        return None
    with styled():
        figure = new_figure(NARROW, 0.9 + 0.33 * len(rows))
        axes = figure.add_subplot()
        axes.axvspan(-1, 1, color="#ECECEC", linewidth=0)
        axes.axvline(0, color="#888888", linewidth=0.8)
        for y, (one, contrasts) in enumerate(rows):
            axes.axhline(y + 0.5, color="#ECECEC", linewidth=0.8)
            axes.text(
                -FARTHEST - 0.3, y - 0.2, shorter(one.claim.text, 70), fontsize=7.5, va="center"
            )
            for contrast in contrasts:
                _dot(axes, y, one, contrast)
        axes.set(xlim=(-FARTHEST - 0.3, FARTHEST + 0.3), ylim=(len(rows) - 0.5, -0.7), yticks=[])
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False)
        axes.set_xticks([-3, 0, 3], ["← contradicted", "cannot tell", "as claimed →"])
        axes.tick_params(axis="x", length=0)
        return to_svg(
            figure, "verdicts", f"Where the comparisons of {len(rows)} claims lie: {_counted(rows)}"
        )


def _dot(axes: Axes, y: int, one: Judged, contrast: Contrast) -> None:
    place = distance(one, contrast)
    shape = "o" if abs(place) <= FARTHEST else "<" if place < 0 else ">"
    at = max(-FARTHEST, min(FARTHEST, place))
    colour = TONES.get(contrast.verdict, "#777777")
    drawn = axes.plot(at, y + 0.26, shape, color=colour, markersize=5, alpha=0.8, markeredgewidth=0)
    mark(drawn[0], y, f"{contrast.label}: {contrast.verdict}")


def distance(one: Judged, contrast: Contrast) -> float:
    """Return how far the mean difference lies on the claimed side, in widths of its interval
    towards zero (above 1: all of it)."""
    found = contrast.interval
    towards = (found.mean if one.up else -found.mean) + one.claim.margin
    half = found.mean - found.low if (towards > 0) == one.up else found.high - found.mean
    return towards / half if half else copysign(inf, towards) if towards else 0.0


def _counted(rows: Sequence[tuple[Judged, Sequence[Contrast]]]) -> str:
    words = [contrast.verdict for _, contrasts in rows for contrast in contrasts]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
