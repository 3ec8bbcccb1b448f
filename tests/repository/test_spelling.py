"""Prose is spelt one way: British with -ize, as the Oxford dictionaries have it.

Public names decided it: ``defence``, ``enrolment``, ``catalogue`` and ``colour`` on the one hand,
``optimizer``, ``quantizer`` and ``regularizer`` on the other. Names stay as they are, in code and
on pages; so do titles, quotations and what other programs say.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENDINGS = "e|es|ed|er|ers|ing|ation|ations|able|ability"
WITH_IS = re.compile(rf"(?<![\w.-])(?P<stem>[A-Za-z]+)is(?P<end>{ENDINGS})(?!\w|-?\()")
"""A word that may be one of -ise for -ize: ``normalised``, ``raise``."""
OWN_IS = re.compile(
    r"(?:.*(?:no|ra|w|adv|prom|prem|prec|conc|rev|dev|superv|improv|surpr|exerc|compr|disgu|telev"
    r"|expert|enterpr|franch|merchand|treat|parad|po|cru|bla)|a?r)",
    re.IGNORECASE,
)
"""The beginnings of words that are of -ise everywhere: ``noise``, ``raise``, ``otherwise``."""
AMERICAN = {
    "color": "colour",
    "neighbor": "neighbour",
    "behavior": "behaviour",
    "favor": "favour",
    "honor": "honour",
    "center": "centre",
    "defense": "defence",
    "judgment": "judgement",
    "gray": "grey",
    "labeled": "labelled",
    "labeling": "labelling",
    "modeled": "modelled",
    "modeling": "modelling",
    "canceled": "cancelled",
    "canceling": "cancelling",
    "traveled": "travelled",
    "analyze": "analyse",
    "enrollment": "enrolment",
}
"""American word, and what stands for it here."""
CODE = re.compile(
    r"``.*?``|`[^`]*`|https?://\S+|\]\([^)]*\)|<[^>]*>|:\w+:`[^`]*`|\"[^\"\n]*\"|“[^”]*”"
    r"|\S*[/_=]\S*|\b[\w.]+ = \S+|\{\{?[^{}]*\}?\}",
    re.DOTALL,
)
"""What stands in prose and is none: code, links, quotations, paths, keys, what a format fills."""
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2", re.DOTALL | re.MULTILINE)
MADE = re.compile(r"<!-- made: .*?<!-- end -->", re.DOTALL)
DOCTEST = re.compile(r"^ *(?:>>>|\.\.\.) .*$", re.MULTILINE)
SENTENCE = re.compile(r"[a-z,;:] [a-z(]")
"""What only words in a row have, of all strings."""
STYLE = re.compile(r"[;{]\s*[\w-]+: |[\w-]+: [^;]*;|@article|@inproceedings|=> |function ?\(")
"""What only styles and scripts of pages and entries of a bibliography have."""
WORDS = [
    (re.compile(rf"(?<![\w.-]){word}(?=s?\b(?![\w-]))", re.IGNORECASE), ours)
    for word, ours in AMERICAN.items()
]
ANYWHERE = re.compile(rf"(?P<stem>[A-Za-z]+)is(?:{ENDINGS})|{'|'.join(AMERICAN)}", re.IGNORECASE)
"""What every word to look at matches, in prose or not."""


def blanked(text: str, *patterns: re.Pattern[str]) -> str:
    """Return the text with blanks in place of what these patterns match, as long as before."""
    for pattern in patterns:
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    return text


def misspelt(prose: str) -> Iterator[tuple[int, int, str]]:
    """Yield the places of words that are spelt otherwise, from begin to end, and our spelling."""
    for match in WITH_IS.finditer(prose):
        if not OWN_IS.fullmatch(match["stem"]):
            at = match.end("stem") + 1
            yield at, at + 1, "Z" if prose[at] == "S" else "z"
    for pattern, ours in WORDS:
        for match in pattern.finditer(prose):
            word = match.group()
            yield *match.span(), ours.capitalize() if word[0].isupper() else ours


def may_be_misspelt(text: str) -> bool:
    """Return whether a file's prose can have a place of :func:`misspelt`."""
    stems = (match["stem"] for match in ANYWHERE.finditer(text))
    return any(stem is None or not OWN_IS.fullmatch(stem) for stem in stems)


def page_prose(text: str) -> str:
    """Return a page's prose, all else blanked."""
    return blanked(text, MADE, FENCED, CODE)


def code_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments, docstrings and sentences of a Python file, all else in them blanked, each
    with its place in the file."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    documented = {
        (node.lineno, node.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        at = starts[token.start[0] - 1] + token.start[1]
        if token.type == tokenize.COMMENT:
            yield at, blanked(token.string, CODE)
        elif token.type == tokenize.STRING:
            opened = re.match(r"\w*(\"\"\"|'''|\"|')", token.string)
            assert opened
            inner = token.string[opened.end() : -len(opened[1])]
            if token.start in documented:
                yield at + opened.end(), blanked(inner, DOCTEST, CODE)
            elif SENTENCE.search(inner) and not STYLE.search(inner):
                yield at + opened.end(), blanked(inner, CODE)


def files() -> list[Path]:
    """Return the pages and the Python files that hold prose of ours; all else in the folders of
    recipes says what papers say."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    pages += (ROOT / "packages").rglob("notes.md")
    code = [path for folder in ("packages", "docs") for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in (*pages, *code) if "site" not in path.parts)


def places(path: Path) -> list[tuple[int, int, str]]:
    """Return the places of a file's words that are spelt otherwise, in order."""
    text = path.read_text()
    if not may_be_misspelt(text):  # to tell prose from code takes most of the time
        return []
    if path.suffix == ".md":
        return sorted(misspelt(page_prose(text)))
    return sorted(
        (at + begin, at + end, ours)
        for at, prose in code_prose(text)
        for begin, end, ours in misspelt(prose)
    )


def test_prose_is_spelt_one_way() -> None:
    wrong = []
    for path in files():
        text = path.read_text()
        for begin, end, ours in places(path):
            line = text.count("\n", 0, begin) + 1
            word = text[max(begin - 12, 0) : end + 8].replace("\n", " ")
            wrong.append(f"{path.relative_to(ROOT)}:{line}: ...{word}...: write {ours!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("prose", "ours"),
    [
        ("It is normalised.", "It is normalized."),
        ("Optimisers minimise noise otherwise", "Optimizers minimize noise otherwise"),
        ("Neighbors of one color", "Neighbours of one colour"),
        ("`normalise` and ``center`` raise", "`normalise` and ``center`` raise"),
        ('In "Personalised learning"', 'In "Personalised learning"'),
        ("normalised_average = color_of(/center)", "normalised_average = color_of(/center)"),
        ("enrolled and labelled", "enrolled and labelled"),
    ],
)
def test_words_are_told_from_names_and_titles(prose: str, ours: str) -> None:
    text = prose
    for begin, end, word in sorted(misspelt(blanked(prose, CODE)), reverse=True):
        text = text[:begin] + word + text[end:]
    assert text == ours
    assert text == prose or may_be_misspelt(prose)
