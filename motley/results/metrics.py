"""What a run's record says of its metrics, and where its tables hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley.results.load import Run

__all__ = [
    "Pooled",
    "better_of",
    "headline_scope",
    "metric_of",
    "metrics_of",
    "percent_of",
    "pooled",
    "rows_of",
    "written_scope",
]


def metric_of(run: Run) -> tuple[str, bool]:
    """Return (name of the headline metric, whether more of it is better)."""
    metric = str((run.meta.get("task") or {}).get("metric", "accuracy"))
    return metric, better_of(run, metric)


def percent_of(run: Run, metric: str | None = None) -> float:
    """Return 100 where the headline metric (or ``metric``) is a share, which is shown in percent, else 1."""
    name = metric or metric_of(run)[0]
    return 100.0 if _described(run, name).get("share", name == "accuracy") else 1.0


def metrics_of(run: Run) -> list[str]:
    """Return the names of the run's metrics, the headline first, then those beside loss and accuracy."""
    task = run.meta.get("task") or {}
    return list(dict.fromkeys([metric_of(run)[0], *(one["name"] for one in task.get("metrics", []))]))


def better_of(run: Run, metric: str) -> bool:
    """Return whether more of a metric of the run is better."""
    return bool(_described(run, metric).get("higher_is_better", metric != "loss"))


def _described(run: Run, metric: str) -> Mapping[str, object]:
    """Return what the run's record says of a metric; nothing of loss and accuracy."""
    described = (run.meta.get("task") or {}).get("metrics", [])
    return next((one for one in described if one["name"] == metric), {})


def rows_of(run: Run, metric: str) -> tuple[str, str, NDArray[np.bool_]]:
    """Return the table and the column that hold a metric, and which rows are of it."""
    if metric in ("loss", "accuracy"):
        return "evaluations", metric, np.ones(run.tables["evaluations"].num_rows, bool)
    return "metrics", "value", np.asarray(run.column("metrics", "metric") == metric, bool)


class Pooled(NamedTuple):
    """A metric over the test samples of all clients together, and the number of clients for which it is undefined."""

    value: float
    undefined: float


def pooled(run: Run, metric: str) -> Pooled:
    """Return a metric beside loss and accuracy, pooled at the last evaluation after round 0; NaN without clients' test samples."""
    rows = run.tables["metrics"]
    scope, mine = (
        run.column("metrics", "scope"),
        (run.column("metrics", "metric") == metric) & (run.column("metrics", "round") > 0),
    )

    def last(column: str, wanted: str) -> float:
        values = np.asarray(rows[column].to_numpy(), float)[mine & (scope == wanted)]
        return float(values[-1]) if len(values) else float("nan")

    return Pooled(last("value", "pooled"), last("undefined", "mean"))


def headline_scope(run: Run) -> str:
    """Return the scope of ``evaluations`` that holds the run's headline metric.

    ``mean`` (unweighted mean over the clients' own test sets) when the clients hold the test data, else ``global``.
    """
    split = run.config.get("split") or {}
    return "mean" if split.get("test") == "client" else "global"


def written_scope(run: Run) -> str:
    """Return the scope that the headline was written under: without a common test set it is the mean over clients."""
    wanted = headline_scope(run)
    return "mean" if wanted == "global" and not np.any(run.column("evaluations", "scope") == "global") else wanted
