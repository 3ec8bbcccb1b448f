"""Messages count the rows of the file, whatever was left out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from motley.core.errors import DataError
from motley_data.own_federation import from_files
from motley_data.table_options import TableOptions
from motley_data.table_readers import read_table

HEAD = "site,age,dose,y\n"


def table(tmp_path: Path, rows: list[str]) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


GOOD = [f"{'AB'[i % 2]},{20.5 + i},{i / 4},{i % 2}" for i in range(8)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["A,20,1.5,", "A,21,oops,1", *GOOD], 'client A, row 2 of .*t.csv: got "oops"'),
        ([",20,1.5,1", "B,20,1.5,", "A,21,oops,1", *GOOD], 'row 3 of .*t.csv: got "oops"'),
        (["A,1,2,", HEAD.strip(), "A,inf,1,1", *GOOD], 'row 3 of .*t.csv: got "inf"'),
        ([HEAD.strip(), "A,21,oops,1", *GOOD], 'row 2 of .*t.csv: got "oops"'),
        (["A,2,2,", "A,2020-01-02,2,1", "B,2020-01-02,1,0"], "column 'age' .*row 2 is '2020-01-02"),
        ([*GOOD, HEAD.strip(), 'A,1,2,"0,5"'], 'row 10 of .*t.csv: got the label "0,5"'),
        (["A,2,2,0", HEAD.strip(), "A,2,3,"], r"row 3 of .*t.csv: the label is missing"),
        ([*GOOD, HEAD.strip(), "A,Total,2,1"], r"the last row \(10\) has"),
    ],
)
def test_rows_are_counted_as_the_file_has_them(
    tmp_path: Path, rows: list[str], message: str
) -> None:
    options = TableOptions(drop_rows="the label is missing" not in message)
    with pytest.raises(DataError, match=message):
        read_table(str(table(tmp_path, rows)), "y", "site", True, options)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["20,1.5,", "21,oops,1"], 'client b, row 2 of .*b.csv: got "oops"'),
        (["20,1.5,1", '21,1,"0,5"'], "client b, row 2 of its file: got the label"),
    ],
)
def test_rows_are_counted_within_the_file_of_a_client(
    tmp_path: Path, rows: list[str], message: str
) -> None:
    head = "age,dose,y"
    good = [f"{20.5 + i},{i / 4},{i % 2}" for i in range(8)]
    (tmp_path / "a.csv").write_text("\n".join([head, *good, ""]))
    (tmp_path / "b.csv").write_text("\n".join([head, *rows, *good, ""]))
    with pytest.raises(DataError, match=message):
        from_files(tmp_path, label="y", table=TableOptions(drop_rows=True))
