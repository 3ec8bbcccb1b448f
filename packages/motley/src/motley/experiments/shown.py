"""How experiments and the runs of a comparison show themselves, as lines, tables, data frames and
figures.

>>> from motley.experiments.config import Experiment
>>> str(Experiment(task="quadratic", population=10, cohort=2, stop={"rounds": 5})).split(", ")[:3]
['<Experiment: name experiment', 'task quadratic', 'clients 10']
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from typing_extensions import override

from motley.core.card import Carded
from motley.core.errors import ConfigError, suggest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from motley.results.load import Run

OVER: Final = {"rounds": "round", "virtual_seconds": "seconds", "traffic": "bits"}
"""What a figure may be drawn over -> the axis of :func:`motley.results.measures.curve`."""
NAMED = 4
"""Up to so many methods of a comparison are named in its last line."""
_USUAL: Final = {
    "partition": "iid",
    "synchrony": "synchronous",
    "availability": "always",
    "compressor": "identity",
}


def facts_of_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an experiment is, from its keys (resolved, or as a run's record has them), in a
    few words."""

    def name(key: str) -> str:
        value = keys.get(key)
        return str(value.get("name", "")) if isinstance(value, Mapping) else str(value)

    task = keys.get("task") or {}
    unusual = {
        key: name(key) for key, usual in _USUAL.items() if key in keys and name(key) != usual
    }
    count = {"a round": keys.get("cohort") or f"{keys.get('participation') or 1.0:.0%}"}
    clients = {} if keys.get("population") is None else {"clients": keys["population"]}
    stop = {key: value for key, value in (keys.get("stop") or {}).items() if value is not None}
    if set(stop) == {"rounds"}:
        ends = f"round {stop['rounds']}"
    else:
        ends = ", ".join(f"{key} {value}" for key, value in stop.items())
    return {
        "name": keys.get("name", "experiment"),
        "task": " ".join(filter(None, (name("task"), str(task.get("data") or "")))),
        **clients,
        **count,
        "algorithm": name("algorithm"),
        "selector": name("selector"),
        **unusual,
        "ends": ends,
        "seed": keys.get("seed", 0),
    }


class ShownExperiment(Carded):
    """The part of an experiment that shows it."""

    @override
    def facts(self) -> dict[str, Any]:
        """Return what it is in a few words."""
        dump: Any = self
        keys = dump.model_dump(
            mode="json",
            include={
                *_USUAL,
                "name",
                "task",
                "population",
                "cohort",
                "participation",
                "stop",
                "algorithm",
                "selector",
                "seed",
            },
        )
        return facts_of_keys(keys)


def run_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return a row of figures per run: label as in reports, seed, the headline's ends, rounds,
    virtual seconds, megabytes, folder."""
    from motley.results import measures
    from motley.results.labels import label_runs

    rows = []
    for run, label in zip(runs, label_runs(runs), strict=True):
        ends, (metric, _), rounds = (
            measures.ends_of(run),
            measures.metric_of(run),
            run.tables["rounds"],
        )
        time_s, bits = (
            rounds[name][-1].as_py() if rounds.num_rows else 0 for name in ("time_s", "total_bits")
        )
        values = {f"{metric} {end}": getattr(ends, end) for end in ("final", "peak", "stable")}
        spent = {"rounds": rounds.num_rows, "virtual_seconds": time_s, "megabytes": bits / 8e6}
        rows.append(
            {"label": label, "seed": run.seed, **values, **spent, "folder": str(run.directory)}
        )
    return rows


def run_in_words(run: Run) -> str:
    """Return what came of a run:
    ``who-to-ask: accuracy 0.912 after 20 rounds, in runs/who-to-ask/3f9a``."""
    from motley.results import measures

    name = measures.metric_of(run)[0]
    rounds = run.tables["rounds"].num_rows
    why = "" if run.standstill is None else f" ({run.standstill})"
    return (
        f"{run.name}: {name} {measures.ends_of(run).final:.3f} after {rounds} rounds{why}, in "
        f"{run.directory}"
    )


def runs_in_words(name: str, runs: Sequence[Run], failed: int, folder: Path) -> str:
    """Return what came of a comparison:
    ``who: 6 runs, accuracy 0.831 uniform, 0.852 oort (mean of final values), in runs/who``; of more
    than :data:`NAMED` methods their number alone."""
    from motley.results import measures
    from motley.results.labels import group_runs

    groups = group_runs(runs) if runs else {}
    means = [
        f"{np.mean([measures.ends_of(run).final for run in members]):.3f} {label}"
        for label, members in groups.items()
    ]
    if means:
        figures = f"{measures.metric_of(runs[0])[0]} {', '.join(means)} (mean of final values)"
    else:
        figures = ""
    figures = figures if len(groups) <= NAMED else f"{len(groups)} methods"
    lost = f"{failed} failed" if failed else ""
    return f"{name}: {', '.join(filter(None, (f'{len(runs)} runs', figures, lost)))}, in {folder}"


def in_cell(value: Any) -> str:
    """Return a figure as a cell of a table has it, with four digits; one that is not there is a
    dash."""
    from motley.results.blocks import DASH

    if not isinstance(value, float):
        return str(value)
    return f"{value:#.4g}".rstrip(".") if math.isfinite(value) else DASH


def to_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a pandas DataFrame.

    Raises
    ------
    ConfigError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        message = (
            "a DataFrame needs pandas; install it (pip install pandas), or take an Arrow "
            "table, motley.frame(runs, 'evaluations')"
        )
        raise ConfigError(message) from None
    return pd.DataFrame([dict(row) for row in rows])


def curve_figure(
    groups: Mapping[str, Sequence[Run]], metric: str | None = None, over: str = "rounds"
) -> Figure:
    """Return a figure of a metric: the mean over seeds of each group, shaded by one standard
    deviation.

    Parameters
    ----------
    metric: of the evaluations or metrics; the headline by default.
    over: ``rounds``, ``virtual_seconds`` or ``traffic``.

    Raises
    ------
    ConfigError: no such metric, nothing to draw over by this name, or no runs.
    """
    from motley.results import measures
    from motley.results.figures import colour, dash, styled
    from motley.results.method_groups import method_numbers
    from motley.results.shown_figure import ShownFigure

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
        axes.set(xlabel=_AXIS[over], ylabel=metric or headline)
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


_AXIS: Final = {"rounds": "round", "virtual_seconds": "virtual time (s)", "traffic": "traffic (MB)"}
