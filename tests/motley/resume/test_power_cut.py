"""The power fails after any call of the operating system: the run goes on and ends with the rows of
an undisturbed one."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from motley.core.errors import UserError
from motley.experiments.config import Experiment
from motley.experiments.run import run
from motley.results.load import Run, load
from motley.results.schema import EQUAL_TABLES
from tests.motley.resume.conftest import assert_same
from tests.motley.resume.power_cut import Folder, recorded, write

QUICK = 20
"""Power cuts that are tried of each kind of run unless slow tests are asked for."""
SMALL = {
    "name": "cut",
    "population": 4,
    "cohort": 2,
    "task": {"name": "tabular", "data": "iris"},
    "stop": {"rounds": 5},
    "evaluate": {"every": 2},
    "checkpoint": {"every_rounds": 2, "every_s": 1000.0},
    "engine": {"name": "sequential", "threads": 1},
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "client state on disk": {"algorithm": "scaffold", "client_state": "disk"},
    "no checkpoint kept": {
        "checkpoint": {"every_rounds": 2, "every_s": 1000.0, "keep": False},
        "split": {"validation": 0.2},
    },
}


def _check(folder: Folder, path: Path, experiment: Experiment, whole: Run) -> None:
    """What is read is what was written, and what goes on ends as the undisturbed run."""
    write(folder, path)
    try:
        found = load(path)
    except UserError:  # it is not finished, and says so; --resume mends it
        assert b'"finished": true' not in (folder.get("run.json") or b"")
    else:
        for table in EQUAL_TABLES:
            rows = found.tables[table].num_rows
            assert found.tables[table].equals(whole.tables[table].slice(0, rows)), table
            assert rows == whole.tables[table].num_rows or not found.finished, table
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert_same(whole, run(experiment, out=path, resume=True))
    # the newest durable one always counts
    assert not [one for one in said if "checkpoint" in str(one.message)]
    left = {
        file.name
        for file in path.rglob("*")
        if not file.name.endswith((".parquet", ".safetensors"))
    }
    assert left <= {
        "run.json",
        "preparation.json",
        "checkpoints",
        "checkpoint-00000005.mtly",
        "memories.rows",
    }


def _sampled(found: list[tuple[str, Folder]], everything: bool) -> list[tuple[str, Folder]]:
    return found if everything else random.Random(0).sample(found, min(QUICK, len(found)))


@pytest.mark.parametrize("everything", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_after_any_power_cut_a_run_ends_with_all_its_rows(
    kind: str, everything: bool, tmp_path: Path
) -> None:
    experiment = Experiment(**{**SMALL, **KINDS[kind]})
    whole = run(experiment, out=tmp_path / "whole")
    with recorded(tmp_path / "run") as cuts:
        run(experiment, out=tmp_path / "run")
    assert len(cuts.found) > 100
    assert any(b'"finished": true' in (folder.get("run.json") or b"") for _, folder in cuts.found)
    for number, (when, folder) in enumerate(_sampled(cuts.found, everything)):
        try:
            _check(folder, tmp_path / str(number), experiment, whole)
        except Exception as error:
            raise AssertionError(f"{when}: {sorted(folder)}") from error


@pytest.mark.parametrize("everything", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_after_any_power_cut_an_extended_run_ends_with_all_its_rows(
    everything: bool, tmp_path: Path
) -> None:
    """It was evaluated at the end of round 3 only because it ended there."""
    experiment = Experiment(**SMALL)
    short = experiment.replace({"stop.rounds": 3})
    whole = run(experiment, out=tmp_path / "whole")
    run(short, out=tmp_path / "run")
    with recorded(tmp_path / "run") as cuts:
        run(experiment, out=tmp_path / "run", resume=True)
    for number, (when, folder) in enumerate(_sampled(cuts.found, everything)):
        try:
            _check_extended(folder, tmp_path / str(number), experiment, whole)
        except Exception as error:
            raise AssertionError(f"{when}: {sorted(folder)}") from error


def _check_extended(folder: Folder, path: Path, experiment: Experiment, whole: Run) -> None:
    write(folder, path)
    assert_same(whole, run(experiment, out=path, resume=True))
