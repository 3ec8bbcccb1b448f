"""The tables of what papers state: each entry names what exists, and no page or module gives a
theorem or figure a number that its paper does not have."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from motley.core.errors import ConfigError
from motley_papers import recipe
from motley_papers.statements import (
    parse_statements,
    read_statements,
    references,
    with_statements,
)
from motley_papers.telling import claims_named
from tests.places import ROOT

read = cache(read_statements)
WHOLE = """[[statement]]
number = "Theorem III.3 (Eq. 14)"
kind = "theorem"
says = "A bound."
state = "exact"
where = "motley.core.keys.Key"
untested = "an example"
"""
OF_OTHER_PAPERS = {"packages/motley-privacy/src/motley_privacy/distributed_noise.py"}
"""Files that cite theorems of papers without a recipe."""
SENTENCE = re.compile(r"(?<=[.;:|])(?<!Eq\.)(?<!Eqs\.)(?<!Fig\.)(?<!Prop\.)\s|\n\n")
"""Where a sentence ends, or a cell of a table."""
NAMED = {
    "FLASH": ("flash",),
    "FedCVR-Bolt": ("fedcvr_bolt",),
    "HeteRo-Select": ("hetero_select", "hetero_select_v1"),
}
"""Words by which pages name a paper; HeteRo-Select is the name of two."""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("says =", "say =", r"statement.0.say: there is no such key .did you mean .says.?"),
        ('"exact"', '"perfect"', "perfect"),
        ('kind = "theorem"', 'kind = "riddle"', "riddle"),
        (
            'untested = "an example"',
            "",
            "Theorem III.3 .* needs tested, claims or both, or else untested",
        ),
        ("where =", 'tested = "tests/x.py::test_y"\nwhere =', "or else untested"),
        ("where =", 'claims = ["It is better"]\nwhere =', "or else untested"),
        ('where = "motley.core.keys.Key"', "", "needs where"),
        ('"exact"', '"differs"', "needs a note"),
        ("[[statement]]", f"{WHOLE}[[statement]]", "there twice with the same words"),
    ],
)
def test_a_table_that_is_none_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"here: .*{message}"):
        parse_statements(WHOLE.replace(old, new), "here")


def test_states_are_counted() -> None:
    other = WHOLE.replace("A bound.", "Another.").replace('"exact"', '"missing"')
    paper = parse_statements(WHOLE + other, "here")
    assert paper.counts == {"exact": 1, "reading": 0, "differs": 0, "missing": 1}


def test_a_paper_without_a_table_is_named() -> None:
    with pytest.raises(ConfigError, match=r"league has no statements.toml; expected one of: .*_v1"):
        read_statements("league")


def test_numbers_are_found_in_a_text() -> None:
    text = "Theorems III.3 and A.3, Figures 2b, 2d and 5(c), Table IV, Eq. 14, 20 rounds; table of"
    assert references(text) == [
        *(("theorem", "III.3"), ("theorem", "A.3")),
        *(("figure", "2b"), ("figure", "2d"), ("figure", "5c")),
        *(("table", "4"), ("equation", "14")),
    ]
    paper = parse_statements(WHOLE, "here")
    assert paper.unknown("Theorem III.3, Equation 14 (a)") == []
    assert paper.unknown("Theorem III.5, Lemma III.3") == ["theorem III.5", "lemma III.3"]


@pytest.mark.parametrize("name", with_statements())
def test_every_place_exists(name: str) -> None:
    problems = {
        entry.number: problem
        for entry in read(name).statement
        if entry.where and (problem := place_problem(name, entry.where))
    }
    assert not problems


def place_problem(name: str, where: str) -> str:
    """What is wrong with a place; empty for nothing."""
    if where.startswith("exhibit "):
        exhibits = [exhibit.name for exhibit in recipe.read(name).exhibit]
        return "" if where.removeprefix("exhibit ") in exhibits else f"no {where}"
    if re.fullmatch(r"motley\w*(\.\w+)+", where):
        return "" if exists_in_code(where) else f"nothing called {where}"
    file, _, anchor = where.partition("#")
    if not (ROOT / file).is_file():
        return f"no file {file}"
    text = (ROOT / file).read_text(encoding="utf-8")
    return "" if not anchor or f"{{#{anchor}}}" in text else f"no {anchor} in {file}"


def exists_in_code(dotted: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one or of its classes."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            place = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            fields = getattr(place, "__dataclass_fields__", {})
            if not hasattr(place, attribute) and attribute not in fields:
                return False
            place = getattr(place, attribute, None)
        return True
    return False


@pytest.mark.parametrize("name", with_statements())
def test_every_test_exists_and_runs(name: str) -> None:
    absent = []
    for named in (named for entry in read(name).statement for named in entry.tested):
        file, _, test = named.partition("::")
        if test not in running_tests(ROOT / file):
            absent.append(named)
    assert not absent


def test_an_entry_names_one_test_or_several() -> None:
    one = WHOLE.replace('untested = "an example"', 'tested = "tests/x.py::test_y"')
    several = one.replace('"tests/x.py::test_y"', '["tests/x.py::test_y", "tests/z.py::test_u"]')
    named = [parse_statements(text, "here").statement[0].tested for text in (one, several)]
    assert named == [["tests/x.py::test_y"], ["tests/x.py::test_y", "tests/z.py::test_u"]]


@cache
def running_tests(path: Path) -> frozenset[str]:
    """Return the names of a file's tests that are not skipped nor expected to fail."""
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(text_of(path)))
        if isinstance(node, ast.FunctionDef)
        and not any(
            re.search(r"\b(skip|skipif|xfail)\b", ast.unparse(decorator))
            for decorator in node.decorator_list
        )
    )


