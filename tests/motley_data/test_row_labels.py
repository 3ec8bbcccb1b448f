"""Labels and clients of tables: gaps, blanks, capitals and numbers, over all files together; ids
are no inputs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from motley.core.errors import ConfigError, DataError
from motley.core.keys import Key
from motley.tasks import TASKS, from_arrays, from_clients, from_files
from motley.tasks.task import Dataset
from motley_data.raw_table import raw_table
from motley_data.table_options import TableOptions


def load(path: Path, rows: list[str], head: str = "site,v,label", **options: Any) -> Dataset:
    path.write_text("\n".join([head, *rows]) + "\n")
    keys = {"name": "tabular", "data": str(path), "client": "site", **options}
    return TASKS.build(keys).load(Key(0), 2)


@pytest.mark.parametrize(
    ("labels", "y", "classes", "names"),
    [
        ("10 20 30", [0, 1, 2], 3, ("10", "20", "30")),
        ("-1 1 1", [0, 1, 1], 2, ("-1", "1")),
        ("1 2 2", [0, 1, 1], 2, ("1", "2")),
        ("9 10 100", [0, 1, 2], 3, ("9", "10", "100")),
        ("0 1 0", [0, 1, 0], 2, ()),
        ("0 10 20", [0, 1, 2], 3, ("0", "10", "20")),
        ("1.0 2.0 2.0", [0, 1, 1], 2, ("1", "2")),
        ("True False True", [1, 0, 1], 2, ()),
        ("ill well ill", [0, 1, 0], 2, ("ill", "well")),
        ("A 0 AB", [1, 0, 2], 3, ("0", "A", "AB")),
    ],
)
def test_each_label_is_a_class(
    tmp_path: Path, labels: str, y: list[int], classes: int, names: tuple[str, ...]
) -> None:
    rows = [f"A,{k},{label}" for k, label in enumerate(labels.split())]
    made = load(tmp_path / "t.csv", rows)
    assert (made.y.tolist(), made.classes, made.names) == (y, classes, names)


def test_a_class_without_a_row_is_told(tmp_path: Path) -> None:
    rows = [f"A,{k},{label}" for k, label in enumerate((0, 1, 3, 0))]
    with pytest.warns(
        UserWarning, match=r"t\.csv: no sample has the label 2, .* task\.classes = 4"
    ):
        made = load(tmp_path / "t.csv", rows)
    assert (made.y.tolist(), made.classes, made.names) == ([0, 1, 3, 0], 4, ())
    assert load(tmp_path / "t.csv", rows, classes=4).y.tolist() == [0, 1, 3, 0]
    x = np.zeros((9, 2), np.float32)
    with pytest.warns(
        UserWarning,
        match=r"^the arrays given: no sample has the labels 0, 1, 2, 4, 6, \.\., and the model "
        r"gets 9 classes, 0 to 8; number the classes without gaps from 0, or write classes=9 to ",
    ):
        assert from_arrays(x, [3, 5, 8] * 3, [0, 0, 0, 1, 1, 1, 2, 2, 2]).classes == 9
    with pytest.warns(UserWarning, match="no sample has the labels 0, 1, 2, 3, 4, and the model"):
        from_arrays(x, [5] * 9, [0, 0, 0, 1, 1, 1, 2, 2, 2])
    assert from_arrays(x, [0] * 9, [0, 0, 0, 1, 1, 1, 2, 2, 2]).classes == 2  # without labels


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (None, "the label is missing; fill or drop such rows"),
        (float("nan"), "the label is missing; fill or drop such rows"),
        (2.5, r"the label is 2\.5 \(float\), and others are words; .* y\.astype\(str\)"),
        (1, r"the label is 1 \(int\), and others are words"),
    ],
)
def test_labels_that_are_no_words_among_words(label: Any, message: str) -> None:
    y = np.array(["a", label, "b", "a"], dtype=object)
    with pytest.raises(DataError, match=rf"client 0, row 2 of the arrays given: {message}"):
        from_arrays(np.zeros((4, 2), np.float32), y, [0, 0, 1, 1])


def test_the_number_of_classes_says_what_numbers_are(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = ["A,1,1", "A,2,2", "B,3,2"]
    assert load(path, rows, classes=3).y.tolist() == [1, 2, 2]
    assert load(path, rows, classes=["1", "2"]).y.tolist() == [0, 1, 1]
    with pytest.raises(ConfigError, match=r'labels are 1, 2; write classes = \["1", "2"\]'):
        load(path, rows, classes=2)
    # the list says which number is which class, whoever has which
    assert load(path, ["A,1,0", "B,2,1"], classes=["0", "1", "2"]).y.tolist() == [0, 1]
    with pytest.raises(DataError, match=r"the label '0' is not in task.classes"):
        load(path, ["A,1,0", "B,2,1"], classes=["1", "2"])
    assert load(path, ["A,1,0", "B,2,1"], classes=["no", "yes"]).names == ("no", "yes")


def test_numbers_that_are_no_classes_are_refused(tmp_path: Path) -> None:
    rows = [f"A,{k % 3},{100 + 7 * k}" for k in range(40)]
    with pytest.raises(
        DataError, match=r"the labels are 40 different numbers in 40 rows, from 100 to 373, and no"
    ):
        load(tmp_path / "t.csv", rows)


@pytest.mark.parametrize("gap", ["?", "NA", "nan", "", " ", "-9"])
def test_a_gap_is_no_class_and_no_client(tmp_path: Path, gap: str) -> None:
    gaps = ["", "?", "NA", "nan", "-9.0"]
    path = tmp_path / "t.csv"
    for words in (("no", "yes"), ("0", "1")):
        rows = [f"A,1,{words[0]}", f"B,2,{gap}", f"B,3,{words[1]}", f"{gap},4,{words[1]}"]
        with pytest.raises(
            DataError, match=r"^row 4 of .*the client is missing in column 'site' \(in 1 of 4 rows"
        ):
            load(path, rows, gaps=gaps)
        with pytest.raises(
            DataError, match=r"^client B, row 2 of .*: the label is missing .* drop_rows = true to"
        ):
            load(path, rows[:3], gaps=gaps)
        made = load(path, rows, gaps=gaps, drop_rows=True, scale="none")
        assert (made.y.tolist(), made.x.tolist()) == ([0, 1], [[1.0], [3.0]])
        assert (made.classes, made.client_names) == (2, ("A", "B"))


def test_gaps_of_typed_labels_are_compared_as_numbers(tmp_path: Path) -> None:
    table = pa.table({"v": [1.0, 2.0, 3.0], "label": [0.5, -200.0, 1.5], "site": [1, -200, 2]})
    parquet.write_table(table, tmp_path / "t.parquet")
    keys = {"data": str(tmp_path / "t.parquet"), "client": "site", "gaps": ["", "-200"]}
    with pytest.raises(DataError, match="the client is missing"):
        TASKS.build({"name": "tabular_regression", **keys}).load(Key(0), 2)
    made = TASKS.build({"name": "tabular_regression", **keys, "drop_rows": True}).load(Key(0), 2)
    assert made.y.tolist() == [[0.5], [1.5]]


@pytest.mark.parametrize(
    ("words", "line", "options"),
    [
        (("yes", "yes ", "no"), "differ in blanks alone: 'yes', 'yes '; write trim = true", "trim"),
        (("a b", "a  b", "c"), "differ in blanks alone: 'a  b', 'a b'; write trim = true", "trim"),
        (("groß", "GROSS", "no"), "differ in capitals alone: .*; write fold = true", "fold"),
        (
            ("yes", "yes\u200b", "no"),
            "differ in blanks or invisible characters alone: .*; write trim = true",
            "trim",
        ),
        (("yes", "YES", "no"), "differ in capitals alone: 'YES', 'yes'; write fold = true", "fold"),
        (
            ("yes", "YES ", "no"),
            "differ in blanks and capitals alone: 'YES ', 'yes'; write trim = true and fold",
            "trim fold",
        ),
    ],
)
def test_spellings_of_one_label_or_client_are_refused_with_the_line(
    tmp_path: Path, words: tuple[str, ...], line: str, options: str
) -> None:
    path = tmp_path / "t.csv"
    more = dict.fromkeys(options.split(), True)
    labels = [f"A,{k},{word}" for k, word in enumerate(words)]
    with pytest.raises(DataError, match=f"labels in column 'label' {line}"):
        load(path, labels)
    assert len(load(path, labels, **more).names) == 2
    clients = [f"{word},{k},{k % 2}" for k, word in enumerate(words)]
    with pytest.raises(DataError, match=f"clients in column 'site' {line}"):
        load(path, clients)
    made = load(path, clients, **more)
    assert len(made.client_names) == 2
    assert made.groups is not None
    assert made.groups[0] == made.groups[1]


def test_fold_leaves_a_missing_label_missing(tmp_path: Path) -> None:
    rows = ["A,1,Yes", "A,2,no", "A,3,NA", "A,4,yes"]
    with pytest.raises(DataError, match="the label is missing in column 'label'"):
        load(tmp_path / "t.csv", rows, fold=True)
    made = load(tmp_path / "t.csv", rows, fold=True, drop_rows=True)
    assert (made.names, made.y.tolist()) == (("no", "yes"), [1, 0, 1])


def test_targets_with_points_and_three_digits_are_in_doubt_as_inputs_are(tmp_path: Path) -> None:
    rows = ["A;30;1.000", "B;31;2.037"]
    with pytest.raises(DataError, match=r'got "1.000" in column .label. .* it is 1000 with'):
        load(tmp_path / "t.csv", rows, "site;v;label", name="tabular_regression")
    marks = {"decimal": {"label": ","}, "thousands": {"label": "."}}
    made = load(tmp_path / "t.csv", rows, "site;v;label", name="tabular_regression", **marks)
    assert made.y.tolist() == [[1000.0], [2037.0]]


def test_letters_in_two_forms_of_their_accents_are_one_client(tmp_path: Path) -> None:
    rows = ["Zürich,1,0", "Zu\u0308rich,2,1"]
    assert load(tmp_path / "t.csv", rows, trim=True).client_names == ("Zürich",)


def test_short_forms_are_joined_by_name(tmp_path: Path) -> None:
    rows = ["A,1,Y", "A,2,yes", "A,3,N", "A,4,no"]
    with pytest.raises(
        DataError, match=r'a short form alone: .*; write rename = \{ "Y" = "yes", "N" = "no" \}'
    ):
        load(tmp_path / "t.csv", rows)
    made = load(tmp_path / "t.csv", rows, rename={"Y": "yes", "N": "no"})
    assert (made.names, made.y.tolist()) == (("no", "yes"), [1, 1, 0, 0])


CODES = [
    (("Y", "N"), ("yes", "no"), 'rename = { "Y" = "yes", "N" = "no" }'),
    (("ja", "nein"), ("yes", "no"), 'rename = { "nein" = "no", "ja" = "yes" }'),
    (("w", "m"), ("f", "m"), 'rename = { "w" = "f" }'),
]


@pytest.mark.parametrize(("first", "second", "line"), CODES)
def test_words_of_two_clients_that_mean_the_same_are_joined_or_refused(
    tmp_path: Path, first: tuple[str, str], second: tuple[str, str], line: str
) -> None:
    path = tmp_path / "t.csv"
    cells = [("A", word) for word in first * 3] + [("B", word) for word in second * 3]
    rename = dict(re.findall(r'"(\S+)" = "(\S+)"', line))
    columns = [f"{client},{word},{k % 2}" for k, (client, word) in enumerate(cells)]
    with pytest.raises(DataError, match=rf"client A and .* client B, .*; write {line}, which join"):
        load(path, columns, scale="federated")
    made = load(path, columns, scale="federated", rename=rename)
    assert made.table is not None
    assert made.table.raw.columns[0].words == tuple(sorted(second))
    assert len(load(path, columns, scale="federated", words=["v"]).table.raw.columns[0].words) > 2
    # a client that has both tells them apart
    both = [f"A,{word},{k % 2}" for k, (_, word) in enumerate(cells)]
    assert line.split(" = ", 1)[1] in str(load(path, both, scale="federated").reading)
    labels = [f"{client},{k % 2},{word}" for k, (client, word) in enumerate(cells)]
    with pytest.raises(DataError, match=f"labels in column 'label' .*; write {line}"):
        load(path, labels)
    assert load(path, labels, rename=rename).names == tuple(sorted(second))


def test_capitals_of_two_clients_words_are_joined_or_refused(tmp_path: Path) -> None:
    rows = ["A,Yes,0", "A,No,1", "B,yes,1", "B,no,0"] * 3
    with pytest.raises(DataError, match=r"'no' of client B and 'No' of client A.*fold = true, wh"):
        load(tmp_path / "t.csv", rows)
    made = load(tmp_path / "t.csv", rows, fold=True, scale="federated")
    assert made.table is not None
    assert made.table.raw.columns[0].words == ("no", "yes")


@pytest.mark.parametrize("words", ["oui non", "да нет", "sí no", "ja nej", "wahr falsch"])
def test_no_and_yes_of_other_languages_beside_numbers(tmp_path: Path, words: str) -> None:
    yes, no = words.split()
    rows = [f"A,1,{yes}", f"A,2,{no}", "B,1,0", "B,2,1"]
    with pytest.raises(DataError, match=rf'rename = {{ "0" = "{no}", "1" = "{yes}" }}'):
        load(tmp_path / "t.csv", rows)


def test_numbers_of_one_client_beside_two_words_of_another(tmp_path: Path) -> None:
    rows = ["A,1,0", "A,2,1", "B,1,healthy", "B,2,sick"]
    line = r"0, 1 of client A and healthy, sick of client B; .* \"0\" = \"healthy\""
    with pytest.raises(DataError, match=line):
        load(tmp_path / "t.csv", rows)
    assert load(tmp_path / "t.csv", [*rows, "A,3,sick"]).classes == 4  # the client knows both


def test_labels_far_from_all_others_may_be_gaps_and_are_told(tmp_path: Path) -> None:
    rows = [f"A,{k},{label}" for k, label in enumerate([0, 1, 0, 1, 9, 9])]
    made = load(tmp_path / "t.csv", rows)
    assert made.reading is not None
    assert made.reading.remarks[0].startswith("column 'label': 9 (in 2 rows) is far from all other")
    assert load(tmp_path / "t.csv", rows, gaps=["", "9"], drop_rows=True).classes == 2
    targets = [f"A,{k},{label}" for k, label in enumerate([0.5, 1, 2, 3, -200, -200])]
    made = load(tmp_path / "t.csv", targets, name="tabular_regression")
    assert made.reading is not None
    assert "-200 (in 2 rows)" in made.reading.remarks[0]
    folder = files(tmp_path / "f", "v,label\n1,0\n2,1\n3,9\n", "v,label\n1,9\n2,0\n")
    reading = from_files(folder).reading
    assert reading is not None
    assert "9 (in 2 rows)" in reading.remarks[0]


def test_one_file_may_have_no_and_yes_in_two_codes(tmp_path: Path) -> None:
    folder = files(tmp_path / "f", "v,label\n1,ja\n2,no\n", "v,label\n1,yes\n2,nein\n")
    with pytest.raises(DataError, match=r'rename = { "nein" = "no", "ja" = "yes" }'):
        from_files(folder)
    assert from_files(folder, classes=["ja", "nein", "no", "yes"]).classes == 4


def test_one_padding_of_all_is_no_difference(tmp_path: Path) -> None:
    assert load(tmp_path / "t.csv", ["A,1, no", "A,2, yes"]).names == ("no", "yes")


def test_postcodes_of_clients_keep_their_zeros(tmp_path: Path) -> None:
    made = load(tmp_path / "t.csv", ["01010,1,0", "2010,2,1"])
    assert made.client_names == ("01010", "2010")
    with pytest.raises(DataError, match=r"zeros before them alone: '010' and '10'; write rename ="):
        load(tmp_path / "t.csv", ["010,1,0", "10,2,1"])
    assert len(load(tmp_path / "t.csv", ["010,1,0", "10,2,1"], rename={"010": "10"}).names) == 0
    assert load(tmp_path / "t.csv", ["20,1,0", "10,2,1"]).client_names == ("site=10", "site=20")


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("1.1", "1.10", ("1.1", "1.10")),
        ("100", "1E2", ("100", "1E2")),
        ("12345678901234567890", "12345678901234567891", None),
        (
            "9007199254740992",
            "9007199254740993",
            ("site=9007199254740992", "site=9007199254740993"),
        ),
        ("1.1", "1.1000001", ("site=1.1", "site=1.1000001")),
        ("2", "3.0", ("site=2", "site=3")),
    ],
)
def test_two_texts_are_two_clients(
    tmp_path: Path, first: str, second: str, names: tuple[str, str] | None
) -> None:
    rows = [f"{first},1,0", f"{second},2,1"]
    assert load(tmp_path / "t.csv", rows).client_names == (names or (first, second))


def test_clients_written_as_codes_can_be_cut(tmp_path: Path) -> None:
    rows = ["1.1,1,0", "1.10,2,1", "2.5,3,0", "2.50,4,1"]
    made = load(tmp_path / "t.csv", rows, client_groups=2)
    assert made.groups is not None
    assert made.groups.tolist() == [0, 0, 1, 1]


def test_a_client_is_a_number_or_a_text() -> None:
    x, y = np.ones((4, 2), np.float32), [0, 1, 0, 1]
    with pytest.raises(DataError, match=r"client 1 is a number in some rows and a text in others"):
        from_arrays(x, y, np.array(["1", 1, "2", 1], object))
    assert from_arrays(x, y, np.array(["A", 1, "A", 1], object)).client_names == ("1", "A")


def files(folder: Path, *texts: str) -> Path:
    folder.mkdir()
    for k, text in enumerate(texts):
        (folder / f"{'abcd'[k]}.csv").write_text(text)
    return folder


def test_labels_are_decided_over_all_files(tmp_path: Path) -> None:
    folder = files(tmp_path / "words", "v,label\n1,0\n2,1\n", "v,label\n1,no\n2,yes\n")
    with pytest.raises(
        DataError,
        match=r"words: the labels are 0, 1 in a.csv and no, yes in b.csv; write which are the "
        r'same, e.g. rename = \{ "0" = "no", "1" = "yes" \}',
    ):
        from_files(folder)
    named = from_files(folder, table={"scale": "none", "rename": {"0": "no", "1": "yes"}})
    assert (named.names, named.y.tolist()) == (("no", "yes"), [0, 1, 0, 1])
    folder = files(tmp_path / "one_two", "v,label\n1,1\n2,1\n", "v,label\n1,2\n2,1\n")
    made = from_files(folder)
    assert (made.classes, made.y.tolist()) == (2, [0, 0, 1, 0])
    with pytest.raises(DataError, match=r"the label in column .label. is 0, 1 in some rows and"):
        load(tmp_path / "t.csv", ["A,1,0", "A,2,1", "A,3,yes"])


def test_columns_are_decided_over_all_files(tmp_path: Path) -> None:
    truths = "f,label\n" + "True,0\nFalse,1\n" * 3
    folder = files(tmp_path / "flags", truths, truths.replace("False", "unknown"))
    made = from_files(folder, table={"scale": "federated"})
    assert made.preparation is not None
    names = made.preparation.save()["inputs"]
    assert names == ["f=False", "f=True", "f=unknown"]
    # a record means what the cell means, whatever else lies beside it
    for rows in ([{"f": True}], [{"f": "True"}], {"f": [True, False]}):
        assert made.preparation(rows)[0].tolist() == [0.0, 1.0, 0.0]
    (tmp_path / "new.csv").write_text("f\nTrue\n")
    assert made.preparation(str(tmp_path / "new.csv"))[0].tolist() == [0.0, 1.0, 0.0]


def test_points_of_one_file_may_divide_thousands(tmp_path: Path) -> None:
    points = "v,w,label\n1000,0.5,0\n1037,1.5,1\n"
    folder = files(tmp_path / "f", points, "v;w;label\n1.000;0;0\n2.037;1;1\n")
    with pytest.raises(
        DataError, match=r'client b, row 1 of .*b.csv: got "1.000" in column .v. of'
    ):
        from_files(folder)
    mark = {"decimal": {"v": ","}, "thousands": {"v": "."}}
    made = from_files(folder, table={"scale": "none", **mark})
    assert made.x[:, 0].tolist() == [1000.0, 1037.0, 1000.0, 2037.0]
    made = from_files(folder, table={"scale": "none", "decimal": {"v": "."}})
    assert made.x[2:, 0].tolist() == pytest.approx([1.0, 2.037])


X = np.ones((6, 2), np.float32)


def saved(folder: Path, form: str, *labels: list[Any]) -> Path:
    """Write the labels of a file each, three times over."""
    folder.mkdir()
    for name, each in zip("abcd", labels, strict=False):
        path = folder / f"{name}.{form}"
        if form == "npz":
            np.savez(path, x=X[: 3 * len(each)], y=np.array(each * 3))
        elif form == "parquet":
            cells = {"v": [0.5] * 3 * len(each), "label": each * 3}
            parquet.write_table(pa.table(cells), path)
        else:
            path.write_text("v,label\n" + "".join(f"1,{label}\n" for label in each * 3))
    return folder


@pytest.mark.parametrize(
    ("form", "first", "second", "rename"),
    [
        ("npz", ["0", "1"], ["no", "yes"], {"0": "no", "1": "yes"}),
        ("npz", [0, 1], ["no", "yes"], {"0": "no", "1": "yes"}),
        ("npz", [-1, 1], [0, 1], {"-1": "0"}),
        ("parquet", ["0", "1"], ["no", "yes"], {"0": "no", "1": "yes"}),
        ("parquet", [False, True], ["no", "yes"], {"false": "no", "true": "yes"}),
        ("parquet", [-1, 1], [0, 1], {"-1": "0"}),
        ("csv", ["true", "false"], ["yes", "no"], {"false": "no", "true": "yes"}),
        ("csv", [-1, 1], [0, 1], {"-1": "0"}),
    ],
)
def test_no_and_yes_have_one_code_in_all_files(
    tmp_path: Path, form: str, first: list[Any], second: list[Any], rename: dict[str, str]
) -> None:
    folder = saved(tmp_path / "f", form, first, second)
    line = ", ".join(f'"{old}" = "{new}"' for old, new in rename.items())
    with pytest.raises(DataError, match=r"rename = \{ " + line) as caught:
        from_files(folder)
    message = str(caught.value)
    assert all(str(label).lower() in message for label in (*first, *second))
    made = from_files(folder, table={"scale": "none", "rename": rename})
    assert (made.classes, len(made.y)) == (2, 12)
    assert made.y[:6].sum() == made.y[6:].sum() == 3


@pytest.mark.parametrize("form", ["npz", "parquet", "csv"])
def test_one_and_two_beside_zero_and_one(tmp_path: Path, form: str) -> None:
    folder = saved(tmp_path / "f", form, [0, 1], [1, 2])
    with pytest.raises(DataError, match=r"0, 1 in a\.\w+ and 1, 2 in b\.\w+; .* classes = 3 if"):
        from_files(folder)
    assert from_files(folder, classes=3).y.unique().tolist() == [0, 1, 2]
    # a third client shows that there are three
    assert from_files(saved(tmp_path / "g", form, [0, 1], [1, 2], [0, 2])).classes == 3
    same = saved(tmp_path / "h", "parquet", ["1.0", "2.0"], [1, 2])
    assert from_files(same).names == ("1", "2")


@pytest.mark.parametrize("form", ["npz", "parquet", "csv"])
def test_classes_that_are_named_are_no_two_codes(tmp_path: Path, form: str) -> None:
    folder = saved(tmp_path / "f", form, ["0", "1"], ["A", "B"])
    line = (
        r"0, 1 in a\.\w+ and A, B in b\.\w+; .*classes = \[...\], the list of their names, if they"
    )
    with pytest.raises(DataError, match=line):
        from_files(folder)
    made = from_files(folder, classes=["0", "1", "A", "B"])
    assert (made.names, made.y.unique().tolist()) == (("0", "1", "A", "B"), [0, 1, 2, 3])


def test_labels_of_arrays_have_one_code() -> None:
    with pytest.raises(DataError, match=r'0, 1 in client 0 and no, yes in client 1; .* "0" = "no"'):
        from_clients([(X, ["0", "1"] * 3), (X, ["no", "yes"] * 3)])
    with pytest.raises(DataError, match=r"0, 1 in client 0 and no, yes in client 1"):
        from_clients([(X, [0, 1] * 3), (X, ["no", "yes"] * 3)])
    rename = {"scale": "none", "rename": {"0": "no", "1": "yes"}}
    made = from_clients([(X, [0, 1] * 3), (X, ["no", "yes"] * 3)], table=rename)
    assert (made.names, made.y.tolist()) == (("no", "yes"), [0, 1] * 6)
    letters = [(X, ["0", "1"] * 3), (X, ["A", "B"] * 3)]
    with pytest.raises(
        DataError, match=r"classes = \[...\], the list of their names, if they are 4"
    ):
        from_clients(letters)
    assert from_clients(letters, classes=["0", "1", "A", "B"]).classes == 4
    with pytest.raises(DataError, match=r"0, 1 in client 0 and 1, 2 in client 1; .*classes = 3 if"):
        from_clients([(X, [0, 1] * 3), (X, [1, 2] * 3)])
    assert from_clients([(X, [0, 1] * 3), (X, [1, 2] * 3)], classes=3).classes == 3
    for more in ([0, 2] * 3, [0, 1, 2] * 2):  # a third client shows that there are three
        assert from_clients([(X, [0, 1] * 3), (X, [1, 2] * 3), (X, more)]).classes == 3
    for one in ([-1, 1] * 3, [-1.0, 1.0] * 3):
        with pytest.raises(
            DataError, match=r'-1, 1 in client 0 and 0, 1 in .*rename = { "-1" = "0"'
        ):
            from_clients([(X, one), (X, [0, 1] * 3), (X, [1] * 6)])
    minus = {"scale": "none", "rename": {"-1": "0"}}
    made = from_clients([(X, [-1, 1] * 3), (X, [0, 1] * 3)], table=minus)
    assert made.y.tolist() == [0, 1] * 6
    texts = {"v": [0.5] * 6, "y": ["0", "1"] * 3, "who": [*"aabbab"]}
    assert from_arrays(texts, "y", "who").names == ("0", "1")
    for label, one, other in (("True", "0", "false"), ("no", "1", "yes"), ("ja", "1", "ja")):
        texts["y"] = [one, label] * 3
        with pytest.raises(DataError, match=rf'rename = {{ "{one}" = "{other}" }}'):
            from_arrays(texts, "y", "who")
    mixed = ["1", "0", "yes", "no", "0", "1"]
    with pytest.raises(DataError, match=r"0, 1 in some rows and no, yes in others"):
        from_arrays(X, mixed, [0, 1] * 3)
    assert from_arrays(X, mixed, [0, 1] * 3, table=rename).y.tolist() == [1, 0, 1, 0, 0, 1]
    cells = {"v": [0.5] * 6, "y": mixed, "who": [*"aabbab"]}
    with pytest.raises(DataError, match=r"is 0, 1 in some rows and no, yes in others"):
        from_arrays(cells, "y", "who")
    with pytest.raises(DataError, match=r"blanks and capitals alone: 'No', 'no', 'yes', 'yes '"):
        from_arrays(X, ["No", "no", "yes", "yes ", "no", "yes"], [0, 1] * 3)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (("0", "1"), ("f", "m"), r"numbers \('0', '1'\) of client a and words \('f', 'm'\) of cl"),
        (
            ("True", "False"),
            ("no", "yes"),
            r"true and false \('False', 'True'\) .* \"False\" = \"no\"",
        ),
        (("20", "30"), ("old", "young"), r"or words = \[\"f\"\] if each number"),
    ],
)
def test_a_column_is_numbers_or_words_at_all_clients(
    tmp_path: Path, first: tuple[str, str], second: tuple[str, str], message: str
) -> None:
    texts = [f"f,label\n{f},0\n{m},1\n" + f"{f},1\n{m},0\n" * 5 for f, m in (first, second)]
    folder = files(tmp_path / "f", *texts)
    scale = {"scale": "federated"}
    with pytest.raises(DataError, match=f"column 'f' is .*{message}"):
        from_files(folder, table=scale)
    cells = {"f": [*first, *second], "label": [0, 1, 0, 1], "who": [*"aabb"]}
    with pytest.raises(DataError, match=f"column 'f' is .*{message.replace('client a', '.*')}"):
        from_arrays(cells, "label", "who", table=scale)
    made = from_files(folder, table={**scale, "rename": dict(zip(first, second, strict=True))})
    assert made.preparation is not None
    assert made.preparation.save()["inputs"] == [f"f={word}" for word in sorted(second)]
    made = from_files(folder, table={**scale, "words": ["f"]})
    assert made.preparation is not None
    assert len(made.preparation.save()["inputs"]) == 4


def test_a_number_beside_words_is_a_word(tmp_path: Path) -> None:
    texts = ["f,label\n" + rows * 6 for rows in ("0,0\n0,1\n", "A,0\nA,1\n", "0,0\nAB,1\n")]
    made = from_files(files(tmp_path / "f", *texts), table={"scale": "federated"})
    assert made.preparation is not None
    assert made.preparation.save()["inputs"] == ["f=0", "f=A", "f=AB"]


def test_two_decimal_marks_in_two_files_are_told_whatever_the_options(tmp_path: Path) -> None:
    folder = files(tmp_path / "md", "v,label\n0.5,0\n1.5,1\n", "v;label\n0,5;0\n1,5;1\n")
    for more in ({}, {"decimal": ","}):
        with pytest.raises(DataError, match=r"write all with one decimal mark .here: 0.5 and 0,5"):
            from_files(folder, table={"scale": "none", **more})


def test_new_rows_are_read_as_the_table_was(tmp_path: Path) -> None:
    rows = ["A;0,5;0", "A;1,5;1", "B;2,5;0", "B;3,5;1"]
    made = load(tmp_path / "t.csv", rows, "site;v;label", decimal=",")
    assert made.preparation is not None
    (tmp_path / "new.csv").write_text("v;w\n0,5;1\n")
    # mean 2, variance (2.25 + 0.25 + 0.25 + 2.25) / 4 = 1.25
    right = pytest.approx((0.5 - 2) / 1.25**0.5)
    for new in (str(tmp_path / "new.csv"), [{"v": "0,5"}], [{"v": 0.5}]):
        assert made.preparation(new).tolist() == [[right]]
    with pytest.raises(
        DataError, match=r'got "0.5" in column .v., .* have a number with a decimal c'
    ):
        made.preparation([{"v": "0.5"}])


def test_clients_of_a_frame_keep_their_numbers() -> None:
    ids = [10 + k for k in range(30)]
    frame = {"v": [k / 7 for k in range(60)], "y": [1, 2] * 30, "who": ids * 2}
    made = from_arrays(frame, "y", "who")
    assert (made.client_names[0], len(made), made.names) == ("who=10", 30, ("1", "2"))
    alone = from_arrays({"v": frame["v"], "who": frame["who"]}, frame["y"], "who", classes=3)
    assert alone.client_names == made.client_names
    gap = {"v": [0.5, 1.5, 2.5, 3.5], "y": ["a", "?", "b", "a"], "who": ["A", "A", "B", None]}
    with pytest.raises(DataError, match=r"the client is missing in column 'who'"):
        from_arrays(gap, "y", "who")
    kept = from_arrays(gap, "y", "who", table={"scale": "none", "drop_rows": True})
    assert (kept.x.tolist(), kept.client_names) == ([[0.5], [2.5]], ("A", "B"))


# --------------------------------------------------------------------------------------------- ids


@pytest.mark.parametrize(
    ("name", "cells", "why"),
    [
        ("patient_id", [100 + k // 2 for k in range(40)], "is called so and holds 20 different"),
        ("", list(range(40)), "is called so"),
        ("Unnamed: 0", list(range(40)), "is called so"),
        ("PatientID", [5, 7, 7, 9], "is called so"),
        ("n", [k * 7 % 40 for k in range(40)], r"counts the rows \(0, 7, ...\)"),
        ("n", [float(k) for k in range(40)], "counts the rows"),
        ("n", [k * k for k in range(40)], "holds 40 different whole numbers in 40 rows"),
        ("who", [f"p{k}" for k in range(40)], r"another word in every row \('p0', 'p1', ...\)"),
        ("who", [f"p{k % 30}" for k in range(40)], "holds 30 different words in 40 rows"),
    ],
)
def test_ids_are_no_inputs_unless_taken_on_purpose(name: str, cells: list[Any], why: str) -> None:
    table = pa.table({name: cells, "v": [0.5] * len(cells)})
    with pytest.raises(DataError, match=rf'{why}.*like an id; leave it out with drop = \["{name}"'):
        raw_table(table, TableOptions(), "t.csv")
    keep = "words" if isinstance(cells[0], str) else "numbers"
    assert len(raw_table(table, TableOptions(**{keep: (name,)}), "t.csv").columns) == 2
    assert len(raw_table(table, TableOptions(drop=(name,)), "t.csv").columns) == 1


def test_a_count_within_each_client_is_an_id(tmp_path: Path) -> None:
    rows = [f"{'AB'[k // 30]},{k % 30},{k % 3 / 7:.2f},{k % 2}" for k in range(60)]
    with pytest.raises(DataError, match="column 't' counts the rows"):
        load(tmp_path / "t.csv", rows, "site,t,v,label")


def test_numbers_in_a_unit_are_no_ids() -> None:
    cells = {"income": [f"${40_000 + 37 * k}" for k in range(30)]}
    made = raw_table(pa.table(cells), TableOptions(units=("$",)), "t.csv")
    assert made.columns[0].values[:2].tolist() == [40_000.0, 40_037.0]


def test_measured_numbers_are_no_ids() -> None:
    draw = np.random.default_rng(0)
    columns = {
        "weight": draw.normal(70, 9, 200).round(3).tolist(),
        "age": draw.integers(18, 90, 200).tolist(),
        "acid": draw.integers(0, 400, 200).tolist(),
        "city": [f"town {k % 40}" for k in range(200)],
        "valid": [k % 2 for k in range(200)],
        "site_id": [k % 2 for k in range(200)],
    }
    assert len(raw_table(pa.table(columns), TableOptions(), "t.csv").columns) == 6


def categories(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1], pa.uint32()), values)


def test_categories_of_string_views_are_words() -> None:
    """Polars gives its categories so, and Arrow cannot cast to string views."""
    words = categories(pa.array(["u", "v"], pa.string_view()))
    table = pa.table({"v": words, "label": words, "site": words})
    made = from_arrays(table, "label", "site", table={"scale": "federated"})
    assert (made.names, made.client_names) == (("u", "v"), ("u", "v"))
    assert made.preparation is not None
    assert made.preparation.save()["inputs"] == ["v=u", "v=v"]


@pytest.mark.parametrize("label", ["v", "w"])
def test_categories_that_are_no_words_are_refused(label: str) -> None:
    """As pandas gives intervals."""
    pairs = categories(pa.array([{"left": 0, "right": 1}, {"left": 1, "right": 2}]))
    table = pa.table({"v": pairs, "w": [0, 1, 0, 1]})
    with pytest.raises(DataError, match=r"column 'v' has categories of the type struct<.*astype"):
        from_arrays(table, label, [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("sites", "rename", "names"),
    [
        # the most frequent spelling; of equally frequent ones the first
        (["AKH Wien", "AKH WIEN", "AKH Wien", "graz", "Graz"], {}, ("AKH Wien", "graz")),
        (["Zell", "zell ", "Amras", "Zell"], {}, ("Amras", "Zell")),
        # numbered in the order of the names in small letters: graz, Wien
        (["graz", "Wien", "WIEN", "WIEN"], {}, ("graz", "WIEN")),
        (["Graz", "GRAZ", "Wien"], {"graz": "LKH Graz"}, ("LKH Graz", "Wien")),
    ],
)
def test_fold_keeps_the_usual_spelling_of_clients(
    tmp_path: Path, sites: list[str], rename: dict[str, str], names: tuple[str, ...]
) -> None:
    rows = [f"{site},{k + 0.5},{k % 2}" for k, site in enumerate(sites)]
    made = load(tmp_path / "t.csv", rows, fold=True, trim=True, rename=rename)
    assert made.client_names == names
    assert made.groups is not None
    order = [name.casefold() for name in names]
    folded = [rename.get(site.strip().casefold(), site.strip().casefold()) for site in sites]
    assert made.groups.tolist() == [order.index(name.casefold()) for name in folded]


def test_a_message_names_a_folded_client_as_its_file_does(tmp_path: Path) -> None:
    rows = ["Graz,1.5,0", "GRAZ,2.5,", "Graz,3.5,1"]
    with pytest.raises(DataError, match=r"client Graz, row 2 of .*: the label is missing"):
        load(tmp_path / "t.csv", rows, fold=True)
    table = pa.table({"site": ["Graz", "GRAZ", "Graz", "Wien"] * 5, "v": np.arange(20) / 8})
    y = np.arange(20) % 2
    made = from_arrays(table, y, client="site", table={"fold": True})
    assert made.client_names == ("Graz", "Wien")
