"""Every metric of every client at the last evaluation, by name, as an Arrow table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from motley.core.arrays import Floats
from motley.results.load import Run
from motley.results.recorded_metrics import metrics_of, rows_of


def client_table(run: Run) -> pa.Table:
    """Return a row for each client with its own metrics at the last evaluation that has any.

    Columns: ``client`` (its id), ``name`` (null where it has none), ``num_train``, ``num_test``,
    ``asked`` and ``accepted`` (how often), then ``loss``, ``accuracy`` and every other metric of
    the run. Where clients were evaluated in other ways, these follow with the way before the
    metric: ``shared_accuracy``, ``validation_loss``, ``new_3_accuracy`` (clients that no round
    asked, after three epochs on their own samples). Null where a client has no such number.
    """
    federation = run.tables["federation"]
    sent = run.tables["clients"]
    names = run.client_names
    ids = np.array(
        sorted({*federation["client"].to_pylist(), *sent["client"].to_pylist(), *names} - {-1}),
        np.int64,
    )
    place = {int(k): i for i, k in enumerate(ids)}
    columns: dict[str, object] = {
        "client": ids,
        "name": pa.array([names.get(int(k)) for k in ids], pa.string()),
    }
    at = [place[k] for k in federation["client"].to_pylist()]
    for size in ("num_train", "num_test"):
        columns[size] = pa.array(
            _placed(federation[size].to_numpy(), at, len(ids)), pa.int64(), from_pandas=True
        )
    for column, rows in (
        ("asked", sent),
        ("accepted", sent.filter(pc.equal(sent["outcome"], "accepted"))),
    ):
        columns[column] = np.bincount(
            [place[k] for k in rows["client"].to_pylist() if k in place], minlength=len(ids)
        )
    for scope in _scopes(run):
        way = "_".join(word for word in scope.split("_") if word != "client")
        for metric in dict.fromkeys(["loss", "accuracy", *metrics_of(run)]):
            values = _last(run, metric, scope, place)
            if np.isfinite(values).any():
                columns[f"{way}_{metric}" if way else metric] = values
    return pa.table({name: pa.array(column, from_pandas=True) for name, column in columns.items()})


def _placed(values: NDArray[np.generic], at: Sequence[int], count: int) -> Floats:
    out = np.full(count, np.nan)
    out[at] = np.asarray(values, float)
    return out


def _scopes(run: Run) -> list[str]:
    """Return the ways in which single clients were evaluated, their own model first."""
    scopes = pc.unique(run.newest("evaluations")["scope"]).to_pylist()
    return sorted(
        (scope for scope in scopes if "client" in scope.split("_")),
        key=lambda scope: (scope != "client", scope),
    )


def _last(run: Run, metric: str, scope: str, place: Mapping[int, int]) -> Floats:
    """Return a metric of each client at the last evaluation of a scope, NaN where there is none."""
    rows, column = rows_of(run, metric, scope)
    rows = rows.filter(pc.equal(rows["round"], pc.max(rows["round"])))
    last = [
        (place[k], v)
        for k, v in zip(rows["client"].to_pylist(), rows[column].to_pylist(), strict=True)
        if k in place
    ]
    return _placed(
        np.array([np.nan if v is None else v for _, v in last]),
        [at for at, _ in last],
        len(place),
    )
