"""Killed with SIGKILL at random moments and resumed, a run ends with the same tables and the same
model bits."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from motley.experiments.run import run
from tests.motley.resume.conftest import assert_same, make

PROGRAM = """
import json, sys
from motley.experiments.run import run
run(json.loads(sys.argv[1]), out=sys.argv[2], resume=True)
"""
KEYS = {"checkpoint": {"every_rounds": 5, "every_s": 1000.0}, "evaluate": {"every": 7}}
NOISE = {"low": 0.0, "high": 4.0, "multiplier": 5.0}
PRIVATE = {
    "clip": {"initial": 0.5, "noise": 4.0},
    "delta": 1e-5,
    "noise_multiplier": 1.0,
    "accountant": "rdp",
    "signal_noise": {"loss": NOISE, "update_norm": NOISE, "label_histogram": {"multiplier": 2.0}},
}


def _kill_and_resume(tmp_path: Path, kills: int, rounds: int, **more: Any) -> None:
    """Each life gets through some rounds, and dies a random while (up to a tenth of a second)
    after its first new checkpoint."""
    experiment = make(rounds, **KEYS, **more)
    whole = run(experiment, out=tmp_path / "whole")
    assert whole.tables["rounds"].num_rows == rounds
    out = tmp_path / "killed"
    moments = random.Random(kills)
    died = 0
    keys = json.dumps(experiment.model_dump(mode="json", exclude_none=True))
    while died < kills:
        found = _checkpoints(out)
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, keys, str(out)], stderr=subprocess.PIPE, text=True
        ) as child:
            give_up = time.monotonic() + 120
            while (
                child.poll() is None and _checkpoints(out) == found and time.monotonic() < give_up
            ):
                time.sleep(0.002)
            time.sleep(moments.uniform(0.0, 0.1) * moments.random())
            child.kill()
            _, complaint = child.communicate()
        assert child.returncode == -9, (
            complaint or "the run was done before all the blows: give it more rounds"
        )
        died += 1
    assert_same(whole, run(experiment, out=out, resume=True))


def _checkpoints(out: Path) -> set[str]:
    return {path.name for path in out.glob("checkpoints/*")}


def test_two_kills(tmp_path: Path) -> None:
    _kill_and_resume(tmp_path, kills=2, rounds=120)


@pytest.mark.slow
def test_three_kills_of_clients_with_memories(tmp_path: Path) -> None:
    _kill_and_resume(
        tmp_path, kills=3, rounds=300, client_state="disk", selector="uniform", algorithm="scaffold"
    )


def test_two_kills_of_a_private_run(tmp_path: Path) -> None:
    """Counts of signals, choices and sums, the clip that adapts, and all noise go on where they
    were."""
    pytest.importorskip("dp_accounting")
    task = {"name": "image", "data": "digits", "model": "digits_mlp", "scale": "unit"}
    _kill_and_resume(tmp_path, kills=2, rounds=80, weights="uniform", privacy=PRIVATE, task=task)


@pytest.mark.slow
def test_thirty_kills_of_random_experiments() -> None:
    """The short form of ``make test-chaos``; what it prints of a failure repeats it."""
    root = Path(__file__).parents[3]
    command = [
        "scripts/test-chaos",
        "--kills",
        "30",
        "--cases",
        "4",
        "--names",
        "any",
        "--seed",
        "2",
    ]
    done = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
