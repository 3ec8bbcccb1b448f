"""The nearest samples of each sample, and what they vote: a label rule that is learned by nobody
and follows any feature law."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Bools, Floats, Ints
from motley_advice.heterogeneity.client_data import Sample

_REACH = 600
"""Neighbours of a sample that are known at most; a tenth of the samples if these are fewer."""
_REACH_LEAST = 60
VOTERS = 25
"""Votes on whether a label is right."""
_OTHERS = 10
"""Drawn clients from which on a client's own samples do not vote on its labels."""
_BLOCK = 500


class Near(NamedTuple):
    """The nearest other samples of each sample, nearest first.

    Parameters
    ----------
    at: their positions, int32 ``[m, reach]``.
    far: their Euclidean distances, float32 ``[m, reach]``.
    """

    at: NDArray[np.int32]
    far: NDArray[np.float32]


class Votes(NamedTuple):
    """What the neighbours of each sample vote.

    Parameters
    ----------
    share: of the votes per class ``[m, C]``.
    number: of votes ``[m]``.
    winner: the class with most votes ``[m]``.
    far: mean distance of those that vote ``[m]``, infinite without any.
    """

    share: Floats
    number: Ints
    winner: Ints
    far: Floats


def nearest(sample: Sample) -> Near:
    """Return the nearest other samples of each sample: a tenth of all, but at most 600."""
    x = sample.x.astype(np.float32)
    m = len(x)
    reach = min(m - 1, max(_REACH_LEAST, min(m // 10, _REACH)))
    square = (x * x).sum(axis=1)
    at = np.empty((m, reach), np.int32)
    distance = np.empty((m, reach), np.float32)
    for begin in range(0, m, _BLOCK):
        rows = np.arange(begin, min(begin + _BLOCK, m))
        far = square[rows, None] + square - 2 * (x[rows] @ x.T)
        far[np.arange(len(rows)), rows] = np.inf
        closest = np.argpartition(far, reach - 1, axis=1)[:, :reach]
        far = np.take_along_axis(far, closest, axis=1)
        order = np.argsort(far, axis=1, kind="stable")
        at[rows] = np.take_along_axis(closest, order, axis=1)
        distance[rows] = np.sqrt(np.maximum(np.take_along_axis(far, order, axis=1), 0))
    return Near(at, distance)


def foreign(sample: Sample, near: Near) -> Bools:
    """Return which neighbours are another client's, ``[m, reach]``; all count where few clients
    were drawn."""
    if len(sample.clients) < _OTHERS:
        return np.ones(near.at.shape, bool)
    return np.asarray(sample.owner[near.at] != sample.owner[:, None])


def agreeing(sample: Sample, near: Near) -> Bools:
    """Return which samples have the label that most of their neighbours at other clients have,
    ``[m]``."""
    return np.asarray(votes(sample, near, foreign(sample, near), VOTERS).winner == sample.y)


def votes(sample: Sample, near: Near, voters: Bools, number: int) -> Votes:
    """Return what the ``number`` nearest neighbours among the voters vote.

    Parameters
    ----------
    voters: whether a sample votes ``[m]``, or whether a neighbour does ``[m, reach]``.
    """
    may = voters[near.at] if voters.ndim == 1 else voters
    taken = may & (np.cumsum(may, axis=1, dtype=np.int32) <= number)
    row, column = np.nonzero(taken)
    m = len(near.at)
    counted = np.bincount(
        row * sample.classes + sample.y[near.at[row, column]], minlength=m * sample.classes
    )
    counts = counted.reshape(m, sample.classes)
    total = counts.sum(axis=1)
    far = np.bincount(row, near.far[row, column], minlength=m) / np.maximum(total, 1)
    return Votes(
        counts / np.maximum(total, 1)[:, None],
        total,
        counts.argmax(axis=1),
        np.where(total > 0, far, np.inf),
    )
