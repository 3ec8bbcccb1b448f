"""What the code and the pages cite lies in this repository: a page of ``docs`` with the section
that is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
CITATION = re.compile(r"\bdocs/(?P<page>[\w/-]+\.md)(?:#(?P<anchor>[\w-]+))?")
LINK = re.compile(r"\]\((?P<page>[^)#\s]*\.md)?#(?P<anchor>[^)\s]+)\)")
DEAD = re.compile(
    r"\b(?:optimisation-and-compression|selectors-baselines|models-and-protocols)\b|"
    r"\bSpecification:|\b[Tt]he specification\b|"
    r"\bmethods [1-9]\b|\b0\.3\.\d\b|\((?:[ACDE]\d{1,2}|B[013]|G \d{1,2})(?: (?:test )?[ivx\d]+)?\)"
)
"""Sections of a text that is not in this repository."""
FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)


def _sources() -> Iterator[Path]:
    """Every text file that may cite a section."""
    for folder in ("packages", "docs", "examples", "benchmarks", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            built = "measured" in path.parts or any(part.startswith(".venv") for part in path.parts)
            if (
                path.suffix in (".py", ".md", ".toml")
                and not built
                and path != Path(__file__).resolve()
            ):
                yield path
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md")


def _anchors(page: Path) -> set[str]:
    """The ids of a page's headings: the explicit ``{#id}``, or the one that Markdown makes of the
    words."""
    found = set()
    for line in re.findall(
        r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE
    ):
        explicit = re.search(r"\{#([\w-]+)\}", line)
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", line).strip().lower())
        found.add(explicit[1] if explicit else slug)
    return found


def test_every_cited_section_exists() -> None:
    anchors = {page.relative_to(ROOT / "docs").as_posix(): _anchors(page) for page in PAGES}
    cited = [
        (path.relative_to(ROOT), found["page"], found["anchor"])
        for path in _sources()
        for found in CITATION.finditer(path.read_text(encoding="utf-8"))
    ]
    dead = [
        (path, page, anchor)
        for path, page, anchor in cited
        if page not in anchors or (anchor and anchor not in anchors[page])
    ]
    assert cited
    assert not dead


def test_no_citation_names_a_text_that_a_reader_does_not_have() -> None:
    dead = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in _sources()
        for found in DEAD.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_sections_of_pages_lead_somewhere(page: Path) -> None:
    for found in LINK.finditer(page.read_text(encoding="utf-8")):
        target = page.parent / found["page"] if found["page"] else page
        assert found["anchor"] in _anchors(target), f"{page.name} links to {found[0]}"


def test_sections_of_the_reference_have_ids_of_their_own() -> None:
    """Ids that do not follow the words of a heading, so that a heading may be reworded."""
    for page in PAGES:
        if page.parent.name == "methods":
            text = FENCE.sub("", page.read_text(encoding="utf-8"))
            without = [
                line
                for line in re.findall(r"^##+ .+$", text, flags=re.MULTILINE)
                if "{#" not in line
            ]
            ids = re.findall(r"^#+ .*\{#([\w-]+)\}", text, flags=re.MULTILINE)
            assert not without, f"{page.name}: {without}"
            assert len(ids) == len(set(ids)), page.name
