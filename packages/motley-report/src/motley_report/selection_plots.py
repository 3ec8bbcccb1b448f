"""Figures of a run's clients and selections: class distribution, upload shares, components of
scores, diagnostics.

``groups`` maps a method's label to its runs, as in :mod:`motley_report.plots`. Each figure shows
only the methods whose tables hold what it needs, and is None where none does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.results import measures
from motley.results.blocks import Picture
from motley.results.load import Run
from motley.results.method_groups import labels_by_number, method_numbers
from motley_report.figures import (
    CLASS_COLOURS,
    COLOURS,
    DASHES,
    NARROW,
    add_legend,
    client_groups,
    colour,
    columns_of,
    draw_line,
    grouping,
    in_lines,
    lines_of,
    mark,
    new_figure,
    panel_grid,
    panel_name,
    shorter,
    spread_apart,
    styled,
    to_svg,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path

Groups = Mapping[str, Sequence[Run]]
Notes = Sequence[Sequence[Mapping[str, Mapping[str, measures.Curve]]]]
POINTS = 300
"""Dots of a panel at most, evenly taken from all rows, so that a page of many runs stays small."""

CHOSEN = "chosen-"
"""Before the heads of notes of the chosen clients."""
SIZES = {"cluster": "clients in each cluster"}
"""Heads of the notes that server rules write, and what their numbers are."""

DIAGNOSED = {
    "diversity": "squared distance to the mean gradient",
    "drift": "squared distance to the model sent out",
    "error": "squared error of the aggregate",
    "client_error": "squared error of an upload, mean",
    "linear_error": "what an upload would lose in proportion to its share, mean",
    "weighted_error": "squared error of an upload, weighted mean",
}
"""Heads of the notes that diagnostics write, and what their numbers are."""


def shares(groups: Groups) -> Picture | None:
    """Draw the share of its update that each client may send, against its uplink; dashed: the
    ceiling, where the tables prove one."""
    drawn = {
        i: shares_of
        for i, shares_of in _shares(groups).items()
        if np.isfinite(shares_of.mbps).any()
    }
    if not drawn:
        return None
    links = np.concatenate([sent.mbps[np.isfinite(sent.mbps)] for sent in drawn.values()])
    lines = 2 if any(np.isfinite(sent.ceiling) for sent in drawn.values()) else 1
    with styled():
        figure, panels = _panels(groups, list(drawn), share=True)
        for i, axes in panels.items():
            sent = drawn[i]
            at = _evenly_picked(len(sent.theta))
            dots = axes.scatter(
                sent.mbps[at], 100 * sent.theta[at], s=9, color=colour(i), alpha=0.45, linewidths=0
            )
            mark(dots, i)
            label = (
                f"mean {100 * sent.theta.mean():.3g} %, from {100 * sent.theta.min():.2g} to "
                f"{100 * sent.theta.max():.3g} %"
            )
            if np.isfinite(sent.ceiling):
                line = np.array([0.0, min(links.max(), 1 / sent.ceiling)])
                draw_line(
                    axes,
                    i,
                    line,
                    100 * sent.ceiling * line,
                    style={"color": "#333333", "linewidth": 1, "linestyle": (0, (4, 3))},
                )
                label += f"\ndashed: ceiling, {100 * sent.ceiling:.3g} % for each Mb/s"
            axes.set_title(
                axes.get_title(loc="left") + "\n" * lines, fontweight="bold", color=colour(i)
            )
            axes.text(0, 1.03, label, transform=axes.transAxes, fontsize=8)
            if links.max() > 20 * links.min() > 0:
                axes.set_xscale("log")
            else:
                axes.set_xlim(0, 1.04 * links.max())
        # shared by all panels
        axes.set_ylim(0, 104 * max(float(sent.theta.max()) for sent in drawn.values()))
        figure.supxlabel("uplink when it was sent out (Mb/s)", fontsize=9)
        figure.supylabel("share of the update sent (%)", fontsize=9)
        return to_svg(
            figure, "shares", f"Share sent against uplink: {', '.join(_labels_of(groups, drawn))}"
        )


def shares_by_score(groups: Groups) -> Picture | None:
    """Draw the same shares against the scores, coloured by uplink; on the dashed line a client
    sends what its score asks for."""
    drawn = {i: sent for i, sent in _shares(groups).items() if np.isfinite(sent.wanted).any()}
    if not drawn:
        return None
    links = np.concatenate([sent.mbps for sent in drawn.values()])
    links = links[np.isfinite(links)]
    low, high = (float(links.min()), float(links.max())) if len(links) else (0.0, 1.0)
    with styled():
        figure, panels = _panels(groups, list(drawn), share=False)
        for i, axes in panels.items():
            sent = drawn[i]
            at = _evenly_picked(len(sent.theta))
            x = (sent.wanted / sent.budget)[at]
            y = (sent.theta / sent.budget)[at]
            dots = axes.scatter(
                x, y, c=sent.mbps[at], s=11, cmap="viridis", vmin=low, vmax=high, linewidths=0
            )
            mark(dots, i)
            most = 1.05 * max(float(np.nanmax(x)), float(np.nanmax(y)), 1.0)
            draw_line(
                axes,
                i,
                [0, most],
                [0, most],
                style={"color": "#888888", "linewidth": 1, "linestyle": (0, (4, 3)), "zorder": 0},
            )
            axes.set(xlim=(0, most), ylim=(0, most))
        figure.supxlabel("score of the client / mean score of its cohort", fontsize=9)
        figure.supylabel("share sent / budget of the round", fontsize=9)
        figure.colorbar(dots, ax=list(panels.values()), label="uplink (Mb/s)", pad=0.01)
        return to_svg(
            figure,
            "scores",
            f"Share sent against score, coloured by uplink: {', '.join(_labels_of(groups, drawn))}",
        )


def components(groups: Groups) -> list[Picture]:
    """Draw, for each head of a rule's notes, the values over the rounds (mean over seeds), one
    panel per method; then the same of the chosen alone."""
    notes = _notes(groups)
    heads = dict.fromkeys(
        head for runs in notes for note in runs for head in note if head not in DIAGNOSED
    )
    chosen = [[_chosen(run) for run in runs] for runs in groups.values()]
    chosen_heads = dict.fromkeys(head for runs in chosen for note in runs for head in note)
    return [
        *(
            _notes_figure(groups, notes, head, SIZES.get(head, f"{head}, mean over the available"))
            for head in heads
        ),
        *(
            _notes_figure(
                groups, chosen, head, f"{head.removeprefix(CHOSEN)}, mean over the chosen"
            )
            for head in chosen_heads
        ),
    ]


def _chosen(run: Run) -> dict[str, dict[str, measures.Curve]]:
    """Return what was noted of the chosen, grouped by the heads of the names."""
    curves: dict[str, dict[str, measures.Curve]] = {}
    for name, curve in measures.choice_notes(run).items():
        head, dot, tail = name.partition(".")
        if dot:
            curves.setdefault(CHOSEN + head, {})[tail] = curve
    return curves


def diagnosed(groups: Groups) -> list[Picture]:
    """Draw the diagnostics (``evaluate.diagnostics``) over the rounds, one panel per method."""
    notes = _notes(groups)
    return [
        _notes_figure(groups, notes, head, label)
        for head, label in DIAGNOSED.items()
        if any(head in note for runs in notes for note in runs)
    ]


def _notes(groups: Groups) -> Notes:
    return [[measures.grouped_notes(run) for run in runs] for runs in groups.values()]


def _notes_figure(groups: Groups, notes: Notes, head: str, label: str) -> Picture:
    own = {
        i: [note[head] for note in runs if head in note]
        for i, runs in zip(method_numbers(groups), notes, strict=True)
        if any(head in note for note in runs)
    }
    names = list(dict.fromkeys(name for runs in own.values() for curves in runs for name in curves))
    with styled():
        figure, panels = _panels(groups, list(own), share=True)
        for i, axes in panels.items():
            tips = {}
            for n, name in enumerate(names):
                band = measures.band([curves[name] for curves in own[i] if name in curves])
                if len(band.x):
                    style = DASHES[n // len(COLOURS) % len(DASHES)]
                    draw_line(
                        axes,
                        i,
                        band.x,
                        band.mean,
                        style={"color": colour(n), "linestyle": style, "linewidth": 1.4},
                    )
                    tips[n] = (float(band.x[-1]), float(band.mean[-1]))
            axes.margins(x=0)
            whole_numbers(axes)
            _label_lines(axes, names, tips, i)
        figure.supxlabel("round", fontsize=9)
        figure.supylabel(label, fontsize=9)
        return to_svg(
            figure,
            f"noted-{head}",
            f"{head}: {', '.join(names)}, of {', '.join(_labels_of(groups, own))}",
        )


def _label_lines(
    axes: Axes, names: Sequence[str], tips: Mapping[int, tuple[float, float]], method: int
) -> None:
    """Write names beside the ends of the lines."""
    low, high = axes.get_ylim()
    heights = spread_apart([y for _, y in tips.values()], 0.11 * (high - low))
    below = max(0.0, low - min(heights, default=low))
    for (n, (x, _)), y in zip(tips.items(), heights, strict=True):
        text = axes.annotate(
            names[n],
            (x, y + below),
            (4, 0),
            textcoords="offset points",
            va="center",
            color=colour(n),
            fontsize=8,
        )
        text.set_annotation_clip(False)
        mark(text, method)


def _shares(groups: Groups) -> dict[int, measures.Shares]:
    """Return number of the method -> the shares of all its runs, where not all clients send
    everything."""
    by_method = {}
    for i, runs in zip(method_numbers(groups), groups.values(), strict=True):
        each = [measures.shares(run) for run in runs]
        if any(len(sent.theta) for sent in each):
            ceilings = [sent.ceiling for sent in each if len(sent.theta)]
            same = np.ptp(ceilings) <= 1e-3 * ceilings[0]  # False with a NaN
            theta, mbps, wanted, budget = (
                np.concatenate([getattr(sent, name) for sent in each])
                for name in ("theta", "mbps", "wanted", "budget")
            )
            by_method[i] = measures.Shares(
                theta=theta,
                mbps=mbps,
                wanted=wanted,
                budget=budget,
                ceiling=ceilings[0] if same else float("nan"),
            )
    return by_method


def _evenly_picked(n: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, n - 1, min(n, POINTS)).astype(np.int64))


def _labels_of(groups: Groups, methods: Mapping[int, object]) -> list[str]:
    labels = labels_by_number(groups)
    return [labels[i] for i in methods]


def _panels(groups: Groups, methods: Sequence[int], share: bool) -> tuple[Figure, dict[int, Axes]]:
    """Return a figure with one panel, titled in its colour, for each of these methods."""
    labels = labels_by_number(groups)
    columns = columns_of(len(methods))
    rows = -(-len(methods) // columns)
    names = [panel_name(labels[i], columns) for i in methods]
    high = 2.15 + 0.15 * lines_of(names)
    figure = new_figure(8.4 if columns > 1 else NARROW, 0.6 + high * rows)
    panels = dict(
        zip(methods, panel_grid(figure, len(methods), columns, sharey=share), strict=True)
    )
    for name, (i, axes) in zip(names, panels.items(), strict=True):
        axes.set_title(name, fontweight="bold", color=colour(i))
    return figure, panels


_NAMED = 30
"""Clients whose names have room below their bars."""


def label_counts(run: Run) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the training samples per class of the clients that say so, ``[N, C]``, and which
    clients these are.

    Raises
    ------
    DataError: the table holds other counts than one for each class.
    """
    labels = run.tables["federation"]["labels"]
    lengths = np.asarray(pc.fill_null(pc.list_value_length(labels), 0))
    listed = lengths > 0
    flat = np.asarray(pc.list_flatten(labels), float)
    if len(set(lengths[listed].tolist())) > 1 or not (flat >= 0).all():
        raise DataError(
            f"{run.directory}: the table federation holds something else than one count per class "
            "under 'labels'"
        )
    return flat.reshape(np.count_nonzero(listed), -1) if listed.any() else np.zeros((0, 0)), listed


