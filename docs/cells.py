"""Markdown helpers that the makers of the pages share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["ROOT", "code", "prose", "table"]

ROOT = Path(__file__).resolve().parents[1]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def prose(text: str) -> str:
    """Return a docstring's sentence as Markdown on one line."""
    text = re.sub(
        r":(?:class|func|data|meth|mod):`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", " ".join(text.split())
    )
    return text.replace("``", "`").replace("||", "‖")  # a bar would end the cell of a table


def code(value: object) -> str:
    """Return a value as it is written in an experiment file."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {code(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)
