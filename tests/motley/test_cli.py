"""The command line: what it prints, what it leaves behind, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from motley import __version__, cli
from motley.cli import app, call
from motley.core import extensions
from motley.core.errors import ConfigError
from tests.places import PYTHONPATH

QUADRATIC = """
name = "small"
population = 6
cohort = 2
stop = { rounds = 2 }
task = "quadratic"
partition = "by_writer"
"""
DIGITS = """
population = 10
cohort = 3
stop = { rounds = 2 }
task = { name = "image", data = "digits", model = "digits_mlp" }
partition = { name = "dirichlet", alpha = 0.5 }
"""

COMES = {
    "deployment": "motley-flower",
    "explain": "motley-advice",
    "inspect": "motley-advice",
    "report": "motley-report",
    "reproduce": "motley-papers",
    "tune": "motley-advice",
    "twin": "motley-advice",
    "what-if": "motley-advice",
}


class Said(NamedTuple):
    code: int
    out: str
    err: str


Motley = Callable[..., Said]


@pytest.fixture
def motley(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Motley:
    """The command, in an empty folder with two experiments."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.toml").write_text(QUADRATIC)
    (tmp_path / "digits.toml").write_text(DIGITS)

    def run(*argv: str) -> Said:
        code = call(argv)
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return Said(code, said.out, said.err)

    return run


def refused(said: Said, message: str, folder: Path) -> None:
    """One sentence on standard error, exit code 2, nothing left behind."""
    assert said.code == 2, said
    assert said.err.startswith(f"motley: {message}"), said.err
    assert said.err.count("\n") == 1
    assert len(said.err) < 1100
    assert said.out == ""
    assert {path.name for path in folder.iterdir()} <= {"q.toml", "digits.toml", "broken.toml"}


