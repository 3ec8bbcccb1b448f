"""Clients whose labels a classifier of all clients' rows denies more often than chance and the
other clients explain.

The classifier is a linear discriminant on normal scores of the columns, with equal weight for all
classes. Chance is, as for columns, a permutation of the rows within classes: a client with n_c rows
of class c has n_c times the class's rate of denied labels at other clients on average. A client
whose labels are denied too often has

* columns in other units, if repairing the outlying columns ends most of it,
* swapped labels, if one renaming of classes ends most of it,
* random labels otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtri
from scipy.stats import binom, norm

from motley.core.arrays import Bools, Floats, Ints
from motley.core.keys import Key
from motley_advice.heterogeneity.column_faults import (
    ColumnFaults,
    Rows,
    excess,
    normal_scores,
    repaired,
)

CHANCE = 0.004
"""Probability that any client of a clean federation is called outlying by its labels."""
_LEAST = 8
"""Rows below which a client's labels are not judged."""
_SHRINK = 0.1
_MENDED = 0.5
"""How far beyond the expected denials, as a multiple of what is just outlying, a client may be
after its classes are renamed: about a twentieth of such clients are farther by chance."""
_BY_CHANCE = 2.0
"""Standard errors by which a renaming of classes must gain labels."""
_ENDED = 0.5
"""Share of the denials beyond the expected ones that an explanation must end."""


class LabelFault(NamedTuple):
    """A client whose labels are denied too often.

    Parameters
    ----------
    client: its number.
    swap: the class that each class should be called ``[C]``; None for random labels.
    denied, expected: shares of its labels that the classifier denies, and that it denies at others
    with the same classes.
    left: the share that it denies after the renaming.
    mended: whether that is no more than at others.
    size: how many times as many standard errors beyond these as are just outlying.
    """

    client: int
    swap: Ints | None
    denied: float
    expected: float
    left: float
    mended: bool
    size: float


class _Classifier:
    """A linear discriminant on normal scores of columns."""

    def __init__(self, rows: Rows) -> None:
        self.sorted = np.sort(rows.x, axis=0)
        self.scores = seen = normal_scores(rows.x)
        counts = np.maximum(np.bincount(rows.y, minlength=rows.classes), 1)
        means = np.zeros((rows.classes, seen.shape[1]))
        np.add.at(means, rows.y, seen)
        means /= counts[:, None]
        residuals = seen - means[rows.y]
        spread = residuals.T @ residuals / len(residuals)
        size = max(float(np.trace(spread)) / len(spread), 1e-12)
        self.slope = np.linalg.solve(
            (1 - _SHRINK) * spread + _SHRINK * size * np.eye(len(spread)), means.T
        )
        self.offset = -0.5 * np.einsum("cd,dc->c", means, self.slope)
        self.offset[np.bincount(rows.y, minlength=rows.classes) == 0] = -np.inf

    def classes(self, scores: Floats) -> Ints:
        """Return the class of normal scores ``[n, D]``."""
        return np.asarray((scores @ self.slope + self.offset).argmax(axis=1))

    def replaced(self, scores: Floats, columns: Ints, values: Floats) -> Floats:
        """Return scores ``[n, D]`` with those of other values ``[n, len(columns)]`` in some
        columns."""
        out = scores.copy()
        for i, j in enumerate(columns.tolist()):
            low, high = (
                np.searchsorted(self.sorted[:, j], values[:, i], side=side)
                for side in ("left", "right")
            )
            share = (np.asarray(low + high) / 2).clip(0.5, len(self.sorted) - 0.5) / len(
                self.sorted
            )
            out[:, j] = ndtri(share)
        return out


def guessed_classes(rows: Rows) -> Ints:
    """Return the class that the classifier of all rows guesses of each ``[n]``."""
    classifier = _Classifier(rows)
    return classifier.classes(classifier.scores)


