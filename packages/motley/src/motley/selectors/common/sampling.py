"""Drawing clients: softmax, Gumbel top-m, successive draws, draws with replacement, the m best,
inclusion probabilities.

Symbols: K candidates, m wanted. Every function takes scores or weights ``[K]`` and returns
*positions* ``0 .. K - 1``, which the caller maps to ids (``available[positions]``). Everything is
one pass of array operations and a partition: a million candidates cost about ten milliseconds.

Weighted sampling without replacement means successive draws with renormalization
(docs/methods/selectors.md#draws): draw ``i ~ p``, remove it, renormalize, repeat. It is drawn here
in its exponential form: with ``E_i ~ Exp(1)`` the m smallest ``E_i / p_i`` have exactly this law,
order included (Efraimidis and Spirakis, 2006), as have the m largest ``log p_i + Gumbel_i`` (Gumbel
top-m; Kool, van Hoof, Welling, ICML 2019). Inclusion probabilities are *not* ``m p_i``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from motley.core.arrays import Floats, Ints
from motley.core.errors import ContractError
from motley.core.rounding import rounded

Positions = Ints
Ties = Literal["random", "lowest_id"]

EXACT_LIMIT = 12
"""The largest number of candidates for which :func:`inclusion_probabilities` is exact."""


def softmax(scores: Floats, temperature: float = 1.0) -> Floats:
    """Return ``exp(scores / temperature)`` normalized, ``[K]``; the maximum is subtracted first, so
    nothing overflows."""
    if not len(scores):
        return np.zeros(0)
    shifted = (scores - np.max(scores)) / temperature
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum()
    return shifted


def probability_notes(p: Floats) -> dict[str, float]:
    """Return the notes ``max_probability`` and ``cv_probability`` (standard deviation over mean) of
    probabilities ``[K]``."""
    return {"max_probability": float(p.max()), "cv_probability": float(p.std() * len(p))}


def component_notes(
    components: NamedTuple, at: Positions | slice = slice(None)
) -> dict[str, Floats]:
    """Return the components ``[K]`` of a score by the names of their notes, ``component.NAME``, of
    the clients at these positions."""
    return {f"component.{name}": part[at] for name, part in components._asdict().items()}


def _best(keys: Floats, m: int) -> Positions:
    """Return the positions of the m largest keys, largest first; keys are distinct with probability
    one."""
    if m >= len(keys):
        return np.argsort(-keys, kind="stable")
    # Linear in K, where a sort of all is not: cohorts are small beside a million candidates.
    front = np.argpartition(keys, len(keys) - m)[len(keys) - m :] if m else np.zeros(0, np.int64)
    return np.asarray(front[np.argsort(-keys[front], kind="stable")], dtype=np.int64)


def gumbel_top_m(log_weights: Floats, m: int, rng: np.random.Generator) -> Positions:
    """Return ``min(m, K)`` successive draws without replacement with probabilities
    ``softmax(log_weights)``, in order of drawing.

    A weight of ``-inf`` is never drawn before a finite one; candidates of weight ``-inf`` come in
    random order.
    """
    if not (np.isfinite(log_weights) | np.isneginf(log_weights)).all():
        raise ContractError("scores must be finite numbers before anything is drawn")
    noise = rng.standard_exponential(len(log_weights))
    # an exponential may be 0, and the negative of its logarithm would beat every score
    np.maximum(noise, np.finfo(np.float64).tiny, out=noise)
    np.log(noise, out=noise)
    impossible = np.isneginf(log_weights)
    m = min(m, len(noise))
    possible = len(noise) - int(np.count_nonzero(impossible))
    if possible >= m:
        return _best(log_weights - noise, m)
    first = np.flatnonzero(~impossible)
    first = first[_best((log_weights - noise)[first], possible)]
    zero_weight = np.flatnonzero(impossible)
    return np.concatenate([first, zero_weight[_best(-noise[zero_weight], m - possible)]])


def successive_draws(weights: Floats, m: int, rng: np.random.Generator) -> Positions:
    """Return ``min(m, K)`` successive draws without replacement, probabilities proportional to
    ``weights >= 0``, in order.

    With fewer than m positive weights all of these are taken, and the rest is filled uniformly
    (docs/methods/selectors.md#draws).

    Raises
    ------
    ContractError: a weight that is negative or not finite.
    """
    if len(weights) and not (weights >= 0).all():
        raise ContractError("sampling weights must be numbers of at least 0")
    with np.errstate(divide="ignore"):
        # log 0 is -inf: a weight of 0 is drawn after all others, never before.
        return gumbel_top_m(np.log(weights), m, rng)


def with_replacement(
    weights: Floats, m: int, rng: np.random.Generator
) -> tuple[Positions, Positions]:
    """Draw m times independently with probabilities proportional to ``weights >= 0``; uniformly if
    all are 0.

    Returns the distinct positions, ascending, and how often each was drawn.
    """
    if not len(weights) or not m:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if not (weights >= 0).all():
        raise ContractError("sampling weights must be numbers of at least 0")
    edges = np.cumsum(weights if weights.any() else np.ones(len(weights)))
    # right: a weight of 0 has no width, and is never hit
    drawn = np.searchsorted(edges, rng.random(m) * edges[-1], side="right")
    # rounding must not land behind the last positive weight
    last = int(np.searchsorted(edges, edges[-1], side="left"))
    positions, counts = np.unique(np.minimum(drawn, last), return_counts=True)
    return positions, counts


def top_m(scores: Floats, m: int, rng: np.random.Generator, ties: Ties = "random") -> Positions:
    """Return the positions of the ``min(m, K)`` largest scores, best first; ``+inf`` is allowed,
    NaN counts as ``-inf``.

    Ties (docs/methods/selectors.md#ties): a random permutation and a stable descending sort, or by
    lowest position. Only the scores at or above the m-th are permuted, which has the same law.
    Scores that differ by rounding alone are equal (:func:`~motley.core.rounding.rounded`).
    """
    ranked = rounded(np.where(np.isnan(scores), -np.inf, scores))
    m = min(m, len(ranked))
    if not m:
        return np.zeros(0, np.int64)
    # All that tie with the m-th stay in the pool, so that ties are broken below, not by the order
    # in which a partition leaves them.
    pool = np.flatnonzero(ranked >= np.partition(ranked, len(ranked) - m)[len(ranked) - m])
    if ties == "random":
        pool = rng.permutation(pool)
    return np.asarray(pool[np.argsort(-ranked[pool], kind="stable")[:m]], dtype=np.int64)


def inclusion_probabilities(weights: Floats, m: int) -> Floats:
    """Return the probability that each candidate is among m successive draws, ``[K]``; sums to m or
    the number of positive weights.

    Up to :data:`EXACT_LIMIT` candidates exactly, by summing over the sets that can have been drawn:
    ``P(S + i) += P(S) p_i / (1 - p(S))``, which is O(2^K K). Above it by Rosen's limit (Annals of
    Mathematical Statistics 43, 1972): ``pi_i = 1 - exp(-p_i s)`` with s such that they sum to m;
    its error vanishes as m and K - m grow (below 0.01 here).

    Candidates of weight 0 have probability 0 for any m (those that fill up a short draw are not
    counted).
    """
    positive = np.flatnonzero(weights > 0)
    out = np.zeros(len(weights))
    if m >= len(positive):
        out[positive] = 1.0
    elif m > 0:
        p = weights[positive] / weights[positive].sum()
        out[positive] = _exact_inclusion(p, m) if len(p) <= EXACT_LIMIT else _rosen_inclusion(p, m)
    return out


def _exact_inclusion(p: Floats, m: int) -> Floats:
    sets = np.arange(1 << len(p))
    member = (sets[:, None] >> np.arange(len(p))) & 1 == 1  # [2^K, K]
    size = member.sum(1)
    mass = member @ p
    outside = ~member @ p
    chance = np.zeros(len(sets))
    chance[0] = 1.0
    for drawn in range(m):
        now = sets[size == drawn]
        for i in range(len(p)):
            grow = now[~member[now, i]]  # distinct sets stay distinct when i joins
            left = 1.0 - mass[grow]
            # where one client has nearly all the mass
            left = np.where(left > 1e-9, left, outside[grow])
            chance[grow | (1 << i)] += chance[grow] * p[i] / left
    last = size == m
    return np.asarray(chance[last] @ member[last])


def _rosen_inclusion(p: Floats, m: int) -> Floats:
    low = 0.0
    high = 1.0
    # expm1: 1 - exp(-x) loses the digits of small probabilities
    while -np.expm1(-p * high).sum() < m:
        high *= 2.0
    s = 0.5 * (low + high)
    for _ in range(100):
        chance = -np.expm1(-p * s)
        excess = chance.sum() - m
        low, high = (low, s) if excess > 0 else (s, high)
        newton = s - excess / (p * (1.0 - chance)).sum() if (chance < 1).any() else low
        # Newton alone may leave the bracket where chances saturate at 1.
        nearer = newton if low < newton < high else 0.5 * (low + high)
        if abs(nearer - s) <= 1e-14 * s:
            break
        s = nearer
    return np.asarray(-np.expm1(-p * s))
