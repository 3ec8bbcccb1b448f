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
from pathlib import Path

import api_pages
import from_code
import from_league
import from_measurements
import from_peers
import from_pfllib
import from_readme
import from_recipes
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
MAKERS: dict[str, Callable[[], str]] = {
    maker.__name__: maker
    for maker in (
        *(from_code.keys, from_code.purposes, from_code.presets, from_code.components),
        *(from_code.selector_leaves, from_code.algorithm_leaves, from_code.deployed_rules),
        *(
            from_readme.contents,
            from_readme.trust_in_short,
            from_readme.beside_frameworks,
        ),
        *(from_code.selection_rules, from_code.faults),
        *(from_code.signals, from_code.contract, from_code.columns, api_pages.api),
        *(
            from_measurements.speed,
            from_measurements.fuzzed_models,
            from_measurements.cluster_prediction,
            from_measurements.cluster_situations,
            from_measurements.cluster_traffic,
            from_measurements.overhead,
            from_measurements.choosing,
        ),
        *(from_measurements.precision, from_measurements.precision_accuracy),
        *(from_measurements.fine_tuning, from_measurements.floor),
        *(from_measurements.gpu, from_measurements.very_many),
        *(from_measurements.private_cost, from_measurements.privacy_attacks),
        *(from_measurements.uploads, from_measurements.traffic, from_measurements.loopback),
        from_measurements.unlike_models,
        *(
            *(from_measurements.liars, from_measurements.defence_cost),
            from_pfllib.beside_pfllib,
            from_peers.beside_peers,
        ),
        *(
            from_league.league_environments,
            from_league.league_entrants,
            from_league.league_standings,
            from_league.league_tuned,
        ),
        *(from_league.league_first, from_league.league_named, from_league.league_advice),
        *(from_league.league_after_fine_tuning, from_league.league_parts),
        *(from_league.league_selectors, from_league.which_method),
        from_league.which_method_data,
        *(from_league.league_controls, from_league.league_crossed, from_league.league_cnn),
        *(
            from_recipes.recipes,
            from_recipes.results,
            from_recipes.verdicts,
            from_recipes.counted,
            from_recipes.printed,
            from_recipes.recipe_words,
        ),
        *(from_measurements.inspect_outlying, from_measurements.inspect_truth),
        *(from_measurements.inspect_kinds,),
        *(from_measurements.tuned_best, from_measurements.client_noise_cost),
        *(from_measurements.twin, from_measurements.twin_real),
        *(from_measurements.comparison_errors, from_measurements.comparison_rules),
    )
}
MAKERS |= {
    f"measured_{name}": partial(from_measurements.heterogeneity, name)
    for name in from_measurements.measured("heterogeneity")
    if not name.startswith("private_")  # private_cost has them in one table
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
