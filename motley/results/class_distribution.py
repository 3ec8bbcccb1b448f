"""The figure of a federation: which client holds how much of which class, and how many of the labels are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from motley.results.blocks import Picture
from motley.results.figures import CLASS_COLOURS, new_figure, shorter, styled, to_svg
from motley.results.load import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["class_distribution"]


def class_distribution(run: Run) -> Picture | None:
    """What data each client holds: stacked bars for a few clients, a map of class shares for many; None when unlabelled.

    Clients are ordered by the class they hold most of. A strip below shows the share of wrong labels, where there are any.
    """
    labels = [row for row in run.tables["federation"]["labels"].to_pylist() if row]
    if not labels:
        return None
    counts = np.asarray(labels, float)  # [N, C]
    order = np.lexsort((-counts.max(axis=1), counts.argmax(axis=1)))
    noise = np.nan_to_num(np.asarray(run.column("federation", "noise"), float))[order]
    counts = counts[order]
    names = [str(c) for c in (run.meta.get("task") or {}).get("classes") or range(counts.shape[1])]
    few = len(counts) <= 60 and counts.shape[1] <= len(CLASS_COLOURS)
    with styled():
        figure = new_figure(8.4, 3.8 if noise.any() else 3.1)
        ratios = [4, 1] if noise.any() else [1]
        rows = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
        (_stacked if few else _class_map)(rows[0], counts, names)
        if noise.any():
            rows[1].bar(np.arange(len(counts)), 100 * noise, color="#777777", width=0.85)
            rows[1].set_ylabel("wrong\nlabels (%)")
        rows[-1].set_xlabel(f"the {len(counts)} clients, grouped by their largest class")
        rows[-1].set_xticks([])
        rows[0].set_title("Who holds what" + (f" (seed {run.seed})" if "seed" in run.meta else ""))
        return to_svg(figure, "classes", f"Class distribution over {len(counts)} clients")


def _stacked(axes: Axes, counts: NDArray[np.float64], names: Sequence[str]) -> None:
    bottom = np.zeros(len(counts))
    for c in range(counts.shape[1]):
        axes.bar(
            np.arange(len(counts)), counts[:, c], bottom=bottom, width=0.85, color=CLASS_COLOURS[c], label=shorter(names[c], 14)
        )
        bottom += counts[:, c]
    axes.set(ylabel="training examples", ylim=(0, 1.05 * max(float(bottom.max()), 1.0)))
    axes.grid(visible=False, axis="x")
    axes.legend(title="class", loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, reverse=True, fontsize=8)


def _class_map(axes: Axes, counts: NDArray[np.float64], names: Sequence[str]) -> None:
    share = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(share.T, aspect="auto", cmap="cividis_r", vmin=0, vmax=100, interpolation="nearest", origin="lower")
    axes.set_ylabel("class")
    if len(names) <= 20:
        axes.set_yticks(range(len(names)), [shorter(n, 14) for n in names])
    axes.grid(visible=False)
    axes.get_figure().colorbar(image, ax=axes, label="share of the client's data (%)", pad=0.01)  # type: ignore[union-attr]
