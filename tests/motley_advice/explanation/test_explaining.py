"""Explanations that are run: shares that add up, runs that are there already, kills, printed
numbers, files."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError, UserError
from motley.tasks import from_clients, own_task
from motley_advice.explanation import compared_results, explaining
from motley_advice.explanation.causes import KeyDifference
from motley_advice.explanation.compared_results import Reading
from motley_advice.explanation.explaining import Explanation, explain, figure_of
from motley_advice.explanation.explanation_plan import plan_of
from motley_advice.explanation.explanation_tables import notes, share_table, write_explanation
from tests.motley.results import fake

KEYS: dict[str, Any] = {
    "name": "mine",
    "population": 3,
    "cohort": 3,
    "stop": {"rounds": 1},
    "task": {"name": "image", "data": "digits", "model": "linear"},
    "partition": {"name": "dirichlet", "alpha": 0.3},
}
OTHER = {**KEYS, "name": "theirs", "weights": "uniform", "local": {"steps": 3}}


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Explanation:
    """Two causes, two seeds: four combinations, eight runs."""
    return explain(KEYS, OTHER, seeds=[0, 1], out=tmp_path_factory.mktemp("out"))


def test_two_causes_add_up_to_the_difference_of_every_seed(explained: Explanation) -> None:
    names = [cause.name for cause in explained.plan.causes]
    assert names == ["local work", "weights"]
    difference = explained.ends[1] - explained.ends[0]
    assert np.abs(difference).min() > 0
    assert explained.shares.each.sum(axis=0) == pytest.approx(difference, abs=1e-12)
    assert explained.rerun.tolist() == [0.0, 0.0]
    first = motley.load(explained.runs[frozenset()][1].directory)
    assert explained.figures[frozenset()][1] == motley.results.measures.ends_of(first).final
    assert first.seed == 1


def test_settings_have_what_their_names_say(explained: Explanation) -> None:
    weights = explained.runs[frozenset({1})][0].config
    assert (weights["weights"], weights["local"]["steps"]) == ("uniform", None)
    both = explained.runs[frozenset({0, 1})][0].config
    assert (both["weights"], both["local"]["steps"], both["name"]) == ("uniform", 3, "theirs")
    names = [explained.plan.name(combination) for combination in explained.plan.combinations]
    assert names == ["A", "A with local work of B", "A with weights of B", "B"]


def test_the_table_and_the_files(explained: Explanation, tmp_path: Path) -> None:
    table = share_table(explained)
    labels = [row.label for row in table.rows]
    assert labels[0] == "A"
    assert set(labels[1:3]) == {"local work", "weights"}
    assert labels[3:] == ["B", "B - A"]
    shown = {row.label: row.cells[0].value for row in table.rows}
    assert shown["A"] + shown["local work"] + shown["weights"] == pytest.approx(shown["B"])
    assert table.note.startswith(
        "Shapley values over all combinations, paired over the seeds 0, 1."
    )
    (line,) = notes(explained)
    assert line.startswith("changed alone from A the causes add up to ")
    page = write_explanation(replace(explained, directory=tmp_path)).read_text()
    assert "| weights | examples | uniform | weights |" in page
    assert "| local steps |" in page  # as measured
    figures = list(csv.reader((tmp_path / "figures.csv").read_text().splitlines()))
    assert figures[0] == ["combination", "seed", "accuracy", "run"]
    assert len(figures) == 9
    causes = list(csv.reader((tmp_path / "causes.csv").read_text().splitlines()))
    assert [row[:3] for row in causes[1:3]] == [
        ["local work", "local.epochs local.steps", "0"],
        ["local work", "local.epochs local.steps", "1"],
    ]
    assert (tmp_path / "explanation.html").exists()


def with_figures(explained: Explanation, *figures: tuple[set[int], list[float]]) -> Explanation:
    """The explanation with other figures, by combination."""
    given = replace(explained)
    given.__dict__["figures"] = {
        frozenset(combination): np.array(values) for combination, values in figures
    }
    return given


def test_intervals_and_shares_by_hand(explained: Explanation) -> None:
    """Two seeds: local work adds .1 and .2, weights .3 and .4, together .4 and .6. The mean of two
    differences x and y has the 95 % interval of half-width 12.706 |x - y| / 2; of two comparisons
    97.5 %, 25.452."""
    figures = (({*()}, [0.1, 0.1]), ({0}, [0.2, 0.3]), ({1}, [0.4, 0.5]), ({0, 1}, [0.5, 0.7]))
    table = share_table(with_figures(explained, *figures))
    rows = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert list(rows) == ["A", "weights", "local work", "B", "B - A"]
    assert rows["weights"] == ["+0.3500 (-0.9226 to +1.6226)", "–", "+0.3500", "+0.3500"]
    assert rows["B - A"][0] == "+0.5000 (-0.7706 to +1.7706)"
    assert table.note.endswith("No shares: the difference as a whole may be chance.")
    sure = (({*()}, [0.1, 0.1]), ({0}, [0.2, 0.21]), ({1}, [0.4, 0.4]), ({0, 1}, [0.5, 0.51]))
    table = share_table(with_figures(explained, *sure))
    rows = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert [rows[label][1] for label in ("weights", "local work", "B - A")] == [
        *("74 %", "26 %", "100 %")
    ]


def test_what_a_rerun_does_not_give_back_has_a_row_of_its_own(explained: Explanation) -> None:
    """B's stored runs are taken for A's: then A and B are alike as observed."""
    wrong = dict(zip((0, 1), explained.runs[frozenset({0, 1})], strict=True))
    plan = replace(explained.plan, a=replace(explained.plan.a, stored=wrong))
    odd = replace(explained, plan=plan)
    difference = explained.ends[1] - explained.ends[0]
    assert odd.rerun == pytest.approx(-difference)
    rows = {row.label: row.cells[0].value for row in share_table(odd).rows}
    assert rows["versions, machine or files"] == pytest.approx(-difference.mean())
    assert rows["B - A"] == 0.0


def killed_at(words: str) -> Callable[[str], None]:
    def hear(line: str) -> None:
        if words in line:
            raise KeyboardInterrupt

    return hear


def test_a_killed_explanation_goes_on(explained: Explanation, tmp_path: Path) -> None:
    how: dict[str, Any] = {"out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        explain(KEYS, OTHER, say=killed_at("the 3 others take about"), **how)
    (record,) = tmp_path.glob("*/*/run.json")
    before = record.stat().st_mtime_ns
    lines: list[str] = []
    again = explain(KEYS, OTHER, say=lines.append, **how)
    assert "1 of 4 runs are there already" in lines
    assert record.stat().st_mtime_ns == before
    assert again.figures.keys() == explained.figures.keys()
    for combination, values in again.figures.items():
        assert values.tolist() == explained.figures[combination][:1].tolist()


def test_a_killed_explanation_of_another_end_goes_on(tmp_path: Path) -> None:
    """A longer run has the same id."""
    how: dict[str, Any] = {"changes": ["stop.rounds=2"], "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        explain(KEYS, say=killed_at("the 1 others take about"), **how)
    explanation = explain(KEYS, **how)
    ends = [runs[0].tables["rounds"].num_rows for runs in explanation.runs.values()]
    assert ends == [1, 2]


def test_stored_runs_are_used_unless_they_are_of_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, keys in (("a", KEYS), ("b", {**KEYS, "weights": "uniform"})):
        motley.run(keys, out=tmp_path / name)
    later = motley.Experiment(**{**KEYS, "seed": 1})
    motley.run(later, out=tmp_path / later.run_id())
    lines: list[str] = []
    how: dict[str, Any] = {"out": tmp_path / "out", "say": lines.append}
    explanation = explain(tmp_path / "a", tmp_path / "b", **how)
    assert lines[1:] == ["2 of 2 runs are there already"]
    assert explanation.runs[frozenset()][0].directory == tmp_path / "a"
    assert explanation.rerun.tolist() == [0.0]
    assert "one seed has no interval" in notes(explanation)[0]
    explain(tmp_path / "a", tmp_path / "b", seeds=[0, 1], **how)  # seed 1 of A lies beside
    assert "3 of 4 runs are there already" in lines
    now = compared_results.installed_versions()
    monkeypatch.setattr(compared_results, "installed_versions", lambda: {**now, "torch": "0.0"})
    explanation = explain(tmp_path / "a", tmp_path / "b", **how)
    assert any("A was run under other versions (" in line for line in lines)
    assert any("here 0.0): both are run again here" in line for line in lines)
    assert explanation.runs[frozenset()][0].directory != tmp_path / "a"
    assert explanation.rerun.tolist() == [0.0]


STRIDE = """
from dataclasses import dataclass
import motley

