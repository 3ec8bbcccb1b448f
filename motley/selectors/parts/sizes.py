"""Shares of the data: what the server knows of the clients' sizes, and ``p_k``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from motley.core.records import Ids, Outcome, Reports
from motley.core.table import ClientTable

__all__ = ["SIZE", "put_sizes", "shares"]

SIZE = "num_examples"


def put_sizes(table: ClientTable, reports: Reports) -> ClientTable:
    """The table with the sizes of newly enrolled clients: the signal ``num_examples``, or the column of that name.

    ``reports`` are of one :meth:`observe`; only those with outcome ``ENROLLED`` count, and no negative or absent size.
    """
    enrolled = reports.of(Outcome.ENROLLED)
    if not len(enrolled):
        return table
    signal = enrolled.signal(SIZE)
    sizes = np.where(np.isnan(signal), enrolled.num_examples, signal)
    return table.put(enrolled.ids, {SIZE: np.where(np.isfinite(sizes) & (sizes >= 0), sizes, np.nan)})


def shares(table: ClientTable, ids: Ids) -> NDArray[np.float64]:
    """``p_k = n_k / sum n`` over these ids, ``[len(ids)]``; sums to 1.

    INTERPRETATION-D: a client that never enrolled counts as the mean of those that did, so with nobody enrolled (or
    everybody without data) all shares are equal.
    """
    sizes = table.get(SIZE, ids)
    missing = np.isnan(sizes)
    if missing.any():
        known = sizes[~missing]
        sizes = np.where(missing, known.mean() if len(known) else 1.0, sizes)
    total = sizes.sum()
    return sizes / total if total > 0 else np.full(len(ids), 1.0 / max(len(ids), 1))
