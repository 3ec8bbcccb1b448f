"""Columns that number or name the rows: a model learns the order of the file by them, and nothing
of new rows."""

from __future__ import annotations

import re

import numpy as np

from motley.core.arrays import Floats
from motley.core.errors import DataError
from motley.tasks.origin import Origin

_FEW = 20
"""Entries below which different ones are not taken for ids."""
_MOST_DISTINCT = 0.98
"""Share of entries that are different from which whole numbers are taken for ids: measured numbers
of some length repeat."""
_MANY_WORDS = 0.5
"""Share of entries that are different from which words are taken for ids."""
_NAMED = re.compile(
    r"(?:.*[_\s.:-])?(?:id|ids|uid|uuid|guid|mrn)|index|idx|row|rownum|unnamed: \d+|", re.IGNORECASE
)
_CAMEL = re.compile(r".*[a-z](?:ID|Id)")


def refuse_ids(
    name: str, values: Floats, words: tuple[str, ...] | None, where: str | Origin
) -> None:
    """Refuse whole numbers or words that are nearly all different, that count the rows, or whose
    column is named like ids. Numbers with decimals, or with repeats, are measured.

    Parameters
    ----------
    values, words: of a column, as :class:`~motley_data.raw_table.RawColumn` has them.

    Raises
    ------
    DataError: has the lines that leave the column out, and that keep it.
    """
    there = values[~np.isnan(values)]
    if words is None and (there != np.floor(there)).any():
        return
    keep = "numbers" if words is None else "words"
    why = _why(name=name, values=values, there=there, words=words, where=where)
    if why:
        raise DataError(
            f"{where}: column {name!r} {why}, like an id; leave it out with drop = "
            f'["{name}"], or keep it with {keep} = ["{name}"]'
        )


def _why(
    name: str,
    values: Floats,
    there: Floats,
    words: tuple[str, ...] | None,
    where: str | Origin,
) -> str:
    """Return why a column is one of ids; nothing where it is none."""
    distinct = len(words) if words is not None else len(np.unique(there))
    if words is not None and distinct == len(there) >= _FEW:
        return f"holds another word in every row ({words[0]!r}, {words[1]!r}, ...)"
    if distinct > 2 and (_NAMED.fullmatch(name.strip()) or _CAMEL.fullmatch(name.strip())):
        return f"is called so and holds {distinct:,} different {_entries(words)}"
    if len(there) < _FEW:
        return ""
    if words is not None:
        if distinct > _MANY_WORDS * len(there):
            return f"holds {distinct:,} different words in {len(there):,} rows ({words[0]!r}, ...)"
        return ""
    if _counts(values, where):
        return f"counts the rows ({there[0]:g}, {there[1]:g}, ...)"
    if distinct >= _MOST_DISTINCT * len(there):
        examples = f"{there[0]:.0f}, {there[1]:.0f}, ..."
        return f"holds {distinct:,} different whole numbers in {len(there):,} rows ({examples})"
    return ""


def _entries(words: tuple[str, ...] | None) -> str:
    return "whole numbers" if words is None else "words"


def _counts(values: Floats, where: str | Origin) -> bool:
    """Return whether numbers are consecutive ones in any order, or begin with 0 or 1 at each client
    and go up by one from row to row."""
    if np.isnan(values).any():
        return False
    ordered = np.sort(values)
    if (np.diff(ordered) == 1).all():
        return True
    owner = where.owner if isinstance(where, Origin) else None
    if owner is None or len(owner) != len(values):
        return False
    order = np.argsort(owner, kind="stable")
    same = np.diff(owner[order]) == 0
    starts = values[order][np.concatenate([[True], ~same])]
    begins = bool((starts == starts[0]).all()) and starts[0] in (0.0, 1.0)
    return begins and int(same.sum()) >= _FEW and bool((np.diff(values[order])[same] == 1).all())
