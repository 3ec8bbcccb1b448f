"""The inspection as one page of the terminal: findings, federations side by side, pitfalls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from motley.core.untrusted import printable
from motley.results import blocks
from motley.results.blocks import DASH
from motley.results.terminal import block_table
from motley_advice.heterogeneity.findings import DifferingColumn
from motley_advice.inspection.inspected import Inspected
from motley_advice.inspection.inspection_page import (
    client_sections,
    columns_read,
    experiment_lines,
    finding_names,
)
from motley_advice.inspection.words import interval_text, title, value_text

if TYPE_CHECKING:
    from rich.table import Table

_TOLD = 5
"""Columns in which clients differ that are told with their numbers, at most."""


def heads(inspected: Inspected) -> str:
    """Return a line for each federation: its label and its facts."""
    return "\n".join(
        f"{federation.label}: {', '.join(f'{name} {value}' for name, value in federation.facts)}"
        for federation in inspected.federations
    )


def as_table(inspected: Inspected) -> Table:
    """Return the findings as a table: of one federation with intervals and words, of several side
    by side."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    alone = len(inspected.federations) == 1
    labels = [printable(federation.label) for federation in inspected.federations]
    blocks = [
        [_row(inspected, name) for name in names] for names in finding_names(inspected.federations)
    ]
    columns = ["finding", *(["value", "95% interval", "in words"] if alone else labels)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, head in enumerate(columns):
        table.add_column(
            Text(head),
            justify="right" if head == "value" or (i and not alone) else "left",
            no_wrap=not alone or 0 < i < len(columns) - 1,
            overflow="fold",
        )
    for rows in blocks:
        for row in rows:
            table.add_row(*map(Text, row))
        table.add_section()
    return table


def _row(inspected: Inspected, name: str) -> list[str]:
    """Return the cells of a finding: of one federation with its interval and words."""
    there = [federation.inspection.findings.get(name) for federation in inspected.federations]
    cells = [title(name), *(DASH if each is None else value_text(each) for each in there)]
    first = there[0]
    if len(there) == 1 and first is not None:
        cells += [interval_text(first), first.note]
    return [printable(text) for text in cells]


def column_tables(inspected: Inspected, shown: Callable[[str], str] = str) -> list[Table]:
    """Return how each column was read, as a table for each federation of a table; what was not
    understood comes first.

    Parameters
    ----------
    shown: how a text of a table is shown.
    """
    return [
        block_table(
            replace(
                table,
                rows=[
                    replace(row, cells=[replace(cell, text=shown(cell.text)) for cell in row.cells])
                    for row in table.rows
                ],
                note="\n".join(f"- {shown(text)}" for text in _listed(section)),
            ),
            section.title,
        )
        for section in columns_read(inspected.federations)
        for table in section.blocks
        if isinstance(table, blocks.Table)
    ]


def _listed(section: blocks.Section) -> list[str]:
    return [
        text
        for block in section.blocks
        if isinstance(block, blocks.BulletList)
        for text in block.items
    ]


def client_tables(inspected: Inspected) -> list[Table]:
    """Return a table of the clients of each federation that have names."""
    return [
        block_table(table, section.title)
        for section in client_sections(inspected.federations)
        for table in section.blocks
        if isinstance(table, blocks.Table)
    ]


def bullets(inspected: Inspected) -> str:
    """Return outlying clients, columns in which clients differ, pitfalls, advice and an experiment
    with a table as text, with their heads; nothing where there are none."""
    several = len(inspected.federations) > 1
    odd = [
        (federation.label, each.sentence)
        for federation in inspected.federations
        for each in federation.inspection.outlying
    ]
    blocks = {
        "Outlying clients": [
            printable(f"{label}: {text}" if several else text) for label, text in odd
        ],
        "Columns in which clients differ": [
            printable(f"{federation.label}: {text}" if several else text)
            for federation in inspected.federations
            for text in _columns(federation.inspection.columns)
        ],
        "Pitfalls, and the key to change": inspected.all_pitfalls,
        "What calls for what": inspected.advice,
    }
    sections = [
        "\n".join((head, *(f"- {text}" for text in texts)))
        for head, texts in blocks.items()
        if texts
    ]
    sections += [
        f"An experiment with this table\n{experiment_lines(federation)}\n\n{federation.toml}"
        for federation in inspected.federations
        if federation.toml
    ]
    return "\n".join(sections)


def _columns(columns: Sequence[DifferingColumn]) -> list[str]:
    """Return what is told of columns in which clients differ, of many the names alone."""
    more = ", ".join(column.column for column in columns[_TOLD:])
    return [column.said for column in columns[:_TOLD]] + ([f"the same of {more}"] if more else [])
