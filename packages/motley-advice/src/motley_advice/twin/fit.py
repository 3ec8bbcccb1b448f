"""The laws of clients' seconds, each shrunk towards what the others are like where few rounds are
known of it.

Let ``x_kj`` be the logarithm of the j-th of n_k recorded seconds of client k, and its mean
``m_k``. With a variance ``W`` within clients (pooled, n - 1) and ``B`` between them
(``max(0, Var(m_k) - W mean(1 / n_k))``), the client's usual logarithm given its records is normal
(empirical Bayes; Morris, JASA 1983) with

    mean      (n_k B m_k + W mu) / (n_k B + W),        mu the mean of the m_k
    variance  W B / (n_k B + W) + (W / (n_k B + W))^2 Var(m_k) / K'

of K' clients with records; a client without any (n_k = 0) has mean mu and variance
``B + Var(m_k) / K'``. Around it lie the residuals that were seen: its own, each with weight 1, and
those of all clients together with weight 5. Nothing is assumed of their law; its quantiles are
kept. A value further than 3.5 robust deviations (1.4826 times the median distance) from its
client's median takes no part in m_k and W, so that one slow answer does not make a slow client; it
stays among the residuals.

Part of W is common to a round: a shared machine or link makes everybody slower at once. With
independent effects of variance C of the rounds, two clients k and l in the same round have

    E (x_kt - m_k) (x_lt - m_l) = C (1 - 1 / n_k - 1 / n_l + n_kl / (n_k n_l)),

n_kl the number of rounds with both; C is the sum of the left sides over the sum of the brackets,
and C / W, cut to [0, 0.95], the share that is common. Of n values, n_t in round t, such a law
knows as much as of ``n / (1 + (sum_t n_t^2 / n - 1) C / W)`` independent ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.keys import normal_quantile

POINTS = 41
"""Quantiles that are kept of a client's law."""
POOLED = 5.0
"""Weight of all clients' residuals beside each of a client's own."""
DISPATCHES = 10.0
"""Weight of all clients' drop-outs beside a client's own, in dispatches."""
OUTLYING = 3.5
"""Robust deviations beyond which a value says nothing of what is usual."""
MOST_COMMON = 0.95
"""Of the variance within clients, what counts as common to a round at most."""
LEVEL = 0.8
"""Of the intervals of the twin."""


@dataclass(frozen=True)
class Usual:
    """The usual value of each client given its records: mean and deviation ``[K]``; variances
    ``within`` clients and ``between`` them."""

    mean: Floats
    deviation: Floats
    within: float
    between: float


@dataclass(frozen=True)
class Law:
    """The law of each client's seconds: quantiles ``[K, P]`` at 0, ..., 1, the deviation of the
    logarithm of its usual seconds ``[K]``, the number of independent values that it all rests on,
    and the share of the variance within clients that is common to a round."""

    quantiles: Floats
    unsure: Floats
    values: int
    common: float = 0.0

    def interval(self, level: float = LEVEL) -> tuple[Floats, Floats]:
        """Return the seconds between which a client's next ones lie with this probability, ``[K]``
        each."""
        places = (np.arange(POINTS) + 0.5) / POINTS
        factor = np.exp(self.unsure[:, None] * normal_quantile(places))
        centres = (self.quantiles[:, 1:] + self.quantiles[:, :-1]) / 2
        every = (centres[:, :, None] * factor[:, None, :]).reshape(len(self.unsure), -1)
        low, high = np.quantile(every, [0.5 - level / 2, 0.5 + level / 2], axis=1)
        return np.asarray(low, np.float64), np.asarray(high, np.float64)


