"""The page of published tables: its rows count the cells that the recipes print."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from motley_papers import published_table, recipe
from tests.places import ROOT

ROWS = tomllib.loads((ROOT / "docs" / "published_tables.toml").read_text())["table"]


@pytest.fixture
def from_published(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """docs/from_published.py."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import from_published

    yield from_published
    sys.modules.pop("from_published")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["recipe"])
def test_printed_cells_are_those_of_the_recipe(row: dict[str, Any]) -> None:
    name = row["recipe"]
    if name in recipe.names():
        printed = len(recipe.read(name).expected)
    else:
        printed = len(published_table.read(name).numbers)
    assert row["printed"] == printed
    assert f"motley reproduce {name}" in row["command"]
    assert row["outcome"] in ("found", "not found", "partly", "undecided")
    assert "`" in row["source"], "the commit that was read"


def test_cells_that_are_not_counted_are_refused(from_published: ModuleType) -> None:
    row = {**ROWS[0], "printed": 99}
    with pytest.raises(ValueError, match="99 cells are printed, and 72 are counted"):
        from_published._row(row)


def test_a_row_shows_what_became_of_its_cells(from_published: ModuleType) -> None:
    row = {
        "title": "T",
        "source": "repository `c0ffee`",
        "printed": 5,
        "found": 3,
        "explained": 2,
        "outcome": "partly",
        "cause": "why",
        "command": "motley reproduce t",
    }
    assert from_published._row(row) == (
        "T (repository `c0ffee`)",
        *("5", "3", "2", "0", "0"),
        "*partly*",
        "why",
        "nothing",
        "`motley reproduce t`",
    )
