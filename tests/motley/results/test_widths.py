"""Figures at each width, from a run of one round: rows, and the tables of report and terminal."""

import numpy as np
import pytest

import motley
from motley.results import tables
from motley.results.widths import width_rows
from tests.motley.results import fake

KEYS = {
    "task": {"name": "image", "model": {"name": "mlp", "hidden": [6]}},
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 1},
    "engine": "sequential",
    "local": {"steps": 1},
    "algorithm": {"name": "fjord", "widths": [1.0, 0.5]},
    "seed": 1,
}


@pytest.mark.parametrize("test", ["client", "global"])
def test_a_row_for_the_whole_model_each_listed_width_and_the_clients_own(test, tmp_path):
    capacity = {"name": "levels", "levels": [1.0, 0.5]}
    run = motley.run({**KEYS, "capacity": capacity, "split": {"test": test}}, out=tmp_path / "run")
    scopes = (
        ("shared_mean", "width_0.5_mean", "mean")
        if test == "client"
        else ("global", "width_0.5", "mean")
    )
    table = run.tables["evaluations"].to_pylist()
    wanted = [
        100 * next(row["accuracy"] for row in table if (row["scope"], row["round"]) == (scope, 1))
        for scope in scopes
    ]
    rows = width_rows([run, run])
    assert [row.width for row in rows] == ["1", "0.5", "each client's own"]
    np.testing.assert_allclose([row.value.mean for row in rows], wanted, rtol=1e-12)
    assert [row.value.n for row in rows] == [2, 2, 2]


def test_without_capacity_every_client_has_the_whole_model(tmp_path):
    run = motley.run(KEYS, out=tmp_path / "fjord")
    assert [row.width for row in width_rows([run])] == ["1", "0.5"]
    plain = motley.run({**KEYS, "algorithm": "fedavg"}, out=tmp_path / "plain")
    assert width_rows([plain]) == []
    assert tables.widths({"fedavg": [plain]}) is None


def test_a_seed_that_was_ruined_at_a_width_is_not_left_out():
    runs = [
        fake.of_losses([2.0, 0.3], seed=seed, scopes={"width_0.5_mean": loss})
        for seed, loss in enumerate((0.4, float("nan")))
    ]
    whole, half = width_rows(runs)
    assert (whole.value.mean, half.value.n) == (0.3, 0)
