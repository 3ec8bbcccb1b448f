"""A run that has ended goes on under a later ``stop``, and ends as one that was that long from its
start."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from motley.core.errors import StoreError
from motley.experiments.config import Experiment
from motley.experiments.run import run
from motley.experiments.sweep import compare
from motley.rounds.checkpoint import Checkpoints
from motley.rounds.loop import RoundLoop
from tests.motley.resume.conftest import assert_same, make
from tests.motley.resume.test_resume import Crash, Unbroken, _crash_after

TENTH = {"name": "constant", "average": 0.1}
KINDS: dict[str, dict[str, Any]] = {
    "a probing selector with memory": {},
    "asynchronous": {"selector": "uniform", "algorithm": "fedavg", "synchrony": "asynchronous"},
    "client state in RAM": {"selector": "uniform", "algorithm": "scaffold"},
    "client state on disk": {
        "selector": "uniform",
        "algorithm": "scaffold",
        "client_state": "disk",
    },
    "error feedback": {
        "selector": "uniform",
        "compressor": "topk",
        "feedback": "ef21",
        "weights": "uniform",
        "budget": TENTH,
    },
    # which is round 3, for nothing is learned after it: whoever forgets it names a later one
    "the best round by validation": {
        "split": {"test": "client", "validation": 0.25},
        "local": {"lr_schedule": {"name": "milestones", "rounds": [3], "decay": 1e-30}},
    },
    "drift": {
        "selector": "uniform",
        "algorithm": "feddyn",
        "drift": {"name": "window", "share": 0.5},
    },
    "privacy": {
        "selector": "uniform",
        "algorithm": "fedavg",
        "weights": "uniform",
        "task": {
            "name": "image",
            "data": "digits",
            "model": "digits_mlp",
            "scale": "unit",
        },
        "privacy": {
            "clip": 0.5,
            "noise_multiplier": 2.0,
            "delta": 1e-5,
            "max_rounds": 30,
            "noise_seed": 0,
        },
    },
}
# 5 is no multiple of 3: the model was evaluated there only because the run ended
ROUNDS = 5
LONGER = 10


def _longer(experiment: Experiment, rounds: int = LONGER) -> Experiment:
    return experiment.replace({"stop.rounds": rounds})


@pytest.mark.parametrize("keys", KINDS.values(), ids=KINDS)
def test_an_extended_run_is_the_long_run(
    keys: dict[str, Any], tmp_path: Path, unbroken: Unbroken
) -> None:
    experiment = make(rounds=ROUNDS, **keys)
    whole = unbroken(_longer(experiment))
    first = run(experiment, out=tmp_path / "run")
    assert ROUNDS in first.column("evaluations", "round")
    extended = run(_longer(experiment), out=tmp_path / "run", resume=True)
    assert_same(whole, extended)
    best = [one.directory / "best.safetensors" for one in (whole, extended)]
    assert best[0].exists() == ("split" in keys) == best[1].exists()
    assert "split" not in keys or best[0].read_bytes() == best[1].read_bytes()
    assert whole.meta.get("best") == extended.meta.get("best")
    assert "split" not in keys or extended.meta["best"]["round"] == 3
    assert extended.config["stop"]["rounds"] == LONGER
    assert extended.finished
    counted = extended.tables["privacy"].column("round").to_pylist()
    assert counted == (12 * [LONGER] if "privacy" in keys else [])


@pytest.mark.parametrize(
    "keys", [KINDS["client state on disk"], KINDS["error feedback"]], ids=["disk", "feedback"]
)
@pytest.mark.parametrize("steps", [1, 4, 5])
def test_killed_while_it_is_extended(
    keys: dict[str, Any], steps: int, tmp_path: Path, unbroken: Unbroken
) -> None:
    experiment = make(rounds=ROUNDS, **keys)
    whole = unbroken(_longer(experiment))
    run(experiment, out=tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundLoop, "step", _crash_after(steps, RoundLoop.step, steps == 1))
        with pytest.raises(Crash):
            run(_longer(experiment), out=tmp_path / "run", resume=True)
    with pytest.raises(StoreError, match="interrupted; go on with --resume"):
        run(_longer(experiment), out=tmp_path / "run")
    assert_same(whole, run(_longer(experiment), out=tmp_path / "run", resume=True))


def test_an_interrupted_run_may_be_given_another_end(tmp_path: Path, unbroken: Unbroken) -> None:
    experiment = make(rounds=ROUNDS)
    whole = unbroken(_longer(experiment, 14))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundLoop, "step", _crash_after(10, RoundLoop.step, True))
        with pytest.raises(Crash):
            run(_longer(experiment, 20), out=tmp_path / "run")
    with pytest.raises(
        StoreError,
        match=r"holds this run up to round 8 already, which is as far as round 8 or further",
    ):
        run(_longer(experiment, 8), out=tmp_path / "run", resume=True)
    assert_same(whole, run(_longer(experiment, 14), out=tmp_path / "run", resume=True))


def test_one_checkpoint_stays_and_none_where_it_is_not_wanted(tmp_path: Path) -> None:
    experiment = make(rounds=ROUNDS)
    kept = run(experiment, out=tmp_path / "1")
    dropped = run(experiment.replace({"checkpoint.keep": False}), out=tmp_path / "2")
    assert [path.name for path in (kept.directory / "checkpoints").iterdir()] == [
        "checkpoint-00000005.mtly"
    ]
    assert not (dropped.directory / "checkpoints").exists()
    assert kept.meta["run_id"] == dropped.meta["run_id"]
    before = (dropped.directory / "run.json").read_text()
    with pytest.raises(
        StoreError,
        match=r"to round 5 without its last checkpoint .* cannot be continued to round 10; choose",
    ):
        run(_longer(experiment), out=tmp_path / "2", resume=True)
    assert (dropped.directory / "run.json").read_text() == before


def test_the_end_of_a_run_is_never_changed_by_accident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default folder is the same for every end; the earlier run in it stays as it is."""
    monkeypatch.chdir(tmp_path)
    experiment = make(rounds=4)
    run(experiment)
    with pytest.raises(
        StoreError, match=r"holds this run to round 4; --resume continues it to round 6"
    ):
        run(_longer(experiment, 6))
    six = run(_longer(experiment, 6), resume=True)
    for resume in (False, True):
        with pytest.raises(
            StoreError,
            match=r"holds this run to round 6 already, which is as far as round 4 or further: its "
            r"tables",
        ):
            run(experiment, resume=resume)
    hours = experiment.replace({"stop": {"virtual_hours": 1e-6}})
    with pytest.raises(
        StoreError,
        match=r"up to round 6 already, which is as far as stop = \{ virtual_hours = 1e-06 \}",
    ):
        run(hours, resume=True)
    assert run(_longer(experiment, 6)).directory == six.directory


