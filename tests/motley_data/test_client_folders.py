import json
import pickle
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motley.core.errors import DataError
from motley.tasks import from_files
from motley.tasks.task import Federation
from motley_data.client_folders import client_files

TABLE = "a,b,label\n1,2,0\n3,4,1\n5,6,0\n"
"""Three rows; the sums of their inputs are 3, 7 and 11."""
TESTS = "a,b,label\n7,8,0\n9,0,1\n"
"""Two rows, with sums 15 and 9."""


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def halves(federation: Federation) -> list[tuple[list[float], list[float]]]:
    """The sums of inputs of each client's training and test rows."""
    return [
        (
            federation.x[federation.train[k]].sum(1).tolist(),
            federation.x[federation.test[k]].sum(1).tolist(),
        )
        for k in range(len(federation))
    ]


def test_files_of_all_kinds_are_clients_and_others_are_named(tmp_path: Path) -> None:
    names = ("a.csv", "b.CSV", "c.csv.gz", "d.tsv", "E.Parquet", "f.npz")
    write(tmp_path, dict.fromkeys((*names, "._a.csv", ".DS_Store", "notes.txt", "g/more.md"), ""))
    said = re.escape(f"{tmp_path}: 2 files not read: g/more.md, notes.txt")
    with pytest.warns(UserWarning, match=said):
        files = client_files(tmp_path)
    assert [file.client for file in files] == ["E", "a", "b", "c", "d", "f"]
    assert not any(file.test for file in files)


@pytest.mark.parametrize(
    "files",
    [
        {"train/c0.csv": TABLE, "test/c0.csv": TESTS},
        {"train/c0/1.csv": TABLE, "test/c0/1.csv": TESTS},
        {"Train/c0_train.csv": TABLE, "Test/c0_test.csv": TESTS},
        {"train/c0.csv": TABLE, "val/c0.csv": TESTS},
        {"c0/train.csv": TABLE, "c0/test.csv": TESTS},
        {"c0/train/1.csv": TABLE, "c0/test/1.csv": TESTS},
        {"c0_train.csv": TABLE, "c0_test.csv": TESTS},
        {"c0.csv": TABLE, "c0-test.csv": TESTS},
        {"train_c0.csv": TABLE, "test_c0.csv": TESTS},
        {"c0Train.csv": TABLE, "c0Test.csv": TESTS},
        {"training/c0.csv": TABLE, "testing/c0.csv": TESTS},
        {"Training/c0.csv": TABLE, "Validation/c0.csv": TESTS},
        {"c0/training.csv": TABLE, "c0/testing.csv": TESTS},
        {"c0/train_1.csv": TABLE, "c0/test_1.csv": TESTS},
    ],
    ids=lambda files: " ".join(files),
)
def test_published_halves_are_kept(tmp_path: Path, files: dict[str, str]) -> None:
    """Whatever the share, the rows of the test half test, and no other."""
    write(tmp_path, files)
    federation = from_files(tmp_path, test_fraction=0.5)
    assert federation.client_names == ("c0",)
    assert halves(federation) == [([3.0, 7.0, 11.0], [15.0, 9.0])]
    common = from_files(tmp_path, test="global")
    assert common.train.sizes.tolist() == [3]
    assert common.global_test is not None
    assert common.x[common.global_test].sum(1).tolist() == [15.0, 9.0]


def test_names_that_only_look_like_halves_are_clients(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(("contest.csv", "con.csv", "lab_test.csv", "x_train.csv"), TABLE))
    names = [file.client for file in client_files(tmp_path)]
    assert names == ["con", "contest", "lab_test", "x_train"]


def test_a_validation_half_beside_a_test_half_is_named(tmp_path: Path) -> None:
    write(tmp_path, {f"{half}/c0.csv": TABLE for half in ("train", "test", "val")})
    with pytest.warns(UserWarning, match=r"1 file not read: val/c0\.csv"):
        files = client_files(tmp_path)
    assert [(file.path.parent.name, file.test) for file in files] == [
        ("train", False),
        ("test", True),
    ]


def test_flags_in_an_npz_are_kept(tmp_path: Path) -> None:
    x = np.arange(8.0).reshape(4, 2)
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 0, 1], test=[0, 1, 0, 0])
    np.savez(tmp_path / "b.npz", x_train=x[:3], y_train=[0, 1, 1], x_test=x[3:], y_test=[1])
    np.savez(tmp_path / "c.npz", x=x[:3], y=[0, 1, 1], x_test=x[3:], y_test=[1])
    assert halves(from_files(tmp_path)) == [
        ([1.0, 9.0, 13.0], [5.0]),
        ([1.0, 5.0, 9.0], [13.0]),
        ([1.0, 5.0, 9.0], [13.0]),
    ]


