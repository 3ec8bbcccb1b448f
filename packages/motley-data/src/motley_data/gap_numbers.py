"""Numbers of a column that lie so far from all others that they may stand for a gap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from motley.core.arrays import Floats

_MOST = 3
"""Numbers of a column that may stand for a gap, at most."""


def gap_numbers(values: Floats, fewest: int = 3) -> list[float]:
    """Return the numbers of a column that may stand for a gap: in two rows or more, and further
    from all others than these are from each other. Numbers above 0 have nines alone (999); -9, -99
    and so on need only be the one negative number.

    Parameters
    ----------
    values: ``[n]``, NaN for a gap.
    fewest: other numbers that the column needs, for their range to mean something.

    >>> gap_numbers(np.array([-200, 3, 5, -200, 9.0])), gap_numbers(np.array([-9, 30, -9, 80, 3.0]))
    ([-200.0], [-9.0])
    >>> gap_numbers(np.array([1.0, 2, 4, 500, 500])), gap_numbers(np.array([-1.0, -1, 0, 1, 2]))
    ([], [])
    """
    distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    strange: list[float] = []
    while len(strange) < _MOST and len(distinct) > fewest:
        low = _is_low(distinct) and counts[0] > 1
        if not low and not (_is_high(distinct) and counts[-1] > 1):
            break
        at, kept = (0, slice(1, None)) if low else (-1, slice(None, -1))
        strange.append(float(distinct[at]))
        distinct, counts = distinct[kept], counts[kept]
    return strange


def _is_low(distinct: Floats) -> bool:
    value, least, most = float(distinct[0]), float(distinct[1]), float(distinct[-1])
    return value < 0 and (least - value > most - least or (least >= 0 and _nines(value)))


def _is_high(distinct: Floats) -> bool:
    least, most, value = float(distinct[0]), float(distinct[-2]), float(distinct[-1])
    return _nines(value) and value >= 9 and value - most > most - least


def _nines(value: float) -> bool:
    return set(f"{abs(value):g}") == {"9"}


def gap_numbers_remark(values: Floats, strange: Sequence[float], gaps: Iterable[str]) -> str:
    """Return the remark that numbers of a column may stand for gaps; nothing where it has none.

    Parameters
    ----------
    strange: what :func:`gap_numbers` says of the column.
    gaps: the texts that are gaps then.
    """
    if not strange:
        return ""
    rows = int(np.isin(values, strange).sum())
    listed = ", ".join(f'"{text}"' for text in gaps)
    verb = "are" if len(strange) > 1 else "is"
    return (
        f"{' and '.join(as_texts(strange))} (in {rows:,} rows) {verb} far from all other numbers, "
        f"and taken as a number; if it stands for a gap, write gaps = [{listed}]"
    )


def as_texts(numbers: Iterable[float]) -> list[str]:
    """Return numbers as the option ``gaps`` has them, each once."""
    return list(dict.fromkeys(f"{value:g}" for value in numbers))
