"""A study of private runs keeps their secret, and does not go on with other data."""

import stat
from pathlib import Path

import pytest

import motley
from motley.core.errors import StoreError
from motley.core.files import SECRET
from tests.motley_privacy.test_run_secret import table

pytest.importorskip("dp_accounting")
pytest.importorskip("optuna")


def test_a_study_of_private_runs_does_not_go_on_with_other_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"over": {"local.optimizer.lr": [0.05, 0.1]}, "trials": 2, "out": "study"}
    validated = {"split": {"validation": 0.3}}
    motley.tune({**table(["no", "yes", "no"]), **validated}, **options, seeds=[0], test_seeds=[1])
    assert stat.S_IMODE(Path("study", SECRET).stat().st_mode) == 0o600
    with pytest.raises(StoreError, match="study is of other data than these"):
        motley.tune({**table(["yes"] * 3), **validated}, **options, seeds=[0], test_seeds=[1])