def test_half_a_test_half_of_an_npz_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), y=[0, 1], x_test=np.zeros((2, 2)))
    with pytest.raises(DataError, match="holds x, x_test, y; expected x_test and y_test beside"):
        from_files(tmp_path)


def pfllib(path: Path, held: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, data=np.array(held, dtype=object))


def test_the_files_that_pfllib_writes_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    given = {
        (half, k): {
            "x": rng.random((n, 1, 4, 4), np.float32),
            "y": np.asfortranarray(rng.integers(0, 3, n)).astype(">i8"),
        }
        for half, n in (("train", 5), ("test", 2))
        for k in (0, 1)
    }
    for (half, k), held in given.items():
        pfllib(tmp_path / half / f"{k}.npz", held)
    (tmp_path / "config.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"1 file not read: config\.json"):
        federation = from_files(tmp_path)
    assert federation.client_names == ("0", "1")
    for name, part in (("train", federation.train), ("test", federation.test)):
        for k in (0, 1):
            assert np.array_equal(federation.x[part[k]].numpy(), given[name, k]["x"])
            assert federation.y[part[k]].tolist() == given[name, k]["y"].tolist()


class _Command:
    def __reduce__(self) -> tuple[object, ...]:
        return print, ("called",)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"x": _Command(), "y": [0]}, "it names builtins.print, which is never loaded"),
        ({"x": np.array([{}], object), "y": [0]}, "its array is not of numbers"),
        ([1, 2], "pickled Python objects, which are never loaded"),
        (3, "its array data is no dictionary"),
    ],
)
def test_other_pickles_are_refused_and_do_nothing(
    tmp_path: Path, held: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pfllib(tmp_path / "0.npz", held)
    with pytest.raises(DataError, match=words):
        from_files(tmp_path)
    assert capsys.readouterr().out == ""
    assert pickle.HIGHEST_PROTOCOL >= 4  # numpy writes protocol 4 or below


def leaf(path: Path, users: dict[str, list[list[float]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": [k % 2 for k in range(len(x))]} for user, x in users.items()}
    path.write_text(json.dumps({"users": list(users), "user_data": data}))


def test_the_folders_of_leaf_are_read(tmp_path: Path) -> None:
    leaf(tmp_path / "train" / "all.json", {"ann": [[1, 0], [2, 0]], "bob": [[3, 0]]})
    leaf(tmp_path / "test" / "all.json", {"bob": [[4, 0]], "ann": [[5, 0]]})
    federation = from_files(tmp_path)
    assert federation.client_names == ("ann", "bob")
    assert halves(federation) == [([1.0, 2.0], [5.0]), ([3.0], [4.0])]


def test_users_who_only_test_are_refused_or_test_for_all(tmp_path: Path) -> None:
    leaf(tmp_path / "train" / "all.json", {"ann": [[1, 0], [2, 0]], "eve": [[3, 0]]})
    leaf(tmp_path / "test" / "all.json", {"bob": [[4, 0]]})
    with pytest.raises(
        DataError,
        match=r"client bob has test rows and none that train \(so have 1 of 3 clients\); give it "
        r'some, or test on the rows of all clients together: test="global"',
    ):
        from_files(tmp_path)
    federation = from_files(tmp_path, test="global")
    assert federation.client_names == ("ann", "eve")
    assert federation.train.sizes.tolist() == [2, 1]
    assert federation.global_test is not None
    assert federation.x[federation.global_test].tolist() == [[4.0, 0.0]]


def test_a_client_without_test_rows_among_others_with_some(tmp_path: Path) -> None:
    write(tmp_path, {"train/a.csv": TABLE, "train/b.csv": TABLE, "test/a.csv": TESTS})
    with pytest.raises(DataError, match="client b has training rows and none that test"):
        from_files(tmp_path)
    assert from_files(tmp_path, test="global").train.sizes.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"train.csv": TABLE, "test.csv": TESTS},
            r"has the file test\.csv, and nothing says whose",
        ),
        ({"a.csv": TABLE, "a/1.csv": TABLE}, "two clients of the name 'a'"),
        ({"a.csv": TABLE, "a.tsv": TABLE}, "two clients of the name 'a'"),
        (
            {"a/train.csv": TABLE, "a/rest.csv": TABLE},
            r"rest\.csv, which is of neither half; name it train or test, or move it",
        ),
        (
            {"a/rest.csv": TABLE, "a/test.csv": TABLE},
            r"files of a test half and rest\.csv, which is of neither half",
        ),
        ({"a.csv": TABLE, "test/a.csv": TESTS}, "has the folder test, a test half by its name"),
        (
            {"d_train/a.csv": TABLE, "d_test/a.csv": TESTS},
            "has the folder d_test, a test half by its name",
        ),
        (
            {"a_train.csv": TABLE, "a_test.csv": TESTS, "test_b.csv": TESTS},
            "client b has test rows and none that train",
        ),
        (
            {"a.csv": TABLE, "a_train.csv": TABLE, "a_test.csv": TESTS},
            "the training rows of a are in two files",
        ),
        ({"a.json": "{}"}, "not LEAF's JSON"),
        ({"a.xyz": ""}, "has no files of clients; expected one .npz, .parquet, .csv or .tsv file"),
        (
            {"a/b/c.csv": TABLE},
            r"no files of clients; .*; a/b/c.csv lies more than one folder below$",
        ),
        (
            {"train/.hidden": "", "a.csv": TABLE},
            r"no files of clients; .*; a.csv lies outside of train; move it there$",
        ),
        (
            {"train/.hidden": "", "test/.hidden": "", "val/a.csv": TABLE},
            r"; val/a.csv lies outside of train and test; move it there$",
        ),
        (
            {"train/a/b/c.csv": TABLE},
            r"; train/a/b/c.csv lies more than one folder below$",
        ),
    ],
)
def test_folders_that_are_not_understood(tmp_path: Path, files: dict[str, str], words: str) -> None:
    write(tmp_path, files)
    with pytest.raises(DataError, match=words):
        from_files(tmp_path)


