"""Citations of the papers behind methods, and the public code of their authors."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


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


@dataclass(frozen=True, slots=True)
class PublicCode:
    """The authors' public code of a paper.

    Parameters
    ----------
    repository: ``owner/name`` on GitHub; empty where none was found.
    sought: whether one was looked for.
    commit: the commit that was read.
    compared: whether it was compared with Motley.
    differences: what can change results: point, the paper's text, the code, Motley.
    page: the page of ``docs`` with the differences, where it is not this list.
    note: one sentence more.
    """

    repository: str = ""
    sought: bool = True
    commit: str = ""
    compared: bool = True
    differences: tuple[tuple[str, str, str, str], ...] = ()
    page: str = ""
    note: str = ""


def public_code(key: str) -> PublicCode | None:
    """Return the entry of ``public_code.toml`` for a paper of ``papers.bib``; None where there is
    none.

    >>> public_code("tang2022fedcor").repository
    'Yoruko-Tang/FedCor'
    """
    return _public_codes().get(key)


@cache
def _public_codes() -> dict[str, PublicCode]:
    text = Path(__file__).with_name("public_code.toml").read_text(encoding="utf-8")
    return {
        key: PublicCode(**{**entry, "differences": tuple(map(tuple, entry.get("differences", ())))})
        for key, entry in tomllib.loads(text).items()
    }


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
            key=key,
            title=fields["title"],
            authors=authors,
            venue=fields["booktitle"],
            year=int(fields["year"]),
            url=fields.get("url", ""),
        )
    return papers
