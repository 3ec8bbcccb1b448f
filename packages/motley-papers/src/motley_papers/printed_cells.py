"""The verdicts on the printed numbers of a recipe's exhibits, as on the cells of a published table
(:mod:`motley_papers.cell_verdicts`).

Only runs of the whole protocol with the recipe's seeds are judged. Nothing names the cause of a
single cell, so what is outside is unexplained; the notes of the recipe may have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from motley.core.csv_text import csv_text
from motley_papers.cell_verdicts import JudgedCell, judge
from motley_papers.published_table import PrintedNumber
from motley_papers.recipe import Exhibit
from motley_papers.reproduce import Reproduction

CellName = tuple[str, ...]


def judged_cells(
    reproduction: Reproduction, exhibit: Exhibit
) -> dict[tuple[str, CellName], JudgedCell]:
    """Return (measure, cell) -> the judged cell, of all printed cells of an exhibit that were
    measured by the whole protocol; one whose measured number is a bound is left out."""
    recipe = reproduction.recipe
    if recipe.protocol(exhibit, reproduction.scale).kind != "whole":
        return {}
    seeds = recipe.seeds(exhibit, reproduction.scale)
    judged = {}
    for measure in exhibit.measures:
        numbers = _printed(reproduction, exhibit, measure)
        matters = max((n.mean for n in numbers.values()), default=0.0)
        matters -= min((n.mean for n in numbers.values()), default=0.0)
        for cell, by_seed in reproduction.values(exhibit, measure).items():
            values = [by_seed[seed] for seed in seeds if seed in by_seed]
            if cell in numbers and values and all(value.reached for value in values):
                judged[measure, cell] = judge(
                    printed=numbers[cell],
                    printed_runs=exhibit.printed_seeds or recipe.printed_seeds,
                    values=[value.value for value in values],
                    cells=len(recipe.expected),
                    matters=matters,
                )
    return judged


def _printed(
    reproduction: Reproduction, exhibit: Exhibit, measure: str
) -> dict[CellName, PrintedNumber]:
    """Return what is printed for an exhibit itself, not for one that it is like."""
    recipe = reproduction.recipe
    out = {}
    for cell, (value, spread) in recipe.printed(exhibit, measure).items():
        key = exhibit.name, " / ".join(cell), measure
        if key in recipe.expected:
            decimals = recipe.decimals[key]
            out[cell] = PrintedNumber(
                mean=value,
                deviation=spread / recipe.spread_deviations,
                rounding=0.5 * 10.0**-decimals,
                text=f"{value:.{decimals}f}",
                per_spread=1 / recipe.spread_deviations,
            )
    return out


def counts(reproduction: Reproduction) -> dict[str, int]:
    """Return what became of the printed cells of the chosen exhibits: ``printed``, ``measured``,
    ``inside``, ``undecided``, ``outside``; of the last three those that were measured."""
    chosen = {exhibit.name for exhibit in reproduction.exhibits}
    printed = sum(name in chosen for name, _, _ in reproduction.recipe.expected)
    judged = [
        cell
        for exhibit in reproduction.exhibits
        for cell in judged_cells(reproduction, exhibit).values()
    ]
    verdicts = Counter(cell.verdict for cell in judged)
    return {
        "printed": printed,
        "measured": len(judged),
        "inside": verdicts["inside"],
        "undecided": verdicts["undecided"],
        "outside": verdicts["outside"],
    }


def counted_cells(reproduction: Reproduction) -> str:
    """Return what became of the printed cells as one line; "" where none is printed."""
    of: Mapping[str, int] = counts(reproduction)
    if not of["printed"]:
        return ""
    if not of["measured"]:
        return f"{of['printed']} printed, none measured by the whole protocol"
    return ", ".join(f"{count} {words}" for words, count in of.items())


def printed_cells_csv(reproduction: Reproduction) -> str:
    """Return a row for each judged cell."""
    heads = ["exhibit", "cell", "measure", "printed", "runs", "mean", "deviation", "half"]
    return csv_text(
        [
            [*heads, "verdict"],
            *(
                (
                    exhibit.name,
                    " / ".join(name),
                    measure,
                    cell.printed.text,
                    len(cell.values),
                    *(f"{number:.6g}" for number in (cell.mean, cell.deviation, cell.half)),
                    cell.verdict,
                )
                for exhibit in reproduction.exhibits
                for (measure, name), cell in judged_cells(reproduction, exhibit).items()
            ),
        ]
    )
