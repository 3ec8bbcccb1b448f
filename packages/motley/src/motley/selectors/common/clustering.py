"""Clustering of clients: k-means, and spectral clustering into coalitions, with a factor form for
many clients.

Symbols: K clients, p coordinates, P coalitions; ``x_k`` a client's vector, ``W`` the similarity
matrix ``[K, K]``.

    gaussian   G_kj = exp(-g |x_k - x_j|^2),  W = (R + R^T) / 2 with R = G / its row sums
    cosine     W = <x_k, x_j>, of unit vectors
    embedding  the P leading eigenvectors of S^-1/2 W S^-1/2, S the row sums of W (cosine: of W
               itself, whose row sums may be negative), less those of eigenvalue 0, each row scaled
               to unit length (Ng, Jordan, Weiss, NeurIPS 2001)
    coalitions k-means of the embedding, started from a fixed key: the same vectors give the same
               coalitions

Above ``exact_up_to`` clients no K x K matrix is made. Cosine: W = X X^T is a factor already.
Gaussian: Nystroem's factor ``G ~ F F^T``, ``F = G_KL G_LL^(-1/2)`` of L landmarks, drawn by the key
among clients with distinct vectors (Williams, Seeger, NeurIPS 2001).
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import linalg

from motley.core.arrays import Floats, Ints
from motley.core.keys import Key
from motley.core.rounding import DIGITS, rounded

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Kernel = Literal["gaussian", "cosine"]

_RESTARTS = 8  # of k-means, where the exact embedding is affordable
_SMALL = 1e-12  # relative: eigenvalues below it are rounding
_TINY = np.finfo(np.float64).tiny


def k_means(points: Floats, count: int, key: Key, restarts: int = 1) -> Ints:
    """Return a group ``0 .. count - 1`` for each row of ``points`` ``[n, d]``, numbered in order of
    their first rows: scikit-learn's k-means, a function of its arguments.

    k-means++ (Arthur, Vassilvitskii, SODA 2007) and Lloyd's steps until nothing changes; the best
    of ``restarts`` starts. A group is empty only if there are fewer distinct points than groups.
    """
    from sklearn.cluster import KMeans  # slow to import, and only two rules cluster
    from sklearn.exceptions import ConvergenceWarning

    if not points.shape[1]:
        return np.zeros(len(points), np.int64)
    points, distinct = merged(points)
    count = min(count, distinct)
    seed = int(key.numpy().integers(2**31))
    # one thread: the order of sums does not depend on the machine
    with _threads().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than groups
        labels = KMeans(count, n_init=restarts, tol=0.0, random_state=seed).fit(points).labels_
    return numbered(labels)


def merged(points: Floats) -> tuple[Floats, int]:
    """Return the points with those that differ by rounding alone made equal to the first of them,
    and how many different ones there are.

    Which of them an algorithm would put together, or apart, hangs on the last bits. Points whose
    projections on one fixed direction are equal (:data:`~motley.core.rounding.DIGITS`) are equal.
    """
    if not len(points):
        return points, 0
    direction = Key(0).fold("shadow").normal(np.arange(points.shape[1]))[:, 0]
    shadow = points @ direction
    order = np.argsort(shadow, kind="stable")
    size = np.sqrt(np.einsum("kd,kd->k", points, points).max() * (direction @ direction))
    apart = np.diff(shadow[order]) > 2.0**-DIGITS * size
    group = np.empty(len(points), np.int64)
    group[order] = np.cumsum(np.concatenate([[0], apart]))
    first = np.unique(group, return_index=True)[1]
    return points[first[group]], len(first)


def numbered(labels: Ints) -> Ints:
    """Return the groups numbered ``0, 1, ...`` in order of their first members: which numbers an
    algorithm gives them may hang on rounding.

    >>> numbered(np.array([7, 2, 7, 0])).tolist()
    [0, 1, 0, 2]
    """
    _, first, groups = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[groups], dtype=np.int64)


@cache
def _threads() -> ThreadpoolController:
    """Return the controller of BLAS and OpenMP threads, made once: finding the libraries takes as
    long as a small k-means."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def nearest(points: Floats, centres: Floats) -> Ints:
    """Return the position of the nearest centre for each point, ``[n]``; the first of several."""
    closeness = points @ centres.T  # the square of a point is the same for every centre
    closeness -= 0.5 * np.einsum("kd,kd->k", centres, centres)
    return np.asarray(rounded(closeness).argmax(axis=1))


