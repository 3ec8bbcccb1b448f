"""Files of tables: separators, encodings, heads, comments, and the formats that libraries read."""

from __future__ import annotations

import gzip
import json
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather

from motley.core.errors import DataError
from motley.core.keys import Key
from motley.tasks import TASKS, from_files
from motley.tasks.task import Dataset
from motley_data import table_files
from motley_data.raw_table import remarks_of
from motley_data.table_files import TableFormat, from_cells, read_arrow, separators_of, table_kind
from motley_data.table_lines import refuse_footer


def rows(path: Path, **form: Any) -> dict[str, list[Any]]:
    return dict(read_arrow(path, TableFormat(**form)).to_pydict())


AB = {"a": ["1", "2"], "b": ["x", "y"]}


@pytest.mark.parametrize("name", ["t.csv", "T.CSV", "t.tsv", "t.csv.gz", "t.TSV.GZ"])
@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
def test_the_separator_is_recognised_in_texts_of_any_name(
    tmp_path: Path, name: str, sep: str
) -> None:
    text = f"a{sep}b\n1{sep}x\n2{sep}y\n".encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.lower().endswith("gz") else text)
    table = read_arrow(path)
    assert (table.to_pydict(), separators_of(table)) == (AB, sep)


def test_other_marks_in_cells_divide_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a;b\n1,5;"x;1"\n2,5;y\n')
    assert rows(path) == {"a": ["1,5", "2,5"], "b": ["x;1", "y"]}
    path.write_text("a,b\n1;5,x|y\n2,|\n")
    assert rows(path) == {"a": ["1;5", "2"], "b": ["x|y", "|"]}
    path.write_text("T, °C;p, hPa\n1,5;2,5\n")
    with pytest.raises(
        DataError, match=r'several marks; write sep = "," \(3 columns\) or sep = ";" \(2 columns\)'
    ):
        rows(path)
    assert rows(path, sep=";") == {"T, °C": ["1,5"], "p, hPa": ["2,5"]}


