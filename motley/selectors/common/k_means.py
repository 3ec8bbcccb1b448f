"""k-means of clients' vectors, a function of the vectors and a key."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from motley.core.arrays import Floats
from motley.core.keys import Key

__all__ = ["k_means", "nearest", "square_distances"]

Labels = NDArray[np.int64]

_STEPS = 40


def k_means(points: Floats, count: int, key: Key) -> tuple[Labels, float]:
    """A label ``0 .. count - 1`` for each row of ``points`` ``[n, d]``, and the sum of squared distances from the centres.

    k-means++ (Arthur, Vassilvitskii, SODA 2007), then Lloyd's steps until nothing changes, at most 40. A group may be empty.
    """
    centres = points[_plus_plus(points, count, key)]
    labels = np.full(len(points), -1)
    for _ in range(_STEPS):
        before, labels = labels, nearest(points, centres)
        if np.array_equal(labels, before):
            break
        size = np.bincount(labels, minlength=count)[:, None]
        members = sparse.csr_array((np.ones(len(points)), (labels, np.arange(len(points)))), shape=(count, len(points)))
        centres = np.where(size > 0, (members @ points) / np.maximum(size, 1), centres)
    return labels, float(((points - centres[labels]) ** 2).sum())


def nearest(x: Floats, centres: Floats) -> Labels:
    """The position of the nearest centre for each row of x; the first of several."""
    closeness = x @ centres.T  # |x|^2 is the same for every centre
    closeness -= 0.5 * np.einsum("kd,kd->k", centres, centres)
    return np.asarray(closeness.argmax(axis=1))


def square_distances(x: Floats, y: Floats) -> Floats:
    """``|x_i - y_j|^2``, ``[n, m]``, never negative."""
    out = x @ y.T
    out *= -2.0
    out += np.einsum("kd,kd->k", x, x)[:, None]
    out += np.einsum("kd,kd->k", y, y)
    return np.asarray(np.maximum(out, 0.0, out=out))


def _plus_plus(points: Floats, count: int, key: Key) -> Labels:
    """Positions of the first centres: each next one with probability proportional to the squared distance from those before."""
    draws = key.uniform(np.arange(count))[:, 0]
    chosen = np.empty(count, np.int64)
    far = np.ones(len(points))
    for i, draw in enumerate(draws):
        edges = np.cumsum(far)
        chosen[i] = min(int(np.searchsorted(edges, draw * edges[-1], side="right")), len(points) - 1)
        apart = square_distances(points, points[chosen[i : i + 1]])[:, 0]
        far = apart if i == 0 else np.minimum(far, apart)
    return chosen
