"""Clients keep the names that they came with, and a row that cannot be used is named by its client
and its number, from 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import nn

import motley
from motley.core.errors import DataError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.experiments.run_data import task_of
from motley.tasks import from_arrays, from_clients, from_files, own_task
from motley.tasks.federate import Split, federate, partition_input
from motley.tasks.own import fingerprint
from motley.tasks.task import Federation
from motley_data.formats import image_folders, leaf
from motley_data.tabular import Tabular
from motley_data.text import NextCharacter

X = np.arange(24.0).reshape(12, 2) / 4
Y = np.arange(12) % 2
IDS = ["hosp_C"] * 4 + ["hosp_A"] * 4 + ["hosp_B"] * 4
NAMES = ("hosp_A", "hosp_B", "hosp_C")


def csv(path: Path, ids: list[Any], column: str = "hospital") -> Path:
    rows = [
        f"{one},{a},{b},{y}" for one, (a, b), y in zip(ids, X.tolist(), Y.tolist(), strict=True)
    ]
    path.write_text(f"{column},a,b,y\n" + "\n".join(rows) + "\n")
    return path


def of_file(path: Path, **keys: Any) -> Federation:
    task = {"name": "tabular", "data": str(path), "label": "y", "client": "hospital"}
    setup = motley.Experiment(
        task=task, cohort=1, stop={"rounds": 1}, **{"partition": "by_writer", **keys}
    )
    return task_of(setup).federation


def test_a_column_of_clients_is_the_partition_unless_another_is_written(tmp_path: Path) -> None:
    """``iid`` would deal the rows of the hospitals out to other clients without a word."""
    path = csv(tmp_path / "all.csv", IDS)
    task = {"name": "tabular", "data": str(path), "label": "y", "client": "hospital"}
    keys = {"cohort": 1, "stop": {"rounds": 1}}
    for source in (task, Tabular(data=str(path), label="y", client="hospital")):
        setup = motley.Experiment(task=source, **keys)
        assert setup.partition == {"name": "by_writer"}
        assert task_of(setup).federation.client_names == NAMES
    mixed = motley.Experiment(task=task, partition="iid", population=3, **keys)
    assert task_of(mixed).federation.client_names == ()
    without = {**task, "client": "", "drop": ["hospital"]}
    assert motley.Experiment(task=without, population=3, **keys).partition["name"] == "iid"


def test_strings_that_say_whose_rows_are_are_names_in_the_order_of_the_clients(
    tmp_path: Path,
) -> None:
    assert from_arrays(X, Y, IDS).client_names == NAMES
    federation = of_file(csv(tmp_path / "all.csv", IDS))
    assert federation.client_names == NAMES
    # of the four rows of hosp_C, one is for testing
    assert np.flatnonzero(federation.train.owner == 2).size == 3
    assert federation.preparation is not None


def test_numbers_of_a_column_are_names_unless_they_are_the_clients_own_numbers(
    tmp_path: Path,
) -> None:
    assert of_file(csv(tmp_path / "a.csv", [12] * 4 + [3] * 4 + [7] * 4)).client_names == (
        "hospital=3",
        "hospital=7",
        "hospital=12",
    )
    assert of_file(csv(tmp_path / "b.csv", [2] * 4 + [0] * 4 + [1] * 4)).client_names == ()
    assert from_arrays(X, Y, np.repeat([3, 7, 12], 4)).client_names == ()


def test_a_partition_that_mixes_the_clients_has_no_names(tmp_path: Path) -> None:
    path = csv(tmp_path / "all.csv", IDS)
    assert of_file(path, partition="iid", population=3).client_names == ()
    dataset = leaf_of(tmp_path)
    rows = partition_input(dataset, Split(), Key(0))
    halves = Ragged(np.array([0, 2, 4, 8]), np.arange(8))  # two clients share the first user's rows
    assert federate(dataset, rows, halves, Split(), Key(0)).client_names == ()


def leaf_of(folder: Path) -> Any:
    users = {name: {"x": [[1, 2]] * 4, "y": [0, 1, 0, 1]} for name in ("f_7", "f_12")}
    (folder / "data.json").write_text(json.dumps({"users": list(users), "user_data": users}))
    return leaf.read(folder)


def test_users_of_leaf_folders_of_pictures_and_roles_are_names(tmp_path: Path) -> None:
    assert leaf_of(tmp_path).client_names == ("f_12", "f_7")
    for client in ("north", "south"):
        for kind in ("cat", "dog"):
            (tmp_path / "pictures" / client / kind).mkdir(parents=True)
            Image.new("L", (2, 2)).save(tmp_path / "pictures" / client / kind / "a.png")
    assert image_folders.read(tmp_path / "pictures").client_names == ("north", "south")
    for role in ("anna", "bert", "carl"):
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{role}.txt").write_text(
            "a" if role == "bert" else "hello you there " * 8
        )
    dataset = NextCharacter(data=str(tmp_path / "texts"), window=8).load(Key(0), 0)
    rows = partition_input(dataset, Split(), Key(0))
    owner = np.unique(rows.groups, return_inverse=True)[1]
    parts = Ragged(
        np.concatenate([[0], np.cumsum(np.bincount(owner))]), np.argsort(owner, kind="stable")
    )
    # bert has too little to say
    assert federate(dataset, rows, parts, Split(), Key(0)).client_names == ("anna", "carl")


def test_files_and_mappings_have_names(tmp_path: Path) -> None:
    for name in ("oak", "ash"):
        csv(tmp_path / f"{name}.csv", ["x"] * 12)
    assert from_files(tmp_path, label="y", table={"scale": "federated"}).client_names == (
        "ash",
        "oak",
    )
    train = {"oak": (X, Y), "ash": (X[:6], Y[:6])}
    assert from_clients(train).client_names == ("oak", "ash")
    tested = from_clients(train, test={"ash": (X[:2], Y[:2]), "oak": (X[:3], Y[:3])})
    assert (tested.client_names, tested.test.sizes.tolist()) == (("oak", "ash"), [3, 2])
    assert from_clients(list(train.values())).client_names == ()
    with pytest.raises(DataError, match=r"^got 'ash' among the clients only; expected it in both$"):
        from_clients(train, test={"oak": (X, Y)})
    with pytest.raises(
        DataError, match=r"^got clients by name and test parts without, or the other way"
    ):
        from_clients(train, test=[(X, Y), (X, Y)])
    (tmp_path / "oak").mkdir()
    csv(tmp_path / "oak" / "more.csv", ["x"] * 12)
    with pytest.raises(
        DataError,
        match=r"has two clients of the name 'oak'; give each client one file, or one folder of "
        r"files",
    ):
        from_files(tmp_path, label="y", table={"scale": "federated"})


def test_names_are_of_the_run_id_and_change_no_row() -> None:
    plain = from_clients([(X, Y), (X, Y)])
    named = from_clients({"oak": (X, Y), "ash": (X, Y)})
    assert np.array_equal(plain.train.values, named.train.values)
    first, second = (fingerprint(own_task(one, lambda: nn.Linear(2, 2))) for one in (plain, named))
    assert first != second


BAD = {"oak": (X, Y), "ash": (np.where(X[2, 1] == X, np.nan, X), Y)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda folder: from_clients(BAD),
            r"^client ash, row 3 of its samples: NaN in x1 \(1 in all, in 'x1'\), and scale = ",
        ),
        (
            lambda folder: from_clients(list(BAD.values())),
            r"^client 1, row 3 of its samples: NaN in x1 ",
        ),
        (
            lambda folder: from_clients([(X, Y)] * 2, test=[(X, Y), BAD["ash"]]),
            r"^the test part of client 1, row 3 of its samples: NaN in x1 ",
        ),
        (
            lambda folder: from_clients({k: (x[:, :, None], y) for k, (x, y) in BAD.items()}),
            r"^client ash, row 3 of its samples: NaN or infinity among the features \(in 1 of 24 "
            r"samples\); fill or drop them$",
        ),
        (
            lambda folder: from_arrays(BAD["ash"][0], Y, IDS),
            r"^client hosp_C, row 3 of the arrays given: NaN in x1 ",
        ),
        (
            lambda folder: from_clients({"oak": (X, Y), "ash": (X, Y - 1.0)}),
            r"^client ash, row 1 of its samples: labels out of range, from -1 to 1; expected 0 .. "
            r"C - 1 \(in 6 of 24 rows\)$",
        ),
        (
            lambda folder: from_clients({"oak": (X, Y), "ash": (X, Y / 2)}),
            r"^client ash, row 2 of its samples: the label 0.5 is no whole number \(in 6 of 24 "
            r"rows\), and classes are 0 .. C - 1; "
            r'to predict numbers write task.name = "tabular_regression", in Python '
            r"regression=True$",
        ),
        (
            lambda folder: from_arrays(X[:, :, None].astype(str), Y, IDS),
            r"^the arrays given: the features are text \(column 1 of the first row holds '0.0'\); "
            r"expected numbers$",
        ),
    ],
)
def test_a_row_that_cannot_be_used_is_named(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        make(tmp_path)


def build(task: dict[str, Any]) -> None:
    motley.build({"task": task, "partition": "by_writer", "cohort": 1, "stop": {"rounds": 1}})


def test_a_gap_in_a_file_names_the_client_and_its_row(tmp_path: Path) -> None:
    for name in NAMES:
        gap = "" if name == "hosp_C" else "1.5"
        (tmp_path / f"{name}.csv").write_text(f"mean_area,y\n1.0,0\n2.0,1\n{gap},1\n3.0,0\n")
    with pytest.raises(
        DataError,
        match=r"^client hosp_C, row 3 of its file: NaN in mean_area \(1 in all, in 'mean_area'\)",
    ):
        from_files(tmp_path, label="y")
    (tmp_path / "hosp_B.csv").write_text("mean_area,y\n1.0,0\nabout 2,1\n3.0,1\n4.0,0\n")
    with pytest.raises(
        DataError,
        match=r'^client hosp_B, row 2 of .*hosp_B.csv: got "about 2" among the numbers of column',
    ):
        from_files(tmp_path, label="y", table={"scale": "federated"})
    (tmp_path / "all.csv").write_text("hospital,a,b,y\nA,1,2,0\nA,2,,1\nB,3,1,1\nB,,2,\n")
    keys = {
        "name": "tabular",
        "data": str(tmp_path / "all.csv"),
        "label": "y",
        "client": "hospital",
    }
    with pytest.raises(
        DataError,
        match=r"^client B, row 4 of .*all.csv: the label is missing in column 'y' \(in 1 of 4 "
        r"rows\)",
    ):
        build(keys)
    (tmp_path / "all.csv").write_text("hospital,a,b,y\nA,1,2,0\nA,2,,1\nB,3,1,1\nB,,2,0\n")
    with pytest.raises(
        DataError, match=r"^client A, row 2 of .*all.csv: NaN in b \(2 in all, in 'a', 'b'\)"
    ):
        build({**keys, "scale": "none"})
    (tmp_path / "all.csv").write_text("hospital,a,b,y\nA,1,2,0\nA,2,1,1\nB,,1,1\nB,,2,0\n")
    with pytest.raises(
        DataError, match=r"all.csv: client B has no value of column 'a' in its training rows"
    ):
        build({**keys, "scale": "client"})


@pytest.mark.filterwarnings("ignore:.*no sample has the label")
def test_a_label_without_an_output_names_its_client_and_row() -> None:
    y = np.where(np.arange(12) == 4, 7, Y)
    with pytest.raises(
        DataError,
        match=r"^client ash, row 5 of its samples: got the label 7, and the model has 3 outputs, "
        r"for labels 0 to 2 \(so in 1 of 24 "
        r"rows\); mend the label, or give the model 8 outputs$",
    ):
        own_task(from_clients({"oak": (X, Y), "ash": (X, y)}), lambda: nn.Linear(2, 3))
    with pytest.raises(
        motley.core.errors.ModelError,
        match=r"^the model has 3 outputs, and the data has 5 classes; give the model 5",
    ):
        own_task(from_clients([(X, Y)] * 2, classes=5), lambda: nn.Linear(2, 3))
