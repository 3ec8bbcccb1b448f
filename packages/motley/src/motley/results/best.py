"""Which numbers of a column are set in bold: those that the runs' seeds tell apart from all
others."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from motley.results.measures import Spread, paired

BOLD = (
    "Bold: the best mean, if the 95 % interval of its differences, paired by seed, excludes zero "
    "against every other method; a method with the same number in every seed is bold with it."
)
"""The rule in words, for captions."""


def best_rows(
    column: Sequence[Spread], seeds: Sequence[Sequence[int]], higher: bool
) -> frozenset[int]:
    """Return the rows of a column that are set in bold by :data:`BOLD`; none where there is one row
    only.

    Parameters
    ----------
    column: of each method, with the numbers of its runs (``each``).
    seeds: of each method's runs, in the same order.
    higher: whether more is better.

    >>> from motley.results.measures import spread
    >>> best_rows([spread([1.0, 2.0, 3.0]), spread([2.0, 3.0, 4.1])], [(0, 1, 2)] * 2, higher=True)
    frozenset({1})
    """
    each = [
        dict(zip(numbers, spread.each, strict=True))
        for numbers, spread in zip(seeds, column, strict=True)
    ]
    finite = [row for row, spread in enumerate(column) if isfinite(spread.mean)]
    if len(column) < 2 or not finite:
        return frozenset()
    best = (max if higher else min)(finite, key=lambda row: column[row].mean)
    alike = {row for row in finite if each[row] == each[best]}
    rivals = [each[row] for row in finite if row not in alike]
    return frozenset(alike) if all(_apart(each[best], rival) for rival in rivals) else frozenset()


def _apart(best: dict[int, float], rival: dict[int, float]) -> bool:
    """Return whether the interval of the paired differences excludes zero; False for fewer than two
    common seeds. Where all differ by the same, only numbers that no seed moves (of
    messages, say) are apart."""
    common = [
        seed
        for seed in sorted(best.keys() & rival.keys())
        if isfinite(best[seed]) and isfinite(rival[seed])
    ]
    ours, theirs = ([each[seed] for seed in common] for each in (best, rival))
    difference = paired(ours, theirs)
    if difference.n > 1 and not isfinite(difference.low):
        return difference.mean != 0 and len({*ours}) == len({*theirs}) == 1
    return difference.n > 1 and not difference.low <= 0 <= difference.high
