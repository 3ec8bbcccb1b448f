"""Terminal output and files of ``motley reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as Printed
from rich.text import Text

from motley.recipes.page import exhibit_tables, measured_csv, page, verdict_table, verdicts_csv
from motley.recipes.recipe import names, read
from motley.recipes.reproduce import Reproduction
from motley.results.blocks import Table
from motley.results.page import write as write_page
from motley.results.stream import disk_error

__all__ = ["overview", "rows", "show", "write"]

_WIDTH = 160
_COLOURS = {"good": "green", "bad": "red", "": ""}


def rows() -> list[dict[str, Any]]:
    """Return a row for each recipe: ``name``, ``about`` (the paper's title, and how long it takes), ``exhibits``, ``data``.

    ``data`` is the public data sets at the scale ``small`` with the sizes of their downloads in units of 10^6 bytes."""
    out = []
    for name in names():
        recipe = read(name)
        minutes = recipe.scale["small"].minutes
        about = recipe.title + (f" (small: about {minutes:g} minutes on two cores)" if minutes else "")
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
    """Return the recipes with their exhibits, run times and data as text."""
    lines = []
    for row in rows():
        data = ", ".join(f"{name} ({mb:.0f} MB)" for name, mb in row["data"].items()) or "none"
        lines += [f"{row['name']:<18} {row['about']}", f"{'':<18} {'; '.join(row['exhibits'])}", f"{'':<18} data: {data}"]
    return "\n".join([*lines, "get data with: motley data get NAME; --scale smoke needs none"])


def show(found: Reproduction) -> None:
    """Print the tables of the exhibits that have runs, and the verdicts last."""
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    for exhibit in found.exhibits:
        if found.cells(exhibit):
            for table in exhibit_tables(found, exhibit):
                console.print(_printed(table, f"{exhibit.name}. {exhibit.title}"))
    if found.judged:
        console.print(_printed(verdict_table(found.judged), "claims"))


def _printed(table: Table, title: str) -> Printed:
    out = Printed(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, caption=table.note or None)
    out.caption_justify = "left"
    out.add_column(table.heads[0], overflow="fold", min_width=12)
    for column, head in enumerate(table.heads[1:]):
        words = table.words(column)
        out.add_column(head, justify="left" if words else "right", overflow="fold" if words else "ellipsis")
    for row in table.rows:
        out.add_row(Text(row.label), *(Text(cell.text, style=_COLOURS[cell.tone]) for cell in row.cells))
    return out


def write(found: Reproduction) -> list[Path]:
    """Write ``report.html``, ``report.md`` with its pictures, ``measured.csv`` and ``verdicts.csv`` into the folder of the runs.

    Raises
    ------
    StoreError: they cannot be written.
    """
    whole, folder = page(found), found.directory
    tables = {folder / "measured.csv": measured_csv(found), folder / "verdicts.csv": verdicts_csv(found)}
    for path, text in tables.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise disk_error(error, path) from error
    return [write_page(whole, folder / name) for name in ("report.html", "report.md")] + list(tables)
