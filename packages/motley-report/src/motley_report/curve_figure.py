"""The figure of one metric of runs: what ``.plot()`` of a run and of a comparison return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from motley.core.errors import ConfigError, suggest
from motley.results import measures
from motley.results.labels import clock
from motley.results.method_groups import method_numbers
from motley_report.figures import colour, dash, styled
from motley_report.shown_figure import ShownFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from motley.results.load import Run

OVER: Final = {"rounds": "round", "virtual_seconds": "seconds", "traffic": "bits"}
"""What a figure may be drawn over -> the axis of :func:`motley.results.measures.curve`."""
_AXIS: Final = {"rounds": "round", "virtual_seconds": "{} time (s)", "traffic": "traffic (MB)"}


def curve_figure(
    groups: Mapping[str, Sequence[Run]], metric: str | None = None, over: str = "rounds"
) -> Figure:
    """Return a figure of a metric: the mean over seeds of each group, shaded by one standard
    deviation.

    Parameters
    ----------
    metric: of the evaluations or metrics; the headline by default.
    over: ``rounds``, ``virtual_seconds`` (of deployments wall time) or ``traffic``.

    Raises
    ------
    ConfigError: no such metric, nothing to draw over by this name, or no runs.
    """
    if over not in OVER:
        raise ConfigError(
            f"got {over!r}{suggest(over, OVER)}; expected one of: {', '.join(OVER)}", "over"
        )
    if not any(groups.values()):
        raise ConfigError("there are no finished runs to draw", "runs")
    headline = measures.metric_of(next(run for runs in groups.values() for run in runs))[0]
    axis: Any = OVER[over]
    bands = {
        label: measures.band([measures.curve(run, axis, metric) for run in runs])
        for label, runs in groups.items()
    }
    if not any(len(band.x) for band in bands.values()):
        names = sorted({name for runs in groups.values() for run in runs for name in _metrics(run)})
        name = metric or headline
        raise ConfigError(
            f"no evaluation has {name!r}{suggest(name, names)}; expected one of: "
            f"{', '.join(names)}",
            "metric",
        )
    # between two evaluations nothing is known
    step: Literal["post"] | None = None if over == "rounds" else "post"
    with styled():
        figure = ShownFigure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for i, (label, band) in zip(method_numbers(groups), bands.items(), strict=True):
            x = band.x / (8e6 if over == "traffic" else 1.0)
            axes.plot(
                x,
                band.mean,
                color=colour(i),
                linestyle=dash(i),
                label=label,
                drawstyle=f"steps-{step}" if step else "default",
            )
            axes.fill_between(
                x, band.low, band.high, color=colour(i), alpha=0.16, linewidth=0, step=step
            )
        axes.set(xlabel=_AXIS[over].format(clock(groups)), ylabel=metric or headline)
        axes.margins(x=0)
        if len(groups) > 1:
            axes.legend()
        return figure


def _metrics(run: Run) -> list[str]:
    """Return what is measured of a run beside loss and accuracy, and these."""
    return [
        "accuracy",
        "loss",
        *(metric["name"] for metric in run.meta.get("task", {}).get("metrics", [])),
    ]