def label_faults(rows: Rows, columns: ColumnFaults, key: Key) -> list[LabelFault]:
    """Return the clients with swapped or random labels; those whose outlying columns explain the
    denied labels are left out."""
    classifier = _Classifier(rows)
    guessed = classifier.classes(classifier.scores)
    wrong = guessed != rows.y
    expected, odd = _denied(rows, wrong)
    faults = []
    for k in np.flatnonzero(odd > 1).tolist():
        own = rows.owner == k
        labels = rows.y[own]
        guess = guessed[own]
        beyond = int(wrong[own].sum()) - expected[k]
        swap = _swap(labels, guess, rows.classes)
        unexplained = int((guess != swap[labels]).sum()) - expected[k]
        flagged = np.flatnonzero(columns.any[k])
        if len(flagged):
            mended = (
                _after_repair(rows=rows, classifier=classifier, client=k, columns=columns, key=key)
                - expected[k]
            )
        else:
            mended = np.inf
        few = len(flagged) <= max(2, rows.x.shape[1] // 3)
        if mended <= _ENDED * beyond and (
            mended < unexplained or (few and mended <= 1.5 * max(unexplained, 1))
        ):
            continue
        swapped = unexplained <= _ENDED * beyond and bool((swap != np.arange(rows.classes)).any())
        faults.append(
            LabelFault(
                client=k,
                swap=swap if swapped else None,
                denied=float(wrong[own].mean()),
                expected=expected[k] / len(labels),
                left=float((guess != swap[labels]).mean()),
                mended=swapped and _mended(rows, guessed, k, swap),
                size=float(odd[k]),
            )
        )
    return faults


def _mended(rows: Rows, guessed: Ints, client: int, swap: Ints) -> bool:
    """Return whether renaming a client's classes leaves it no more denied labels than others have:
    part of its rows may have their own names."""
    renamed = np.where(rows.owner == client, swap[rows.y], rows.y)
    _, beyond = _denied(rows._replace(y=renamed), guessed != renamed)
    return bool(beyond[client] <= _MENDED)


def _denied(rows: Rows, wrong: Bools) -> tuple[Floats, Floats]:
    """Return the expected number of denied labels of each client, and how far its own lie beyond, 1
    being just too many ``[K]``.

    Clients that chance alone does not explain, at most a quarter, are no measure of the others.
    """
    counts = rows.counts
    flat = np.bincount(
        rows.owner * rows.classes + rows.y, wrong.astype(np.float64), minlength=counts.size
    )
    denied: Floats = flat.reshape(counts.shape).astype(np.float64)
    limit = norm.isf(CHANCE / rows.clients)
    reference = np.ones(rows.clients, bool)
    _, beyond, _ = _beyond(counts, denied, reference)
    suspects = np.flatnonzero(beyond > limit)
    reference[suspects[np.argsort(-beyond[suspects])][: max(1, rows.clients // 4)]] = False
    expected, beyond, tau2 = _beyond(counts, denied, reference)
    return expected, np.where(
        counts.sum(axis=1) >= _LEAST, beyond / (limit * np.sqrt(1 + tau2)), 0.0
    )


def _beyond(counts: Floats, denied: Floats, reference: Bools) -> tuple[Floats, Floats, Floats]:
    """Return the expected denials of each client, how far its own lie beyond them, as a standard
    normal number by chance, and how many times the variance by chance is exceeded by how clients
    vary and by how few labels the rates are known from ``[K]``.

    Parameters
    ----------
    counts, denied: labels of each client and class, and those of them that are denied ``[K, C]``.
    reference: by whom rates are measured ``[K]``.
    """
    share = reference[:, None]
    elsewhere, lost = (
        numbers[reference].sum(axis=0) - np.where(share, numbers, 0.0)
        for numbers in (counts, denied)
    )
    counts = np.where(elsewhere > 0, counts, 0.0)
    seen = np.where(elsewhere > 0, denied, 0.0).sum(axis=1)
    each = (lost + 0.5) / (elsewhere + 1)
    held = counts.sum(axis=1)
    expected = (counts * each).sum(axis=1)
    rate = expected / np.maximum(held, 1)
    unsure = (np.square(counts) * each * (1 - each) / (elsewhere + 2)).sum(axis=1)
    variance = np.maximum(held * rate * (1 - rate), 1e-12)
    tau2 = excess((seen - expected)[reference, None], variance[reference, None], held[reference])[0]
    beyond = norm.isf(np.clip(binom.sf(seen - 1, np.maximum(held, 1), rate), 1e-300, 1.0))
    return expected, beyond, (np.square(held) * tau2 + unsure) / variance


def _swap(labels: Ints, guess: Ints, classes: int) -> Ints:
    """Return the renaming of classes ``[C]`` under which most labels are those guessed; classes
    that exchange their names no better than by chance keep them."""
    table = np.zeros((classes, classes))
    np.add.at(table, (labels, guess), 1.0)
    table += 1e-3 * np.eye(classes)  # classes that the client lacks keep their names
    swap = np.asarray(linear_sum_assignment(-table)[1])
    for ring in _rings(swap):
        unchanged = table[ring, ring].sum()
        gained = table[ring, swap[ring]].sum()
        if gained - unchanged <= _BY_CHANCE * np.sqrt(gained + unchanged):
            swap[ring] = ring
    return swap


def _rings(swap: Ints) -> list[list[int]]:
    """Return the classes that exchange their names with each other, of each such set."""
    rings = []
    left = set(np.flatnonzero(swap != np.arange(len(swap))).tolist())
    while left:
        ring = [left.pop()]
        while (following := int(swap[ring[-1]])) != ring[0]:
            ring.append(following)
            left.remove(following)
        rings.append(ring)
    return rings


def _after_repair(
    rows: Rows, classifier: _Classifier, client: int, columns: ColumnFaults, key: Key
) -> int:
    """Return how many labels are denied when the client's outlying columns are repaired."""
    own = rows.owner == client
    moved = np.flatnonzero((columns.place | columns.spread)[client])
    scores = classifier.replaced(classifier.scores[own], moved, repaired(rows, client, moved, key))
    scores[:, columns.constant[client]] = 0.0
    return int((classifier.classes(scores) != rows.y[own]).sum())
