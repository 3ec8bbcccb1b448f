"""Put the tables of the pages that are looked up in when the site is built, each with its CSV.

A page holds ``<!-- built: NAME -->`` where the function of that name in ``generate.py`` puts its
tables, and may hold ``<!-- filter -->`` where the box that filters them stands. The pages of
methods get their entries from docstrings as well (``from_docstrings.py``). MkDocs calls the two
functions ``on_...``; without it the CSV files are written by::

    python docs/built.py FOLDER
"""

from __future__ import annotations

import csv
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # MkDocs loads this file by its path

import from_docstrings  # noqa: E402
import generate  # noqa: E402

BUILT = re.compile(r"^<!-- built: (?P<name>\w+) -->$", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\|\n?)+", re.MULTILINE)
FILTER = "<!-- filter -->"
BOX = '<input class="filter" type="search" placeholder="Show the rows that hold these words">\n\n'


def with_tables(text: str, home: str = "") -> str:
    """Return a page with its tables, the links to their CSV files, and a filter box above them.

    ``home``: the way from the page up to ``docs``, ``"../"`` for a page in a folder."""
    first = BUILT.search(text)
    if first is None:
        return text
    place = text.find(FILTER) if FILTER in text else first.start()
    boxed = (text[:place] + BOX + text[place:]).replace(FILTER, "")
    return BUILT.sub(lambda found: _linked(found["name"], home), boxed)


@cache
def made_of(name: str) -> str:
    """Return what a part of that name holds."""
    return generate.MAKERS[name]()


def _linked(name: str, home: str) -> str:
    made = made_of(name)
    files = [f"{home}tables/{file}" for file in _tables(name, made)]
    links = ", ".join(f'<a href="{file}">{Path(file).name}</a>' for file in files)
    return f"{made}\n\n{links}"


def _tables(name: str, made: str) -> dict[str, str]:
    """Return file name -> table of the tables in a part."""
    found = TABLE.findall(made)
    if len(found) == 1:
        return {f"{name}.csv": found[0]}
    return {f"{name}_{number}.csv": one for number, one in enumerate(found, 1)}


def cells(table: str) -> list[list[str]]:
    """Return the rows of a Markdown table as plain text, the head first."""
    lines = table.strip().splitlines()
    rows = [re.split(r"(?<!\\)\|", line.strip()[1:-1]) for line in lines[:1] + lines[2:]]
    return [[_plain(cell) for cell in row] for row in rows]


def _plain(cell: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell.replace("<br>", "; "))
    return words.replace("`", "").replace("**", "").replace("\\|", "|").strip()


def write(folder: Path) -> None:
    """Write the CSV file of every table that a page has when it is built."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in generate.PAGES:
        for found in BUILT.finditer(page.read_text(encoding="utf-8")):
            for file, table in _tables(found["name"], made_of(found["name"])).items():
                with (folder / file).open("w", encoding="utf-8", newline="") as out:
                    csv.writer(out).writerows(cells(table))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give MkDocs the page with its tables and its entries."""
    home = "../" * page.file.src_uri.count("/")
    return from_docstrings.with_entries(with_tables(markdown, home))


def on_post_build(config: Any, **_: Any) -> None:
    """Write the CSV files beside the built pages."""
    write(Path(config["site_dir"]) / "tables")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
