"""``motley explain``: the tables it prints, ``--plan``, and mistakes in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from motley.cli import call

MINE = """
name = "mine"
population = 3
cohort = 3
stop = { rounds = 1 }
task = { name = "image", data = "digits", model = "linear" }
partition = { name = "dirichlet", alpha = 0.3 }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "theirs.toml").write_text(f'weights = "uniform"\nengine = "sequential"\n{MINE}')
    return tmp_path


def test_a_plan_runs_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["explain", "mine.toml", "theirs.toml", "--seeds", "0,1", "--plan"]) == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()]
    assert ["weights", "examples", "uniform", "weights"] in rows
    assert ["engine.name", "auto", "sequential", "rounding", "alone"] in rows
    assert "motley: 4 runs: A and B: there is one cause, each with 2 seeds (0, 1)" in printed.err
    assert not (here / "runs").exists()


def test_the_tables_and_where_they_are_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["explain", "mine.toml", "theirs.toml"]) == 0
    printed = capsys.readouterr()
    assert "accuracy, 95 % interval" in printed.out
    assert "B - A" in printed.out
    (page,) = here.glob("runs/mine-explained/*/explanation.md")
    assert f"explanation: {page.relative_to(here)}" in printed.out
    assert "motley: note: one seed has no interval" in printed.err
    assert call(["explain", "mine.toml", "theirs.toml"]) == 0
    assert "motley: 2 of 2 runs are there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["mine.toml"], "expected either a second experiment or changes of the first, e.g. motley"),
        (["mine.toml", "mine.toml"], "A and B are the same experiment (run id "),
        (["mine.toml", "their.toml"], "there is no file 'their.toml' (did you mean 'theirs.toml'?"),
        (
            ["mine.toml", "theirs.toml", "--metric", "f1"],
            "--metric: A does not measure 'f1'; it measures accuracy and loss, and more with --set",
        ),
        (
            ["mine.toml", "theirs.toml", "--runs", "1"],
            "--runs: got 1; of the causes (weights) one at a time from both ends takes 2",
        ),
        (["mine.toml", "--change", "weights"], "--change: got 'weights'; expected key=value"),
    ],
)
def test_mistakes_in_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert call(["explain", *argv]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"motley: {message}")
    assert printed.err.count("\n") == 1
    assert not (here / "runs").exists()