def class_distribution(run: Run, method: str = "") -> Picture | None:
    """Draw the data of each client as :func:`class_picture` does; None when unlabelled. ``method``:
    that it is of, where others have other data."""
    counts, listed = label_counts(run)
    if not listed.any():
        return None
    noise = np.nan_to_num(np.asarray(run.column("federation", "noise"), float))[listed]
    classes = run.meta.get("task", {}).get("classes", [])
    of = ", ".join(filter(None, (method, f"seed {run.seed}" if "seed" in run.meta else "")))
    title = "Who holds what" + (f" ({of})" if of else "")
    ids = np.asarray(run.column("federation", "client"), np.int64)[listed].tolist()
    return class_picture(
        counts=counts,
        noise=noise,
        classes=classes,
        title=title,
        clients=[run.client_name(k) for k in ids] if run.client_names else (),
    )


def class_picture(
    counts: NDArray[np.float64],
    noise: NDArray[np.float64],
    classes: Sequence[str],
    title: str,
    clients: Sequence[str] = (),
) -> Picture:
    """Draw training samples per client and class: stacked bars for a few clients, a map of class
    shares for many.

    Clients are ordered by the class they hold most of. A strip below shows the share of wrong
    labels, where there are any. Of more than :data:`motley_report.figures.ONE_BY_ONE` clients,
    means of groups of neighbouring clients are drawn.

    Parameters
    ----------
    counts: ``[K, C]``.
    noise: share of wrong labels ``[K]``.
    classes: their names; numbers where there are not C of them.
    clients: their names ``[K]``, which are written below a few bars; empty: they have none.
    """
    order = np.lexsort((-counts.max(axis=1), counts.argmax(axis=1)))
    counts = counts[order]
    noise = noise[order]
    names = [
        str(c) for c in (classes if len(classes) == counts.shape[1] else range(counts.shape[1]))
    ]
    few = len(counts) <= 60 and counts.shape[1] <= len(CLASS_COLOURS)
    named = [shorter(clients[k], 30) for k in order] if 0 < len(clients) <= _NAMED else []
    with styled():
        # names stand at 45 degrees
        more = 0.045 * max(map(len, named), default=0)
        figure = new_figure(8.4, (3.8 if noise.any() else 3.1) + more)
        ratios = [4, 1] if noise.any() else [1]
        rows = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[
            :, 0
        ]
        (_stacked if few else _class_map)(rows[0], counts, names)
        if noise.any():
            strip = client_groups(noise)
            rows[1].bar(np.arange(len(strip)), 100 * strip, color="#777777", width=0.85)
            rows[1].set_ylabel("wrong\nlabels (%)")
        rows[-1].set_xlabel(
            f"the {len(counts)} clients, grouped by their largest class{grouping(len(counts))}"
        )
        rows[-1].set_xticks([])
        if named:
            rows[-1].set_xticks(range(len(counts)), named, rotation=45, ha="right", fontsize=8)
        rows[0].set_title(title)
        if few:
            handles, labels = rows[0].get_legend_handles_labels()
            add_legend(figure, handles, labels, size=8)
        return to_svg(figure, "classes", f"Class distribution over {len(counts)} clients")


