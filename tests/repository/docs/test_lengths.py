"""Pages that a person reads stay short; what is looked up lies in tables."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_a_decision_has_at_most_80_words() -> None:
    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    parts = [part.partition("\n") for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]]
    long = {head: len(body.split()) for head, _, body in parts if len(body.split()) > 80}
    assert parts
    assert not long
