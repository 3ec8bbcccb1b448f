"""What was printed of finished runs is printed again without them, and never after a change."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from motley import cli
from motley.cli import call
from motley.commands import shown_again
from motley.core.files import with_digest
from motley.results.blocks import Page
from motley_report import report

EXPERIMENT = """
name = "small"
population = 6
cohort = 2
stop = { rounds = 2 }
task = "quadratic"
partition = "by_writer"
[grid]
"selector.name" = ["uniform", "oort"]
"""
TABLE = """
name = "rows"
population = 3
cohort = 2
stop = { rounds = 1 }
task = { name = "tabular", data = "rows.csv", label = "y" }
seed = 0
[grid]
seed = [0, 1]
"""
AS_BEFORE = "finished, and shown as before, for nothing has changed"

Compare = Callable[..., tuple[bool, str, str]]

CODE_OF = shown_again._code


@pytest.fixture(autouse=True, scope="module")
def code_hashed_once() -> Iterator[None]:
    """No test changes an installed package, and to hash all of them takes as long as a small run.
    Another process hashes them anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shown_again, "_code", cache(CODE_OF))
        yield


@pytest.fixture
def empty_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report without sections, for tests that look at no more than whether it is there."""
    monkeypatch.setattr(report, "report_page", _empty_page)


def _empty_page(*, groups: report.Groups, **_: object) -> Page:
    return Page(next(iter(groups.values()))[0].name, [], [], {})


class Finished(NamedTuple):
    """A folder in which the command was called once, and what it printed to standard output."""

    folder: Path
    printed: str


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The comparison of the experiment, shown once; tests change copies of it."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "q.toml").write_text(EXPERIMENT)
    printed = StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(report, "report_page", _empty_page)
        with redirect_stdout(printed), redirect_stderr(StringIO()):
            assert call(["compare", "q.toml"]) == 0
    return Finished(folder, printed.getvalue())


@pytest.fixture
def compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Compare:
    """The command: whether it was shown as before, and what it printed otherwise on both streams;
    without how runs went on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.toml").write_text(EXPERIMENT)

    def run(*argv: str, file: str = "q.toml") -> tuple[bool, str, str]:
        code = call(["compare", file, *argv])
        assert code == 0
        printed = capsys.readouterr()
        notes = [line for line in printed.err.splitlines() if line.startswith("motley: ")]
        others = [line for line in notes if AS_BEFORE not in line]
        return len(others) < len(notes), printed.out, "\n".join(others)

    return run


@pytest.fixture
def compare_again(
    compare: Compare, finished: Finished, empty_report: None, tmp_path: Path
) -> Compare:
    """The command, in a folder in which it was called once."""
    shutil.copytree(finished.folder, tmp_path, dirs_exist_ok=True)
    return compare


def _a_run(base: Path) -> Path:
    return next(base.glob("*/*/run.json")).parent


def test_the_second_time_is_as_the_second_time_that_loads_all_runs(
    compare: Compare, tmp_path: Path
) -> None:
    """The first one may say more: of how the runs are made."""
    again, first, _ = compare()
    kept = compare()
    assert not again
    assert kept[:2] == (True, first)
    (tmp_path / "runs/small/shown.json").unlink()
    assert compare() == (False, *kept[1:])
    assert compare() == kept


def test_a_fresh_command_imports_no_library_that_runs_or_reads_or_draws(
    compare_again: Compare, finished: Finished, tmp_path: Path
) -> None:
    code = (
        "import sys; from motley.cli import call; assert call(sys.argv[1:]) == 0; "
        "assert not {'torch', 'pyarrow', 'matplotlib', 'scipy'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "compare", "q.toml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert AS_BEFORE in done.stderr
    assert done.stdout == finished.printed


def _longer(base: Path) -> None:
    (base.parents[1] / "q.toml").write_text(EXPERIMENT.replace("rounds = 2", "rounds = 3"))


def _comment(base: Path) -> None:
    (base.parents[1] / "q.toml").write_text(f"{EXPERIMENT}# a comment\n")


def _no_report(base: Path) -> None:
    (base / "report.html").unlink()


def _other_report(base: Path) -> None:
    with (base / "report.html").open("a", encoding="utf-8") as page:
        page.write("another")


def _locked(base: Path) -> None:
    (_a_run(base) / ".lock").touch()


def _touched_model(base: Path) -> None:
    os.utime(_a_run(base) / "model.safetensors")


def _other_reference(base: Path) -> None:
    record = json.loads((base / "comparison.json").read_text())
    record["against"] = [name for name in record["runs"] if name.startswith("oort")]
    (base / "comparison.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    "change",
    [
        _longer,
        _comment,
        _no_report,
        _other_report,
        _locked,
        _touched_model,
        _other_reference,
    ],
)
def test_a_change_is_never_shown_as_before(
    change: Callable[[Path], None], compare_again: Compare, tmp_path: Path
) -> None:
    base = tmp_path / "runs" / "small"
    assert compare_again()[0]
    change(base)
    assert not compare_again()[0]
    assert (base / "report.html").read_text() != "another"
    assert compare_again()[0]


def test_a_damaged_table_is_refused_and_not_hidden(
    compare_again: Compare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare_again()[0]
    table = _a_run(tmp_path / "runs" / "small") / "rounds.parquet"
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    assert call(["compare", "q.toml"]) == 2
    assert "rounds.parquet is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["--set", "cohort=3"],
        ["--over", "selector.name=uniform"],
        ["--seeds", "0,1"],
        ["--target", "0.5"],
        ["--against", "oort"],
        ["--plain-intervals"],
        ["--controls"],
        ["--no-report"],
        ["--out", "elsewhere"],
    ],
)
@pytest.mark.filterwarnings("always")
def test_other_words_are_another_comparison(argv: list[str], compare_again: Compare) -> None:
    assert compare_again()[0]
    assert not compare_again(*argv)[0]


