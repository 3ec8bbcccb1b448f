"""What a study, a twin and an inspection write, readers of others read."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pytest

import motley
from motley.experiments.config import Experiment
from motley_advice.twin.make import twin
from tests.motley.test_written_files import ENDLESS, suffixes_read


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a study, a twin with its run, and an inspection."""
    out = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("motley.experiments.store.source_commit", lambda: None)
        motley.run(ENDLESS, out=out / "run")
        twin(out / "run", out / "twin" / "twin.toml")
        motley.tune(ENDLESS, {"local.optimizer.lr": [0.1, 0.2]}, test_seeds=[], out=out / "study")
        (out / "inspection.json").write_text(motley.inspect(ENDLESS).to_json())
    return out


def test_every_file_is_read_by_a_reader_of_others(folder: Path) -> None:
    assert suffixes_read(folder) >= {".toml", ".json", ".log", ".csv", ".parquet", ".html"}


def test_a_tuned_file_and_a_twin_are_the_experiments_that_they_were(folder: Path) -> None:
    tuned, made = (
        tomllib.loads(path.read_text())
        for path in (folder / "study" / "tuned" / "endless.toml", folder / "twin" / "twin.toml")
    )
    for keys in (tuned, made):
        assert keys["synchrony"]["seconds"] == math.inf
    rate = tuned["local"]["optimizer"]["lr"]
    assert rate in (0.1, 0.2)
    as_given = Experiment(**ENDLESS).replace({"local.optimizer.lr": rate})
    assert Experiment(**tuned).run_id() == as_given.run_id()
