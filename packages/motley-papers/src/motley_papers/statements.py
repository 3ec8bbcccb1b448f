"""What a paper states, item by item, beside where Motley has it: ``statements.toml`` beside the
paper's recipe, one table for each numbered item or claim of the text::

    [[statement]]
    number = "Theorem III.3 (Eq. 14)"
    kind = "theorem"
    says = "A client's probability is at least its softmax share with all others at their highest."
    state = "differs"
    where = "motley.selectors.hetero_select_v1.HeteroSelectV1.bound_ratios"
    tested = "tests/motley/selectors/test_hetero_select_v1.py::test_ratios_to_the_bounds_by_hand"

An entry names a test or several, or with ``claims`` the recipe's claims that put it to runs, or
both. The page "Paper beside Motley" is made of them, with the verdict on each claim; tests hold
that what an entry names exists, and that each claim with a source in the paper is named by an
entry.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import resources
from typing import Literal, get_args

from pydantic import Field, ValidationError

from motley.core.errors import ConfigError
from motley.experiments import document
from motley.experiments.error_messages import config_error
from motley_papers.recipe import names
from motley_papers.recipe_claim import RecipeTable, Values

FILE = "statements.toml"
State = Literal["exact", "reading", "differs", "missing"]
STATES: tuple[State, ...] = get_args(State)
"""As the paper has it; as one reading of what it leaves open; otherwise than it has it; not
here."""
StatementKind = Literal[
    "equation", "algorithm", "theorem", "lemma", "assumption", "claim", "figure", "table"
]
_WORDS = {
    "equation": r"[Ee]q(?:s?\.|uations?)",
    "algorithm": r"[Aa]lg(?:\.|orithms?)",
    "theorem": r"[Tt]heorems?",
    "lemma": r"[Ll]emmas?",
    "proposition": r"[Pp]rop(?:s?\.|ositions?)",
    "corollary": r"[Cc]orollar(?:y|ies)",
    "assumption": r"[Aa]ssumptions?",
    "figure": r"[Ff]ig(?:s?\.|ures?)",
    "table": r"[Tt]ables?",
}
_NUMBER = (
    r"(?:[IVX]+\.\d+|[A-Z]\.\d+|\d+(?:\.\d+)?|[IVX]+(?!\w|\.\d))"
    r"(?:\([a-z]\)|[a-z](?!\w))?"
)
_REFERENCE = re.compile(
    rf"\b(?:{'|'.join(f'(?P<{kind}>{words})' for kind, words in _WORDS.items())})\s+"
    rf"(?P<numbers>{_NUMBER}(?P<more>(?:(?:,|,? and|,? or|,? to)\s+{_NUMBER})*))"
)
_PLURAL = re.compile(r"(?:s|ies)\.?\s")
_ROMAN = {"I": 1, "V": 5, "X": 10}


class Statement(RecipeTable):
    """One item of a paper."""

    number: str
    """As printed: ``Theorem III.3 (Eq. 14)``, ``Section VI-C``."""
    kind: StatementKind
    """What it is; a proposition or corollary is a theorem."""
    says: str
    """What the paper says, in one sentence, with its figures."""
    state: State
    """How Motley has it."""
    where: str = ""
    """Where it lives: a dotted name, ``exhibit NAME`` of the recipe, or a file of the repository,
    ``docs/methods/selectors.md#dropouts``; may be left out of what is missing."""
    tested: Values = Field(default_factory=list)
    """``tests/FILE.py::TEST`` that would fail if it changed; a list where several hold it."""
    claims: tuple[str, ...] = ()
    """Words of the recipe's claims that put it to runs; a claim is named as in ``result.md``."""
    untested: str = ""
    """Why it has neither."""
    note: str = ""
    """How Motley differs, or which reading it takes."""

    @property
    def problem(self) -> str:
        """What is wrong with it although every key has its type; empty for nothing."""
        if bool(self.tested or self.claims) == bool(self.untested):
            return "needs tested, claims or both, or else untested"
        if not self.where and self.state != "missing":
            return f"needs where, since its state is {self.state!r} and not 'missing'"
        if self.state in ("reading", "differs") and not self.note:
            return f"needs a note: its state is {self.state!r}"
        return ""


