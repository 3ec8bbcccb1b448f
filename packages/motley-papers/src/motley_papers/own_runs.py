"""The runs that were asked for and made, each beside what the paper prints and what the recipe has
stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite, nan

from motley.results.blocks import BulletList, Section
from motley.results.measures import Censored, Spread, spread
from motley.results.number_text import plus_minus, short_number, with_decimals
from motley_papers.measuring import Measure, measure_of
from motley_papers.recipe import Cell, Exhibit
from motley_papers.reproduce import Reproduction

FEW = 12
"""Sentences that stand in full; more are folded away."""


def own_runs(reproduction: Reproduction) -> Section | None:
    """Return a sentence for each cell whose runs were asked for and made; None where there is
    none."""
    sentences = list(own_sentences(reproduction))
    if sentences:
        return Section("Your runs", [BulletList(sentences)], folded=len(sentences) > FEW)
    return None


def own_sentences(reproduction: Reproduction) -> Iterator[str]:
    """Yield
    ``table 4b, mnist / random, final (%): 87.58 with one seed; printed 90.82: 3.24 below``, for the
    measures that have a printed number, or the exhibit's first. Exhibits with ranks, whose cells
    are many, are left out."""
    runs = reproduction.asked_runs
    for exhibit in (exhibit for exhibit in reproduction.exhibits if exhibit.ranks is None):
        shown = [
            name for name in exhibit.measures if reproduction.recipe.printed(exhibit, name)
        ] or exhibit.measures[:1]
        for name in shown:
            values = reproduction.values(exhibit, name)
            measure = measure_of(name)
            for cell in exhibit.cells(reproduction.scale):
                own = {
                    s: values[cell.values][s]
                    for s in runs.get((exhibit.name, cell.values), ())
                    if cell.values in values
                }
                if own:
                    yield (
                        f"{exhibit.name}, {cell.name}, {measure.title}: "
                        f"{_sentence(reproduction, exhibit, cell, measure, own=own)}."
                    )


def _sentence(
    reproduction: Reproduction,
    exhibit: Exhibit,
    cell: Cell,
    measure: Measure,
    own: Mapping[int, Censored],
) -> str:
    measured = _spread(own)
    bound = "" if all(value.reached for value in own.values()) else "more than "
    text = f"{bound}{plus_minus(measured, measure.decimals)} with {_seeds(len(own))}"
    printed = reproduction.recipe.printed(exhibit, measure.name).get(cell.values)
    if (
        printed is not None
        and reproduction.recipe.protocol(exhibit, reproduction.scale).kind == "other data"
    ):
        text += "; what is printed is of other data"
    elif printed is not None:
        off = measured.mean - printed[0]
        text += f"; printed {_number(printed[0], measure)}"
        if not bound and off and isfinite(off):
            text += f": {_number(abs(off), measure)} {'below' if off < 0 else 'above'}"
    stored = reproduction.earlier.values.get(((exhibit.name, cell.name), measure.name), {})
    if stored:
        text += (
            f"; stored {plus_minus(_spread(stored), measure.decimals)} with {_seeds(len(stored))}"
        )
    return text


def _spread(seeds: Mapping[int, Censored]) -> Spread:
    """Return mean and deviation over seeds; NaN where one has no number, as of a run that diverged,
    without which the others would flatter the cell."""
    values = [value.value for value in seeds.values()]
    return spread(values if all(map(isfinite, values)) else [nan])


def _number(value: float, measure: Measure) -> str:
    return (
        short_number(value) if measure.decimals is None else with_decimals(value, measure.decimals)
    )


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"
