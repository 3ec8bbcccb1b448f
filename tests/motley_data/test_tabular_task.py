from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from motley.core.errors import ConfigError, DataError
from motley.core.keys import Key
from motley.tasks import TASKS
from motley.tasks.task import Dataset


def pool(**options: object) -> Dataset:
    return TASKS.build({"name": "tabular", **options}).load(Key(0), 3)


@pytest.mark.parametrize(
    ("data", "shape", "classes"),
    [("breast_cancer", (569, 30), 2), ("wine", (178, 13), 3), ("iris", (150, 4), 3)],
)
def test_builtin_sets(data: str, shape: tuple[int, int], classes: int) -> None:
    made = pool(data=data)
    assert (tuple(made.x.shape), made.classes) == (shape, classes)
    assert made.x.double().mean(0).abs().max().item() < 1e-5
    source = TASKS.build({"name": "tabular", "data": data})
    assert source.factory(made)()(made.x[:2]).shape == (2, classes)


def test_regression() -> None:
    source = TASKS.build({"name": "tabular_regression"})
    made = source.load(Key(0), 3)
    assert (source.loss, source.metric, made.classes) == ("half_squared_error", "loss", None)
    assert tuple(made.y.shape) == (442, 1)
    assert source.factory(made)()(made.x[:2]).shape == (2, 1)
    with pytest.raises(DataError, match=r"use task.name = 'tabular_regression'"):
        pool(data="diabetes")


def table() -> pa.Table:
    columns = {
        "a": [1.0, 2.0, 3.0],
        "who": ["p", "q", "p"],
        "b": [4, 5, 7],
        "label": ["no", "yes", "no"],
    }
    return pa.table(columns)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_tables_with_words_as_labels_and_clients(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    if kind == "parquet":
        parquet.write_table(table(), path)
    else:
        path.write_text("a,who,b,label\n1.0,p,4,no\n2.0,q,5,yes\n3.0,p,7,no\n")
    made = pool(data=str(path), client="who", scale="none")
    assert made.x.tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 7.0]]
    assert (made.y.tolist(), made.names) == ([0, 1, 0], ("no", "yes"))
    assert made.groups is not None
    assert made.groups.tolist() == [0, 1, 0]


def test_a_feature_divides_a_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,size,label\n1,30,0\n2,10,1\n3,20,0\n4,40,1\n5,10,1\n6,50,0\n")
    made = pool(data=str(path), client="size", client_groups=2, scale="none")
    # the median of 10, 10, 20, 30, 40, 50 is 25; the column is no input
    assert made.groups is not None
    assert made.groups.tolist() == [1, 0, 0, 1, 0, 1]
    assert made.x.tolist() == [[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]]
    cancer = pool(data="breast_cancer", client="mean radius", client_groups=10)
    assert cancer.x.shape == (569, 29)
    assert cancer.groups is not None
    assert sorted(set(np.bincount(cancer.groups).tolist())) == [56, 57, 58]
    with pytest.raises(
        DataError, match=r"no column 'mean radios' \(did you mean 'mean radius'\?\)"
    ):
        pool(data="breast_cancer", client="mean radios", client_groups=10)
    with pytest.raises(
        ConfigError, match="got client_groups = 4 and client = None; expected at least 2 groups"
    ):
        pool(client_groups=4)
    path.write_text("a,size,label\n1,big,0\n2,small,1\n")
    with pytest.raises(
        DataError, match="the clients' column holds words, and client_groups cuts numbers"
    ):
        pool(data=str(path), client="size", client_groups=2)


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=np.eye(3), y=[0, 1, 0], client=[4, 4, 9])
    made = pool(data=str(tmp_path / "t.npz"), scale="none")
    assert torch.equal(made.x, torch.eye(3))
    assert made.groups is not None
    assert made.groups.tolist() == [0, 0, 1]


def test_words_are_no_numbers_to_predict(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,label\n1,ill\n2,well\n")
    task = TASKS.build({"name": "tabular_regression", "data": str(tmp_path / "t.csv")})
    with pytest.raises(
        DataError,
        match=r"the labels are words \(row 1 is 'ill'\), and a regression predicts numbers",
    ):
        task.load(Key(0), 2)


def test_troubles(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(table(), path)
    with pytest.raises(DataError, match=r"task.data: got 'wien' \(did you mean 'wine'\?\)"):
        pool(data="wien")
    with pytest.raises(
        DataError,
        match=r"no column 'labels' \(did you mean 'label'\?\); its columns: a, who, b, label",
    ):
        pool(data=str(path), label="labels")
    with pytest.raises(DataError, match=r"words in 'who' .*and scale = .none. measures nothing"):
        pool(data=str(path), scale="none")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"cannot be read as parquet .*truncated"):
        pool(data=str(path), client="who")
    (tmp_path / "t.csv").write_text("a,label\n1,0\n,1\n")
    with pytest.raises(DataError, match=r"row 2 of .*t.csv: NaN in a \(1 in all, in 'a'\)"):
        pool(data=str(tmp_path / "t.csv"), scale="none")
    (tmp_path / "t.csv").write_text("a,label\n1,0\n2,\n")
    with pytest.raises(
        DataError,
        match=r"^row 2 of .*t.csv: the label is missing in column 'label' \(in 1 of 2 rows\); fill "
        r"these rows, or write drop_rows = true to leave them out",
    ):
        pool(data=str(tmp_path / "t.csv"))
    (tmp_path / "t.csv").write_text("a,who,label\n1,p,0\n2,,1\n")
    with pytest.raises(DataError, match=r"row 2 of .*t.csv: the client is missing in column 'who'"):
        pool(data=str(tmp_path / "t.csv"), client="who")
    (tmp_path / "t.csv").write_text("a,label\n1,ill\n2,\n")
    with pytest.raises(DataError, match=r"row 2 of .*: the label is missing in column 'label'"):
        pool(data=str(tmp_path / "t.csv"))
    (tmp_path / "t.csv").write_text("a,a,label\n1,2,0\n")
    with pytest.raises(
        DataError, match=r"t.csv has several columns 'a'; give each a name of its own"
    ):
        pool(data=str(tmp_path / "t.csv"))
    gaps = pa.table({"a": [1.0, 2.0], "label": ["no", None]})
    parquet.write_table(gaps, path)
    with pytest.raises(DataError, match=r"row 2 of .*: the label is missing in column 'label'"):
        pool(data=str(path))
