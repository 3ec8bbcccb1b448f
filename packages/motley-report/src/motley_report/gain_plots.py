"""Pictures of what every client gains: over local training alone, and over the method's own shared
model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from motley.core.arrays import Floats
from motley.results import measures
from motley.results.blocks import Picture
from motley.results.gains import LEAST, LOCAL, SHARED, in_ruin, rivals
from motley.results.load import Run
from motley.results.method_groups import labels_by_number
from motley_report.figures import (
    client_groups,
    colour,
    columns_of,
    group_edges,
    grouping,
    lines_of,
    mark,
    mean_by_share,
    new_figure,
    panel_grid,
    panel_name,
    styled,
    to_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Groups = Mapping[str, Sequence[Run]]
HARMED = "#8A8A8A"
"""The colour of clients that are worse off, whatever the method."""
DIRECT = 7
PANELS = 5
"""Up to so many methods have large panels; more have small ones, so many beside each other."""


def gain_pictures(groups: Groups) -> list[Picture]:
    """Draw the clients' gains over local training alone and over the own shared model, as far as
    they are known: a panel for each method, the most harmed client first; none where a run ended in
    ruin."""
    return [
        picture
        for name, over in (("gains-local", LOCAL), ("gains-shared", SHARED))
        if (picture := _drawn(groups, name, over))
    ]


def _drawn(groups: Groups, name: str, over: str) -> Picture | None:
    pairs = rivals(groups, over)
    gained = {
        label: [measures.client_gains(run, rival, least=LEAST)[0] for run, rival in run_pairs]
        for label, run_pairs in pairs.items()
        if not any(in_ruin(*pair) for pair in run_pairs)
    }
    gained = {
        label: [values for values in per_run if len(values)] for label, per_run in gained.items()
    }
    gained = {label: per_run for label, per_run in gained.items() if per_run}
    if not gained:
        return None
    first = pairs[next(iter(gained))][0][0]
    percent = measures.percent_of(first)
    order = labels_by_number(groups)
    small = len(gained) > DIRECT
    columns = PANELS if small else columns_of(len(gained))
    rows = -(-len(gained) // columns)
    with styled():
        heads = [panel_name(label, columns) for label in gained]
        more = 0.15 * (lines_of(heads) - 1)
        figure = new_figure(8.4, 0.6 + ((1.6 if small else 2.3) + more) * rows)
        grid = panel_grid(figure, len(gained), columns, sharey=True)
        for axes, head, (label, per_run) in zip(grid, heads, gained.items(), strict=True):
            number = order.index(label)
            _panel(axes, [percent * values for values in per_run], number)
            axes.set_title(
                f"{head}\n",
                fontsize=8 if small else 10,
                fontweight="bold",
                color=colour(number),
            )
            axes.text(
                0,
                1.03,
                _counted(per_run, small),
                transform=axes.transAxes,
                fontsize=6.5 if small else 8,
            )
        figure.set_layout_engine("constrained", h_pad=0.09)
        most = max(len(values) for per_run in gained.values() for values in per_run)
        figure.supxlabel(f"clients, most harmed first (%){grouping(most)}", fontsize=9)
        figure.supylabel(
            "gain (points)" if percent > 1 else f"gain ({measures.metric_of(first)[0]})", fontsize=9
        )
        title = f"What each client gains over {'its' if over == SHARED else ''} {over}".replace(
            "  ", " "
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        summary = "; ".join(
            f"{label}: {_counted(per_run, False)}" for label, per_run in gained.items()
        )
        return to_svg(figure, name, f"Gain of each client over {over}. {summary}")


def _panel(axes: Axes, per_run: Sequence[Floats], number: int) -> None:
    """Draw the sorted gains, the mean over seeds at each place, above 0 in the method's colour and
    below it in grey."""
    ranked = mean_by_share([np.sort(values) for values in per_run])
    places = len(ranked)
    edges = group_edges(places) * 100 / places
    heights = client_groups(ranked)
    steps = np.repeat(edges, 2)[1:-1]
    for chosen, fill in (
        (np.maximum(heights, 0), colour(number)),
        (np.minimum(heights, 0), HARMED),
    ):
        mark(axes.fill_between(steps, np.repeat(chosen, 2), color=fill, linewidth=0), number)
    axes.axhline(0, color="#333333", linewidth=0.8)
    axes.set_xlim(0, 100)
    axes.grid(visible=False, axis="x")


def _counted(per_run: Sequence[Floats], small: bool) -> str:
    """Return how many clients are better and worse off, means over seeds."""
    signs = [np.sign(values) for values in per_run]
    better, worse, alike = (
        float(np.mean([np.sum(sign_row == sign) for sign_row in signs])) for sign in (1, -1, 0)
    )
    words = f"{better:.3g} better off, {worse:.3g} worse off"
    return words if small or not alike else f"{words}, {alike:.3g} alike"
