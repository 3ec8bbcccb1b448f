"""The picture of a ranking: how far every entrant lies from the control in every environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, isnan
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from motley.core.arrays import Floats
from motley.results.blocks import Picture
from motley_papers.mean_ranks import Ranking, sign
from motley_report.figures import new_figure, styled, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BETTER = "#00579B"
WORSE = "#B34700"
NEITHER = "#FFFFFF"
NONE = "#C9C9C9"
"""Colours of a large difference for the better and for the worse, of none, and of a cell without a
number."""
FAR = 5.0
"""The difference, in percent points, from which on the colour is full."""
PALE = 0.3
"""Share of its colour that a cell keeps whose interval holds zero."""
LEAST = 0.25
"""Share of the full colour that the smallest difference outside its interval has."""


def difference_map(
    ranking: Ranking, groups: Mapping[str, Sequence[str]], measure: str
) -> Picture | None:
    """Draw a row for each entrant, by group and mean rank, and a column for each environment; None
    where nothing is known.

    Blue is better than the control, orange worse; with three seeds and more a cell is pale where
    the 95 % interval holds zero. A cell without a number is grey.

    Parameters
    ----------
    measure: its title; the unit is percent points.
    """
    rows = rows_of(ranking, groups)
    if not rows or not ranking.environments:
        return None
    grid = np.array(
        [
            [_rgb(ranking, environment, entrant) for environment in ranking.environments]
            for _, entrant in rows
        ]
    )
    places = {standing.entrant: standing.mean_rank for standing in ranking.standings}
    with styled():
        figure = new_figure(4.2 + 0.24 * len(ranking.environments), 2.2 + 0.165 * len(rows))
        axes = figure.add_subplot()
        axes.imshow(grid, aspect="auto", interpolation="nearest")
        labels = [
            f"{entrant}  {places[entrant]:.1f}" if entrant in places else entrant
            for _, entrant in rows
        ]
        axes.set_yticks(range(len(rows)), labels, fontsize=7)
        axes.set_xticks(
            range(len(ranking.environments)),
            ranking.environments,
            rotation=55,
            ha="left",
            fontsize=7.5,
        )
        axes.tick_params(
            axis="x", top=True, labeltop=True, bottom=False, labelbottom=False, length=2
        )
        axes.tick_params(axis="y", length=0)
        _separate(axes, rows, len(ranking.environments))
        axes.set_xlabel("\n".join(wrap(legend(ranking), 90)), fontsize=7.5)
        about = (
            f"{measure}: difference of {len(rows)} entrants to {ranking.control} in "
            f"{len(ranking.environments)} environments"
        )
        return to_svg(figure, "differences", about)


def rows_of(ranking: Ranking, groups: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Return (group, entrant) for each row: groups by their best entrant, entrants by mean rank,
    unranked ones last in their group."""
    order = [standing.entrant for standing in ranking.standings] + list(ranking.unranked)
    place = {entrant: i for i, entrant in enumerate(order)}
    placed = {
        title: sorted((entrant for entrant in names if entrant in place), key=place.__getitem__)
        for title, names in groups.items()
    }
    titles = sorted(
        (title for title, names in placed.items() if names),
        key=lambda title: place[placed[title][0]],
    )
    return [(title, entrant) for title in titles for entrant in placed[title]]


def cell_colour(difference: float, sure: bool | None) -> Floats:
    """Return red, green and blue in [0, 1] of a difference in percent points; NaN is a cell without
    a number.

    Parameters
    ----------
    sure: whether its interval excludes zero; None where that says nothing.
    """
    from matplotlib.colors import to_rgb

    if isnan(difference):
        return np.array(to_rgb(NONE))
    end = np.array(to_rgb(BETTER if difference > 0 else WORSE))
    share = min(1.0, abs(difference) / FAR)
    if sure is not None:
        share = max(share, LEAST) if sure else PALE * share
    return np.asarray((1 - share) * np.array(to_rgb(NEITHER)) + share * end)


def _rgb(ranking: Ranking, environment: str, entrant: str) -> Floats:
    difference = ranking.differences.get((environment, entrant))
    if difference is None:
        return cell_colour(float("nan"), sure=False)
    if not isfinite(difference.mean):
        return cell_colour(-FAR, sure=True)  # a run that diverged
    return cell_colour(difference.mean, sign(difference) != 0 if ranking.judged else None)


def _separate(axes: Axes, rows: Sequence[tuple[str, str]], columns: int) -> None:
    """Draw white lines between cells, a wider gap between groups, and the groups' titles at the
    right."""
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(visible=False, which="major")
    axes.grid(which="minor", color="#FFFFFF", linewidth=1.0)
    axes.tick_params(which="minor", length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    starts = [i for i, (title, _) in enumerate(rows) if i == 0 or rows[i - 1][0] != title]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        if start:
            axes.axhline(start - 0.5, color="#222222", linewidth=1.2)
        axes.text(
            columns - 0.3,
            (start + end - 1) / 2,
            rows[start][0],
            rotation=270,
            va="center",
            ha="left",
            fontsize=7.5,
        )


def legend(ranking: Ranking) -> str:
    """Return what the colours say, in words."""
    pale = "pale where the 95 % interval holds zero, " if ranking.judged else ""
    return (
        f"blue is better than {ranking.control} and orange worse; colours are full from {FAR:g} "
        f"points on, {pale}and grey without a number. Behind each name stands its mean rank."
    )
