"""Every file and column that a private run's folder holds has a kind, and clear numbers are not
written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from motley.core.files import SECRET
from motley.experiments.run import run
from motley.results.schema import TABLES
from motley_privacy.published import NOT_COVERED, kind_of
from motley_privacy.replay import folder_columns
from motley_report.report import report

pytest.importorskip("dp_accounting")

NOISE = {"low": 0.0, "high": 5.0, "multiplier": 4.0}
BASE = {
    "task": {
        "name": "image",
        "data": "digits",
        "scale": "unit",
        "model": {"name": "mlp", "hidden": [4]},
    },
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 3},
    "weights": "uniform",
    "local": {"steps": 2},
    "selector": "uniform",
    "engine": "sequential",
    "evaluate": {"every": 1, "per_client": True},
    "metrics": ["accuracy", "macro_f1"],
    "checkpoint": {"every_rounds": 1},
}
PRIVACY = {"clip": 0.5, "noise_multiplier": 4.0, "delta": 1e-5}
RUNS = {
    "uniform": {},
    "noisy losses": {
        "selector": "power_of_choice",
        "privacy": {
            **PRIVACY,
            "signal_noise": {"loss": NOISE, "num_examples": {**NOISE, "high": 400.0}},
        },
    },
    "histograms": {
        "selector": "fedcbs",
        "privacy": {**PRIVACY, "signal_noise": {"label_histogram": {"multiplier": 4.0}}},
    },
    "hidden coins": {
        "selector": {"name": "poisson", "rate": 0.5},
        "privacy": {**PRIVACY, "cohorts": "hidden"},
    },
    "adaptive": {"privacy": {**PRIVACY, "clip": {"initial": 0.5, "noise": 20.0}}},
    "buffered": {
        "synchrony": {"name": "buffered", "refill": "idle", "buffer": 2},
        "device": "uniform",
    },
    "deadline": {"synchrony": {"name": "deadline", "seconds": 0.5}, "device": "uniform"},
    "asynchronous": {"synchrony": "asynchronous", "device": "uniform"},
    "own models": {"algorithm": "ditto"},
    "memories": {
        "compressor": "topk",
        "budget": {"name": "constant", "average": 0.2},
        "feedback": "fixed",
    },
    "states on disk": {"algorithm": "scaffold", "client_state": "disk"},
    "new clients": {"split": {"holdout_clients": 0.2}},
    "weights": {"weights": "examples", "privacy": {**PRIVACY, "max_examples": 50}},
    "liars": {"dishonest": "scaled", "failures": "drop_out"},
}


def walked(folder):
    """Return (file, column) -> value of a folder, and the kind of each."""
    columns = dict(folder_columns(folder))
    return columns, {key: kind_of(*key) for key in columns}


@pytest.mark.parametrize("name", RUNS)
def test_every_file_and_column_of_a_private_run_has_a_kind_and_clear_numbers_are_absent(
    tmp_path, name
):
    run({**BASE, "privacy": PRIVACY, **RUNS[name]}, out=tmp_path / "run")
    columns, kinds = walked(tmp_path / "run")
    assert not [key for key, kind in kinds.items() if kind is None]
    withheld = {key: value for key, value in columns.items() if kinds[key] == "withheld"}
    assert ("clients.parquet", "loss") in withheld
    assert ("federation.parquet", "labels") in withheld
    written = {key: value for key, value in withheld.items() if any(v is not None for v in value)}
    assert not written


def test_a_run_that_is_killed_leaves_no_clear_numbers_either(tmp_path):
    def stop(done):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run({**BASE, "privacy": PRIVACY}, out=tmp_path / "run", on_round=stop)
    columns, kinds = walked(tmp_path / "run")
    assert {file for file, _ in columns} >= {
        "rounds.arrows",
        "clients.arrows",
        "federation.arrows",
        "run.json",
    }
    assert not [key for key, kind in kinds.items() if kind is None]
    withheld = [value for key, value in columns.items() if kinds[key] == "withheld"]
    assert withheld
    assert not any(v is not None for value in withheld for v in value)


def test_a_folder_with_all_that_may_be_in_it_has_a_kind_for_each(tmp_path, monkeypatch):
    """Clients with names, a report, figures for a paper, an event file, an audit, what other
    trackers and secure sums leave."""
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    rows = [
        "site,x,y",
        *(f"h{k},{k + j},{'no' if j % 2 else 'yes'}" for k in range(6) for j in range(9)),
    ]
    Path("d.csv").write_text("\n".join(rows))
    table = {"name": "tabular", "data": "d.csv", "client": "site", "label": "y"}
    task = {**table, "classes": ["no", "yes"], "scale": "none"}
    keys = {**BASE, "task": task, "population": None, "partition": "by_writer"}
    done = run({**keys, "privacy": PRIVACY, "log": ["tensorboard"]}, out="run")
    assert "clients" in done.meta
    report([done], Path("run/report.html"))
    report([done], Path("run/report.md"))
    report([done], Path("run/paper"), format=["latex", "csv"])
    for name in ("audit.json", "mlflow.json", "draws.json"):
        Path("run", name).write_text('{"run_id": "", "uri": ""}')
    Path("run/wandb/offline").mkdir(parents=True)
    Path("run/wandb/offline/run.wandb").write_bytes(b"")
    columns, kinds = walked(Path("run"))
    names = {file for file, _ in columns}
    assert {"report.html", "report.md", SECRET} <= names
    assert any(name.startswith("tensorboard/") for name in names)
    assert any(name.startswith("paper/") for name in names)
    assert not [key for key, kind in kinds.items() if kind is None]
    assert kinds["run.json", "clients"] == "public"
    assert kinds["report.html", "bytes"] == "not covered"


def test_every_column_of_every_table_has_a_kind():
    for suffix in ("parquet", "arrows"):
        found = {
            (table, name): kind_of(f"{table}.{suffix}", name)
            for table, schema in TABLES.items()
            for name in schema.names
        }
        assert not [column for column, kind in found.items() if kind is None]


def test_a_new_column_or_file_has_no_kind():
    assert kind_of("clients.parquet", "age") is None
    assert kind_of("diary.txt", "bytes") is None
    assert kind_of("run.json", "mean_age") is None


def test_runs_without_privacy_keep_their_columns(tmp_path):
    done = run(BASE, out=tmp_path / "run")
    assert all(v is not None for v in done.tables["clients"]["loss"].to_pylist())
    assert sum(done.tables["federation"]["num_train"].to_pylist()) > 0


def test_what_is_not_covered_is_a_short_list():
    assert len(NOT_COVERED) <= 5
    assert len(json.dumps(dict(NOT_COVERED))) < 500