def test_another_limit_may_take_over(tmp_path: Path, unbroken: Unbroken) -> None:
    experiment = make(rounds=4)
    first = run(experiment, out=tmp_path / "run")
    hours = {"stop": {"virtual_hours": 2.5 * first.column("rounds", "time_s")[-1] / 3600}}
    whole = unbroken(experiment.replace(hours))
    assert len(whole.column("rounds", "round")) > 4
    assert_same(whole, run(experiment.replace(hours), out=tmp_path / "run", resume=True))


def test_a_target_that_an_earlier_evaluation_reached_is_refused(tmp_path: Path) -> None:
    experiment = make(rounds=6)
    first = run(experiment, out=tmp_path / "run")
    rows = zip(
        first.column("evaluations", "scope"), first.column("evaluations", "accuracy"), strict=True
    )
    best = max(accuracy for scope, accuracy in rows if scope == "mean")
    reached = experiment.replace({"stop": {"rounds": 8, "target": {"accuracy": best}}})
    with pytest.raises(
        StoreError, match=r"which is as far as stop = \{ rounds = 8, target = \{ accuracy = "
    ):
        run(reached, out=tmp_path / "run", resume=True)
    beyond = experiment.replace({"stop": {"rounds": 8, "target": {"accuracy": 1.0}}})
    assert len(run(beyond, out=tmp_path / "run", resume=True).column("rounds", "round")) == 8