@dataclass(frozen=True)
class Stride(motley.selectors.Uniform):
    def select(self, state, context):
        return motley.Cohort(context.available[START::2][: context.m])
"""


@pytest.fixture
def two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders with an experiment, a module of one name and two contents, and the run of both,
    each made where its module is found; the first is the working folder."""
    folders = (tmp_path / "one", tmp_path / "two")
    for start, folder in enumerate(folders):
        folder.mkdir()
        (folder / "explained_stride.py").write_text(STRIDE.replace("START", str(start)))
        selector = 'population = 4\ncohort = 1\nselector = "explained_stride:Stride"\n'
        keys = 'stop = { rounds = 1 }\ntask = { name = "image", data = "digits" }\n'
        (folder / "mine.toml").write_text(selector + keys)
    code = "import motley; motley.run('mine.toml', out='run', allow_import=True)"
    subprocess.run([sys.executable, "-c", code], cwd=folders[1], check=True)
    monkeypatch.chdir(folders[0])
    monkeypatch.syspath_prepend(folders[0])
    motley.run("mine.toml", out="run", allow_import=True)
    return folders


def test_other_code_under_the_same_name_is_said(two_folders: tuple[Path, Path]) -> None:
    first, second = two_folders
    runs = (first / "run", second / "run")
    message = (
        r"all keys of A and B are alike \(run id \w{12}\), and B was run on other files or code "
        r"than there are now: .*; other code under another name of its file is a cause"
    )
    with pytest.raises(ConfigError, match=message):
        explain(*runs, allow_import=True)
    unread = f"{second / 'explained_stride.py'} is not read: explained_stride is {first}"
    with pytest.raises(ConfigError, match=f"are the same experiment .*; {re.escape(unread)}"):
        explain("mine.toml", second / "mine.toml", allow_import=True)
    (second / "mine.toml").write_text('weights = "uniform"\n' + Path("mine.toml").read_text())
    with motley.core.components.imports(True):
        told = plan_of("mine.toml", second / "mine.toml").sentences()
        alone = plan_of("mine.toml", changes=["weights=uniform"]).sentences()
    assert sum(line.startswith(unread) for line in told) == 1
    assert not any("is not read" in line for line in alone)


