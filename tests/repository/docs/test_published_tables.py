"""The page of published tables: its rows count the cells that the recipes print, by the numbers
that are kept of them."""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from motley.core.components import imports
from motley.core.csv_text import csv_rows
from motley_data.public_data.places import places
from motley_papers import published_table, recipe
from motley_papers.referee import kept
from tests.places import ROOT

ROWS = tomllib.loads((ROOT / "docs" / "published_tables.toml").read_text())["table"]
PAGE = (ROOT / "docs" / "published-tables.md").read_text()


@pytest.fixture
def from_published(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """docs/from_published.py."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import from_published

    yield from_published
    sys.modules.pop("from_published")


def on_the_page(title: str) -> dict[str, int]:
    """The counts of a table's row on the page."""
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {title}"))
    names = ("printed", "found", "explained", "unexplained", "undecided")
    return dict(zip(names, map(int, line.split(" | ")[1:6]), strict=True))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["recipe"])
def test_the_page_counts_what_is_kept(row: dict[str, Any], from_published: ModuleType) -> None:
    name = row["recipe"]
    counts = from_published.cell_counts(name)
    if name in recipe.names():
        printed = len(recipe.read(name).expected)
    else:
        printed = len(published_table.read(name).numbers)
    assert counts["printed"] == printed
    assert on_the_page(row["title"]) == counts
    assert f"motley reproduce {name}" in row["command"]
    assert not {"printed", *from_published.COUNTED, "outcome"} & row.keys(), "typed by hand"
    assert "`" in row["source"], "the commit that was read"


@pytest.mark.parametrize("name", published_table.names())
def test_kept_numbers_are_those_of_the_tables_runs(name: str) -> None:
    """Every row, column and seed is there; where the data are, the runs are those that the table
    plans."""
    table = published_table.read(name)
    path = ROOT / "benchmarks" / "measured" / "tables" / f"{name}.csv"
    rows = list(csv_rows(path.read_text(encoding="utf-8")))
    runs = {
        (row["method"], table.run_for(row["column"]), int(row["seed"])): row["run"] for row in rows
    }
    every = {(row, column) for row in table.method for column in table.columns_run(row)}
    assert runs.keys() == {(*cell, seed) for cell in every for seed in table.seeds}
    assert set(Counter((row["method"], row["column"]) for row in rows).values()) == {5}
    data = next((place for place in places() if (place / name.removeprefix("flamby_")).is_dir()), 0)
    if table.task is None or data:
        seed = table.seeds[0]
        for row, column in (min(every), max(every)):
            with imports(True):
                planned = table.experiment(row, seed, data or None, column)
            assert planned.result_id() == runs[row, column, seed]


def test_a_number_that_is_moved_is_no_longer_found(from_published: ModuleType) -> None:
    """FedAvg's pooled accuracy on Fed-Heart, .7480, far from where its five runs are printed."""
    table = published_table.read("flamby_heart")
    judged = kept(table)
    assert judged.counts["inside"] == 72
    judged.values["FedAvg", "pooled test"].update(dict.fromkeys(table.seeds, 0.5))
    again = type(judged)(table, judged.values, judged.directory)
    assert again.cells["FedAvg", "pooled test"].verdict == "outside"
    assert again.counts["outside, unexplained"] == 1


@pytest.mark.parametrize(
    ("found", "undecided", "unexplained", "outcome"),
    [
        (3, 0, 0, "found"),
        (0, 3, 0, "undecided"),
        (0, 0, 3, "not found"),
        (1, 0, 2, "partly"),
        (0, 1, 2, "partly"),
    ],
)
def test_the_outcome_of_three_cells(
    found: int, undecided: int, unexplained: int, outcome: str, from_published: ModuleType
) -> None:
    counts = {"printed": 3, "found": found, "undecided": undecided, "unexplained": unexplained}
    assert from_published.outcome(counts) == outcome


def test_a_row_shows_what_became_of_its_cells(from_published: ModuleType) -> None:
    row = {
        "title": "T",
        "source": "repository `c0ffee`",
        "cause": "why",
        "command": "motley reproduce t",
    }
    counts = {"printed": 5, "found": 3, "explained": 2, "unexplained": 0, "undecided": 0}
    assert from_published._row(row, counts) == (
        "T (repository `c0ffee`)",
        *("5", "3", "2", "0", "0"),
        "*partly*",
        "why",
        "nothing",
        "`motley reproduce t`",
    )
