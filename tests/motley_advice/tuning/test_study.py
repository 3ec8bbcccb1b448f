"""Studies: kills and what comes after them, budgets that were really used, validation and not test,
files that can be run."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import motley
from motley import cli
from motley.core import extensions
from motley.core.errors import ConfigError, StoreError, UserError
from motley.experiments.config import load
from motley.tasks import from_clients, own_task
from motley_advice.tuning import proposals, study
from motley_advice.tuning.objectives import ObjectiveValue
from motley_advice.tuning.results import worries

KEYS: dict[str, Any] = {
    "name": "iris",
    "task": {"name": "tabular", "data": "iris"},
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 4},
    "split": {"validation": 0.25},
    "evaluate": {"every": 1},
}
OVER = {"local.optimizer.lr": "log:0.001..1", "fedprox:algorithm.mu": "log:0.01..1"}
PER = "algorithm.name=fedavg,fedprox"


def tuned(out: Path, say: Callable[[str], None] = lambda _: None, **options: Any) -> Any:
    keys = options.pop("keys", KEYS)
    over = options.pop("over", OVER)
    return motley.tune(
        keys, over, out=out, say=say, **{"per": PER, "trials": 3, "test_seeds": [5], **options}
    )


ONE: dict[str, Any] = {"per": None, "over": {"local.optimizer.lr": "log:0.01..1"}}


def killed_at(words: str) -> Callable[[str], None]:
    """A listener that ends the study when it hears some words."""

    def hear(line: str) -> None:
        if words in line:
            raise KeyboardInterrupt

    return hear


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({"trials": 5}, ("fedavg, trial 3:", "fedprox, trial 4:")),
        ({"trials": 4, "rounds_first": 1, "factor": 2, **ONE}, ("trial 4:", "trial 2:")),
        ({"trials": 5, "jobs": 3, **ONE}, ("trial 2:",)),
    ],
    ids=["one by one", "halving", "three at a time"],
)
def test_a_killed_study_ends_the_same(
    tmp_path: Path, options: Any, ends: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With three at a time the runs are nevertheless made here, so that the test is quick: what is
    proposed depends on ``jobs``."""
    # the sampler's own proposals begin with the third trial
    monkeypatch.setattr(proposals, "SPREAD", 2)
    plain = study.run_points
    monkeypatch.setattr(
        study, "run_points", lambda *given, **more: plain(*given, **{**more, "jobs": 1})
    )
    whole = tuned(tmp_path / "whole", **options)
    for words in ends:
        lines: list[str] = []

        def hear(line: str, words: str = words, lines: list[str] = lines) -> None:
            lines.append(line)
            killed_at(words)(line)

        try:
            tuned(tmp_path / "again", hear, **options)
        except KeyboardInterrupt:
            assert words in lines[-1]
    again = tuned(tmp_path / "again", **options)
    assert [[trial.values for trial in method.trials] for method in whole.methods] == [
        [trial.values for trial in method.trials] for method in again.methods
    ]
    for name in (
        "trials.csv",
        *(f"tuned/{file.name}" for file in (tmp_path / "whole" / "tuned").iterdir()),
    ):
        assert (tmp_path / "whole" / name).read_text() == (tmp_path / "again" / name).read_text()
    tables = [
        [run.tables["evaluations"] for method in found.methods for run in method.test]
        for found in (whole, again)
    ]
    assert all(one.equals(other) for one, other in zip(*tables, strict=True))


def test_only_trials_that_go_on_have_checkpoints(tmp_path: Path) -> None:
    """Of 4 trials 2 go on after a round and 1 after two, to its end; then no checkpoint is left.
    SCAFFOLD's are large."""
    counted = []

    def hear(line: str) -> None:
        if " trial " in line:
            counted.append(len(list(tmp_path.glob("**/checkpoints"))))

    tuned(tmp_path, hear, trials=4, rounds_first=1, factor=2, **ONE)
    assert counted == [1, 2, 3, 4, 2, 2, 0]
    assert not list(tmp_path.glob("**/checkpoints"))