def test_equal_keys_under_other_versions_are_not_called_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        motley.run(KEYS, out=tmp_path / name)
    with pytest.raises(ConfigError, match="A and B are the same experiment"):
        explain(tmp_path / "a", tmp_path / "b")
    now = compared_results.installed_versions()
    monkeypatch.setattr(compared_results, "installed_versions", lambda: {**now, "torch": "0.0"})
    with pytest.raises(ConfigError, match=r"are alike .*, and A was run under other versions \("):
        explain(tmp_path / "a", tmp_path / "b")


def test_how_far_changes_bring_a_run_to_a_printed_number(tmp_path: Path) -> None:
    explanation = explain(
        KEYS,
        changes=["weights=uniform", "local.optimizer.lr=0.1"],
        printed=0.95,
        out=tmp_path,
    )
    rows = {row.label: row.cells for row in share_table(explanation).rows}
    assert list(rows)[-3:] == ["B", "printed", "unexplained"]
    reached = explanation.ends[1].mean()
    assert rows["unexplained"][0].value == pytest.approx(0.95 - reached)
    gap = 0.95 - explanation.ends[0].mean()
    rate = explanation.shares.each[0].mean()
    assert rows["learning rate"][1].text == f"{100 * rate / gap:.0f} %"
    means = {s: values.mean() for s, values in explanation.figures.items()}
    nearest = min(means, key=lambda combination: abs(means[combination] - 0.95))
    assert (
        f"nearest to the print of 4 combinations: {explanation.plan.name(nearest)}"
        in notes(explanation)[-1]
    )


