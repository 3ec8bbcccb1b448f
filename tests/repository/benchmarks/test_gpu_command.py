"""``make gpu`` on machines without a GPU: what it says there, and every stage at a tiny scale,
killed between and within stages."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import stages
from benchmarks.gpu.records import Rows, read, write
from benchmarks.gpu.summary import summary
from motley.experiments.run import run
from tests.places import PYTHONPATH

ROOT = Path(__file__).resolve().parents[3]


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gpu", *arguments])
    return command.main()


def test_without_a_gpu_one_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert call(monkeypatch, "--out", str(tmp_path / "gpu")) == 2
    said = capsys.readouterr().err
    assert "sees no CUDA device here; `--smoke --device cpu` tries every stage on the CPU." in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "gpu").exists()


def test_missing_packages_are_named_first(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(command, "PACKAGES", ("torch", "no_such_package", "nor_this"))
    assert call(monkeypatch) == 2
    assert "has no no_such_package, nor_this; install them" in capsys.readouterr().err
    assert stages.missing(stages.PACKAGES) == []


def test_a_dry_run_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        command, "skipped", lambda stage, options: "no pfl" if stage.name == "peer" else None
    )
    assert call(monkeypatch, "--dry-run", "--smoke", "--device", "cpu", "--out", str(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [stage.name for stage in stages.STAGES]
    assert names[:3] == ["tests", "joint_runs", "agreement"]
    names.append("nothing was run")
    assert [line.partition(":")[0] for line in lines] == names
    assert "no pfl" in lines[5]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_device_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    write(tmp_path / "state.json", {"device": "cuda", "smoke": False, "stages": {}})
    assert call(monkeypatch, "--device", "cpu", "--smoke", "--out", str(tmp_path)) == 2
    assert "name another folder, --out DIR" in capsys.readouterr().err


def test_a_stage_that_takes_too_long_is_ended_and_goes_on_in_the_next_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stage that adds a line and sleeps; its own limit is two heartbeats, the call's is one."""
    slow = stages.Stage("slow", 0.05, "sleeps")
    script = f"import time; open({str(tmp_path / 'lines')!r}, 'a').write('x'); time.sleep(60)"
    monkeypatch.setattr(
        stages.Stage, "command", lambda self, options: [sys.executable, "-S", "-c", script]
    )
    options = stages.Options(tmp_path, "cpu", True, "")
    state = {"stages": {}}
    command.run(slow, options, state, tmp_path / "state.json", time.monotonic() + 1.0)
    assert state["stages"]["slow"]["status"] == "interrupted"
    command.run(slow, options, state, tmp_path / "state.json", time.monotonic() + 60.0)
    assert state["stages"]["slow"] | {"seconds": 0, "returncode": 0} == {
        "status": "limit",
        "calls": 2,
        "seconds": 0,
        "returncode": 0,
    }
    assert (tmp_path / "lines").read_text() == "xx"
    assert read(tmp_path / "state.json") == state
    assert command.known(slow, state) == "limit"
    assert command.known(dataclasses.replace(slow, minutes=0.1), state) is None
    assert (
        command.step(slow, options, state, tmp_path / "state.json", time.monotonic() + 60.0)
        == "limit"
    )
    command.forget(slow, state, tmp_path)
    assert (
        command.step(slow, options, state, tmp_path / "state.json", time.monotonic())
        == "waits for the next call"
    )


def test_a_checkout_that_is_not_installed_has_its_entry_points(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``-S`` leaves out what is installed. Data by name, as CIFAR-10, are found by them."""
    script = (
        "from importlib.metadata import entry_points as find; "
        "print(*sorted(point.value for point in find(group='motley.data', name='named'))); "
        "print(*sorted(point.value for point in find(group='motley.function', name='report')))"
    )
    monkeypatch.setattr(
        stages.Stage, "command", lambda self, options: [sys.executable, "-S", "-c", script]
    )
    monkeypatch.setenv("PYTHONPATH", "")
    stage = stages.Stage("points", 1, "prints entry points")
    options = stages.Options(tmp_path, "cpu", True, "")
    for _ in range(2):
        command.run(
            stage, options, {"stages": {}}, tmp_path / "state.json", time.monotonic() + 60.0
        )
    lines = (tmp_path / "points.log").read_text().splitlines()
    assert lines == 2 * ["motley_data.named_data", "motley_report.report:report"]


def test_recipes_wait_for_their_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("motley_data.public_data.search.search", lambda name: iter(()))
    recipes = next(stage for stage in stages.STAGES if stage.name == "recipes")
    options = stages.Options(tmp_path, "cpu", False, "")
    assert (
        command.skipped(recipes, options)
        == "no CIFAR-10 here; name the folder that has it, MOTLEY_DATA=folder"
    )
    assert command.skipped(recipes, dataclasses.replace(options, smoke=True)) is None


def test_rows_are_kept_and_summed_up(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "agreement.json", "cpu")
    rows.add("fedavg, vmap", {"difference": 2e-15, "agrees": True})
    rows.add("ditto, vmap", {"difference": 0.5, "agrees": False})
    assert "fedavg, vmap" in Rows(tmp_path / "agreement.json", "cpu")
    text = summary(
        tmp_path,
        {
            "device": "cpu",
            "smoke": False,
            "stages": {"peer": {"status": "skipped", "why": "no pfl", "seconds": 0}},
        },
    )
    assert "1 of 2 pairs agree; the largest relative difference is 5.0e-01." in text
    assert "| ditto, vmap | 0.5 |" in text
    assert "| skipped: no pfl | 0 | 240 |" in text


def test_a_checkout_that_is_not_installed_keeps_checkpoints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nothing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nothing)
    keys = {
        "task": "synthetic",
        "population": 3,
        "cohort": 2,
        "stop": {"rounds": 2},
        "checkpoint": {"every_rounds": 1},
    }
    assert len(run(keys, out=tmp_path / "run").tables["rounds"]) == 2


@pytest.mark.slow
def test_killed_between_and_within_stages_it_goes_on(tmp_path: Path) -> None:
    """SIGKILL when the second stage has a row: the first is not run again, the second goes on with
    its rows."""
    line = [
        sys.executable,
        "-m",
        "benchmarks.gpu",
        "--smoke",
        "--device",
        "cpu",
        "--out",
        str(tmp_path),
        "--only",
        "tests",
        "agreement",
        "workloads",
        "pfl_cifar10",
        "recipes",
    ]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    first = subprocess.Popen(line, cwd=ROOT, env=environment)
    while first.poll() is None and not read(tmp_path / "agreement.json").get("rows"):
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = read(tmp_path / "state.json")["stages"]
    rows = read(tmp_path / "agreement.json")["rows"]
    assert before["tests"]["status"] == "done"
    assert before["agreement"]["status"] == "running"
    assert subprocess.run(line, cwd=ROOT, env=environment, check=False).returncode == 0
    after = json.loads((tmp_path / "state.json").read_text())["stages"]
    assert after["tests"] == before["tests"]
    assert after["agreement"]["calls"] == 2
    assert {at["status"] for at in after.values()} == {"done"}
    assert rows.items() <= read(tmp_path / "agreement.json")["rows"].items()
    text = (tmp_path / "summary.md").read_text()
    assert "pairs agree" in text
    assert "whole benchmark" in text
    assert (tmp_path / "recipes" / "hetero_select" / "report.html").exists()
    again = subprocess.run(
        line, cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert again.stdout.count(": done") == 5
