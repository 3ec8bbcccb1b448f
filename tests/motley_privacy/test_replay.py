"""Two worlds with the same counted releases: flows that no epsilon bounds are found, and there are
none in admitted runs."""

from __future__ import annotations

import json
from itertools import chain, repeat
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import motley_privacy.private_admission as checks
from motley.cli import call
from motley.core.errors import ConfigError
from motley.core.records import Outcome
from motley.experiments import run as experiment_run
from motley.experiments import run_data
from motley.experiments.build import prepare
from motley.experiments.config import Experiment
from motley_privacy import private_rounds
from motley_privacy.private_rounds import PrivateRounds
from motley_privacy.replay import replay

pytest.importorskip("dp_accounting")

PRIVACY = {"clip": 0.5, "noise_multiplier": 4.0, "delta": 1e-5}
LOSS = {"low": 0.0, "high": 5.0, "multiplier": 4.0}
SIZE = {"low": 0.0, "high": 400.0, "multiplier": 4.0}
DIGITS = {
    "name": "image",
    "data": "digits",
    "scale": "unit",
    "model": {"name": "mlp", "hidden": [4]},
}


def keys(**more):
    return {
        "task": DIGITS,
        "population": 8,
        "cohort": 4,
        "stop": {"rounds": 4},
        "weights": "uniform",
        "selector": "uniform",
        "local": {"steps": 2, "batch_size": 8},
        "evaluate": {"every": 2},
        "engine": "sequential",
        "privacy": PRIVACY,
        **more,
    }


def noisy(**signals):
    return {**PRIVACY, "signal_noise": signals}


def found(change, *more, **given):
    """Return the differences of one world as (file, column)."""
    done = replay(Experiment(**keys(**given)), None, (change, *more))
    return {(one.file, one.column) for one in done.differences[change]}


CLEAN = {
    "uniform": {},
    "power_of_choice": {
        "selector": "power_of_choice",
        "privacy": noisy(loss=LOSS, num_examples=SIZE),
    },
    "gumbel": {
        "selector": "power_of_choice",
        "privacy": noisy(loss={**LOSS, "noise": "gumbel"}, num_examples=SIZE),
    },
    "oort": {
        "selector": "oort",
        "privacy": noisy(loss_rms=LOSS, num_examples=SIZE),
        "device": "uniform",
    },
    "fedcs": {"selector": {"name": "fedcs", "deadline": 0.8}, "device": "uniform"},
    "histograms": {"selector": "fedcbs", "privacy": noisy(label_histogram={"multiplier": 4.0})},
    "hetero_select": {
        "selector": {"name": "hetero_select", "w_direction": 0.0},
        "privacy": noisy(loss=LOSS),
    },
    "coins": {
        "selector": {"name": "poisson", "rate": 0.6},
        "privacy": {**PRIVACY, "cohorts": "hidden"},
    },
    "adaptive": {"privacy": {**PRIVACY, "clip": {"initial": 0.01, "noise": 20.0}}},
    "replace_one": {"privacy": {**PRIVACY, "adjacency": "replace_one", "clip": 0.001}},
    "noise by clients": {"privacy": {**PRIVACY, "noise_by": "clients"}, "cohort": 6},
    "noise taken back": {"privacy": {**PRIVACY, "min_separation": 2, "max_rounds": 2}, "cohort": 3},
    "deadline": {
        "synchrony": {"name": "deadline", "seconds": 0.7, "over_select": 1.5},
        "device": "uniform",
    },
    "buffered": {
        "synchrony": {"name": "buffered", "buffer": 2, "refill": "idle"},
        "device": "log_normal",
    },
    "asynchronous": {"synchrony": "asynchronous", "device": "uniform", "stop": {"rounds": 6}},
    "scaffold": {"algorithm": "scaffold"},
    "weights": {"weights": "examples", "privacy": {**PRIVACY, "max_examples": 50}},
    "table": {"task": {"name": "tabular", "data": "iris", "scale": "none"}},
    "regression": {"task": {"name": "tabular_regression", "scale": "none"}},
    "quadratic": {"task": {"name": "quadratic"}},
}


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_differs_beside_the_counted_releases(name):
    done = replay(Experiment(**keys(**CLEAN[name])), None)
    assert done.entered
    assert not done.differs, "\n".join(done.sentences())
    assert next(iter(done.differences)) == "absent"
    assert "other" in done.differences
    assert done.sentences()[0].startswith(
        f"No difference beside the counted releases in {done.files} files, "
    )


# ------------------------------------------------------------------- each fault, around its refusal


@pytest.fixture
def unchecked(monkeypatch):
    """Let experiments pass that are refused."""
    for name, nothing in {
        "_check_data": lambda *given: None,
        "check_time": lambda *given: None,
    }.items():
        monkeypatch.setattr(checks, name, nothing, raising=False)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "task", [{**DIGITS, "scale": "standard"}, {"name": "tabular", "data": "iris"}]
)
def test_the_statistics_of_a_scale_over_all_clients_are_found(task):
    """Fault 1: they are in preparation.json, and change the inputs of others."""
    differs = found("other", task=task)
    assert ("(sums)", "a client's update") in differs
    assert {column for file, column in differs if file == "preparation.json"} & {"shift", "columns"}


