"""Clients without any sample of a class that clients of their size have, and pairs of clients that
hold the same samples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln
from scipy.stats import nbinom, poisson

from motley.core.arrays import Floats, Ids, Ints

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
_COMMON = 50
"""Equal samples from which on they are common ones and no copies; the same of samples that are not
equal by chance."""


class AbsentClass(NamedTuple):
    """A class that a client has no sample of. share_elsewhere: its mean share at other clients."""

    client: int
    label: int
    share_elsewhere: float


class SharedRows(NamedTuple):
    """Samples that lie at two clients, or twice at one (``first == second``). number: of pairs of
    equal samples."""

    first: int
    second: int
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
    other_clients = clients - 1
    mean = (share.sum(axis=0) - share) / other_clients
    lacking = ((counts[used] == 0) & ((1 - mean) ** size < _LACKED / counts.shape[1])).any(axis=1)
    if lacking.sum() > max(1, clients / 10):
        return []
    squares = (np.square(share).sum(axis=0) - np.square(share)) / other_clients
    variance = np.maximum(squares - np.square(mean), 0.0) * other_clients / (other_clients - 1)
    possible = np.maximum(mean * (1 - mean), 1e-9)
    by_chance = possible * ((1 / size).sum() - 1 / size) / other_clients
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
    hashes: NDArray[np.uint64], owner: Ids, y: Ints, counts: Floats, certain: bool = False
) -> list[SharedRows]:
    """Return the pairs of clients with more equal samples than chance and their classes explain.

    Parameters
    ----------
    hashes: of each sample's bytes ``[n]``.
    owner, y: its client and class ``[n]``.
    counts: labels of each client and class ``[K, C]``.
    certain: whether equal samples are copies for certain.

    If equal samples fell to clients by chance, class by class, a pair of clients would have about
    as many as the Poisson law says. Of samples that chance makes equal, pairs come together: one
    that lies m times in all adds m - 2 times the two clients' shares of the rows to the variance of
    each of its pairs; the law is then the negative binomial one of this mean and variance. Samples
    that occur :data:`_TOGETHER` times and more are left out; of certain copies, :data:`_COMMON`
    times.

    Certain copies may be in the data as it was collected, and have been dealt to clients by chance.
    Where too few of them lie twice at the same client for that, every pair that shares them is
    told.
    """
    order = np.lexsort((owner, hashes))
    sample = hashes[order]
    client = owner[order]
    label = y[order]
    first = np.flatnonzero(np.concatenate([[True], sample[1:] != sample[:-1]]))
    times = np.repeat(np.diff(first, append=len(sample)), np.diff(first, append=len(sample)))
    most = _COMMON if certain else _TOGETHER
    begin = [np.zeros(0, np.int64)]
    end = [np.zeros(0, np.int64)]
    for apart in range(1, min(most, len(sample))):
        same = np.flatnonzero((sample[apart:] == sample[:-apart]) & (times[apart:] < most))
        begin.append(same)
        end.append(same + apart)
    left = np.concatenate(begin)
    right = np.concatenate(end)
    if not len(left):
        return []
    clients, classes = counts.shape
    pair, number = np.unique(client[left] * clients + client[right], return_counts=True)
    first_client, second_client = np.divmod(pair, clients)
    law = np.bincount(label[left], minlength=classes) / np.maximum(np.square(counts.sum(axis=0)), 1)
    expected = (counts[first_client] * counts[second_client] * law).sum(axis=1) * np.where(
        first_client == second_client, 1.0, 2.0
    )
    chance = 2 * COPIED / (clients * (clients + 1))
    if certain:
        odd = poisson.sf(number - 1, expected) < chance
        odd |= _dealt_apart(sample, client, counts.sum(axis=1))
        least = np.full(len(number), _FEW)
    else:
        share = counts / np.maximum(counts.sum(axis=0), 1)
        clumped = np.bincount(label[left], times[left] - 2, classes) / np.maximum(
            np.square(counts.sum(axis=0)), 1
        )
        both = (
            counts[first_client]
            * counts[second_client]
            * (share[first_client] + share[second_client])
        )
        more = (both * clumped).sum(axis=1) * np.where(first_client == second_client, 1.0, 2.0)
        odd = _by_chance(number, expected, more) < chance
        smaller = np.minimum(counts[first_client].sum(axis=1), counts[second_client].sum(axis=1))
        least = np.maximum(_FEW, _PART * smaller)
    reported = np.flatnonzero(odd & (number >= least))
    return [
        SharedRows(int(first_client[i]), int(second_client[i]), int(number[i]))
        for i in reported.tolist()
    ]


def _by_chance(number: Ints, expected: Floats, more: Floats) -> Floats:
    """Return the probability of so many pairs, which have a variance of ``expected + more``."""
    mean = np.maximum(expected, 1e-12)  # 0: none of their classes has equal samples
    beyond = np.maximum(more / mean, 1e-9)
    return np.asarray(nbinom.sf(number - 1, mean / beyond, 1 / (1 + beyond)))


def _dealt_apart(sample: NDArray[np.uint64], client: Ids, sizes: Floats) -> bool:
    """Return whether equal samples lie at different clients so often that chance did not deal them.

    Parameters
    ----------
    sample, client: hash and client of each sample, in the order of both ``[n]``.
    sizes: of the clients ``[K]``.
    """
    same = sample[1:] == sample[:-1]
    times = np.diff(np.flatnonzero(np.concatenate([[True], ~same, [True]])))
    repeated = len(np.unique(sample[1:][same & (client[1:] == client[:-1])]))
    # the probability that two of a group's samples fall to one client, of groups by their size
    together = float(np.square(sizes / sizes.sum()).sum())
    steps = np.log(np.maximum(1 - together * np.arange(times.max()), 1e-12))
    expected = float((1 - np.exp(np.cumsum(steps)[times - 1])).sum())
    return bool(poisson.cdf(repeated, expected) < COPIED)
