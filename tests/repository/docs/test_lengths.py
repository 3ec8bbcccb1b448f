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
    "README.md": 900,
    "docs/which-algorithm.md": 1500,
}
"""Page -> the most words of prose."""
TABLES_ARE_BUILT = ("which-algorithm.md", "verdicts.md", "components.md", "measured.md")


def test_a_decision_has_at_most_80_words() -> None:
    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    parts = [part.partition("\n") for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]]
    long = {head: len(body.split()) for head, _, body in parts if len(body.split()) > 80}
    assert parts
    assert not long


@pytest.mark.parametrize(("page", "most"), LONGEST.items(), ids=list(LONGEST))
def test_the_prose_of_a_page_stays_short(page: str, most: int) -> None:
    """Words without tables, code and generated parts."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for apart in (GENERATED, FENCE, TABLE):
        text = apart.sub("", text)
    assert len(text.split()) <= most


@pytest.mark.parametrize("page", TABLES_ARE_BUILT)
def test_a_page_of_prose_has_no_table_longer_than_a_screen(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = [len(found[0].splitlines()) for found in ROWS.finditer(text)]
    assert max(rows, default=0) <= 25
