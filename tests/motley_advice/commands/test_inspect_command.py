"""``motley inspect``: the name of the page, keys as flags, and the experiment with a table."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import motley
from motley.cli import call
from motley.core.keys import Key
from motley.tasks import TASKS
from motley_advice.commands.inspect import as_flags, page_name


def test_a_page_is_called_like_what_it_shows() -> None:
    assert page_name([Path("small.toml"), Path("runs/a b")]) == "inspect-small-a-b.html"


def test_pages_of_many_federations_do_not_overwrite_each_other() -> None:
    folders = [Path(f"runs/hospital-{number:02}") for number in range(20)]
    names = {page_name([*folders, Path(f"ward-{number}.csv")]) for number in range(3)}
    assert len(names) == 3
    assert all(len(name.encode()) < 255 for name in names)


@pytest.mark.parametrize(
    ("key", "flag"),
    [
        ("trim = true", "--trim"),
        ("drop_rows = true", "--drop-rows"),
        ('decimal = ","', "--decimal ','"),
        ('dates = "day first"', "--dates 'day first'"),
        ('drop = ["T [C]"]', "--drop 'T [C]'"),
        ('units = ["$"]', "--unit '$'"),
        ('gaps = ["", "< 0,5"]', """--set 'gaps = ["", "< 0,5"]'"""),
        ('rename = { "y" = "yes" }', """--set 'rename = { "y" = "yes" }'"""),
        ('decimal = { "a = {b}" = "," }', """--set 'decimal = { "a = {b}" = "," }'"""),
    ],
)
def test_a_key_to_write_is_told_as_a_flag(key: str, flag: str) -> None:
    assert as_flags(f"got 3; write {key}, which joins") == f"got 3; write {flag}, which joins"


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = ["id;site;crp;label"]
    lines += [f"p{k};{'AB'[k % 2]};{k % 7},{k % 3};{['yes', 'no', 'Y'][k % 3]}" for k in range(40)]
    path = Path("export.csv")
    path.write_text("\n".join(lines))
    return path


def inspect(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    code = call(["inspect", "export.csv", "--client", "site", *more])
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.mark.usefixtures("drawn", "export")
def test_the_lines_that_inspect_gives_lead_to_an_experiment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each line is followed as it stands; the experiment reads what was inspected."""
    code, said = inspect(capsys, "--fold")
    assert code == 2
    rename = """--set 'rename = { "y" = "yes" }'"""
    assert f"write {rename}, which joins them" in said
    follow = ["--fold", "--set", 'rename = { "y" = "yes" }']
    code, said = inspect(capsys, *follow)
    assert code == 2
    assert "no column can be an input; id: column 'id' holds another word in every row" in said
    assert "write --decimal ',', or --words crp to keep" in said
    code, said = inspect(capsys, *follow, "--decimal", ",")
    assert code == 0
    assert "As export.toml, then: motley compare export.toml --over" in said
    text = said.split("--seeds 0,1,2\n", 1)[1].split("page: ")[0]
    page = Path("runs/inspect-export.html").read_text()
    assert "[task.rename]" in page
    keys = tomllib.loads(text)
    assert keys["task"]["drop"] == ["id"]
    experiment = motley.Experiment(**keys)
    assert experiment.cohort == 2
    read = TASKS.build(keys["task"]).load(Key(0), 2)
    assert np.asarray(read.y).tolist() == [1, 0, 1] * 13 + [1]


@pytest.mark.usefixtures("export")
def test_a_key_that_no_table_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = inspect(capsys, "--set", "task.renam=3")
    assert code == 2
    assert "there is no option 'renam' (did you mean 'rename'?)" in said