# ------------------------------------------------------------------------------ the user's mistakes


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run", "q.tml"], "there is no file 'q.tml' (did you mean 'q.toml'?)"),
        (["run"], "Missing argument 'FILE.toml'; see: motley run --help"),
        (["rnu", "q.toml"], "No such command 'rnu'"),
        # how its name is quoted depends on the version of typer
        (["run", "q.toml", "--sett", "a=1"], "No such option"),
        (["--bogus"], "No such option"),
        (["data", "get", "mnist", "--stall", "9" * 30], "Invalid value for '--stall'"),
        (["run", "q.toml", "--set", "cohort"], "--set: got 'cohort'; expected key=value"),
        (
            ["run", "q.toml", "--set", "cohort=7"],
            "cohort: got 7, more than the population of 6; expected at most 6",
        ),
        (["run", "q.toml", "--set", "population=0"], "population: got 0; expected at least 1"),
        (
            ["run", "q.toml", "--set", "cohorts=7"],
            "cohorts: there is no such key (did you mean 'cohort'?)",
        ),
        (["run", "q.toml", "--set", "cohort=many"], "cohort: got 'many'; expected a whole number"),
        (
            ["run", "q.toml", "--set", "selector.name=unifrom"],
            "selector.name: got 'unifrom' (did you mean 'uniform'?)",
        ),
        (
            ["run", "q.toml", "--set", "engine.name=rays"],
            "engine: got 'rays' (did you mean 'ray'?)",
        ),
        (["run", "q.toml", "--data", "nowhere"], "--data: there is no folder 'nowhere'"),
        (
            ["run", "q.toml", "--out", "q.toml"],
            "q.toml is, or lies below, a file; choose another output folder",
        ),
        (
            ["run", "q.toml", "--set", "engine.device=gpu7"],
            "engine.device: got 'gpu7', which torch cannot use here",
        ),
        (
            ["run", "q.toml", "--set", "engine.device=meta"],
            "engine.device: got 'meta', which torch cannot use here",
        ),
        (
            ["run", "q.toml", "--set", "population=99999999999999999999"],
            "population: got 99999999999999999999; expected at most",
        ),
        (
            ["run", "q.toml", "--set", "local.optimizer.lr=-1"],
            "local.optimizer: got lr = -1.0; expected a positive number",
        ),
        (
            ["run", "q.toml", "--set", 'algorithm={name="fedprox",mu=inf}'],
            "algorithm: got mu = inf; expected a finite number",
        ),
        (
            ["run", "q.toml", "--set", "loss=cross_entropy"],
            "loss: got 'cross_entropy', but the targets of this task are numbers",
        ),
        (
            ["run", "q.toml", "--set", "stop.target.accuracy=0.9"],
            "stop.target.accuracy: got 'accuracy', which is of classes",
        ),
        (["run", "q.toml", "--out", "a" * 300], "cannot write aaa"),
        (["run", "q.toml", "--data", "a" * 300], "--data: there is no folder"),
        (["run", "a" * 300], "'aaa"),
        (["run", "\x1b[2J"], "there is no file '\\x1b[2J'"),
        (
            ["run", "q.toml", "--set", "name=" + "a" * 300],
            "name: got a name of 300 bytes; expected at most 200",
        ),
        (
            ["run", "q.toml", "--set", 'name="\\u001b[2J"'],
            "name: got '\\x1b[2J', with a control character",
        ),
        (["run", "q.toml", "--set", "seed=" + "9" * 5000], "999"),
        (["run", "q.toml", "--set", "a." * 3000 + "b=1"], "a.a."),
        (["run", "q.toml", "--set", "method=" + "a" * 50_000], "method: got 'aaa"),
        (["run", "q.toml", "--set", "init=" + "a" * 300], "init: there is no file 'aaa"),
        (
            ["run", "digits.toml", "--set", "task.model=logistic"],
            "task.model.name: got 'logistic' (did you mean 'logistic_regression'?)",
        ),
        (["run", "digits.toml", "--set", "partition.alpha=0"], "partition: got alpha = 0"),
        (
            ["run", "digits.toml", "--set", "task.model=mpl"],
            "task.model.name: got 'mpl' (did you mean 'mlp'?)",
        ),
        (["run", "digits.toml", "--set", "task.model=alexnet"], ""),
        (["run", "digits.toml", "--set", "task.data=mnits"], ""),
        (["run", "digits.toml", "--set", "partition=by_writer"], ""),
        (["run", "digits.toml", "--set", "population=5000"], ""),
        (
            ["compare", "q.toml", "--over", "selector.name"],
            "--over: got 'selector.name'; expected key=value",
        ),
        (
            ["compare", "q.toml", "--over", "engine.name=auto,rays"],
            "engine: got 'rays' (did you mean 'ray'?)",
        ),
        (
            ["compare", "q.toml", "--seeds", "0,x"],
            "--seeds: got '0,x'; expected whole numbers with commas between",
        ),
        (["compare", "q.toml", "--seeds", "1,1"], "grid: the same run occurs twice"),
        (
            ["compare", "q.toml", "--over", "cohort=2,3", "--against", "cohort2"],
            "against: got 'cohort2' (did you mean 'cohort 2'?); expected one of the methods: "
            "cohort 2; cohort 3",
        ),
        (
            ["compare", "q.toml", "--target", "-1"],
            "target: got -1 for loss; expected a positive number",
        ),
        (
            [
                "compare",
                "q.toml",
                "--set",
                "task={ name = 'image', data = 'digits' }",
                "--set",
                "partition=iid",
                "--target=90",
            ],
            "target: got 90 for accuracy; expected a share above 0 and at most 1, e.g. 0.9",
        ),
        (
            ["compare", "q.toml", "--yes"],
            "--yes (many_controls): it allows many controls, and none are asked for; add "
            "--controls (controls=True)",
        ),
        (["list", "selectrs"], "there is no kind 'selectrs' (did you mean 'selectors'?)"),
        (["report", "nowhere"], "there is no folder nowhere"),
        (["report", "."], "there are no runs in ."),
        (["cite", "."], "there are no runs in ."),
        (
            ["new", "engine", "mine"],
            "KIND: got 'engine'; expected one of: aggregator, algorithm, compressor, partition, "
            "recipe, selector, server, stage, task",
        ),
        (["new", "selector", "not-a-name"], ""),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    motley: Motley, tmp_path: Path, argv: list[str], message: str
) -> None:
    refused(motley(*argv), message, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cohort = ", "broken.toml, line 1: not valid TOML"),
        ("cohort = 2\ncohort = 3\n", "broken.toml, line 2"),
        (
            QUADRATIC + 'selector = { name = "uniform", d = 20 }',
            "selector.d: 'uniform' has no such option",
        ),
        (QUADRATIC + "participation = 0.5", "participation: got both cohort and participation"),
        (QUADRATIC + "local = { epochs = 2, steps = 3 }", "local: give either epochs or steps"),
        (QUADRATIC + 'method = "fedprx"', "method: got 'fedprx' (did you mean 'fedprox'?)"),
        (
            QUADRATIC + "recalibrate = { batches = 20 }",
            "recalibrate: this model has no BatchNorm statistics",
        ),
        (QUADRATIC.replace("rounds = 2", ""), "stop: a run needs an end"),
        (QUADRATIC.replace('task = "quadratic"', ""), "task: this key is missing"),
    ],
)
def test_a_broken_file_is_one_sentence(
    motley: Motley, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "broken.toml").write_text(text)
    refused(motley("run", "broken.toml"), message, tmp_path)


