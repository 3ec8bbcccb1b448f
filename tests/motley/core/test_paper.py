"""The bibliography: every entry is read as it was written, and cited by a method."""

import re
from pathlib import Path

import motley
from motley.core.paper import cite

ROOT = Path(motley.__file__).parent
TEXT = (ROOT / "core" / "papers.bib").read_text(encoding="utf-8")
KEYS = re.findall(r"^@inproceedings\{(.+),$", TEXT, flags=re.MULTILINE)


def test_the_file_is_what_its_entries_write() -> None:
    assert "\n\n".join(cite(key).bibtex() for key in KEYS) + "\n" == TEXT
    assert sorted(set(KEYS)) == KEYS


def test_every_entry_is_cited_and_every_citation_has_an_entry() -> None:
    cited = {
        key
        for path in ROOT.rglob("*.py")
        for key in re.findall(r'(?<!>>> )\bcite\("([^"$]+)"\)', path.read_text())
    }
    assert cited == set(KEYS)