def test_code_and_versions_count(compare_again: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, other in {
        "_code": lambda module: f"another {module}",
        "_installed": lambda: ["torch-9.dist-info"],
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(shown_again, name, other)
            assert not compare_again()[0]
            assert compare_again()[0]
        assert not compare_again()[0]


def test_the_code_of_a_package_is_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "of_mine"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "options.toml").write_text("a = 1")
    monkeypatch.syspath_prepend(tmp_path)
    before = CODE_OF("of_mine")
    (folder / "__pycache__" / "x.pyc").write_text("compiled")
    assert CODE_OF("of_mine") == before
    (folder / "options.toml").write_text("a = 2")
    assert CODE_OF("of_mine") != before


@pytest.mark.usefixtures("empty_report")
def test_a_table_of_ones_own_counts(compare: Compare, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(TABLE)
    rows = "".join(f"{i % 7},{i % 2}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"x,y\n{rows}")
    compare(file="t.toml")
    assert compare(file="t.toml")[0]
    (tmp_path / "rows.csv").write_text(f"x,y\n{rows}3,1\n")
    assert not compare(file="t.toml")[0]  # other runs


@pytest.mark.usefixtures("empty_report")
def test_a_table_that_changes_while_runs_are_made_keeps_nothing(
    compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs are those of the first rows, whichever are there when they are shown."""
    (tmp_path / "t.toml").write_text(TABLE)
    rows = "".join(f"{i % 7},{i % 2}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"x,y\n{rows}")
    show = cli._show

    def _changed(*arguments: object, **options: object) -> None:
        (tmp_path / "rows.csv").write_text(f"x,y\n{rows}3,1\n")
        show(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(cli, "_show", _changed)
    compare(file="t.toml")
    assert not (tmp_path / "runs/rows/shown.json").exists()


@pytest.mark.usefixtures("empty_report")
def test_a_file_whose_content_was_not_noted_is_not_trusted(
    compare: Compare, tmp_path: Path
) -> None:
    (tmp_path / "quadratic").write_text("")  # a task of this name reads no file, and who knows
    compare()
    assert not compare()[0]


@pytest.mark.usefixtures("empty_report")
def test_folders_called_like_options_change_nothing(compare: Compare, tmp_path: Path) -> None:
    for name in ("examples", "uniform", "data", "quadratic"):
        (tmp_path / name).mkdir()
    compare()
    assert compare()[0]


@pytest.mark.usefixtures("empty_report", "forget_names")
@pytest.mark.filterwarnings("always")
def test_code_and_secrets_of_ones_own_are_looked_at_each_time(
    compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from motley.selectors.uniform import Uniform\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Uniform):\n"
        '    """Draws."""\n'
    )
    own = ("--over", "selector.name=mine:Mine", "--allow-import", "--out", "own")
    noisy = "privacy={epsilon=8.0, delta=1e-5, clip=1.0, noise_seed=1}"
    plain = ("--over", "selector.name=uniform", "--set", "weights=uniform")
    private = (*plain, "--set", noisy, "--out", "private")
    for argv in (own, private):
        compare(*argv)
        assert not (tmp_path / argv[-1] / "shown.json").exists()
        assert not compare(*argv)[0]
    del sys.modules["mine"]


@pytest.mark.filterwarnings("always")
def test_a_warning_of_the_first_time_does_not_come_twice_or_go_lost(compare: Compare) -> None:
    """That the words replace the file's grid is said whenever the runs are looked at."""
    over = ("--over", "selector.name=uniform,power_of_choice")
    first = compare(*over)
    second = compare(*over)
    assert "is in the file's grid" in first[2]
    assert not second[0]
    assert compare(*over) == (True, *second[1:])


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("uniform", "uniforn", 1),
        lambda text: "",
        lambda text: json.dumps({**json.loads(text), "digest": None}),
        lambda text: json.dumps(with_digest({**json.loads(text), "printed": [[False, "\x1b[2J"]]})),
        lambda text: json.dumps(with_digest({**json.loads(text), "printed": [False]})),
        lambda text: json.dumps(with_digest({**json.loads(text), "state": []})),
    ],
)
def test_a_damaged_record_is_not_believed(
    damage: Callable[[str], str], compare_again: Compare, tmp_path: Path
) -> None:
    file = tmp_path / "runs" / "small" / "shown.json"
    kept = compare_again()
    assert kept[0]
    file.write_text(damage(file.read_text()))
    assert compare_again() == (False, *kept[1:])
    assert compare_again() == kept


@pytest.mark.parametrize("text", ["[]", "[" * 100_000, '{"shown": 3}', "mine"])
def test_a_file_of_the_user_s_with_its_name_stays(
    text: str, compare_again: Compare, tmp_path: Path
) -> None:
    file = tmp_path / "runs" / "small" / "shown.json"
    kept = compare_again()
    file.write_text(text)
    assert compare_again() == (False, *kept[1:])
    assert file.read_text() == text


def test_a_named_pipe_in_its_place_is_not_waited_for(
    compare_again: Compare, tmp_path: Path
) -> None:
    file = tmp_path / "runs" / "small" / "shown.json"
    file.unlink()
    os.mkfifo(file)
    assert not compare_again()[0]
