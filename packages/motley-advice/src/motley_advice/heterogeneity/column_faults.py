"""Clients whose input columns lie or spread otherwise than chance and the other clients explain:
other units, offsets, constants.

Two statistics of each client and column, so that skewed labels tell nothing and an offset does not
hide other units:

* *place*: the sum of normal scores of the client's values, ranked among all clients' values of the
  same class;
* *spread*: the same of absolute differences between two samples of a client and a class.

Chance is a permutation of the pooled rows among the clients that keeps how many of each class a
client has. Over all of these the sum has mean 0 and the variance

    V = sum over classes of n_c (N_c - n_c) / (N_c - 1) s_c^2

of a client with n_c of the N_c rows, whose scores have the mean square s_c^2, so that nothing has
to be drawn. Where clients differ anyway, their means vary by tau^2 beyond that (from the median
over clients, which one odd client does not move). A client is outlying where

    |sum|^2 > q^2 V + t^2 n^2 tau^2

with the two-sided quantiles q and t of the normal law and of Student's (K / 2 degrees of freedom)
for :data:`CHANCE`, divided by the number of statistics.

A client is named only if it also lies much farther out than the others: its largest |sum| /
sqrt(V), over columns and both statistics, is more than twice the upper quartile of the other
clients'. Where all clients differ a little, the largest of them is no outlier, and up to a quarter
of the clients do not hide each other's faults. The same is asked of each column of a client that is
named: a fault of one column does not accuse another that is just outlying.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import norm, rankdata
from scipy.stats import t as student

from motley.core.arrays import Bools, Floats, Ints
from motley.core.keys import Key

CHANCE = 0.01
"""Probability that any client of a clean federation is called outlying by its columns."""
_ROWS = 8
_PAIRS = 6
"""Rows and pairs of rows below which a client's column is not judged."""
_MOVED = 0.5
_WIDER = 1.3
"""Mean normal score and ratio of spreads below which a column is not worth telling."""
MANY = 20
"""Clients from which on a column's own spread over clients is estimated."""
_FARTHER = 2.0
_QUARTILE = 0.75
"""How many times as far out as the upper quartile of the others a client must lie."""
_MEDIAN = 0.4549
"""Median of the squared standard normal law."""


class Rows(NamedTuple):
    """Some rows of all clients.

    Parameters
    ----------
    owner: client of each row ``[n]``.
    y: its class ``[n]``.
    x: its columns, float64 ``[n, D]``.
    clients: K.
    classes: C.
    """

    owner: Ints
    y: Ints
    x: Floats
    clients: int
    classes: int

    @property
    def counts(self) -> Floats:
        """Rows of each client and class ``[K, C]``."""
        flat = np.bincount(
            self.owner * self.classes + self.y, minlength=self.clients * self.classes
        )
        return flat.reshape(self.clients, self.classes).astype(np.float64)


class ColumnFaults(NamedTuple):
    """Outlying columns, all ``[K, D]``.

    Parameters
    ----------
    place, spread: whether the client's values lie, or spread, otherwise.
    constant: whether they are all the same.
    size: of the most outlying column of each client, as a multiple of what is just outlying
    ``[K]``.
    farther: whether the client lies much farther out than the others ``[K]``.
    """

    place: Bools
    spread: Bools
    constant: Bools
    size: Floats
    farther: Bools

    @property
    def any(self) -> Bools:
        """Whether anything is outlying ``[K, D]``."""
        return np.asarray(self.place | self.spread | self.constant)


def column_faults(rows: Rows, key: Key) -> ColumnFaults:
    """Return the outlying columns of clients.

    Parameters
    ----------
    key: of the pairs whose differences measure the spread.
    """
    constant = _constant(rows)
    place, far, moved = _outlying(rows, _ROWS)
    spread, wide, wider = _outlying(differences(rows, key), _PAIRS)
    for k, j in np.argwhere(spread & ~constant).tolist():
        ratio = spread_ratio(rows, k, j, key)
        spread[k, j] = max(ratio, 1 / max(ratio, 1e-12)) >= _WIDER
    size = np.maximum(
        np.where(place, far, 0.0).max(axis=1), np.where(spread, wide, 0.0).max(axis=1)
    )
    errors = np.maximum(moved, wider)
    beyond = errors.max(axis=1)
    enough = _far_enough(beyond, size > 0)
    farther = beyond > enough
    counted = ~farther[:, None] | (errors > enough[:, None])
    place &= counted
    spread &= counted
    return ColumnFaults(
        place=place & ~constant,
        spread=spread & ~constant,
        constant=constant,
        size=size,
        farther=farther,
    )


