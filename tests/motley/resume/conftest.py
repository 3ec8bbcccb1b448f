"""A small federation that uses everything that evolves: a probing selector with memory, noise,
unequal speeds, several epochs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motley.experiments.config import Experiment
from motley.experiments.run import run
from motley.results.load import Run, load
from motley.results.schema import EQUAL_TABLES


@pytest.fixture
def experiment() -> Experiment:
    return make(rounds=12)


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Experiment], Run]:
    """Return a function that returns the run of an experiment that nothing happens to. Each is made
    once, so tests only read it."""
    made: dict[str, Run] = {}

    def whole(experiment: Experiment) -> Run:
        keys = experiment.model_dump_json()
        if keys not in made:
            made[keys] = run(experiment, out=tmp_path_factory.mktemp("unbroken"))
        return made[keys]

    return whole


def make(rounds: int, **keys: Any) -> Experiment:
    base = {
        "name": "resume",
        "population": 12,
        "cohort": 4,
        "stop": {"rounds": rounds},
        "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
        "split": {"test": "client"},
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "label_noise": {"name": "symmetric", "rate": 0.3},
        "local": {
            "epochs": 1,
            "batch_size": 32,
            "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.5},
        },
        "algorithm": {"name": "fedprox", "mu": 0.1},
        "selector": {"name": "hetero_select_v1"},
        "device": {"name": "uniform", "low": 0.1, "high": 1.0},
        "network": {"name": "uniform"},
        "evaluate": {"every": 3},
        "metrics": ["accuracy", "macro_f1"],
        "checkpoint": {"every_rounds": 4, "every_s": 1000.0},
        "engine": {"name": "auto", "threads": 1},
    }
    return Experiment(**{**base, **keys})


def assert_same(first: Path | Run, second: Path | Run) -> None:
    """Equal tables, to the last bit, and equal model bits."""
    one, two = (load(run) if isinstance(run, Path) else run for run in (first, second))
    for table in EQUAL_TABLES:
        assert one.tables[table].num_rows > 0 or table in (
            "choices",
            "metrics",
            "claims",
            "privacy",
        )
        assert one.tables[table].equals(two.tables[table]), f"the tables {table} differ"
    assert (one.directory / "model.safetensors").read_bytes() == (
        two.directory / "model.safetensors"
    ).read_bytes()
