"""Measures of which clients the rounds selected: how much cohorts repeat, and how many picks are
noisy or skewed clients.

A *pick* is one client selected in one round, whatever became of its update. Rounds that selected
every client of the federation are left out, for they chose nothing (FLASH's first round is one).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Ids
from motley.results.load import Run
from motley_report.selection_plots import label_counts

MOST = 0.5
"""A client is *skewed* if more than this share of its training samples has one label."""


def cohort_overlap(run: Run) -> float:
    """Return the share of a cohort that was also in the cohort of the round before, averaged over
    rounds; NaN if there are no two successive rounds that chose. Of m out of K clients at random it
    is m / K."""
    cohorts = _cohorts(run)
    shares = [
        len(np.intersect1d(ids, cohorts[t - 1])) / len(ids)
        for t, ids in cohorts.items()
        if t - 1 in cohorts
    ]
    return float(np.mean(shares)) if shares else float("nan")


def noisy_picks(run: Run) -> float:
    """Return the share of picks that are clients whose share of wrong labels is above the median
    over the federation's clients; NaN where all clients have the same share. Random selection has
    the share of such clients, about a half."""
    noise = np.nan_to_num(np.asarray(run.column("federation", "noise"), float))
    return _share_of_picks(run, noise > np.median(noise)) if len(noise) else float("nan")


def skewed_picks(run: Run) -> float:
    """Return the share of picks that are clients with more than :data:`MOST` of their training
    samples in one class, by their labels as given; NaN where no client is. Random selection has the
    share of such clients."""
    counts, labelled = label_counts(run)
    skewed = np.zeros(len(labelled), bool)
    skewed[labelled] = counts.max(axis=1, initial=0) > MOST * counts.sum(axis=1)
    return _share_of_picks(run, skewed)


def _share_of_picks(run: Run, marked: NDArray[np.bool_]) -> float:
    """Return the share of picks that fall on marked clients; ``marked`` [N] in the order of the
    table ``federation``."""
    if not marked.any():
        return float("nan")
    ids = np.asarray(run.column("federation", "client"), np.int64)
    cohorts = list(_cohorts(run).values())
    return float(np.isin(np.concatenate(cohorts), ids[marked]).mean()) if cohorts else float("nan")


def _cohorts(run: Run) -> dict[int, Ids]:
    """Return round -> ids of the clients it selected, ascending, of the rounds that left a client
    out."""
    clients, rounds = (
        np.asarray(run.column("clients", name), np.int64) for name in ("client", "round")
    )
    everybody = run.tables["federation"].num_rows or int(run.config.get("population") or 0)
    cohorts = {int(t): np.unique(clients[rounds == t]) for t in np.unique(rounds)}
    return {t: ids for t, ids in cohorts.items() if len(ids) != everybody}
