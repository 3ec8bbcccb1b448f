"""What the folder of a comparison remembers: the order of its runs and its reference."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from motley.cli import app
from motley.core.errors import DataError
from motley.results.comparison_file import (
    ComparisonRecord,
    in_grid_order,
    read_comparison,
    record_comparison,
    reference_runs,
)


def folders(base: Path, *names: str) -> list[Path]:
    return [base / name for name in names]


def test_runs_stand_in_the_order_of_the_grid(tmp_path: Path) -> None:
    by_path = folders(tmp_path, "a/1", "b/1", "c/1")
    assert in_grid_order(by_path) == by_path
    record_comparison(tmp_path / "new", folders(tmp_path / "new", "c/1", "a/1"), [])
    record_comparison(tmp_path, folders(tmp_path, "c/1", "a/1"), [])
    assert in_grid_order(by_path) == folders(tmp_path, "c/1", "a/1", "b/1")


def test_a_later_comparison_stands_first_and_keeps_the_reference(tmp_path: Path) -> None:
    record_comparison(tmp_path, folders(tmp_path, "b/1", "a/1"), folders(tmp_path, "a/1"))
    record_comparison(tmp_path, folders(tmp_path, "c/1", "a/1"), [])
    assert read_comparison(tmp_path) == ComparisonRecord(("c/1", "a/1", "b/1"), ("a/1",))
    record_comparison(tmp_path, folders(tmp_path, "c/1"), folders(tmp_path, "c/1"))
    assert read_comparison(tmp_path).against == ("c/1",)


def test_what_is_written_already_is_not_written_again(tmp_path: Path) -> None:
    record_comparison(tmp_path, folders(tmp_path, "b/1", "a/1"), folders(tmp_path, "a/1"))
    before = (tmp_path / "comparison.json").stat().st_ino
    record_comparison(tmp_path, folders(tmp_path, "b/1", "a/1"), [])
    assert (tmp_path / "comparison.json").stat().st_ino == before


def test_comparisons_beside_each_other_keep_their_own(tmp_path: Path) -> None:
    """Runs that no comparison knows, and those of another one, stay at their places."""
    record_comparison(tmp_path / "x", folders(tmp_path / "x", "b/1", "a/1"), [])
    record_comparison(
        tmp_path / "y", folders(tmp_path / "y", "d/1"), folders(tmp_path / "y", "d/1")
    )
    by_path = folders(tmp_path, "w/a/1", "x/a/1", "x/b/1", "y/d/1")
    assert in_grid_order(by_path) == folders(tmp_path, "w/a/1", "x/b/1", "x/a/1", "y/d/1")
    assert reference_runs(by_path) == folders(tmp_path, "y/d/1")


def test_a_folder_may_be_moved_and_named_from_within(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_comparison(tmp_path / "x", folders(tmp_path / "x", "a/2", "a/1"), [])
    (tmp_path / "x" / "a").mkdir()
    (tmp_path / "x").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved" / "a")
    assert in_grid_order([Path("1"), Path("2")]) == [Path("2"), Path("1")]


NO_LISTS = '{"runs": ["a/1"], "against": [1]}'


@pytest.mark.parametrize("text", [NO_LISTS, "{", "notes of mine"])
def test_a_broken_record_is_told_and_passed_over(tmp_path: Path, text: str) -> None:
    """It may be the user's own, and the runs below it are finished; a comparison does not write
    over it."""
    (tmp_path / "comparison.json").write_text(text)
    runs = folders(tmp_path, "b/1", "a/1")
    words = r"comparison\.json (is not what motley compare writes|cannot .*); it is passed over"
    with pytest.warns(UserWarning, match=words):
        assert in_grid_order(runs) == runs
    with pytest.warns(UserWarning, match=words):
        assert reference_runs(runs) == []
    with pytest.raises(DataError, match=r"comparison\.json (is not what|cannot be read)"):
        record_comparison(tmp_path, runs, [])
    assert (tmp_path / "comparison.json").read_text() == text


@pytest.mark.parametrize("text", ["{}", "[]", '{"runs": 3}', "null", '{"fedavg": 0.91}'])
def test_the_users_own_file_of_that_name_stays_and_orders_nothing(
    tmp_path: Path, text: str
) -> None:
    """Two folders above a run that is of no comparison anything may lie."""
    file = tmp_path / "comparison.json"
    file.write_text(text)
    runs = folders(tmp_path, "b/1", "a/1")
    assert in_grid_order(runs) == runs
    assert reference_runs(runs) == []
    with pytest.raises(DataError, match="remove it"):
        record_comparison(tmp_path, runs, [])
    assert file.read_text() == text


def test_a_run_ends_well_beside_the_users_own_file(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text('{"fedavg": 0.91}')
    file = tmp_path / "one.toml"
    file.write_text(
        'task = { name = "synthetic", examples = 10 }\npopulation = 4\ncohort = 2\n'
        "stop = { rounds = 1 }\n"
    )
    done = CliRunner().invoke(
        app, ["run", str(file), "--no-report", "--out", str(tmp_path / "results" / "fedavg")]
    )
    assert done.exit_code == 0, done.output
