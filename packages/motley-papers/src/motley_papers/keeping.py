"""Numbers, curves and the report of a recipe, kept beside what was measured before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from motley.core.csv_text import csv_text
from motley.core.errors import ConfigError
from motley_papers.earlier import MEASURED, MeasuredRow, read_rows
from motley_papers.number_files import measured_rows, number_files
from motley_papers.recipe import MEASURED_ELSEWHERE
from motley_papers.recipe_page import page
from motley_papers.reproduce import Reproduction, reproduce
from motley_report import page as pages
from motley_report.page import replace_files

_SEED = MeasuredRow._fields.index("seed") + 1
"""How many columns name what a row is of."""


def keep(reproduction: Reproduction) -> list[Path]:
    """Put what a folder of runs holds into the recipe's folder of this scale, beside what is kept
    there and still belongs to it: numbers, curves, and the report of both together.

    Raises
    ------
    ConfigError: a recipe of the package, outside a checkout. StoreError: the files cannot be
    written.
    """
    recipe = reproduction.recipe
    if recipe.measured is None:
        raise ConfigError(
            f"{MEASURED_ELSEWHERE}; or keep numbers with a copy of the recipe's folder", "--keep"
        )
    folder = recipe.measured / reproduction.scale
    rows = measured_rows(reproduction)
    there = {row[:_SEED] for row in rows}
    remaining = [row for row in read_rows(folder / MEASURED) if row[:_SEED] not in there]
    text = csv_text([MeasuredRow._fields, *rows, *remaining])
    replace_files({folder / MEASURED: text}, folder / MEASURED)
    complete = replace(
        reproduce(recipe, scale=reproduction.scale, out=reproduction.directory, run=False),
        requested=frozenset(),
    )
    files: dict[Path, str | bytes] = {
        folder / name: content for name, content in number_files(complete).items()
    }
    report = folder / "report.html"
    replace_files({**files, report: pages.html(page(complete, folders=False))}, report)
    return [*files, report]
