"""Readings of reports that several rules share: data sizes, durations, losses, vectors, and missing
numbers.

An absent number is NaN everywhere. Sizes are counts of samples, durations are seconds.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from motley.core.arrays import Bools, Floats, Ids
from motley.core.records import Outcome, Reports
from motley.core.table import ClientTable

SIZE = "num_examples"
"""The signal, and the column, that holds a client's number of training samples."""
PHASES = ("download", "compute", "upload")
ESTIMATES = frozenset(f"{phase}_estimate_s" for phase in PHASES)
DURATIONS = frozenset(f"{phase}_s" for phase in PHASES)
"""Signals with the planner's estimate of the seconds of each phase; they cost no traffic."""
LARGEST = 1e15
"""Sizes, durations and entries of vectors above it count as it: sums and squares stay finite,
distances also in float32."""


def dispatched(reports: Reports) -> Reports:
    """Return the reports of the clients that were sent out, whether or not their update was
    accepted."""
    return reports.of(Outcome.ACCEPTED, Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED)


def filled(values: Floats, by: Literal["mean", "max"] = "mean", default: float = 1.0) -> Floats:
    """Return ``values`` ``[K]`` with each NaN replaced by the mean, or the maximum, of the others.

    The mean neither prefers nor avoids a client for an unknown number, the maximum prefers it. If
    all are NaN, all are ``default``.
    """
    missing = np.isnan(values)
    if not missing.any():
        return values
    if missing.all():
        return np.full(len(values), default)
    return np.where(missing, getattr(np, by)(values[~missing]), values)


def normalised_loss(loss: Floats, eps: float) -> Floats:
    """Return ``(L - min L) / (max L - min L + eps)``, ``[K]``: their mean for clients without a
    loss, all 0 without any loss."""
    losses = loss[~np.isnan(loss)] if np.isnan(loss).any() else loss
    if not len(losses):
        return np.zeros(len(loss))
    # halved, which is exact, no difference overflows
    low = 0.5 * losses.min()
    high = 0.5 * losses.max()
    return filled((0.5 * loss - low) / (high - low + 0.5 * eps))


def put_sizes(table: ClientTable, reports: Reports) -> ClientTable:
    """Return the table with the sizes of newly enrolled clients, from the signal ``num_examples``
    or the column of that name.

    ``reports`` are those of one ``observe``; only the outcome ``ENROLLED`` counts. A negative or
    absent size stays unknown.
    """
    enrolled = reports.of(Outcome.ENROLLED)
    if not len(enrolled):
        return table
    signal = enrolled.signal(SIZE)
    sizes = np.where(np.isnan(signal), enrolled.num_examples, signal)
    sizes = np.where(np.isfinite(sizes) & (sizes >= 0), np.minimum(sizes, LARGEST), np.nan)
    return table.put(enrolled.ids, {SIZE: sizes})


def sizes(table: ClientTable, ids: Ids) -> Floats:
    """Return the data sizes ``n_k`` of these clients, ``[len(ids)]``.

    INTERPRETATION-D: a client that never enrolled has the mean size of those that did; if nobody
    enrolled, all have size 1.
    """
    return filled(table.get(SIZE, ids))


def shares(table: ClientTable, ids: Ids) -> Floats:
    """Return the shares of the data ``p_k = n_k / sum n`` among these clients, ``[len(ids)]``;
    equal if nobody has data."""
    n = sizes(table, ids)
    total = n.sum()
    return n / total if total > 0 else np.full(len(ids), 1.0 / max(len(ids), 1))


def put_vectors(
    table: ClientTable, column: str, reports: Reports, signal: str, largest: float = LARGEST
) -> ClientTable:
    """Return the table with these reports' vectors, entries cut at ``largest``; one with an absent
    number is left out whole."""
    vectors = reports.signal(signal)
    vectors = vectors[:, None] if vectors.ndim == 1 else vectors
    complete = ~np.isnan(vectors).any(axis=1)
    if not complete.any():
        return table
    return table.put(reports.ids[complete], {column: np.clip(vectors[complete], -largest, largest)})


def known_vectors(table: ClientTable, column: str, ids: Ids) -> tuple[Floats, Bools]:
    """Return vectors ``[n, d]`` and which are known, ``[n]``; an unknown one is the mean of the
    known (0 if there are none)."""
    vectors = table.get(column, ids)
    vectors = vectors.reshape(len(ids), -1)
    present = ~np.isnan(vectors[:, 0])
    if present.all():
        return vectors, present
    mean = vectors[present].mean(axis=0) if present.any() else np.zeros(vectors.shape[1])
    return np.where(present[:, None], vectors, mean), present


def usable_seconds(values: Floats) -> Floats:
    """Return the durations, at most :data:`LARGEST`; NaN where a number is negative, infinite or
    absent."""
    return np.where((values >= 0) & (values < np.inf), np.minimum(values, LARGEST), np.nan)


def measured_s(reports: Reports) -> Floats:
    """Return the measured duration of each client, download to upload, ``[n]``."""
    return _total([getattr(reports, f"{phase}_s") for phase in PHASES])


def estimated_s(reports: Reports) -> Floats:
    """Return the planner's estimate of each client's duration, download to upload, ``[n]``."""
    return _total([reports.signal(f"{phase}_estimate_s") for phase in PHASES])


def _total(phases: list[Floats]) -> Floats:
    """Sum the phases; an absent phase adds nothing, but the sum is NaN if all are absent or one is
    no duration."""
    total = np.zeros(len(phases[0]))
    any_present = np.zeros(len(phases[0]), bool)
    for phase in phases:
        present = ~np.isnan(phase)
        any_present |= present
        total += np.where(present, usable_seconds(phase), 0.0)
    return np.where(any_present, total, np.nan)