def _stacked(axes: Axes, counts: NDArray[np.float64], names: Sequence[str]) -> None:
    from matplotlib.patches import PathPatch

    bottom = np.zeros(len(counts))
    for c in range(counts.shape[1]):
        # a patch for each bar, as of axes.bar, takes most of the time of a report's largest figure
        bars = _bars(bottom, counts[:, c])
        label = in_lines(names[c], 52)
        axes.add_patch(PathPatch(bars, facecolor=CLASS_COLOURS[c], linewidth=0, label=label))
        bottom += counts[:, c]
    axes.autoscale_view()
    axes.set(ylabel="training examples", ylim=(0, 1.05 * max(float(bottom.max()), 1.0)))
    axes.grid(visible=False, axis="x")


def _bars(bottom: NDArray[np.float64], heights: NDArray[np.float64]) -> Path:
    """Return bars at 0, 1, ... as one path; ``bottom``, ``heights``: ``[K]``."""
    from matplotlib.path import Path

    left = np.arange(len(heights)) - 0.85 / 2
    right = left + 0.85
    top = bottom + heights
    corners = ((left, bottom), (right, bottom), (right, top), (left, top), (left, bottom))
    vertices = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    return Path(vertices.reshape(-1, 2), codes * len(heights))


def _class_map(axes: Axes, counts: NDArray[np.float64], names: Sequence[str]) -> None:
    share = client_groups(100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    image = axes.imshow(
        share.T,
        aspect="auto",
        cmap="cividis_r",
        vmin=0,
        vmax=100,
        interpolation="nearest",
        origin="lower",
    )
    axes.set_ylabel("class")
    if len(names) <= 20:
        axes.set_yticks(range(len(names)), [shorter(n, 30) for n in names])
    axes.grid(visible=False)
    axes.get_figure().colorbar(image, ax=axes, label="share of the client's data (%)", pad=0.01)  # type: ignore[union-attr]