@pytest.mark.usefixtures("unchecked")
def test_a_class_of_one_client_alone_is_found(tmp_path):
    """Fault 1: the model has another shape."""
    path = tmp_path / "people.csv"
    given = np.arange(80)
    ages = {"age": given % 17 * 0.1, "height": given % 5 * 0.2}
    csv.write_csv(pa.table({**ages, "sick": [f"{k % 2 == 0}" for k in given]}), path)
    task = {"name": "tabular", "data": str(path), "label": "sick", "scale": "none"}
    assert ("model.safetensors", "shapes") in found("own_class", task=task)


@pytest.mark.usefixtures("unchecked")
def test_an_outcome_that_follows_from_data_is_found(monkeypatch):
    """Fault 2: a client whose update is not finite is heard as rejected, and is chosen again and
    again."""
    real = PrivateRounds.heard

    def heard(self, state, reports):
        bad = ~np.isfinite(reports.signal("loss")) & (reports.outcome == Outcome.ACCEPTED)
        outcome = (
            np.where(bad, Outcome.REJECTED, reports.outcome) if len(reports) else reports.outcome
        )
        object.__setattr__(reports, "outcome", outcome.astype(np.int8))
        return real(self, state, reports)

    monkeypatch.setattr(PrivateRounds, "heard", heard)
    given = {
        "selector": "oort",
        "privacy": noisy(loss_rms=LOSS, num_examples=SIZE),
        "device": "uniform",
    }
    assert ("(reports to the selector)", "outcome, with accepted") in found("non_finite", **given)


SLOW = {"name": "shifted_exponential", "a_t": 0.01, "lambda_t": 0.01}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"selector": {"name": "fedcs", "deadline": 4.0}, "cohort": 3},
            ("(reports to the selector)", "compute_estimate_s, with probed"),
        ),
        (
            {"synchrony": {"name": "deadline", "seconds": 2.5, "over_select": 1.5}},
            ("clients.parquet", "outcome"),
        ),
        (
            {
                "synchrony": {"name": "buffered", "buffer": 2, "refill": "idle"},
                "stop": {"rounds": 12},
            },
            ("clients.parquet", "client"),
        ),
    ],
    ids=["fedcs", "deadline", "buffered"],
)
def test_sizes_that_reach_others_through_time_are_found(more, expected):
    """Fault 3: devices that take as long as there are samples."""
    assert expected in found("other", device=SLOW, **more)


PLACED = ("larger", "smaller", "first", "middle", "renamed")


@pytest.fixture
def people(tmp_path):
    """A table of eight clients of twelve rows each, whose first feature is the client's number."""
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(8), 12)
    columns = {
        "site": [f"h{k}" for k in client],
        "age": client + rng.random(96),
        "height": rng.random(96),
        "sick": [("no", "yes")[k % 2] for k in range(96)],
    }
    csv.write_csv(pa.table(columns), tmp_path / "people.csv")
    task = {"name": "tabular", "data": str(tmp_path / "people.csv"), "client": "site"}
    more = {"label": "sick", "classes": ["no", "yes"], "scale": "none"}
    return keys(task={**task, **more}, population=None, partition="by_writer", cohort=8)


@pytest.mark.parametrize("client", [0, 3, 7])
def test_the_number_of_one_clients_rows_changes_nobody_elses(people, client):
    """The first client, one in the middle, the last; with wrong labels, too."""
    wrong = {"name": "symmetric", "rate": 0.3}
    done = replay(Experiment(**{**people, "label_noise": wrong}), None, PLACED, client)
    assert not done.differs, "\n".join(done.sentences())
    assert set(done.differences) == set(PLACED)


def test_a_number_of_rows_that_changes_the_others_is_found(people, monkeypatch):
    """A split that is drawn over all rows by their place: the client's own rows, last in the file,
    move nobody's place, so that only the worlds that put them elsewhere show it."""
    real = run_data.partition_input
    monkeypatch.setattr(
        run_data, "partition_input", lambda *given, **_: real(*given, own_rows=False)
    )
    done = replay(Experiment(**people), None, PLACED)
    seen = {change for change, differences in done.differences.items() if differences}
    assert {"first", "middle"} <= seen
    columns = {(one.file, one.column) for one in done.differences["first"]}
    assert ("(sums)", "a client's update") in columns


# ---------------------------------------------------------------------------- faults of other kinds


def test_a_release_that_moves_further_than_it_is_counted_is_found(monkeypatch):
    monkeypatch.setattr(
        private_rounds, "clipped", lambda upload, *given: (upload._replace(weight=1.0), True)
    )
    assert ("(sums)", "sum") in found("far", privacy={**PRIVACY, "clip": 0.001})


