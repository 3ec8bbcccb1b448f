"""New rows are read as the rows that a model was trained on, or refused."""

from __future__ import annotations

import json
from datetime import date, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from motley.core.errors import DataError
from motley.core.keys import Key
from motley.tasks import TASKS, from_arrays
from motley.tasks.preparation import restore_preparation
from motley.tasks.task import Dataset


def load(path: Path, rows: list[str], head: str, **options: Any) -> Dataset:
    path.write_text("\n".join([head, *rows]) + "\n")
    keys = {"name": "tabular", "data": str(path), "client": "site", **options}
    return TASKS.build(keys).load(Key(0), 2)


def prepared(folder: Path, rows: list[str], head: str, **options: Any) -> Any:
    """Return the preparation of a text, as a saved run has it."""
    made = load(folder / "t.csv", rows, head, **{"scale": "none", **options})
    assert made.preparation is not None
    return restore_preparation(json.loads(json.dumps(made.preparation.save())))


DATES = ["A;01.02.2023;0", "A;03.02.2023;1", "B;05.02.2023;0", "B;07.02.2023;1"]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("18:30", "18:30"),
        ("44963", "44963"),
        (44963, "44963"),
        (44963.5, "44963.5"),
        ("2h 15m", "2h 15m"),
        ("05.02.2023 10:00+01:00", "05.02.2023 10:00.01:00"),
        (time(18, 30), "18:30:00"),
        ("yesterday", "yesterday"),
    ],
)
def test_new_rows_of_a_column_of_dates_are_dates(tmp_path: Path, cell: Any, shown: str) -> None:
    """1 February 2023 is day 19389."""
    prepare = prepared(tmp_path, DATES, "site;v;label", dates="day first")
    for one in ("01.02.2023", "1. Feb 2023", "2023-02-01", date(2023, 2, 1)):
        assert prepare([{"v": one}]).tolist() == [[19389.0]]
    line = rf'row 1 of x: got "{shown}" in column .v., where the rows that trained have a date, day'
    with pytest.raises(DataError, match=line):
        prepare([{"v": cell}])


def test_new_rows_hold_what_the_rows_that_trained_held(tmp_path: Path) -> None:
    rows = ["A;1:30;5 %;7;0", "A;2:30;6 %;8;1", "B;0:30;0;9;0", "B;1:00;8 %;9;1"]
    head = "site;t;share;v;label"
    prepare = prepared(tmp_path, rows, head, dates="day first", units=("%",))
    assert prepare([{"t": "26:15", "share": "7 %", "v": "1"}]).tolist() == [[26.25, 7.0, 1.0]]
    assert prepare([{"t": timedelta(hours=2), "share": "0", "v": 1}]).tolist() == [[2.0, 0.0, 1.0]]
    for column, cell, held in (
        ("t", "1:02:15", "a time h:mm; write it so, or leave it empty"),
        ("t", "01.02.2023", "a time h:mm"),
        ("t", 1.5, "a time h:mm"),
        ("share", "0.07", "a number in %; write it so"),
        ("share", 0.07, "a number in %"),
        ("v", "7 %", "a number with a decimal point"),
        ("v", "01.02.2023", "a number with a decimal point"),
        ("v", date(2023, 2, 1), "a number with a decimal point"),
    ):
        row = {"t": "1:30", "share": "7 %", "v": "1", column: cell}
        with pytest.raises(DataError, match=rf"in column .{column}., where .* have {held}"):
            prepare([row])
    both = prepared(tmp_path, rows, head, dates="day first", units=("%", ""))
    assert both([{"t": "1:30", "share": 7, "v": "1"}]).tolist() == [[1.5, 7.0, 1.0]]