def test_early_stopping_looks_at_validation_samples_and_goes_on_with_more_patience(
    tmp_path: Path, unbroken: Unbroken
) -> None:
    held = {"split": {"test": "client", "validation": 0.25}, "evaluate": {"every": 1}}
    experiment = make(rounds=12, **held, local={"optimizer": {"lr": 1.0}})
    impatient = experiment.replace({"stop": {"rounds": 12, "patience": 1, "metric": "loss"}})
    patient = experiment.replace({"stop": {"rounds": 12, "patience": 3, "metric": "loss"}})
    first = run(impatient, out=tmp_path / "run")
    assert impatient.run_id() == experiment.run_id()
    rows = zip(
        first.column("evaluations", "scope"), first.column("evaluations", "loss"), strict=True
    )
    losses = [loss for scope, loss in rows if scope == "validation_mean"][1:]
    falls = [after < before for before, after in pairwise(losses)]
    assert falls == [True] * (len(losses) - 2) + [False]
    assert len(losses) < 12
    whole = unbroken(patient)
    assert len(whole.column("rounds", "round")) > len(losses)
    assert_same(whole, run(patient, out=tmp_path / "run", resume=True))
    # as far as the first, or further
    for sooner in ({"rounds": 13, "patience": 1, "metric": "loss"}, {"patience": 1}):
        with pytest.raises(StoreError, match=r"which is as far as stop = .*patience = 1"):
            run(experiment.replace({"stop": sooner}), out=tmp_path / "run", resume=True)


LOOKING: dict[str, dict[str, Any]] = {
    "selector": {"selector": {"name": "power_of_choice", "variant": "adapow_d"}},
    "local.lr_schedule": {"local": {"epochs": 1, "lr_schedule": "linear"}},
    "budget": {"selector": "uniform", "compressor": "topk", "budget": "cosine"},
    "evaluate.diagnostics": {"selector": "uniform", "evaluate": {"every": 3, "diagnostics": True}},
}


@pytest.mark.parametrize(("key", "keys"), LOOKING.items(), ids=LOOKING)
def test_where_a_rule_looks_at_the_end_a_longer_run_is_another_one(
    key: str, keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = make(rounds=2, **keys)
    assert experiment.horizon_keys() == [key]
    short = run(experiment)
    longer = _longer(experiment, 4)
    with pytest.raises(
        StoreError,
        match=rf"holds this run to round 2, and {key} looked at that end from round 1: a run to "
        rf"round 4",
    ):
        run(longer, out=short.directory, resume=True)
    with pytest.raises(
        StoreError,
        match=rf"{key} looked at that end .* begin it in another output folder, without --resume",
    ):
        run(longer, resume=True)
    assert run(longer).directory != short.directory


def test_ids_with_and_without_the_end() -> None:
    plain = make(rounds=2)
    annealed = make(rounds=2, **LOOKING["selector"])
    assert (
        plain.run_id()
        == _longer(plain).run_id()
        == plain.replace({"stop": {"uplink_gb": 1.0}}).run_id()
    )
    assert annealed.run_id() != _longer(annealed).run_id()
    for one in (plain, annealed):
        assert one.result_id() != _longer(one).result_id()
    assert (
        plain.run_id() == plain.replace({"checkpoint.keep": False, "client_state": "disk"}).run_id()
    )


def test_sweeps_over_the_end_do_not_meet_and_longer_ones_extend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = make(rounds=2)
    ends = compare(experiment, {"stop.rounds": [2, 4]}, out=tmp_path / "ends")
    assert not ends.failures
    assert [len(one.column("rounds", "round")) for one in ends.runs] == [2, 4]
    assert len({one.directory for one in ends.runs}) == 2
    first = compare(experiment, seeds=[0, 1], out=tmp_path / "seeds")
    asked: list[int] = []
    step = RoundLoop.step
    monkeypatch.setattr(RoundLoop, "step", lambda self: asked.append(1) or step(self))
    second = compare(_longer(experiment, 3), seeds=[0, 1], out=tmp_path / "seeds")
    assert [one.directory for one in first.runs] == [one.directory for one in second.runs]
    assert len(asked) == 2  # a round each


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    experiment = make(rounds=2)
    other = make(rounds=2, seed=1)
    for name, one in (("a", experiment), ("b", other)):
        run(one, out=tmp_path / name)
    stolen = next((tmp_path / "b" / "checkpoints").iterdir())
    (tmp_path / "a" / "checkpoints" / stolen.name).write_bytes(stolen.read_bytes())
    with pytest.raises(
        StoreError,
        match=rf"is a checkpoint of another run \({other.run_id()}, of Motley .*\); this one is",
    ):
        run(_longer(experiment, 4), out=tmp_path / "a", resume=True)
    saved = Checkpoints(tmp_path / "b" / "checkpoints", other.run_id()).load()
    assert saved is not None
    assert saved["run"] == json.loads((tmp_path / "b" / "run.json").read_text())["run_id"]