class PaperStatements(RecipeTable):
    """All statements of one paper."""

    statement: list[Statement]
    """In the order of the paper."""

    @property
    def counts(self) -> Mapping[State, int]:
        """Number of statements of each state."""
        counted = Counter(statement.state for statement in self.statement)
        return {state: counted[state] for state in STATES}

    @cached_property
    def numbers(self) -> frozenset[tuple[str, str]]:
        """What the statements are numbered, as :func:`references` gives it; of ``Figure 6a`` also
        the whole figure."""
        named = [named for entry in self.statement for named in references(entry.number)]
        return frozenset([*named, *((kind, _whole(number)) for kind, number in named)])

    def unknown(self, text: str) -> list[str]:
        """Return the numbers that a text names and the paper's statements do not have. Part ``b``
        of a figure is there where the figure is."""
        return [
            f"{kind} {number}"
            for kind, number in references(text)
            if not {(kind, number), (kind, _whole(number))} & self.numbers
        ]


def with_statements() -> list[str]:
    """Return the names of the package's recipes whose papers have a table of statements."""
    folder = resources.files("motley_papers")
    return [name for name in names() if (folder / name / FILE).is_file()]


def read_statements(name: str) -> PaperStatements:
    """Return what the paper of a recipe states.

    Raises
    ------
    ConfigError: the recipe has no such table, or the table is inconsistent.
    """
    if name not in with_statements():
        raise ConfigError(f"{name} has no {FILE}; expected one of: {', '.join(with_statements())}")
    text = (resources.files("motley_papers") / name / FILE).read_text(encoding="utf-8")
    return parse_statements(text, f"{name}/{FILE}")


def parse_statements(text: str, where: str) -> PaperStatements:
    """Return the statements of a text in TOML; ``where``: name of its file, for messages.

    Raises
    ------
    ConfigError: an unknown key, kind or state, a missing one, an entry that is there twice.
    """
    try:
        paper = PaperStatements.model_validate(document.parse(text, where))
    except ValidationError as error:
        raise ConfigError(f"{where}: {config_error(error, PaperStatements)}") from None
    seen: set[tuple[str, str]] = set()
    for entry in paper.statement:
        if entry.problem:
            raise ConfigError(f"{where}: {entry.number}: {entry.problem}")
        if (entry.number, entry.says) in seen:
            raise ConfigError(f"{where}: {entry.number} is there twice with the same words")
        seen.add((entry.number, entry.says))
    return paper


def references(text: str) -> Sequence[tuple[str, str]]:
    """Return the kinds and numbers of theorems, figures and the like that a text names, in order,
    each once; tables, figures and algorithms by Arabic numbers.

    >>> references("Theorems III.3 and A.3, figure 6a, Table II (Eqs. 9, 16)")
    [('theorem', 'III.3'), ('theorem', 'A.3'), ('figure', '6a'), ('table', '2'), \
('equation', '9'), ('equation', '16')]
    """
    return list(dict.fromkeys(_references(text)))


def _references(text: str) -> Iterator[tuple[str, str]]:
    for match in _REFERENCE.finditer(text):
        kind = next(kind for kind in _WORDS if match[kind])
        listed = match["numbers"]
        if not _PLURAL.search(match[0].removesuffix(listed)):  # "Eq. 14, 20 rounds later"
            listed = listed.removesuffix(match["more"])
        for number in re.findall(_NUMBER, listed):
            yield kind, _arabic(number.replace("(", "").replace(")", ""))


def _whole(number: str) -> str:
    """Return the number of the figure whose part this is."""
    return re.sub(r"(?<=\d)[a-z]$", "", number)


def _arabic(number: str) -> str:
    """Return a number without a chapter in Arabic digits, any other one as it is."""
    if not re.fullmatch("[IVX]+", number):
        return number
    values = [_ROMAN[letter] for letter in number]
    signs = [-1 if value < after else 1 for value, after in itertools.pairwise([*values, 0])]
    return str(sum(sign * value for sign, value in zip(signs, values, strict=True)))