@pytest.mark.parametrize(
    "options", [{"round": "last,best"}, {"metric": "loss"}, {"changes": ["weights=uniform"]}]
)
def test_another_question_has_a_page_of_its_own_and_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {**KEYS, "name": "asked"}
    how = {"changes": ["weights=uniform"]}
    first = explain(keys, **how, printed=0.9 if "changes" in options else None)
    page = write_explanation(first)
    text = page.read_text()
    lines: list[str] = []
    other = write_explanation(explain(keys, **{**how, **options}, say=lines.append))
    assert "2 of 2 runs are there already" in lines
    assert other != page
    assert page.read_text() == text
    assert len(list(tmp_path.glob("runs/*/*/*/*/run.json"))) == 2


def test_the_page_of_another_question_is_not_written_over(tmp_path: Path) -> None:
    how: dict[str, Any] = {"changes": ["weights=uniform"], "out": tmp_path}
    page = write_explanation(explain(KEYS, **how))
    write_explanation(explain(KEYS, **how, seeds=[0]))  # the same one goes on
    text = page.read_text()
    with pytest.raises(ConfigError, match=r"^--out: .*explanation\.md explains another difference"):
        explain(KEYS, **how, metric="loss")
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("runs", "unexplained", "shares"),
    [
        (1, "+0.4000 (-0.7004 to +1.5004)", False),
        (3, "+0.4000 (-0.4202 to +1.2202)", False),
        (10, "+0.4000 (-0.2959 to +1.0959)", True),
    ],
)
def test_a_print_has_chance_of_its_own(
    tmp_path: Path, runs: int, unexplained: str, shares: bool
) -> None:
    """Of .1 and .2 (A), .5 and .6 (B), the deviation is .070711: with one degree of freedom their
    difference from a print of k runs has the half-width 12.7062 x .070711 x sqrt(1/2 + 1/k), that
    is 1.1004, .8202 and .6959 for 1, 3 and 10 runs. From A to the print .95 are .8."""
    plan = plan_of(KEYS, changes=["weights=uniform"], seeds=[0, 1], printed=0.95, printed_runs=runs)
    figures = (({*()}, [0.1, 0.2]), ({0}, [0.5, 0.6]))
    table = share_table(with_figures(Explanation(plan, {}, tmp_path), *figures))
    rows = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert rows["unexplained"][:2] == [unexplained, "50 %" if shares else "–"]
    assert rows["weights"][1] == ("50 %" if shares else "–")
    behind = "1 run" if runs == 1 else f"{runs} runs"
    assert f"chance of its own, as the mean of {behind} (--printed-runs)" in table.note
    assert ("No shares: the difference as a whole may be chance." in table.note) != shares


@pytest.mark.parametrize(
    ("printed", "share"), [("0.93", "–"), (0.93, "–"), ("0.930", "150 %"), ("93.0e-2", "150 %")]
)
def test_a_print_is_rounded(tmp_path: Path, printed: float | str, share: str) -> None:
    """From .934 to .93 it is .004: less than half a unit of its second digit, and more than half of
    one of its third. A change of -.006 is 150 % of that."""
    plan = plan_of(KEYS, changes=["weights=uniform"], seeds=[0, 1], printed=printed)
    figures = (({*()}, [0.934, 0.934]), ({0}, [0.928, 0.928]))
    table = share_table(with_figures(Explanation(plan, {}, tmp_path), *figures))
    rows = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert rows["weights"][1] == share
    rounding = "0.005" if share == "–" else "0.0005"
    assert f"is rounded by up to {rounding}." in table.note


