"""Input columns in which clients differ among themselves, beyond chance and without a single odd
client: a shift that grows over clients, two halves with other units.

The statistics are those of outlying columns (:mod:`motley_advice.heterogeneity.column_faults`): a
client's sum of normal scores within classes, of values (*place*) and of differences of two samples
(*spread*), with its variance V by permutation. Over clients

    Q = sum over clients of sum_k^2 / V_k (1 - n_k / n)

is about a multiple of chi-squared, with the mean and the variance that Q has by chance (with one
class, chi-squared with K - 1 degrees of freedom), and tau^2, the variance of clients' mean scores
beyond chance, is estimated by its first moment. A column is told where Q is too large for
:data:`CHANCE` and tau exceeds :data:`_LEAST`.

Where clients call the same samples differently, columns differ within classes although they do not
differ at all. So the same must hold within the classes that a classifier guesses from the columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from motley.core.arrays import Bools, Floats, Ints
from motley.core.keys import Key
from motley_advice.heterogeneity.column_faults import Rows, class_sums, differences

CHANCE = 0.001
"""Probability that any column of equal clients is told."""
_LEAST = 0.2
"""Deviation of clients' mean normal scores below which a column is not worth telling."""
_FEW = 8
"""Rows and pairs of rows below which a client is not judged."""


class ColumnShift(NamedTuple):
    """A column in which clients differ.

    Parameters
    ----------
    column: its number.
    place: the clients whose values lie lowest and highest; None where values do not lie otherwise.
    spread: the clients whose values spread least and most; None where they do not spread otherwise.
    size: deviation of clients' mean normal scores beyond chance.
    several: whether clients still differ without those that lie, or spread, farthest out, as many
    as may be odd ones.
    """

    column: int
    place: tuple[int, int] | None
    spread: tuple[int, int] | None
    size: float
    several: bool


def column_shifts(rows: Rows, guessed: Ints, key: Key) -> list[ColumnShift]:
    """Return the columns in which clients differ, the largest difference first.

    Parameters
    ----------
    guessed: class of each row that a classifier of the columns guesses ``[n]``.
    key: of the pairs whose differences measure the spread.
    """
    strata = [rows._replace(y=guessed), rows]
    place, place_of_several, where, far = _differing(strata)
    spread, spread_of_several, how, wide = _differing(
        [differences(stratum, key) for stratum in strata]
    )
    several = place_of_several | spread_of_several
    shifts = []
    for j in np.flatnonzero(place | spread).tolist():
        size = max(far[j] if place[j] else 0.0, wide[j] if spread[j] else 0.0)
        shifts.append(
            ColumnShift(
                column=j,
                place=_ends(where[:, j]) if place[j] else None,
                spread=_ends(how[:, j]) if spread[j] else None,
                size=float(size),
                several=bool(several[j]),
            )
        )
    return sorted(shifts, key=lambda each: -each.size)


def _ends(scores: Floats) -> tuple[int, int]:
    """Return the clients with the lowest and the highest score ``[K]``."""
    return int(np.nanargmin(scores)), int(np.nanargmax(scores))


def _differing(strata: list[Rows]) -> tuple[Bools, Bools, Floats, Floats]:
    """Return which columns differ within all given classes, and which do without their farthest
    clients ``[D]``, the mean score of each client within the last classes, NaN where it is not
    judged ``[K, D]``, and the least deviation of these beyond chance ``[D]``."""
    width = strata[0].x.shape[1]
    differ = np.ones(width, bool)
    several = np.ones(width, bool)
    size = np.full(width, np.inf)
    scores = np.full((strata[0].clients, width), np.nan)
    for rows in strata:
        sums, variance, held = class_sums(rows)
        judged = held >= _FEW
        if judged.sum() < 2:
            return np.zeros(width, bool), np.zeros(width, bool), scores, np.zeros(width)
        own = held[judged][:, None]
        weight, times, degrees = _law(rows.counts, judged)
        seen = np.square(sums[judged])
        chance = np.maximum(variance[judged], 1e-12)
        q = weight[:, None] * seen / chance
        level = CHANCE / (2 * width)
        differ &= chi2.sf(q.sum(axis=0) / times, degrees) < level
        q.sort(axis=0)
        nearest = q[: len(q) - int(max(2, len(q) / 4))]
        several &= chi2.sf(nearest.sum(axis=0) / times, degrees) < level
        beyond = ((seen - chance) / own).sum(axis=0) / own.sum()
        size = np.minimum(size, np.sqrt(np.maximum(beyond, 0.0)))
        scores[judged] = sums[judged] / own
    large = size > _LEAST
    return differ & large, several & large, scores, size


def _law(counts: Floats, judged: Bools) -> tuple[Floats, float, float]:
    """Return the weights of the clients in Q ``[k]``, and by chance the multiple and the degrees of
    freedom of the chi-squared law with Q's mean and variance.

    Parameters
    ----------
    counts: rows of each client and class ``[K, C]``.
    judged: the clients in Q ``[K]``.
    """
    total = counts.sum(axis=0)
    judged_counts = counts[judged]
    weight = 1 - judged_counts.sum(axis=1) / total.sum()
    together = (judged_counts / np.maximum(total - 1, 1)) @ judged_counts.T
    spread = (judged_counts * total / np.maximum(total - 1, 1)).sum(axis=1) - together.diagonal()
    spread = np.maximum(spread, 0.0)
    alike = -together / np.maximum(np.sqrt(np.outer(spread, spread)), 1e-12)
    np.fill_diagonal(alike, 1.0)
    mean = max(float(weight.sum()), 1e-12)
    variance = 2 * float(weight @ np.square(alike) @ weight)
    return weight, variance / (2 * mean), 2 * mean**2 / variance