def _far_enough(beyond: Floats, which: Bools) -> Floats:
    """Return how far beyond chance some clients must lie to lie much farther out than the others
    do; infinite for the rest, and where there are no others, all ``[K]``."""
    judged = beyond > 0
    enough = np.full(len(beyond), np.inf)
    for k in np.flatnonzero(which).tolist():
        beyond_of_others = np.delete(beyond, k)[np.delete(judged, k)]
        if len(beyond_of_others):
            enough[k] = _FARTHER * np.quantile(beyond_of_others, _QUARTILE, method="lower")
    return enough


def normal_scores(x: Floats) -> Floats:
    """Return the normal scores of values by their ranks in each column ``[n, D]``; equal values get
    equal scores."""
    scores = ndtri((rankdata(x, axis=0) - 0.5) / len(x))
    return np.asarray(scores - scores.mean(axis=0))


def _outlying(rows: Rows, least: int) -> tuple[Bools, Floats, Floats]:
    """Return which clients' sums of scores are outlying, each as a multiple of what just is, and in
    standard errors by chance, 0 if not judged, all ``[K, D]``."""
    sums, variance, held = class_sums(rows)
    judged = held >= least
    # an odd client's ranks move those of all others; the median over clients has an error of its
    # own
    if judged.any():
        own = held[:, None]
        sums -= own * np.median(sums[judged] / own[judged], axis=0)
        variance += (
            np.square(own)
            * (np.pi / 2)
            * np.median(variance[judged] / np.square(own[judged]), axis=0)
            / judged.sum()
        )
    size = np.abs(sums)
    times = size / np.sqrt(np.maximum(_limits(sums, variance, held), 1e-12))
    errors = size / np.sqrt(np.maximum(variance, 1e-12))
    return (
        np.asarray((times > 1) & judged[:, None] & (size > _MOVED * held[:, None])),
        times,
        np.where(judged[:, None], errors, 0.0),
    )


def class_sums(rows: Rows) -> tuple[Floats, Floats, Floats]:
    """Return each client's sums of normal scores within classes, their variance by chance, both
    ``[K, D]``, and its rows ``[K]``."""
    width = rows.x.shape[1]
    scores = np.zeros(rows.x.shape)
    square = np.zeros((rows.classes, width))
    for label in range(rows.classes):
        at = np.flatnonzero(rows.y == label)
        if len(at) > 1:
            scores[at] = normal_scores(rows.x[at])
            square[label] = np.square(scores[at]).mean(axis=0)
    counts = rows.counts
    held = counts.sum(axis=1)
    class_rows = counts.sum(axis=0)
    sums = _sums(rows.owner, scores, rows.clients)
    variance = (counts * (class_rows - counts) / np.maximum(class_rows - 1, 1)) @ square
    return sums, variance, held


def _sums(owner: Ints, values: Floats, clients: int) -> Floats:
    """Return the sums of rows ``[n, D]`` over each client's, ``[K, D]``."""
    out = np.zeros((clients, values.shape[1]))
    if len(owner):
        order = np.argsort(owner, kind="stable")
        whose = owner[order]
        first = np.flatnonzero(np.concatenate([[True], whose[1:] != whose[:-1]]))
        out[whose[first]] = np.add.reduceat(values[order], first, axis=0)
    return out


def _limits(sums: Floats, variance: Floats, held: Floats) -> Floats:
    """Return the squares that sums must exceed ``[K, D]``."""
    clients, width = sums.shape
    alpha = CHANCE / (4 * clients * width)  # two sides, two statistics
    normal = norm.isf(alpha)
    heavy = student.isf(alpha, max(clients / 2, 3))
    together, own = excess(sums, variance, held)
    square = np.square(held)[:, None]
    return np.asarray(normal**2 * (variance + square * together) + heavy**2 * square * own)


def excess(sums: Floats, variance: Floats, held: Floats) -> tuple[float, Floats]:
    """Return tau^2, the variance of clients' means beyond chance: of all columns together, and what
    a column has beyond that ``[D]``.

    Parameters
    ----------
    sums, variance: of each client and column, with their variance by chance ``[K, D]``.
    held: rows of each client ``[K]``.

    Both count where they exceed what the median over so few clients may show by chance; a column's
    own from :data:`MANY` clients on.
    """
    judged = held >= 5
    if judged.sum() < 4:
        return 0.0, np.zeros(sums.shape[1])
    sums = sums[judged]
    variance = variance[judged]
    held = held[judged]
    clients, width = sums.shape
    flat = [values.T.reshape(-1, 1) for values in (sums, variance)]
    together = float(
        _excess(flat[0], flat[1], np.tile(held, width), _MEDIAN * (1 + 1.6 / np.sqrt(clients)))[0]
    )
    if clients < MANY:
        return together, np.zeros(width)
    own = _excess(sums, variance, held, _MEDIAN * (1 + 3.2 / np.sqrt(clients)))
    return together, np.maximum(own - together, 0.0)