def test_the_best_round_needs_no_more_runs(tmp_path: Path) -> None:
    keys = {**KEYS, "evaluate": {"every": 1}, "stop": {"rounds": 3}}
    changes = ["local.optimizer.lr=3.0"]
    explanation = explain(keys, changes=changes, round="last,best", out=tmp_path)
    assert [cause.name for cause in explanation.plan.causes] == ["learning rate", "which round"]
    assert len(list(tmp_path.glob("*/*/run.json"))) == 2
    last, best = (explanation.figures[frozenset(combination)][0] for combination in ({0}, {0, 1}))
    assert best >= last
    assert not any("by construction" in line for line in notes(explanation))
    line = (
        "the best round is the last one by construction in A with which round of B and B: evaluated"
    )
    for rounds, told in ((1, 0), (2, 1)):  # a run of one round has no other to evaluate
        keys = {**KEYS, "stop": {"rounds": rounds}}
        once = explain(keys, changes=changes, round="last,best", out=tmp_path)
        assert sum(note.startswith(line) for note in notes(once)) == told


def test_planted_causes_carry_what_was_planted(tmp_path: Path) -> None:
    """One weight w from 0 and two clients, three samples with the target 1 and one with 5, all with
    the input 1: full batches of half the squared error give w = a (1 - (1 - lr)^E), where a is 2 by
    samples and 3 alike. The test target is 0, so the loss is w^2 / 2: with lr .5 or .75 and E 1 or
    2 the factor of a is .5, .75, .75 and .9375. Of the eight w^2 1, 2.25, 2.25, 2.25, 5.0625,
    5.0625, 3.515625 and 7.910156, a third of 1.25, a sixth of twice 2.8125 and a third of 4.394531
    are the weights' 2.819010; a third of 1.25, a sixth of 2.8125 and 1.265625, and a third of
    2.847656 the rate's 2.045573, and the work's."""

    def model() -> torch.nn.Module:
        linear = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(linear.weight)
        return linear

    targets = [np.full((3, 1), 1.0, np.float32), np.full((1, 1), 5.0, np.float32)]
    test = torch.utils.data.TensorDataset(torch.ones(2, 1), torch.zeros(2, 1))
    federation = from_clients([(np.ones_like(y), y) for y in targets], test=test, regression=True)
    keys: dict[str, Any] = {
        "name": "planted",
        "task": own_task(federation, model),
        "participation": 1.0,
        "stop": {"rounds": 1},
        "local": {"epochs": 1, "batch_size": 3, "optimizer": {"lr": 0.5}},
    }
    other = {
        **keys,
        "weights": "uniform",
        "local": {"epochs": 2, "batch_size": 3, "optimizer": {"lr": 0.75}},
    }
    explanation = explain(keys, other, metric="loss", out=tmp_path)
    carried = {
        cause.name: shares[0]
        for cause, shares in zip(explanation.plan.causes, explanation.shares.each, strict=True)
    }
    planted = {"weights": 2.819010 / 2, "learning rate": 2.045573 / 2, "local work": 2.045573 / 2}
    assert carried == pytest.approx(planted, rel=1e-5)
    ends = [float(figure[0]) for figure in explanation.ends]
    assert ends == pytest.approx([0.5, 7.910156 / 2])


def test_a_seed_without_a_number_is_left_out(explained: Explanation) -> None:
    figures = [({*s}, values.tolist()) for s, values in explained.figures.items()]
    part = with_figures(explained, *figures)
    part.figures[frozenset({1})][0] = np.nan
    assert part.counted == [1]
    assert part.shares.each.shape == (2, 1)
    assert notes(part)[0] == (
        "left out: seeds 0, of which a run ended without a number (A with weights of B)"
    )


def test_where_no_seed_has_a_number_nothing_is_divided(
    explained: Explanation, tmp_path: Path
) -> None:
    figures = (({*()}, [0.1, 0.1]), ({0}, [0.2, 0.2]), ({1}, [np.nan] * 2), ({0, 1}, [0.5, 0.5]))
    part = replace(with_figures(explained, *figures), directory=tmp_path)
    part.__dict__["figures"] = with_figures(explained, *figures).figures
    rows = {row.label: [cell.text for cell in row.cells] for row in share_table(part).rows}
    assert rows["weights"] == ["–"] * 4
    assert notes(part)[0].startswith("left out: seeds 0, 1, of which a run ended without a number")
    assert "| weights | – | – | – | – |" in write_explanation(part).read_text()


