"""The verdicts on the printed numbers of a recipe's exhibits."""

from __future__ import annotations

from dataclasses import replace
from math import nan, sqrt
from pathlib import Path

import pytest

from motley.core.errors import ConfigError
from motley.results.measures import Censored
from motley_papers import printed_cells
from motley_papers.number_files import number_files
from motley_papers.printed_cells import counted_cells, counts, explanations, judged_cells
from motley_papers.recipe import Exhibit, read
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
        "explained": 0,
    }
    assert counted_cells(paper) == "3 printed, 2 measured, 1 inside, 0 undecided, 1 outside"


def test_a_cell_with_a_seed_that_diverged_is_not_judged(
    paper: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mean that is no number has no difference, which must not count as one of 0."""
    seen = {("random",): {0: Censored(nan, True), 1: Censored(1.0, True)}}
    monkeypatch.setattr(Reproduction, "values", lambda *_: seen)
    assert judged_cells(paper, paper.exhibits[0]) == {}
    assert counts(paper)["measured"] == 0


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


@pytest.fixture
def explaining(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reproduction:
    """The toy, whose figure 1 repairs power_of_choice: 80, 80.5 and 81 in place of 60, 61, 62."""
    explains = 'explains = { "random" = { exhibit = "table 1", cell = "power_of_choice" } }\n'
    text = (PRINTED + RECIPE).replace(
        'like = "table 1"\n', 'like = "table 1"\nmeasures = ["final"]\n' + explains
    )
    recipe = read(folder(tmp_path / "toy", text, CELLS))
    measured = {
        "table 1": {("power_of_choice",): (60.0, 61.0, 62.0)},
        "figure 1": {("random",): (80.0, 80.5, 81.0), ("power_of_choice",): (1.0, 2.0, 3.0)},
    }

    def values(self: Reproduction, exhibit: Exhibit, measure: str) -> object:
        return {
            cell: {seed: Censored(value, True) for seed, value in enumerate(numbers)}
            for cell, numbers in measured.get(exhibit.name, {}).items()
        }

    monkeypatch.setattr(Reproduction, "values", values)
    return reproduce(recipe, scale="paper", out=tmp_path / "none", run=False)


def test_a_cell_outside_is_explained_by_a_repaired_one_that_is_inside(
    explaining: Reproduction,
) -> None:
    """Against the printed 80.5 three runs of deviation .5 and of mean 80.5 are inside."""
    exhibit = explaining.exhibits[0]
    judged = judged_cells(explaining, exhibit)
    assert explanations(explaining, exhibit, judged) == {
        ("final", ("power_of_choice",)): "figure 1 / random"
    }
    assert counted_cells(explaining) == (
        "3 printed, 1 measured, 0 inside, 0 undecided, 1 outside (1 explained)"
    )


def test_the_table_names_the_cell_that_explains(
    explaining: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reproduction, "cells", lambda _, exhibit: exhibit.cells("paper"))
    (table,) = exhibit_tables(explaining, explaining.exhibits[0])
    assert "Explained: power_of_choice, final, by figure 1 / random, which is inside." in table.note


@pytest.mark.parametrize("repaired", [(70.0, 70.5, 71.0), (75.0, 80.0, 86.0)], ids=str)
def test_a_repaired_cell_that_is_not_inside_explains_nothing(
    explaining: Reproduction, monkeypatch: pytest.MonkeyPatch, repaired: tuple[float, ...]
) -> None:
    """Of mean 70.5, and of a deviation that leaves open what it is."""
    before = Reproduction.values

    def values(self: Reproduction, exhibit: Exhibit, measure: str) -> object:
        cells = before(self, exhibit, measure)
        if exhibit.name == "figure 1":
            cells["random",] = {s: Censored(v, True) for s, v in enumerate(repaired)}
        return cells

    monkeypatch.setattr(Reproduction, "values", values)
    assert counts(explaining)["outside"] == 1
    assert counts(explaining)["explained"] == 0


@pytest.mark.parametrize(
    ("explains", "problem"),
    [
        (
            '{ "oort" = { exhibit = "table 1", cell = "random" } }',
            "figure 1: explains: got 'oort', which is no cell of it",
        ),
        (
            '{ "random" = { exhibit = "table 2", cell = "0.3 / random" } }',
            "figure 1: explains: expected.csv has no number of table 2, 0.3 / random",
        ),
    ],
)
def test_an_explanation_of_no_printed_cell(tmp_path: Path, explains: str, problem: str) -> None:
    text = RECIPE.replace('like = "table 1"\n', f'like = "table 1"\nexplains = {explains}\n')
    with pytest.raises(ConfigError, match=problem):
        read(folder(tmp_path / "toy", text))
