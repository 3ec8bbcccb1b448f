"""Every tracker holds each round once, also of runs that went on; one that fails costs a warning
and nothing else."""

from __future__ import annotations

import errno
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import motley
from motley.results.schema import EQUAL_TABLES
from motley.rounds.run_config import RoundSummary
from tests.motley.experiments.trackers.backends import BACKENDS, Backend, Make

KEYS: dict[str, Any] = {
    "name": "small",
    "population": 6,
    "cohort": 2,
    "stop": {"rounds": 5},
    "task": "quadratic",
    "partition": "by_writer",
    "evaluate": {"every": 2},
    "checkpoint": {"every_rounds": 2},
}


@pytest.fixture(params=BACKENDS)
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    make: Make = request.param
    return make(monkeypatch)


def run(out: Path, *names: str, **keys: Any) -> tuple[motley.TrainedRun, list[str]]:
    """Return a run, and what trackers warned of."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        done = motley.run({**KEYS, "log": list(names), **keys}, out=out, resume=True)
    return done, [str(one.message) for one in seen if str(one.message).startswith("log:")]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> motley.TrainedRun:
    return run(tmp_path_factory.mktemp("plain") / "run")[0]


def stop_at(round: int) -> Any:
    def stop(done: RoundSummary) -> None:
        if done.round == round:
            raise KeyboardInterrupt  # no checkpoint is written: as if the process were killed

    return stop


def same(one: motley.TrainedRun, other: motley.TrainedRun) -> bool:
    return all(one.tables[name].equals(other.tables[name]) for name in EQUAL_TABLES)


def test_the_store_says_what_the_tables_say(tool: Backend, tmp_path: Path) -> None:
    done, said = run(tmp_path / "run", tool.name)
    assert said == []
    found = tool.steps(tmp_path / "run")
    for name in ("train_loss", "time_s", "accepted"):
        assert list(found[name]) == [1, 2, 3, 4, 5]
        assert list(found[name].values()) == pytest.approx(
            done.column("rounds", name).tolist(), rel=1e-6
        )
    bytes_sent = (done.column("rounds", "total_bits") / 8).tolist()
    assert list(found["traffic_bytes"].values()) == pytest.approx(bytes_sent, rel=1e-6)
    evaluations = done.tables["evaluations"].to_pylist()
    losses = {
        row["round"]: row["loss"]
        for row in evaluations
        if row["scope"] == "mean" and row["round"] > 0
    }
    assert list(losses) == [2, 4, 5]
    assert found["loss"] == pytest.approx(losses, rel=1e-6)
    assert "accuracy" not in found  # a quadratic has none


def test_a_run_that_was_interrupted_is_held_as_one_that_was_not(
    tool: Backend, tmp_path: Path
) -> None:
    run(tmp_path / "whole", tool.name)
    with pytest.raises(KeyboardInterrupt):
        motley.run({**KEYS, "log": [tool.name]}, out=tmp_path / "run", on_round=stop_at(3))
    assert list(tool.steps(tmp_path / "run")["train_loss"]) == [1, 2, 3]
    # from the checkpoint of round 2: round 3 is run again
    done, said = run(tmp_path / "run", tool.name)
    assert (said, same(done, motley.load(tmp_path / "whole"))) == ([], True)
    assert tool.steps(tmp_path / "run") == tool.steps(tmp_path / "whole")


def test_a_run_that_never_had_a_checkpoint_begins_again(tool: Backend, tmp_path: Path) -> None:
    keys = {**KEYS, "log": [tool.name], "checkpoint": {"every_rounds": 99}}
    with pytest.raises(KeyboardInterrupt):
        motley.run(keys, out=tmp_path / "run", on_round=stop_at(3))
    run(tmp_path / "run", tool.name, checkpoint={"every_rounds": 99})
    found = tool.steps(tmp_path / "run")
    assert list(found["train_loss"]) == [1, 2, 3, 4, 5]


def test_a_run_that_is_extended_goes_on(tool: Backend, tmp_path: Path) -> None:
    run(tmp_path / "run", tool.name, stop={"rounds": 4})
    run(tmp_path / "run", tool.name, stop={"rounds": 8})
    run(tmp_path / "whole", tool.name, stop={"rounds": 8})
    longer = tool.steps(tmp_path / "run")
    whole = tool.steps(tmp_path / "whole")
    assert {name: longer[name] for name in ("train_loss", "loss", "time_s")} == {
        name: whole[name] for name in ("train_loss", "loss", "time_s")
    }


def test_one_that_is_added_when_a_run_goes_on_has_all_rounds(tool: Backend, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        motley.run(KEYS, out=tmp_path / "run", on_round=stop_at(3))
    run(tmp_path / "run", tool.name)
    run(tmp_path / "whole", tool.name)
    assert tool.steps(tmp_path / "run") == tool.steps(tmp_path / "whole")


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
FAULTS = {
    "full disk at the beginning": (0, FULL),
    "full disk in the middle": (1, FULL),
    "full disk at the end": (2, FULL),
    "error in the middle": (1, RuntimeError("broken\nin pieces")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_that_fails_costs_a_warning(
    tool: Backend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plain: motley.TrainedRun,
    fault: str,
) -> None:
    place, error = FAULTS[fault]

    def fail(*args: Any, **keys: Any) -> None:
        raise error

    monkeypatch.setattr(*tool.places[place], fail)
    done, said = run(tmp_path / "run", tool.name)
    assert same(done, plain)
    assert done.finished
    reason = str(error).partition("\n")[0]
    assert said == [
        f"log: {tool.name} failed ({type(error).__name__}: {reason}); the run goes on and is no "
        "longer logged there"
    ]


def test_one_that_fails_late_keeps_what_it_has(
    tool: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, name = tool.places[1]
    works = getattr(target, name)
    calls = []

    def fail(*args: Any, **keys: Any) -> Any:
        calls.append(args)
        if len(calls) > 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return works(*args, **keys)

    monkeypatch.setattr(target, name, fail)
    _, said = run(tmp_path / "run", tool.name, stop={"rounds": 30})
    assert len(said) == 1
    assert list(tool.steps(tmp_path / "run")["train_loss"])[:2] == [1, 2]


def test_one_that_is_not_installed_costs_a_warning(
    tool: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    package = {"tensorboard": "torch.utils.tensorboard"}.get(tool.name, tool.name)
    monkeypatch.setitem(sys.modules, package, None)
    done, said = run(tmp_path / "run", tool.name)
    assert done.finished
    assert said == [
        f"log: {tool.name} is not installed, so the run is not logged there; pip install "
        f"'./packages/motley[{tool.name}]' in a checkout of Motley"
    ]


def test_logging_changes_no_bit_and_no_id(
    tool: Backend, tmp_path: Path, plain: motley.TrainedRun
) -> None:
    logged, _ = run(tmp_path / "logged", tool.name)
    assert same(plain, logged)
    assert plain.meta["run_id"] == logged.meta["run_id"]
    assert (plain.directory / "model.safetensors").read_bytes() == (
        tmp_path / "logged/model.safetensors"
    ).read_bytes()
