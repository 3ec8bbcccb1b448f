"""Pages that a person reads stay short; what is looked up lies in tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GENERATED = re.compile(r"<!-- made: \w+ -->\n.*?<!-- end -->", re.DOTALL)
FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"^\s*\|.*\|\s*$", re.MULTILINE)
ROWS = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
LONGEST = {
    "docs/which-algorithm.md": 400,
    "docs/choosing-clients.md": 1500,
    "docs/engines.md": 700,
    "docs/gpu.md": 700,
    "docs/privacy.md": 1500,
    "docs/go-on.md": 700,
    "docs/repeatability.md": 1000,
    "docs/trust.md": 1500,
    "docs/concepts.md": 1500,
    "docs/upload-cost.md": 1500,
    "docs/scaling.md": 1500,
    "docs/selector-alone.md": 700,
}
"""Page -> the most words of prose."""
ONE_AIM = (
    *("quick-start.md", "twelve-lines.md", "notebook.md"),
    *("inspect.md", "inspect-findings.md", "experiment-file.md", "tuning.md", "tuning-budget.md"),
    *("results.md", "measures.md", "report.md", "evaluation.md"),
    "explain.md",
    *("trackers.md", "figures-for-a-paper.md"),
    *(
        "own-tables.md",
        "own-arrays.md",
        "own-datasets.md",
        "own-texts.md",
        "fine-tuning.md",
        "own-model.md",
    ),
    "data.md",
    *("own-method.md", "add-a-selector.md", "adding-a-method.md", "local-rules.md"),
    *("add-a-component.md", "recipes.md", "recipe-verdicts.md", "more-seeds.md", "own-recipe.md"),
    *("league.md", "referee-a-table.md", "worlds-from-measurements.md"),
)
"""Pages from which one starts, and pages that say how to reach one aim."""
LONGEST |= {f"docs/{page}": 700 for page in ONE_AIM}
LONGEST["docs/referee-a-table.md"] = 600
DEPLOY = sorted(
    page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs" / "deploy").glob("*.md")
)
LONGEST |= {f"docs/{page}": 700 for page in DEPLOY}
METHODS = sorted(
    page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs" / "methods").glob("*.md")
)
LONGEST |= {f"docs/{page}": 900 for page in METHODS}
LOOKED_UP = (*METHODS, "deploy/faults.md", "deploy/parties.md")
SHORT_TABLES = (
    *("concepts.md", "which-algorithm.md", "choosing-clients.md", "engines.md", "scaling.md"),
    *("trust.md", "upload-cost.md"),
    *("verdicts.md", "components.md", "measured.md", "selection-rules.md"),
    *ONE_AIM,
    *DEPLOY,
)


def test_a_decision_has_at_most_80_words() -> None:
    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    parts = [part.partition("\n") for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]]
    long = {head: len(body.split()) for head, _, body in parts if len(body.split()) > 80}
    assert parts
    assert not long


def test_the_readme_has_at_most_900_words() -> None:
    """With tables, code and generated parts."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


@pytest.mark.parametrize(("page", "most"), LONGEST.items(), ids=list(LONGEST))
def test_the_prose_of_a_page_stays_short(page: str, most: int) -> None:
    """Words without tables, code and generated parts."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for apart in (GENERATED, FENCE, TABLE):
        text = apart.sub("", text)
    assert len(text.split()) <= most


@pytest.mark.parametrize("page", [*ONE_AIM, *DEPLOY, *METHODS])
def test_a_page_says_what_its_reader_can_do_and_where_to_go_on(page: str) -> None:
    parts = (ROOT / "docs" / page).read_text(encoding="utf-8").strip().split("\n\n")
    opens = "After this page you (can|know) "
    looks_up = "|Here you look up[ ,]" if page in LOOKED_UP else ""
    assert re.match(opens + looks_up, parts[1])
    assert re.fullmatch(r"Next: \[[^]]+\]\([^)]+\)(, \[[^]]+\]\([^)]+\)){0,2}\.", parts[-1])


@pytest.mark.parametrize("page", SHORT_TABLES)
def test_a_page_of_prose_has_no_table_longer_than_a_screen(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = [len(found[0].splitlines()) for found in ROWS.finditer(text)]
    assert max(rows, default=0) <= 25


def test_the_page_of_ten_minutes_decides_first_and_has_no_figures() -> None:
    """Tables count here, too. What stands before the first table is the decision; a gain in points
    on other data is of no use to its reader."""
    text = (ROOT / "docs/which-algorithm.md").read_text(encoding="utf-8")
    shown = re.sub(r"<!--.*?-->", "", text)
    words = [word for word in shown.split() if not re.fullmatch(r"[|#*-]+|\d\.", word)]
    assert len(words) <= 400
    assert "**Start with `fedavg`" in text.partition("<!-- made: which_method -->")[0]
    assert not re.search(r"\d[.\d]* ?(%|points)|[+−]\d", shown)
