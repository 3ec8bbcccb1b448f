"""Standard terms stay standard: no retired name comes back, in code, tables, files of keys or
pages.

The terms themselves are in the glossary of ``docs/concepts.md``; what was renamed is in
``CHANGELOG.md``, which may name it.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULES = {
    "air",
    "bench",
    "cargo",
    "chooser",
    "crew",
    "decoded",
    "desk",
    "drawing_board",
    "examiner",
    "flights",
    "letters",
    "mail",
    "mailbox",
    "plug",
    "press",
    "roll",
    "room",
    "rooms",
    "sending",
    "sentences",
    "shelf",
    "shipping",
    "shortfall",
    "sights",
    "simulation",
    "site",
    "tides",
    "vault",
    "workshop",
}
IDENTIFIERS = {
    "Affine",
    "Ask",
    "Carrier",
    "Crew",
    "Exchange",
    "Load",
    "Looks",
    "Mailbox",
    "Met",
    "Needs",
    "Press",
    "Received",
    "Room",
    "Shipping",
    "Sight",
    "Sights",
    "Site",
    "Tap",
    "Tides",
    "Trained",
    "Vault",
    "Workshop",
    "crewed",
    "drawing_board",
    "gives",
    "obey",
    "sees",
    "settle",
    "shortfall",
}
"""Retired names of modules, and of classes, methods and attributes; as English words some of them
are fine."""
WORDS = (
    "cargo",
    "crewed",
    "drawing board",
    "examiner",
    "flights",
    "letterbox",
    "mailbox",
    "obey",
    "obeys",
    "parcel",
    "shortfall",
    "sights",
    "tides",
    "vault",
    "the workshop",
    "the bench",
    "the desk",
    "the shelf",
    "the air",
    "four rooms",
    "goes along",
)
KEYS = ("examine", "quantise", "memory")
"""Retired top-level keys of the experiment file."""


def _code() -> Iterator[Path]:
    yield from sorted((ROOT / "packages").rglob("*.py"))


def _texts() -> Iterator[Path]:
    """Everything that users and authors read; not the changelog, nor what was measured and written
    by older versions."""
    yield from _code()
    for folder, pattern in (
        ("packages", "*.toml"),
        ("packages", "*.md"),
        ("examples", "*"),
        ("docs", "*.md"),
        ("docs", "*.py"),
        ("docs", "*.svg"),
    ):
        yield from (
            path
            for path in sorted((ROOT / folder).rglob(pattern))
            if path.is_file() and "measured" not in path.parts
        )
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md")


def test_no_module_has_a_retired_name() -> None:
    named = {
        path.relative_to(ROOT).as_posix()
        for path in _code()
        if path.stem in MODULES or path.parent.name in MODULES
    }
    assert not named


def test_no_identifier_is_a_retired_name() -> None:
    found = set()
    for path in _code():
        for token in tokenize.generate_tokens(
            io.StringIO(path.read_text(encoding="utf-8")).readline
        ):
            if token.type == tokenize.NAME and token.string in IDENTIFIERS:
                found.add(f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}")
    assert not found


@pytest.mark.parametrize("word", WORDS)
def test_no_text_uses_a_retired_word(word: str) -> None:
    pattern = re.compile(rf"\b{word.replace(' ', '[ _]')}\b", re.IGNORECASE)
    found = []
    for path in _texts():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}: {text.count(chr(10), 0, hit.start()) + 1}"
            for hit in pattern.finditer(text)
        ]
    assert not found


def test_no_page_or_file_uses_a_retired_key() -> None:
    pattern = re.compile(rf"^\s*(?:{'|'.join(KEYS)})(?:\.\w+)?\s*=", re.MULTILINE)
    found = []
    for path in _texts():
        if path.suffix in (".toml", ".md"):
            found += [
                f"{path.relative_to(ROOT)}: {hit[0].strip()}"
                for hit in pattern.finditer(path.read_text(encoding="utf-8"))
            ]
    assert not found
