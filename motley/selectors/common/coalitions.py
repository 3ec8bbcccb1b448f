"""Spectral clustering of clients into coalitions, deterministic, with a factor form for many clients.

Symbols: K clients, p coordinates, P coalitions; ``x_k`` a client's vector, ``W`` the similarity ``[K, K]``.

    gaussian   G_kj = exp(-g |x_k - x_j|^2),  W = (R + R^T) / 2 with R = G / its row sums
    cosine     W = <x_k, x_j>, of unit vectors
    embedding  the P leading eigenvectors of S^-1/2 W S^-1/2, S the row sums of W (cosine: of W itself, whose row sums may be
               negative), each row scaled to unit length (Ng, Jordan, Weiss, NeurIPS 2001)
    coalitions k-means of the embedding; k-means++ from a fixed key, so the same vectors give the same coalitions

Above ``exact_up_to`` clients no K x K matrix is made. Cosine: W = X X^T is a factor already. Gaussian: Nystroem's factor
``G ~ F F^T``, ``F = G_KL G_LL^(-1/2)`` of L landmarks, drawn by the key among clients with distinct vectors (Williams,
Seeger, NeurIPS 2001).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from motley.core.arrays import Floats
from motley.core.keys import Key
from motley.selectors.common.k_means import k_means, square_distances

__all__ = ["Kernel", "coalitions", "embedding", "fill", "similarity", "unit_rows"]

Labels = NDArray[np.int64]
Kernel = Literal["gaussian", "cosine"]

_RESTARTS = 8  # of k-means, where the exact form is affordable
_SMALL = 1e-12  # relative: eigenvalues below it are rounding
_TINY = np.finfo(np.float64).tiny


def unit_rows(x: Floats) -> Floats:
    """Rows scaled to Euclidean length 1; zero rows stay zero."""
    length = np.sqrt(np.einsum("kd,kd->k", x, x))[:, None]
    return np.asarray(np.divide(x, length, out=np.zeros(x.shape), where=length > 0))


def similarity(x: Floats, kernel: Kernel, g: float = 1.0) -> Floats:
    """``W``, ``[K, K]``, as defined above."""
    if kernel == "cosine":
        return np.asarray(x @ x.T)
    affinity = np.exp(-g * square_distances(x, x))
    np.fill_diagonal(affinity, 1.0)
    affinity /= affinity.sum(axis=1, keepdims=True)
    return np.asarray(0.5 * (affinity + affinity.T))


def embedding(x: Floats, count: int, kernel: Kernel, g: float, key: Key, exact_up_to: int, landmarks: int) -> Floats:
    """One unit row per client, ``[K, <= count]``."""
    if len(x) <= exact_up_to:
        w = similarity(x, kernel, g)
        if kernel == "gaussian":
            scale = 1.0 / np.sqrt(w.sum(axis=1))
            w *= scale[:, None] * scale
        first = max(len(w) - count, 0)
        return unit_rows(linalg.eigh(w, subset_by_index=[first, len(w) - 1])[1])
    if kernel == "cosine":
        return unit_rows(_leading(x, np.eye(x.shape[1]), count))
    f = _nystroem(x, g, key, max(landmarks, 2 * count))
    column = f.sum(axis=0)
    r = f / np.maximum(f @ column, _TINY)[:, None]  # R = r f^T
    scale = np.sqrt(2.0 / np.maximum(r @ column + f @ r.sum(axis=0), _TINY))[:, None]
    swap = 0.5 * np.roll(np.eye(2 * f.shape[1]), f.shape[1], axis=0)  # W = Z M Z^T, Z = (r, f), M = [[0, I], [I, 0]] / 2
    return unit_rows(_leading(np.hstack([r, f]) * scale, swap, count))


def coalitions(
    x: Floats, count: int, kernel: Kernel, g: float, key: Key, exact_up_to: int = 1000, landmarks: int = 200
) -> Labels:
    """``min(count, K)`` coalitions, none empty: a label per client, ``[K]``. A function of the arguments alone."""
    if count >= len(x):
        return np.arange(len(x))
    if count <= 1:
        return np.zeros(len(x), np.int64)
    points = embedding(x, count, kernel, g, key.fold("landmarks"), exact_up_to, landmarks)
    restarts = _RESTARTS if len(x) <= exact_up_to else 1
    tries = [k_means(points, count, key.fold("k-means", i)) for i in range(restarts)]
    return fill(min(tries, key=lambda found: found[1])[0], count)


def fill(labels: Labels, count: int) -> Labels:
    """The groups numbered 0 .. count - 1, none empty: for each one that is missing the largest gives up the later half of its
    members. Needs ``count <= len(labels)`` and not more than ``count`` groups."""
    labels = np.unique(labels, return_inverse=True)[1]
    for missing in range(int(labels.max(initial=-1)) + 1, count):
        members = np.flatnonzero(labels == np.bincount(labels).argmax())
        labels[members[(len(members) + 1) // 2 :]] = missing
    return labels


def _nystroem(x: Floats, g: float, key: Key, landmarks: int) -> Floats:
    """F ``[K, <= landmarks]`` with ``G ~ F F^T``."""
    shadow = x @ key.fold("shadow").normal(np.arange(x.shape[1]))[:, 0]  # equal vectors have equal shadows
    distinct = np.unique(shadow, return_index=True)[1]
    draw = key.uniform(distinct)[:, 0]
    chosen = np.sort(distinct[np.argsort(draw, kind="stable")[:landmarks]])
    across = np.exp(-g * square_distances(x, x[chosen]))
    values, vectors = np.linalg.eigh(across[chosen])
    good = values > _SMALL * values[-1]
    return np.asarray(across @ (vectors[:, good] / np.sqrt(values[good])))


def _leading(z: Floats, middle: Floats, count: int) -> Floats:
    """The leading eigenvectors of ``Z M Z^T``, ``[K, <= count]``, through matrices of Z's width."""
    squares, v = np.linalg.eigh(z.T @ z)
    good = squares > _SMALL * squares[-1]
    size, v = np.sqrt(squares[good]), v[:, good]  # Z = U size V^T
    inner = (size[:, None] * v.T) @ middle @ (v * size)
    top = np.linalg.eigh(inner)[1][:, -count:]
    return np.asarray(z @ ((v / size) @ top))
