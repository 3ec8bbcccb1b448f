"""The table of a report on each architecture, where clients hold models of different ones: how they
are served, and what a dispatch costs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, nan
from typing import Any

import numpy as np

from motley.core.arrays import Floats
from motley.results.blocks import DASH, Table, TableCell, TableRow
from motley.results.fairness import of_clients
from motley.results.load import Run
from motley.results.measures import spread, spread_at_end
from motley.results.number_text import MB, short_number
from motley.results.recorded_metrics import metric_of, percent_of


def by_architecture(groups: Mapping[str, Sequence[Run]]) -> Table | None:
    """Return a row for each method (label to runs) and architecture: clients that hold it,
    parameters, the mean of their own headline metric and their worst one at the last evaluation,
    megabytes and seconds of virtual time of a dispatch, means over seeds.

    None where no run's clients hold different architectures."""
    rows = []
    first: Run | None = None
    for label, runs in groups.items():
        held = [_listed(run) for run in runs]
        if not held[0] or any(listed != held[0] for listed in held):
            continue
        first = first or runs[0]
        for number, (name, parameters) in enumerate(held[0]):
            title = f"{number} {name}"
            holders, *served, megabytes, seconds = zip(
                *(_figures(run, number) for run in runs), strict=True
            )
            cells = [
                _cell(spread(holders).mean),
                TableCell(f"{parameters:,}", float(parameters)),
                *(_cell(spread_at_end(values, runs).mean) for values in served),
                _cell(spread(megabytes).mean),
                _cell(spread(seconds).mean),
            ]
            rows.append(TableRow(f"{label}: {title}" if len(groups) > 1 else title, cells))
    if first is None:
        return None
    metric = metric_of(first)[0] + (" (%)" if percent_of(first) > 1 else "")
    heads = ("model", "clients", "parameters", metric, f"worst {metric}", "MB", "seconds")
    note = (
        "Clients with their own models at the last evaluation. MB (both ways) and virtual seconds "
        "(download, training, upload) are those of one dispatch. Means over seeds."
    )
    return Table(heads, rows, note)


def _listed(run: Run) -> list[tuple[str, int]]:
    """Return the name and the parameters of each architecture; none where all hold one model."""
    listed = run.meta.get("architectures") or {"names": [], "parameters": []}
    return list(zip(listed["names"], listed["parameters"], strict=True))


def _figures(run: Run, number: int) -> tuple[float, ...]:
    """Return clients, mean and worst metric, megabytes and seconds of one architecture in a run."""
    holders = np.array(run.meta["architectures"]["holders"], np.int64)
    scale = percent_of(run)
    clients, values = of_clients(run)
    own = scale * values[(holders[clients] == number) & np.isfinite(values)]
    worst: Callable[[Floats], Any] = np.min if metric_of(run)[1] else np.max
    sent = np.asarray(run.column("clients", "client"), np.int64)
    at = holders[sent] == number

    def mean(columns: Sequence[str]) -> float:
        total = np.sum([np.nan_to_num(_numbers(run, name)[at]) for name in columns], axis=0)
        return float(total.mean()) if at.any() else nan

    return (
        float((holders == number).sum()),
        float(own.mean()) if len(own) else nan,
        float(worst(own)) if len(own) else nan,
        mean(("bits_down", "bits_up")) / MB,
        mean(("download_s", "compute_s", "upload_s")),
    )


def _numbers(run: Run, name: str) -> Floats:
    return np.asarray(run.column("clients", name), float)


def _cell(value: float) -> TableCell:
    return TableCell(short_number(value) if isfinite(value) else DASH, value)