def test_weights_that_the_selector_does_not_give(motley: Motley) -> None:
    said = motley("run", "q.toml", "--set", "weights=score")
    assert said.code == 2
    assert said.err.endswith(
        "motley: weights: got 'score', but 'uniform' gives no scores; use \"examples\" or "
        '"uniform"\n'
    )


@pytest.mark.filterwarnings("always")
def test_a_comparison_says_a_caution_once(motley: Motley) -> None:
    """q-FedAvg with clients whose labels are turned around: every one of the runs would say it."""
    flipped = [
        "--set",
        "label_noise=label_flip",
        "--set",
        "algorithm=qfedavg",
        "--set",
        "stop.rounds=1",
        "--no-report",
    ]
    said = motley("compare", "digits.toml", "--seeds", "0,1", "--out", "all", *flipped)
    assert said.code == 0, said.err
    assert (
        said.err.count("note: q-FedAvg (q = 1) gives large weights to clients with a high loss")
        == 1
    )


def test_updates_that_are_not_finite_are_rejected_counted_and_told(
    motley: Motley, tmp_path: Path
) -> None:
    said = motley("run", "digits.toml", "--out", "out", "--set", "local.optimizer.lr=1e30")
    assert said.code == 0, said.err
    rejected = (
        "note: 6 updates were rejected (not finite, of the wrong shape, or part of a refused "
        "step): paid for, not used\n"
    )
    assert said.err.count(rejected) == 1
    assert "no upload was accepted in 2 of 2 rounds (rounds 1, 2)" in said.err
    assert "an update was rejected 6 times" in (tmp_path / "out" / "report.html").read_text()


def test_a_report_that_cannot_be_put_there_leaves_nothing(motley: Motley, tmp_path: Path) -> None:
    assert motley("run", "q.toml", "--out", "out", "--no-report").code == 0
    (tmp_path / "page.html").mkdir()
    said = motley("report", "out", "--out", "page.html")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.startswith("motley: cannot write page.html: ")
    assert {path.name for path in tmp_path.iterdir()} == {
        "out",
        "page.html",
        "q.toml",
        "digits.toml",
    }


def test_a_report_comes_apart_for_a_paper(motley: Motley, tmp_path: Path) -> None:
    assert motley("run", "q.toml", "--out", "out", "--no-report").code == 0
    said = motley("report", "out", "--format", "csv,latex")
    assert (said.code, said.out.strip()) == (0, str(Path("out") / "paper"))
    assert {"summary.csv", "summary.tex", "references.bib"} <= {
        p.name for p in (tmp_path / "out/paper").iterdir()
    }
    assert (
        motley("report", "out", "--format", "csv", "--format", "svg", "--out", "figures").code == 0
    )
    assert {p.suffix for p in (tmp_path / "figures").iterdir()} == {".csv", ".svg"}
    said = motley("report", "out", "--format", "pdff")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.startswith("motley: format: got 'pdff' (did you mean 'pdf'?)")


def test_a_damaged_record_is_one_sentence(motley: Motley, tmp_path: Path) -> None:
    assert motley("run", "q.toml", "--out", "out", "--no-report").code == 0
    for text, words in (
        ("{", "cannot be read"),
        ("[]", "run.json"),
        ('{"citations": 3}', "holds 3 under 'citations'"),
    ):
        (tmp_path / "out" / "run.json").write_text(text)
        for command in ("report", "cite"):
            said = motley(command, "out")
            assert (said.code, said.err.count("\n")) == (2, 1)
            assert words in said.err


