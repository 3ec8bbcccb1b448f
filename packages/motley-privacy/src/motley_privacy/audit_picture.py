"""The picture of an attack on privacy: the statistic in both worlds, the threshold, and what was
found beside the bound."""

from __future__ import annotations

import numpy as np

from motley.core.arrays import Floats
from motley.results.blocks import Picture
from motley_report.figures import colour, new_figure, styled, to_svg


def audit_picture(
    near: Floats, far: Floats, threshold: float, eps_hat: float, bound: float | None
) -> Picture:
    """Draw histograms of the statistic of held-out trials, ``[n]`` of each world.

    Parameters
    ----------
    threshold: above or below which a trial counts as the other world.
    bound: epsilon of the account; None: there is none.
    """
    both = np.concatenate([near, far])
    # 1e-9: where all values are equal, bins still have a width.
    edges = np.linspace(both.min(), both.max() + 1e-9, 61)
    limit = "none" if bound is None else f"{bound:.3g}"
    with styled():
        figure = new_figure(7.0, 3.4)
        axes = figure.add_subplot()
        for i, (values, label) in enumerate(((near, "world near"), (far, "world far"))):
            axes.hist(
                values,
                edges.tolist(),
                color=colour(i),
                alpha=0.55,
                label=f"{label}, {len(values):,} trials",
            )
        axes.axvline(
            threshold,
            color="#333333",
            linestyle="--",
            linewidth=1.2,
            label=f"threshold {threshold:.3g}",
        )
        axes.set(xlabel="statistic (log-likelihood ratio)", ylabel="trials")
        axes.set_title(f"eps_hat {eps_hat:.3f}, bound {limit}")
        axes.legend(frameon=False, fontsize=8)
        return to_svg(
            figure,
            "audit",
            f"Histograms of the statistic in two worlds; eps_hat {eps_hat:.3f}, bound {limit}.",
        )
