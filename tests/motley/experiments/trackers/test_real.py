"""MLflow and W&B themselves: several processes at one store, names as their own tools show them, a
process that is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import motley
from motley_privacy.published import kind_of
from tests.motley.experiments.trackers.backends import (
    REAL,
    MLflowServer,
    RealMLflow,
    RealWandB,
)
from tests.motley.experiments.trackers.test_contract import KEYS, stop_at
from tests.places import PYTHONPATH

pytestmark = list(REAL)
OVER = {"selector.name": ["uniform", "power_of_choice"]}
KILLED = """
import json, os, signal, sys
import motley
from tests.places import PYTHONPATH
from tests.places import PYTHONPATH

def die(done):
    if done.round == 3:
        os.kill(os.getpid(), signal.SIGKILL)

motley.run(json.loads(sys.argv[1]), out=sys.argv[2], on_round=die)
"""


def test_processes_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = RealMLflow(monkeypatch)
    found = motley.compare(
        {**KEYS, "log": ["mlflow", "wandb"]}, OVER, seeds=[0, 1], out=tmp_path, jobs=4
    )
    assert found.failures == []
    client = tool.client(tracking_uri=(tmp_path / "mlruns").as_uri())
    assert [one.name for one in client.search_experiments() if one.name != "Default"] == ["small"]
    runs = client.search_runs(
        [client.get_experiment_by_name("small").experiment_id],
        "params.`selector.name` = 'power_of_choice'",
    )
    assert sorted(run.info.run_name for run in runs) == [
        "power_of_choice seed 0",
        "power_of_choice seed 1",
    ]
    for run in found.runs:
        held = tool.read(run.directory)[1]
        assert (held.info.status, held.data.tags["motley.run_id"]) == (
            "FINISHED",
            run.meta["run_id"],
        )
        losses = run.column("rounds", "train_loss").tolist()
        assert tool.steps(run.directory)["train_loss"] == pytest.approx(dict(enumerate(losses, 1)))
        assert RealWandB(monkeypatch).steps(run.directory)["train_loss"] == pytest.approx(
            dict(enumerate(losses, 1))
        )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MLflowServer]:
    if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("flask") is None:
        pytest.skip("the server is in the whole mlflow, and here is mlflow-skinny")
    (tmp_path / "server").mkdir()
    running = MLflowServer(tmp_path / "server")
    try:
        running.wait()
        yield running
    finally:
        running.close()


def test_a_server_holds_the_run_and_its_registry_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: MLflowServer
) -> None:
    tool = RealMLflow(monkeypatch)
    table = {"name": "mlflow", "online": True, "uri": server.uri, "register": "small"}
    run = motley.run({**KEYS, "log": [table]}, out=tmp_path / "runs" / "a")
    note = json.loads((run.directory / "mlflow.json").read_text())
    assert all(kind_of("mlflow.json", key) for key in note)
    assert note["uri"] == server.uri
    assert not (tmp_path / "runs" / "mlruns").exists()
    client = tool.client(tracking_uri=server.uri, registry_uri=server.uri)
    held = client.get_run(note["run_id"])
    assert held.info.status == "FINISHED"
    assert held.data.tags["motley.run_id"] == run.meta["run_id"]
    losses = run.column("rounds", "train_loss").tolist()
    history = client.get_metric_history(note["run_id"], "train_loss")
    assert {point.step: point.value for point in history} == pytest.approx(
        dict(enumerate(losses, 1))
    )
    (version,) = client.search_model_versions("name = 'small'")
    assert (version.version, version.run_id) in ((1, note["run_id"]), ("1", note["run_id"]))
    assert version.status == "READY"
    got = client.download_artifacts(note["run_id"], "model/model.safetensors", str(tmp_path))
    assert Path(got).read_bytes() == (run.directory / "model.safetensors").read_bytes()
    # the next run is the next version, and one that goes on is the same run
    keys = {**KEYS, "seed": 1, "log": [table]}
    with pytest.raises(KeyboardInterrupt):
        motley.run(keys, out=tmp_path / "runs" / "b", on_round=stop_at(3))
    begun = json.loads((tmp_path / "runs" / "b" / "mlflow.json").read_text())["run_id"]
    assert client.get_run(begun).info.status == "KILLED"
    motley.run(keys, out=tmp_path / "runs" / "b", resume=True)
    assert client.get_run(begun).info.status == "FINISHED"
    versions = client.search_model_versions("name = 'small'")
    assert {int(one.version): one.run_id for one in versions} == {1: note["run_id"], 2: begun}


def test_names_in_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = RealWandB(monkeypatch)
    (run,) = motley.compare({**KEYS, "log": "wandb"}, {"cohort": [3]}, seeds=[4], out=tmp_path).runs
    about = tool.records(run.directory, "run")[0]
    assert (about.project, about.run_group, about.display_name, about.job_type) == (
        "small",
        "cohort=3",
        "cohort=3 seed 4",
        "simulation",
    )
    config = {one.key: json.loads(one.value_json) for one in about.config.update}
    assert (config["cohort"], config["selector"]["name"]) == (3, "uniform")
    summary = {
        "/".join(item.nested_key) or item.key: json.loads(item.value_json)
        for one in tool.records(run.directory, "summary")
        for item in one.update
    }
    assert summary["loss_final"] == summary["loss"]
    assert [one.exit_code for one in tool.records(run.directory, "exit")] == [0]
    folders = [str(path) for path in (run.directory / "wandb").glob("offline-run-*")]
    # the command that the page names is there
    command = [sys.executable, "-m", "wandb", "sync", *folders, "--help"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_process_that_is_killed_loses_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {**KEYS, "log": ["mlflow", "wandb"]}
    command = [sys.executable, "-c", KILLED, json.dumps(keys), str(tmp_path / "run")]
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    assert subprocess.run(command, env=env, check=False).returncode == -signal.SIGKILL
    motley.run(keys, out=tmp_path / "run", resume=True)
    motley.run(keys, out=tmp_path / "whole")
    for tool in (RealMLflow(monkeypatch), RealWandB(monkeypatch)):
        assert tool.steps(tmp_path / "run") == tool.steps(tmp_path / "whole")
