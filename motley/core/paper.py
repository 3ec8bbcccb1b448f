"""Citations of the papers behind methods."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MCMAHAN_2017", "Paper"]


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


MCMAHAN_2017 = Paper(
    "mcmahan2017communication",
    "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    ("H. Brendan McMahan", "Eider Moore", "Daniel Ramage", "Seth Hampson", 'Blaise Ag{\\"u}era y Arcas'),
    "International Conference on Artificial Intelligence and Statistics (AISTATS)",
    2017,
    "https://arxiv.org/abs/1602.05629",
)
"""Shared by the algorithm and by uniform selection."""
