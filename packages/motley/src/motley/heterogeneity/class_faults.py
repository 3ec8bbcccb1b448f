"""Clients without any sample of a class that clients of their size have, and pairs of clients that
hold the same samples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln
from scipy.stats import poisson

from motley.core.arrays import Floats, Ids, Ints

__all__ = ["absent_classes", "shared_rows"]

CHANCE = 0.02
COPIED = 0.005
"""Probabilities that any client of a clean federation is called outlying for an absent class, and
for copies."""
_CLIENTS = 6
"""Clients below which nothing is known of how shares of classes vary."""
_FEW = 5
_PART = 0.1
"""Copies, and share of the smaller client's samples, below which copies are not worth telling."""
_LACKED = 0.01
"""Probability, over the number of classes, below which a class is lacked where all clients have
equal shares."""
_TOGETHER = 8
"""Equal samples from which on they are common ones and no copies."""


class AbsentClass(NamedTuple):
    """A class that a client has no sample of. others: its mean share at other clients."""

    client: int
    label: int
    others: float


class SharedRows(NamedTuple):
    """Samples that lie at two clients, or twice at one (``one == other``). number: of pairs of
    equal samples."""

    one: int
    other: int
    number: int


def absent_classes(counts: Floats) -> list[AbsentClass]:
    """Return the classes that clients lack although neither their size nor the skew of the others'
    labels explains it.

    Parameters
    ----------
    counts: labels of each client and class ``[K, C]``.

    Shares of a class vary over clients as a beta law. Its mean m is that of the *other* clients'
    shares, its variance m (1 - m) r, with one r for all classes: what the other clients' shares of
    all classes vary beyond chance. The chance of no sample among n is then B(a, b + n) / B(a, b),
    and ``(1 - m)^n`` where they do not. Where more than a tenth of the clients (and more than one)
    lack a class that clients with equal shares would have, labels are skewed, and nobody is
    outlying; nor is anybody among fewer than six clients.
    """
    held = counts.sum(axis=1)
    used = held >= 2
    clients = int(used.sum())
    if clients < _CLIENTS:
        return []
    size = held[used, None]
    share = counts[used] / size
    others = clients - 1
    mean = (share.sum(axis=0) - share) / others
    lacking = ((counts[used] == 0) & ((1 - mean) ** size < _LACKED / counts.shape[1])).any(axis=1)
    if lacking.sum() > max(1, clients / 10):
        return []
    squares = (np.square(share).sum(axis=0) - np.square(share)) / others
    variance = np.maximum(squares - np.square(mean), 0.0) * others / (others - 1)
    possible = np.maximum(mean * (1 - mean), 1e-9)
    by_chance = possible * ((1 / size).sum() - 1 / size) / others
    beyond = (variance - by_chance).sum(axis=1, keepdims=True)
    alike = np.clip(beyond / possible.sum(axis=1, keepdims=True), 1e-6, 0.99)
    a = mean * (1 / alike - 1)
    b = (1 - mean) * (1 / alike - 1)
    none = np.where(
        mean > 0,
        betaln(np.maximum(a, 1e-12), b + size) - betaln(np.maximum(a, 1e-12), np.maximum(b, 1e-12)),
        0.0,
    )
    odd = (counts[used] == 0) & (none < np.log(CHANCE / counts.size))
    ids = np.flatnonzero(used)
    return [AbsentClass(int(ids[at]), c, float(mean[at, c])) for at, c in np.argwhere(odd).tolist()]


def shared_rows(
    hashes: NDArray[np.uint64], owner: Ids, y: Ints, counts: Floats
) -> list[SharedRows]:
    """Return the pairs of clients with more equal samples than chance and their classes explain.

    Parameters
    ----------
    hashes: of each sample's bytes ``[n]``. owner, y: its client and class ``[n]``. counts: labels
    of each client and class ``[K, C]``.

    If equal samples fell to clients by chance, class by class, a pair of clients would have about
    as many as the Poisson law says. Samples that occur :data:`_TOGETHER` times and more are left
    out.
    """
    order = np.lexsort((owner, hashes))
    sample = hashes[order]
    client = owner[order]
    label = y[order]
    first = np.flatnonzero(np.concatenate([[True], sample[1:] != sample[:-1]]))
    times = np.repeat(np.diff(first, append=len(sample)), np.diff(first, append=len(sample)))
    begin = [np.zeros(0, np.int64)]
    end = [np.zeros(0, np.int64)]
    for apart in range(1, min(_TOGETHER, len(sample))):
        same = np.flatnonzero((sample[apart:] == sample[:-apart]) & (times[apart:] < _TOGETHER))
        begin.append(same)
        end.append(same + apart)
    left = np.concatenate(begin)
    right = np.concatenate(end)
    if not len(left):
        return []
    clients, classes = counts.shape
    pair, number = np.unique(client[left] * clients + client[right], return_counts=True)
    one, other = np.divmod(pair, clients)
    law = np.bincount(label[left], minlength=classes) / np.maximum(np.square(counts.sum(axis=0)), 1)
    expected = (counts[one] * counts[other] * law).sum(axis=1) * np.where(one == other, 1.0, 2.0)
    smaller = np.minimum(counts[one].sum(axis=1), counts[other].sum(axis=1))
    odd = poisson.sf(number - 1, expected) < 2 * COPIED / (clients * (clients + 1))
    found = np.flatnonzero(odd & (number >= np.maximum(_FEW, _PART * smaller)))
    return [SharedRows(int(one[i]), int(other[i]), int(number[i])) for i in found.tolist()]
