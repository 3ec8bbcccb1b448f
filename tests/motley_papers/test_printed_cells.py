"""The verdicts on the printed numbers of a recipe's exhibits."""

from __future__ import annotations

from dataclasses import replace
from math import nan, sqrt
from pathlib import Path

import pytest

from motley.results.measures import Censored
from motley_papers import printed_cells
from motley_papers.number_files import number_files
from motley_papers.printed_cells import counted_cells, counts, judged_cells
from motley_papers.recipe import read
from motley_papers.recipe_page import exhibit_tables
from motley_papers.reproduce import Reproduction, reproduce
from tests.motley_papers.toy import EXPECTED, RECIPE, folder

PRINTED = "printed_seeds = 3\nspread_deviations = 2\n"
CELLS = EXPECTED + "table 1,power_of_choice,final,80.5,\n"


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reproduction:
    """The toy at the scale paper, its three seeds with final accuracies 71, 72 and 73 for random,
    and 60, 61 and 62 for power_of_choice."""
    recipe = read(folder(tmp_path / "toy", PRINTED + RECIPE, CELLS))
    measured = {
        ("random",): {seed: Censored(71.0 + seed, True) for seed in (0, 1, 2, 7)},
        ("power_of_choice",): {seed: Censored(60.0 + seed, True) for seed in range(3)},
    }

    def values(self: Reproduction, exhibit: object, measure: str) -> object:
        named = exhibit.name == "table 1" and measure == "final"  # type: ignore[attr-defined]
        return measured if named else {}

    monkeypatch.setattr(Reproduction, "values", values)
    return reproduce(recipe, scale="paper", out=tmp_path / "none", run=False)


def test_verdicts_by_hand(paper: Reproduction) -> None:
    """random: measured 71, 72, 73 (deviation 1), printed 71.5 with 2 deviations of 2.0, so 1 over 3
    runs: s = 1, error sqrt(2 / 3), t of 4 degrees of freedom 2.776: half 2.267, and the gap is .5
    less .05 of rounding. power_of_choice: 61 against 80.5, no deviation printed, t of 2 degrees of
    freedom 4.303: half 3.513; wider for the 3 printed cells, and far outside. Seed 7 is no seed of
    the plan."""
    exhibit = paper.exhibits[0]
    judged = judged_cells(paper, exhibit)
    random, power = (judged["final", (name,)] for name in ("random", "power_of_choice"))
    assert random.values == (71.0, 72.0, 73.0)
    assert random.half == pytest.approx(2.776 * sqrt(2 / 3), rel=1e-3)
    assert random.printed.rounding == 0.05
    assert random.verdict == "inside"  # 2.267 is no wider than the 9 points of the column
    assert power.half == pytest.approx(4.303 * sqrt(2 / 3), rel=1e-3)
    assert power.verdict == "outside"
    assert counts(paper) == {
        "printed": 3,
        "measured": 2,
        "inside": 1,
        "undecided": 0,
        "outside": 1,
    }
    assert counted_cells(paper) == "3 printed, 2 measured, 1 inside, 0 undecided, 1 outside"


def test_a_cell_with_a_seed_that_diverged_has_no_mean(
    paper: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reproduction, "cells", lambda _, exhibit: exhibit.cells("paper"))
    exhibit = paper.exhibits[0]
    seeds = {seed: Censored(72.0, True) for seed in (42, 43)}
    seen = {("random",): {**seeds, 44: Censored(nan, True)}, ("power_of_choice",): seeds}
    monkeypatch.setattr(Reproduction, "values", lambda *_: seen)
    (table,) = exhibit_tables(paper, exhibit)
    cells = {row.label: row.cells[0] for row in table.rows}
    assert cells["random"].text.split()[0] == "–"
    assert cells["power_of_choice"].text.startswith("72.00 ± 0.00")


def test_marks_and_file(paper: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reproduction, "cells", lambda _, exhibit: exhibit.cells("paper"))
    (table,) = exhibit_tables(paper, paper.exhibits[0])
    cells = {row.label: row.cells[0] for row in table.rows}
    assert cells["random"].text == "73.50 ± 3.11"  # seed 7 is shown, and not judged
    assert cells["power_of_choice"].text == "61.00 ± 1.00 !"
    assert "? undecided, ! outside" in table.note
    text = printed_cells.printed_cells_csv(paper)
    assert text.splitlines()[1:] == [
        "table 1,random,final,71.5,3,72,1,2.26696,inside",
        "table 1,power_of_choice,final,80.5,3,61,1,3.5131,outside",
    ]


def test_a_reduced_protocol_is_not_judged(paper: Reproduction) -> None:
    small = replace(paper, scale="small")
    assert judged_cells(small, small.exhibits[0]) == {}
    assert counted_cells(small) == "3 printed, none measured by the whole protocol"
    assert "cells.csv" not in number_files(replace(small, exhibits=[]))
