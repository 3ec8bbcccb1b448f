"""The figures of new clients, those that no round asked, by epochs of adaptation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import nan

from motley.results import measures
from motley.results.fairness import client_values
from motley.results.load import Run
from motley.results.measures import Spread


def adapted_epochs(run: Run) -> list[int]:
    """Return the numbers of epochs after which new clients were examined, ascending; empty where
    none were."""
    scopes = run.newest("evaluations")["scope"].unique().to_pylist()
    return sorted(
        int(match[1]) for scope in scopes if (match := re.fullmatch(r"new_mean_(\d+)", scope or ""))
    )


def served_new(runs: Sequence[Run], epochs: int) -> tuple[Spread, Spread]:
    """Return the headline of new clients after so many epochs, over seeds: the mean over clients,
    and that of their worst tenth (none where ``evaluate.per_client`` is off); in percent where it
    is a share."""
    better = measures.metric_of(runs[0])[1]
    percent = measures.percent_of(runs[0])
    scope = f"new_mean_{epochs}"
    curves = [measures.curve(run, scope=scope).y for run in runs]
    means = [percent * float(y[-1]) if len(y) else nan for y in curves]
    worst = [
        percent * measures.fairness(client_values(run, f"new_client_{epochs}"), better).worst_decile
        for run in runs
    ]
    return (
        measures.spread_at_end(means, runs, scope=scope),
        measures.spread_at_end(worst, runs, scope=scope),
    )
