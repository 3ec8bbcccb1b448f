"""Samples for clients that each have their own mixture of classes, without replacement (optimisation-and-compression D2).

The law, sample by sample: pick a client that is not full, uniformly; draw a class from its mixture; take an unused sample
of that class. A class that is used up is struck from all mixtures; a mixture with nothing left becomes the frequencies of
what remains.

The same law in a few array operations:

* "a client that is not full, uniformly" is the order of independent Poisson processes: slot j of a client happens at the sum of
  its first j exponential waits;
* all slots draw a class at once. Up to the first slot that asks for a sample too many everything stands; from there on the
  class is struck and only the slots that had drawn it draw again (a draw given that it is not that class is a draw from the
  rest).

Every pass strikes one class, so there are at most as many passes as classes. The frequencies of what remains are those of the
moment the class was struck (INTERPRETATION; only mixtures without any class left use them).
"""

from __future__ import annotations

import numpy as np

from motley.core.arrays import Floats, Ids

__all__ = ["draw_counts"]


def draw_counts(rng: np.random.Generator, sizes: Ids, mixtures: Floats, available: Ids) -> Ids:
    """How many samples of each class every client takes, ``[K, C]``.

    Parameters
    ----------
    sizes: samples of each client ``[K]``, together at most ``available.sum()``.
    mixtures: class probabilities of each client ``[K, C]``.
    available: samples of each class ``[C]``.
    """
    client, weights = _slots(rng, sizes), mixtures.copy()
    clients, classes = mixtures.shape
    chosen = _classes(rng, weights, client, available)
    while (first := _first_too_many(chosen, available)) is not None:
        struck = chosen[first]
        weights[:, struck] = 0.0
        left = available - np.bincount(chosen[:first], minlength=classes)
        again = first + np.flatnonzero(chosen[first:] == struck)
        chosen[again] = _classes(rng, weights, client[again], left)
    counts = np.bincount(client * classes + chosen, minlength=clients * classes)
    return counts.reshape(clients, classes).astype(np.int64)


def _slots(rng: np.random.Generator, sizes: Ids) -> Ids:
    """The client of each slot, in order of time."""
    client = np.repeat(np.arange(len(sizes)), sizes)
    elapsed = np.cumsum(rng.standard_exponential(len(client)))
    before = np.concatenate([np.zeros(1), elapsed])[np.cumsum(sizes) - sizes]
    return client[np.argsort(elapsed - before[client], kind="stable")]


def _classes(rng: np.random.Generator, weights: Floats, client: Ids, left: Ids) -> Ids:
    """One class per slot from its client's mixture, or from what is left where the mixture is empty."""
    who, row = np.unique(client, return_inverse=True)
    mix = weights[who]
    mix[mix.sum(axis=1) <= 0] = left
    cdf = np.cumsum(mix, axis=1)
    cdf /= cdf[:, -1:]
    flat = (cdf + np.arange(len(who))[:, None]).ravel()
    wanted = np.minimum(row + rng.random(len(client)), np.nextafter(row + 1.0, 0.0))
    return np.asarray(np.searchsorted(flat, wanted, side="right") - row * weights.shape[1], np.int64)


def _first_too_many(chosen: Ids, available: Ids) -> int | None:
    """The first slot that asks for one more sample of a class than there are; None when there is none."""
    order = np.argsort(chosen, kind="stable")
    starts = np.searchsorted(chosen[order], np.arange(len(available)))
    totals = np.bincount(chosen, minlength=len(available))
    over = np.flatnonzero(totals > available)
    return int(order[starts[over] + available[over]].min()) if len(over) else None
