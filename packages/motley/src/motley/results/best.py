"""Which numbers of a column are set in bold: those that the runs' seeds tell apart from all
others."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from motley.results.measures import Spread, paired

__all__ = ["BOLD", "best_rows"]

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
    column: of each method, with the numbers of its runs (``each``). seeds: of each method's runs,
    in the same order.
    higher: whether more is better.

    >>> from motley.results.measures import spread
    >>> best_rows([spread([1.0, 2.0, 3.0]), spread([2.0, 3.0, 4.1])], [(0, 1, 2)] * 2, higher=True)
    frozenset({1})
    """
    each = [
        dict(zip(numbers, one.each, strict=True))
        for numbers, one in zip(seeds, column, strict=True)
    ]
    known = [row for row, one in enumerate(column) if isfinite(one.mean)]
    if len(column) < 2 or not known:
        return frozenset()
    best = (max if higher else min)(known, key=lambda row: column[row].mean)
    alike = {row for row in known if each[row] == each[best]}
    others = [each[row] for row in known if row not in alike]
    return frozenset(alike) if all(_apart(each[best], other) for other in others) else frozenset()


def _apart(one: dict[int, float], other: dict[int, float]) -> bool:
    """Return whether the interval of the paired differences excludes zero; False for fewer than two
    common seeds. Where all differ by the same, only numbers that no seed moves (of
    messages, say) are apart."""
    common = [
        seed
        for seed in sorted(one.keys() & other.keys())
        if isfinite(one[seed]) and isfinite(other[seed])
    ]
    ours, theirs = ([each[seed] for seed in common] for each in (one, other))
    found = paired(ours, theirs)
    if found.n > 1 and not isfinite(found.low):
        return found.mean != 0 and len({*ours}) == len({*theirs}) == 1
    return found.n > 1 and not found.low <= 0 <= found.high
