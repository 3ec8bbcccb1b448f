"""Write the parts of the pages that are made from the code, from measurements and from the recipes,
and their pictures.

A page holds ``<!-- made: NAME -->`` and ``<!-- end -->``; what lies between is written by the
function of that name. Run it after a change of options, signals or columns::

    python docs/generate.py

``tests/repository/docs`` fails while a page and the code disagree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from inspect import isfunction, signature
from pathlib import Path

import api_pages
import from_code
import from_league
import from_measurements
import from_peers
import from_pfllib
import from_published
import from_readme
import from_recipes
import from_statements
import house
import pictures
from cells import ROOT

PAGES = [
    ROOT / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if not page.match("docs/api/motley.*")
    ),
]
MENU = ROOT / "mkdocs.yml"
BLOCK = re.compile(r"(<!-- made: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

MODULES = (
    from_code,
    from_readme,
    from_measurements,
    from_pfllib,
    from_peers,
    from_league,
    from_statements,
    from_published,
)
PUBLIC = [getattr(module, name) for module in (*MODULES, from_recipes) for name in module.__all__]
MAKERS: dict[str, Callable[[], str]] = {"api": api_pages.api} | {
    maker.__name__: maker
    for maker in PUBLIC
    if isfunction(maker)
    and not signature(maker).parameters
    and signature(maker).return_annotation == "str"
    and maker is not from_peers.picture_of_peers
}
MAKERS |= {
    f"measured_{name}": partial(from_measurements.heterogeneity, name)
    for name in from_measurements.measured("heterogeneity")
    if not name.startswith("private_")  # private_cost has them in one table
}
MAKERS |= {
    name.replace("-", "_"): partial(from_measurements.csv_table, name)
    for name in ("inspect-truth", "inspect-kinds")
}
MAKERS |= {
    f"tuned_{name}": partial(from_measurements.tuned, name)
    for name in from_measurements.measured("tuned")
}
"""Name of a part -> the function that makes it."""
PICTURES = {
    ROOT / "docs" / "assets" / "personal_gains.svg": pictures.personal_gains,
    ROOT / "docs" / "assets" / "twin.svg": pictures.twin,
    ROOT / "docs" / "assets" / "twin_real.svg": pictures.twin_real,
    ROOT / "docs" / "assets" / "fine_tuning.svg": pictures.fine_tuning,
    ROOT / "docs" / "assets" / "peers.svg": from_peers.picture_of_peers,
    ROOT / "docs" / "assets" / "house.svg": house.house,
    **from_league.pictures(),
}
"""File of a picture -> the function that draws it."""


def refreshed(text: str) -> str:
    """Return the page with every made part made anew."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{MAKERS[found['name']]()}\n\n{found[3]}", text)


def whole_files() -> dict[Path, str]:
    """Return the text of every file that is made as a whole: the pictures, the objects' pages, and
    the menu with these pages."""
    before, _, rest = MENU.read_text(encoding="utf-8").partition("      # made: api\n")
    menu = (
        f"{before}      # made: api\n{api_pages.menu()}\n      # "
        f"end{rest.partition('      # end')[2]}"
    )
    return {file: draw() for file, draw in PICTURES.items()} | api_pages.pages() | {MENU: menu}


def main() -> None:
    """Rewrite the pages and pictures that are stale and say which; objects' pages of names that are
    gone are removed."""
    made = whole_files() | {page: refreshed(page.read_text(encoding="utf-8")) for page in PAGES}
    for page in set(api_pages.FOLDER.glob("motley*.*")) - set(made):
        page.unlink()
        sys.stdout.write(f"{page.relative_to(ROOT)} is gone\n")
    for page, new in made.items():
        if not page.is_file() or page.read_text(encoding="utf-8") != new:
            page.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