def test_a_signal_that_is_not_clipped_is_found(monkeypatch):
    real = private_rounds.released
    monkeypatch.setattr(
        private_rounds,
        "released",
        lambda source, ids, name, value, how: value + 0 * real(source, ids, name, value, how),
    )
    given = {
        "selector": "power_of_choice",
        "privacy": noisy(loss={**LOSS, "high": 0.1}, num_examples=SIZE),
    }
    assert ("(reports to the selector)", "loss") in found("far", **given)


def test_a_clear_column_is_found(monkeypatch):
    monkeypatch.setattr(private_rounds, "without_clear", lambda table, columns: dict(columns))
    differs = found("other")
    assert {
        ("clients.parquet", "num_examples"),
        ("federation.parquet", "labels"),
        ("rounds.parquet", "train_loss"),
    } <= differs


def test_an_evaluation_decides_on_no_model_of_a_private_run():
    """The loss of one client is not finite on its test samples; a guard would go back to the model
    before."""
    assert not {
        one
        for one in found("non_finite", evaluate={"every": 1})
        if "good" in one[1] or "model" in one[1]
    }


def test_seconds_that_follow_sizes_are_told_as_not_covered():
    done = replay(Experiment(**keys(local={"epochs": 1, "batch_size": 8})), None, ("other",))
    assert not done.differs
    assert {(one.file, one.column) for one in done.clock} >= {
        ("clients.parquet", "local_steps"),
        ("clients.parquet", "compute_s"),
    }
    assert any(
        line.startswith("Seconds or steps follow its number of samples: clients")
        for line in done.sentences()
    )


def test_a_slow_machine_is_no_difference_between_worlds(monkeypatch):
    """A checkpoint that is due by the wall clock would be there in one world alone."""
    moments = chain([1e9], repeat(0.0))  # the first round seems to take long
    clock = SimpleNamespace(monotonic=lambda: next(moments), perf_counter=lambda: 0.0)
    monkeypatch.setattr(experiment_run, "time", clock)
    done = replay(Experiment(**keys()), None, ("other",))
    assert not done.differs


def test_a_clock_that_follows_sizes_is_in_nobodys_durations():
    """Round 2 begins later where a client has more samples to measure before, and 2.9 + 0.6 - 2.9
    is not 5.1 + 0.6 - 5.1."""
    given = {
        "selector": "linucb",
        "privacy": noisy(robust_loss=LOSS, val_loss=LOSS),
        "split": {"test": "client", "validation": 0.2},
        "local": {"steps": 6, "batch_size": 8},
        "network": {"name": "uniform", "up_mbps": [1.0, 5.0], "down_mbps": [1.0, 5.0]},
    }
    done = replay(Experiment(**keys(**given)), None, ("larger", "first"))
    assert done.clock
    assert not done.differs, "\n".join(done.sentences())


def test_diagnostics_which_tell_exact_gradients_are_refused():
    given = keys(evaluate={"every": 2, "diagnostics": True})
    with pytest.raises(
        ConfigError,
        match=r"evaluate.diagnostics: diagnostics write exact figures of all clients' gradients "
        r".*; leave",
    ):
        prepare(Experiment(**given))


def test_a_named_client_is_compared_and_another_one_refused():
    assert (
        replay(Experiment(**keys(task={"name": "quadratic"})), client=2, changes=("other",)).client
        == 2
    )
    with pytest.raises(
        ConfigError,
        match="--canary: got 9; expected a client that takes part, from 0 to 7; leave it out",
    ):
        replay(Experiment(**keys(task={"name": "quadratic"})), client=9)


def test_an_experiment_without_privacy_is_refused():
    given = {key: value for key, value in keys().items() if key != "privacy"}
    with pytest.raises(
        ConfigError, match=r"privacy: there is nothing to audit without it; write e.g. \[privacy\]"
    ):
        replay(Experiment(**given))


@pytest.mark.usefixtures("unchecked")
def test_the_command_prints_differences_first_and_returns_1(tmp_path, capsys):
    file = tmp_path / "x.toml"
    out = tmp_path / "out"
    file.write_text(
        'task = { name = "tabular", data = "iris" }\npopulation = 8\ncohort = 4\nstop = { rounds = '
        '2 }\nweights = "uniform"\n'
        "local = { steps = 2 }\n[privacy]\nclip = 0.5\nnoise_multiplier = 20.0\ndelta = 1e-5\n"
    )
    command = ["audit-privacy", str(file), "--trials", "100", "--stand-in", "--out", str(out)]
    assert call(command) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Difference with probability one. client ")
    assert any("preparation.json: columns" in line for line in said)
    assert any("A low eps_hat proves nothing" in line for line in said)
    assert json.loads((out / "audit.json").read_text())["replay"]["differences"]["other"]
