"""Facility location: choose a few clients whose vectors lie close to those of all clients (DivFL,
FedCG).

    d_ij = ||g_i - g_j||              Euclidean, not squared
    G(S) = sum_i min_{j in S} d_ij    total distance to the picks; G({}) is a constant,
                                      F = G({}) - G
    greedy: m times the candidate with the largest F(S + k) - F(S); at least 1 - 1/e of the best F
            (F is monotone submodular)

Symbols: K clients to cover, n candidates, m picks. The gains of all candidates are kept, and a pick
updates only the part of those clients whose nearest pick changed: about ``K n log m`` operations
instead of ``K n m``, exactly the greedy picks (a lazy queue finds the same ones, equally fast).
Distances are float32, their sums float64.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ints

Positions = Ints
Vectors = Literal["gradient_sketch", "gradient"]

TIE = 1e-6
"""Gains closer than this share of the largest distance are ties: rounding does not decide between
equals."""
EXACT = 1e9
"""Up to so many multiplications distances are computed in float64, which takes some tens of
milliseconds."""
_BLOCK = 1 << 17  # numbers at a time: temporaries stay in the cache


class Cover(NamedTuple):
    """The greedy picks and how well they cover all clients.

    at: positions of the picks among the candidates, in order, ``[m]``. objective: G after each
    pick, ``[m]``.
    nearest: for each client the place in ``at`` of its nearest pick, ``[K]``.
    """

    at: Positions
    objective: Floats
    nearest: Positions


def distances(vectors: Floats, candidates: Positions) -> NDArray[np.float32]:
    """Return Euclidean distances of all vectors ``[K, d]`` to those at ``candidates`` ``[n]``;
    float32 ``[K, n]``, 0 to oneself.

    By a matrix product; for large federations in float32, which is imprecise below a thousandth of
    the vectors' length.
    """
    centred = vectors - vectors.mean(axis=0)  # distances stay, squares shrink
    if vectors.size * len(candidates) > EXACT:
        centred = centred.astype(np.float32)
    square = np.einsum("kd,kd->k", centred, centred)
    columns = centred[candidates].T
    out = np.empty((len(vectors), len(candidates)), np.float32)
    for start in range(0, len(vectors), 256):
        rows = slice(start, start + 256)
        block = centred[rows] @ columns
        block *= -2.0
        block += square[candidates]
        block += square[rows, None]
        np.maximum(block, 0.0, out=block)
        np.sqrt(block, out=out[rows], casting="same_kind")
    # the expanded square leaves rounding here, which its root magnifies
    out[candidates, np.arange(len(candidates))] = 0.0
    return out


def cover(
    distance: NDArray[np.floating],
    m: int,
    rank: NDArray[np.integer],
    sample: int | None = None,
    rng: np.random.Generator | None = None,
) -> Cover:
    """Pick greedily.

    Parameters
    ----------
    distance: ``[K, n]``, of every client to every candidate.
    m: picks, at most n are made.
    rank: ``[n]``; of equal candidates the one of lowest rank is taken.
    sample: stochastic greedy: each pick considers so many of the candidates left, drawn from
    ``rng``; None: all.
    """
    clients, n = distance.shape
    m = min(m, n)
    # in 64 bits: sums over a million clients decide between nearly equal picks
    gain = -distance.sum(axis=0, dtype=np.float64)
    slack = TIE * float(distance.max(initial=0.0))
    width = max(_BLOCK // max(n, 1), 1)
    near = np.full(clients, -np.inf)
    nearest = np.zeros(clients, np.int64)
    at = np.empty(m, np.int64)
    objective = np.empty(m)
    for i in range(m):
        pool = np.arange(n)
        if rng is not None and sample is not None:
            left = np.flatnonzero(~np.isneginf(gain))
            pool = left if sample >= len(left) else rng.choice(left, sample, replace=False)
        best = pool[gain[pool] >= gain[pool].max() - slack]
        at[i] = best[np.argmin(rank[best])]
        column = distance[:, at[i]].astype(np.float64)
        if i == 0:  # nobody chosen yet: from here on gain counts from the first pick
            gain[:] = 0.0
        # gains change through these clients alone, ever fewer of them
        closer = np.flatnonzero(column < near) if i else np.arange(clients)
        for start in range(0, len(closer), width):
            rows = closer[start : start + width]
            gain += _change(distance[rows].astype(np.float64), near[rows, None], column[rows, None])
        near[closer], nearest[closer] = column[closer], i
        gain[at[i]] = -np.inf
        objective[i] = near.sum()
    return Cover(at, objective, nearest)


def _change(d: Floats, before: Floats, after: Floats) -> Floats:
    """Return the change of the gains ``sum_i max(near_i - d_i, 0)`` when ``near`` moves from
    ``before`` to ``after``."""
    change = np.maximum(after, d)
    change -= np.maximum(before, d)
    return np.asarray(change.sum(axis=0))
