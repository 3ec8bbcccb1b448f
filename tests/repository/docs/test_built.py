"""The tables of pages that are looked up in are made when the site is built, and beside it as
CSV."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[3]
MADE = """Words.

| name | options |
| --- | --- |
| `a` | `x`: 1<br>`y`: **2** |
| [b](b.md#c) | either \\| or |

More words.
"""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """docs/built.py, with one part of its own."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import built

    monkeypatch.setitem(built.generate.MAKERS, "one", lambda: MADE)
    monkeypatch.setitem(built.generate.MAKERS, "two", lambda: f"{MADE}\n{MADE}")
    built.made_of.cache_clear()
    yield built
    built.made_of.cache_clear()
    sys.modules.pop("built")


def test_a_page_gets_its_tables_below_one_filter_box(built: ModuleType) -> None:
    page = built.with_tables("# A\n\nFirst.\n\n<!-- built: one -->\n\n<!-- built: two -->\n")
    assert page.count('<input class="filter"') == 1
    assert page.index("First.") < page.index("<input") < page.index("| name | options |")
    assert page.count("| name | options |") == 3
    for name in ("one", "two_1", "two_2"):
        assert f'<a href="tables/{name}.csv">' in page
    placed = built.with_tables("<!-- filter -->\n\n## A\n\n<!-- built: one -->\n")
    assert placed.count("<input") == 1
    assert placed.index("<input") < placed.index("## A")
    assert built.with_tables("# A\n\nNo table.\n") == "# A\n\nNo table.\n"


def test_the_csv_has_the_cells_as_plain_text(
    built: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- built: two -->\n", encoding="utf-8")
    monkeypatch.setattr(built.generate, "PAGES", [page])
    built.write(tmp_path / "tables")
    assert sorted(file.name for file in (tmp_path / "tables").iterdir()) == [
        "two_1.csv",
        "two_2.csv",
    ]
    with (tmp_path / "tables" / "two_1.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["name", "options"],
            ["a", "x: 1; y: 2"],
            ["b", "either | or"],
        ]


def test_links_to_csv_lead_up_from_a_page_in_a_folder(built: ModuleType) -> None:
    """The files lie in ``tables`` beside the pages of ``docs`` itself."""

    def page(uri: str) -> SimpleNamespace:
        return SimpleNamespace(file=SimpleNamespace(src_uri=uri))

    text = "<!-- built: one -->\n"
    assert '<a href="tables/one.csv">' in built.on_page_markdown(text, page=page("a.md"))
    assert '<a href="../tables/one.csv">' in built.on_page_markdown(text, page=page("b/a.md"))


def test_links_of_the_table_of_faults_lead_somewhere(built: ModuleType) -> None:
    """It lies in a CSV file, where the tests of pages do not look."""
    made = built.with_tables((ROOT / "docs/deploy/faults.md").read_text(encoding="utf-8"), "../")
    links = re.findall(r"\]\(([\w./-]+\.md)(?:#([\w-]+))?\)", made)
    assert len(links) > 5
    for page, anchor in links:
        text = (ROOT / "docs/deploy" / page).read_text(encoding="utf-8")
        assert not anchor or f"{{#{anchor}}}" in text, (page, anchor)


def test_every_selection_rule_has_its_row(built: ModuleType) -> None:
    """The rows are written by hand, in the order of the registry."""
    from motley.experiments import registry

    text = built.generate.MAKERS["selection_rules"]()
    found = re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
    rules = registry.catalogue("selector")
    assert found == [name for name in rules.names() if rules.is_builtin(rules.get(name))]