KILLED = """
import os, signal, sys
import motley

def hear(line):
    if "fedavg, trial 2:" in line:
        os.kill(os.getpid(), signal.SIGKILL)

motley.tune({keys!r}, {over!r}, per={per!r}, trials=3, test_seeds=[5], out=sys.argv[1], say=hear)
"""


@pytest.mark.slow
def test_a_killed_process(tmp_path: Path) -> None:
    """SIGKILL when one method has its second trial, and the other not. Half a line and a lock are
    left as of a kill while it wrote."""
    text = KILLED.format(keys=KEYS, over=OVER, per=PER)
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path / "again")], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with (tmp_path / "again" / "trials.log").open("a") as file:
        file.write('{"op_code":4,"wor')
    os.symlink("trials.log", tmp_path / "again" / "trials.log.lock")
    lines: list[str] = []
    tuned(tmp_path / "again", lines.append)
    tuned(tmp_path / "whole")
    assert "the study goes on: 1 of 3 trials of each method are there" in lines
    assert (tmp_path / "whole" / "trials.csv").read_text() == (
        tmp_path / "again" / "trials.csv"
    ).read_text()


def test_a_finished_study_is_only_loaded(tmp_path: Path) -> None:
    before = tuned(tmp_path)
    journal = (tmp_path / "trials.log").read_bytes()
    lines: list[str] = []
    again = tuned(tmp_path, lines.append)
    assert (tmp_path / "trials.log").read_bytes() == journal
    assert [method.values for method in again.methods] == [
        method.values for method in before.methods
    ]
    assert not any(": accuracy" in line or ": headline" in line for line in lines)


def test_the_budget_that_was_said_is_used(tmp_path: Path) -> None:
    """Four trials of a quarter of a run, two go on to the half and one to the whole: 4/4 + 2/4 +
    1/2 = 2 runs, with two seeds 4."""
    found = tuned(tmp_path, trials=4, rounds_first=1, factor=2, seeds=[0, 1], **ONE)
    (method,) = found.methods
    assert method.run_equivalents == found.plan.run_equivalents(method.plan) == 4.0
    assert sorted(len(trial.steps) for trial in method.trials) == [1, 1, 2, 3]
    records = [json.loads(file.read_text()) for file in (tmp_path / "runs").rglob("run.json")]
    assert sum(record["config"]["stop"]["rounds"] for record in records) == 4 * 4
    assert len(method.best.steps) == 3


def test_a_trial_that_goes_on_is_the_run_that_was_not_stopped(tmp_path: Path) -> None:
    over = {"local.optimizer.lr": [0.01, 0.5]}
    halved = tuned(tmp_path / "a", over=over, trials=2, rounds_first=1, factor=2)
    whole = tuned(tmp_path / "b", over=over, trials=2)
    for method, other in zip(halved.methods, whole.methods, strict=True):
        same = next(trial for trial in other.trials if trial.values == method.values)
        assert method.best.last.objectives == same.last.objectives


def test_validation_decides_and_not_the_test(tmp_path: Path) -> None:
    """Labels of the test samples are turned round: the better the model, the worse its test. One of
    two rates learns nothing."""
    random = np.random.default_rng(0)

    def client(flip: bool, size: int) -> tuple[Any, Any]:
        x = random.normal(size=(size, 2)).astype(np.float32)
        return x, (x[:, 0] > 0).astype(np.int64) ^ int(flip)

    data = from_clients(
        [client(False, 60) for _ in range(4)],
        test=[client(True, 60) for _ in range(4)],
        validation=0.25,
    )
    task = own_task(data, lambda: torch.nn.Linear(2, 2))
    keys = {
        "name": "turned",
        "cohort": 4,
        "stop": {"rounds": 5},
        "evaluate": {"every": 1},
        "local": {"optimizer": {"lr": 1e-6}},
    }
    found = tuned(
        tmp_path, keys=keys, over={"local.optimizer.lr": [1e-6, 0.5]}, per=None, trials=2, task=task
    )
    (method,) = found.methods
    assert method.values == {"local.optimizer.lr": 0.5}
    test = found.tested(method, found.plan.objectives[0])
    assert method.best.last.objectives[0].value > 0.8
    assert all(one.value < 0.3 for one in test)
    assert found.plan.notes == ()
    assert not (tmp_path / "tuned").exists()  # this task is in no file


