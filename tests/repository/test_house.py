"""What ``scripts/house`` measures: small sources counted by hand, and names that say nothing."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''
def first(one, *, found: int = 0) -> int:
    """Do something.

    Parameters
    ----------
    one: the first. found: the second.
    """
    said = [other for other in one]
    return call(1, 2, 3, 4, 5) if said else zip(1, 2, 3, 4, 5)
'''


@pytest.fixture(scope="module")
def house() -> ModuleType:
    """The script as a module."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("measured_house")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def test_bindings_are_parameters_assignments_and_loops(house: ModuleType) -> None:
    names = [name for name, _ in house.bindings(ast.parse(SOURCE))]
    assert sorted(names) == ["found", "one", "other", "said"]


def test_calls_of_alike_arguments_do_not_count_as_positional(house: ModuleType) -> None:
    tree = ast.parse(SOURCE)
    assert house.positional_calls(tree, 5) == 1
    assert house.positional_calls(tree, 6) == 0


def test_a_section_with_two_parameters_in_a_line_runs_on(house: ModuleType) -> None:
    assert house.run_on_sections(ast.parse(SOURCE)) == (1, 1)
    apart = SOURCE.replace("the first. found", "the first.\n    found")
    assert house.run_on_sections(ast.parse(apart)) == (0, 1)


def test_conditional_expressions_inside_others_and_over_lines_are_told_apart(
    house: ModuleType,
) -> None:
    source = """
plain = 1 if a else 2
nested = 1 if a else (2 if b else 3)
long = (
    1
    if a
    else 2
)
listed = [1 if a else 2 for a in b]
call(lambda: 1 if a else 2)
"""
    counts = house.conditional_expressions(ast.parse(source))
    assert counts == {"all": 6, "nested or long": 2, "in comprehensions": 1}


def test_sources_are_plain_language(house: ModuleType) -> None:
    """At most one name in two hundred says nothing, calls with many arguments name them, and
    docstrings give a parameter a line."""
    language = house.language()
    assert language["empty names, %"] <= 0.5
    assert language["positional calls, 7 or more"] == 0
    assert language["of which run on"] == 0


def test_the_state_and_the_clients_interface_stay_small(house: ModuleType) -> None:
    sizes = house.interfaces()
    assert sizes["fields of RunState"] <= 14
    assert sizes["methods of a backend"] <= 12
    assert sizes["of which take the run's state"] == 0


def test_a_plain_round_stays_short(house: ModuleType) -> None:
    """As it is now, with a little room: what grows here is met by every reader."""
    sizes = house.plain_round()
    assert sizes["files"] <= 48
    assert sizes["lines"] <= 2_510


def test_what_is_slow_to_import_is_imported_by_the_test_that_needs_it() -> None:
    """Else every collection of the core's tests waits for it."""
    slow = re.compile(r"^(?:from|import) (?:sklearn|scipy\.stats)|^from scipy import .*stats", re.M)
    files = (ROOT / "tests" / "motley").rglob("*.py")
    assert [str(path) for path in files if slow.search(path.read_text())] == []
