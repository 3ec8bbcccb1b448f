"""An interruption in a notebook returns what was finished; a single run finds its comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import motley
from motley.experiments import run as run_module
from motley.experiments import sweep

KEYS: dict[str, Any] = {
    "name": "short",
    "task": "quadratic",
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 3},
    "evaluate": {"every": 1},
}


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a cell of a notebook, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_module, "in_notebook", lambda: True)
    monkeypatch.setattr(sweep, "in_notebook", lambda: True)


def interrupt_after(rounds: int) -> Any:
    def look(done: Any) -> None:
        if done.round == rounds:
            raise KeyboardInterrupt

    return look


@pytest.mark.usefixtures("notebook")
def test_an_interrupted_run_is_returned_as_far_as_it_went(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cut = motley.run(KEYS, on_round=interrupt_after(2))
    assert not cut.finished
    assert cut.column("rounds", "round").tolist() == [1, 2]
    said = capsys.readouterr().err
    assert said == "interrupted; what was finished is kept and returned: resume=True goes on\n"
    whole = motley.run(KEYS, out="whole")
    assert motley.run(KEYS, resume=True).tables["rounds"].equals(whole.tables["rounds"])


@pytest.mark.usefixtures("notebook")
def test_an_interrupted_comparison_returns_its_finished_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(run: motley.Run) -> None:
        if run.seed == 1:
            raise KeyboardInterrupt

    found = motley.compare(KEYS, seeds=[0, 1, 2], on_end=stop, progress=False)
    assert [run.seed for run in found.runs] == [0, 1]
    assert not found.failures
    said = capsys.readouterr().err
    assert said == "interrupted: 2 of 3 runs finished and are returned; the same call goes on\n"
    assert len(motley.compare(KEYS, seeds=[0, 1, 2]).runs) == 3


def test_elsewhere_an_interruption_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def stop(run: motley.Run) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        motley.run(KEYS, on_round=interrupt_after(2))
    with pytest.raises(KeyboardInterrupt):
        motley.compare(KEYS, seeds=[5], on_end=stop)


def test_a_single_run_goes_on_with_what_a_comparison_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = motley.compare(KEYS, {"selector.name": ["uniform", "power_of_choice"]})
    chosen = {**KEYS, "selector": "power_of_choice"}
    again = motley.run(chosen, resume=True)
    assert again.directory in [run.directory for run in found.runs]
    longer = motley.run({**chosen, "stop": {"rounds": 5}}, resume=True)
    assert longer.directory == again.directory
    assert len(longer.column("rounds", "round")) == 5
    # without resume it is a run of its own, which comes first from then on
    alone = motley.run(chosen)
    assert alone.directory == Path("runs/short") / alone.meta["run_id"]
    assert motley.run(chosen, resume=True).directory == alone.directory
