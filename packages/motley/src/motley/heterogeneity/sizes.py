"""How many samples clients have: the Gini coefficient of their sizes, and the largest client's
share."""

from __future__ import annotations

import numpy as np

from motley.core.arrays import Ints
from motley.heterogeneity.record import Finding

__all__ = ["size_findings"]


def size_findings(sizes: Ints) -> list[Finding]:
    """Return the findings ``size_gini`` and ``largest_share``, exact, of each client's number of
    training samples ``[K]``.

    The Gini coefficient is ``sum_k (2 k - K - 1) n_(k) / (K sum n)`` of ascending sizes: 0 for
    equal clients, ``1 - 1/K`` if one has everything. Clients without samples are not counted.

    Example
    -------
    >>> [one.value for one in size_findings(np.array([1, 3]))]
    [0.25, 0.75]
    """
    held = np.sort(sizes[sizes > 0])
    total = int(held.sum())
    number = len(held)
    gini = float(((2 * np.arange(1, number + 1) - number - 1) * held).sum() / (number * total))
    share = np.where(sizes > 0, sizes / total, np.nan)
    needs = "its number of samples"
    how = "each client sends its number of samples, as it does with every upload"
    return [
        Finding(
            "size_gini",
            gini,
            unit="share",
            how="exact",
            needs=needs,
            federated=how,
            federated_bytes=8,
            note="0: all clients have equally many samples; near 1: a few have almost all",
        ),
        Finding(
            "largest_share",
            float(held[-1] / total),
            unit="share",
            per_client=share,
            how="exact",
            needs=needs,
            federated=how,
            federated_bytes=8,
            note="the largest client's share of all samples",
        ),
    ]
