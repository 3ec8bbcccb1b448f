"""How many runs go side by side where nobody says it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import psutil
import pytest
from torch import nn

from motley.engines.local import on_one_thread
from motley.experiments import chosen_jobs as choosing
from motley.experiments import sweep
from motley.experiments.build import check_build
from motley.experiments.chosen_jobs import RunSize, chosen_jobs, size_of
from motley.experiments.config import Experiment

CALLS = [{"experiment": "sent"}] * 6
LONG = RunSize(one_core=True, seconds=30.0)
DIGITS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "linear"},
    "population": 10,
    "cohort": 5,
    "stop": {"rounds": 100},
    "local": {"epochs": 2, "batch_size": 16},
}


FIT_IN_MEMORY = choosing._fit_in_memory


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have four cores and memory for three processes such as this one."""
    monkeypatch.setattr(choosing, "cores", lambda: 4)
    monkeypatch.setattr(choosing, "_fit_in_memory", lambda: 3)


def size(**keys: Any) -> RunSize:
    return size_of(*check_build(Experiment(**{**DIGITS, **keys})))


def test_runs_that_fill_one_core_go_side_by_side_as_far_as_memory_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert chosen_jobs([LONG] * 6, CALLS) == 3
    assert chosen_jobs([LONG] * 2, CALLS) == 2
    monkeypatch.setattr(choosing, "_fit_in_memory", lambda: 9)
    assert chosen_jobs([LONG] * 6, CALLS) == 4


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [LONG],
        [LONG, None],
        [LONG, RunSize(one_core=False, seconds=30.0)],
        [RunSize(one_core=True, seconds=choosing.WORTH_S / 2 - 0.1)] * 2,
    ],
)
def test_others_go_one_after_the_other(sizes: list[RunSize | None]) -> None:
    assert chosen_jobs(sizes, CALLS) == 1


def test_samples_that_all_share_need_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 100 times the memory of this process 50 such processes have room, for each may grow to
    twice its size; where half of the size is samples, 100 / 1.5 have."""
    taken = psutil.Process().memory_info().rss
    monkeypatch.setattr(choosing, "free_memory", lambda: 100 * taken)
    assert FIT_IN_MEMORY() == pytest.approx(50, abs=2)
    monkeypatch.setattr(choosing, "kept_bytes", lambda: taken // 2)
    assert FIT_IN_MEMORY() == pytest.approx(100 / 1.5, abs=3)
    monkeypatch.setattr(choosing, "kept_bytes", lambda: 3 * taken)
    assert FIT_IN_MEMORY() == pytest.approx(100, abs=4)
    monkeypatch.setattr(choosing, "shared_samples", lambda: None)
    assert FIT_IN_MEMORY() == pytest.approx(50, abs=2)


def test_what_cannot_be_sent_to_workers_stays() -> None:
    assert chosen_jobs([LONG] * 2, [{"experiment": lambda: 0}]) == 1


def test_a_small_model_fills_one_core_for_so_long() -> None:
    run = size()
    # 1,797 samples of 10 clients, less a fifth for tests: 2 epochs of 9 batches of at most 16
    steps, weights = 2 * 9, 64 * 10 + 10
    a_step = choosing.STEP_S + 3 * 16 * weights / choosing.PRODUCTS_PER_S
    assert run.one_core
    assert run.seconds == pytest.approx(100 * (choosing.ROUND_S + 5 * steps * a_step), rel=0.01)


@pytest.mark.parametrize(
    "keys",
    [
        {"task": {**DIGITS["task"], "model": {"name": "mlp", "hidden": [1000, 100]}}},
        {"engine": "processes"},
    ],
)
def test_large_models_and_workers_use_all_cores(keys: dict[str, Any]) -> None:
    assert not size(**keys).one_core


def test_convolutions_use_all_cores() -> None:
    assert not on_one_thread(nn.Sequential(nn.Conv2d(1, 1, 3)), weights=10)
    assert on_one_thread(nn.Sequential(nn.Linear(3, 3)), weights=12)


def test_a_run_without_a_number_of_rounds_is_long() -> None:
    assert size(stop={"virtual_hours": 1.0}).seconds == math.inf


@pytest.mark.parametrize(("jobs", "used"), [(None, 2), (1, 1)])
@pytest.mark.parametrize(
    ("over", "seeds"), [({"algorithm": ["fedavg", "fedprox"]}, [0]), ({}, [0, 1])]
)
def test_compare_chooses_and_says_so_unless_it_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    over: dict[str, Any],
    seeds: list[int],
    jobs: int | None,
    used: int,
) -> None:
    given: list[int] = []

    def run_points(**options: Any) -> tuple[list[Any], list[Any]]:
        given.append(options["jobs"])
        return [], []

    lines: list[str] = []
    monkeypatch.setattr(sweep, "run_points", run_points)
    keys = {**DIGITS, "stop": {"rounds": 10_000}}
    sweep.compare(
        keys,
        over,
        seeds=seeds,
        out=tmp_path,
        jobs=jobs,
        say=lines.append,
    )
    assert given == [used]
    line = "2 runs at a time, for each fills one core (--jobs 1: one after the other)"
    assert (line in lines) == (jobs is None)
