"""Eight selectors by seven columns of aggregation, as in FLASH's table: every pair runs, with local
Adam."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from motley.experiments.build import build
from motley.experiments.config import load
from motley.experiments.sweep import expand

TABLE = load(Path(__file__).resolve().parents[3] / "examples" / "flash_crossing.toml")
POINTS = expand(TABLE)


def name(point):
    return f"{point.experiment.selector['name']}-{point.experiment.algorithm['name']}"


def test_the_table_is_whole():
    assert len({name(point) for point in POINTS}) == 56


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=name)
def test_a_pair_runs(point):
    """Two rounds; under FLASH with its own loss, which in RHFL's column is the one the confidence
    is taken with, too."""
    keys = {
        "stop": {"rounds": 2},
        "population": 20,
        "local.epochs": 1,
        "engine": {"name": "sequential", "threads": 1},
    }
    if point.experiment.selector["name"] == "flash":
        keys["loss"] = "flash_robust"
    simulation = build(point.experiment.replace(keys))
    start = simulation.state.server.model.x.clone()
    while not simulation.done:
        done = simulation.step()
    assert done.accepted >= 4
    assert math.isfinite(simulation.state.scores.headline)
    moved = (simulation.state.server.model.x - start).norm()
    assert 0 < moved < math.inf


@pytest.mark.slow
@pytest.mark.parametrize("selector", TABLE.grid[0]["selector.name"])
def test_own_models_under_every_selector(selector):
    """RHFL's clients with models of their own, for the rules that do not look at uploaded updates;
    none of the eight does."""
    keys = {
        "selector": selector,
        "algorithm": {"name": "rhfl", "mode": "kd", "batch_size": 64},
        "stop": {"rounds": 2},
    }
    simulation = build(TABLE.replace({**keys, "population": 20, "local.epochs": 1}))
    while not simulation.done:
        simulation.step()
    assert math.isfinite(simulation.state.scores.headline)