def test_what_several_causes_do_together_has_a_row_where_not_all_is_run(tmp_path: Path) -> None:
    """Four causes act only together, and from B each is missed: shares .25 each of 0.5 lost."""
    changes = ["weights=uniform", "local.batch_size=8", "local.epochs=2", "local.optimizer.lr=0.1"]
    plan = plan_of(KEYS, changes=changes, runs=10)
    figures = [({*c}, [0.5 if len(c) == 4 else 0.0]) for c in plan.combinations]
    explanation = with_figures(Explanation(plan, {}, tmp_path), *figures)
    rows = {row.label: [cell.text for cell in row.cells] for row in share_table(explanation).rows}
    assert rows["weights"] == ["+0.2500", "50 %", "+0.0000", "+0.5000"]
    assert rows["several causes together"][:2] == ["-0.5000", "-100 %"]
    assert share_table(explanation).note.startswith(
        "Means of the changes of one cause from A and from B"
    )
    assert (
        "changed alone the causes add up to +0.0000 from A and to +2.0000 from B; what the mean of "
        "both leaves of B - A is the row 'several causes together'"
    ) in notes(explanation)
    assert not any("come of changing several" in line for line in notes(explanation))


def test_stored_seeds_that_are_not_compared_count_as_chance(
    explained: Explanation, tmp_path: Path
) -> None:
    """A has the seeds 0 and 1, B seed 0 alone: of B minus A with their own seeds, chance is what
    seed 1 does to A's mean."""
    plan = replace(
        explained.plan,
        a=replace(
            explained.plan.a,
            seeds=(0, 1),
            stored=dict(zip((0, 1), explained.runs[frozenset()], strict=True)),
        ),
        b=replace(explained.plan.b, seeds=(0,)),
        seeds=(0,),
    )
    runs = {combination: runs[:1] for combination, runs in explained.runs.items()}
    first, second = explained.figures[frozenset()]
    b = explained.figures[frozenset({0, 1})][0]
    line = notes(replace(explained, plan=plan, runs=runs))[0]
    assert line == (
        f"each with its own seeds, B - A is {b - (first + second) / 2:+.4f}; "
        f"{first - (first + second) / 2:+.4f} of it is chance, for it goes with the same seeds"
    )
    without = replace(plan, a=replace(plan.a, stored={}))
    lines = notes(replace(explained, plan=without, runs=runs))
    assert not any("with its own seeds" in line for line in lines)


