"""How many samples clients have: the Gini coefficient of their sizes, and the largest client's
share."""

from __future__ import annotations

from functools import partial

import numpy as np

from motley.core.arrays import Ints
from motley_advice.heterogeneity.findings import Finding


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
    exact = partial(
        Finding,
        unit="share",
        how="exact",
        needs="its number of samples",
        federated="each client sends its number of samples, as it does with every upload",
        federated_bytes=8,
    )
    return [
        exact(
            "size_gini",
            gini,
            note="0: all clients have equally many samples; near 1: a few have almost all",
        ),
        exact(
            "largest_share",
            float(held[-1] / total),
            per_client=share,
            note="the largest client's share of all samples",
        ),
    ]
