"""Names of clients in a run's record, and in everything that reads it; a run without names is as it
was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import motley
from motley.core.errors import ConfigError
from motley.experiments.trained import TrainedRun
from motley.results.blocks import Section
from motley.tasks import from_clients, own_task
from motley_report.client_by_client import by_client
from motley_report.sections import served
from motley_report.selection_plots import class_distribution

NAMES = ("hosp_A", "hosp_B", "hosp_H")
KEYS: dict[str, Any] = {"cohort": 2, "stop": {"rounds": 2}, "metrics": ["accuracy", "macro_f1"]}


def clients() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(20 + 4 * k, 3)), np.arange(20 + 4 * k) % 3) for k in range(3)]


def model() -> nn.Module:
    return nn.Linear(3, 3)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    federation = from_clients(dict(zip(NAMES, clients(), strict=True)))
    return motley.run(
        KEYS, task=own_task(federation, model), out=tmp_path_factory.mktemp("runs") / "named"
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    return motley.run(
        KEYS,
        task=own_task(from_clients(clients()), model),
        out=tmp_path_factory.mktemp("runs") / "plain",
    )


def test_the_record_has_names_as_a_deployment_has_them(
    named: TrainedRun, plain: TrainedRun
) -> None:
    assert named.meta["clients"] == dict(zip("012", NAMES, strict=True))
    assert [named.client_name(k) for k in (0, 2, 3, -1)] == [
        "hosp_A",
        "hosp_H",
        "client 3",
        "no client",
    ]
    assert "clients" not in plain.meta
    assert [plain.client_name(k) for k in (0, 2)] == ["client 0", "client 2"]
    for table in ("rounds", "clients", "evaluations", "metrics", "federation"):
        assert named.tables[table].equals(plain.tables[table])


def test_a_model_is_asked_for_by_name(named: TrainedRun, plain: TrainedRun) -> None:
    x = np.ones((2, 3))
    assert named.clients()["hosp_H"].client == 2
    assert named.clients()["hosp_H"].predict(x).tolist() == named.clients()[2].predict(x).tolist()
    with pytest.raises(
        ConfigError,
        match=r"^there is no client 'hosp_G' \(did you mean 'hosp_H'\?\); this run has: hosp_A, "
        r"hosp_B",
    ):
        named.clients()["hosp_G"]
    with pytest.raises(
        ConfigError,
        match=r"^got 'hosp_H', and the clients of this run have no names; give a number, 0 for the "
        r"first",
    ):
        plain.clients()["hosp_H"]


def test_every_metric_of_every_client_is_one_table(named: TrainedRun, plain: TrainedRun) -> None:
    table = named.client_table()
    assert table["name"].to_pylist() == list(NAMES)
    assert table.column_names == [
        "client",
        "name",
        "num_train",
        "num_test",
        "asked",
        "accepted",
        "loss",
        "accuracy",
        "macro_f1",
    ]
    last = [
        row
        for row in named.tables["metrics"].to_pylist()
        if (row["round"], row["scope"]) == (2, "client")
    ]
    assert table["macro_f1"].to_pylist() == [
        row["value"] for row in sorted(last, key=lambda row: row["client"])
    ]
    assert sum(table["asked"].to_pylist()) == 4
    # a fifth of 20, 24 and 28, rounded up
    assert [str(k) for k in table["num_test"].to_pylist()] == ["4", "5", "6"]
    assert plain.client_table()["name"].to_pylist() == [None] * 3
    assert plain.client_table().drop_columns(["name"]).equals(table.drop_columns(["name"]))


def test_other_ways_to_evaluate_a_client_are_columns_of_their_own(tmp_path: Path) -> None:
    keys = {
        "task": {"name": "tabular", "data": "iris"},
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 1},
        "algorithm": "ditto",
    }
    split = {"validation": 0.2, "holdout_clients": 0.25}
    table = motley.run({**keys, "split": split}, out=tmp_path / "run").client_table()
    assert {"accuracy", "shared_accuracy", "validation_loss", "new_0_accuracy"} <= set(
        table.column_names
    )
    assert table["new_0_accuracy"].null_count == 3


@pytest.mark.usefixtures("drawn")
def test_reports_say_names(named: TrainedRun, plain: TrainedRun) -> None:
    drawn, bare = (class_distribution(run) for run in (named, plain))
    assert drawn is not None
    assert bare is not None
    assert [name in drawn.svg for name in NAMES] == [True] * 3
    assert "client 0" not in bare.svg
    titles = [
        [block.title for block in served({"run": [run]}).blocks if isinstance(block, Section)]
        for run in (named, plain)
    ]
    assert ["Client by client" in some for some in titles] == [True, False]
    found = by_client({"one": [named], "two": [named, named]})
    assert found is not None
    assert list(found.heads) == ["client", "test samples", "one: accuracy (%)", "two: accuracy (%)"]
    assert [row.label for row in found.rows] == list(NAMES)
    assert by_client({"one": [plain]}) is None