def usual(values: Floats, client: Ids, population: int) -> Usual:
    """Return the usual value of each client, see the module.

    Where no client has two values, what varies is taken for the clients'.

    Parameters
    ----------
    values, client: ``[n]``, at least one.
    population: K.

    >>> found = usual(np.array([0.0, 2.0, 6.0, 8.0]), np.array([0, 0, 1, 1]), 3)
    >>> found.within, found.between, found.mean.round(2).tolist()
    (2.0, 17.0, [1.17, 6.83, 4.0])
    """
    count = np.bincount(client, minlength=population)
    seen = count > 0
    means = np.bincount(client, values, population) / np.maximum(count, 1)
    free = len(values) - int(seen.sum())
    within = float(((values - means[client]) ** 2).sum() / free) if free else 0.0
    mu = float(means[seen].mean())
    spread = float(means[seen].var(ddof=1)) if seen.sum() > 1 else 0.0
    between = max(0.0, spread - within * float((1 / count[seen]).mean()))
    total = count * between + within
    alike = total == 0  # all values are equal: there is nothing to be unsure of
    shrinkage = np.where(alike, 1.0, within / np.where(alike, 1.0, total))
    shrinkage[~seen] = 1.0
    mean = (1 - shrinkage) * means + shrinkage * mu
    variance = np.where(seen, shrinkage * between, between) + shrinkage**2 * spread / seen.sum()
    return Usual(mean, np.sqrt(variance), within, between)


def fitted(seconds: Floats, client: Ids, round: Ints, population: int) -> Law:
    """Return the laws of seconds, at least 0; 0 counts as a tenth of the smallest above it, unless
    all are 0."""
    if not (seconds > 0).any():
        return Law(np.zeros((population, POINTS)), np.zeros(population), len(seconds))
    values = np.log(np.maximum(seconds, seconds[seconds > 0].min() / 10))
    outlying = _outlying(values, client, population)
    usual_values = usual(values[~outlying], client[~outlying], population)
    count = np.bincount(client[~outlying], minlength=population)
    means = np.bincount(client[~outlying], values[~outlying], population) / np.maximum(count, 1)
    repeated = count[client] > 1
    of = client[repeated]
    # as large as in a large sample, from whose mean a value's own share is missing
    grown = np.where(outlying[repeated], 1.0, np.sqrt(count[of] / (count[of] - 1.0)))
    residual = (values[repeated] - means[of]) * grown
    laws = np.array([_quantiles(residual, of == k) for k in range(population)])
    together = common(
        values[~outlying] - means[client[~outlying]], client[~outlying], round[~outlying]
    )
    if usual_values.within:
        share = float(np.clip(together / usual_values.within, 0, MOST_COMMON))
    else:
        share = 0.0
    each = np.unique(round, return_counts=True)[1]
    free = len(values) / (1 + (float((each**2).sum()) / len(values) - 1) * share)
    known_values = max(1, int(np.rint(free)))
    return Law(
        np.exp(usual_values.mean[:, None] + laws), usual_values.deviation, known_values, share
    )


def common(residual: Floats, client: Ids, round: Ints) -> float:
    """Return the variance of what is common to the clients of a round, see the module; below 0
    where chance makes it so, 0 where no round has two clients with two values.

    Parameters
    ----------
    residual: of each value from its client's mean, ``[n]``.
    client, round: of each.
    """
    several = np.bincount(client)[client] > 1
    at = np.unique(round, return_inverse=True)[1]
    of, residual = client[several], residual[several]
    if not len(of):
        return 0.0
    shape = int(of.max()) + 1, int(at.max()) + 1
    count, off = np.zeros(shape), np.zeros(shape)
    np.add.at(count, (of, at[several]), 1)
    np.add.at(off, (of, at[several]), residual)
    number = np.maximum(count.sum(axis=1), 1)
    both = count @ count.T  # n_kl
    brackets = both * (1 - 1 / number[:, None] - 1 / number + both / np.outer(number, number))
    products = off @ off.T
    pairs = ~np.eye(len(count), dtype=bool)
    total = float(brackets[pairs].sum())
    return float(products[pairs].sum()) / total if total > 0 else 0.0


