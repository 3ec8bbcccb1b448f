"""How clients' features differ where their classes do not.

Two clients are compared on equally many samples of each class, so that label skew alone tells
nothing. A linear classifier (linear discriminant with a shrunk covariance) learns on three quarters
which client a sample comes from and is examined on the fourth; its accuracy above chance,
``2 accuracy - 1``, is 0 for equal features and 1 if every sample gives its client away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ints
from motley.core.keys import Key
from motley_advice.heterogeneity.client_data import Sample
from motley_advice.heterogeneity.features import standardised
from motley_advice.heterogeneity.findings import Finding

_PAIRS = 60
_TRIED = 400
_LEAST = 12
"""Samples of each of two clients below which they are not compared."""
_FOLDS = 4
_SHRINK = 0.2
"""How far the discriminant's covariance is drawn to a multiple of the identity."""
_DOMAINS = 6
"""Groups of clients at most."""
_NOTHING = 0.02
"""Share of the features' variance below which what clients' halves have in common is nothing to
group."""
_EXPLAINED = 0.85
"""Share of it that groups explain."""
_CLIENTS = 12
"""Clients below which no groups are looked for."""


def feature_findings(sample: Sample, few: Sample, population: int, key: Key) -> list[Finding]:
    """Return ``feature_shift``, how well two clients are told apart beyond their labels, and
    ``domains``, how many groups they form.

    Parameters
    ----------
    sample: of which groups are made.
    few: samples of fewer clients, more of each, whose pairs are compared.

    ``feature_shift`` is a lower bound: a linear classifier of a few dozen samples sees less than a
    better one of more, so values of federations whose clients have 20 and 500 samples do not
    compare. IID clients give 0 up to 0.03. Wrong labels that are skewed leave up to 0.05 behind,
    since classes are matched by the labels that clients have.

    ``domains`` is the least number of groups, up to 6, that explain 85 % of what the mean features
    of two halves of a client's samples have in common, each sample's class mean taken off, and 85 %
    of what is left in each; 1 if there is next to nothing in common, or if no 6 groups do. Shifts
    that grow evenly along a line from client to client may show as a few groups.
    """
    pairs, accuracies, compared = _pairs(few, standardised(few.x), key.fold("pairs"))
    x = standardised(sample.x)
    d = x.shape[1]
    return [
        _shift(
            sample=few,
            population=population,
            pairs=pairs,
            accuracies=accuracies,
            compared=compared,
            d=d,
        ),
        _domains(
            sample=sample,
            population=population,
            x=x,
            key=key.fold("domains"),
            size=8 * sample.classes * (d + 1),
        ),
    ]


