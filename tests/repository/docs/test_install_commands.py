"""A distribution's README names the others that it imports, and a command that installs Motley with
it installs those that it needs: none of them is a dependency, for none is in a package index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.places import ROOT, SOURCES

BESIDE = {source.parent.name: source for source in SOURCES if source.parent.name != "motley"}
SENTENCE = re.compile(
    r"^It needs (?P<needed>[^.;]*) of the same version, from the same checkout(?P<more>[^.;]*)[.;]",
    re.MULTILINE,
)
COMMAND = re.compile(
    r"pip install(?P<words>(?:[\s\\]+(?:-c [\w-]+\.txt|'?\./packages/[\w-]+(?:\[[\w,]+\])?'?))+)"
)
SHOWN = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "flower" / "run"),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.py")),
    *(path for source in SOURCES for path in sorted(source.rglob("*.py"))),
]


def named(words: str) -> set[str]:
    """The distributions beside ``motley-fl`` that a sentence or a command names."""
    return set(re.findall(r"motley-(?!fl\b)\w+", words))


def readme_names(distribution: str) -> tuple[set[str], set[str]]:
    """Which distributions a README says are always needed, and which sometimes."""
    text = (ROOT / "packages" / distribution / "README.md").read_text(encoding="utf-8")
    sentence = SENTENCE.search(text)
    assert sentence is not None, f"{distribution}: no sentence says what it needs"
    return named(sentence["needed"]), named(sentence["more"])


def missing(command: str) -> set[str]:
    """What a command that installs ``motley`` lacks of what its other distributions need."""
    folders = set(re.findall(r"\./packages/([\w-]+)", command))
    if "motley" not in folders:
        return set()
    needed = {name for folder in folders & set(BESIDE) for name in readme_names(folder)[0]}
    return needed - folders


def imported(path: Path) -> set[str]:
    """The distributions that a file imports anywhere."""
    modules = re.findall(
        r"^ *from (motley_\w+)[. ]", path.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {module.replace("_", "-") for module in modules} & set(BESIDE)


@pytest.mark.parametrize("distribution", BESIDE)
def test_a_readme_names_what_is_imported(distribution: str) -> None:
    files = BESIDE[distribution].rglob("*.py")
    others = {name for path in files for name in imported(path)} - {distribution}
    needed, at_times = readme_names(distribution)
    assert needed | at_times == others
    assert not needed & at_times


def test_a_command_installs_what_is_needed() -> None:
    commands = [
        (path, found["words"])
        for path in SHOWN
        for found in COMMAND.finditer(path.read_text(encoding="utf-8"))
    ]
    assert {path.name for path, _ in commands} >= {"quick-start.md", "pages.py", "run"}
    lacking = {(path.name, words.strip()): missing(words) for path, words in commands}
    assert not {key: names for key, names in lacking.items() if names}


def test_a_command_that_lacks_one_is_seen() -> None:
    assert missing("./packages/motley ./packages/motley-flower") == {"motley-data"}
    assert missing("./packages/motley './packages/motley-advice[tune]'") == {
        "motley-data",
        "motley-report",
    }
    assert missing("./packages/motley-privacy") == set()
    (found,) = COMMAND.finditer("`pip install ./packages/motley \\\n    ./packages/motley-ray` or")
    assert named(found["words"]) == {"motley-ray"}
