"""How each column was read, on the page of an inspection, at the terminal, in JSON and in the
report of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import motley
from motley.cli import app, call
from motley_advice.inspection.inspecting import inspect

HEADS = ["column", "read as", "values seen", "gaps", "becomes", "example"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = ["site;crp;day;sex;empty;label"]
    for k in range(24):
        crp = "" if k == 5 else f"{k % 4},5"
        label = "" if k == 7 else ["nein", "ja"][k % 2]
        lines.append(f"{1 + k % 2};{crp};{1 + k}.12.2023;{'mw'[k // 2 % 2]};;{label}")
    Path("export.csv").write_bytes(("\n".join(lines) + "\n").encode("latin-1"))
    return tmp_path


FLAGS = ["--client", "site", "--label", "label", "--drop-rows"]


def test_what_was_not_understood_comes_first(here: Path) -> None:
    options = {"drop_rows": True}
    (one,) = inspect("export.csv", client="site", label="label", table=options).federations
    assert one.columns is not None
    crp, day, empty, sex = one.columns.rows
    assert crp[:2] == ("crp", "no input")
    assert crp[4].startswith('client 1, row 1 of export.csv: got "0,5" among the numbers')
    assert (day[:2], empty[4]) == (("day", "no input"), "there is no value")
    assert sex[:4] == ("sex", "words", "m, w", "0")
    assert one.columns.remarks == (
        "columns are divided by ';'",
        "1 of 24 rows of export.csv are left out: their label is missing",
    )
    # every other row stays, whoever's it is
    assert [tuple(pair) for pair in one.clients] == [("site=1", 12), ("site=2", 11)]


def test_options_read_the_rest(here: Path) -> None:
    options = {"drop_rows": True, "decimal": ",", "dates": "day first"}
    (one,) = inspect("export.csv", client="site", label="label", table=options).federations
    assert one.columns is not None
    rows = {row[0]: row for row in one.columns.rows}
    # one of six 1.5 is a gap, and the row of one of six 3.5 is left out
    mean = (6 * 0.5 + 5 * 1.5 + 6 * 2.5 + 5 * 3.5) / 22
    assert rows["crp"][:4] == ("crp", "numbers", "0.5 to 3.5", "1")
    assert rows["crp"][4].endswith(f"; a gap is {mean:.4g}")
    assert rows["crp"][4].startswith(f"minus {mean:.4g}, divided by ")
    assert rows["crp"][5].startswith("0,5 -> -1.")
    assert rows["sex"][4:] == ("1 at one of sex=m, sex=w", "m -> sex=m")


@pytest.mark.usefixtures("drawn")
def test_the_terminal_the_page_and_json_show_the_table(here: Path) -> None:
    said = CliRunner().invoke(app, ["inspect", "export.csv", *FLAGS, "--decimal", ","])
    assert said.exit_code == 0, said.output
    title = "How each column was read"
    assert said.output.index("clients 2") < said.output.index(title) < said.output.index("finding")
    page = Path("runs/inspect-export.html").read_text()
    assert title in page
    assert all(head in page for head in HEADS)
    found = json.loads(CliRunner().invoke(app, ["inspect", "export.csv", *FLAGS, "--json"]).stdout)
    assert [row[0] for row in found["federations"][0]["columns"]["rows"]] == [
        "crp",
        "day",
        "empty",
        "sex",
    ]


def test_flags_are_those_of_the_task(here: Path) -> None:
    text = Path("export.csv").read_text(encoding="latin-1")
    table = text.replace(";", "|").replace(",5", ".5").replace("sex", "Größe")
    flags = ["--sep", "|", "--encoding", "latin-1", "--comment", "#", "--header-rows", "1"]
    more = ["--gap", "", "--gap", "0.5", "--drop", "day", "--drop", "empty", "--words", "crp"]
    Path("bars.csv").write_bytes(("# by hand\n" + table).encode("latin-1"))
    argv = ["inspect", "bars.csv", *FLAGS, *flags, *more, "--trim", "--fold", "--json"]
    said = CliRunner().invoke(app, argv)
    assert said.exit_code == 0, said.output
    rows = json.loads(said.stdout)["federations"][0]["columns"]["rows"]
    assert [row[:4] for row in rows] == [
        ["day", "no input", "", ""],
        ["empty", "no input", "", ""],
        ["crp", "words", "1.5, 2.5, 3.5", "7"],
        ["Größe", "words", "m, w", "0"],
    ]


def test_an_option_of_tables_is_none_of_experiments(here: Path) -> None:
    assert call(["inspect", "x.toml", "--decimal", ","]) == 2
    with pytest.raises(motley.ConfigError, match=r"decimal: got ',', and x.toml is no table"):
        inspect("x.toml", table={"decimal": ","})
    with pytest.raises(motley.ConfigError, match=r"there is no option 'decimals'.*'decimal'"):
        inspect("export.csv", client="site", label="label", table={"decimals": ","})


def test_a_run_keeps_the_table_for_its_report(here: Path) -> None:
    task = {
        "name": "tabular",
        "data": "export.csv",
        "client": "site",
        "decimal": ",",
        "drop": ["day", "empty"],
        "drop_rows": True,
    }
    keys = {"task": task, "partition": "by_writer", "cohort": 2, "stop": {"rounds": 1}}
    done = motley.run(keys, out="open")
    saved = json.loads(Path("open/preparation.json").read_text())
    assert [row[0] for row in saved["read"]["rows"]] == ["day", "empty", "crp", "sex"]
    assert saved["written"] == {"decimal": ","}
    motley.report("open", "report.md")
    report = Path("report.md").read_text()
    assert report.count("How each column was read") == 1
    assert "| sex | words | m, w |" in report
    assert len(done.predict("export.csv")) == 24