@pytest.mark.parametrize(
    ("encoding", "text", "said", "line"),
    [
        ("latin-1", "Zürich", "Latin-1", 'it says "Zürich,1"; write encoding = "latin-1"'),
        ("cp1252", "“Zürich” €", "Windows-1252", 'write encoding = "cp1252"'),
        ("utf-16", "Zürich", "UTF-16", 'write encoding = "utf-16"'),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_another_encoding_is_named_and_read_when_told(
    tmp_path: Path, encoding: str, text: str, said: str, line: str, packed: bool
) -> None:
    data = f"site,v\n{text},1\n".encode(encoding)
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(DataError, match=rf"^{path} is not in UTF-8 .line \d.; it is likely {said}"):
        rows(path)
    with pytest.raises(DataError, match=line):
        rows(path)
    assert rows(path, encoding=encoding) == {"site": [text], "v": ["1"]}


def test_an_encoding_counts_for_the_files_that_are_not_utf8(tmp_path: Path) -> None:
    text = "v,label\n1,männlich\n2,weiblich\n"
    (tmp_path / "A.csv").write_text(text, encoding="cp1252")
    (tmp_path / "B.csv").write_text(text, encoding="utf-8")
    made = from_files(tmp_path, table={"scale": "none", "encoding": "cp1252"})
    assert (made.names, made.y.tolist()) == (("männlich", "weiblich"), [0, 1, 0, 1])
    assert made.reading is not None
    assert "B.csv is read as UTF-8, which it is, and not as cp1252" in made.reading.remarks
    # two bytes for a letter: "一" in GBK is a letter in UTF-8, too
    (tmp_path / "c.csv").write_text("v\n一\n", encoding="gbk")
    assert rows(tmp_path / "c.csv", encoding="gbk") == {"v": ["一"]}


def test_lines_in_two_encodings_are_each_read_in_its_own(tmp_path: Path) -> None:
    line = "thé,1\n"
    (tmp_path / "t.csv").write_bytes(
        b"drink,label\n" + line.encode() * 2 + b"x,0\n" + line.encode("latin-1")
    )
    with pytest.raises(
        DataError, match=r'\(line 5\).* "thé,1"; write encoding = "latin-1", beside which lines in'
    ):
        rows(tmp_path / "t.csv")
    table = read_arrow(tmp_path / "t.csv", TableFormat(encoding="latin-1"))
    assert table.column("drink").to_pylist() == ["thé", "thé", "x", "thé"]
    assert remarks_of(table) == [
        "2 lines of t.csv are read as UTF-8, which they are, and not as latin-1"
    ]


def test_letters_of_another_encoding_are_found_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    for text in ("T °C,label\n1,0\n", "t,label\n1,Zürich\n"):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(DataError, match=r"it is likely Latin-1"):
            TASKS.build({"name": "tabular", "data": str(path)}).load(Key(0), 1)
    monkeypatch.setattr(table_files, "_PART", 64)  # which cuts letters of two bytes
    path.write_bytes(b"a,b\n" + "1,ß\n".encode() * 500 + "2,ü\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"line 502\); it is likely Latin-1"):
        rows(path)
    with pytest.raises(DataError, match=r"is no text in ascii|is not in UTF-8"):
        rows(path, encoding="ascii")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\n1,x\n2,y\n".encode(encoding))
    with pytest.raises(DataError, match=rf'likely UTF-16; write encoding = "{encoding}"'):
        rows(path)
    assert rows(path, encoding=encoding) == AB
    path.write_text("a,b\n1,x\n2,y\n")  # beside it a file in UTF-8
    assert rows(path, encoding=encoding) == AB


def test_a_mark_of_utf8_is_no_letter(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\n1,x\n2,y\n")
    assert rows(path) == AB


def test_heads_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("# made by hand\n\na,b\n# more\n1,x\n2,y\n")
    assert rows(path, comment="#") == AB
    path.write_text("glucose,age\nmg/dl,\n1,x\n2,y\n")
    assert rows(path, header_rows=2) == {"glucose mg/dl": ["1", "2"], "age": ["x", "y"]}
    path.write_text("1,x\n2,y\n")
    assert rows(path, header_rows=0) == {"x0": ["1", "2"], "x1": ["x", "y"]}
    path.write_text("a,b\n")
    assert rows(path) == {"a": [], "b": []}
    path.write_text("")
    with pytest.raises(DataError, match="is empty; expected a line with the names of columns"):
        rows(path)
    path.write_text("a,b")
    assert rows(path) == {"a": [], "b": []}
    path.write_text("\ufeff# made by hand\na,b\n1,x\n2,y\n")
    assert rows(path, comment="#") == AB


@pytest.mark.parametrize(
    ("text", "odd", "comment"),
    [
        ("# made by hand\na,b\n1,x\n2,y\n", "line 1 has 1 column, and most have 2", "#"),
        ("Report\n\na,b\n1,x\n2,y\n", 'most have 2: "Report"', "Report"),
        (
            "a,b\n1,x\n2,y\nMade by hand, of 3, in May\n",
            "line 4 has 3",
            "Made by hand, of 3, in May",
        ),
        ('a,b\n1,"x"\n2,y\n"Made, by" hand\n', "line 4 has 1", '"Made, by" hand'),
    ],
)
def test_a_line_of_another_width_is_named_with_the_line_that_leaves_it_out(
    tmp_path: Path, text: str, odd: str, comment: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    line = f"write comment = {json.dumps(comment)} if it is none of the table, or give it 2"
    with pytest.raises(DataError, match=f"{re.escape(odd)}.*{re.escape(line)}"):
        rows(path)
    assert rows(path, comment=comment) == AB


def test_a_title_with_separators_is_named_with_the_line_that_leaves_it_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("Export of ward 4;;\nsite;v;label\nA;1;0\nB;2;1\n")
    with pytest.raises(DataError, match=r'one cell, .*; write comment = "Export of ward 4" if it'):
        rows(path)
    assert list(rows(path, comment="Export of ward 4")) == ["site", "v", "label"]


def test_rows_that_lack_a_cell_are_no_comments(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("# c\nReport\na,b\n1,x\n")
    with pytest.raises(DataError, match=r'write comment = \["#", "Report"\] if it is none'):
        rows(path, comment="#")
    assert rows(path, comment=("#", "Report")) == {"a": ["1"], "b": ["x"]}
    path.write_text("a,b,c\n1,x,1\n1,x\n")  # such a mark would take the first row, too
    with pytest.raises(
        DataError, match=r'line 3 has 2 columns, and most have 3: "1,x"; give it 3$'
    ):
        rows(path)
    path.write_text("b,c\n1,x,1\n2,x,2\n")
    with pytest.raises(DataError, match=r"line 1 has 2 columns, and most have 3: .*; give it 3$"):
        rows(path)


@pytest.mark.parametrize(
    "text",
    [
        "a,b,\n1,x,\n2,y,\n",
        "a,b,,,\n1,x,,,\n2,y,,,\n",
        "a,b\n1,x,\n2,y,\n",
        "sep=;\na;b\n1;x\n2;y\n",
        "\ufeffsep=,\r\na,b\r\n1,x\r\n2,y\r\n",
        '"a" , "b"\n1,x\n2,y\n',
    ],
)
def test_what_spreadsheets_add_is_no_column_and_no_row(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert rows(path) == AB
    path.write_text("a,b,\n1,x,\n2,y,z\n")
    assert rows(path) == {**AB, "": ["", "z"]}


def test_line_breaks_in_quotes_may_lie_where_a_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_BLOCK", 64)
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + '1,"one\ntwo\nthree four five"\n' * 40)
    table = read_arrow(path)
    assert table.column("b").to_pylist() == ["one\ntwo\nthree four five"] * 40
    assert table.column("b").num_chunks > 1
    path.write_text('a,"b\nc"\n1,x\n')
    assert rows(path) == {"a": ["1"], "b\nc": ["x"]}


def test_packed_texts_that_unpack_to_far_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_SUSPICIOUS", 1000)
    monkeypatch.setattr(table_files, "_MOST_PACKED", 10)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a\n" + b"1\n" * 100_000))
    with pytest.raises(DataError, match="unpacks to more than"):
        rows(path)
    path.write_bytes(gzip.compress(b"a\n1\n")[:-6])
    with pytest.raises(DataError, match="cannot be read as gz"):
        rows(path)


def load(path: Path, **options: Any) -> Dataset:
    keys = {"name": "tabular", "data": str(path), "scale": "none", **options}
    return TASKS.build(keys).load(Key(0), 1)


LINES = "".join(f"{'AB'[k % 2]},{k}.5,{k // 2 % 2}\n" for k in range(8))


def of_sites(path: Path, **options: Any) -> Dataset:
    return load(path, client="site", **options)


@pytest.mark.parametrize(
    ("footer", "mark"),
    [
        ("Total,999,20\n", "Total,"),
        ('"Summe:",999,\n\n', '"Summe:",'),
        ("Gesamt,,", "Gesamt,"),
        ("A,5.5,Mean\n", "A,5.5,Mean"),
        ("Source: the hospital,2024,x\n", "Source: the hospital,"),
    ],
)
def test_a_total_at_the_end_is_no_row(tmp_path: Path, footer: str, mark: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("site,v,label\n" + LINES + footer)
    line = f"write comment = {json.dumps(mark)} to leave it out, or rename = {{ "
    for read in (lambda: of_sites(path), lambda: from_files(tmp_path)):
        with pytest.raises(DataError, match=r"the last row \(9\) has .*" + re.escape(line)):
            read()
    assert len(of_sites(path, comment=mark).y) == 8
    path.write_text("site,v,label\n" + LINES + LINES)
    made = of_sites(path)
    assert made.preparation is not None
    path.write_text("site,v,label\n" + LINES + footer)
    with pytest.raises(DataError, match=r"the last row \(9\)"):
        made.preparation(str(path))


def test_several_totals_and_none(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("site,v,label\n" + LINES + "Total,999,20\nMean,4,0\n")
    with pytest.raises(DataError, match=r'has "Mean" in column .site., .* comment = "Mean," to'):
        of_sites(path)
    with pytest.raises(DataError, match=r'comment = \["Mean,", "Total,"\] to leave it out'):
        of_sites(path, comment="Mean,")
    assert len(of_sites(path, comment=["Mean,", "Total,"]).y) == 8
    path.write_text("site,v,label\n" + LINES + "Total,4.5,0\n")
    assert of_sites(path, rename={"Total": "Total"}).client_names == ("A", "B", "Total")
    path.write_text("site,v,label\nTotal,1.5,1\n" + LINES + "Total,4.5,0\n")  # a client's name
    assert of_sites(path).client_names == ("A", "B", "Total")


def test_heads_that_are_repeated_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("site,v,label\n" + LINES + "site,v,label\n" + LINES + "site,v,label\n")
    made = of_sites(path)
    assert (len(made.y), made.client_names, made.classes) == (16, ("A", "B"), 2)
    assert made.reading is not None
    assert made.reading.remarks == ("t.csv: 2 more lines with the heads are left out",)
    text = "\ufeffsite,v,label\n" + LINES  # each of two files has its own mark of UTF-8
    path.write_text(text + text, encoding="utf-8")
    assert (len(of_sites(path).y), of_sites(path).client_names) == (16, ("A", "B"))


def test_blanks_between_columns_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(("site,v,label\n" + LINES).replace(",", " "))
    with pytest.raises(DataError, match=r'if blanks divide them, write sep = " "$'):
        of_sites(path)
    assert len(of_sites(path, sep=" ").y) == 8
    path.write_text(("site,v,label\n" + LINES).replace(",", ":"))
    with pytest.raises(DataError, match=r"if ':' divides them, write sep = \":\"$"):
        of_sites(path)
    assert len(of_sites(path, sep=":").y) == 8


def test_separators_of_several_files_are_told(tmp_path: Path) -> None:
    for name, sep in (("a", ";"), ("b", ","), ("c", "\t")):
        text = "v,w,label\n1.5,2,0\n2.5,3,1\n4.5,1,1\n"
        (tmp_path / f"{name}.csv").write_text(text.replace(",", sep))
    made = from_files(tmp_path)
    assert made.reading is not None
    assert made.reading.remarks == (
        "columns of some files are divided by ';', of others by ',', of others by a tabulator",
    )
    (tmp_path / "a.csv").unlink()
    (tmp_path / "c.csv").write_text("v,w,label\n1.5,2,0\n2.5,3,1\n")
    again = from_files(tmp_path)
    assert again.reading is not None
    assert again.reading.remarks == ()


def test_a_title_and_numbers_of_a_sheet() -> None:
    cells = [("Of 2024", None), ("id", "v"), (1, 0.5), (2.0, 1.5), ("x", 2.5)]
    line = r'row has one cell, "Of 2024", and others have up to 2; write comment = "Of 2024" if it'
    with pytest.raises(DataError, match=line):
        from_cells(cells, TableFormat(), Path("t.xlsx"))
    table = from_cells(cells, TableFormat(comment="Of 2024"), Path("t.xlsx"))
    assert table.to_pydict() == {"id": ["1", "2", "x"], "v": [0.5, 1.5, 2.5]}


def test_totals_and_comments_of_a_sheet() -> None:
    cells = [("# of 2024", None), ("n", "v"), ("x", 1), ("y", 2), (None, None), ("Total", 3)]
    form = TableFormat(comment=("#", "Total"))
    assert from_cells(cells, form, Path("t.xlsx")).to_pydict() == {"n": ["x", "y"], "v": [1, 2]}
    table = from_cells(cells, TableFormat(comment="#"), Path("t.xlsx"))
    with pytest.raises(DataError, match=r'has "Total" in column .n., .*comment = \["#", "Total"\]'):
        refuse_footer(table, "t.xlsx", {}, ("#",))


def test_feather_arff_and_libsvm(tmp_path: Path) -> None:
    feather.write_feather(
        pa.table({"v": [1.5, 2.5], "label": ["no", "yes"]}), tmp_path / "t.feather"
    )
    (tmp_path / "t.arff").write_text(
        "@relation t\n@attribute v numeric\n@attribute label {no,yes}\n@data\n1.5,no\n2.5,yes\n"
    )
    for name in ("t.feather", "t.arff"):
        made = load(tmp_path / name)
        assert (made.x.tolist(), made.y.tolist(), made.names) == (
            [[1.5], [2.5]],
            [0, 1],
            ("no", "yes"),
        )
    (tmp_path / "t.svm").write_text("-1 1:0.5 3:2\n1 2:1\n")
    made = load(tmp_path / "t.svm")
    assert made.x.tolist() == [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]]
    assert (made.y.tolist(), made.names) == ([0, 1], ("-1", "1"))
    (tmp_path / "t.svm").write_text("-1 0:0.5 2:2\n1 1:1\n")  # counted from 0
    made = load(tmp_path / "t.svm")
    assert made.reading is not None
    assert [column.name for column in made.reading.columns] == ["x0", "x1", "x2"]
    assert made.x.tolist() == [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]]
    (tmp_path / "t.svm").write_text("-1 qid:1 1:0.5\n1 qid:2 1:1\n")
    made = load(tmp_path / "t.svm")
    assert made.reading is not None
    assert made.reading.remarks == ("t.svm: the numbers behind qid are left out",)
    (tmp_path / "t.arff").write_text("@relation t\n@attribute v string\n@data\nx\n")
    with pytest.raises(DataError, match=r"cannot be read as arff .*; numbers, nominal values"):
        load(tmp_path / "t.arff")
    (tmp_path / "t.svm").write_text("a b c\n")
    with pytest.raises(DataError, match="cannot be read as libsvm"):
        load(tmp_path / "t.svm")


def test_a_gap_of_arff_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "t.arff").write_text(
        "@relation t\n@attribute v numeric\n@attribute w {a,b}\n@attribute label {no,yes}\n@data\n"
        "?,a,no\n2.5,?,yes\n"
    )
    made = load(tmp_path / "t.arff", scale="federated")
    assert made.table is not None
    assert [np.isnan(column.values).tolist() for column in made.table.raw.columns] == [
        [True, False],
        [False, True],
    ]


def test_excel_without_its_library_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(
        DataError, match=r"read by openpyxl, which is not installed; save the sheet as .csv, or pip"
    ):
        rows(tmp_path / "t.xlsx")
    (tmp_path / "t.xls").write_bytes(b"")
    with pytest.raises(DataError, match=r"Excel file of before 2007; save it as .xlsx or .csv"):
        rows(tmp_path / "t.xls")


def test_a_sheet_that_excel_opens(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra excel; make test-loaders")
    book = openpyxl.Workbook()
    for row in (["age", "city", "label"], [30, "Graz", "no"], [41.5, None, "yes"]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    expected = {"age": [30.0, 41.5], "city": ["Graz", None], "label": ["no", "yes"]}
    assert rows(tmp_path / "t.xlsx") == expected
    made = load(tmp_path / "t.xlsx", scale="federated")
    assert made.table is not None
    assert made.table.raw.columns[0].values.tolist() == [30.0, 41.5]


def test_a_workbook_that_its_reader_does_not_know(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra excel; make test-loaders")
    book = openpyxl.Workbook()
    book.active.append(["v", "label"])
    book.create_chartsheet("empty")
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(DataError, match=r"not read by openpyxl \(AttributeError: .* as \.csv$"):
        rows(tmp_path / "t.xlsx")


def test_what_a_sheet_does_not_show_is_told(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra excel; make test-loaders")
    path = tmp_path / "t.xlsx"

    def saved(rows: list[list[Any]], *merged: str, hidden: int = 0) -> Path:
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        for area in merged:
            book.active.merge_cells(area)
        if hidden:
            book.active.row_dimensions[hidden].hidden = True
        book.save(path)
        return path

    table = read_arrow(saved([["site", "v"], ["A", 1], [None, 2], ["B", 3]], "A2:A3", hidden=4))
    assert table.to_pydict() == {"site": ["A", "A", "B"], "v": [1, 2, 3]}
    assert remarks_of(table) == [
        "t.xlsx: each of the merged cells A2:A3 has their value",
        "t.xlsx: 1 rows are hidden in the sheet, and read like all others",
    ]
    heads = [["site", "blood", None], [None, "crp", "hb"], ["A", 1, 2], ["B", 3, None]]
    table = read_arrow(saved(heads, "B1:C1", "A1:A2", "B4:C4"), TableFormat(header_rows=2))
    assert table.column_names == ["site", "blood crp", "blood hb"]
    assert table.column("blood hb").to_pylist() == [2, None]
    assert "merged cells B4:C4 the first has the value, others none" in remarks_of(table)[0]
    with pytest.raises(DataError, match=r"cell B2 has a formula without its value"):
        read_arrow(saved([["v", "w"], [1, "=A2*2"]]))


def test_cells_of_a_sheet_keep_their_types() -> None:
    day = datetime(2024, 1, 28)
    cells = [
        ("v", "w", "day", "n", None),
        (1, "x", day, 2.5, None),
        (2.5, 3, day, None, ""),
        (None, None, None, None, None),
    ]
    table = from_cells(cells, TableFormat(), Path("t.xlsx"))
    assert table.to_pydict() == {
        "v": [1.0, 2.5],
        "w": ["x", "3"],
        "day": [day, day],
        "n": [2.5, None],
    }
    with pytest.raises(DataError, match=r"t.xlsx is empty"):
        from_cells([(None,)], TableFormat(), Path("t.xlsx"))


def test_names_of_files() -> None:
    assert [
        table_kind(Path(n)) for n in ("a.parquet.gz", ".a.csv", "a.npz", "a.XLSX", "a.txt")
    ] == [
        "",
        "",
        "",
        "excel",
        "",
    ]
    with pytest.raises(
        DataError, match=r"a.txt is of no known kind; expected .npz, or a table: .cs"
    ):
        read_arrow(Path("a.txt"))


def test_json_lines_are_a_table(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('\ufeff{"x": 1, "day": "2024-05-31"}\n\n{"x": 2.5, "day": null}\n')
    table = read_arrow(path)
    assert table.to_pydict() == {"x": [1.0, 2.5], "day": ["2024-05-31", None]}
    assert str(table.column("day").type) == "string"
    path.write_text('{"x": 1}\n{"x": "2"}\n{"x": true}\n')  # its column is decided as a text's
    assert read_arrow(path).to_pydict() == {"x": ["1", "2", "True"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"x": 1}\n{"x": 1, "y": 2}\n',
            "line 2: the object has also 'y', which is not so in the first line; expected the same "
            'keys in each line; write a gap as null, {"y": null}',
        ),
        ('{"x": 1, "z": 2}\n{"z": 1}\n', 'line 2: the object lacks .x., .* null, {"x": null}'),
        ('{"x": 1}\n{"y": 1}\n', "line 2: the object lacks .x. and has also .y., which"),
        ("[1]\n", "line 1: expected a JSON object, e.g."),
        ('{"x": 1}\n{"x": \n', "line 2: expected a JSON object with x"),
        ('{"x": 1, "x": 2}\n', "line 1: expected a JSON object, .*; each key once"),
        ('{"x": 1180591620717411303424}\n', "cannot be read as jsonl"),
    ],
)
def test_json_lines_of_other_forms_are_refused(tmp_path, text, message):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        read_arrow(tmp_path / "a.jsonl")
