"""Data and model of one's own through the whole of run: named ``own``, covered by the run's id, refused where they do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from motley.core.errors import ConfigError
from motley.experiments.config import Experiment
from motley.experiments.run import run
from motley.tasks import from_clients, own_task
from motley.tasks.base import Task

KEYS: dict[str, Any] = {"cohort": 2, "stop": {"rounds": 2}, "evaluate": {"every": 1}}


def _task(seed: int = 0, test: Any = "client") -> Task:
    rng = np.random.default_rng(seed)
    clients = [(rng.normal(size=(20, 3)), np.arange(20) % 2) for _ in range(4)]
    return own_task(from_clients(clients, test_fraction=0.25, test=test), lambda: nn.Linear(3, 2))


def test_the_task_may_be_left_out_or_called_own(tmp_path: Path) -> None:
    left_out = run(KEYS, task=_task(), out=tmp_path / "1")
    named = run(Experiment(task="own", **KEYS), task=_task(), out=tmp_path / "2")
    file = tmp_path / "exp.toml"
    file.write_text("cohort = 2\nstop = { rounds = 2 }\nevaluate = { every = 1 }\n")
    written = run(file, task=_task(), out=tmp_path / "3")
    for other in (named, written):
        assert left_out.tables["evaluations"].equals(other.tables["evaluations"])
        assert left_out.meta["run_id"] == other.meta["run_id"]


def test_an_empty_experiment_misses_its_stop_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^stop: this key is missing and has no default$"):
        run({}, task=_task(), out=tmp_path)


def test_other_data_is_another_run(tmp_path: Path) -> None:
    ids = {run(KEYS, task=_task(seed), out=tmp_path / str(seed)).meta["run_id"] for seed in (0, 1)}
    assert len(ids) == 2


def test_a_common_test_set_makes_the_headline(tmp_path: Path) -> None:
    done = run(KEYS, task=_task(test="global"), out=tmp_path)
    assert done.config["split"]["test"] == "global"
    assert "global" in done.column("evaluations", "scope")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"task": "image", "population": 4}, r"task.name: got 'image' and a task of your own beside it; write task = \"own\""),
        ({"population": 7}, "population: got 7; the data has 4 clients of its own, leave this key out"),
        ({"cohort": 9}, "cohort: got 9, more than the population of 4"),
    ],
)
def test_what_does_not_fit_is_refused(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        run({**KEYS, **keys}, task=_task(), out=tmp_path)


def test_an_experiment_called_own_without_its_task_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"task: this task's data and model are Python objects; use motley.run"):
        run({**KEYS, "task": "own"}, out=tmp_path)