def test_a_federation_without_validation_samples_is_refused(tmp_path: Path) -> None:
    x = np.ones((6, 2), np.float32)
    task = own_task(from_clients([(x, [0, 1] * 3)] * 3), lambda: torch.nn.Linear(2, 2))
    with pytest.raises(
        ConfigError,
        match=r"no validation samples, by which to choose; make it with validation=0\.2",
    ):
        tuned(
            tmp_path,
            keys={"cohort": 2, "stop": {"rounds": 1}},
            per=None,
            over={"local.optimizer.lr": "0.1..1"},
            task=task,
        )


def test_the_file_comes_first_and_its_values_are_within_reach(tmp_path: Path) -> None:
    """The first trial has the values of the file, so that no method ends behind it on validation
    samples."""
    found = tuned(tmp_path, keys={**KEYS, "local": {"optimizer": {"lr": 0.25}}})
    assert [method.trials[0].values["local.optimizer.lr"] for method in found.methods] == [
        0.25,
        0.25,
    ]
    assert all(
        method.best.last.objectives[0].order <= method.trials[0].last.objectives[0].order
        for method in found.methods
    )


def test_no_values_are_tried_twice(tmp_path: Path) -> None:
    over = {"local.optimizer.lr": [0.01, 0.1, 0.5], "local.batch_size": [4, 8, 16, 32]}
    found = tuned(tmp_path, over=over, per=None, trials=20, test_seeds=[])
    values = [tuple(trial.values.values()) for trial in found.methods[0].trials]
    assert len(values) == len(set(values)) == 12
    assert found.methods[0].test == ()


