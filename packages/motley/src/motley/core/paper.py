"""Citations of the papers behind methods."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Paper", "cite"]


@dataclass(frozen=True, slots=True)
class Paper:
    """One publication.

    Parameters
    ----------
    key: BibTeX key, e.g. ``"li2020fedprox"``.
    title, venue, year, url: as in a bibliography.
    authors: full names, in order.
    """

    key: str
    title: str
    authors: tuple[str, ...]
    venue: str
    year: int
    url: str = ""

    def bibtex(self) -> str:
        """Return the BibTeX entry."""
        lines = [f"@inproceedings{{{self.key},", f"  title     = {{{self.title}}},"]
        lines.append(f"  author    = {{{' and '.join(self.authors)}}},")
        lines.append(f"  booktitle = {{{self.venue}}},")
        lines.append(f"  year      = {{{self.year}}},")
        if self.url:
            lines.append(f"  url       = {{{self.url}}},")
        return "\n".join([*lines, "}"])


def cite(key: str) -> Paper:
    """Return an entry of ``papers.bib``, the bibliography of Motley's own methods.

    >>> cite("li2020fedprox").title
    'Federated Optimization in Heterogeneous Networks'
    """
    return _bibliography()[key]


@cache
def _bibliography() -> dict[str, Paper]:
    """Read ``papers.bib``: entries as :meth:`Paper.bibtex` writes them, one field a line."""
    papers = {}
    text = Path(__file__).with_name("papers.bib").read_text(encoding="utf-8")
    for key, body in re.findall(
        r"^@inproceedings\{(.+),\n((?:  .+\n)+)\}$", text, flags=re.MULTILINE
    ):
        fields = dict(re.findall(r"^  (\w+) += \{(.*)\},$", body, flags=re.MULTILINE))
        authors = tuple(fields["author"].split(" and "))
        papers[key] = Paper(
            key,
            fields["title"],
            authors,
            fields["booktitle"],
            int(fields["year"]),
            fields.get("url", ""),
        )
    return papers
