"""Steps that partitions share: checks, shuffled rows per class, and the conversion from owners to
parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from motley.core.arrays import Bools, Floats, Ints
from motley.core.errors import ConfigError
from motley.core.ragged import Ragged

REDRAWS = 10
"""How often a partition is drawn again before samples are moved instead."""


def check(labels: ArrayLike, population: int, min_size: int = 1) -> Ints:
    """Return the labels as int64 ``[n]``; check that ``population`` clients can have ``min_size``
    samples each.

    Raises
    ------
    ConfigError: no clients, labels that are not classes, or fewer samples than the clients need
    (with the numbers).
    """
    labels = np.asarray(labels)
    if population < 1:
        raise ConfigError(f"got {population}; expected at least 1 client", "population")
    if labels.ndim != 1 or (len(labels) and not np.issubdtype(labels.dtype, np.integer)):
        raise ConfigError(
            f"needs one whole number (a class) per sample, got {labels.dtype} of shape "
            f"{list(labels.shape)};"
            ' use partition = { name = "iid" } for other targets',
            "partition",
        )
    if population * min_size > len(labels):
        fits = len(labels) // population
        most = len(labels) // min_size
        ways = [f"set min_size to at most {fits}"] if min_size > 1 and fits else []
        ways += [f"set population to at most {most}"] if most else []
        raise ConfigError(
            f"{population} clients with at least {min_size} samples each need "
            f"{population * min_size} samples, the data has {len(labels)}; "
            f"{', or '.join(ways) or 'leave more of the data to the clients'}",
            "partition",
        )
    return labels.astype(np.int64)


def even_sizes(n: int, population: int) -> Ints:
    """Return client sizes ``[K]`` as even as possible, together ``n``; the first ``n mod K``
    clients have one more."""
    return n // population + (np.arange(population) < n % population).astype(np.int64)


def pools_of(labels: Ints, rng: np.random.Generator) -> list[Ints]:
    """Return the shuffled row numbers of every class that occurs, in the order of the classes."""
    # Stable: the pools, and so the draws, are those of the rows' order on every platform.
    order = np.argsort(labels, kind="stable")
    ends = np.flatnonzero(np.diff(labels[order])) + 1
    return [rng.permutation(rows) for rows in np.split(order, ends)]


def assign(pools: list[Ints], counts: Ints, n: int, order: ArrayLike | None = None) -> Ints:
    """Return the owner of every row ``[n]`` (-1: unused), taking ``counts[k, c]`` rows from each
    pool, clients in ``order``."""
    clients = np.arange(len(counts)) if order is None else np.asarray(order, np.int64)
    owner = np.full(n, -1, np.int64)
    for pool, wanted in zip(pools, counts[clients].T, strict=True):
        owner[pool[: wanted.sum()]] = np.repeat(clients, wanted)
    return owner


def by_owner(owner: Ints, population: int) -> Ragged:
    """Return the rows of each client, sorted; rows of owner -1 are left out."""
    order = np.argsort(owner, kind="stable")
    values = order[np.count_nonzero(owner < 0) :]
    sizes = np.bincount(owner[values], minlength=population)
    return Ragged(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), values.astype(np.int64)
    )


def cut(shares: Floats, n: int) -> Ints:
    """Return sizes ``[K]`` that divide ``n`` samples in these shares (together 1): cut points at
    the floor of the running sum."""
    ends = np.minimum(np.floor(np.cumsum(shares) * n + 1e-6), n).astype(np.int64)
    ends[-1] = n
    return np.diff(ends, prepend=0)


def shared_evenly(rng: np.random.Generator, held: Bools, available: Ints) -> Ints:
    """Return how many samples of each class each client gets ``[K, C]`` if the clients of a class
    share it evenly.

    Parameters
    ----------
    held: whether a client has a class ``[K, C]``.
    available: samples of each class ``[C]``.

    The remainder of the division goes, one sample each, to consecutive clients of the class, from a
    random one on.
    """
    holders = held.sum(axis=0)
    each, more = np.divmod(available, np.maximum(holders, 1))
    turn = np.cumsum(held, axis=0) - 1 + rng.integers(np.maximum(holders, 1))
    return np.where(held, each + (turn % np.maximum(holders, 1) < more), 0).astype(np.int64)


def note_unused(owner: Ints) -> str:
    """Return the part of a note that counts unused rows; empty if there are none."""
    unused = np.count_nonzero(owner < 0)
    return f"; {unused} of {len(owner)} samples are of classes that no client has" if unused else ""


def topped_up(sizes: Ints, min_size: int) -> Ints:
    """Return sizes ``[K]`` of at least ``min_size``: missing samples are taken one at a time from
    the client that is largest then.

    That is a ceiling on all sizes, with the last few samples taken from the first clients at the
    ceiling. Requires ``len(sizes) * min_size <= sizes.sum()``.
    """
    filled = np.maximum(sizes, min_size)
    missing = int(filled.sum() - sizes.sum())
    low = min_size
    high = int(filled.max())
    while low < high:  # the lowest ceiling that takes no more than is missing
        middle = (low + high) // 2
        low, high = (
            (low, middle) if np.maximum(filled - middle, 0).sum() <= missing else (middle + 1, high)
        )
    remainder = missing - int(np.maximum(filled - low, 0).sum())
    capped = np.minimum(filled, low)
    capped[np.flatnonzero(capped == low)[:remainder]] -= 1
    return capped