def test_rows_of_a_partitioned_table_without_a_client_are_refused(tmp_path: Path) -> None:
    table = pa.table({"site": ["a", "b", None, "a"], "x": [1.0, 2, 3, 4], "label": [0, 1, 0, 1]})
    pq.write_to_dataset(table, tmp_path, partition_cols=["site"])
    nobody = r"has the folder site=__HIVE_\w+__: rows without an entry of 'site', .* no client's"
    with pytest.raises(DataError, match=nobody):
        from_files(tmp_path, label="label")
    shutil.rmtree(tmp_path / "site=__HIVE_DEFAULT_PARTITION__")
    assert [file.client for file in client_files(tmp_path)] == ["site=a", "site=b"]


def test_a_table_in_parts_of_two_columns(tmp_path: Path) -> None:
    table = pa.table({"site": ["a", "b"], "ward": [1, 2], "x": [1.0, 2], "label": [0, 1]})
    pq.write_to_dataset(table, tmp_path, partition_cols=["site", "ward"])
    with pytest.raises(DataError, match=r"; site=a/ward=1/\S+ lies more .*, and a table in parts"):
        from_files(tmp_path, label="label")


def test_files_like_the_parts_of_one_table_are_told(tmp_path: Path) -> None:
    for k in range(2):
        rows = pa.table({"x": [1.0 + k, 2.0], "label": [0, 1]})
        pq.write_table(rows, tmp_path / f"part-0000{k}-c000.snappy.parquet")
    with pytest.warns(UserWarning, match=r"the 2 files is a client, .* of one table \(part-0"):
        assert len(client_files(tmp_path)) == 2
    (tmp_path / "part-00001-c000.snappy.parquet").rename(tmp_path / "b.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(client_files(tmp_path)) == 2


def test_a_file_of_several_clients_in_a_folder_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.zeros((2, 2)), y=[0, 1], client=["a", "b"])
    with pytest.raises(DataError, match=r"all\.npz holds the rows of 2 clients"):
        from_files(tmp_path)


def test_the_table_task_keeps_the_test_half_of_an_npz(tmp_path: Path) -> None:
    """Mean 2 and deviation 1 of the training rows 1 and 3; the test row 100 moves neither."""
    from motley_data.table_options import TableOptions
    from motley_data.table_readers import read_table

    np.savez(tmp_path / "t.npz", x=[[1.0], [3.0], [100.0]], y=[0, 1, 1], test=[0, 0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = read_table(str(tmp_path / "t.npz"), "y", None, True, TableOptions())
    assert dataset.test.tolist() == [False, False, True]
    assert dataset.x[:, 0].tolist() == [-1.0, 1.0, 98.0]