def test_too_little_memory_is_one_sentence(
    motley: Motley, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def greedy(*_: Any, **__: Any) -> Any:
        raise MemoryError("Unable to allocate 745. GiB")

    monkeypatch.setattr("motley.tasks.quadratic.Quadratic.load", greedy)
    message = (
        "there is not enough memory for this experiment (Unable to allocate 745. GiB); "
        "choose a smaller model"
    )
    refused(motley("run", "q.toml"), message, tmp_path)


def test_a_name_like_markup_is_printed_as_it_is(motley: Motley) -> None:
    said = motley("run", "q.toml", "--out", "out", "--no-report", "--set", "name=[/foo]")
    assert said.code == 0, said.err
    assert "[/foo]: loss" in said.out
    assert "[/foo], finished after round 2 of 2" in said.err
    said = motley(
        "compare", "q.toml", "--seeds", "0,1", "--no-report", "--set", "name=[bold]x[/bold]"
    )
    assert said.code == 0, said.err
    assert "[bold]x[/bold]" in said.out


def test_a_record_of_a_stranger_cannot_command_the_terminal(motley: Motley, tmp_path: Path) -> None:
    assert motley("run", "q.toml", "--out", "out", "--no-report").code == 0
    path = tmp_path / "out" / "run.json"
    record = json.loads(path.read_text())
    del record["digest"]  # a stranger can leave it out
    record["name"] = "\x1b[2J[/foo]"
    record["citations"][0]["bibtex"] += "\x1b]0;title\x07"
    path.write_text(json.dumps(record))
    assert "\x1b" not in motley("cite", "out").out
    assert motley("report", "out").code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "\x1b" not in page
    assert "\\x1b[2J[/foo]" in page


def test_a_byte_order_mark_is_forgiven(motley: Motley, tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text("\ufeff" + QUADRATIC)
    assert motley("run", "q.toml", "--no-report").code == 0


def test_a_folder_in_use_is_refused(motley: Motley, tmp_path: Path) -> None:
    from motley.experiments.store import RunFolder

    with RunFolder(tmp_path / "out").lock():
        said = motley("run", "q.toml", "--out", "out")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "out is in use by another run" in said.err


def test_the_folder_of_another_run_is_refused(motley: Motley) -> None:
    assert motley("run", "q.toml", "--out", "out", "--no-report").code == 0
    said = motley("run", "q.toml", "--out", "out", "--set", "seed=1")
    assert said.code == 2
    assert "out holds another run (small, " in said.err


# ------------------------------------------------------------------------------------- what it does


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other distribution is installed."""
    monkeypatch.setattr(extensions, "_entry_points", lambda: metadata.EntryPoints(()))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", COMES)
def test_a_command_whose_distribution_is_missing_names_it(name: str) -> None:
    bare = typer.Typer(rich_markup_mode=None)
    cli._add_commands(bare)
    listed = CliRunner().invoke(bare, ["--help"]).output.splitlines()
    about = [name, "Comes", "with", f"{COMES[name]},"]
    assert about in [line.split()[:4] for line in listed]
    error = CliRunner().invoke(bare, [name, "first.toml", "--over", "x"]).exception
    assert isinstance(error, ConfigError)
    assert str(error) == (
        f"{name!r} comes with {COMES[name]}, which is not installed; in a checkout of Motley: "
        f"pip install ./packages/{COMES[name]}"
    )


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("always")
def test_a_run_needs_no_other_distribution(motley: Motley, tmp_path: Path) -> None:
    said = motley("run", "q.toml", "--out", "run")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "tables: run"
    assert "report: " not in said.out
    assert said.err.splitlines()[-1] == (
        "motley: note: no report is written: 'report' comes with motley-report, which is not "
        "installed; in a checkout of Motley: pip install ./packages/motley-report"
    )
    assert not (tmp_path / "run" / "report.html").exists()
    assert "report" not in motley("run", "q.toml", "--out", "other", "--no-report").err


def test_a_report_needs_motley_report_alone(
    motley: Motley, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = map(extensions.extensions, ("command", "function"))
    points = [point for group in groups for point in group.values()]
    own = [point for point in points if point.module.startswith("motley_report.")]
    assert own
    monkeypatch.setattr(extensions, "_entry_points", lambda: metadata.EntryPoints(own))
    assert motley("run", "q.toml", "--out", "run").out.splitlines()[-2:] == [
        "report: run/report.html",
        "tables: run",
    ]
    refused = motley("report", "run", "--predicted", "prediction.json")
    assert refused.code == 2
    assert refused.err == (
        "motley: 'predicted' comes with motley-advice, which is not installed; in a checkout of "
        "Motley: pip install ./packages/motley-advice\n"
    )


def test_a_distribution_that_another_one_needs_is_named(
    motley: Motley, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice without the report's figures, as after ``pip uninstall motley-report``."""
    for name in [name for name in sys.modules if name.startswith("motley_report.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "motley_report", None)
    for name in [name for name in sys.modules if name.startswith("motley_advice.inspection")]:
        monkeypatch.delitem(sys.modules, name)
    refused = motley("inspect", "q.toml")
    assert refused.code == 2
    assert refused.err.endswith(
        "motley: this needs motley-report, which is not installed; in a checkout of Motley: pip "
        "install ./packages/motley-report\n"
    )


def test_version_and_help(motley: Motley) -> None:
    assert motley("--version").out == f"motley {__version__}\n"
    for argv in ([], ["--help"]):
        assert "compare" in motley(*argv).out
    assert "--allow-other-numerics" in motley("run", "--help").out
    assert CliRunner().invoke(app, ["--version"]).output == f"motley {__version__}\n"


def test_run_prints_a_summary_and_leaves_a_run(motley: Motley, tmp_path: Path) -> None:
    said = motley("run", "q.toml", "--out", "out", "--set", "stop.rounds=3", "--no-report")
    assert said.code == 0, said.err
    assert "small" in said.out
    assert said.out.splitlines()[-1] == "tables: out"
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["finished"]
    assert record["config"]["stop"]["rounds"] == 3

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert (
        motley(
            "run", "q.toml", "--out", "out", "--set", "stop.rounds=3", "--resume", "--no-report"
        ).code
        == 0
    )
    # finished: nothing to do
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_without_out_a_run_goes_below_runs(motley: Motley, tmp_path: Path) -> None:
    assert motley("run", "q.toml", "--no-report").code == 0
    (folder,) = (tmp_path / "runs" / "small").iterdir()
    assert (folder / "run.json").is_file()


def test_the_reference_is_chosen_once_and_rows_keep_the_order_of_the_grid(
    motley: Motley, tmp_path: Path
) -> None:
    over = ["--over", "selector.name=uniform,power_of_choice,oort", "--seeds", "0,1"]
    said = motley("compare", "q.toml", *over, "--out", "all", "--against", "oort")
    assert said.code == 0, said.err
    assert "against oort, paired by seed" in " ".join(said.out.split())
    assert "The 95 % intervals of the 2 comparisons hold together (Bonferroni)." in said.out
    shown = [line.split()[0] for line in said.out.splitlines() if "±" in line][1:4]
    assert shown == ["uniform", "power_of_choice", "oort"]
    first = (tmp_path / "all" / "report.html").read_text()
    assert "final loss against oort" in first
    assert motley("report", "all").code == 0
    assert (tmp_path / "all" / "report.html").read_text() == first
    assert motley("report", "all", "--format", "latex,csv").code == 0
    table = (tmp_path / "all" / "paper" / "differences.csv").read_text()
    assert [line.split(",")[0] for line in table.splitlines()[1:]] == ["uniform", "power_of_choice"]
    assert "against oort" in (tmp_path / "all" / "paper" / "differences.tex").read_text()
    assert motley("report", "all", "--against", "uniform", "--plain-intervals").code == 0
    other = (tmp_path / "all" / "report.html").read_text()
    assert "final loss against uniform" in other
    assert "Plain 95 % intervals, each of one comparison alone" in other
    said = motley("report", "all", "--against", "ort")
    assert said.code == 2
    assert "against: got 'ort' (did you mean 'oort'?); expected one of the methods" in said.err


def test_compare_report_and_cite(motley: Motley, tmp_path: Path) -> None:
    said = motley(
        "compare",
        "q.toml",
        "--over",
        "selector.name=uniform,power_of_choice",
        "--seeds",
        "0,1",
        "--out",
        "all",
    )
    assert said.code == 0, said.err
    assert "power_of_choice" in said.out
    assert (tmp_path / "all" / "report.html").is_file()
    assert "report: all/report.html" in said.out

    said = motley("report", "all", "--out", "mine.html")
    assert said.out == "mine.html\n"
    assert (tmp_path / "mine.html").is_file()

    said = motley(
        "compare",
        "q.toml",
        "--over",
        "selector.name=uniform,power_of_choice",
        "--seeds",
        "0,1",
        "--out",
        "all",
        "--target",
        "0.5",
    )
    assert "until 0.5" in said.out
    assert "2 of 2" in said.out or "> " in said.out
    assert motley("report", "all", "--target", "0.5").code == 0
    assert "Until 0.5" in (tmp_path / "all" / "report.html").read_text()
    said = motley("report", "all", "--target", "-1")
    assert (said.code, said.err) == (
        2,
        "motley: target: got -1 for loss; expected a positive number\n",
    )

    said = motley("cite", "all")
    assert [line for line in said.out.splitlines() if line.startswith("@")] == [
        "@inproceedings{cho2022towards,",
        "@inproceedings{mcmahan2017communication,",
    ]


def test_a_comparison_names_what_differs_and_controls_remove_it(motley: Motley) -> None:
    """SCAFFOLD weighs clients equally and sends its control variates, too."""
    line = ("compare", "q.toml", "--over", "algorithm.name=fedavg,scaffold", "--seeds", "0,1")
    said = motley(*line, "--out", "all", "--no-report")
    assert said.code == 0, said.err
    assert "besides the method" in said.out
    assert "at equal weights" not in said.out
    assert (
        "note: scaffold weighs clients equally; fedavg with equal weights is not in this "
        "comparison\nmotley: note: motley compare --controls runs the reference with these "
        "settings, too\n" in said.err
    )
    said = motley(*line, "--out", "all", "--controls", "--no-report")
    assert said.code == 0, said.err
    assert (
        "note: controls: 2 runs beside 0 of the comparison (fedavg with equal weights); the "
        "controls take about 0." in said.err
    )
    assert "is not in this comparison" not in said.err
    assert "at equal weights" in said.out
    assert motley("report", "all").code == 0
    assert "at equal weights" in Path("all/report.html").read_text()


@pytest.mark.filterwarnings("default")
def test_variants_that_cannot_run_are_said_before_the_first_run(motley: Motley) -> None:
    line = ("compare", "q.toml", "--over", 'aggregator=mean,"krum"', "--out", "all", "--no-report")
    said = motley(*line)
    assert said.code == 2
    assert said.err.startswith(
        "motley: 1 of 2 variants cannot run, so no run was begun: krum: aggregator: "
    ), said.err
    assert not Path("all").exists()
    said = motley(*line, "--skip-refused")
    assert said.code == 0, said.err
    assert "note: left out, for it cannot run: krum: aggregator: " in said.err
    assert "tables: all" in said.out


def test_a_failed_run_of_a_comparison_is_told_and_the_others_kept(
    motley: Motley, monkeypatch: pytest.MonkeyPatch
) -> None:
    from motley.core.errors import DataError
    from motley.experiments import sweep

    real = sweep.run_in

    def broken(experiment: Any, **options: Any) -> Any:
        if experiment.seed == 0:
            raise DataError("the samples are gone")
        return real(experiment, **options)

    monkeypatch.setattr(sweep, "run_in", broken)
    said = motley("compare", "q.toml", "--seeds", "0,1", "--out", "all", "--no-report")
    assert said.code == 2
    assert "failed: small seed 0: the samples are gone" in said.err
    assert said.err.endswith(
        "motley: 1 of 2 runs finished; the same command tries the others again\n"
    )
    assert "tables: all" in said.out


def test_list_shows_names_and_options(motley: Motley) -> None:
    said = motley("list", "selectors").out
    assert "uniform" in said
    assert "single uploads, or numbers made of them, must be seen" in said
    assert (
        "ray                    Trains chunks of clients in the actors of a Ray cluster"
        in motley("list", "engines").out
    )
    assert "    d                    a whole number or none; default null" in said
    rows = json.loads(motley("list", "networks", "--json").out)
    assert {row["name"] for row in rows} >= {"constant", "uniform"}
    assert {"selector", "preset", "recipe"} <= set(motley("list").out.split())


def test_list_shows_presets_and_recipes(motley: Motley) -> None:
    line = (
        "fedavg                 Draws clients uniformly and averages their models by numbers "
        "of samples.\n"
    )
    assert line in motley("list", "presets").out
    assert all(len(row) < 160 for row in motley("list", "presets").out.splitlines())
    (flexcom,) = [
        row
        for row in json.loads(motley("list", "presets", "--json").out)
        if row["name"] == "flexcom"
    ]
    assert flexcom["keys"]["budget"] == {"name": "constant", "average": 0.2}
    assert (
        "flash                  FLASH: Federated Learning Across Simultaneous Heterogeneities"
        in motley("list", "recipes").out
    )
    assert "table 1" in {
        name
        for row in json.loads(motley("list", "recipes", "--json").out)
        for name in row["exhibits"]
    }
    assert "(did you mean 'recipes'?)" in motley("list", "recipies").err


def test_new_selector_writes_what_is_not_there(motley: Motley, tmp_path: Path) -> None:
    said = motley("new", "selector", "loudest")
    assert said.out.split() == ["loudest.py", "test_loudest.py"]
    text = (tmp_path / "loudest.py").read_text()
    said = motley("new", "selector", "loudest")
    assert said.code == 2
    assert (
        said.err
        == "motley: loudest.py is there already and is not overwritten; choose another name\n"
    )
    assert (tmp_path / "loudest.py").read_text() == text


# ---------------------------------------------------------------------------- ours, and interrupted


def test_our_own_error_is_one_and_says_where_the_traceback_is(
    motley: Motley,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    from motley.experiments import registry

    monkeypatch.setattr(registry, "catalogue", None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = motley("list", "selectors")
    assert said.code == 1
    assert said.err.startswith(
        "motley: this is a fault of Motley, not yours: TypeError: 'NoneType' object is not "
        "callable; please report it"
    )
    (log,) = tmp_path.glob("motley-*.log")
    assert "Traceback" in log.read_text()
    assert call(["--debug", "list", "selectors"]) == 1
    assert "Traceback" in capsys.readouterr().err
    # the traceback cannot be kept: it is shown
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert call(["list", "selectors"]) == 1
    assert "please report it with the traceback above" in capsys.readouterr().err


OWN_SERVER = """
from dataclasses import dataclass

from motley.algorithms.parts import Server


@dataclass(frozen=True)
class MyServer(Server):
    gives: bool = False

    def update(self, state, total, context):
        if self.gives:
            return None
        return total["dleta"]
"""


def test_a_fault_of_a_users_component_names_its_file_and_line(
    motley: Motley,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "own_server.py").write_text(OWN_SERVER)
    monkeypatch.syspath_prepend(str(tmp_path))
    argv = ["q.toml", "--allow-import", "--no-report"]
    raising = "server={name='own_server:MyServer'}"
    wrong = "server={name='own_server:MyServer',gives=true}"

    said = motley("run", *argv, "--set", raising)
    sentence = (
        "KeyError: 'dleta'; it was raised in own_server.py, line 14, in update: "
        'return total["dleta"]'
    )
    assert said.code == 2
    assert said.err.splitlines()[-1] == (f"motley: {sentence}; motley --debug shows the traceback")
    assert not list(tmp_path.glob("motley-*.log"))
    # what it returns makes Motley's own code fail
    said = motley("run", *argv, "--set", wrong)
    assert said.code == 2
    assert said.err.splitlines()[-1] == (
        "motley: AttributeError: 'NoneType' object has no attribute 'model'; it was raised where "
        "Motley works with parts of your own: MyServer (own_server.py, line 7); motley --debug "
        "shows the traceback"
    )
    # in a comparison, also with runs in other processes
    for jobs in ("1", "2"):
        said = motley("compare", *argv, "--over", "seed=0,1", "--set", raising, "--jobs", jobs)
        assert said.code == 2
        assert f"seed 0 and 1 more: {sentence}\n" in said.err
        assert "a fault of Motley" not in said.err
    assert call(["--debug", "run", *argv, "--set", raising]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_says_how_to_go_on(motley: Motley, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("motley.experiments.run.run", stopped)
    said = motley("run", "q.toml")
    assert said.code == 130
    assert "go on with the same command and --resume" in said.err


def test_a_process_interrupted_and_resumed_ends_like_one_that_was_not(
    motley: Motley, tmp_path: Path
) -> None:
    (tmp_path / "q.toml").write_text(QUADRATIC.replace("rounds = 2", "rounds = 300"))
    words = ["run", "q.toml", "--out", "out", "--no-report"]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    options: Any = {
        "cwd": tmp_path,
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "env": environment,
    }
    hear: Any = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - shells in the background have it ignored
    with subprocess.Popen(
        [sys.executable, "-m", "motley", *words], preexec_fn=hear, **options
    ) as process:
        while not list(tmp_path.glob("out/checkpoints/*")) and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "go on with the same command and --resume" in err
    assert "Traceback" not in err

    again = motley(*words, "--resume")
    assert again.code == 0, again.err
    assert json.loads((tmp_path / "out" / "run.json").read_text())["finished"]


# ---------------------------------------------------------------------------------------- importing


def test_importing_motley_is_light() -> None:
    script = """
import sys, motley, motley.cli
heavy = {"torch", "sklearn", "pyarrow", "matplotlib", "scipy", "pydantic", "optuna"}
heavy &= set(sys.modules)
assert not heavy, heavy
assert sorted(motley.__all__) == motley.__all__
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there() -> None:
    import motley as package

    for name in package.__all__:
        assert getattr(package, name).__doc__, name
    assert package.selectors.build("uniform").seed == 0
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = package.nonsense


def test_the_home_folder_is_meant_where_a_shell_leaves_its_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell does not replace it in ``--out=~/runs``, and Arrow does where tables are read."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(QUADRATIC)
    done = CliRunner().invoke(app, ["run", "small.toml", "--no-report", "--out=~/mine"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "home" / "mine" / "rounds.parquet").is_file()
    assert not (tmp_path / "~").exists()
    again = CliRunner().invoke(app, ["cite", "~/mine"])
    assert again.exit_code == 0, again.output
    (tmp_path / "home" / "packs").mkdir()
    words = ["run", "small.toml", "--no-report", "--out=~/with-data"]
    assert call([*words, "--data=~/packs"]) == 0
    assert call([*words, "--data=~/nowhere"]) == 2


def _options(command: Any, name: str) -> list[tuple[str, Any]]:
    """Return every option of a command and of those below it, after the words that call it."""
    mine = [(f"{name} {o.opts[0]}", o) for o in command.params if o.opts[0].startswith("--")]
    below = getattr(command, "commands", {})
    return [*mine, *(one for key in below for one in _options(below[key], f"{name} {key}"))]


def test_every_option_that_is_a_path_takes_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    command = typer.main.get_command(app)
    kinds = {"DIR", "FILE", "FILE.toml", "NODE.PUB", "prediction.json"}
    paths = {
        name: option for name, option in _options(command, "motley") if option.metavar in kinds
    }
    assert {"motley run --data", "motley data get --to", "motley reproduce --out"} <= paths.keys()
    for name, option in paths.items():
        assert option.callback is not None, name
        assert option.callback(None, option, Path("~/there")) == tmp_path / "there", name
        assert option.callback(None, option, None) is None, name


@pytest.mark.parametrize(
    ("encoding", "errors"), [("ascii", "surrogateescape"), ("cp1252", "strict")]
)
def test_a_terminal_of_another_encoding_loses_no_run(
    encoding: str, errors: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the locale C standard output has no letter beyond ASCII, and raised an error after the
    last round."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "small.toml"
    file.write_text(QUADRATIC.replace("small", "größer \u2265"), encoding="utf-8")
    stream = TextIOWrapper(BytesIO(), encoding=encoding, errors=errors)
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit) as end:
        cli.main(["run", "small.toml", "--no-report"])
    stream.flush()
    printed = stream.buffer.getvalue().decode(encoding, "replace")  # type: ignore[attr-defined]
    assert end.value.code == 0
    assert "er \\u2265" in printed
