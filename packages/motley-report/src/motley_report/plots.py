"""The figures of a report: each function takes runs grouped by method and returns one picture.

``groups`` maps a method's label to its runs (one per seed), in the order of rows; numbers of
methods, which give colours, are those of :func:`motley.results.method_groups.method_numbers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from motley.results import measures
from motley.results.blocks import Picture
from motley.results.labels import clock
from motley.results.load import Run
from motley.results.method_groups import method_numbers
from motley.results.method_rows import JUDGED, End, MethodRow, method_rows
from motley.results.number_text import plus_minus, short_number
from motley.results.recorded_metrics import common_metric, metric_in_text, metric_in_title
from motley_report.figures import (
    FAINT,
    NARROW,
    add_legend,
    client_groups,
    colour,
    columns_of,
    dash,
    draw_line,
    group_edges,
    grouping,
    in_lines,
    lines_of,
    mark,
    mean_by_share,
    new_figure,
    panel_grid,
    panel_name,
    spread_apart,
    styled,
    to_svg,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "client_curves",
    "concentration",
    "curves",
    "headline_bars",
    "participation_bars",
    "target_bars",
]

Groups = Mapping[str, Sequence[Run]]
DIRECT = 7
"""Up to so many methods share one picture and are named at the ends of their lines; more get a
panel or a row each."""
END = 0.2
"""Share of the rounds that an inset shows."""
WIDE = 4.0
"""Traffic is shown on a logarithmic axis where one method's is above so many times another's."""
NEAR = 0.25
"""Bars whose ends all lie within this share of the longest would look alike: they become points, on
an axis without 0."""
BESIDE = 4
"""Up to so many bars of one kind have their numbers above them; of more the numbers would touch,
and the table has them."""
BEHIND = 60
"""Points at most of each grey line behind the curve of a small panel, evenly taken from its
evaluations."""
PANELS = 5
"""Small panels beside each other."""
BESIDE_LINES = 2
"""Lines of a name beside the end of a curve, at most."""


def curves(groups: Groups, axis: measures.Axis, inset: bool = False) -> Picture:
    """Draw the headline metric against rounds, time or traffic: mean over seeds, shaded by one
    standard deviation; with ``inset`` the last fifth once more, larger, where the methods share a
    panel."""
    bands = [measures.band([measures.curve(run, axis) for run in runs]) for runs in groups.values()]
    longest = max((float(b.x[-1]) for b in bands if len(b.x)), default=1.0)
    scale, label, title = _axis_words(axis, longest, clock(groups))
    name, percent, better = _metric(groups)
    if len(groups) > DIRECT:
        return _panels(
            groups,
            bands,
            scale,
            label,
            title=f"{metric_in_title(name.split(' (')[0])} {title}",
            axis=axis,
        )
    with styled():
        figure = new_figure(NARROW, 3.3)
        axes = figure.add_subplot()
        shades = []
        for i, band in zip(method_numbers(groups), bands, strict=True):
            y = [np.asarray(v) * percent for v in (band.mean, band.low, band.high)]
            step: Literal["post"] | None = None if axis == "round" else "post"
            style = {
                "color": colour(i),
                "linestyle": dash(i),
                "drawstyle": "steps-post" if step else "default",
            }
            mark(axes.plot(band.x * scale, y[0], **style)[0], i)
            shade = axes.fill_between(
                band.x * scale, y[1], y[2], color=colour(i), alpha=0.16, linewidth=0, step=step
            )
            shades.append(mark(shade, i))
        title = f"{metric_in_title(name.split(' (')[0])} {title}"
        axes.margins(x=0)
        axes.set_xlim(left=0)
        if axis == "round":
            whole_numbers(axes)
        _show_where_they_differ(axes, [b.mean * percent for b in bands if len(b.x)], better)
        bottom, top = axes.get_ylim()
        # they would fill it
        if any(
            len(b.x) and float(np.median(b.high - b.low)) * percent > top - bottom for b in bands
        ):
            title += " (seeds differ by more than this range)"
            for shade in shades:
                shade.remove()
        axes.set(ylabel=name, title=title)
        if inset:
            _inset_of_the_end(axes, groups, bands, scales=(scale, percent), better=better)
        if axis in ("bits", "paper_bits") and _logarithmic(
            axes, [b.x * scale for b in bands if len(b.x)]
        ):
            label += ", logarithmic"
        axes.set_xlabel(label)
        _name_lines(
            axes,
            groups,
            [(b.x[-1] * scale, b.mean[-1] * percent) if len(b.x) else None for b in bands],
        )
        return to_svg(
            figure,
            f"curve-{axis}",
            f"{name} over {label}, {len(groups)} methods: {', '.join(groups)}",
        )


def _inset_of_the_end(
    axes: Axes,
    groups: Groups,
    bands: Sequence[measures.Band],
    scales: tuple[float, float],
    better: bool,
) -> None:
    """Draw the means over the last fifth once more, in the corner that rising or falling curves
    leave free."""
    begin = (1.0 - END) * max((float(band.x[-1]) for band in bands if len(band.x)), default=0.0)
    inner = axes.inset_axes((0.45, 0.12 if better else 0.5, 0.5, 0.38))
    for i, band in zip(method_numbers(groups), bands, strict=True):
        late = np.asarray(band.x) >= begin
        x = np.asarray(band.x)[late] * scales[0]
        y = np.asarray(band.mean)[late] * scales[1]
        mark(inner.plot(x, y, color=colour(i), linestyle=dash(i), linewidth=1.0)[0], i)
    inner.margins(x=0)
    inner.tick_params(labelsize=7)
    axes.indicate_inset_zoom(inner)


def _logarithmic(axes: Axes, spent: Sequence[NDArray[np.float64]]) -> bool:
    """Make the axis logarithmic where one method spends far more than another; return whether it
    is."""
    from matplotlib.ticker import LogLocator

    ends = [float(x[-1]) for x in spent]
    if len(ends) < 2 or not max(ends) > WIDE * min(ends) > 0:
        return False
    first = 0.8 * min(float(x[x > 0][:2][-1]) for x in spent)
    axes.set_xscale("log")
    axes.set_xlim(first, max(ends))
    if max(ends) < 300 * first:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return True


def _show_where_they_differ(axes: Axes, means: Sequence[NDArray[np.float64]], better: bool) -> None:
    """Cut off the first rise of the curves where all but the first tenth of the evaluations (one at
    least) need less than half of the range."""
    if not means:
        return
    sign = 1.0 if better else -1.0
    everything = np.concatenate(means) * sign
    late = np.concatenate([m[max(1, len(m) // 10) if len(m) > 3 else 0 :] for m in means]) * sign
    worst = float(late.min())
    best = float(everything.max())
    if best > worst > (float(everything.min()) + best) / 2:
        bounds = sorted(
            (sign * (worst - 0.6 * (best - worst)), sign * (best + 0.15 * (best - worst)))
        )
        axes.set_ylim(*bounds)


def _panels(
    groups: Groups,
    bands: Sequence[measures.Band],
    scale: float,
    label: str,
    title: str,
    axis: measures.Axis,
) -> Picture:
    """Draw one small panel for each of many methods: its curve in colour, those of all others in
    grey."""
    name, percent, better = _metric(groups)
    rows = -(-len(groups) // PANELS)
    step = "default" if axis == "round" else "steps-post"
    with styled():
        names = [panel_name(label, PANELS) for label in groups]
        figure = new_figure(8.4, 0.7 + (1.1 + 0.15 * lines_of(names)) * rows)
        grid = panel_grid(figure, len(groups), PANELS, sharex=True, sharey=True)
        for i, method, own, axes in zip(method_numbers(groups), names, bands, grid, strict=True):
            for rival in bands:
                at = np.unique(
                    np.linspace(0, max(len(rival.x) - 1, 0), min(len(rival.x), BEHIND)).astype(
                        np.int64
                    )
                )
                axes.plot(
                    rival.x[at] * scale,
                    rival.mean[at] * percent,
                    color=FAINT,
                    linewidth=0.7,
                    drawstyle=step,
                )
            draw_line(
                axes,
                i,
                own.x * scale,
                own.mean * percent,
                style={"linewidth": 1.6, "drawstyle": step},
            )
            axes.set_title(method, fontsize=8, fontweight="bold", color=colour(i), pad=3)
            axes.tick_params(labelsize=7)
            axes.margins(x=0)
            if axis == "round":
                whole_numbers(axes)
        _show_where_they_differ(
            grid[0], [band.mean * percent for band in bands if len(band.x)], better
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        figure.supxlabel(label, fontsize=9)
        figure.supylabel(name, fontsize=9)
        return to_svg(
            figure, f"curve-{axis}", f"{title}, one panel for each of {', '.join(groups)}"
        )


def _dots(groups: Groups, rows: Sequence[MethodRow], name: str) -> Picture:
    """Draw many methods as rows: stable with its whisker, beside peak and final; final in its place
    where a run has no stable."""
    kind: End = "stable" if all(np.isfinite(row.end("stable").mean) for row in rows) else "final"
    with styled():
        names = [in_lines(label, 36) for label in groups]
        figure = new_figure(8.4, 0.9 + (0.09 + 0.13 * lines_of(names)) * len(groups))
        axes = figure.add_subplot()
        for y, (i, row) in enumerate(zip(method_numbers(groups), rows, strict=True)):
            judged, final, peak = (row.end(end) for end in (kind, "final", "peak"))
            shade = colour(i)
            std = float(np.nan_to_num(judged.std))
            text = f"{kind} {plus_minus(judged)}"
            draw_line(
                axes,
                i,
                [judged.mean - std, judged.mean + std],
                [y, y],
                style={"linewidth": 3, "alpha": 0.35, "color": shade},
                text=text,
            )
            draw_line(
                axes,
                i,
                judged.mean,
                y,
                form="o",
                style={"markersize": 6, "color": shade},
                text=text,
            )
            last = axes.plot(final.mean, y, "|", markersize=9, markeredgewidth=1.6, color=shade)
            mark(last[0], i, f"final {plus_minus(final)}")
            best = axes.plot(peak.mean, y, ">", markersize=4, fillstyle="none", color=shade)
            mark(best[0], i, f"peak {plus_minus(peak)}")
        axes.set_yticks(range(len(groups)), names, fontsize=8)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(
            xlabel=name,
            title=f"{JUDGED[kind].capitalize()} (dot, one standard deviation), last (|) and best "
            "(>)",
        )
        return to_svg(figure, "bars", f"{kind.capitalize()}, final and peak of {', '.join(groups)}")


def headline_bars(groups: Groups) -> Picture:
    """Draw peak, final and stable side by side, and the drop from peak to final; whiskers are one
    standard deviation over seeds."""
    name, percent, _ = _metric(groups)
    rows = method_rows(groups)
    numbers = method_numbers(groups)
    if len(groups) > DIRECT:
        return _dots(groups, rows, name)
    with styled():
        figure = new_figure(8.4, 3.05)
        left, right = figure.subplots(1, 2, width_ratios=[3, 1.15])
        stable = any(np.isfinite(row.end("stable").mean) for row in rows)
        kinds = ("peak", "final", "stable") if stable else ("peak", "final")
        _grouped_bars(left, numbers, rows, kinds)
        left.set(
            ylabel=name,
            title=f"Best, last, and {JUDGED['stable']}" if stable else "Best and last evaluation",
        )
        _grouped_bars(right, numbers, rows, ("drop",))
        right.set(ylabel="points" if percent == 100 else name, title="Lost since the peak")
        add_legend(figure, *_handles(groups), size=9)
        return to_svg(
            figure, "bars", f"Peak, final,{' stable' * stable} and drop of {', '.join(groups)}"
        )


def target_bars(groups: Groups, target: float) -> Picture:
    """Draw rounds, time and traffic to the target, means over seeds with one standard deviation; a
    bar that is only a lower bound, because a seed never got there, is pale and has an arrow."""
    kinds: tuple[measures.Axis, ...] = ("round", "seconds", "bits")
    ways = [
        [[measures.until_target(run, axis, target) for run in runs] for runs in groups.values()]
        for axis in kinds
    ]
    with styled():
        names = [in_lines(label, 32) for label in groups]
        figure = new_figure(8.4, 1.0 + (0.13 + 0.13 * lines_of(names)) * len(groups))
        for axes, axis, costs in zip(figure.subplots(1, 3, sharey=True), kinds, ways, strict=True):
            scale, label, _ = _axis_words(
                axis,
                max((cost.value for method_costs in costs for cost in method_costs), default=1.0),
                clock(groups),
            )
            for y, (i, method_costs) in enumerate(zip(method_numbers(groups), costs, strict=True)):
                scaled = [
                    measures.Censored(scale * cost.value, cost.reached) for cost in method_costs
                ]
                _target_bar(axes, y, i, scaled)
            xlabel = "rounds"
            if axis != "round":
                xlabel = label.replace(", everything that travels", "")
            axes.set(xlabel=xlabel, xlim=(0, None))
            axes.set_yticks(range(len(groups)), names)
            axes.grid(visible=False, axis="y")
        axes.invert_yaxis()
        figure.suptitle("What it cost to get there", x=0.01, ha="left", fontsize=10)
        return to_svg(
            figure,
            "target",
            f"Rounds, {clock(groups)} time and traffic to the target of {', '.join(groups)}",
        )


def _target_bar(axes: Axes, y: int, i: int, costs: Sequence[measures.Censored]) -> None:
    """Draw the bar of method ``i`` in row ``y``."""
    mean = measures.target_spread(costs)
    std = float(np.nan_to_num(measures.spread([cost.value for cost in costs]).std))
    text = f"{'' if mean.reached else 'more than '}{short_number(mean.value)}"
    bar = axes.barh(
        y, np.nan_to_num(mean.value), 0.7, color=colour(i), alpha=1.0 if mean.reached else 0.35
    )
    mark(bar.patches[0], i, text)
    if not mean.reached:
        draw_line(
            axes,
            i,
            np.nan_to_num(mean.value),
            y,
            form=">",
            style={"markersize": 6, "clip_on": False},
        )
    elif std:
        draw_line(
            axes,
            i,
            [mean.value - std, mean.value + std],
            [y, y],
            style={"color": "#333333", "linewidth": 1.1},
        )


def participation_bars(groups: Groups) -> Picture:
    """Draw how often each client took part, most often first (mean over seeds at each rank); the
    dashed line is an even share.

    Of more than :data:`motley_report.figures.ONE_BY_ONE` clients, means of groups of neighbouring
    ranks are drawn."""
    counts = [[measures.participation(run) for run in runs] for runs in groups.values()]
    columns = PANELS if len(groups) > DIRECT else columns_of(len(groups))
    rows = -(-len(groups) // columns)
    with styled():
        small = columns == PANELS
        names = [panel_name(label, columns) for label in groups]
        more = 0.15 * (lines_of(names) - 1)
        figure = new_figure(8.4, 0.5 + ((1.5 if small else 2.2) + more) * rows)
        grid = panel_grid(figure, len(groups), columns, sharey=True)
        for i, label, axes, participations in zip(
            method_numbers(groups), names, grid, counts, strict=True
        ):
            ranked = mean_by_share([np.sort(p.counts)[::-1] for p in participations])
            steps = group_edges(len(ranked)), np.append(client_groups(ranked), 0)
            mark(axes.fill_between(*steps, step="post", color=colour(i), linewidth=0), i)
            axes.axhline(
                ranked.mean() if len(ranked) else 0,
                color="#333333",
                linewidth=1,
                linestyle=(0, (4, 3)),
            )
            axes.set_title(
                f"{label}\n",
                fontsize=8 if small else 10,
                fontweight="bold",
                color=colour(i),
            )
            spread = (
                f"std {np.mean([p.std for p in participations]):.1f}   Gini "
                f"{np.mean([p.gini for p in participations]):.2f}"
            )
            if len(ranked):
                spread += f"   {ranked.min():.3g} to {ranked.max():.3g} rounds" if not small else ""
                axes.text(
                    0,
                    1.03,
                    spread,
                    transform=axes.transAxes,
                    fontsize=6.5 if small else 8,
                )
            axes.margins(x=0)
            axes.grid(visible=False, axis="x")
        figure.set_layout_engine("constrained", h_pad=0.09)
        most = max(len(p.counts) for participations in counts for p in participations)
        figure.supxlabel(f"clients, most often first{grouping(most)}", fontsize=9)
        figure.supylabel("rounds taken part in", fontsize=9)
        return to_svg(
            figure, "participation", "Participation counts per client: " + ", ".join(groups)
        )


def concentration(groups: Groups) -> Picture | None:
    """Draw how uneven the selection probabilities were over the rounds (mean over seeds); None when
    no rule drew by any."""
    bands = [
        measures.band([measures.concentration(run) for run in runs]) for runs in groups.values()
    ]
    if not any(len(b.x) for b in bands):
        return None
    with styled():
        figure = new_figure(NARROW, 3.3)
        axes = figure.add_subplot()
        for i, band in zip(method_numbers(groups), bands, strict=True):
            draw_line(axes, i, band.x, band.mean, style={"linestyle": dash(i)})
        axes.set(
            xlabel="round",
            ylabel="std / mean of the probabilities",
            title="How concentrated the choice was",
        )
        axes.margins(x=0)
        whole_numbers(axes)
        axes.set_ylim(bottom=0)
        _name_lines(axes, groups, [(b.x[-1], b.mean[-1]) if len(b.x) else None for b in bands])
        return to_svg(
            figure,
            "concentration",
            f"Concentration of the selection probabilities: {', '.join(groups)}",
        )


def client_curves(groups: Groups) -> Picture | None:
    """Draw each client's own metric from the worst served to the best (mean over seeds at each
    share of the clients); None without such rows. A method of which a run ended in ruin has no
    line.

    Of more than :data:`motley_report.figures.ONE_BY_ONE` clients, means of groups of neighbouring
    ranks are drawn."""
    name, percent, better = _metric(groups)
    values = [[measures.client_metric(run) for run in runs] for runs in groups.values()]
    lost = [any(measures.ruined(run, scope="mean") for run in runs) for runs in groups.values()]
    sorted_values = [
        np.empty(0)
        if ruined
        else mean_by_share([np.sort(v[np.isfinite(v)])[:: 1 if better else -1] for v in each])
        for ruined, each in zip(lost, values, strict=True)
    ]
    if not any(len(v) for v in sorted_values):
        return None
    with styled():
        figure = new_figure(NARROW, 3.3)
        axes = figure.add_subplot()
        axes.axvspan(0, 10, color=FAINT, alpha=0.45, linewidth=0)
        axes.annotate(
            "worst\ntenth",
            (1, 0.98),
            xycoords=("data", "axes fraction"),
            va="top",
            fontsize=8,
            color="#555555",
        )
        for i, v in zip(method_numbers(groups), sorted_values, strict=True):
            edges = group_edges(len(v))
            share = 100 * (edges[:-1] + edges[1:]) / 2 / max(len(v), 1)
            draw_line(axes, i, share, client_groups(v) * percent, style={"linestyle": dash(i)})
        label = f"clients, worst served first (%){grouping(max(map(len, sorted_values)))}"
        axes.set(
            xlabel=label, ylabel=f"own {name}", title="How evenly the clients are served at the end"
        )
        axes.set_xlim(0, 100)
        _name_lines(
            axes,
            groups,
            [(100.0, float(v[-1]) * percent) if len(v) else None for v in sorted_values],
        )
        return to_svg(figure, "clients", f"Own {name} of the clients, sorted: {', '.join(groups)}")


def _grouped_bars(
    axes: Axes, numbers: Sequence[int], rows: Sequence[MethodRow], kinds: Sequence[str]
) -> None:
    """Draw ends of methods over their seeds as bars or points; none where a method has no such end,
    as in the table."""
    width = 0.82 / max(len(rows), 1)
    ends = [[row.end(kind) for kind in kinds] for row in rows]
    tips = [tip for spreads in ends for s in spreads for tip in s.each if np.isfinite(tip)]
    points = bool(tips) and 0 < (1 - NEAR) * max(tips) < min(tips)
    for place, (i, spreads) in enumerate(zip(numbers, ends, strict=True)):
        at = np.arange(len(kinds)) + (place - (len(ends) - 1) / 2) * width
        for x, s, kind in zip(at, spreads, kinds, strict=True):
            if not s.n:
                continue
            std = float(np.nan_to_num(s.std))
            words = f"{kind} {plus_minus(s)}"
            if points:
                draw_line(axes, i, x, s.mean, form="o", style={"markersize": 7}, text=words)
            else:
                mark(axes.bar(x, s.mean, width * 0.92, color=colour(i)).patches[0], i, words)
            if std:
                whisker = colour(i) if points else "#333333"
                draw_line(
                    axes,
                    i,
                    [x, x],
                    [s.mean - std, s.mean + std],
                    style={"color": whisker, "linewidth": 1.1},
                )
            if len(ends) <= BESIDE:
                above = 5 if points and not std else 2  # points; half a dot is 3.5
                text = f"{s.mean:.3g}"
                top = (x, s.mean + std)
                mark(
                    axes.annotate(
                        text, top, (0, above), textcoords="offset points", ha="center", fontsize=7.5
                    ),
                    i,
                )
    axes.set_xticks(range(len(kinds)), list(kinds))
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.12)


def _handles(groups: Groups) -> tuple[list[Any], list[str]]:
    from matplotlib.patches import Patch

    handles = [mark(Patch(color=colour(i)), i) for i in method_numbers(groups)]
    return handles, [in_lines(label, 52) for label in groups]


def _name_lines(axes: Axes, groups: Groups, tips: Sequence[tuple[float, float] | None]) -> None:
    """Write each method that has a line beside the line's end or, for many methods and for long
    names, into a legend."""
    from matplotlib.lines import Line2D

    drawn = [
        (i, label, tip)
        for i, label, tip in zip(method_numbers(groups), groups, tips, strict=True)
        if tip is not None
    ]
    names = [in_lines(label, 24) for _, label, _ in drawn]
    if len(groups) > DIRECT or lines_of(names) > BESIDE_LINES:
        lines = [mark(Line2D([], [], color=colour(i), linestyle=dash(i)), i) for i, *_ in drawn]
        figure = axes.get_figure(root=True)
        if figure is not None:
            add_legend(figure, lines, [in_lines(label, 72) for _, label, _ in drawn], size=7)
        return
    low, high = axes.get_ylim()
    right = axes.get_xlim()[1]
    line = 0.07 * (high - low)
    heights = spread_apart([tip[1] for *_, tip in drawn], line * lines_of(names))
    # a name is centred at its height
    top = high - line * (lines_of(names) - 1) / 2
    above = max([0.0, *(y - top for y in heights)])
    for (i, *_), name, y in zip(drawn, names, heights, strict=True):
        text = axes.annotate(
            name,
            (right, y - above),
            (5, 0),
            textcoords="offset points",
            va="center",
            color=colour(i),
        )
        text.set_fontsize(8.5)
        text.set_annotation_clip(False)
        mark(text, i)


def _axis_words(axis: measures.Axis, longest: float, time: str) -> tuple[float, str, str]:
    """Return (factor on the table's numbers, label with unit, end of the title). ``time``: which
    one the seconds are."""
    if axis == "round":
        return 1.0, "round", "over rounds"
    if axis in ("seconds", "paper_seconds"):
        unit, size = "seconds", 1.0
        if longest >= 7200:
            unit, size = "hours", 3600.0
        elif longest >= 300:
            unit, size = "minutes", 60.0
        if axis == "seconds":
            return 1 / size, f"{time} time ({unit})", f"over {time} time"
        return 1 / size, f"time, papers' convention ({unit})", "over time, papers' convention"
    unit, size = ("GB", 8e9) if longest >= 16e9 else ("MB", 8e6)
    if axis == "paper_bits":
        return 1 / size, f"uplink, papers' convention ({unit})", "over uplink traffic"
    return 1 / size, f"traffic, everything that travels ({unit})", "over traffic"


def _metric(groups: Groups) -> tuple[str, float, bool]:
    """Return (label of the ordinate, factor, whether more is better); one report compares one
    metric."""
    name, better = common_metric(run for runs in groups.values() for run in runs)
    percent = measures.percent_of(next(iter(groups.values()))[0])
    name = metric_in_text(name)
    return f"{name} (%)" if percent > 1 else name, percent, better
