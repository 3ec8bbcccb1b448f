"""What objects show at a prompt and in a notebook, and what is printed at the end."""

from __future__ import annotations

import io
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import motley
from motley.core.card import html_rows
from motley.core.errors import ConfigError
from motley.experiments import run, sweep
from motley.experiments.config import Experiment
from motley.experiments.progress import ProgressText
from motley.experiments.shown import in_cell
from motley.rounds.run_config import RoundSummary
from motley.tasks import from_clients, own_task

KEYS: dict[str, Any] = {
    "name": "who",
    "task": {"name": "quadratic"},
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 3},
    "partition": "by_writer",
    "evaluate": {"every": 1},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return motley.compare(
        KEYS,
        {"selector.name": ["uniform", "oort"]},
        seeds=[0, 1],
        out=tmp_path_factory.mktemp("who"),
    )


def test_each_object_is_one_short_line(found: Any) -> None:
    from torch import nn

    clients = [(np.ones((size, 3), np.float32), np.arange(size) % 2) for size in (5, 10)]
    task = own_task(from_clients(clients, test_fraction=0.2), lambda: nn.Linear(3, 2), name="mine")
    federation = (
        "clients 2, training samples 12, 4 to 8 a client, validation samples 0, test samples 3, "
        "inputs 3 float32, targets 2 classes"
    )
    assert repr(task.federation) == f"<Federation: {federation}>"
    assert (
        repr(task)
        == f"<Task: name mine, parameters 8, loss cross_entropy, metric accuracy, {federation}>"
    )
    assert repr(Experiment(**KEYS)) == (
        "<Experiment: name who, task quadratic, clients 4, a round 2, algorithm fedavg, selector "
        "uniform, partition by_writer, ends round 3, seed 0>"
    )
    assert repr(found) == "<Comparison: runs 4, {} 2, failed 0, folder {}>".format(
        "methods", found.directory
    )
    assert repr(found.runs[0]).startswith("<TrainedRun 'who': seed 0, 3 rounds, finished, in ")


def test_a_run_in_which_nothing_was_learned_says_so(tmp_path: Path) -> None:
    keys = {**KEYS, "local": {"steps": 1, "optimizer": {"name": "sgd", "lr": 1e30}}}
    with pytest.warns(UserWarning, match="no upload was accepted in 3 of 3 rounds"):
        ruined = motley.run(keys, out=tmp_path / "ruined")
    for shown in (repr(ruined), ruined._repr_html_()):
        assert "no upload was accepted in 3 of 3 rounds (rounds 1, 2, 3)" in shown


def test_a_notebook_shows_tables_of_text(found: Any) -> None:
    assert "<td>selector</td><td>uniform</td>" in Experiment(**KEYS)._repr_html_()
    assert "<td>loss final</td>" in found.runs[0]._repr_html_()
    shown = found._repr_html_()
    assert "<th>label</th><th>seed</th><th>loss final</th>" in shown
    assert shown.count("<tr>") == 5
    assert f">{repr(found)[1:-1]}</caption>" in shown
    assert [in_cell(value) for value in (0.782, 1234.0, 20, float("nan"), "a")] == [
        "0.7820",
        "1234",
        "20",
        "–",
        "a",
    ]
    assert html_rows("a<b", [["<script>", "\x1b[31m"]]).count("<") == html_rows(
        "ab", [["script", "31m"]]
    ).count("<")


def test_a_table_is_a_data_frame_of_one_row_per_run(
    found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pandas is no dependency: a stand-in takes the rows, and without it an error says what else
    there is."""
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=lambda rows: rows))
    rows = found.table()
    assert [(row["label"], row["seed"], row["rounds"]) for row in rows] == [
        ("uniform", 0, 3),
        ("uniform", 1, 3),
        ("oort", 0, 3),
        ("oort", 1, 3),
    ]
    last = [
        run.column("evaluations", "loss")[run.column("evaluations", "round") == 3]
        for run in found.runs
    ]
    assert all(row["loss final"] in values for row, values in zip(rows, last, strict=True))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ConfigError,
        match=r"needs pandas; install it .*or take an Arrow table, motley.frame\(runs, "
        r"'evaluations'\)",
    ):
        found.table()


def test_who_looks_is_shown_progress_and_one_line_at_the_end(
    found: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = found.directory
    again = {"over": {"selector.name": ["uniform", "oort"]}, "seeds": [0, 1], "out": folder}
    motley.compare(KEYS, **again)
    assert capsys.readouterr().err == ""  # a file or a pipe
    for module in (run, sweep):
        monkeypatch.setattr(module, "watched", lambda: True)
    motley.compare(KEYS, progress=False, **again)
    motley.run(KEYS, progress=False, out=tmp_path / "quiet")
    assert capsys.readouterr().err == ""
    motley.compare(KEYS, **again)
    last = capsys.readouterr().err.splitlines()[-1]
    finals = [np.mean([row[-1] for row in rows]) for rows in _losses(found)]
    assert last == (
        f"who: 4 runs, loss {finals[0]:.3f} uniform, {finals[1]:.3f} oort (mean of final values), "
        f"in {folder}"
    )
    done = motley.run(KEYS, out=tmp_path / "one")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "who, begun"
    assert lines[-1] == f"who: loss {_loss(done)[-1]:.3f} after 3 rounds, in {tmp_path / 'one'}"


def _loss(one: Any) -> Any:
    return one.column("evaluations", "loss")[one.column("evaluations", "scope") == "mean"]


def _losses(found: Any) -> list[list[Any]]:
    return [[_loss(one) for one in found.runs[first : first + 2]] for first in (0, 2)]


def test_a_notebook_has_a_text_that_changes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    handle = types.SimpleNamespace(update=lambda data, raw: said.append(data["text/plain"]))
    fake = types.SimpleNamespace(display=lambda data, raw, display_id: handle)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setattr(ProgressText, "every_s", 0.001)
    with ProgressText([Experiment(**KEYS)] * 2, ["a", "b"], Console(file=io.StringIO())) as shown:
        shown.start(0)
        shown.run(0).begin("loss", lambda: "train")
        shown.run(0).round(
            RoundSummary(round=1, time_s=1.0, accepted=2, train_loss=1.0, score=0.5, selections=1)
        )
        until = time.monotonic() + 60
        while (
            not any("round 1 of 3, loss 0.500\n0 of 2 runs ended, " in text for text in said)
            and time.monotonic() < until
        ):
            time.sleep(0.002)
    assert any(
        "run 1 of 2: a, round 1 of 3, loss 0.500\n0 of 2 runs ended, " in text for text in said
    )
    assert said[-1] == ""
