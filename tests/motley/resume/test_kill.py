"""Killed with SIGKILL at random moments and resumed, a run ends with the same tables and the same
model bits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from motley.experiments.run import run
from tests.motley.resume.conftest import assert_same, make

LIVES = """
import json, os, sys
from motley.experiments.run import run

for line in sys.stdin:
    keys, out = json.loads(line)
    child = os.fork()
    if child == 0:
        run(keys, out=out, resume=True)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Reads experiments and folders, and gives each a process of its own, which need not import
anything: prints its id, and how it ended."""
KEYS = {"checkpoint": {"every_rounds": 5, "every_s": 1000.0}, "evaluate": {"every": 7}}
NOISE = {"low": 0.0, "high": 4.0, "multiplier": 5.0}
PRIVATE = {
    "clip": {"initial": 0.5, "noise": 4.0},
    "delta": 1e-5,
    "noise_multiplier": 1.0,
    "accountant": "rdp",
    "noise_seed": 0,
    "signal_noise": {"loss": NOISE, "update_norm": NOISE, "label_histogram": {"multiplier": 2.0}},
}


Live = Callable[[dict[str, Any], Path, Callable[[int], None]], int]


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Return a function that runs an experiment in a folder in another process, kills it when a
    function of its id returns, and returns the process's exit code."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", LIVES], **pipes) as lives:

        def lived(keys: dict[str, Any], out: Path, wait: Callable[[int], None]) -> int:
            print(json.dumps([keys, str(out)]), file=lives.stdin, flush=True)
            child = int(lives.stdout.readline())  # type: ignore[union-attr]
            wait(child)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            return int(lives.stdout.readline())  # type: ignore[union-attr]

        yield lived


def _kill_and_resume(live: Live, tmp_path: Path, kills: int, rounds: int, **more: Any) -> None:
    """Each life gets through some rounds, and dies a random while (up to a tenth of a second)
    after its first new checkpoint."""
    experiment = make(rounds, **KEYS, **more)
    whole = run(experiment, out=tmp_path / "whole")
    assert whole.tables["rounds"].num_rows == rounds
    out = tmp_path / "killed"
    moments = random.Random(kills)
    keys = experiment.model_dump(mode="json", exclude_none=True)
    for _ in range(kills):
        found = _checkpoints(out)

        def wait(child: int, found: set[str] = found) -> None:
            give_up = time.monotonic() + 120
            while (
                _checkpoints(out) == found
                and psutil.pid_exists(child)
                and time.monotonic() < give_up
            ):
                time.sleep(0.002)
            time.sleep(moments.uniform(0.0, 0.1) * moments.random())

        ended = live(keys, out, wait)
        assert ended == -signal.SIGKILL, (
            f"it ended with {ended} before the blow; 0: give it more rounds"
        )
        assert _checkpoints(out) != found, "no checkpoint within two minutes: nothing to resume"
    assert_same(whole, run(experiment, out=out, resume=True))


def _checkpoints(out: Path) -> set[str]:
    return {path.name for path in out.glob("checkpoints/*")}


def test_two_kills(live: Live, tmp_path: Path) -> None:
    _kill_and_resume(live, tmp_path, kills=2, rounds=120)


@pytest.mark.slow
def test_three_kills_of_clients_with_memories(live: Live, tmp_path: Path) -> None:
    more = {"client_state": "disk", "selector": "uniform", "algorithm": "scaffold"}
    _kill_and_resume(live, tmp_path, kills=3, rounds=300, **more)


def test_two_kills_of_a_private_run(live: Live, tmp_path: Path) -> None:
    """Counts of signals, choices and sums, the clip that adapts, and all noise go on where they
    were."""
    pytest.importorskip("dp_accounting")
    task = {"name": "image", "data": "digits", "model": "digits_mlp", "scale": "unit"}
    more: dict[str, Any] = {"weights": "uniform", "privacy": PRIVATE, "task": task}
    _kill_and_resume(live, tmp_path, kills=2, rounds=80, **more)


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