@pytest.mark.parametrize("name", with_statements())
def test_every_claim_exists_and_every_claim_of_the_paper_is_named(name: str) -> None:
    found = recipe.read(name)
    words = [words for entry in read(name).statement for words in entry.claims]
    named = {text: [claim.text for claim in claims_named(found, text)] for text in words}
    assert not {text: texts for text, texts in named.items() if len(texts) != 1}
    texts = {text for texts in named.values() for text in texts}
    assert not [claim.text for claim in found.claim if claim.source and claim.text not in texts]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def files_about(name: str) -> list[Path]:
    """The recipe's files, the method's page, and modules, presets and tests named after it."""
    longer = [other for other in with_statements() if other.startswith(name) and other != name]
    own = [
        path
        for folder in (*(ROOT / "packages").glob("*/src"), ROOT / "tests")
        for pattern in (f"{name}*.py", f"test_{name}*.py", f"{name}*.toml")
        for path in folder.rglob(pattern)
        if not any(other in path.name for other in longer)
    ]
    folder = ROOT / "packages/motley-papers/src/motley_papers" / name
    page = ROOT / "docs/methods" / f"{name.replace('_', '-')}.md"
    return [*own, *folder.glob("*.md"), *folder.glob("*.toml"), *filter(Path.is_file, [page])]


@pytest.mark.parametrize("name", with_statements())
def test_numbers_named_in_docs_and_code_are_in_the_table(name: str) -> None:
    files = files_about(name)
    assert files
    unknown = {
        path.relative_to(ROOT).as_posix(): numbers
        for path in files
        if (numbers := read(name).unknown(text_of(path)))
    }
    assert not unknown


def test_numbers_in_the_modules_of_statements_are_in_a_table() -> None:
    """Of the papers whose statements live in the module, or that it names."""
    papers: dict[Path, set[str]] = {}
    for name in with_statements():
        for entry in read(name).statement:
            if re.match(r"motley\w*\.", entry.where):
                papers.setdefault(module_file(entry.where), set()).add(name)
    unknown = {}
    for path, names in papers.items():
        named = {name for words, more in NAMED.items() if words in text_of(path) for name in more}
        numbers = [set(read(name).unknown(text_of(path))) for name in names | named]
        if absent := set.intersection(*numbers):
            unknown[path.relative_to(ROOT).as_posix()] = absent
    assert papers
    assert not unknown


def module_file(dotted: str) -> Path:
    """Return the file of the module that a dotted name is, or lies in."""
    parts = dotted.split(".")
    places = [
        folder.joinpath(*parts[:length]).with_suffix(".py")
        for length in range(len(parts), 0, -1)
        for folder in (ROOT / "packages").glob("*/src")
    ]
    return next(place for place in places if place.is_file())


def files_anywhere() -> Iterator[Path]:
    """Yield the pages at the top and all pages, modules and tables of the packages and docs."""
    yield from ROOT.glob("*.md")
    for folder in ("packages", "docs"):
        for pattern in ("*.py", "*.md", "*.toml"):
            yield from (ROOT / folder).rglob(pattern)


def test_theorems_named_anywhere_are_some_papers() -> None:
    """Of papers that number theorems by chapter, as III.3 and A.5."""
    stated = frozenset[tuple[str, str]]().union(*(read(name).numbers for name in with_statements()))
    unknown = {
        f"{path.relative_to(ROOT).as_posix()}: {kind} {number}"
        for path in files_anywhere()
        if path.relative_to(ROOT).as_posix() not in OF_OTHER_PAPERS
        for kind, number in references(text_of(path))
        if kind in ("theorem", "lemma", "proposition", "corollary", "assumption")
        and re.match(r"[A-Z]+\.", number)
        and (kind, number) not in stated
    }
    assert not unknown


def unknown_beside_names(text: str) -> list[str]:
    """Return the numbers that sentences give the papers they name and that none of these has."""
    unknown = []
    for sentence in SENTENCE.split(text):
        papers = [name for words, names in NAMED.items() if words in sentence for name in names]
        if papers:
            absent = [set(read(name).unknown(sentence)) for name in papers]
            unknown += sorted(set.intersection(*absent))
    return unknown


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("See Figure 9 of FLASH.", ["figure 9"]),
        ("FLASH has Figure 3; Eq. 99 is another's.", []),
        ("HeteRo-Select's Theorem III.3 and Eq. 16 are of two versions.", []),
        ("Beside FedCVR-Bolt's Eq. 4\nstands its Eq. 99.", ["equation 99"]),
    ],
)
def test_numbers_beside_names_are_found(text: str, unknown: list[str]) -> None:
    assert unknown_beside_names(text) == unknown


def test_numbers_beside_a_papers_name_are_in_its_table() -> None:
    unknown = {
        path.relative_to(ROOT).as_posix(): numbers
        for path in files_anywhere()
        if (numbers := unknown_beside_names(text_of(path)))
    }
    assert not unknown