def test_a_study_on_a_cluster_has_the_trials_of_as_many_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster decides how many runs go at a time, ``jobs`` how many trials are proposed
    together; one connection serves the whole study."""
    monkeypatch.setattr(proposals, "SPREAD", 1)
    plain = study.run_points
    given: list[tuple[str | None, int, int]] = []
    connected: list[str] = []

    def here(points: Any, *more: Any, on_ray: str | None, jobs: int, **options: Any) -> Any:
        given.append((on_ray, jobs, len(points)))
        return plain(points, *more, **options)  # one after the other, so that the test is quick

    @contextmanager
    def noted(address: str, experiments: Any) -> Iterator[None]:
        connected.append(address)
        yield
        connected.append("no more")

    monkeypatch.setattr(study, "run_points", here)
    runner = SimpleNamespace(connected=noted)
    monkeypatch.setattr(study, "required_extension", lambda *names: runner)
    some: dict[str, Any] = {"trials": 3, "jobs": 2, "test_seeds": [], **ONE}
    one = tuned(tmp_path / "jobs", **some)
    assert given == [(None, 2, 2), (None, 2, 1)]
    other = tuned(tmp_path / "cluster", on_ray="auto", **some)
    assert given[2:] == [("auto", 1, 2), ("auto", 1, 1)]
    assert connected == ["auto", "no more"]
    assert one.methods[0].trials == other.methods[0].trials


def test_a_study_on_a_cluster_refuses_the_engine_ray_before_anything_is_run(tmp_path: Path) -> None:
    keys = {**KEYS, "engine": "ray"}
    with pytest.raises(ConfigError, match=r"^engine.name: each run that is spread over a cluster"):
        tuned(tmp_path / "study", keys=keys, on_ray="auto", **ONE)
    assert not (tmp_path / "study").exists()


@pytest.mark.usefixtures("drawn")
def test_what_is_written_can_be_run(tmp_path: Path) -> None:
    found = tuned(tmp_path)
    for method in found.methods:
        made = motley.Experiment(
            **motley.experiments.document.read(tmp_path / "tuned" / f"{method.label}.toml")
        )
        base = method.plan.experiment(found.plan.bases[0], method.values)
        assert made.result_id() == base.result_id()
    rows = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    assert [row["method"] for row in rows if row["chosen"] == "1"] == ["fedavg", "fedprox"]
    assert len(rows) == 6
    page = (tmp_path / "report.html").read_text()
    assert "Sensitivity" in page
    assert "algorithm.mu" in page
    assert motley.report(tmp_path / "test", tmp_path / "test.html").is_file()


@pytest.mark.usefixtures("drawn")
def test_how_values_were_chosen_travels_into_the_records(tmp_path: Path) -> None:
    """Three trials of one whole run each: 3 run-equivalents; the run id is that of the values."""
    found = tuned(tmp_path, per="algorithm.name=fedprox")
    file = tmp_path / "tuned" / "fedprox.toml"
    again = motley.run(file, out=tmp_path / "again", overrides=["seed=5"])
    (test,) = found.methods[0].test
    for run in (again, test):
        record = json.loads((run.directory / "run.json").read_text())["config"]["tuned"]
        assert record["values"] == found.methods[0].values
        assert record["method"] == {"algorithm.name": "fedprox"}
        assert (record["trials"], record["seeds"], record["run_equivalents"]) == (3, [0], 3.0)
        assert record["objective"] == ["headline"]
        assert record["spaces"]["local.optimizer.lr"] == "log:0.001..1"
    experiment = load(file)
    assert experiment.tuned is not None
    assert experiment.replace({"tuned": None}).run_id() == experiment.run_id()
    assert again.meta["run_id"] == test.meta["run_id"]


def test_several_experiments_are_tuned_together(tmp_path: Path) -> None:
    """A trial is run in both, and judged by the mean."""
    other = {**KEYS, "name": "skewed", "partition": {"name": "dirichlet", "alpha": 0.5}}
    found = tuned(tmp_path, keys=[KEYS, other], **ONE)
    assert [method.run_equivalents for method in found.methods] == [6]
    assert sorted(folder.name for folder in (tmp_path / "runs").iterdir()) == ["1-iris", "2-skewed"]
    method = found.methods[0]
    assert [run.config["name"] for run in method.test] == ["iris", "skewed"]
    rates = [0.001, method.values["local.optimizer.lr"]]
    single = tuned(tmp_path / "one", per=None, over={"local.optimizer.lr": rates}, trials=2)
    first = (
        next(trial for trial in single.methods[0].trials if trial.values == method.values)
        .last.objectives[0]
        .value
    )
    assert method.best.last.objectives[0].value != first


def test_a_trial_that_diverges_is_the_worst_and_stops_nothing(tmp_path: Path) -> None:
    keys = {**KEYS, "guard": "off", "task": {"name": "tabular_regression", "data": "diabetes"}}
    found = tuned(
        tmp_path, keys=keys, per=None, trials=3, over={"local.optimizer.lr": [1e-3, 1e3, 1e-2]}
    )
    gone = [trial.last.objectives[0].diverged for trial in found.methods[0].trials]
    assert sum(gone) == 1
    assert found.methods[0].values["local.optimizer.lr"] < 1
    assert "diverged" in (tmp_path / "trials.csv").read_text()
    assert (
        "1 of 3 trials diverged, which counts as the worst of all"
        in (tmp_path / "report.html").read_text()
    )


def test_training_that_gets_worse_late_is_said(tmp_path: Path) -> None:
    found = tuned(tmp_path, trials=2, test_seeds=[], rounds_first=2, factor=2, **ONE)
    method = found.methods[0]
    # as if its last rounds had diverged
    end = replace(method.best.last, objectives=(ObjectiveValue(0.1, True, -0.1),))
    best = replace(
        method.best, steps=(replace(end, objectives=(ObjectiveValue(0.99, True, -0.99),)), end)
    )
    trials = tuple(best if one.number == best.number else one for one in method.trials)
    said = worries(replace(found, methods=(replace(method, trials=trials, best=best),)))
    assert (
        f"iris: the chosen values end at 0.1000, and trial {best.number + 1} had 0.9900 after 0.5 "
        "of a run: training" in said[-1]
    )


def test_a_run_that_fails_stops_the_study_with_its_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from motley.experiments import sweep

    plain = sweep.run_in
    calls = []

    def failing(*given: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise StoreError("cannot write x: No space left on device")
        return plain(*given, **more)

    monkeypatch.setattr(sweep, "run_in", failing)
    with pytest.raises(
        UserError,
        match=r"fedavg, trial 2: lr = [\d.]+, seed 0: cannot write x.*the same command goes on",
    ):
        tuned(tmp_path)
    monkeypatch.setattr(sweep, "run_in", plain)
    assert len(tuned(tmp_path).methods[0].trials) == 3


def test_folders_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(StoreError, match=r"holds files that are no study \(x.txt, ...\)"):
        tuned(tmp_path)
    tuned(tmp_path / "study", trials=1)
    with pytest.raises(StoreError, match="holds another study; choose another output folder"):
        tuned(tmp_path / "study", trials=2)


def test_a_damaged_journal_is_said(tmp_path: Path) -> None:
    tuned(tmp_path, trials=1, test_seeds=[], **ONE)
    path = tmp_path / "trials.log"
    whole = path.read_text()
    for content in ("nonsense\n", '{"a": 1}\n', '{"op_code": 5, "worker_id": "x"}\n'):
        path.write_text(whole + content + whole)
        with pytest.raises(StoreError, match=r"trials.log is damaged .*remove the study's folder"):
            tuned(tmp_path, trials=1, test_seeds=[], **ONE)


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line is written before the disk is full; when there is room again, the study goes
    on."""
    from optuna.storages.journal import JournalFileBackend

    plain = JournalFileBackend.append_logs
    calls = []

    def full(self: Any, logs: Any) -> None:
        calls.append(1)
        if len(calls) < 12:
            plain(self, logs)
        else:
            with (tmp_path / "trials.log").open("a") as file:
                file.write('{"op_co')
            raise OSError(28, "x")

    monkeypatch.setattr(JournalFileBackend, "append_logs", full)
    with pytest.raises(StoreError, match=r"cannot write .*trials.log: No space left on device"):
        tuned(tmp_path, **ONE)
    monkeypatch.setattr(JournalFileBackend, "append_logs", plain)
    assert len(tuned(tmp_path, **ONE).methods[0].trials) == 3


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = (
        'name = "iris"\ntask = { name = "tabular", data = "iris" }\npopulation = 4\ncohort = '
        "2\nstop = { rounds = 2 }\n"
    )
    (tmp_path / "x.toml").write_text(lines + "evaluate = { every = 1 }\n")
    words = [
        "tune",
        "x.toml",
        "--over",
        "local.optimizer.lr=log:0.01..1",
        "--per",
        PER,
        "--trials",
        "2",
        "--test-seeds",
        "5,6",
    ]
    assert cli.call(words) == 0
    shown = capsys.readouterr()
    assert (
        "2 trials a method, each with seeds 0: 2 run-equivalents a method, 4 in all; then 4 test "
        "runs" in shown.err
    )
    assert "split.validation = 0.2 was added to every run" in shown.err
    assert "the first run took" in shown.err
    assert "against fedavg" in shown.out
    (folder,) = (tmp_path / "runs" / "iris-tuned").iterdir()
    assert sorted(file.name for file in (folder / "tuned").iterdir()) == [
        "fedavg.toml",
        "fedprox.toml",
    ]
    assert cli.call(["run", str(folder / "tuned" / "fedprox.toml")]) == 0


def test_without_optuna_the_command_to_install_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        ConfigError,
        match=r"tuning needs Optuna, which is not installed; run: pip install "
        r"'./packages/motley-advice\[tune\]' in a checkout",
    ):
        motley.tune(KEYS, OVER)


def test_without_the_distribution_of_clusters_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ("command", "data", "function", "preparation", "task")
    others = [p for name in groups for p in metadata.entry_points(group=f"motley.{name}")]
    monkeypatch.setattr(extensions, "_entry_points", lambda: metadata.EntryPoints(others))
    with pytest.raises(ConfigError, match="on_ray: 'ray' comes with motley-ray, which is not"):
        tuned(tmp_path / "study", on_ray="auto")
