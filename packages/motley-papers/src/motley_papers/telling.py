"""The result of a recipe in words: ``result.md`` of its folder, whose numbers are filled in from
cells and verdicts.

A number is written as where it stands, so that no sentence can be older than its cell::

    {{small | table 1 | random | drop}}                  mean over seeds
    {{small | table 1 | random | drop | seeds}}          number of seeds
    {{small | claim | It ends higher | against oort}}    difference of the comparison with its
                                                         interval, and the verdict
    {{small | claim | It ends higher}}                   verdict of the claim
    {{small | claim | It ends higher | size}}            where the printed difference lies

A claim and a comparison are named by words of their texts. A paragraph of which a number has not
been measured is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from motley.core.csv_text import csv_rows
from motley.core.errors import ConfigError
from motley.experiments import document
from motley.results.number_text import short_number, with_decimals
from motley_papers.earlier import MEASURED, MeasuredRow, read_rows
from motley_papers.measuring import measure_of
from motley_papers.recipe import SCALES, Claim, Recipe
from motley_papers.verdicts import judge, together

__all__ = ["ScaleNumbers", "fill", "kept_numbers", "rows_of_text"]

SIZE = "size"
"""What stands for a comparison where the size of a claim is asked for."""
_PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True)
class ScaleNumbers:
    """The rows of ``measured.csv`` and ``verdicts.csv`` of one scale."""

    measured: Sequence[MeasuredRow]
    verdicts: Sequence[Mapping[str, str]]

    def cell(self, exhibit: str, cell: str, measure: str, what: str) -> str | None:
        """Return the mean over seeds of a cell's measure, or its number of ``seeds``; None where
        there is no such row."""
        rows = [
            row
            for row in self.measured
            if (row.exhibit, row.cell, row.measure) == (exhibit, cell, measure)
        ]
        if not rows or what == "seeds":
            return str(len(rows)) if rows else None
        mean = float(np.mean([float(row.value) for row in rows]))
        decimals = measure_of(measure).decimals
        bound = "" if all(row.exact == "true" for row in rows) else "more than "
        return bound + (short_number(mean) if decimals is None else with_decimals(mean, decimals))

    def claim(self, claim: str, comparison: str) -> str | None:
        """Return the verdict of a claim, or a comparison's difference with interval and verdict;
        None where it was not tested."""
        rows = [
            row
            for row in self.verdicts
            if row["claim"] == claim and comparison in ("", SIZE, row["comparison"])
        ]
        if comparison == SIZE:
            said = next((row for row in rows if row["size"]), None)
            printed, low, high = (
                float((said or {}).get(f"claim_{name}", "nan"))
                for name in ("printed", "low", "high")
            )
            ends = f"{short_number(low, printed)}, {short_number(high, printed)}"
            return (
                f"{said['size']} the interval ({short_number(printed)}; [{ends}])".replace("-", "−")
                if said
                else None
            )
        verdict = (
            together(row["sign"] for row in rows)
            if comparison
            else next((row["verdict"] for row in rows), "not tested")
        )
        if verdict == "not tested" or not comparison:
            return None if verdict == "not tested" else verdict
        difference, low, high = (float(rows[0][name]) for name in ("difference", "low", "high"))
        sign = "+" if difference > 0 else ""
        ends = f"{short_number(low, difference)}, {short_number(high, difference)}"
        return f"{sign}{short_number(difference)} [{ends}], {verdict}".replace("-", "−")


def kept_numbers(recipe: Recipe, scale: str) -> ScaleNumbers | None:
    """Return the numbers of a scale that are kept in a recipe's folder; None where there are
    none."""
    folder = recipe.folder / "measured" / scale if recipe.folder is not None else None
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
    numbers: scale -> its numbers; None where nothing was measured. scale, exhibits: leave out the
    paragraphs that speak of others.

    Raises
    ------
    ConfigError: a number of no scale, cell, measure, claim or comparison of the recipe.
    """
    known: dict[str, ScaleNumbers | None] = {}
    out = []
    for paragraph in recipe.result.split("\n\n"):
        places = [_place(recipe, found[1]) for found in _PLACE.finditer(paragraph)]
        if any(_elsewhere(recipe, place, scale, exhibits) for place in places):
            continue
        values = []
        for size, kind, names in places:
            at = known.setdefault(size, numbers(size)) if size not in known else known[size]
            values.append(
                None if at is None else at.claim(*names) if kind == "claim" else at.cell(*names)
            )
        if None not in values:
            texts = iter(str(value) for value in values)
            out.append(_PLACE.sub(lambda _, texts=texts: next(texts), paragraph))  # type: ignore[misc]
    return "\n\n".join(out)


def _elsewhere(
    recipe: Recipe,
    place: tuple[str, str, tuple[str, ...]],
    scale: str | None,
    exhibits: Sequence[str] | None,
) -> bool:
    """Whether a place is of another scale, or of none of these exhibits."""
    size, kind, names = place
    about = (
        next(claim.exhibit for claim in recipe.claim if claim.text == names[0])
        if kind == "claim"
        else names[0]
    )
    return size != (scale or size) or (exhibits is not None and about not in exhibits)


def _place(recipe: Recipe, text: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the scale, ``claim`` or ``cell``, and the arguments of that method of
    :class:`ScaleNumbers`."""
    scale, *names = (piece.strip() for piece in " ".join(text.split()).split("|"))
    fault = ConfigError(
        f"got {{{{{text}}}}}; expected SCALE | EXHIBIT | CELL | MEASURE, with | seeds for their "
        "number, or SCALE | claim | words of one claim, with | words of one of its comparisons",
        f"{recipe.name}/result.md",
    )
    if scale not in SCALES or len(names) not in (2, 3, 4):
        raise fault
    if names[0] == "claim":
        claims = _claims(recipe, names[1].lower())
        if len(claims) != 1 or len(names) == 4:
            raise fault
        labels = [
            one.label for one in judge(claims[0], recipe.named(claims[0].exhibit), {}).contrasts
        ]
        labels = (
            [label for label in labels if names[2].lower() in label.lower()] if names[2:] else [""]
        )
        labels = [SIZE] if names[2:] == [SIZE] else labels
        if len(labels) != 1:
            raise fault
        return scale, "claim", (claims[0].text, labels[0])
    exhibits = [exhibit for exhibit in recipe.exhibit if exhibit.name == names[0]]
    cells = [
        cell.name
        for exhibit in exhibits
        for cell in exhibit.model_copy(update={"scale": {}}).cells("paper")
    ]
    if (
        len(names) == 2
        or names[1] not in cells
        or names[2] not in recipe.measures(exhibits[0])
        or names[3:] not in ([], ["seeds"])
    ):
        raise fault
    return scale, "cell", (*names[:3], *(names[3:] or ["mean"]))


def _claims(recipe: Recipe, words: str) -> list[Claim]:
    """Return the claims that are these words; else those that begin with them; else those that hold
    them."""
    texts = [(claim.text.lower(), claim) for claim in recipe.claim]
    same = [claim for text, claim in texts if text == words]
    begun = [claim for text, claim in texts if text.startswith(words)]
    return same or begun or [claim for text, claim in texts if words in text]