def unit_rows(x: Floats) -> Floats:
    """Return the rows scaled to Euclidean length 1; rows of zeros stay zero."""
    length = np.sqrt(np.einsum("kd,kd->k", x, x))[:, None]
    return np.asarray(np.divide(x, length, out=np.zeros(x.shape), where=length > 0))


def row_angles(x: Floats) -> Floats:
    """Return the angles between the rows of ``x`` ``[K, d]``, as radians ``[K, K]``; a row of zeros
    is at a right angle to all others.

    Cosines are rounded first (:func:`~motley.core.rounding.rounded`): near 1 the angle multiplies
    their rounding by 1e8, and rows in one direction have the angle 0.
    """
    rows = unit_rows(x)
    out = np.arccos(np.clip(rounded(rows @ rows.T), -1.0, 1.0))
    np.fill_diagonal(out, 0.0)
    return np.asarray(out)


def similarity(x: Floats, kernel: Kernel, g: float = 1.0) -> Floats:
    """Return the similarity matrix ``W``, ``[K, K]``, as defined above."""
    if kernel == "cosine":
        return np.asarray(x @ x.T)
    affinity = np.exp(-g * _square_distances(x, x))
    np.fill_diagonal(affinity, 1.0)
    affinity /= affinity.sum(axis=1, keepdims=True)
    return np.asarray(0.5 * (affinity + affinity.T))


def embedding(
    x: Floats, count: int, kernel: Kernel, g: float, key: Key, exact_up_to: int, landmarks: int
) -> Floats:
    """Return the spectral embedding: one unit row per client, ``[K, <= count]``."""
    if len(x) <= exact_up_to:
        w = similarity(x, kernel, g)
        if kernel == "gaussian":
            scale = 1.0 / np.sqrt(w.sum(axis=1))
            w *= scale[:, None] * scale
        first = max(len(w) - count, 0)
        values, vectors = linalg.eigh(w, subset_by_index=[first, len(w) - 1])
        # the others have eigenvalues of rounding alone, so any basis of them would do
        return unit_rows(vectors[:, values > 2.0**-DIGITS * values[-1]])
    if kernel == "cosine":
        return unit_rows(_leading(x, np.eye(x.shape[1]), count))
    f = _nystroem(x, g, key, max(landmarks, 2 * count))
    column = f.sum(axis=0)
    r = f / np.maximum(f @ column, _TINY)[:, None]  # R = r f^T
    scale = np.sqrt(2.0 / np.maximum(r @ column + f @ r.sum(axis=0), _TINY))[:, None]
    # W = Z M Z^T, Z = (r, f), M = [[0, I], [I, 0]] / 2
    swap = 0.5 * np.roll(np.eye(2 * f.shape[1]), f.shape[1], axis=0)
    return unit_rows(_leading(np.hstack([r, f]) * scale, swap, count))


def coalitions(
    x: Floats,
    count: int,
    kernel: Kernel,
    g: float,
    key: Key,
    exact_up_to: int = 1000,
    landmarks: int = 200,
) -> Ints:
    """Return the coalition of each client, ``[K]``: ``min(count, K)`` of them, none empty. A
    function of the arguments alone."""
    if count >= len(x):
        return np.arange(len(x))
    if count <= 1:
        return np.zeros(len(x), np.int64)
    x, distinct = merged(x)
    # of equal vectors more eigenvectors would show rounding alone
    clusters = min(count, distinct)
    points = embedding(
        x,
        count=clusters,
        kernel=kernel,
        g=g,
        key=key.fold("landmarks"),
        exact_up_to=exact_up_to,
        landmarks=landmarks,
    )
    restarts = _RESTARTS if len(x) <= exact_up_to else 1
    return fill_empty(k_means(points, clusters, key.fold("k-means"), restarts), count)