def test_a_run_that_was_killed_is_said(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        motley.run(KEYS, out=tmp_path / "killed", on_round=interrupted)
    planned = plan_of(tmp_path / "killed" / "run.json", changes=["weights=uniform"])
    assert "A was not finished with seed 0, and counts as it is made here" in planned.sentences()
    assert planned.a.stored == {}


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_other_test_samples_are_said(tmp_path: Path) -> None:
    explanation = explain(KEYS, changes=["split.test_fraction=0.4"], out=tmp_path)
    line = "on other test samples, for split.test_fraction decides which"
    assert any(line in s for s in notes(explanation))


@pytest.mark.parametrize(
    ("changes", "deciding"),
    [
        (["task.scale=unit", "task.model=digits_mlp"], ""),
        (["partition.alpha=3.0"], "partition.alpha decides"),
        (["partition.alpha=3.0", "split.test=global"], "partition.alpha and split.test decide"),
        (["concept_shift=swap"], "concept_shift decides"),
    ],
)
def test_which_keys_decide_the_test_samples(
    changes: list[str], deciding: str, tmp_path: Path
) -> None:
    plan = plan_of(KEYS, changes=changes, seeds=[0, 1])
    figures = ((set(combination), [0.5, 0.6]) for combination in plan.combinations)
    told = [
        line
        for line in notes(with_figures(Explanation(plan, {}, tmp_path), *figures))
        if "other test samples" in line
    ]
    assert len(told) == bool(deciding)
    assert all(f"other test samples, for {deciding} which" in line for line in told)


def test_a_partition_decides_no_common_test_samples(tmp_path: Path) -> None:
    common = {**KEYS, "split": {"test": "global"}}
    plan = plan_of(common, changes=["partition.alpha=3.0"], seeds=[0, 1])
    figures = ((set(combination), [0.5, 0.6]) for combination in plan.combinations)
    lines = notes(with_figures(Explanation(plan, {}, tmp_path), *figures))
    assert not any("test samples" in line for line in lines)


def test_what_is_chance_where_the_seeds_differ(tmp_path: Path) -> None:
    """A with seed 0 has .5, B with seed 1 .9; over both seeds B has .1 more: .3 are the seeds'."""
    plan = plan_of(KEYS, {**KEYS, "seed": 1, "weights": "uniform"})
    figures = (({*()}, [0.5, 0.8]), ({0}, [0.6, 0.9]))
    explanation = with_figures(Explanation(plan, {}, tmp_path), *figures)
    assert notes(explanation)[0] == (
        "each with its own seeds, B - A is +0.4000; +0.3000 of it is chance, for it goes with the "
        "same seeds"
    )


def test_an_option_that_acts_on_nothing_is_told(explained: Explanation, tmp_path: Path) -> None:
    """A uniform selector asks for no probe."""
    changes = ["probe.batches=3", "weights=uniform"]
    explanation = explain(KEYS, changes=changes, seeds=[0, 1], out=tmp_path)
    table = share_table(explanation)
    cells = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert cells["probe.batches"] == ["+0.0000", "changes nothing", "+0.0000", "+0.0000"]
    assert cells["weights"][1] != "changes nothing"
    assert "Changes nothing: with and without it every recorded figure is equal" in table.note
    assert explained.without_effect == []
    assert "hanges nothing" not in share_table(explained).note


def test_a_figure_that_is_equal_by_chance_is_no_proof(explained: Explanation) -> None:
    """Accuracies are alike, and losses are not."""
    alike = with_figures(explained, *((set(c), [0.5, 0.5]) for c in explained.runs))
    assert alike.without_effect == []
    same = replace(explained, runs=dict.fromkeys(explained.runs, explained.runs[frozenset()]))
    assert same.without_effect == []  # one run, however it is read


def test_runs_that_learned_nothing_are_told(tmp_path: Path) -> None:
    changes = ["local.optimizer.lr=1e30", "weights=uniform"]
    explanation = explain(KEYS, changes=changes, seeds=[0, 1], out=tmp_path)
    told = [line for line in notes(explanation) if "nothing was learned" in line]
    nothing = "seeds 0, 1: no upload was accepted in 1 of 1 rounds (round 1)"
    assert [line.partition(", and ")[0] for line in told] == [
        f"A with learning rate of B, {nothing}",
        f"B, {nothing}",
    ]
    assert all(
        line.endswith("; seeds 0, 1 count with the untrained model's figure") for line in told
    )
    page = write_explanation(explanation).read_text()
    assert "A with learning rate of B, seeds 0, 1: no upload was accepted" in page


def test_evaluations_at_which_the_guard_went_back_are_no_longer_without_effect(
    explained: Explanation,
) -> None:
    (run, *more) = explained.runs[frozenset()]
    rounds = run.tables["rounds"]
    place = rounds.column_names.index("notes")
    noted = rounds.set_column(place, "notes", [['{"model_restored": 1.0}']])
    odd = replace(run, tables={**run.tables, "rounds": noted})
    runs = {**explained.runs, frozenset(): [odd, *more]}
    every = KeyDifference("evaluate.every", 10, 1)
    line = "the guard went back to models of earlier evaluations, so that evaluate.every, in which"
    for harmless, told in (([every], 1), ([], 0)):
        part = replace(explained, runs=runs, plan=replace(explained.plan, harmless=harmless))
        assert sum(note.startswith(line) for note in notes(part)) == told
    same = replace(explained, plan=replace(explained.plan, harmless=[every]))
    assert not any(note.startswith(line) for note in notes(same))


def test_a_task_of_ones_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(12, 3)).astype("float32"), np.arange(12) % 2) for _ in range(3)]
    task = own_task(from_clients(clients), lambda: torch.nn.Linear(3, 2))
    keys = {"task": task, "cohort": 3, "stop": {"rounds": 1}}
    changes = ["weights=uniform", "local.optimizer.lr=0.5"]
    explanation = explain(keys, changes=changes, metric="loss", out=tmp_path)
    assert [cause.name for cause in explanation.plan.causes] == ["learning rate", "weights"]
    assert explanation.shares.each[1].tolist() == [0.0]  # clients of equal sizes
    assert explanation.shares.each[0] != 0.0


