"""Pages as GitHub's Markdown: pipe tables, code blocks, and pictures in a folder beside the
file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from motley.results.blocks import (
    Block,
    BulletList,
    Code,
    Page,
    Picture,
    Section,
    SideBySide,
    Table,
    TableCell,
    Tally,
    Text,
    UniqueNames,
)


def markdown(page: Page, folder: str) -> tuple[str, dict[str, str]]:
    """Return the text and its pictures: name of the file in ``folder`` -> content."""
    writer = _Writer(folder)
    facts = " · ".join(f"{escaped(name)}: **{escaped(value)}**" for name, value in page.facts)
    pieces = [
        f"# {escaped(page.title)}",
        *([facts] if facts else []),
        *writer.blocks(page.blocks, 2),
    ]
    end = "Made by Motley from the tables of the runs; nothing here was typed in."
    return "\n\n".join([*pieces, "---", end]) + "\n", writer.pictures


def escaped(text: str) -> str:
    """Return any text as one line of Markdown without markup, also for the cell of a table."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([\\`*\[\]|~$])", r"\\\1", text)
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # inside a word it means nothing
    text = re.sub(r"^(\d*)([#+.)=-])(?!\d)", r"\1\\\2", text)  # a heading, a list
    return re.sub(r"(^>|(?<= )#+$)", r"\\\1", text)  # a quotation, the end of a heading


class _Writer:
    """Writes blocks as pieces of Markdown separated by empty lines, and collects the pictures."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names = UniqueNames()
        self.pictures: dict[str, str] = {}

    def blocks(self, blocks: Sequence[Block], level: int) -> Iterator[str]:
        """Yield the pieces of blocks; headings of sections are of ``level`` and below."""
        for block in blocks:
            if isinstance(block, Section):
                title = escaped(block.title)
                if block.folded:
                    head = f"<details><summary>{title}</summary>"
                else:
                    head = f"{'#' * min(level, 6)} {title}"
                yield from [head] if title else []
                yield from self.blocks(block.blocks, level + 1)
                yield from ["</details>"] if block.folded else []
            elif isinstance(block, SideBySide):
                pieces = list(self.blocks(block.blocks, level))
                # flow, side by side where there is room
                only_pictures = all(isinstance(inner, Picture) for inner in block.blocks)
                yield from ["\n".join(pieces)] if only_pictures else pieces
            else:
                yield self._one(block)

    def _one(self, block: Table | Picture | Text | BulletList | Tally | Code) -> str:
        if isinstance(block, Table):
            return _table(block)
        if isinstance(block, Picture):
            return self._picture(block)
        if isinstance(block, Text):
            return escaped(block.text)
        if isinstance(block, Tally):
            return " · ".join(f"**{number}** {escaped(word)}" for number, word, _ in block.counts)
        if isinstance(block, BulletList):
            lines = [f"- {escaped(line)}" for line in block.items]
            if block.title:
                return "\n".join(
                    f"> {line}" for line in [f"**{escaped(block.title)}**", "", *lines]
                )
            return "\n".join(lines)
        return _code(block)

    def _picture(self, picture: Picture) -> str:
        file = f"{self._names.unique(picture.name)}.svg"
        start = picture.svg.index(">") + 1  # on white, whatever is behind the page
        white = '<rect width="100%" height="100%" fill="#ffffff"/>'
        self.pictures[file] = (
            '<?xml version="1.0" '
            f'encoding="utf-8"?>\n{picture.svg[:start]}{white}{picture.svg[start:]}\n'
        )
        return f"![{escaped(picture.about)}](<{self._folder}/{file}>)"


def _table(table: Table) -> str:
    ends = [":--" if not i or table.words(i - 1) else "--:" for i in range(len(table.heads))]
    rows = [[escaped(row.label), *(_cell(cell) for cell in row.cells)] for row in table.rows]
    lines = [
        f"| {' | '.join(cells)} |"
        for cells in ([escaped(head) for head in table.heads], ends, *rows)
    ]
    return "\n".join(lines) + (f"\n\n{escaped(table.note)}" if table.note else "")


def _cell(cell: TableCell) -> str:
    text = escaped(cell.whole).replace(" ± ", "\u00a0±\u00a0")
    text = f"[{text}](<{cell.link}>)" if cell.link else text
    return f"**{text}**" if cell.best else text


def _code(code: Code) -> str:
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", code.text)), 0)
    block = f"{fence}{code.language}\n{code.text}\n{fence}"
    if not code.title:
        return block
    return f"<details><summary>{escaped(code.title)}</summary>\n\n{block}\n\n</details>"