def _shift(
    sample: Sample,
    population: int,
    pairs: Ints,
    accuracies: Floats,
    compared: Ints,
    d: int,
) -> Finding:
    """Return the finding of the pairs of clients ``[p, 2]`` that were compared by ``d`` features,
    the accuracies above chance and the samples of each of the two, ``[p]``.

    The interval is that of the pairs, as many as there are clients at most, and no narrower than
    the binomial one of their samples, of as many pairs as have no client in common.
    """
    shift = partial(
        Finding,
        "feature_shift",
        unit="share",
        needs="means and products of cheap features per class",
        federated="two clients, or two sums of clients, send per class the number, mean and "
        "products of cheap features: a linear discriminant needs no more; each examines it on "
        "samples of its own that it kept back",
        federated_bytes=8 * (sample.classes * (d * (d + 3) // 2 + 1) + d + 1),
    )
    if len(pairs) < min(5, len(sample.clients) - 1) or not len(pairs):
        why = (
            f"two clients are compared by {_LEAST} samples or more of each in the same classes; "
            f"no two of the {len(sample.clients)} clients that were looked at have them"
        )
        return shift(math.nan, how="not measurable", note=why)
    sums = np.bincount(pairs.ravel(), np.repeat(accuracies, 2), minlength=len(sample.clients))
    times = np.bincount(pairs.ravel(), minlength=len(sample.clients))
    clients = np.full(population, np.nan)
    clients[sample.clients] = np.where(
        times > 0, np.maximum(sums, 0) / np.maximum(times, 1), np.nan
    )
    mean = float(accuracies.mean())
    apart = max(int((times > 0).sum()) // 2, 1)
    error = math.sqrt(float(((1 - np.square(accuracies)) / (2 * compared)).mean()) / apart)
    if len(accuracies) > 1:
        number = min(len(accuracies), int((times > 0).sum()))
        error = max(error, float(accuracies.std(ddof=1)) / math.sqrt(number))
    error *= 1.96
    low = max(mean - error, 0.0)
    high = min(max(mean + error, 0.0), 1.0)
    return shift(
        max(mean, 0.0),
        low,
        high,
        per_client=clients,
        note="accuracy above chance with which a linear classifier tells two clients apart on "
        f"samples of the same classes ({len(accuracies)} pairs); a lower bound where clients "
        "have few samples",
    )


def _pairs(sample: Sample, x: NDArray[np.float32], key: Key) -> tuple[Ints, Floats, Ints]:
    """Return the pairs of clients compared ``[p, 2]``, how well each was told apart and by how many
    samples of each of the two ``[p]``."""
    rng = key.numpy()
    clients = len(sample.clients)
    pairs = []
    accuracies = []
    compared = []
    for first, second in _drawn(rng, clients):
        mine, yours = _matched(sample, first, second, rng)
        if len(mine) >= _LEAST:
            pairs.append((first, second))
            accuracies.append(_told_apart(x[mine], x[yours]))
            compared.append(len(mine))
        if len(pairs) == _PAIRS:
            break
    return (
        np.array(pairs, np.int64).reshape(-1, 2),
        np.array(accuracies),
        np.array(compared, np.int64),
    )


def _drawn(rng: np.random.Generator, clients: int) -> Iterator[tuple[int, int]]:
    """Yield different pairs of clients in random order: all if they are few."""
    if clients * (clients - 1) // 2 <= _TRIED:
        upper = np.stack(np.triu_indices(clients, 1), axis=1)
        yield from map(tuple, rng.permutation(upper).tolist())
        return
    seen: set[tuple[int, int]] = set()
    while len(seen) < _TRIED:
        first, second = sorted(rng.choice(clients, 2, replace=False).tolist())
        if (first, second) not in seen:
            seen.add((first, second))
            yield first, second


def _matched(
    sample: Sample, first: int, second: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return positions of equally many samples of each class at two clients, in random order."""
    mine = []
    yours = []
    parts = [rng.permutation(np.flatnonzero(sample.owner == client)) for client in (first, second)]
    labels = [sample.y[part] for part in parts]
    for label in np.intersect1d(*labels):
        a, b = (part[of == label] for part, of in zip(parts, labels, strict=True))
        number = min(len(a), len(b))
        mine.append(a[:number])
        yours.append(b[:number])
    empty = [np.zeros(0, np.int64)]
    return np.concatenate(mine or empty), np.concatenate(yours or empty)


def _told_apart(mine: NDArray[np.float32], yours: NDArray[np.float32]) -> float:
    """Return the held-out accuracy above chance of a linear discriminant between two equally large
    sets of samples."""
    fold = np.arange(len(mine)) % _FOLDS
    right = 0
    for f in range(_FOLDS):
        a, b = (part[fold != f].astype(np.float64) for part in (mine, yours))
        centre_a = a.mean(axis=0)
        centre_b = b.mean(axis=0)
        centred = np.concatenate([a - centre_a, b - centre_b])
        spread = centred.T @ centred / len(centred)
        mean_variance = max(float(np.trace(spread)) / len(spread), 1e-12)
        shrunk = (1 - _SHRINK) * spread + _SHRINK * mean_variance * np.eye(len(spread))
        slope = np.linalg.solve(shrunk, centre_a - centre_b)
        middle = (centre_a + centre_b) @ slope / 2
        right += int(
            (mine[fold == f] @ slope > middle).sum() + (yours[fold == f] @ slope <= middle).sum()
        )
    return right / len(mine) - 1.0


def _domains(
    sample: Sample, population: int, x: NDArray[np.float32], key: Key, size: int
) -> Finding:
    counts = np.bincount(sample.owner, minlength=len(sample.clients))
    usable = np.flatnonzero(counts >= _LEAST)
    domains = partial(
        Finding,
        "domains",
        unit="groups",
        needs="means of cheap features per class",
        federated="each client sends its sums of cheap features per class",
        federated_bytes=size,
    )
    if len(usable) < _CLIENTS:
        why = (
            f"groups are looked for where {_CLIENTS} clients or more have {_LEAST} samples or "
            f"more each; of the {len(sample.clients)} clients that were looked at, "
            f"{len(usable)} have them"
        )
        return domains(math.nan, how="not measurable", note=why)
    first, second = _half_means(sample, x, key)
    group = _grouped(first[usable], second[usable], key.words()[0] % 2**31)
    if group.max() >= _DOMAINS:  # no few groups: clients differ one by one
        group[:] = 0
    clients = np.full(population, np.nan)
    clients[sample.clients[usable]] = group
    return domains(
        float(group.max() + 1),
        per_client=clients,
        note="groups of clients with like mean features, class by class, that explain 85 % "
        "of the differences; per client: the number of its group",
    )


def _half_means(sample: Sample, x: NDArray[np.float32], key: Key) -> tuple[Floats, Floats]:
    """Return the mean over two random halves of each client's samples of the features less the mean
    of their class, ``[S, d]``."""
    clients = len(sample.clients)
    half = key.numpy().permutation(len(x)) % 2
    means = np.zeros((sample.classes, x.shape[1]))
    np.add.at(means, sample.y, x)
    means /= np.maximum(np.bincount(sample.y, minlength=sample.classes), 1)[:, None]
    sums = np.zeros((2 * clients, x.shape[1]))
    at = half * clients + sample.owner
    np.add.at(sums, at, x - means[sample.y])
    sums /= np.maximum(np.bincount(at, minlength=len(sums)), 1)[:, None]
    return sums[:clients], sums[clients:]


def _grouped(first: Floats, second: Floats, seed: int) -> Ints:
    """Return each client's group ``[S]``, from the means of two halves of its samples ``[S, d]``.

    Groups are those of k-means on the first halves. How much of what the halves have in common they
    explain is measured on the second halves, each client's own mean left out of its group's. Each
    group is divided further in the same way.
    """
    from sklearn.cluster import KMeans  # slow to import, and many commands need none

    first = first - first.mean(axis=0)
    second = second - second.mean(axis=0)
    common = float((first * second).sum())
    alone = np.zeros(len(first), np.int64)
    if len(first) < _CLIENTS // 2 or common / first.size < _NOTHING:
        return alone
    for number in range(2, min(_DOMAINS, len(first) // 3) + 1):
        group = KMeans(number, n_init=5, random_state=seed).fit_predict(first)
        size = np.bincount(group, minlength=number)[group][:, None]
        total = np.zeros((number, first.shape[1]))
        np.add.at(total, group, first)
        centre = np.where(size > 1, (total[group] - first) / np.maximum(size - 1, 1), 0.0)
        if float((centre * second).sum()) >= _EXPLAINED * common:
            parts = [np.flatnonzero(group == g) for g in range(number)]
            for part in parts:
                alone[part] = _grouped(first[part], second[part], seed) + alone.max() + 1
            return np.unique(alone, return_inverse=True)[1].astype(np.int64)
    return alone
