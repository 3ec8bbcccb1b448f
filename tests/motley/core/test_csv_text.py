"""CSV files that a spreadsheet program only shows: cells that begin like formulas, and their way
back."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.csv_text import csv_rows, csv_text

ANY = st.text(alphabet="=+-@'\t\r\n,;\"a1 .e＝＋－＠") | st.text()
FORMULAS = [
    "=1+1",
    "+cmd",
    "-cmd",
    "@SUM(cell)",
    "\t1",
    "\r1",
    "-3.5.1",
    "--1",
    "+1+1",
    "=",
    "＝1",
    "-1e",
    "'=1",
    "-2 (-3)",
]
PLAIN = [
    "-3.5",
    "+2",
    "-.5",
    "-1e-07",
    "1e5",
    "-inf",
    "nan",
    "-",
    "",
    "a=b",
    "FedAvg",
    "'possible cost'",
]


@pytest.mark.parametrize("cell", FORMULAS)
def test_a_cell_that_begins_like_a_formula_is_made_text(cell):
    text = csv_text([["method", cell], [cell, 1]])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["method", f"'{cell}"],
        [f"'{cell}", "1"],
    ]


def test_a_cell_that_begins_inside_a_text_is_made_text_too():
    """A program that separates by semicolons or takes a bare line end for one."""
    assert (
        csv_text([["a;=1", "b\r=2", "c\t@d", "e\n-f", "\t=1"]])
        == "a;'=1,\"b\r'=2\",c\t'@d,\"e\n'-f\",'\t'=1\n"
    )


@pytest.mark.parametrize("cell", PLAIN)
def test_numbers_and_plain_words_stay_as_they_are(cell):
    assert csv_text([["x", cell], [cell, -2.5]]) == f"x,{cell}\n{cell},-2.5\n"


@given(st.lists(ANY, min_size=1, max_size=3, unique=True), st.lists(ANY, min_size=3, max_size=3))
def test_what_is_written_is_read_back_and_no_cell_is_a_formula(heads, row):
    cells = row[: len(heads)]
    text = csv_text([heads, cells])
    for found in csv.reader(io.StringIO(text, newline="")):
        for cell in found:
            assert not re.match("[=@\t\r\n＝＋－＠]", cell)
            assert not re.match("[+-].", cell) or re.fullmatch("[+-](?:[0-9.eE+-]+|inf|nan)", cell)
            assert not re.search("[;\t\r\n][=+@＝＋－＠-]", cell)
    if "" not in (heads[0], cells[0]):  # a line of nothing is no row
        assert list(csv_rows(text)) == [dict(zip(heads, cells, strict=True))]
