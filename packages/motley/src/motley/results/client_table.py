"""Every metric of every client at the last evaluation, by name: as an Arrow table, and as a table
of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from motley.core.arrays import Floats
from motley.results.blocks import DASH, Table, TableCell, TableRow
from motley.results.load import Run
from motley.results.number_text import short_number
from motley.results.recorded_metrics import metric_of, metrics_of, percent_of, rows_of

MOST = 50
"""Clients that a report lists by name, at most."""


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


def by_client(groups: Mapping[str, Sequence[Run]]) -> Table | None:
    """Return the clients' own metrics by name, means over seeds: the headline of every method, or
    all metrics of a single one.

    None where clients have no names or were not evaluated one by one. Methods whose clients are
    others are left out.
    """
    first = next(iter(groups.values()))[0]
    metrics = metrics_of(first)[: 1 if len(groups) > 1 else None]
    heads: list[tuple[str, str, Floats]] = []
    for label, runs in groups.items() if first.client_names else ():
        tables = [client_table(run) for run in runs if run.client_names == first.client_names]
        for metric in metrics:
            columns = [
                np.asarray(table[metric].to_numpy(), float)
                for table in tables
                if metric in table.column_names
            ]
            if columns and len({len(values) for values in columns}) == 1:
                heads.append(
                    (
                        f"{label}: {metric}" if len(groups) > 1 else metric,
                        metric,
                        np.mean(columns, axis=0),
                    )
                )
    if not heads:
        return None
    return _as_blocks(first, client_table(first), heads)


def _as_blocks(run: Run, clients: pa.Table, heads: Sequence[tuple[str, str, Floats]]) -> Table:
    """Return the table of a report: the clients in order of their names, or the worst served where
    they are many."""
    ids = clients["client"].to_pylist()
    tests = clients["num_test"].to_pylist()
    worst = np.argsort(heads[0][2] * (1 if metric_of(run)[1] else -1), kind="stable")[:MOST]
    rows = []
    for i in sorted(worst.tolist(), key=lambda i: run.client_name(ids[i])):
        values = [percent_of(run, metric) * float(values[i]) for _, metric, values in heads]
        cells = [
            TableCell(DASH if np.isnan(value) else short_number(value), value) for value in values
        ]
        held = TableCell(DASH if tests[i] is None else f"{tests[i]:.0f}", tests[i] or 0.0)
        rows.append(TableRow(run.client_name(ids[i]), [held, *cells]))
    note = "Each client's own figure at the last evaluation, mean over seeds."
    if len(ids) > MOST:
        note += (
            f" Of {len(ids)} clients the {MOST} worst served; motley.load(run).client_table() "
            "has all."
        )
    units = [f"{head} (%)" if percent_of(run, metric) > 1 else head for head, metric, _ in heads]
    return Table(("client", "test samples", *units), rows, note)
