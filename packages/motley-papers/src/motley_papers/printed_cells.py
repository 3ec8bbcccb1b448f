"""The verdicts on the printed numbers of a recipe's exhibits, as on the cells of a published table
(:mod:`motley_papers.cell_verdicts`).

Only runs of the whole protocol with the recipe's seeds are judged. What is outside is explained
where a cell that the recipe names for it, under ``explains`` of another exhibit, is inside. That
the two differ in the cause alone is for the recipe's author to see to: nothing checks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isnan

from motley.core.csv_text import csv_text
from motley_papers.cell_verdicts import JudgedCell, judge
from motley_papers.published_table import PrintedNumber
from motley_papers.recipe import Exhibit, PrintedCell
from motley_papers.reproduce import Reproduction

CellName = tuple[str, ...]


def judged_cells(
    reproduction: Reproduction, exhibit: Exhibit
) -> dict[tuple[str, CellName], JudgedCell]:
    """Return (measure, cell) -> the judged cell, of all printed cells of an exhibit that were
    measured by the whole protocol; one of which a measured number is a bound, or none, is left
    out."""
    judged = {}
    for measure in exhibit.measures:
        numbers = _printed(reproduction, exhibit, measure)
        matters = _range(numbers)
        for cell, values in _values(reproduction, exhibit, measure).items():
            if cell in numbers:
                judged[measure, cell] = _judge(
                    reproduction, exhibit, printed=numbers[cell], values=values, matters=matters
                )
    return judged


def explanations(
    reproduction: Reproduction,
    exhibit: Exhibit,
    judged: Mapping[tuple[str, CellName], JudgedCell],
) -> dict[tuple[str, CellName], str]:
    """Return (measure, cell) -> ``EXHIBIT / CELL`` of one that the recipe names and that is inside,
    for those of an exhibit's judged cells that are outside."""
    explained = {}
    for (measure, cell), outside in judged.items():
        if outside.verdict != "outside":
            continue
        matters = _range(_printed(reproduction, exhibit, measure))
        for other, name in _repaired(reproduction, exhibit, cell):
            values = _values(reproduction, other, measure).get(name)
            if values is None:
                continue
            repaired = _judge(
                reproduction, exhibit, printed=outside.printed, values=values, matters=matters
            )
            if repaired.verdict == "inside":
                explained[measure, cell] = " / ".join((other.name, *name))
    return explained


def _repaired(
    reproduction: Reproduction, exhibit: Exhibit, cell: CellName
) -> Iterator[tuple[Exhibit, CellName]]:
    """Yield the cells that may explain why a printed one is outside, and their exhibits."""
    explained = PrintedCell(exhibit=exhibit.name, cell=" / ".join(cell))
    for other in reproduction.recipe.exhibit:
        for repaired in other.all_cells():
            if other.explains.get(repaired.name) == explained:
                yield other, repaired.values


def _values(
    reproduction: Reproduction, exhibit: Exhibit, measure: str
) -> dict[CellName, list[float]]:
    """Return the values of the cells that the whole protocol has measured, of the planned seeds;
    without those of which one is a bound, or of a run that has no number."""
    recipe = reproduction.recipe
    if recipe.protocol(exhibit, reproduction.scale).kind != "whole":
        return {}
    seeds = recipe.seeds(exhibit, reproduction.scale)
    measured = {
        cell: [by_seed[seed] for seed in seeds if seed in by_seed]
        for cell, by_seed in reproduction.values(exhibit, measure).items()
    }
    return {
        cell: [value.value for value in values]
        for cell, values in measured.items()
        if values and all(value.reached and not isnan(value.value) for value in values)
    }


def _range(numbers: Mapping[CellName, PrintedNumber]) -> float:
    means = [number.mean for number in numbers.values()]
    return max(means, default=0.0) - min(means, default=0.0)


def _judge(
    reproduction: Reproduction,
    exhibit: Exhibit,
    *,
    printed: PrintedNumber,
    values: Sequence[float],
    matters: float,
) -> JudgedCell:
    recipe = reproduction.recipe
    return judge(
        printed=printed,
        printed_runs=exhibit.printed_seeds or recipe.printed_seeds,
        values=values,
        cells=len(recipe.expected),
        matters=matters,
    )


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
    ``inside``, ``undecided``, ``outside``, and how many of the last are ``explained``."""
    chosen = {exhibit.name for exhibit in reproduction.exhibits}
    printed = sum(name in chosen for name, _, _ in reproduction.recipe.expected)
    judged = [(exhibit, judged_cells(reproduction, exhibit)) for exhibit in reproduction.exhibits]
    verdicts = Counter(cell.verdict for _, cells in judged for cell in cells.values())
    return {
        "printed": printed,
        "measured": verdicts.total(),
        "inside": verdicts["inside"],
        "undecided": verdicts["undecided"],
        "outside": verdicts["outside"],
        "explained": sum(
            len(explanations(reproduction, exhibit, cells)) for exhibit, cells in judged
        ),
    }


def counted_cells(reproduction: Reproduction) -> str:
    """Return what became of the printed cells as one line; "" where none is printed."""
    of: Mapping[str, int] = counts(reproduction)
    if not of["printed"]:
        return ""
    if not of["measured"]:
        return f"{of['printed']} printed, none measured by the whole protocol"
    shown = [f"{count} {words}" for words, count in of.items() if words != "explained"]
    if of["explained"]:
        shown[-1] += f" ({of['explained']} explained)"
    return ", ".join(shown)


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
