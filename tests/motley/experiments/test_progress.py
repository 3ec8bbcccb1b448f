"""What is shown while runs go on: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import math
import subprocess
import sys
import time

import pytest
from rich.console import Console

from motley.core.errors import DataError
from motley.experiments import progress
from motley.experiments.config import Experiment
from motley.experiments.progress import ProgressBars, ProgressLog, RoundLog
from motley.rounds.run_config import RoundSummary

EXPERIMENT = Experiment(
    population=6, cohort=2, stop={"rounds": 100}, task="quadratic", partition="by_writer"
)


def summary(number: int, score: float) -> RoundSummary:
    return RoundSummary(
        round=number, time_s=1.0, accepted=2, train_loss=1.0, score=score, selections=2 * number
    )


def test_a_log_has_a_line_per_run_and_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgressLog, "every_s", 0.01)
    out = io.StringIO()

    def wait_for(line: str) -> None:
        until = time.monotonic() + 60
        while f"{line}\n" not in out.getvalue() and time.monotonic() < until:
            time.sleep(0.005)
        assert f"{line}\n" in out.getvalue()

    with ProgressLog(
        [EXPERIMENT] * 3,
        ["uniform seed 0", "oort seed 0", "oort seed 1"],
        Console(file=out, width=20),
    ) as log:
        log.start(0)
        log.start(2)
        wait_for("run 1 of 3: uniform seed 0, preparing")
        log.run(2).begin("accuracy", lambda: "train")
        wait_for("run 3 of 3: oort seed 1, train")
        log.run(2).round(summary(39, math.nan))
        wait_for("run 3 of 3: oort seed 1, round 39 of 100")
        log.run(2).round(summary(40, 0.83))
        wait_for("run 3 of 3: oort seed 1, round 40 of 100, accuracy 0.830")
        log.end(2)
        log.end(0, DataError("the samples are gone"))
    lines = out.getvalue().splitlines()
    assert lines[0] == "run 1 of 3: uniform seed 0, begun"
    assert lines[-2:] == [
        "run 3 of 3: oort seed 1, finished after round 40 of 100, accuracy 0.830",
        "run 1 of 3: uniform seed 0, failed: the samples are gone",
    ]


def test_a_log_of_rounds_says_who_was_asked_and_what_was_spent() -> None:
    """2.5 MB are 20 million bits."""
    out = io.StringIO()
    log = RoundLog(EXPERIMENT.replace({"name": "[b]mine"}), Console(file=out, width=20))
    log.begin("accuracy", lambda: "train")
    log.round(RoundSummary(1, 41.4, 2, 1.0, math.nan, 7, (4, 0), 20_000_000))
    log.round(RoundSummary(2, 60.0, 1, 1.0, 0.81, 8, (5,), 40_000_000))
    log.round(RoundSummary(3, 90.0, 3, 1.0, 0.81, 9, (2, 0, 1), 40_000_000))
    log.round(RoundSummary(4, 99.0, 0, 1.0, 0.81, 10, (), 40_000_000))
    log.round(RoundSummary(5, 99.0, 9, 1.0, 0.81, 11, tuple(range(9)), 40_000_000))
    assert out.getvalue().splitlines() == [
        "[b]mine, round 1 of 100, asked 0 and 4, 2 accepted, 2.5 MB, 41 s",
        "[b]mine, round 2 of 100, asked 5, 1 accepted, accuracy 0.810, 5 MB, 60 s",
        "[b]mine, round 3 of 100, asked 0, 1 and 2, 3 accepted, accuracy 0.810, 5 MB, 90 s",
        "[b]mine, round 4 of 100, asked nobody, 0 accepted, accuracy 0.810, 5 MB, 99 s",
        "[b]mine, round 5 of 100, asked 9 clients, 9 accepted, accuracy 0.810, 5 MB, 99 s",
    ]


def test_a_terminal_has_a_bar_per_run_that_goes_on_and_one_for_all() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    with ProgressBars(
        [EXPERIMENT] * 3, ["uniform seed 0", "oort seed 0", "oort seed 1"], console
    ) as bars:
        bars.start(0)
        bars.start(1)
        bars.run(1).begin("accuracy", lambda: "train")
        bars.run(1).round(summary(40, 0.83))
        bars.end(0, DataError("the samples are gone"))
    last = out.getvalue().split("all runs")[-1]
    assert "1/3" in last
    assert "1 failed" in last
    assert "run 2 of 3: oort seed 0  40/100" in " ".join(last.split("\n")[1].split(" ")).replace(
        "   ", "  "
    )
    assert "accuracy 0.830, train" in last
    assert "uniform" not in last


def test_one_run_alone_has_one_bar() -> None:
    out = io.StringIO()
    with ProgressBars(
        [EXPERIMENT], ["mine"], Console(file=out, force_terminal=True, width=120, color_system=None)
    ) as bars:
        bars.start(0)
        bars.run(0).begin("loss", lambda: "")
        bars.run(0).round(summary(100, 0.5))
        bars.end(0)
    assert "all runs" not in out.getvalue()
    assert "100/100" in out.getvalue()
    assert "loss 0.500" in out.getvalue()


def test_where_standard_error_is_no_terminal_lines_are_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(progress.display([EXPERIMENT], ["mine"]), ProgressLog)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(progress.display([EXPERIMENT], ["mine"]), ProgressBars)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress.display([EXPERIMENT], ["mine"]), ProgressLog)


def test_its_import_leaves_pythons_random_numbers_as_they_were() -> None:
    """A link of rich's first styles is drawn."""
    code = (
        "import random; random.seed(1); before = random.getstate()\n"
        "import motley.experiments.progress\n"
        "assert random.getstate() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