@pytest.mark.parametrize(
    ("numbers", "sep", "options", "new", "right"),
    [
        # decimal points, commas between columns
        ("1.5 20", ",", {}, "a;b\n1.234;5\n", "if it is 1.234, give numbers"),
        ("1.5 20", ",", {}, "a;b\n1234;0,5\n", 'row 1 of new.csv: got "0,5" in column .b., where'),
        ("1.5 20", ",", {}, "a;b\n1.234;5.25\n", 1.234),
        ("1.5 20", ",", {}, "a\tb\n1.234\t5\n", 1.234),
        # semicolons and points, which a column shows; and where none does
        ("1.5 20", ";", {}, "a;b\n1.234;5\n", 1.234),
        (
            "1 20",
            ";",
            {},
            "a;b\n1.234;5\n",
            'of a text divided by ";", whose usual decimal mark is ","',
        ),
        ("1 20", ";", {"decimal": "."}, "a;b\n1.234;5\n", 1.234),
        # decimal commas
        ("1,5 20", ";", {"decimal": ","}, "a,b\n1.5,20\n", 'got "1.5" .* have a number with a dec'),
        (
            "1,5 20",
            ";",
            {"decimal": ",", "thousands": "."},
            "a,b\n1.234,2\n",
            "if it is 1234, give",
        ),
        ("1,5 20", ";", {"decimal": ","}, 'a,b\n"1,234",2\n', "if it is 1.234, give numbers"),
        ("1,5 20", ";", {"decimal": ","}, 'a,b\n"1,234","2,5"\n', 1.234),
        ("1,5 20", ";", {"decimal": ",", "thousands": "."}, "a;b\n1.234;2\n", 1234.0),
    ],
)
def test_a_text_of_new_rows_is_read_as_those_that_trained_or_refused(
    tmp_path: Path, numbers: str, sep: str, options: dict[str, Any], new: str, right: float | str
) -> None:
    rows = [sep.join(("AB"[k % 2], *numbers.split(), str(k // 2))) for k in range(4)]
    prepare = prepared(tmp_path, rows, sep.join(("site", "a", "b", "label")), **options)
    (tmp_path / "new.csv").write_text(new)
    if isinstance(right, float):
        assert prepare(str(tmp_path / "new.csv"))[0, 0].item() == pytest.approx(right)
        return
    with pytest.raises(DataError, match=right):
        prepare(str(tmp_path / "new.csv"))


def test_true_and_false_with_gaps_are_read_again(tmp_path: Path) -> None:
    """True is 1 and false 0, less 0.5 and divided by 0.25; a gap is the mean."""
    rows = ["A;True;0", "A;;1", "B;False;0", "B;True;1"]
    fixed = {"smoker": (0.5, 0.25)}
    prepare = prepared(tmp_path, rows, "site;smoker;label", scale="fixed", fixed=fixed)
    right = [[2.0], [0.0], [-2.0], [2.0]]
    assert prepare(str(tmp_path / "t.csv")).tolist() == right
    assert prepare([{"smoker": x} for x in ("True", "?", "False", "True")]).tolist() == right
    with pytest.raises(DataError, match=r"row 1 of x: got .True. in column .smoker., where the"):
        prepare([{"smoker": "True"}, {"smoker": "perhaps"}])


def test_numbers_that_a_model_cannot_hold_are_refused(tmp_path: Path) -> None:
    rows = ["A;1.5;0", "A;2.5;1", "B;3.5;0", "B;4.5;1"]
    prepare = prepared(tmp_path, rows, "site;v;label")
    for cell in ("1e300", 1e300, "-4e38"):
        with pytest.raises(DataError, match=r"column .v.; expected a finite number up to 3.4e.38"):
            prepare([{"v": cell}])
    with pytest.raises(DataError, match=r"row 1 of .*t.csv: got 1e.300 in column .v.; expected a"):
        load(tmp_path / "t.csv", ["A;1e300;0", *rows[1:]], "site;v;label")
    table = {"scale": "standard"}
    array = from_arrays([[1.0], [2.0], [3.0], [4.0]], [0, 1] * 2, [0, 0, 1, 1], table=table)
    assert array.preparation is not None
    for number in (1e300, float("nan"), float("inf")):
        with pytest.raises(DataError, match=r"sample 2 has NaN, infinity or .* \(so have 1 of 2\)"):
            array.preparation([[1.0], [number]])
    scaled = prepared(tmp_path, ["A;0.000001;0", "A;0.000002;1"], "site;v;label", scale="standard")
    with pytest.raises(DataError, match=r"row 1: the number in column .v. is so far from the col"):
        scaled([{"v": 3e38}])
