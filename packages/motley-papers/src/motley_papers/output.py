"""Terminal output and files of ``motley reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from motley.commands.shared_options import wide_console
from motley.core.untrusted import printable
from motley.results.blocks import UniqueNames
from motley.results.load import citations
from motley.results.terminal import block_table
from motley_papers import published_table
from motley_papers.earlier import CURVES
from motley_papers.number_files import number_files
from motley_papers.own_runs import FEW, own_sentences
from motley_papers.packaged import table_names
from motley_papers.printed_cells import counted_cells
from motley_papers.recipe import names, read
from motley_papers.recipe_page import (
    SMOKE,
    dropped,
    exhibit_section,
    exhibit_tables,
    page,
    privacy_claims,
    troubles,
    without_numbers,
)
from motley_papers.reproduce import Reproduction
from motley_papers.verdict_tables import verdict_table
from motley_report import latex
from motley_report.figures import for_print
from motley_report.page import replace_files
from motley_report.page import write as write_page
from motley_report.print_files import check_formats, pictures_of


def rows() -> list[dict[str, Any]]:
    """Return a row for each recipe: ``name``, ``about`` (the paper's title, and how long it takes),
    ``exhibits``, ``data``.

    ``data`` is the public data sets at the scale ``small`` with the sizes of their downloads in
    units of 10^6 bytes."""
    out = []
    for name in names():
        recipe = read(name)
        minutes = recipe.scale["small"].minutes
        about = recipe.title + (
            f" (small: about {minutes:g} minutes on two cores)" if minutes else ""
        )
        out.append(
            {
                "name": name,
                "about": about,
                "exhibits": [exhibit.name for exhibit in recipe.exhibit],
                "data": recipe.data("small"),
            }
        )
    return out


def overview() -> str:
    """Return the recipes with their exhibits, run times and data as text, and the published
    tables."""
    lines = []
    for row in rows():
        data = ", ".join(f"{name} ({mb:.0f} MB)" for name, mb in row["data"].items()) or "none"
        lines += [
            f"{row['name']:<18} {row['about']}",
            f"{'':<18} {'; '.join(row['exhibits'])}",
            f"{'':<18} data: {data}",
        ]
    for name in table_names():
        table = published_table.read(name)
        minutes = f" (about {table.minutes:g} min on two cores)" if table.minutes else ""
        lines += [f"{name:<18} {table.title}{minutes}", f"{'':<18} {', '.join(table.method)}"]
    return "\n".join([*lines, "get data with: motley data get NAME; --scale smoke needs none"])


def show(reproduction: Reproduction) -> None:
    """Print the tables of the exhibits that have runs, the verdicts, each of the runs that were
    made, and which exhibits have no numbers."""
    console = wide_console()
    for exhibit in reproduction.exhibits:
        if reproduction.cells(exhibit):
            for table in exhibit_tables(reproduction, exhibit):
                console.print(block_table(table, f"{exhibit.name}. {exhibit.title}"))
    if reproduction.judged:
        console.print(block_table(verdict_table(reproduction.judged), "claims"))
    sentences = _first(list(own_sentences(reproduction)))
    sentences += _first([f"Note: {sentence}" for sentence in troubles(reproduction)])
    for sentence in sentences:
        console.print(Text(printable(sentence)))
    for block in privacy_claims(reproduction):
        lines = [block.title, *(f"- {line}" for line in block.items)]
        console.print(Text(printable("\n".join(lines))))
    if line := counted_cells(reproduction):
        console.print(f"printed cells: {line}", markup=False)
    for sentence in without_numbers(reproduction):
        console.print(Text(printable(f"No numbers at {reproduction.scale}: {sentence}")))
    if reproduction.earlier.dropped:
        console.print(dropped(reproduction))
    if reproduction.scale == "smoke":
        console.print(SMOKE)


def _first(sentences: Sequence[str]) -> list[str]:
    """Return the first of some sentences, and how many more there are."""
    left = len(sentences) - FEW
    more = [f"{left} more such sentences are in the report."] if left > 0 else []
    return [*sentences[:FEW], *more]


def write(reproduction: Reproduction) -> list[Path]:
    """Write ``report.html``, ``report.md`` with its pictures, ``measured.csv``, ``verdicts.csv``
    and ``curves.csv.gz`` into the folder of the runs.

    Raises
    ------
    StoreError: they cannot be written.
    """
    report = page(reproduction)
    folder = reproduction.directory
    tables = {folder / name: content for name, content in number_files(reproduction).items()}
    replace_files(tables, next(reversed(tables)))
    return [write_page(report, folder / name) for name in ("report.html", "report.md")] + list(
        tables
    )


def write_for_print(reproduction: Reproduction, formats: Sequence[str]) -> Path:
    """Write the exhibits' figures (``pdf``, ``svg``) and tables (``latex``, ``csv``) into the
    folder ``paper`` beside the report.

    Raises
    ------
    ConfigError: there is no such format. StoreError: they cannot be written.
    """
    wanted = check_formats(formats)
    folder = reproduction.directory / "paper"
    names = UniqueNames()
    kinds = [kind for kind in wanted if kind in ("pdf", "svg")]
    files = dict[Path, str | bytes]()
    for exhibit in reproduction.exhibits:
        about = names.unique(exhibit.name)
        for name, picture in pictures_of([exhibit_section(reproduction, exhibit)]) if kinds else ():
            files |= {
                folder / f"{about}-{name}.{kind}": drawn
                for kind, drawn in for_print(picture, kinds)[1].items()
            }
        for i, table in enumerate(
            exhibit_tables(reproduction, exhibit) if "latex" in wanted else ()
        ):
            name = f"{about}-{i + 1}" if i else about
            files[folder / f"{name}.tex"] = latex.page_table(table, name, exhibit.title)
    if "latex" in wanted:
        files[folder / "verdicts.tex"] = latex.page_table(
            verdict_table(reproduction.judged), "verdicts", reproduction.recipe.title
        )
        files[folder / "references.bib"] = "\n\n".join(citations(reproduction.all_runs())) + "\n"
    if "csv" in wanted:
        files |= {
            folder / name: content
            for name, content in number_files(reproduction).items()
            if name != CURVES
        }
    if files:
        replace_files(files, next(reversed(files)))
    return folder
