"""The pictures of an exhibit: those of a report for each panel, and three that compare cells.

A panel is a combination of all axes but the last; the values of the last are its methods.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from motley.results.blocks import Picture
from motley.results.load import Run
from motley.results.measures import Axis, Spread
from motley.results.number_text import plus_minus, short_number
from motley_report import plots, selection_plots
from motley_report.figures import (
    NARROW,
    colour,
    dash,
    dot,
    draw_line,
    mark,
    new_figure,
    shorter,
    styled,
    to_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NamedCell = tuple[str, ...]

MANY = 40
"""With more cells than this, a row of ``beside`` holds all methods of a panel instead of one
cell."""


@dataclass(frozen=True)
class ExhibitData:
    """The runs and measures of an exhibit that pictures are drawn from.

    Parameters
    ----------
    axes: name -> values, as far as there are runs.
    runs: cell -> its runs.
    measured: measure -> cell -> mean and spread over seeds.
    bounds: measure -> cells that are lower bounds.
    published: values of the paper.
    titles: measure -> title of its axis.
    curves: cell -> its runs with those of which the evaluations alone were kept; ``runs`` where it
    is left out.
    """

    axes: Mapping[str, Sequence[str]]
    runs: Mapping[NamedCell, Sequence[Run]]
    measured: Mapping[str, Mapping[NamedCell, Spread]]
    bounds: Mapping[str, Set[NamedCell]]
    published: Mapping[str, Mapping[NamedCell, float]]
    titles: Mapping[str, str]
    curves: Mapping[NamedCell, Sequence[Run]] | None = None

    def panels(self, evaluations: bool = False) -> Iterator[tuple[str, dict[str, Sequence[Run]]]]:
        """Yield the title of each panel, and its methods: label -> runs. ``evaluations``: those
        with evaluations alone, too."""
        runs = self.curves if evaluations and self.curves is not None else self.runs
        *outer, last = self.axes.values() or [()]
        for head in itertools.product(*outer):
            groups = {value: runs[*head, value] for value in last if runs.get((*head, value))}
            if groups:
                yield ", ".join(head), groups


class PanelPicture(NamedTuple):
    """A picture, the title of its panel, and the methods in it in the order of their colours (none:
    it is not about methods)."""

    title: str
    methods: Sequence[str]
    picture: Picture


def draw(kind: str, shown: ExhibitData) -> list[PanelPicture]:
    """Return the pictures of one kind, e.g. ``curves:seconds`` (an axis or a measure after the
    colon)."""
    name, _, argument = kind.partition(":")
    return list(PICTURES[name](shown, argument))


def _each(
    plot: Callable[[Mapping[str, Sequence[Run]]], Picture | None],
    evaluations: bool = False,
) -> Callable[[ExhibitData, str], Iterator[PanelPicture]]:
    def drawn(shown: ExhibitData, argument: str) -> Iterator[PanelPicture]:
        for title, groups in shown.panels(evaluations):
            picture = plot(groups)
            if picture is not None:
                yield PanelPicture(title, list(groups), picture)

    return drawn


def _curves(shown: ExhibitData, argument: str) -> Iterator[PanelPicture]:
    for title, groups in shown.panels(evaluations=True):
        yield PanelPicture(
            title, list(groups), plots.curves(groups, cast(Axis, argument or "round"))
        )


def _curves_with_end(shown: ExhibitData, argument: str) -> Iterator[PanelPicture]:
    for title, groups in shown.panels(evaluations=True):
        axis = cast(Axis, argument or "round")
        yield PanelPicture(title, list(groups), plots.curves(groups, axis, inset=True))


def _components(shown: ExhibitData, argument: str) -> Iterator[PanelPicture]:
    for title, groups in shown.panels():
        yield from (
            PanelPicture(title, list(groups), picture)
            for picture in selection_plots.components(groups)
        )


def _classes(shown: ExhibitData, argument: str) -> Iterator[PanelPicture]:
    for title, groups in shown.panels():
        picture = selection_plots.class_distribution(next(iter(groups.values()))[0])
        if picture is not None:
            yield PanelPicture(title, [], picture)


def _measured_and_published(shown: ExhibitData, argument: str) -> Iterator[PanelPicture]:
    """Measured (dot, one standard deviation; a lower bound: triangle) beside published (diamond): a
    row a cell; a row a panel where there are more than :data:`MANY` cells, one method below the
    other in it."""
    measured = shown.measured[argument]
    published = shown.published.get(argument, {})
    bounds = shown.bounds[argument]
    if not measured:
        return
    last = list(list(shown.axes.values())[-1]) if shown.axes else [""]
    together = len(measured) > MANY and len(shown.axes) > 1
    row_of = {cell: cell[:-1] if together else cell for cell in measured}
    rows = list(dict.fromkeys(row_of.values()))
    names = [shorter(" / ".join(row), 44) for row in rows]
    with styled():
        narrow = max(map(len, names)) <= 34  # what fits a phone is not scrolled there
        height = max(0.22, 0.065 * len(last)) if together else 0.22
        figure = new_figure(NARROW if narrow else 8.4, 1.0 + height * len(rows))
        axes = figure.add_subplot()
        for cell, value in measured.items():
            i = last.index(cell[-1]) if cell else 0
            y = rows.index(row_of[cell]) + (
                0.85 * ((i + 0.5) / len(last) - 0.5) if together else 0.0
            )
            _draw_cell(
                axes=axes,
                y=y,
                method=i,
                value=value,
                bound=cell in bounds,
                printed=published.get(cell, float("nan")),
                small=together,
            )
        axes.set_yticks(range(len(rows)), names, fontsize=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        if together:
            axes.hlines(
                np.arange(1, len(rows)) - 0.5,
                0,
                1,
                transform=axes.get_yaxis_transform(),
                colors="#ECECEC",
                linewidth=0.8,
            )
            of_methods = [
                axes.plot([], [], dot(i), color=colour(i), label=label)[0]
                for i, label in enumerate(last)
            ]
            figure.legend(
                handles=of_methods, loc="outside lower left", ncols=4, frameon=False, fontsize=8
            )
        printed = any(cell in published for cell in measured)
        legend = [
            *(["triangle: at least"] if bounds else []),
            *(["diamond: published"] if printed else []),
        ]
        figure.suptitle(
            "; ".join(["dot: mean, with one standard deviation", *legend]),
            x=0.01,
            ha="left",
            fontsize=8,
        )
        axes.set(xlabel=shown.titles[argument])
        beside = ", measured and published," if printed else ""
        about = f"{shown.titles[argument]}{beside} of {len(measured)} cells"
        yield PanelPicture("", last, to_svg(figure, "beside", about))


def _draw_cell(
    axes: Axes, y: float, method: int, value: Spread, bound: bool, printed: float, small: bool
) -> None:
    """Draw one cell of ``beside`` at the height ``y``; ``small``: in a shared row, its diamond in
    its colour."""
    std = float(np.nan_to_num(value.std))
    hue = colour(method)
    size = 4 if small else 6
    words = f"{'at least ' if bound else ''}{plus_minus(value)}"
    draw_line(
        axes,
        method,
        [value.mean - std, value.mean + std],
        [y, y],
        style={"color": hue, "linewidth": size / 2, "alpha": 0.35},
        text=words,
    )
    draw_line(
        axes,
        method,
        value.mean,
        y,
        form=">" if bound else dot(method),
        style={"color": hue, "markersize": size},
        text=words,
    )
    if isfinite(printed):
        drawn = axes.plot(
            printed,
            y,
            "D",
            color=hue if small else "#333333",
            markersize=size - 1,
            fillstyle="none",
        )
        mark(drawn[0], method, f"published {short_number(printed)}")


def _line(shown: ExhibitData, argument: str) -> Iterator[PanelPicture]:
    """A measure against the first axis, a line for each combination of the others; diamonds:
    published, triangles: lower bounds."""
    measured = shown.measured[argument]
    published = shown.published.get(argument, {})
    bounds = shown.bounds[argument]
    first, *further = shown.axes
    ticks = list(shown.axes[first])
    lines = list(itertools.product(*(shown.axes[axis] for axis in further)))
    with styled():
        figure = new_figure(5.6, 3.5)
        axes = figure.add_subplot()
        for i, line in enumerate(lines):
            at = [
                x
                for x, tick in enumerate(ticks)
                if (tick, *line) in measured and (tick, *line) not in bounds
            ]
            values = [measured[ticks[x], *line] for x in at]
            means = np.array([s.mean for s in values])
            stds = np.nan_to_num([s.std for s in values])
            label = " / ".join(line) or "measured"
            draw_line(
                axes,
                i,
                at,
                means,
                style={"marker": dot(i), "linestyle": dash(i), "markersize": 4, "label": label},
            )
            mark(
                axes.fill_between(
                    at, means - stds, means + stds, color=colour(i), alpha=0.16, linewidth=0
                ),
                i,
            )
            least = [x for x, tick in enumerate(ticks) if (tick, *line) in bounds]
            heights = [measured[ticks[x], *line].mean for x in least]
            draw_line(axes, i, least, heights, form="^", style={"markersize": 6})
            there = [
                x
                for x, tick in enumerate(ticks)
                if isfinite(published.get((tick, *line), float("nan")))
            ]
            heights = [published[ticks[x], *line] for x in there]
            draw_line(
                axes, i, there, heights, form="D", style={"markersize": 6, "fillstyle": "none"}
            )
        axes.set_xticks(range(len(ticks)), ticks)
        legend = [
            *(["diamonds: published"] if published else []),
            *(["triangles: at least"] if bounds else []),
        ]
        title = shown.titles[argument] + (f" ({', '.join(legend)})" if legend else "")
        axes.set(xlabel=first, ylabel=shown.titles[argument], title=title)
        short = sum(len(" / ".join(line)) for line in lines) <= 40  # all beside each other
        figure.legend(
            loc="outside lower left", ncols=len(lines) if short else 3, frameon=False, fontsize=8
        )
        # one axis alone: one line, of no method
        methods = [" / ".join(line) for line in lines if line]
        yield PanelPicture(
            "", methods, to_svg(figure, "line", f"{shown.titles[argument]} against {first}")
        )


def _heat(shown: ExhibitData, argument: str) -> Iterator[PanelPicture]:
    """A measure over the first two axes, a panel for each value of the last; of two, their
    difference as well."""
    measured = shown.measured[argument]
    rows, columns, last = (list(values) for values in list(shown.axes.values())[:3])
    maps = {
        name: np.array([[_mean(measured, (r, c, name)) for c in columns] for r in rows])
        for name in last
    }
    if len(maps) == 2:
        (a, first), (b, second) = maps.items()
        maps[f"{a} - {b}"] = first - second
    with styled():
        figure = new_figure(8.4, 2.9)
        panels = figure.subplots(1, len(maps), squeeze=False)[0]
        shared = np.concatenate([grid.ravel() for grid in list(maps.values())[: len(last)]])
        for number, (axes, (name, grid)) in enumerate(zip(panels, maps.items(), strict=True)):
            difference = number >= len(last)
            low = float(np.nanmin(shared))
            high = float(np.nanmax(shared))
            most = float(np.nanmax(np.abs(grid))) if np.isfinite(grid).any() else 1.0
            if difference:
                scale = {"cmap": "RdBu", "vmin": -most, "vmax": most}
            else:
                scale = {"cmap": "cividis", "vmin": low, "vmax": high}
            image = axes.imshow(grid, aspect="auto", origin="lower", **scale)
            axes.set_xticks(range(len(columns)), columns)
            axes.set_yticks(range(len(rows)), rows)
            axes.set(
                title=name,
                xlabel=list(shown.axes)[1],
                ylabel=next(iter(shown.axes)) if number == 0 else "",
            )
            axes.grid(visible=False)
            figure.colorbar(image, ax=axes, pad=0.02)
            for y, x in np.ndindex(grid.shape):
                dark = not difference and grid[y, x] < (low + high) / 2
                axes.text(
                    x,
                    y,
                    f"{round(float(grid[y, x]), 1) + 0.0:.1f}",  # no -0.0
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    color="#FFFFFF" if dark else "#111111",
                )
        about = (
            f"{shown.titles[argument]} over {' and '.join(list(shown.axes)[:2])}: {', '.join(maps)}"
        )
        yield PanelPicture("", [], to_svg(figure, "heat", about))


def _mean(measured: Mapping[NamedCell, Spread], cell: NamedCell) -> float:
    return measured[cell].mean if cell in measured else float("nan")


PICTURES: dict[str, Callable[[ExhibitData, str], Iterator[PanelPicture]]] = {
    "curves": _curves,
    "curves_with_end": _curves_with_end,
    "bars": _each(plots.headline_bars, evaluations=True),
    "participation": _each(plots.participation_bars),
    "concentration": _each(plots.concentration),
    "clients": _each(plots.client_curves),
    "shares": _each(selection_plots.shares),
    "shares_by_score": _each(selection_plots.shares_by_score),
    "components": _components,
    "classes": _classes,
    "beside": _measured_and_published,
    "line": _line,
    "heat": _heat,
}
"""Name -> the pictures of an exhibit. ``curves:AXIS``, or ``curves_with_end:AXIS`` with an inset of
the last rounds; ``beside``, ``line`` and ``heat:MEASURE``."""
BY_MEASURE = ("beside", "line", "heat")
"""Pictures that show a measure, named after the colon."""
AXES_OF = {"line": 1, "heat": 3}
"""Pictures that need so many axes."""
