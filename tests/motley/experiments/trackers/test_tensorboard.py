"""Figures for TensorBoard say what the tables say, also after a run went on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import motley
from motley.rounds.run_config import RoundSummary

KEYS: dict[str, Any] = {
    "population": 6,
    "cohort": 2,
    "stop": {"rounds": 4},
    "task": "quadratic",
    "partition": "by_writer",
    "evaluate": {"every": 2},
    "checkpoint": {"every_rounds": 1},
    "log": ["tensorboard"],
}


def points(folder: Path, tag: str) -> dict[int, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorBoard's own imports
        event_accumulator = pytest.importorskip(
            "tensorboard.backend.event_processing.event_accumulator"
        )
        events = event_accumulator.EventAccumulator(str(folder))
        events.Reload()
        return {point.step: point.value for point in events.Scalars(tag)}


@pytest.fixture(autouse=True)
def _installed() -> None:
    pytest.importorskip("tensorboard")


def test_each_round_is_a_point(tmp_path: Path) -> None:
    done = motley.run(KEYS, out=tmp_path / "run")
    board = tmp_path / "run" / "tensorboard"
    losses = points(board, "train_loss")
    assert list(losses) == [1, 2, 3, 4]
    assert list(losses.values()) == pytest.approx(
        done.column("rounds", "train_loss").tolist(), rel=1e-6
    )
    assert list(points(board, "time_s").values()) == pytest.approx(
        done.column("rounds", "time_s").tolist(), rel=1e-6
    )
    assert set(points(board, "accepted").values()) == {2.0}


def test_a_run_that_goes_on_writes_each_round_once(tmp_path: Path) -> None:
    def stop(done: RoundSummary) -> None:
        if done.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        motley.run(KEYS, out=tmp_path / "run", on_round=stop)
    motley.run(KEYS, out=tmp_path / "run", resume=True)
    assert list(points(tmp_path / "run" / "tensorboard", "train_loss")) == [1, 2, 3, 4]


def test_without_the_key_nothing_is_written(tmp_path: Path) -> None:
    motley.run({**KEYS, "log": []}, out=tmp_path / "run")
    assert not (tmp_path / "run" / "tensorboard").exists()