def _outlying(values: Floats, client: Ids, population: int) -> Bools:
    """Return which values lie far from their client's median, ``[n]``; of two nobody can tell
    which does."""
    medians = np.array([np.median(values[client == k]) for k in np.unique(client)])
    far = np.abs(values - medians[np.searchsorted(np.unique(client), client)])
    if not far.any():
        return np.zeros(len(values), bool)
    # a median that is a value of its client says nothing of the scale
    several = np.bincount(client)[client] > 2
    return np.asarray(several & (far > OUTLYING * 1.4826 * np.median(far[far > 0])))


def _quantiles(residual: Floats, own: Bools) -> Floats:
    """Return the quantiles of a client's own residuals and the pooled ones together, ``[P]``."""
    if not len(residual):
        return np.zeros(POINTS)
    order = np.argsort(residual, kind="stable")
    weight = (own + POOLED / len(residual))[order]
    centre = (np.cumsum(weight) - weight / 2) / weight.sum()
    return np.interp(np.linspace(0, 1, POINTS), centre, residual[order])


def held_out(seconds: Floats, client: Ids, round: Ints, population: int) -> tuple[int, int]:
    """Fit the first two thirds of the rounds; return how many of the later seconds lie within their
    clients' intervals, and how many there are."""
    every = np.unique(round)
    later = round >= every[int(np.ceil(len(every) * 2 / 3)) :].min(initial=every[-1])
    if later.all():
        return 0, 0
    low, high = fitted(seconds[~later], client[~later], round[~later], population).interval()
    of = client[later]
    inside = (seconds[later] >= low[of] * (1 - 1e-9)) & (seconds[later] <= high[of] * (1 + 1e-9))
    return int(inside.sum()), len(of)


def beta_counts(dropped: Bools, client: Ids, population: int) -> tuple[Floats, Floats]:
    """Return how often each client dropped out and answered, ``[K]`` each, with ten dispatches of
    all clients together added.

    >>> counts = beta_counts(np.array([True, False, False, False]), np.array([0, 0, 1, 1]), 2)
    >>> [one.tolist() for one in counts]
    [[3.5, 2.5], [8.5, 9.5]]
    """
    rate = float(dropped.mean())
    count = np.bincount(client, minlength=population)
    lost = np.bincount(client, dropped.astype(float), population)
    answered = np.asarray(count - lost + DISPATCHES * (1 - rate), np.float64)
    return np.asarray(lost + DISPATCHES * rate, np.float64), answered


def presence(
    changes: Sequence[tuple[int, bool, float]], end_s: float, population: int
) -> dict[str, Floats]:
    """Return how often clients went and came until ``end_s``, and for how many seconds they were
    online and offline, ``[K]`` each; all are online at first.

    One change of all clients together, and the seconds that it took them, is added to each
    client's; half a change, where there was none.

    Parameters
    ----------
    changes: client, whether it came, and when (s), in order of time. A client that goes when it is
    gone, or comes when it is there, does nothing; one that goes at 0 was offline before.

    >>> found = presence([(0, False, 2.0), (0, True, 5.0)], 10.0, 2)
    >>> {name: values.tolist() for name, values in found.items()}
    {'went': [2.0, 1.0], 'online_s': [24.0, 27.0], 'came': [2.0, 1.0], 'offline_s': [6.0, 3.0]}
    """
    count = np.zeros((2, population))
    seconds = np.zeros((2, population))
    there = np.ones(population, np.int64)
    since = np.zeros(population)
    for client, comes, at in changes:
        if there[client] == comes or at > end_s:
            continue
        seconds[there[client], client] += at - since[client]
        count[there[client], client] += at > 0
        there[client] = comes
        since[client] = at
    np.add.at(seconds, (there, np.arange(population)), end_s - since)
    out = {}
    for state, names in ((1, ("went", "online_s")), (0, ("came", "offline_s"))):
        total_s = seconds[state].sum() or end_s
        out[names[0]] = count[state] + 1
        out[names[1]] = seconds[state] + total_s / max(count[state].sum(), 0.5)
    return out
