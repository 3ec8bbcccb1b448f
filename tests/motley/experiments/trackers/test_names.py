"""Runs, comparisons and parameters have the names by which a tool's users look for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import motley
from motley.core.errors import ConfigError
from motley.experiments.config import Experiment
from tests.motley.experiments.trackers.backends import FakeClient, FakeMLflow, FakeWandB
from tests.motley.experiments.trackers.test_contract import KEYS, stop_at

OVER = {"selector.name": ["uniform", "power_of_choice"]}


def test_mlflow_has_the_runs_of_a_comparison_in_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeMLflow(monkeypatch)
    motley.compare({**KEYS, "log": "mlflow"}, OVER, seeds=[0, 1], out=tmp_path)
    ((address, store),) = FakeClient.stores.items()
    assert address == (tmp_path / "mlruns").resolve().as_uri()
    assert list(store["experiments"]) == ["small"]
    runs = {run["name"]: run for run in store["runs"].values()}
    assert list(runs) == [
        "uniform seed 0",
        "uniform seed 1",
        "power_of_choice seed 0",
        "power_of_choice seed 1",
    ]
    one = runs["power_of_choice seed 1"]
    assert one["status"] == "FINISHED"
    assert {
        "selector.name": "power_of_choice",
        "seed": "1",
        "cohort": "2",
        "task.name": "quadratic",
    }.items() <= one["params"].items()
    assert not [
        key
        for key in one["params"]
        if key.partition(".")[0] in ("log", "stop", "name", "checkpoint", "engine")
    ]
    tags = one["tags"]
    found = json.loads(next(tmp_path.glob("power_of_choice/*/run.json")).read_text())
    assert found["run_id"] in {run["tags"]["motley.run_id"] for run in runs.values()}
    assert (tags["motley.label"], tags["motley.seed"], tags["motley.kind"]) == (
        "power_of_choice",
        "1",
        "simulation",
    )
    assert (json.loads(tags["motley.stop"]), tags["mlflow.source.name"]) == (
        {"rounds": 5},
        "motley",
    )
    final = {name: step for name, step, _ in one["points"] if name.startswith("loss_")}
    # five rounds have no stable value
    assert final == {"loss_final": 5, "loss_peak": 5, "loss_worst_tenth": 5}


def test_a_run_alone_is_called_by_its_preset_or_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeMLflow(monkeypatch)
    motley.run({**KEYS, "log": ["mlflow"]}, out=tmp_path / "a" / "run")
    motley.run({**KEYS, "method": "fedavg", "log": ["mlflow"]}, out=tmp_path / "a" / "other")
    ((address, store),) = FakeClient.stores.items()
    assert address.endswith("/a/mlruns")
    assert [run["name"] for run in store["runs"].values()] == ["small seed 0", "fedavg seed 0"]


def test_mlflow_goes_on_in_the_same_run_and_says_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = FakeMLflow(monkeypatch)
    keys = {**KEYS, "log": ["mlflow"]}
    with pytest.raises(KeyboardInterrupt):
        motley.run(keys, out=tmp_path / "run", on_round=stop_at(3))
    assert tool.store(tmp_path / "run")["status"] == "KILLED"

    def fail(done: Any) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        motley.run(keys, out=tmp_path / "run", on_round=fail, resume=True)
    assert tool.store(tmp_path / "run")["status"] == "FAILED"
    motley.run({**keys, "stop": {"rounds": 7}}, out=tmp_path / "run", resume=True)
    (store,) = FakeClient.stores.values()
    (held,) = store["runs"].values()
    assert (held["status"], held["tags"]["motley.stop"]) == ("FINISHED", '{"rounds": 7}')


@pytest.mark.parametrize("note", ["{}", "[]", "no JSON", '{"run_id": "gone"}'])
def test_a_note_of_an_mlflow_run_that_is_gone_begins_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    tool = FakeMLflow(monkeypatch)
    keys = {**KEYS, "log": ["mlflow"]}
    with pytest.raises(KeyboardInterrupt):
        motley.run(keys, out=tmp_path / "run", on_round=stop_at(3))
    (tmp_path / "run" / "mlflow.json").write_text(note)
    motley.run(keys, out=tmp_path / "run", resume=True)
    assert list(tool.steps(tmp_path / "run")["train_loss"]) == [1, 2, 3, 4, 5]


def test_weights_and_biases_have_projects_groups_and_a_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = FakeWandB(monkeypatch)
    found = motley.compare(
        {**KEYS, "name": "who: 50%?", "log": "wandb"}, OVER, seeds=[0, 1], out=tmp_path
    ).runs
    ends = [tool.end(run.directory) for run in found]
    assert [(end["project"], end["group"], end["name"], end["job_type"]) for end in ends] == [
        ("who- 50--", "uniform", "uniform seed 0", "simulation"),
        ("who- 50--", "uniform", "uniform seed 1", "simulation"),
        ("who- 50--", "power_of_choice", "power_of_choice seed 0", "simulation"),
        ("who- 50--", "power_of_choice", "power_of_choice seed 1", "simulation"),
    ]
    for run, end in zip(found, ends, strict=True):
        assert end["exit_code"] == 0
        assert end["config"]["selector"] == run.config["selector"]
        assert end["config"]["motley"]["run_id"] == run.meta["run_id"]
        losses = [
            row["loss"]
            for row in run.tables["evaluations"].to_pylist()
            if row["scope"] == "mean" and row["round"]
        ]
        assert end["summary"]["loss_final"] == losses[-1]
        assert end["summary"]["loss_peak"] == min(losses)
    assert len({next((run.directory / "wandb").iterdir()).name for run in found}) == 4


@pytest.mark.parametrize(
    ("log", "mode"),
    [
        ("wandb", "offline"),
        ({"name": "wandb", "online": False}, "offline"),
        ({"name": "wandb", "online": True}, "online"),
    ],
)
def test_weights_and_biases_are_online_only_where_the_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: object, mode: str
) -> None:
    tool = FakeWandB(monkeypatch)
    monkeypatch.setenv("WANDB_MODE", "online")
    run = motley.run({**KEYS, "log": [log]}, out=tmp_path / "run")
    assert tool.end(run.directory)["mode"] == mode


URI = "http://127.0.0.1:5000"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"name": "tensorboard", "online": True}, "tensorboard writes files and has no server"),
        ({"name": "mlflow", "online": True}, "log.mlflow.uri: got None; expected the address"),
        ({"name": "mlflow", "online": True, "uri": "sqlite:///x"}, "expected the address"),
        ({"name": "mlflow", "online": True, "uri": "http://me:pw@x"}, "MLFLOW_TRACKING_PASSWORD"),
        ({"name": "mlflow", "online": "yes"}, "got 'yes'; expected true or false"),
        ({"name": "mlflow", "uri": URI}, "uri is for a server; write online = true"),
        ({"name": "wandb", "online": True, "uri": URI}, "expected some of: name, online"),
        ({"name": "mlflow", "onlin": True}, "did you mean 'online'?"),
        ({"name": "mlflow", "online": True, "uri": URI, "register": "a/b"}, "without / and :"),
        ({"name": "mlfow", "online": True}, "did you mean 'mlflow'?"),
    ],
)
def test_a_table_that_cannot_be_followed_is_refused(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as told:
        Experiment(**{**KEYS, "log": [table]})
    assert said in str(told.value)


@pytest.mark.parametrize(
    "table", [{"name": "wandb", "online": True}, {"name": "mlflow", "online": True, "uri": URI}]
)
def test_a_private_run_is_not_sent(tmp_path: Path, table: dict[str, Any]) -> None:
    private = {"clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-3}
    task = {"name": "image", "data": "digits", "scale": "unit"}
    keys = {**KEYS, "task": task, "partition": "iid"}
    with pytest.raises(ConfigError, match="figures of a private run may not leave this machine"):
        motley.run({**keys, "privacy": private, "log": [table]}, out=tmp_path / "run")


def test_the_key_takes_names_a_name_and_the_table_that_it_was() -> None:
    for given, names in (
        ("mlflow", ["mlflow"]),
        (["wandb", "mlflow", "wandb"], ["wandb", "mlflow"]),
        ([], []),
        ({"tensorboard": True}, ["tensorboard"]),
        ({"tensorboard": False}, []),
        ([{"name": "mlflow"}], ["mlflow"]),
        ({"name": "wandb", "online": True}, [{"name": "wandb", "online": True}]),
    ):
        assert Experiment(**{**KEYS, "log": given}).log == names


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "mlfow",
            "log: got 'mlfow' (did you mean 'mlflow'?); expected some of: mlflow, tensorboard, "
            "wandb",
        ),
        (["wandb", 3], "log: got 3; expected some of"),
        ({"tensorbord": True}, "did you mean 'tensorboard'"),
        ([["mlflow"]], "log: got ['mlflow']; expected some of"),
        (True, "log: got True; expected some of"),
    ],
)
def test_an_unknown_name_is_refused(given: object, said: str) -> None:
    with pytest.raises(ConfigError) as told:
        Experiment(**{**KEYS, "log": given})
    assert said in str(told.value)
