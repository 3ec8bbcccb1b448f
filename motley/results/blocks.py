"""What a page is made of, whatever it is written as: :mod:`motley.results.page` writes a tree of these as HTML or as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import ClassVar, Literal

__all__ = [
    "Beside",
    "Block",
    "Cell",
    "Code",
    "Lines",
    "Names",
    "Page",
    "Part",
    "Picture",
    "Row",
    "Table",
    "Text",
    "best",
    "kept",
]

DASH = "–"
"""What a cell without a number says."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what is shown, the number it is sorted by (none: words), whether it is bold, and how it is meant."""

    text: str
    value: float = nan
    best: bool = False
    tone: Literal["", "good", "bad"] = ""

    @property
    def words(self) -> bool:
        """Whether it is text, which stands to the left and may wrap."""
        return isnan(self.value) and self.text != "" and not self.text.startswith(DASH)


@dataclass(frozen=True)
class Row:
    """A row of a table. ``method``: which of the part's methods it is about, so that it has its colour and can be hidden."""

    label: str
    cells: Sequence[Cell]
    method: int | None = None


@dataclass(frozen=True)
class Table:
    """``heads`` name the column of labels, then those of the cells; ``note`` stands below."""

    kind: ClassVar[str] = "table"
    heads: Sequence[str]
    rows: Sequence[Row]
    note: str = ""

    def words(self, column: int) -> bool:
        """Whether a column of cells holds text."""
        return any(row.cells[column].words for row in self.rows)


@dataclass(frozen=True)
class Picture:
    """One ``<svg>`` element. ``name`` goes before every id in it, ``about`` says what it shows to those who cannot see it.

    ``wide``: needs the whole width of a page; on a narrow screen it is scrolled.
    """

    kind: ClassVar[str] = "picture"
    name: str
    about: str
    svg: str
    wide: bool = True


@dataclass(frozen=True)
class Text:
    """A paragraph; a ``note`` is smaller."""

    kind: ClassVar[str] = "text"
    text: str
    note: bool = False


@dataclass(frozen=True)
class Lines:
    """A list; with a ``title`` it is a warning to be read first."""

    kind: ClassVar[str] = "lines"
    lines: Sequence[str]
    title: str = ""


@dataclass(frozen=True)
class Code:
    """Text as it is; with a ``title`` it is folded away below it."""

    kind: ClassVar[str] = "code"
    text: str
    title: str = ""
    language: str = ""


@dataclass(frozen=True)
class Beside:
    """Blocks side by side where there is room."""

    kind: ClassVar[str] = "beside"
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Part:
    """Blocks under a heading, if it has a ``title``. ``methods``: labels of what is compared in it, each with a colour and a switch
    that hides it. ``folded``: below its title until it is opened."""

    kind: ClassVar[str] = "part"
    title: str
    blocks: Sequence[Block]
    methods: Sequence[str] = ()
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """A whole page: ``facts`` are a few words under the title; ``methods`` as in a part, for everything below."""

    title: str
    facts: Sequence[tuple[str, str]]
    blocks: Sequence[Block]
    methods: Sequence[str] = ()


Block = Table | Picture | Text | Lines | Code | Beside | Part


def kept(*blocks: Block | None) -> tuple[Block, ...]:
    """The blocks that are there, without parts in which nothing is."""
    return tuple(b for b in blocks if b is not None and not (isinstance(b, Part | Beside) and not b.blocks))


def best(table: Table, column: int, higher: bool) -> Table:
    """The table with the best number of a column in bold, where there are several rows."""
    values = [row.cells[column].value * (1 if higher else -1) for row in table.rows]
    known = [value for value in values if not isnan(value)]
    if len(values) < 2 or not known:
        return table
    i = values.index(max(known))
    cells = list(table.rows[i].cells)
    cells[column] = replace(cells[column], best=True)
    rows = [*table.rows[:i], replace(table.rows[i], cells=cells), *table.rows[i + 1 :]]
    return replace(table, rows=rows)


class Names:
    """Names that occur once in a page: the second ``bars`` is ``bars-2``."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def own(self, wanted: str) -> str:
        """``wanted`` in letters, digits and hyphens, with a number where it is taken."""
        name = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-") or "part"
        self._taken[name] = self._taken.get(name, 0) + 1
        return name if self._taken[name] == 1 else self.own(f"{name}-{self._taken[name]}")
