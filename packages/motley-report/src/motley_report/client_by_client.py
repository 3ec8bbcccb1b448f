"""The table of a report on the metrics of every client at the last evaluation, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from motley.core.arrays import Floats
from motley.results.blocks import DASH, Table, TableCell, TableRow
from motley.results.client_table import client_table
from motley.results.fairness import has_clients
from motley.results.load import Run
from motley.results.number_text import short_number
from motley.results.recorded_metrics import metric_of, metrics_of, percent_of

MOST = 50
"""Clients that a report lists by name, at most."""


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
        tables = [
            client_table(run)
            for run in runs
            if run.client_names == first.client_names and has_clients(run, "client")
        ]
        for metric in metrics:
            columns = [
                np.asarray(table[metric].to_numpy(), float)
                if metric in table.column_names
                else np.full(table.num_rows, np.nan)
                for table in tables
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
