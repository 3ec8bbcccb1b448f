"""Inspections of experiments, runs and federations: what is found, side by side, and what is
refused in a sentence."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

import motley
from motley.cli import app, call
from motley.core.errors import ConfigError, StoreError
from motley.tasks import from_arrays
from motley_advice.heterogeneity.findings import Inspection
from motley_advice.inspection.findings_terminal import as_table, bullets
from motley_advice.inspection.inspecting import inspect
from motley_advice.inspection.words import value_text
from motley_report.page import html

KEYS: dict[str, Any] = {
    "name": "small",
    "task": {"name": "tabular", "data": "iris"},
    "population": 6,
    "cohort": 2,
    "stop": {"rounds": 2},
    "device": {"name": "log_normal", "sigma": 1.0},
}
TOML = """
name = "small"
task = { name = "tabular", data = "iris" }
population = 6
cohort = 2
stop = { rounds = 2 }

[grid]
algorithm = ["fedavg", "scaffold"]
synchrony = ["synchronous", "asynchronous"]
"""


def test_an_experiment_is_inspected_without_training() -> None:
    found = inspect(KEYS)
    (one,) = found.federations
    assert one.label == "small"
    assert dict(one.facts)["clients"] == "6"
    assert one.inspection["speed_spread"].value > 0
    assert not any(name.endswith("_after") for name in one.inspection.findings)


def test_the_same_experiment_gives_the_same_bits() -> None:
    assert inspect(KEYS).to_json() == inspect(KEYS).to_json()


def test_an_inspection_leaves_runs_as_they_are(tmp_path: Path) -> None:
    before = motley.run(KEYS, out=tmp_path / "before").tables["rounds"]
    inspect(KEYS, rounds=2)
    assert motley.run(KEYS, out=tmp_path / "after").tables["rounds"].equals(before)


def test_rounds_measure_drift_again() -> None:
    told: list[str] = []
    found = inspect(KEYS, rounds=2, tell=told.append).federations[0].inspection
    assert found["drift_after"].measured
    assert found["update_cosine"].measured
    assert told[-1] == "small: round 2 of 2"


def test_a_grid_is_searched_for_pitfalls_before_it_is_run(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TOML)
    said = inspect(tmp_path / "small.toml").all_pitfalls
    assert any("virtual_hours" in text for text in said)
    assert any("--seeds" in text for text in said)


def test_the_first_run_of_a_grid_is_inspected_where_no_run_is_of_the_file(tmp_path: Path) -> None:
    keys = {**KEYS, "local": {"steps": 3}, "partition": {"name": "dirichlet", "alpha": 1.0}}
    algorithms = ["fedavg", "fednova"]
    skewed = {**keys, "partition": {"name": "dirichlet", "alpha": 0.1}}
    other_seeds = inspect({**keys, "grid": {"algorithm": algorithms, "seed": [1, 2]}})
    seed_1 = inspect({**keys, "seed": 1}).federations[0].inspection
    assert other_seeds.federations[0].inspection.to_json() == seed_1.to_json()
    assert any(text.startswith("fednova: ") for text in other_seeds.all_pitfalls)
    assert "other clients in" not in dict(other_seeds.federations[0].facts)
    (found,) = inspect({**keys, "grid": {"partition.alpha": [0.1, 9.0]}}).federations
    assert found.inspection.to_json() == inspect(skewed).federations[0].inspection.to_json()
    assert dict(found.facts)["other clients in"] == "alpha=9.0"


def test_runs_have_the_federation_and_the_pitfalls_of_their_experiments(tmp_path: Path) -> None:
    keys = {**KEYS, "evaluate": {"every": 1, "diagnostics": True}}
    done = motley.compare(
        keys, {"algorithm.name": ["fedavg", "fedprox"]}, [0], out=tmp_path / "runs"
    )
    found = inspect(tmp_path / "runs")
    assert (
        found.federations[0].inspection.to_json()
        == inspect(keys).federations[0].inspection.to_json()
    )
    assert any("--seeds" in text for text in found.all_pitfalls)
    assert set(found.federations[0].drift) == {"B^2", "G^2", "drift of clients"}
    assert "Drift over rounds" in html(found.page())
    assert inspect(done.runs).to_json() == inspect(done.runs).to_json()


def test_two_federations_stand_side_by_side(tmp_path: Path) -> None:
    found = inspect(KEYS, {**KEYS, "name": "other", "device": "constant"})
    assert [one.label for one in found.federations] == ["small", "other"]
    page = html(found.page())
    assert "Inspection of small and other" in page
    assert page.count("<svg") >= 2
    assert [str(column.header) for column in as_table(found).columns] == [
        "finding",
        "small",
        "other",
    ]
    read = json.loads(found.to_json())
    assert read["federations"][1]["profile"]["speed_spread"] == 0.0
    again = Inspection.from_json(json.dumps(read["federations"][0]["inspection"]))
    assert again.to_json() == found.federations[0].inspection.to_json()


def test_a_narrow_terminal_shows_every_word_and_number() -> None:
    found = inspect(KEYS)
    console = Console(width=80, file=io.StringIO())
    console.print(as_table(found))
    text = console.file.getvalue()
    assert "\u2026" not in text
    assert max(map(len, text.splitlines())) <= 80
    rows = [line for line in text.splitlines() if "Jensen-Shannon" in line]
    assert rows
    words = " ".join(text.split())
    for finding in found.federations[0].inspection.findings.values():
        assert all(word in words for word in finding.note.split() if len(word) < 20)
        assert value_text(finding) in words


def test_one_constant_on_two_federations_is_a_pitfall() -> None:
    prox = {**KEYS, "algorithm": {"name": "fedprox", "mu": 0.1}}
    found = inspect(prox, {**prox, "name": "other", "population": 9})
    assert "algorithm.mu" in found.pitfalls[0]
    assert found.pitfalls[0] in bullets(found)
    assert not inspect(prox).pitfalls


def test_the_same_name_twice_gets_numbers() -> None:
    assert [one.label for one in inspect(KEYS, KEYS).federations] == ["small (1)", "small (2)"]


def test_a_federation_made_in_python() -> None:
    x = np.arange(80.0).reshape(40, 2) / 80
    y = np.arange(40) // 20
    federation = from_arrays(x, y, np.arange(40) % 4)
    found = inspect(federation)
    assert found.federations[0].inspection.population == 4
    task = motley.tasks.own_task(federation, partial(nn.Linear, 2, 2))
    keys = {"cohort": 2, "stop": {"rounds": 1}}
    assert inspect(keys, task=task).federations[0].inspection["drift"].measured


def test_the_page_names_each_number_s_federated_way() -> None:
    page = html(inspect(KEYS).page())
    assert "The same numbers in a deployment" in page
    assert "a histogram of 64 bins as a secure sum" in page


def test_outlying_clients_are_named_on_the_terminal_the_page_and_in_json() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(5, 1, size=(600, 3))
    y = np.arange(600) % 2
    client = np.arange(600) % 10
    x[client == 4, 1] *= 100
    found = inspect(from_arrays(x, y, client))
    (one,) = found.federations[0].inspection.outlying
    assert (one.client, one.kind) == (4, "units")
    assert (
        f"Outlying clients\n- client 4: column 1 {one.said.split()[2]} times the others'"
        in bullets(found)
    )
    page = html(found.page())
    assert "Outlying clients" in page
    assert "client 4" in page
    (told,) = json.loads(found.to_json())["federations"][0]["outlying"]
    assert (told["row"], told["name"]) == (4, "client 4")
    assert "client" not in told
    assert "Outlying clients" not in html(inspect(KEYS).page())


def test_drift_stands_beside_what_chance_gives_at_these_sizes() -> None:
    even, apart = (
        inspect({**KEYS, "partition": partition}).federations[0].inspection
        for partition in ("iid", {"name": "shards", "shards": 1})
    )
    # IID clients differ as permuted ones do
    assert even["drift"].value < 2 * even["drift_by_chance"].value + 0.05
    assert apart["drift"].value > 2 * apart["drift_by_chance"].value
    assert f"{apart['drift_by_chance'].value:.2f} by chance at these sizes" in apart["drift"].note


# ---------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "got an object of type int; expected an experiment file"),
        ([], "got an object of type list; expected an experiment file"),
        ("nowhere.toml", "there is no file 'nowhere.toml'"),
        ({"task": "image"}, "stop"),
    ],
)
def test_what_cannot_be_inspected_is_refused_in_a_sentence(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        inspect(given)


def test_rounds_are_a_whole_number() -> None:
    with pytest.raises(ConfigError, match="rounds: got -1; expected a whole number of at least 0"):
        inspect(KEYS, rounds=-1)


def test_a_folder_without_runs_and_runs_of_two_federations(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there are no runs in"):
        inspect(tmp_path)
    motley.run(KEYS, out=tmp_path / "a")
    motley.run({**KEYS, "population": 5}, out=tmp_path / "b")
    with pytest.raises(
        ConfigError,
        match=r"of several federations \(they differ in population\); give a folder for each",
    ):
        inspect(tmp_path)
    assert len(inspect(tmp_path / "a", tmp_path / "b").federations) == 2


def test_a_run_whose_task_was_made_in_python_asks_for_it(tmp_path: Path) -> None:
    federation = from_arrays(
        np.arange(80.0).reshape(40, 2) / 80, np.arange(40) // 20, np.arange(40) % 4
    )
    task = motley.tasks.own_task(federation, partial(nn.Linear, 2, 2))
    motley.run({"cohort": 2, "stop": {"rounds": 1}}, task=task, out=tmp_path / "own")
    with pytest.raises(ConfigError, match=r"motley.inspect\(runs, task=...\)"):
        inspect(tmp_path / "own")
    assert inspect(tmp_path / "own", task=task).federations[0].inspection.population == 4


# ------------------------------------------------------------------------------------- the command


@pytest.mark.usefixtures("drawn")
def test_the_command_prints_a_page_and_writes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(TOML)
    assert call(["inspect", "small.toml", "--set", "device=constant"]) == 0
    said = capsys.readouterr().out
    assert "waiting in a round" in said
    assert "Pitfalls, and the key to change" in said
    assert "page: runs/inspect-small.html" in said.replace("\n", "")
    assert Path("runs/inspect-small.html").read_text().count("<svg") >= 1
    assert call(["inspect", "small.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["federations"][0]["label"] == "small"
    assert call(["inspect", "small.toml", "small.toml", "--out", "both.md"]) == 0
    assert Path("both.md").is_file()


def test_bad_input_ends_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("notes.toml").write_text("this is no experiment")
    Path("half.toml").write_text('name = "half"')
    for argv, words in {
        ("empty",): "there are no runs in empty",
        ("notes.toml",): "not valid TOML",
        ("half.toml",): "this key is missing",
        ("nowhere",): "there is no file 'nowhere'",
        ("half.toml", "--rounds", "-1"): "--rounds",
        ("half.toml", "--out", "pages"): "out: got 'pages'; expected a name that ends in .html",
    }.items():
        assert call(["inspect", *argv]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert "Traceback" not in said


def test_help_says_what_it_is_for() -> None:
    assert "motley inspect first.toml" in CliRunner().invoke(app, ["--help"]).output


def test_models_of_different_architectures() -> None:
    """Gradients of unlike models are not compared; who holds which is said by the experiment, also
    where rows are permuted among the clients."""
    models = {"of": ["linear", {"name": "mlp", "hidden": [4]}], "share": [0.5, 0.5]}
    experiment = {
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 1},
        "task": {"name": "synthetic", "own_test": False},
        "models": models,
        "split": {"test": "client"},
        "local": {"batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.1}},
        "algorithm": "local_only",
    }
    (federation,) = motley.inspect(experiment).federations
    assert federation.inspection["label_distance"].value >= 0
    assert "drift" not in federation.inspection.findings
