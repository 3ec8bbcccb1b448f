"""The result of a recipe in words: ``result.md`` of its folder, whose numbers are filled in from
cells and verdicts.

A number is written as where it stands, so that no sentence can be older than its cell::

    {{small | table 1 | random | drop}}            mean over seeds
    {{small | table 1 | random | drop | seeds}}    number of seeds
    {{small | table 1 | random | drop | half}}     half of the mean's 95 % t interval
    {{small | table 1 | random | drop | over oort}}  difference, paired by seed, ± half
    {{small | claim | It ends higher}}             the claim, what came of it, and the verdict

A claim is named by words of its text. A paragraph, or an item of a list, of which a number has not
been measured is left out, and what announces a list with nothing left in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite

import numpy as np

from motley.core.csv_text import csv_rows
from motley.core.errors import ConfigError
from motley.experiments import document
from motley.results.measures import interval, paired, spread
from motley.results.number_text import short_number, with_decimals
from motley_papers.claim_sentences import tell
from motley_papers.earlier import MEASURED, MeasuredRow, read_rows
from motley_papers.measuring import measure_of
from motley_papers.recipe import SCALES, Claim, Exhibit, Recipe
from motley_papers.verdicts import cells_of, comparisons

_PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
Place = tuple[str, Claim | tuple[str, str, str, str]]
"""A scale, and a claim or the arguments of :meth:`ScaleNumbers.cell`."""
_OVER = "over "


def _short(measure: str, value: float) -> str:
    decimals = measure_of(measure).decimals
    return short_number(value) if decimals is None else with_decimals(value, decimals)


@dataclass(frozen=True)
class ScaleNumbers:
    """The rows of ``measured.csv`` and ``verdicts.csv`` of one scale."""

    measured: Sequence[MeasuredRow]
    verdicts: Sequence[Mapping[str, str]]

    def cell(self, exhibit: str, cell: str, measure: str, statistic: str) -> str | None:
        """Return the ``mean`` over seeds of a cell's measure, its number of ``seeds``, ``half`` of
        its interval, or its difference ``over`` another cell; None where nothing was measured, or
        a seed has no number: without one that diverged the others would flatter the cell."""
        rows = self._rows(exhibit, cell, measure)
        if not rows or statistic == "seeds":
            return str(len(rows)) if rows else None
        exact = all(row.exact == "true" for row in rows.values())
        values = {seed: float(row.value) for seed, row in rows.items()}
        if not all(map(isfinite, values.values())):
            return None
        if statistic == "mean":
            return ("" if exact else "more than ") + _short(
                measure, float(np.mean([*values.values()]))
            )
        if statistic == "half":
            measured = interval(spread([*values.values()]))
            return (
                _short(measure, measured.high - measured.mean) if exact and measured.n > 1 else None
            )
        rival = self._rows(exhibit, statistic.removeprefix(_OVER), measure)
        seeds = [seed for seed in values if seed in rival]
        bounds = any(row.exact != "true" for row in rival.values())
        if len(seeds) < 2 or bounds or not exact:
            return None
        rivals = [float(rival[seed].value) for seed in seeds]
        measured = paired([values[seed] for seed in seeds], rivals)
        sign = "+" if measured.mean > 0 else "−"
        mean, half = abs(measured.mean), measured.high - measured.mean
        if measured.n < len(seeds) or not isfinite(half):
            return None
        return f"{sign}{_short(measure, mean)} ± {_short(measure, half)}"

    def _rows(self, exhibit: str, cell: str, measure: str) -> dict[int, MeasuredRow]:
        """Return the rows of a cell's measure by seed."""
        return {
            row.seed: row
            for row in self.measured
            if (row.exhibit, row.cell, row.measure) == (exhibit, cell, measure)
        }

    def rows_of(self, claim: Claim) -> list[Mapping[str, str]]:
        """Return the claim's rows of ``verdicts.csv``; none where it was not tested."""
        rows = [row for row in self.verdicts if row["claim"] == claim.text]
        return [] if not rows or rows[0]["verdict"] == "not tested" else rows

    def missed(self, claim: Claim, exhibit: Exhibit) -> bool:
        """Return whether a number that the claim compares is only a lower bound."""
        cells = exhibit.all_cells()
        named = {
            cell.name for comparison in comparisons(claim) for cell in cells_of(comparison, cells)
        }
        looked_at = set(claim.measures(exhibit.measures))
        return any(
            row.exact != "true"
            for row in self.measured
            if row.exhibit == exhibit.name and row.cell in named and row.measure in looked_at
        )

    def claim(self, claim: Claim, exhibit: Exhibit) -> str | None:
        """Return what came of a claim; None where it was not tested."""
        rows = self.rows_of(claim)
        return tell(claim, rows, self.missed(claim, exhibit)) if rows else None