def scikit_coalitions(x: Floats, count: int, g: float, seed: int) -> Ints:
    """Return the coalition of each client, ``[K]``: ``min(count, K)`` of them, none empty, by
    scikit-learn's ``SpectralClustering(count, affinity="rbf", gamma=g, random_state=seed)``.

    Where that gives fewer labels than ``count``, :func:`fill_empty` makes up for it. For clients
    with equal models, as those that no round has seen, scikit-learn's eigenvectors are an arbitrary
    basis: which of them it puts together hangs on the last bits of the others, and so on the
    engine.
    """
    from sklearn.cluster import SpectralClustering  # slow to import, and only two rules cluster

    if count >= len(x):
        return np.arange(len(x))
    if count <= 1:
        return np.zeros(len(x), np.int64)
    spectral = SpectralClustering(count, affinity="rbf", gamma=g, random_state=seed)
    with _threads().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # equal models, parts that are not connected
        labels = spectral.fit(x).labels_
    return fill_empty(numbered(labels), count)


def ward_tree(distances: Floats) -> Ints:
    """Return the merges of Ward's method on distances ``[K, K]``, ``[K - 1, 2]``: the numbers of
    the two branches that become branch ``K``, ``K + 1``, ...; those below K are single clients.

    Distances that differ by rounding alone are equal (:func:`~motley.core.rounding.rounded`).
    """
    from scipy.cluster.hierarchy import linkage  # slow to import, and only two rules use it
    from scipy.spatial.distance import squareform

    if len(distances) < 2:
        return np.zeros((0, 2), np.int64)
    merges = linkage(rounded(squareform(distances, checks=False)), "ward")
    return np.asarray(merges[:, :2].astype(np.int64))


def ward_groups(distances: Floats, count: int) -> Ints:
    """Return the group of each client, ``[K]``: the ``min(count, K)`` groups that Ward's method has
    when it stops, in order of their first members."""
    n = len(distances)
    label = np.arange(2 * n - 1 if n else 0)
    for node, pair in enumerate(ward_tree(distances)[: max(n - max(count, 1), 0)], n):
        label[np.isin(label, label[pair])] = node
    return numbered(label[:n])


def fill_empty(labels: Ints, count: int) -> Ints:
    """Return the groups renumbered 0 .. count - 1 with none empty.

    For each missing group the largest gives up the later half of its members. Needs
    ``count <= len(labels)`` and at most ``count`` groups.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    for missing in range(int(labels.max(initial=-1)) + 1, count):
        members = np.flatnonzero(labels == np.bincount(labels).argmax())
        labels[members[(len(members) + 1) // 2 :]] = missing
    return labels


def _square_distances(x: Floats, y: Floats) -> Floats:
    """Return ``|x_i - y_j|^2``, ``[n, m]``, never negative."""
    out = x @ y.T
    out *= -2.0
    out += np.einsum("kd,kd->k", x, x)[:, None]
    out += np.einsum("kd,kd->k", y, y)
    return np.asarray(np.maximum(out, 0.0, out=out))


def _nystroem(x: Floats, g: float, key: Key, landmarks: int) -> Floats:
    """Return F ``[K, <= landmarks]`` with ``G ~ F F^T``."""
    # equal vectors have equal projections
    shadow = x @ key.fold("shadow").normal(np.arange(x.shape[1]))[:, 0]
    distinct = np.unique(shadow, return_index=True)[1]
    draw = key.uniform(distinct)[:, 0]
    chosen = np.sort(distinct[np.argsort(draw, kind="stable")[:landmarks]])
    across = np.exp(-g * _square_distances(x, x[chosen]))
    values, vectors = np.linalg.eigh(across[chosen])
    good = values > _SMALL * values[-1]
    return np.asarray(across @ (vectors[:, good] / np.sqrt(values[good])))


def _leading(z: Floats, middle: Floats, count: int) -> Floats:
    """Return the leading eigenvectors of ``Z M Z^T``, ``[K, <= count]``, by way of matrices of Z's
    width."""
    squares, v = np.linalg.eigh(z.T @ z)
    good = squares > _SMALL * squares[-1]
    size, v = np.sqrt(squares[good]), v[:, good]  # Z = U size V^T
    inner = (size[:, None] * v.T) @ middle @ (v * size)
    top = np.linalg.eigh(inner)[1][:, -count:]
    return np.asarray(z @ ((v / size) @ top))