def _excess(sums: Floats, variance: Floats, held: Floats, median: float) -> Floats:
    """Return the tau^2 at which the median of ``sums^2 / (variance + held^2 tau^2)`` is ``median``,
    by bisection; 0 if it is less."""

    def middle(tau2: Floats) -> Floats:
        return np.asarray(
            np.median(
                np.square(sums) / np.maximum(variance + np.square(held)[:, None] * tau2, 1e-12),
                axis=0,
            )
        )

    low = np.zeros(sums.shape[1])
    high = np.full(sums.shape[1], 8.0)
    differ = middle(low) > median
    for _ in range(25):
        tau2 = (low + high) / 2
        large = middle(tau2) > median
        low = np.where(large, tau2, low)
        high = np.where(large, high, tau2)
    return np.asarray(np.where(differ, high, 0.0))


def differences(rows: Rows, key: Key) -> Rows:
    """Return the absolute differences between disjoint pairs of rows of a client and a class."""
    left, right = _pairs(rows, key)
    return rows._replace(
        owner=rows.owner[left], y=rows.y[left], x=np.abs(rows.x[left] - rows.x[right])
    )


def _pairs(rows: Rows, key: Key) -> tuple[Ints, Ints]:
    """Return the positions of disjoint pairs of rows of the same client and class."""
    order = key.fold("pairs").numpy().permutation(len(rows.owner))
    group = rows.owner * rows.classes + rows.y
    order = order[np.argsort(group[order], kind="stable")]
    of = group[order]
    first = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
    within = np.arange(len(of)) - np.repeat(first, np.diff(first, append=len(of)))
    begins = np.flatnonzero((within[:-1] % 2 == 0) & (of[1:] == of[:-1]))
    return order[begins], order[begins + 1]


def spread_ratio(rows: Rows, client: int, column: int, key: Key) -> float:
    """Return how many times as far apart the client's values of a column are as those of others of
    the same class; NaN: unknown."""
    left, right = _pairs(rows, key)
    apart = np.abs(rows.x[left, column] - rows.x[right, column])
    label = rows.y[left]
    own = rows.owner[left] == client
    ratios = [
        apart[own & (label == c)] / middle
        for c in np.unique(label[own]).tolist()
        for middle in [
            np.median(apart[~own & (label == c)]) if (~own & (label == c)).any() else 0.0
        ]
        if middle > 0
    ]
    return float(np.median(np.concatenate(ratios))) if ratios else np.nan


def repaired(rows: Rows, client: int, columns: Ints, key: Key) -> Floats:
    """Return the client's values ``[n_k, len(columns)]``, moved and divided so that they lie and
    spread as those of others."""
    own = rows.owner == client
    mine = rows.x[own][:, columns]
    label = rows.y[own]
    out = np.empty_like(mine)
    for i, j in enumerate(columns.tolist()):
        ratio = spread_ratio(rows, client, j, key)
        scaled = mine[:, i] / (ratio if ratio > 0 else 1.0)
        apart = [
            scaled[label == c] - np.median(rows.x[~own & (rows.y == c), j])
            for c in np.unique(label).tolist()
            if (~own & (rows.y == c)).any()
        ]
        out[:, i] = scaled - (np.median(np.concatenate(apart)) if apart else 0.0)
    return np.asarray(out)


def _constant(rows: Rows) -> Bools:
    """Return which clients have one value alone in a column, although chance would show them more
    ``[K, D]``.

    The probability is the product over rows of the share of this value among other clients' rows of
    the class.
    """
    constant = np.zeros((rows.clients, rows.x.shape[1]), bool)
    counts = rows.counts
    held = counts.sum(axis=1)
    order = np.argsort(rows.owner, kind="stable")
    first = np.concatenate([[0], np.cumsum(held.astype(np.int64))])[:-1][held > 0]
    x = rows.x[order]
    alike = np.minimum.reduceat(x, first, axis=0) == np.maximum.reduceat(x, first, axis=0)
    clients = np.flatnonzero(held > 0)
    limit = np.log(CHANCE / 3 / max(alike.size, 1))
    for at, j in np.argwhere(alike & (held[clients] >= _ROWS)[:, None]).tolist():
        k = clients[at]
        value = x[first[at], j]
        same = np.bincount(rows.y[rows.x[:, j] == value], minlength=rows.classes) - counts[k]
        there = counts.sum(axis=0) - counts[k]
        chance = float((counts[k] * np.log((same + 1) / (there + 1)))[there > 0].sum())
        constant[k, j] = chance < limit
    return np.asarray(constant & ~_common(alike, constant, clients))


def _common(alike: Bools, constant: Bools, clients: Ints) -> Bools:
    """Return the columns ``[D]`` in which more than a quarter of the clients, and more than two,
    have one value alone."""
    return np.asarray((alike.sum(axis=0) > max(2, len(clients) / 4)) & constant.any(axis=0))
