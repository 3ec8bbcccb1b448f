"""All runs below a folder as one table, told apart by its first columns."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import motley
from motley.core.errors import ConfigError, StoreError
from motley.results.schema import TABLES

sys.path.insert(0, str(Path(__file__).parent))
import fake


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for selector, seed in (("uniform", 0), ("uniform", 1), ("power_of_choice", 0)):
        path = fake.write(root / selector / str(seed), selector, seed, rounds=3, per_client=False)
        (path / "run.json").write_text(json.dumps(fake.meta(selector, seed)))
    return root


# these runs have none
@pytest.mark.parametrize(
    "table",
    [
        name
        for name in TABLES
        if name not in ("choices", "metrics", "incidents", "claims", "privacy")
    ],
)
def test_every_table_of_every_run(folder, table):
    """Runs lie in the order of their folders: power_of_choice before uniform."""
    rows = motley.frame(folder, table)
    assert rows.column_names == ["run_id", "label", "seed", *TABLES[table].names]
    assert rows.num_rows == sum(run.tables[table].num_rows for run in motley.load_all(folder))
    who = dict.fromkeys(
        zip(*(rows[name].to_pylist() for name in ("run_id", "label", "seed")), strict=True)
    )
    assert list(who) == [
        ("powe0", "power_of_choice", 0),
        ("unif0", "uniform", 0),
        ("unif1", "uniform", 1),
    ]


def test_values_are_those_of_the_runs(folder):
    rows = motley.frame(str(folder / "uniform"), "evaluations")
    for run in motley.load_all(folder / "uniform"):
        mine = rows.filter(np.asarray(rows["seed"].to_numpy()) == run.seed)
        np.testing.assert_array_equal(
            mine["accuracy"].to_numpy(), run.column("evaluations", "accuracy")
        )


def test_one_line_into_pandas(folder):
    pandas = pytest.importorskip("pandas")
    rows = motley.frame(folder, "evaluations").to_pandas()
    assert isinstance(rows, pandas.DataFrame)
    assert rows.groupby("label").accuracy.max().between(0, 1).all()


def test_one_line_into_polars(folder):
    polars = pytest.importorskip("polars")
    rows = polars.from_arrow(motley.frame(folder, "evaluations"))
    assert rows.columns[:3] == ["run_id", "label", "seed"]


def test_loaded_runs_and_those_without_rows(folder):
    runs = [*motley.load_all(folder / "uniform"), fake.run({"selector": {"name": "none"}}, seed=7)]
    assert motley.frame(runs, "rounds")["seed"].to_pylist() == [0] * 3 + [1] * 3
    assert motley.frame([fake.run()], "rounds").num_rows == 0


def test_bad_input_is_one_sentence(folder, tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"table: got 'evaluation' \(did you mean 'evaluations'\?\); expected one of rounds, ",
    ):
        motley.frame(folder, "evaluation")
    with pytest.raises(StoreError, match="there are no runs in"):
        motley.frame(tmp_path, "rounds")
    with pytest.raises(StoreError, match="needs at least one run"):
        motley.frame([], "rounds")