def test_runs_that_were_not_computed_alike_are_named(explained: Explanation) -> None:
    (run, *more) = explained.runs[frozenset()]
    odd = replace(run, meta={**run.meta, "numerics": {**run.meta["numerics"], "threads": 64}})
    part = replace(explained, runs={**explained.runs, frozenset(): [odd, *more]})
    assert "not all runs were computed alike (threads 64 and " in notes(part)[-1]


def test_a_run_that_fails_stops_the_explanation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = explaining.Point("A", motley.Experiment(**KEYS))
    failure = motley.experiments.sweep.Failure(point, ConfigError("no such thing", "task"))
    monkeypatch.setattr(explaining, "run_points", lambda **_: ([], [failure]))
    message = r"A, seed 0: task: no such thing; the explanation stops here, and the same command"
    with pytest.raises(UserError, match=message):
        explain(KEYS, OTHER, out=tmp_path)


def test_a_scope_that_was_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"--scope: got 'validation', of which .* there are: client, m"
    ):
        explain(KEYS, OTHER, scope="mean,validation", out=tmp_path)
    assert len(list(tmp_path.glob("*/*/run.json"))) == 1


def test_folders_that_are_no_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    broken = tmp_path / "broken.toml"
    broken.write_text("cohort = = 3\n")
    with pytest.raises(ConfigError, match=r"broken.toml, line 1, column 10: not valid TOML"):
        explain(broken, KEYS)
    with pytest.raises(UserError, match="there are no runs in"):
        explain(tmp_path, KEYS)
    with pytest.raises(ConfigError, match="there is no run 0123456789ab below runs"):
        explain("0123456789ab", KEYS)
    grid = {"weights": ["examples", "uniform"]}
    motley.compare({**KEYS, "stop": {"rounds": 2}}, grid, out=tmp_path / "both")
    with pytest.raises(ConfigError, match=r"both has runs of 2 methods \(weights examples and w"):
        explain(tmp_path / "both", KEYS)
    run_id = next((tmp_path / "both" / "uniform").iterdir()).name
    (tmp_path / "both").rename(tmp_path / "runs")
    explanation = explain(run_id, KEYS, on_plan=lambda plan: None, out=tmp_path / "out")
    assert [cause.name for cause in explanation.plan.causes] == ["weights", "end of the run"]


def test_a_scope_that_was_ruined_in_the_end_has_no_figure() -> None:
    """The clients' own models have a loss in round 2, the shared one has none any more: 0.5 of
    round 1 is not its end."""
    rows = [(1, "mean", 0.4), (2, "mean", 0.3), (1, "shared_mean", 0.5), (2, "shared_mean", None)]
    rounds, scopes, losses = map(list, zip(*rows, strict=True))
    table = fake.table("evaluations", round=rounds, scope=scopes, client=[-1] * 4, loss=losses)
    run = fake.run({"split": {"test": "client"}}, {"metric": "loss"}, evaluations=table)
    assert figure_of(run, Reading("loss")) == 0.3
    assert np.isnan(figure_of(run, Reading("loss", scope="shared_mean")))


def test_noise_of_a_seed_is_in_no_interval_and_that_is_said(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    private = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 8.0, "noise_seed": 0}
    keys = {
        "task": "quadratic",
        "population": 4,
        "cohort": 2,
        "partition": "by_writer",
        "local": {"steps": 1},
        "stop": {"rounds": 1},
        "weights": "uniform",
    }
    louder = {**private, "noise_multiplier": 2.0}
    made = explain(
        {**keys, "privacy": private}, {**keys, "privacy": louder}, seeds=[0, 1], out=tmp_path
    )
    said = "add the same noise under every seed: the intervals hold none of it"
    assert any(said in line for line in notes(made))
