"""The inspection as one page of the terminal: findings, federations side by side, pitfalls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from motley.core.untrusted import printable
from motley.inspection.inspected import Inspected
from motley.inspection.page import finding_names
from motley.inspection.words import interval_text, title, value_text
from motley.results.blocks import DASH

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["as_table", "bullets", "heads"]


def heads(found: Inspected) -> str:
    """Return a line for each federation: its label and its facts."""
    return "\n".join(f"{one.label}: {', '.join(f'{name} {value}' for name, value in one.facts)}" for one in found.federations)


def as_table(found: Inspected) -> Table:
    """Return the findings as a table: of one federation with intervals and words, of several side by side."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    federations = found.federations
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("finding", no_wrap=True)
    for one in federations:
        table.add_column("value" if len(federations) == 1 else Text(printable(one.label)), justify="right", no_wrap=True)
    if len(federations) == 1:
        table.add_column("95% interval", no_wrap=True)
        table.add_column("in words", overflow="fold")
    for names in finding_names(federations):
        for name in names:
            there = [one.inspection.findings.get(name) for one in federations]
            cells = [DASH if each is None else value_text(each) for each in there]
            first = there[0]
            if len(federations) == 1 and first is not None:
                cells += [interval_text(first), first.note]
            table.add_row(*(Text(printable(text)) for text in (title(name), *cells)))
        table.add_section()
    return table


def bullets(found: Inspected) -> str:
    """Return pitfalls and advice as text, with their heads; nothing where there are none."""
    blocks = {"Pitfalls, and the key to change": found.all_pitfalls, "What calls for what": found.advice}
    return "\n".join("\n".join((head, *(f"- {text}" for text in texts))) for head, texts in blocks.items() if texts)
