"""The blocks a page is made of, independent of its format; :mod:`motley_report.page` writes them
as HTML or as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, ClassVar, Literal

__all__ = [
    "Block",
    "BulletList",
    "Code",
    "Page",
    "Picture",
    "Section",
    "SideBySide",
    "Table",
    "TableCell",
    "TableRow",
    "Tally",
    "Text",
    "UniqueNames",
    "non_empty",
]

DASH = "–"
"""The text of a cell without a number."""


@dataclass(frozen=True)
class TableCell:
    """A cell of a table: the text shown, the number it is sorted by (NaN for words), whether it is
    bold, and its tone; the published number that stands in brackets behind it, and the relative
    address of what it names."""

    text: str
    value: float = nan
    best: bool = False
    tone: Literal["", "good", "bad"] = ""
    published: str = ""
    link: str = ""

    @property
    def whole(self) -> str:
        """The text with the published number in brackets."""
        return f"{self.text} ({self.published})" if self.published else self.text

    @property
    def words(self) -> bool:
        """Whether the cell holds words, which are aligned left and may wrap."""
        return isnan(self.value) and self.text != "" and not self.text.startswith(DASH)


@dataclass(frozen=True)
class TableRow:
    """A row of a table. ``method``: number of the section's method that it is about, which gives
    its colour and lets it be hidden."""

    label: str
    cells: Sequence[TableCell]
    method: int | None = None


@dataclass(frozen=True)
class Table:
    """A table. ``heads``: titles of the column of labels, then of the cells. ``note``: text below
    the table."""

    kind: ClassVar[str] = "table"
    heads: Sequence[str]
    rows: Sequence[TableRow]
    note: str = ""

    def words(self, column: int) -> bool:
        """Whether a column of cells holds text."""
        return any(row.cells[column].words for row in self.rows)


@dataclass(frozen=True)
class Picture:
    """One ``<svg>`` element. ``name``: prefix of every id in it. ``about``: description for readers
    who cannot see it. ``wide``: whether it needs the whole width of a page. ``figure``:
    matplotlib's, to draw it again for print."""

    kind: ClassVar[str] = "picture"
    name: str
    about: str
    svg: str
    wide: bool = True
    figure: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Text:
    """A paragraph; a ``note`` is set smaller."""

    kind: ClassVar[str] = "text"
    text: str
    note: bool = False


@dataclass(frozen=True)
class BulletList:
    """A bullet list; with a ``title`` it is a warning box."""

    kind: ClassVar[str] = "list"
    items: Sequence[str]
    title: str = ""


@dataclass(frozen=True)
class Tally:
    """Counts in large figures. ``counts``: number, what is counted, and its tone."""

    kind: ClassVar[str] = "tally"
    counts: Sequence[tuple[int, str, Literal["", "good", "bad"]]]


@dataclass(frozen=True)
class Code:
    """Preformatted text; with a ``title`` it is folded away below it."""

    kind: ClassVar[str] = "code"
    text: str
    title: str = ""
    language: str = ""


@dataclass(frozen=True)
class SideBySide:
    """Blocks placed side by side where there is room."""

    kind: ClassVar[str] = "side_by_side"
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Section:
    """Blocks under a heading (none without a ``title``). ``methods``: labels of the methods
    compared, by number, each with its colour and a switch that hides it. ``folded``: hidden below
    its title until it is opened."""

    kind: ClassVar[str] = "section"
    title: str
    blocks: Sequence[Block]
    methods: Sequence[str] = ()
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """A whole page. ``facts``: (name, value) pairs under the title. ``methods``: as in a section,
    for everything below. ``reload_s``: seconds after which the page loads itself again, while what
    it is about goes on; 0 never."""

    title: str
    facts: Sequence[tuple[str, str]]
    blocks: Sequence[Block]
    methods: Sequence[str] = ()
    reload_s: int = 0


Block = Table | Picture | Text | BulletList | Tally | Code | SideBySide | Section


def non_empty(*blocks: Block | None) -> tuple[Block, ...]:
    """Return the blocks without None and without empty sections."""
    return tuple(
        b
        for b in blocks
        if b is not None and not (isinstance(b, Section | SideBySide) and not b.blocks)
    )


class UniqueNames:
    """Makes names unique within a page: the second ``bars`` becomes ``bars-2``."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """Return ``wanted`` in letters, digits and hyphens, with a number appended where it is
        taken."""
        name = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-") or "part"
        self._taken[name] = self._taken.get(name, 0) + 1
        return name if self._taken[name] == 1 else self.unique(f"{name}-{self._taken[name]}")
