"""Samples for clients that each have their own mixture of classes, without replacement.

The definition, sample by sample: pick a client that is not full, uniformly; draw a class from its
mixture; take an unused sample of that class. A class that is used up is removed from all mixtures;
a mixture without any class left becomes the frequencies of the remaining samples.

The same distribution in a few array operations:

* "a client that is not full, uniformly" is the order of independent Poisson processes: slot j of a
  client is at the sum of its first j exponential waiting times;
* all slots draw a class at once. The draws are valid up to the first slot that asks for a sample
  too many; from there on the class is removed and only the slots that had drawn it draw again (a
  draw conditioned on not being that class is a draw from the rest).

Every pass removes one class, so there are at most as many passes as classes. The frequencies of the
remaining samples are those at the time the class was removed (INTERPRETATION; only mixtures without
any class left use them).
"""

from __future__ import annotations

import numpy as np

from motley.core.arrays import Floats, Ints


def draw_counts(rng: np.random.Generator, sizes: Ints, mixtures: Floats, available: Ints) -> Ints:
    """Return how many samples of each class every client takes, ``[K, C]``.

    Parameters
    ----------
    sizes: samples of each client ``[K]``, together at most ``available.sum()``.
    mixtures: class probabilities of each client ``[K, C]``.
    available: samples of each class ``[C]``.
    """
    client = _slots(rng, sizes)
    weights = mixtures.copy()
    clients, classes = mixtures.shape
    chosen = _classes(rng, weights, client, available)
    while (first := _first_too_many(chosen, available)) is not None:
        removed = chosen[first]
        weights[:, removed] = 0.0
        remaining = available - np.bincount(chosen[:first], minlength=classes)
        again = first + np.flatnonzero(chosen[first:] == removed)
        chosen[again] = _classes(rng, weights, client[again], remaining)
    counts = np.bincount(client * classes + chosen, minlength=clients * classes)
    return counts.reshape(clients, classes).astype(np.int64)


def _slots(rng: np.random.Generator, sizes: Ints) -> Ints:
    """Return the client of each slot, in order of time."""
    client = np.repeat(np.arange(len(sizes)), sizes)
    elapsed = np.cumsum(rng.standard_exponential(len(client)))
    before = np.concatenate([np.zeros(1), elapsed])[np.cumsum(sizes) - sizes]
    return client[np.argsort(elapsed - before[client], kind="stable")]


def _classes(rng: np.random.Generator, weights: Floats, client: Ints, remaining: Ints) -> Ints:
    """Return one class per slot from its client's mixture, or from the remaining samples if the
    mixture is empty."""
    clients, row = np.unique(client, return_inverse=True)
    mix = weights[clients]
    mix[mix.sum(axis=1) <= 0] = remaining
    cdf = np.cumsum(mix, axis=1)
    cdf /= cdf[:, -1:]
    flat = (cdf + np.arange(len(clients))[:, None]).ravel()
    wanted = np.minimum(row + rng.random(len(client)), np.nextafter(row + 1.0, 0.0))
    return np.asarray(
        np.searchsorted(flat, wanted, side="right") - row * weights.shape[1], np.int64
    )


def _first_too_many(chosen: Ints, available: Ints) -> int | None:
    """Return the first slot that asks for one more sample of a class than there are; None if there
    is none."""
    order = np.argsort(chosen, kind="stable")
    starts = np.searchsorted(chosen[order], np.arange(len(available)))
    totals = np.bincount(chosen, minlength=len(available))
    over = np.flatnonzero(totals > available)
    return int(order[starts[over] + available[over]].min()) if len(over) else None
