"""Shares of the data: what the server knows of the clients' sizes, and ``p_k``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Ids
from motley.core.records import Outcome, Reports
from motley.core.table import ClientTable
from motley.selectors.common.missing import filled

__all__ = ["SIZE", "put_sizes", "shares", "sizes"]

SIZE = "num_examples"
LARGEST = 1e15
"""Sizes beyond it count as it: their sums stay finite."""


def put_sizes(table: ClientTable, reports: Reports) -> ClientTable:
    """The table with the sizes of newly enrolled clients: the signal ``num_examples``, or the column of that name.

    ``reports`` are of one :meth:`observe`; only those with outcome ``ENROLLED`` count, and no negative or absent size.
    """
    enrolled = reports.of(Outcome.ENROLLED)
    if not len(enrolled):
        return table
    signal = enrolled.signal(SIZE)
    sizes = np.where(np.isnan(signal), enrolled.num_examples, signal)
    sizes = np.where(np.isfinite(sizes) & (sizes >= 0), np.minimum(sizes, LARGEST), np.nan)
    return table.put(enrolled.ids, {SIZE: sizes})


def sizes(table: ClientTable, ids: Ids) -> NDArray[np.float64]:
    """``n_k`` of these ids, ``[len(ids)]``.

    INTERPRETATION-D: a client that never enrolled counts as the mean of those that did; with nobody enrolled all have 1.
    """
    return filled(table.get(SIZE, ids))


def shares(table: ClientTable, ids: Ids) -> NDArray[np.float64]:
    """``p_k = n_k / sum n`` over these ids, ``[len(ids)]``; sums to 1. Equal where nobody has data."""
    n = sizes(table, ids)
    total = n.sum()
    return n / total if total > 0 else np.full(len(ids), 1.0 / max(len(ids), 1))