def kept_numbers(recipe: Recipe, scale: str) -> ScaleNumbers | None:
    """Return the numbers of a scale that are kept with a recipe; None where there are none."""
    folder = recipe.measured / scale if recipe.measured is not None else None
    if (
        folder is None
        or not (folder / MEASURED).is_file()
        or not (folder / "verdicts.csv").is_file()
    ):
        return None
    verdicts = document.read_text(folder / "verdicts.csv", "verdicts on a recipe's claims")
    return ScaleNumbers(read_rows(folder / MEASURED), rows_of_text(verdicts))


def rows_of_text(text: str) -> list[dict[str, str]]:
    """Return the rows of a CSV text by column."""
    return list(csv_rows(text))


def fill(
    recipe: Recipe,
    numbers: Callable[[str], ScaleNumbers | None],
    scale: str | None = None,
    exhibits: Sequence[str] | None = None,
) -> str:
    """Return the recipe's result with its numbers, without the paragraphs of which one has not been
    measured.

    Parameters
    ----------
    numbers: scale -> its numbers; None where nothing was measured.
    scale, exhibits: leave out the paragraphs that speak of others.

    Raises
    ------
    ConfigError: a number of no scale, cell, measure, claim or comparison of the recipe.
    """
    numbers = cache(numbers)  # a scale has many places, and its numbers may lie in a file
    out = []
    for paragraph in recipe.result.split("\n\n"):
        pieces = re.split(r"\n(?=- )", paragraph.strip())
        filled = [_filled(recipe, piece, numbers, scale, exhibits=exhibits) for piece in pieces]
        out.append("\n".join(piece for piece in filled if piece))
    # what announces a list goes where nothing is left of the list
    paragraphs = [
        paragraph
        for paragraph, after in zip(out, [*out[1:], ""], strict=True)
        if after or not paragraph.endswith(":")
    ]
    return "\n\n".join(filter(None, paragraphs))


def _filled(
    recipe: Recipe,
    piece: str,
    numbers: Callable[[str], ScaleNumbers | None],
    scale: str | None,
    exhibits: Sequence[str] | None,
) -> str:
    """Return a paragraph or an item with its numbers; empty where one has not been measured."""
    places = [_place(recipe, match[1]) for match in _PLACE.finditer(piece)]
    if any(_elsewhere(place, scale, exhibits) for place in places):
        return ""
    values = []
    for size, argument in places:
        at = numbers(size)
        if at is None:
            return ""
        if isinstance(argument, Claim):
            values.append(at.claim(argument, recipe.named(argument.exhibit)))
        else:
            values.append(at.cell(*argument))
    if None in values:
        return ""
    texts = iter(str(value) for value in values)
    return _PLACE.sub(lambda _: next(texts), piece)


def _elsewhere(place: Place, scale: str | None, exhibits: Sequence[str] | None) -> bool:
    """Whether a place is of another scale, or of none of these exhibits."""
    size, argument = place
    about = argument.exhibit if isinstance(argument, Claim) else argument[0]
    return size != (scale or size) or (exhibits is not None and about not in exhibits)


def _place(recipe: Recipe, text: str) -> Place:
    """Return the scale, and the claim or the arguments of :meth:`ScaleNumbers.cell`."""
    scale, *names = (piece.strip() for piece in " ".join(text.split()).split("|"))
    fault = ConfigError(
        f"got {{{{{text}}}}}; expected SCALE | EXHIBIT | CELL | MEASURE, with | seeds for their "
        "number, | half for half of the interval, | over CELL for a difference; or SCALE | claim | "
        "words of one claim",
        f"{recipe.name}/result.md",
    )
    if scale not in SCALES or len(names) not in (2, 3, 4):
        raise fault
    if names[0] == "claim":
        claims = claims_named(recipe, names[1])
        if len(claims) != 1 or len(names) > 2:
            raise fault
        return scale, claims[0]
    exhibits = [exhibit for exhibit in recipe.exhibit if exhibit.name == names[0]]
    cells = [cell.name for exhibit in exhibits for cell in exhibit.all_cells()]
    if (
        len(names) == 2
        or names[1] not in cells
        or names[2] not in recipe.measures(exhibits[0])
        or names[3:] not in ([], ["seeds"], ["half"], *([_OVER + cell] for cell in cells))
    ):
        raise fault
    exhibit, cell, measure, statistic = *names[:3], *(names[3:] or ["mean"])
    return scale, (exhibit, cell, measure, statistic)


def claims_named(recipe: Recipe, words: str) -> list[Claim]:
    """Return the claims that are these words, in capitals or not; else those that begin with them;
    else those that hold them."""
    words = words.lower()
    texts = [(claim.text.lower(), claim) for claim in recipe.claim]
    same = [claim for text, claim in texts if text == words]
    begun = [claim for text, claim in texts if text.startswith(words)]
    return same or begun or [claim for text, claim in texts if words in text]
