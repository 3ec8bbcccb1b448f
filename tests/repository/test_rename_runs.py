"""Stored rows of recipes follow a change of run ids, and nothing else in a file does."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from motley_papers.earlier import MeasuredRow
from tests.places import ROOT

OLD, STALE, NEW = "a" * 12, "b" * 12, "c" * 12


@pytest.fixture
def rename_runs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("rename_runs")


def row(cell: str, run: str) -> MeasuredRow:
    return MeasuredRow("table 1", cell, "final", 0, "1.5", "true", run, "")


def test_a_run_that_both_plan_has_the_new_name(rename_runs: ModuleType) -> None:
    """Not one that was no longer planned before, one that is planned no more, or one that has its
    new name already."""
    first, stale, gone, done = row("x", OLD), row("y", STALE), row("z", OLD), row("u", NEW)
    before = {first: OLD, stale: OLD, gone: OLD, done: OLD}
    now = {first: NEW, stale: NEW, gone: "", done: NEW}
    assert rename_runs.new_names([first, stale, gone, done], before, now) == {OLD: NEW}


def test_names_alone_are_replaced(rename_runs: ModuleType) -> None:
    text = f"t,x,final,0,1.5,true,{OLD},\nt,y,final,0,1.5,true,{STALE},\n{OLD}0,{OLD}\n"
    assert rename_runs.renamed(text, {OLD: NEW}) == (
        f"t,x,final,0,1.5,true,{NEW},\nt,y,final,0,1.5,true,{STALE},\n{OLD}0,{NEW}\n"
    )


def test_tables_without_a_row_for_each_run_are_not_read(rename_runs: ModuleType) -> None:
    folder = rename_runs.MEASURED / "fedbench_scaffold" / "paper"
    tables = {table.name: rename_runs.holds_runs(table) for table in folder.glob("*.csv")}
    assert tables == {"measured.csv": True, "cells.csv": False, "verdicts.csv": False}


def test_a_tree_is_asked_what_it_plans(rename_runs: ModuleType) -> None:
    """The only row of a recipe at small, and a cell that there is not."""
    folder = rename_runs.MEASURED / "pfl_cifar10" / "small"
    stored = rename_runs.read_rows(folder / "measured.csv")[0]
    other = stored._replace(cell="none of this name")
    found = rename_runs.planned(ROOT, folder, [stored, other])
    assert found == {stored: stored.run, other: ""}
