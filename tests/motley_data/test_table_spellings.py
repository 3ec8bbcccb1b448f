"""Numbers, dates and gaps in a table, in every spelling: read as they are meant, or refused with
the line that reads them; never words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from motley.core.errors import ConfigError, DataError
from motley_data.raw_table import RawTable, raw_table
from motley_data.spellings import Spelling, date_number, shape_of
from motley_data.table_options import TableOptions

KEPT = '"", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None"'


def read(
    columns: Mapping[str, Sequence[Any]], options: Mapping[str, Any] | None = None
) -> RawTable:
    return raw_table(pa.table(dict(columns)), TableOptions(**dict(options or {})), "t.csv")


def numbers(cells: Sequence[Any], **options: Any) -> list[float | None]:
    """Return the numbers of a column, None for a gap."""
    column = read({"v": cells}, options).columns[0]
    assert column.words is None
    return [None if np.isnan(value) else value for value in column.values.tolist()]


@pytest.mark.parametrize(
    ("cells", "options", "right"),
    [
        (["0,5", "1,25"], {"decimal": ","}, [0.5, 1.25]),
        (["0,5", "1,25"], {"decimal": {"v": ","}}, [0.5, 1.25]),
        (["4,510", "950"], {"thousands": ","}, [4510.0, 950.0]),
        (["1,234,567.5"], {"thousands": ","}, [1234567.5]),
        (["US$3,357", "-US$12"], {"thousands": ",", "units": ["US$"]}, [3357.0, -12.0]),
        (["1.234.567", "1.234"], {"decimal": ",", "thousands": "."}, [1234567.0, 1234.0]),
        (["1.234,5"], {"decimal": ",", "thousands": "."}, [1234.5]),
        (["1 200", "1\u202f200", "1\u00a0200"], {"thousands": " "}, [1200.0] * 3),
        (["1\u2009200", "1\u2007200"], {"thousands": " "}, [1200.0] * 2),
        (["1'500", "1’500"], {"thousands": "'"}, [1500.0] * 2),
        (["12%", "7 %"], {"units": ("%",)}, [12.0, 7.0]),
        (["$3.50", "-$1", "$-2"], {"units": ("$",)}, [3.5, -1.0, -2.0]),
        (["$3.50", "−$1", "–$2"], {"units": ("$",)}, [3.5, -1.0, -2.0]),
        (["−$3,357", "$1,200.5"], {"units": ("$",), "thousands": ","}, [-3357.0, 1200.5]),
        (["3 kg", "4"], {"units": ("kg", "")}, [3.0, 4.0]),
        (["3 kg", "0"], {"units": ("kg",)}, [3.0, 0.0]),
        (["−3", "–2", "5"], {}, [-3.0, -2.0, 5.0]),
        (["1/2/1970", "13/1/1970"], {"dates": "day first"}, [31.0, 12.0]),
        (["1/2/1970"], {"dates": "month first"}, [1.0]),
        (["02.01.1970 18:00"], {"dates": "day first"}, [1.75]),
        (["1970/01/03", "19700104"], {"dates": "year first"}, [2.0, 3.0]),
        (["18.30.00", "06:00:00"], {"dates": "day first"}, [18.5, 6.0]),
        (["02.01.70", "5.1.70 12:00"], {"dates": "day first"}, [1.0, 4.5]),
        (["02.01.70", "25.01.70"], {"dates": "day first"}, [1.0, 24.0]),
        (["01.02.70"], {"dates": "month first"}, [1.0]),
        (['="3"', "4"], {}, [3.0, 4.0]),
        ([' "1.5"', '2.5""', '"3"'], {}, [1.5, 2.5, 3.0]),
        (["1\u200b2", "3\ufeff"], {"trim": True}, [12.0, 3.0]),
        (["3 stone", "4 stone"], {"units": ("stone",)}, [3.0, 4.0]),
        (["3 MG", "4 MG"], {"units": ("MG",), "fold": True}, [3.0, 4.0]),
        (["1,23,456", "12,34,567.5", "999"], {"thousands": ","}, [123456.0, 1234567.5, 999.0]),
        (["-1,00,000"], {"thousands": ","}, [-100000.0]),
        # of 10:00 in UTC+2 8:00 in UTC; 8/24 = 1/3
        (
            ["1970-01-01T10:00:00+02:00", "1970-01-02 08:00Z"],
            {"dates": "year first"},
            [1 / 3, 4 / 3],
        ),
        (["01.01.1970 08:00-05:30"], {"dates": "day first"}, [13.5 / 24]),
        (["1970-01-01 00:00:00+00"], {"dates": "year first"}, [0.0]),
        (["1970-01-01 00:00:00.250"], {"dates": "year first"}, [0.25 / 86400]),
        (["00:00:01,5"], {"dates": "day first"}, [1.5 / 3600]),
        (["1:30", "90:15"], {"dates": "day first"}, [1.5, 90.25]),
        (["01:30:00", "26:00:36"], {"dates": "year first"}, [1.5, 26.01]),
        (["2h 15m", "1 hour 30 min", "1 d 3 h"], {"dates": "day first"}, [2.25, 1.5, 27.0]),
        (["PT1H30M", "P1DT6H", "PT36S"], {"dates": "day first"}, [1.5, 30.0, 0.01]),
        (["1 day 02:00:00", "2 days, 0:30:00"], {"dates": "day first"}, [26.0, 48.5]),
        (["14h30", "9:45 Uhr"], {"dates": "day first"}, [14.5, 9.75]),
        (["1 pm", "12 a.m."], {"dates": "day first"}, [13.0, 0.0]),
        (["1970-01-01T06", "1970-01-02T12"], {"dates": "day first"}, [0.25, 1.5]),
        (["1970-01-01T06Z", "1970-01-01 06+0200"], {"dates": "day first"}, [0.25, 1 / 6]),
        (["Thursday, 1 January 1970", "Fr, 02.01.1970"], {"dates": "day first"}, [0.0, 1.0]),
        (["19700102", "1970-01-03"], {"dates": "day first"}, [1.0, 2.0]),
        (["1970-01", "1970-02"], {"dates": "year first"}, [0.0, 31.0]),
        (["NA", "na", "2"], {"fold": True}, [None, None, 2.0]),
        (["true", "FALSE", ""], {}, [1.0, 0.0, None]),
        (["0", "True"], {}, [0.0, 1.0]),
        (["#N/A", "1"], {}, [None, 1.0]),
    ],
)
def test_numbers_are_read_as_they_are_meant(
    cells: list[str], options: dict[str, Any], right: list[float | None]
) -> None:
    assert numbers(cells, **options) == right


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        (["4,510", "1,200"], 'write thousands = "," for 4510, or decimal = "," for 4.510,'),
        (["4,510", "12,5"], 'got "4,510" among the numbers of column .v.; write decimal = ",", or'),
        (["4,510", "12.5"], 'write thousands = ","'),
        (["4,510", "1,234,567"], 'write thousands = ","'),
        (["0,5", "1,2"], 'write decimal = ","'),
        (["0,512", "0,250"], 'write decimal = ","'),
        (["2010-01", "2010-02"], 'holds dates or times .*write dates = "year first"'),
        (["2010-11", "2012-13"], 'got "2012-13" in column .v., which is no number and no date; le'),
        (["1995-96", "1996-97"], 'got "1995-96" in column .v., .* or words = '),
        (["12%", "9%"], r'write units = \["%"\]'),
        (["$3.50", "$4"], r'write units = \["\$"\]'),
        (["3 kg", "2 kg"], r'write units = \["kg"\]'),
        (["5mg", "10mg"], r'write units = \["mg"\]'),
        (
            ["80 %", "0.80", "70 %"],
            r'write units = \["%", ""\] if "0.80" is 0.80 %; if it is 80 %, write it so in',
        ),
        (["3 kg", "4"], r'units = \["kg", ""\] if "4" is 4 kg; if it is of another unit, write'),
        (
            ["0x1F", "0x20", "5"],
            r'hexadecimal numbers, .* are not read; leave it out with drop = \["v"',
        ),
        (["1,23,456", "12,34,567"], 'write thousands = ",", or words'),
        (["$1,234.50", "$2"], r'write units = \["\$"\] and thousands = ","'),
        (["1.234,50 €", "2,00 €"], r'write units = \["€"\] and decimal = "," and thousands = "\."'),
        (["$3,357", "$812"], r'write units = \["\$"\] and thousands = "," for 3357, or decimal'),
        (["$3,357", "$3.50"], r'write units = \["\$"\] and thousands = ",", or words'),
        (["1.5k", "2.5k"], r'write units = \["k"\]'),
        (["2x10^3", "10⁴"], "powers and fractions are not read; leave it out with drop"),
        (["1½", "½", "2"], "powers and fractions are not read; leave it out with drop"),
        (["1.5 e3", "2.5 e3"], "powers and fractions are not read"),
        (["1.5D+03", "2.5D+03"], "powers and fractions are not read"),
        (["5'3\"", "5'11\""], r'words = \["v"\] to keep'),
        (["٣٫٥", "٤٫٢"], r'words = \["v"\] to keep'),
        (["1_000", "2_000"], r'words = \["v"\] to keep'),
        (["[1, 2]", "[3, 4]"], r'words = \["v"\] to keep'),
        (["1;2", "3;4"], r'words = \["v"\] to keep'),
        (["1,23,456", "99,999"], 'write thousands = ",", or words'),
        (["3 kg", "500 g"], r"write them in one unit \(here: kg, g\)"),
        (["110 lb", "95 lb"], r'write units = \["lb"\]'),
        (["110lb", "95lb"], r'write units = \["lb"\]'),
        (["20 stone", "1.5 stone"], r'write units = \["stone"\]'),
        (["₹0.50", "₹4"], r'write units = \["₹"\]'),
        (["1\u200b2", "3"], "among the numbers of column .v.; write trim = true, or words"),
        (["1\u200b,5", "3"], "write trim = true"),
        (["1 200", "2 300"], 'write thousands = " "'),
        (["1.234.567"], r'write thousands = "\."'),
        (["1.234,5"], r'write decimal = "," and thousands = "\."'),
        (["1'500"], 'write thousands = "\'"'),
        (
            ["<5", "7", "9"],
            rf'got "<5" .*write gaps = \[{KEPT.replace("?", ".")}, "<5"\] if that is',
        ),
        (["< 0,5", "0,7", "0,9"], r'write decimal = "," and gaps = \[.*, "< 0,5"\] if that'),
        (["10-19", "20-29"], r"got \"10-19\" .*words = \[\"v\"\] to keep them as words"),
        (["+43 1 234", "+43 2 567"], "to keep them as words"),
        (["7", "8", "n/d"], r'write gaps = .*"n/d"\] if it stands for a gap, or words = \["v"\]'),
        (["unknown"] * 9 + ["1.5", "2.5", "3.5"], r'got "unknown" .*write gaps = .*"unknown"\]'),
    ],
)
def test_numbers_in_another_spelling_are_refused_with_the_line(cells: list[str], line: str) -> None:
    with pytest.raises(DataError, match=line):
        read({"v": cells})


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        (["1/12/2004", "2/12/2004"], 'dates = "day first" or dates = "month first", as they are'),
        (
            ["28/1/2004"],
            r'\(row 1 is \'28/1/2004\'\); leave .* drop = \["v"\], or write dates = "day',
        ),
        (["1/28/2004"], 'write dates = "month first"'),
        (["01.05.2004 18:00", "31.05.2004 06:30"], 'write dates = "day first"'),
        (["2004/01/28"], "holds dates or times"),
        (["2004-01-28", "2004-01-29"], 'or write dates = "year first", which'),
        (["2004-01-28T10:00:00Z"], 'or write dates = "year first", which'),
        (["19-Dec", "20-Dec"], r'leave it out with drop = \["v"\], or words'),
        (["Monday, 5 January 2024", "Tue 6 Feb 2024"], 'write dates = "day first"'),
        (["2024-01-05T10", "2024-01-05T11"], 'write dates = "year first"'),
        (["1 pm", "2 pm"], r"which makes hours of them \(13\)"),
        (["19. Dezember 2004", "1. Mai 2005"], 'write dates = "day first"'),
        (["18.00.00", "06.30.00"], "hours of times"),
        (["18.00.00", "18.45.00"], r'write dates = "year first", which makes hours of them \(18\)'),
        (["1:30", "2:45"], r"holds times or durations \(row 1 is '1:30'\).*hours of them \(1.5\)"),
        (["2h 15m", "1h 5m"], r'write dates = "year first", which makes hours of them \(2.25\)'),
        (["PT1H30M", "PT2H"], "holds times or durations"),
        (["25:30:00", "30:00:00"], r"which makes hours of them \(25.5\)"),
        (["10:00+02:00", "11:00Z"], r'drop = \["v"\], or words = \["v"\] to keep them'),
        (["2024-01-05 10:00 CET"], r'drop = \["v"\], or words = \["v"\] to keep them'),
        ([timedelta(hours=1)], 'write dates = "year first", which makes hours of them'),
        (["05.03.23", "25.01.20"], 'write dates = "day first" or dates = "year first", as'),
        (["18.00.00", "05.03.23"], 'dates = "day first" or dates = "month first" or dates = "y'),
        (["10:30", "11:30 pm"], "holds times or durations"),
        (["20040128", "20040315"], "holds dates written as numbers .row 1 is 20040128"),
        ([date(2004, 1, 28)], 'write dates = "year first"'),
    ],
)
def test_dates_are_refused_whatever_their_form(cells: list[Any], line: str) -> None:
    with pytest.raises(DataError, match=line):
        read({"v": cells})


def test_dates_of_a_typed_column_are_days_when_asked() -> None:
    assert numbers([date(1970, 1, 3), None], dates="year first") == [2.0, None]
    assert numbers([timedelta(minutes=90), None], dates="year first") == [1.5, None]
    two_ahead = datetime(1970, 1, 2, 2, tzinfo=timezone(timedelta(hours=2)))
    assert numbers([two_ahead], dates="year first") == [1.0]


def test_what_are_words_stays_words() -> None:
    for cells in (
        ["red", "blue", "red"],
        ["A12", "B7", "C9"],
        ["T1", "T4", "T2"],
        ["Type 2", "Type 1"],
        ["10A", "11B", "9C"],
        ["1F", "2A", "3B"],
        ["1st", "2nd", "3rd"],
        ["Sun 2", "Mon 1", "Sun 3"],
        ["Q1 2024", "Q2 2024"],
        ["AB", "0", "A", "B"],
        ["I21.4", "E11.9"],
        ["low", "3", "high"],
    ):
        assert read({"v": cells}).columns[0].words == tuple(sorted(set(cells)))
    assert read({"v": ["10-19", "20-29"]}, {"words": ("v",)}).columns[0].words == ("10-19", "20-29")


def test_both_decimal_marks_in_one_column_are_no_matter_of_options() -> None:
    for cells in (["0.5", "1.5", "0,5"], ["0.000", "2.222", "1.234,5"]):
        for options in ({}, {"decimal": ","}, {"decimal": ",", "thousands": "."}):
            line = rf"write all with one decimal mark \(here: {cells[0]} and {cells[2]}\)"
            with pytest.raises(DataError, match=line):
                read({"v": cells}, options)


def test_fold_keeps_gaps_and_makes_one_of_what_the_check_takes_for_one() -> None:
    column = read({"v": ["NA", "Groß", "GROSS", "no", "na"]}, {"fold": True}).columns[0]
    assert column.words == ("gross", "no")
    assert np.isnan(column.values).tolist() == [True, False, False, False, True]
    # none is a word, and without fold another one than the gap
    assert read({"v": ["none", "mild"]}, {"fold": True}).columns[0].words == ("mild", "none")
    kept = {"fold": True, "rename": {"na": "Namibia", "groß": "big"}}
    assert read({"v": ["NA", "GROß"]}, kept).columns[0].words == ("Namibia", "big")


def test_a_point_and_three_digits_is_in_doubt_where_the_table_has_decimal_commas() -> None:
    measured = ["1.234", "2.500", "950"]
    assert numbers(measured) == [1.234, 2.5, 950.0]
    assert numbers(["1.234", "2.5", "0.75"]) == [1.234, 2.5, 0.75]
    other = {"co": ["0,5", "1,5", "2,5"], "v": measured}
    both = (
        r'row 1 of t.csv: got "1.234" in column .v. of a table with signs of decimal commas; it is '
        r'1234 with decimal = \{ "v" = "," \}, thousands = \{ "v" = "." \}, and 1.234 with '
        r'decimal = \{ "v" = "." \}; write the one that is meant'
    )
    with pytest.raises(DataError, match=both):
        read(other, {"decimal": {"co": ","}})
    with pytest.raises(DataError, match=r'1234 with decimal = ",", thousands = \{ "v" = "." \}'):
        read({"v": measured, "w": ["0,5", "1,5", "2,5"]})  # the line that w needs as well
    as_points = read(other, {"decimal": {"co": ",", "v": "."}})
    assert as_points.columns[1].values.tolist() == [1.234, 2.5, 950.0]
    as_groups = read(other, {"decimal": ",", "thousands": {"v": "."}})
    assert as_groups.columns[1].values.tolist() == [1234.0, 2500.0, 950.0]
    with pytest.raises(
        DataError, match=r'thousands = "." for 1234, or decimal = \{ "v" = "." \} for 1.234,'
    ):
        read(other, {"decimal": ","})
    semicolons = pa.table({"v": measured}).replace_schema_metadata({"motley.sep": ";"})
    with pytest.raises(DataError, match="signs of decimal commas"):
        raw_table(semicolons, TableOptions(), "t.csv")
    united = pa.table({"v": [f"{word} mg" for word in measured]})
    semicolons = united.replace_schema_metadata({"motley.sep": ";"})
    with pytest.raises(
        DataError, match=r'got "\d+.\d{3} mg" .*; it is \d+ with decimal = { "v" = ","'
    ):
        raw_table(semicolons, TableOptions(units=("mg",)), "t.csv")
    # another column says what a point is here
    clear = pa.table({"v": measured, "w": ["0.5", "1.5", "2"]})
    raw_table(clear.replace_schema_metadata({"motley.sep": ";"}), TableOptions(), "t.csv")


def test_one_column_has_one_unit_and_one_kind_of_dates() -> None:
    for cells in (["80 %", "0.80"], ["0.80", "80 %"]):
        with pytest.raises(
            DataError,
            match=r'got "0.80" in column .v. without a unit, beside "80 %"; write units = '
            r'\["%", ""\] if "0.80" is 0.80 %; if it is 80 %, write it so in the file, or leave',
        ):
            read({"v": cells}, {"units": ("%",)})
    # numbers beside a unit that is left out are spelled in their own way
    for unit, cells, line in (
        ("$", ["$1,234.50", "$2"], 'write thousands = ",", or words'),
        ("$", ["−$3,357", "$2.50"], r'got "−\$3,357" .*write thousands = ",", or words'),
        ("$", ["–$3,357", "$12"], 'write thousands = "," for -3357, or decimal = "," for -3.357'),
        ("€", ["1.234,50 €", "2,00 €"], r'write decimal = "," and thousands = "\.", or words'),
        ("°C", ["37,2°C", "36,9°C"], 'write decimal = ",", or words'),
        ("kg", ["1 234 kg", "2 kg"], 'write thousands = " ", or words'),
        ("mg", ["5,000 mg", "6 mg"], 'write thousands = "," for 5000, or decimal = "," for 5.000'),
    ):
        with pytest.raises(DataError, match=line):
            read({"v": cells}, {"units": (unit,)})
    assert numbers(["1.234,50 €", "2,00 €"], units=("€",), decimal=",", thousands=".") == [
        1234.5,
        2,
    ]
    # the line keeps the units of other columns
    with pytest.raises(DataError, match=r'write units = \["%", "kg"\]'):
        read({"v": ["3 kg", "2 kg"]}, {"units": ("%",)})
    with pytest.raises(
        DataError, match=r'got "500 g" .*numbers are in .kg. and in .g.; bring them'
    ):
        read({"v": ["3 kg", "500 g"]}, {"units": ("kg", "g")})
    for cells, held in (
        (["1/2/2004", "10:30"], "a date"),
        (["05.03.23", "18.30.00"], "a date"),
        (["1/2/2004", "3"], "a date"),
        (["2004-02-01T10:00Z", "2004-02-01T10:00"], "a date with a UTC offset"),
        (["59:30", "1:02:15"], "a time h:mm"),  # of a run 59 minutes and 62
        (["1:02:15", "5:30"], "a time h:mm:ss"),
        (["2h 15m", "1:30"], "a duration"),
        (["01.02.2023", "02/03/2023"], "a date"),
        (["1/2/23", "2023-02-01", "1-2-23"], "a date"),
    ):
        line = (
            rf'got "{cells[-1]}" in column .v., which holds {held}, "{cells[0]}"; write all '
            r'of them in one form, leave the column out with drop = \["v"\], or write gaps'
        )
        with pytest.raises(DataError, match=line):
            read({"v": cells}, {"dates": "day first"})
    with pytest.raises(DataError, match=r"row 1 is '31/1/2004'"):
        read({"v": ["31/1/2004"]}, {"dates": "month first"})


def test_gaps_are_compared_as_numbers_in_every_type() -> None:
    options = {"gaps": ("", "-200", "-9")}
    for cells in (
        ["-200", "5", "-9", ""],
        ["-200.0", "5", "-9.00", ""],
        ["-2e2", "5", "−9", ""],
        [-200, 5, -9, None],
        [-200.0, 5.0, -9.0, None],
    ):
        assert numbers(cells, **options) == [None, 5.0, None, None]
    assert numbers(["-200,0", "5,5"], decimal=",", **options) == [None, 5.5]
    assert numbers([True, False], gaps=("false",)) == [1.0, None]
    assert numbers(["true", "false", "true"], gaps=("false",)) == [1.0, None, 1.0]
    words = read({"v": ["red", "-9", "-9.0", "blue"]}, options).columns[0]
    assert words.words == ("blue", "red")
    assert np.isnan(words.values).tolist() == [False, True, True, False]
    with pytest.raises(DataError, match='got "NA" among the numbers'):
        numbers(["NA", "5", "6"], **options)  # gaps says which texts are gaps


def test_numbers_on_purpose() -> None:
    assert numbers(["20040128", "20040315"], numbers=("v",)) == [20040128.0, 20040315.0]
    with pytest.raises(DataError, match=r'got "red" among the numbers of .*; write gaps = '):
        numbers(["red", "blue", "1"], numbers=("v",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decimal": ";"}, "decimal: got ';'; expected one of: '.', ','"),
        ({"thousands": {"v": "-"}}, "thousands: got '-'; expected one of"),
        ({"thousands": "."}, "thousands: got '.', which is the decimal mark, too"),
        ({"dates": "dmy"}, "dates: got 'dmy'; expected one of: day first, month first, year first"),
        ({"sep": ";;"}, "sep: got ';;'; expected one character"),
        ({"encoding": "utf-9"}, "encoding: got 'utf-9', which nobody knows"),
        ({"header_rows": -1}, "header_rows: got -1; expected 0, 1 or more"),
        ({"units": "%"}, r"units: got '%'; expected a list, e.g. units = \['%'\]"),
        ({"words": ("v",), "numbers": ("v",)}, "numbers: got 'v', which is in words, too"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TableOptions(**options)


def test_no_spelling_is_read_by_halves() -> None:
    spelling = Spelling(decimal=",", thousands=".")
    for text in ("1.23", "1.2345", "12,3.4", "1..234", "1.234.5", "1,2,3"):
        assert np.isnan(spelling.number(text)), text
    for text in ("1,00,00", "100,00,000", "1,00,0000", "01,00,000", "1,000,00,000"):
        assert np.isnan(Spelling(thousands=",").number(text)), text
    assert np.isnan(Spelling(decimal=",", thousands=".").number("1.00.000"))
    assert np.isnan(Spelling(units=("%",)).number("%"))
    assert date_number("29.2.2023", "day first") is None
    assert date_number("24:61", "day first") is None
    assert date_number("1:60", "day first") is None
    assert [shape_of(text)[0] for text in ("(3,357)", "($3,357)", "(blue)")] == ["digits"] * 2 + [
        ""
    ]
    assert [shape_of(text)[0] for text in ("1,00,00", "1.00.000", "120:80")] == ["digits"] * 3


def test_numbers_far_from_all_others_may_be_gaps_and_are_told() -> None:
    cells = [20, 21, 22, 25, -999, -999]
    for values in (cells, [*map(str, cells)], [*map(float, cells)]):
        remark = read({"v": values}).reading.columns[0].remark
        assert remark.startswith("-999 (in 2 rows) is far from all other numbers")
        assert remark.endswith(f'write gaps = [{KEPT}, "-999"]')
        assert not read({"v": values}, {"gaps": ["", "-999"]}).reading.columns[0].remark
    # the line of one column has the gaps of all
    both = read({"v": cells, "w": [1, 2, 3, 4, 9999, 9999]}).reading.columns
    assert all(column.remark.endswith('"-999", "9999"]') for column in both)
    # two of them, of which the second is seen without the first
    assert "-999 and 999 (in 4 rows)" in read({"v": [*cells, 999, 999]}).reading.columns[0].remark
    for quiet in ([20, 21, 22, 25, -999], [0, 1, -1, -1], [1, 2, 3, 500, 500], [-20, 3, 5, -9, -9]):
        assert not read({"v": quiet}).reading.columns[0].remark


def test_zeros_before_a_number_are_told() -> None:
    remark = read({"plz": ["01067", "80331"]}).reading.columns[0].remark
    assert remark.startswith("01067 is read as a number; ")
    assert remark.endswith('words = ["plz"]')
    assert not read({"month": ["01", "12"]}).reading.columns[0].remark


def test_numbers_that_become_one_float_are_refused() -> None:
    for cells in ([2**53, 2**53 + 1], [str(2**53), str(2**53 + 1)]):
        with pytest.raises(DataError, match=r'above 2\^53, .* write words = \["v"\]'):
            read({"v": cells})
    assert numbers([2**53, 2**54]) == [2.0**53, 2.0**54]
