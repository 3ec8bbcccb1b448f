"""``motley inspect`` of a table, and of a folder of tables, without an experiment; names of clients
on its page."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import motley
from motley.cli import app, call
from motley.core.errors import ConfigError
from tests.motley_data.test_client_folders import TABLE, write


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    whose = ["hosp_B"] * 8 + ["hosp_A"] * 4
    words = ["blue", "red", "red"] * 4
    rows = [f"{whose[k]},{k * 7 % 5},{'' if k == 3 else k},{words[k]},{k % 2}" for k in range(12)]
    Path("all.csv").write_text("hospital,a,b,c,y\n" + "\n".join(rows) + "\n")
    Path("each").mkdir()
    for name, count in (("hosp_A", 4), ("hosp_B", 8)):
        rows = [f"{k * 7 % 5},{k},{k % 2}" for k in range(count)]
        Path("each", f"{name}.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")
    return tmp_path


@pytest.mark.usefixtures("drawn")
def test_a_table_is_inspected_by_its_columns(here: Path) -> None:
    said = CliRunner().invoke(app, ["inspect", "all.csv", "--client", "hospital", "--label", "y"])
    assert said.exit_code == 0, said.output
    assert "all: clients 2, training samples 12, classes 2" in said.output  # no row is set aside
    assert [line.split()[:2] for line in said.output.splitlines() if "hosp_" in line] == [
        ["hosp_A", "4"],
        ["hosp_B", "8"],
    ]
    page = Path("runs/inspect-all.html").read_text()
    assert page.index("Client by client") < page.index(">hosp_A</t")


def test_columns_that_can_be_no_inputs_are_left_out_and_named(here: Path) -> None:
    lines = Path("all.csv").read_text().splitlines()
    rows = [
        f"p{k},2025-01-{1 + k % 9:02d},{line}"
        for k, line in enumerate((lines * 2)[1:25])
        if line[0] == "h"
    ]
    Path("more.csv").write_text(
        "\n".join(["id,day," + lines[0], *(r for r in rows if "hospital" not in r)]) + "\n"
    )
    (found,) = motley.inspect("more.csv", label="y", client="hospital").federations
    assert dict(found.facts)["columns left out"] == "id, day"


def test_an_index_without_a_name_is_left_out_and_seen(here: Path) -> None:
    rows = [f"{k},{'uv'[k % 2]},{k * 7 % 5},{k % 3 % 2}" for k in range(12)]
    Path("index.csv").write_text("\n".join([",who,a,y", *rows]) + "\n")
    (federation,) = motley.inspect("index.csv", label="y", client="who").federations
    assert dict(federation.facts)["columns left out"] == "''"


def test_a_folder_of_tables_is_inspected_without_an_experiment(here: Path) -> None:
    (found,) = motley.inspect("each", label="y").federations
    assert [tuple(one) for one in found.clients] == [("hosp_A", 4), ("hosp_B", 8)]
    said = CliRunner().invoke(app, ["inspect", "each", "--label", "y", "--json"])
    assert json.loads(said.stdout)["federations"][0]["clients"] == ["hosp_A", "hosp_B"]


def test_numbers_to_predict_are_no_classes(here: Path) -> None:
    Path("n.csv").write_text("who,a,y\nu,1,0.5\nu,2,1.25\nv,3,2.0\nv,4,0.0\n")
    (one,) = motley.inspect("n.csv", label="y", client="who").federations
    assert "classes" not in dict(one.facts)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["all.csv"],
            "client: all.csv is a table, and nothing says which column names the client of a row; "
            "write motley inspect all.csv --client COLUMN --label COLUMN; its columns: hospital, "
            "a, b, c, y",
        ),
        (
            ["all.csv", "--client", "hosp", "--label", "y"],
            "client: all.csv has no column 'hosp' (did you mean 'hospital'?); write "
            "motley inspect all.csv --client COLUMN --label y; its columns: hospital, a, b, c, y",
        ),
        (
            ["each"],
            "label: each has no column 'label'; write motley inspect each --label COLUMN; its "
            "columns: a, b, y",
        ),
        (
            ["each", "--client", "a"],
            "client: got 'a', and in each each file is a client; leave it out, or give a single "
            "table",
        ),
        (
            ["x.toml", "--label", "y"],
            "label: got 'y', and x.toml is no table; an experiment names its columns itself: task "
            "= { name = "
            '"tabular", data = "all.csv", label = "y", client = "hospital" }',
        ),
        (["empty"], "there are no runs in empty: no folder below it has a run.json"),
    ],
)
def test_what_is_missing_is_said_with_the_line_to_type(
    argv: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    assert call(["inspect", *argv]) == 2
    assert capsys.readouterr().err == f"motley: {message}\n"


def test_python_says_the_same(here: Path) -> None:
    with pytest.raises(ConfigError, match="nothing says which column names the client of a row"):
        motley.inspect("all.csv")


def test_an_outlying_client_of_a_table_is_a_pitfall(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(5, 1, size=(400, 2))
    x[np.arange(400) % 8 == 3, 0] *= 100
    rows = [f"hosp_{'ABCDEFGH'[k % 8]},{x[k, 0]},{x[k, 1]},{k // 8 % 2}" for k in range(400)]
    path = tmp_path / "all.csv"
    path.write_text("hospital,a,b,y\n" + "\n".join(rows) + "\n")
    (said,) = motley.inspect(path, client="hospital", label="y").all_pitfalls
    assert said == (
        "hosp_D differs from all others (units), by a fault or for a reason; look there first, and "
        'if it is a fault, repair the unit, or set task.scale = "client" (see the list of outlying '
        "clients)"
    )


def test_a_table_keeps_every_row_of_a_client_and_its_own_name(tmp_path: Path) -> None:
    rows = [f"{4 + k % 2},{k * 37 % 101 / 8},{k % 3 // 2}" for k in range(2402)]
    path = tmp_path / "all.csv"
    path.write_text("hospital,a,y\n" + "\n".join(rows) + "\n")
    (one,) = motley.inspect(path, client="hospital", label="y").federations
    assert [tuple(each) for each in one.clients] == [("hospital=4", 1201), ("hospital=5", 1201)]


def test_no_more_samples_repeat_than_there_are(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = []
    for k in range(6):
        mine = [
            f"hosp_{k},{v:.5f},{w:.5f},{j % 2}"
            for j, (v, w) in enumerate(draw.normal(size=(40, 2)))
        ]
        rows += mine * 3 if k == 2 else mine
    path = tmp_path / "all.csv"
    path.write_text("hospital,a,b,y\n" + "\n".join(rows) + "\n")
    (one,) = motley.inspect(path, client="hospital", label="y").federations
    (odd,) = one.inspection.outlying
    assert odd.said == "80 of 120 samples repeat others there"


@pytest.mark.usefixtures("here")
def test_of_a_word_in_which_clients_differ_the_shares_are_told() -> None:
    """Of A's rows of class 0, 8 of 40 are m, of class 1 all 20; both classes are as frequent over
    all clients: (0.2 + 1) / 2 of A's rows would be m. Of B's all are."""
    sexes = {("A", k): "m" if k < 8 or k >= 40 else "f" for k in range(60)}
    sexes |= {("B", k): "m" for k in range(60)}
    classes = {one: int(one[1] >= {"A": 40, "B": 20}[one[0]]) for one in sexes}
    rows = [
        f"{one[0]},{sex},{9 * classes[one] + one[1] % 5},{classes[one]}"
        for one, sex in sexes.items()
    ]
    Path("sex.csv").write_text("\n".join(["site,sex,v,y", *rows]) + "\n")
    (found,) = motley.inspect("sex.csv", label="y", client="site").federations
    said = {one.column: one.said for one in found.inspection.columns}
    assert said == {
        "sex=m": "sex=m: 1 in 60% of the samples at A, in 100% at B, at equal classes",
        "sex=f": "sex=f: 1 in 0% of the samples at B, in 40% at A, at equal classes",
    }


@pytest.mark.usefixtures("here")
def test_rows_with_a_word_are_equal_by_chance() -> None:
    """70 ages and two words; each input of a word tells the other, so that they are one column."""
    draw = np.random.default_rng(0)
    rows = [
        f"{'AB'[k % 2]},{draw.integers(70)},{'mf'[draw.integers(2)]},{k % 3}" for k in range(300)
    ]
    Path("few.csv").write_text("\n".join(["site,age,sex,y", *rows]) + "\n")
    (found,) = motley.inspect("few.csv", label="y", client="site").federations
    assert found.inspection["duplicates"].value > 0.5
    assert found.inspection["copied"].value == 0
    assert found.pitfalls == []


def test_a_folder_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^the folder \S+ holds no table \(.csv, .parquet or .npz\); name one that does",
    ):
        motley.inspect(tmp_path, label="y")


def test_an_inspection_reads_the_files_that_a_task_reads(tmp_path: Path) -> None:
    write(tmp_path, {f"{half}/{k}.csv": TABLE for half in ("train", "test") for k in "ab"})
    (tmp_path / "notes.txt").write_text("")
    with pytest.warns(UserWarning, match=r"1 file not read: notes\.txt") as told:
        inspected = motley.inspect(tmp_path)
    assert len([one for one in told if "not read" in str(one.message)]) == 1
    assert [name for name, _ in inspected.federations[0].clients] == ["a", "b"]


T = np.arange(120)
SERIES = {"t": T, "v": np.sin(T / 9) + T / 60, "label": np.sin((T + 1.5) / 9) + T / 60}


@pytest.mark.parametrize(
    ("columns", "by", "dates"),
    [
        (SERIES, "t", ""),
        ({**SERIES, "t": T[::-1]}, "t", ""),
        ({k: v for k, v in SERIES.items() if k != "t"}, "order", ""),
        ({**SERIES, "t": [f"{1 + k % 28}.{1 + k // 28}.2023" for k in T]}, "t", "day first"),
        ({"v": T % 7, "v1": np.sin(T), "v2": np.sin(T - 4), "label": T % 2}, "order", ""),
    ],
    ids=["time", "newest first", "no time", "dates", "windows"],
)
def test_the_experiment_of_a_series_tests_on_its_last_rows(
    tmp_path: Path, columns: dict[str, Any], by: str, dates: str
) -> None:
    path = tmp_path / "series.csv"
    rows = zip(T % 4, *columns.values(), strict=True)
    lines = [",".join(["sensor", *columns]), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    (inspected,) = motley.inspect(path, client="sensor", label="label").federations
    assert inspected.columns is not None
    keys = tomllib.loads(inspected.toml)
    assert keys["task"]["test"] == {"last": 0.2, "by": by}
    assert keys["task"].get("dates", "") == dates
    assert "drop" not in keys["task"]
    shown = str(inspected.columns.rows[0]) if by == "t" else str(inspected.columns.remarks)
    assert "test rows are the last" in shown
    done = motley.run({**keys, "stop": {"rounds": 1}}, out=tmp_path / "run")  # no warning
    assert done.meta["task"]["notes"]["test"] == "the last 0.2 of each client's rows in time"


def test_a_time_that_is_an_input_on_purpose(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    rows = zip(T % 4, T, np.sin(T), strict=True)
    path.write_text("sensor,t,label\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    (inspected,) = motley.inspect(
        path, client="sensor", label="label", table={"numbers": ["t"]}
    ).federations
    assert inspected.columns is not None
    assert inspected.columns.rows[0][:2] == ("t", "numbers")
    assert "test" not in tomllib.loads(inspected.toml)["task"]


def test_a_folder_of_pictures_says_what_to_write(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(b"")
    with pytest.raises(
        ConfigError, match=r"holds samples and no runs; .*\[task\] name = \"image\""
    ):
        motley.inspect(tmp_path)


@pytest.mark.parametrize(
    ("prices", "name"),
    [
        (lambda row: 100 * (row % 150), "tabular_regression"),  # 150 of 600 rows
        (lambda row: 1000 + row, "tabular_regression"),
        (lambda row: 10 * (row % 5), "tabular"),
        (lambda row: row % 150, "tabular"),  # classes 0 to 149
    ],
)
def test_many_whole_numbers_are_no_classes(tmp_path: Path, prices: Any, name: str) -> None:
    """House prices were 3,842 classes."""
    rng = np.random.default_rng(0)
    pairs = zip(rng.permutation(600), rng.normal(size=600), strict=True)
    rows = [f"{k % 3},{room:.3f},{prices(row)}" for k, (row, room) in enumerate(pairs)]
    path = tmp_path / "houses.csv"
    path.write_text("\n".join(["town,rooms,price", *rows]) + "\n")
    (inspected,) = motley.inspect(path, client="town", label="price").federations
    task = tomllib.loads(inspected.toml)["task"]
    assert task["name"] == name
    assert inspected.columns is not None
    shown = "whole numbers, which are predicted as such" in str(inspected.columns.remarks)
    assert shown == (name == "tabular_regression")
    large = "divided by 1,000" in str(inspected.columns.remarks)
    assert large == (name == "tabular_regression")
    (tmp_path / "towns").mkdir()
    for town in range(3):
        mine = [row.partition(",")[2] for row in rows if row.startswith(f"{town},")]
        (tmp_path / "towns" / f"{town}.csv").write_text("\n".join(["rooms,price", *mine]))
    (folder,) = motley.inspect(tmp_path / "towns", label="price").federations
    assert (folder.classes is None) == (name == "tabular_regression")


def test_a_list_of_patches_is_no_table_of_samples(tmp_path: Path) -> None:
    (tmp_path / "patches").mkdir()
    (tmp_path / "metadata.csv").write_text("patient,tumor,center\n1,0,2\n")
    with pytest.raises(ConfigError, match=r'"by_writer", where the folder says whose they are'):
        motley.inspect(tmp_path)


def test_whether_labels_are_numbers_is_decided_over_all_files(tmp_path: Path) -> None:
    """The first client's labels alone would be classes, the second's are numbers with decimals."""
    for name, part in (("a", 0.0), ("b", 0.5)):
        rows = "".join(f"{(7 * k) % 11},{k % 3 + part}\n" for k in range(40))
        (tmp_path / f"{name}.csv").write_text("v,label\n" + rows)
    (inspected,) = motley.inspect(tmp_path, label="label").federations
    assert "classes" not in dict(inspected.facts)
