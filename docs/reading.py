"""Print how each page of prose reads: its words, the minutes that it takes, and Flesch's reading
ease, of which 50 and more is plain English; below it the median of all pages.

``--worst`` adds the sentences that are hardest to read, of the ten hardest pages.

    python docs/reading.py --worst 3
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from pathlib import Path

from cells import ROOT

GOAL = 50
"""The median reading ease that the pages shall have."""
_APART = (
    re.compile(r"<!-- made: \w+ -->\n.*?<!-- end -->", re.DOTALL),
    re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE),
    re.compile(r"^\s*\|.*\|\s*$", re.MULTILINE),
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"^<.*>$", re.MULTILINE),
    re.compile(r"^#+ .*$", re.MULTILINE),
    re.compile(r"^\[motley[\w.]*\]\(.*\.py\)$", re.MULTILINE),
    re.compile(r"!\[[^\]]*\]\([^)]*\)"),
)
"""What is not prose: generated parts, code, tables, comments, headings, entries, pictures."""
_FEWEST = 60
"""Words of prose below which a page is not listed."""
_A_MINUTE = 200
"""Words that a reader of technical prose reads in a minute."""


def prose(page: str) -> str:
    """Return the sentences of a page, one paragraph or item of a list a line; code inside a
    sentence is one short word."""
    for apart in _APART:
        page = apart.sub("", page)
    page = re.sub(r"`[^`]*`", "code", page)
    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)
    page = re.sub(r"(?<!\w)(\*{1,2})(?=\S)(.+?)(?<=\S)\1(?!\w)", r"\2", page)
    pieces = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", page)
    lines = [re.sub(r"^(?:[-*]|\d+\.) ", "", " ".join(piece.split())) for piece in pieces]
    ended = [line if line.endswith((".", "!", "?")) else line.rstrip(":;,") + "." for line in lines]
    return "\n".join(line for line in ended if line != ".")


def sentences(text: str) -> list[str]:
    """Return the sentences of prose that have at least eight words."""
    found = [one for line in text.split("\n") for one in re.split(r"(?<=[.!?]) (?=[A-Z])", line)]
    return [one for one in found if len(one.split()) >= 8]


def main() -> None:
    """Print the table, the median, and with ``--worst`` the hardest sentences."""
    import textstat  # make docs installs it

    parser = argparse.ArgumentParser()
    parser.add_argument("--worst", type=int, default=0, metavar="N")
    many = parser.parse_args().worst
    rows = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = prose(page.read_text(encoding="utf-8"))
        if len(text.split()) >= _FEWEST:
            rows.append((textstat.flesch_reading_ease(text), len(text.split()), page))
    out = sys.stdout
    out.write(f"{'page':<40} {'words':>6} {'minutes':>8} {'ease':>6}\n")
    for ease, words, page in sorted(rows, key=lambda row: row[2]):
        minutes = words / _A_MINUTE
        out.write(f"{page.relative_to(ROOT)!s:<40} {words:>6} {minutes:>8.1f} {ease:>6.1f}\n")
    median = statistics.median(row[0] for row in rows)
    out.write(f"median reading ease {median:.1f}; the goal is {GOAL}\n")
    for _ease, _words, page in sorted(rows)[:10] if many else ():
        _show(page, many)


def _show(page: Path, many: int) -> None:
    """Print the hardest sentences of a page."""
    import textstat

    sys.stdout.write(f"\n{page.relative_to(ROOT)}\n")
    text = prose(page.read_text(encoding="utf-8"))
    for one in sorted(sentences(text), key=textstat.flesch_reading_ease)[:many]:
        sys.stdout.write(f"  {textstat.flesch_reading_ease(one):.0f}: {one}\n")


if __name__ == "__main__":
    main()
