"""How much of a difference each cause carries: Shapley values, or one cause at a time from both
ends.

A *combination* is the set of causes that have B's value, the others A's. ``v(S)`` is the figure of
a combination, one entry per seed, so that everything here is paired by seed. With n causes N:

    Shapley value of i   phi_i = sum over S without i of |S|! (n - |S| - 1)! / n! (v(S + i) - v(S))
    from A               v({i}) - v({})
    from B               v(N) - v(N without i)

Shapley (1953), *A value for n-person games*: the only shares that add up to ``v(N) - v({})``, give
a cause without any effect nothing and treat causes alike that act alike, and that are sums over
sums of games.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np

from motley.core.arrays import Floats

Combination = frozenset[int]
"""The numbers of the causes that have B's value."""
EXACT = 5
"""Up to so many causes all combinations are run; of six causes there are 64."""


@dataclass(frozen=True)
class CauseShares:
    """What each of n causes carries of a difference over k seeds.

    Parameters
    ----------
    each: ``[n, k]`` Shapley values, or means of both ends.
    from_a, from_b: ``[n, k]`` the changes of this cause alone, from A and from B.
    left: ``[k]`` what the shares leave of the difference; 0 up to rounding for Shapley values.
    """

    each: Floats
    from_a: Floats
    from_b: Floats
    left: Floats


def all_combinations(causes: int) -> list[Combination]:
    """Return every set of causes, the small ones first."""
    return [
        frozenset(members)
        for size in range(causes + 1)
        for members in combinations(range(causes), size)
    ]


def end_combinations(causes: int) -> list[Combination]:
    """Return both ends and what lies one cause from them: none, all, each alone, all but each."""
    everything = frozenset(range(causes))
    singles = [frozenset({cause}) for cause in range(causes)]
    near = [*singles, *(everything - single for single in singles)]
    return list(dict.fromkeys([frozenset[int](), everything, *near]))


def planned_combinations(causes: int) -> list[Combination]:
    """Return the combinations of the richest plan: all of few causes, else those near both ends."""
    return (all_combinations if causes <= EXACT else end_combinations)(causes)


def shares(values: Mapping[Combination, Sequence[float] | Floats]) -> CauseShares:
    """Return what each cause carries: Shapley values where ``values`` has every combination, else
    the means of both ends (:func:`end_combinations`).

    Parameters
    ----------
    values: combination -> ``[k]`` figures by seed.
    """
    figures = {combination: np.asarray(value, float) for combination, value in values.items()}
    everything = max(figures, key=len)
    causes = range(len(everything))
    nothing: Combination = frozenset()
    from_a = [figures[frozenset({i})] - figures[nothing] for i in causes]
    from_b = [figures[everything] - figures[everything - {i}] for i in causes]
    if len(figures) == 2 ** len(everything):
        each = [_shapley(figures, i, len(everything)) for i in causes]
    else:
        each = [(a + b) / 2 for a, b in zip(from_a, from_b, strict=True)]
    total = figures[everything] - figures[nothing]
    return CauseShares(
        each=np.array(each),
        from_a=np.array(from_a),
        from_b=np.array(from_b),
        left=total - np.sum(each, axis=0),
    )


def _shapley(figures: Mapping[Combination, Floats], cause: int, causes: int) -> Floats:
    """Return the Shapley value ``[k]`` of one cause."""
    terms = [
        factorial(len(combination))
        * factorial(causes - len(combination) - 1)
        * (figures[combination | {cause}] - figure)
        for combination, figure in figures.items()
        if cause not in combination
    ]
    value: Floats = np.sum(terms, axis=0) / factorial(causes)
    return value
