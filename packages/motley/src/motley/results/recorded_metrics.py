"""What a run's record says of its metrics, and where its tables hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from motley.core.errors import ConfigError
from motley.results.load import Run

_ABBREVIATIONS = {"auroc": "AUROC", "mae": "MAE", "rmse": "RMSE", "r2": "R2"}


def metric_in_text(metric: str) -> str:
    """Return a metric as a text, an axis or a head of a table has it: abbreviations in capitals.

    >>> [metric_in_text(one) for one in ("accuracy", "auroc")]
    ['accuracy', 'AUROC']
    """
    return _ABBREVIATIONS.get(metric, metric)


def metric_in_title(metric: str) -> str:
    """Return a metric as a sentence or a title begins with it: abbreviations in capitals, a name of
    one's own with the capitals that it has.

    >>> [metric_in_title(one) for one in ("accuracy", "auroc", "mean_AUC")]
    ['Accuracy', 'AUROC', 'Mean_AUC']
    """
    return _ABBREVIATIONS.get(metric, metric[:1].upper() + metric[1:])


def metric_of(run: Run) -> tuple[str, bool]:
    """Return (name of the headline metric, whether more of it is better)."""
    metric = str((run.meta.get("task") or {}).get("metric", "accuracy"))
    return metric, better_of(run, metric)


def common_metric(runs: Iterable[Run]) -> tuple[str, bool]:
    """Return the headline metric of runs as :func:`metric_of` does.

    Raises
    ------
    ConfigError: the runs have several, or there are no runs.
    """
    kinds = {metric_of(run) for run in runs}
    if len(kinds) != 1:
        names = ", ".join(sorted(name for name, _ in kinds)) or "no runs"
        raise ConfigError(f"runs are compared in one metric, got {names}; give runs of one task")
    return kinds.pop()


def percent_of(run: Run, metric: str | None = None) -> float:
    """Return 100 where the headline metric (or ``metric``) is a share, which is shown in percent,
    else 1."""
    name = metric or metric_of(run)[0]
    return 100.0 if _described(run, name).get("share", name == "accuracy") else 1.0


def metrics_of(run: Run) -> list[str]:
    """Return the names of the run's metrics, the headline first, then those beside loss and
    accuracy."""
    task = run.meta.get("task") or {}
    return list(
        dict.fromkeys([metric_of(run)[0], *(entry["name"] for entry in task.get("metrics", []))])
    )


def better_of(run: Run, metric: str) -> bool:
    """Return whether more of a metric of the run is better."""
    return bool(_described(run, metric).get("higher_is_better", metric != "loss"))


def _described(run: Run, metric: str) -> Mapping[str, object]:
    """Return what the run's record says of a metric; nothing of loss and accuracy."""
    described = (run.meta.get("task") or {}).get("metrics", [])
    return next((entry for entry in described if entry["name"] == metric), {})


def rows_of(run: Run, metric: str, scope: str) -> tuple[pa.Table, str]:
    """Return the rows that hold a metric in one scope, and the column with its values."""
    if metric in ("loss", "accuracy"):
        rows = run.newest("evaluations")
        return rows.filter(pc.equal(rows["scope"], scope)), metric
    return _own_rows(run, metric, scope), "value"


def _own_rows(run: Run, metric: str, scope: str) -> pa.Table:
    rows = run.newest("metrics")
    return rows.filter(pc.and_(pc.equal(rows["metric"], metric), pc.equal(rows["scope"], scope)))


class Pooled(NamedTuple):
    """A metric over the test samples of all clients together, and the number of clients for which
    it is undefined."""

    value: float
    undefined: float


def pooled(run: Run, metric: str) -> Pooled:
    """Return a metric, pooled at the last evaluation after round 0; NaN where the run has no pooled
    value of it."""

    def last(column: str, scope: str) -> float:
        rows = _own_rows(run, metric, scope)
        values = np.asarray(rows.filter(pc.greater(rows["round"], 0))[column].to_numpy(), float)
        return float(values[-1]) if len(values) else float("nan")

    return Pooled(last("value", "pooled"), last("undefined", "mean"))


def headline_scope(run: Run) -> str:
    """Return the scope of ``evaluations`` that holds the run's headline metric.

    ``mean`` (unweighted mean over the clients' own test sets) when the clients hold the test data
    or have models of their own, else ``global``.
    """
    split = run.config.get("split") or {}
    return "mean" if split.get("test") == "client" or run.meta.get("personal") else "global"


def written_scope(run: Run) -> str:
    """Return the scope that the headline was written under: without a common test set it is the
    mean over clients."""
    wanted = headline_scope(run)
    scopes = run.newest("evaluations")["scope"]
    return "mean" if wanted == "global" and pc.index(scopes, "global").as_py() < 0 else wanted
