"""Runs of one process whose clients train together, against the same runs one after the other. On
the CPU, where nobody chooses it: what a GPU gains by it is not measured here."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from motley.engines.chunk import Chunk, joining
from motley.engines.joint_chunks import JointComputation
from motley.engines.stacked import StackedLinear
from motley.experiments import run as run_module
from motley.experiments import sweep
from motley.experiments.chosen_jobs import MOST_JOINT, joint_runs, size_of
from motley.experiments.config import Experiment
from motley.experiments.joint_runs import run_jointly
from motley.experiments.sweep import Failure, compare, expand, run_points
from motley.experiments.trained import TrainedRun
from motley.results.schema import EQUAL_TABLES
from tests.motley.engines.pretend_device import (
    DEVICE,
    PretendDevice,
    _Functions,
    _Operations,
)
from tests.motley.resume.conftest import assert_same

KEYS: dict[str, Any] = {
    "name": "joint",
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 30,
    "cohort": 4,
    "partition": "iid",
    "stop": {"rounds": 3},
    "evaluate": {"every": 1},
    # 47 samples or 48 of each client: batches of 16 are full for two steps
    "local": {"steps": 2, "batch_size": 16},
    "engine": {"name": "auto", "threads": 1},
}
UNEVEN = {
    **KEYS,
    "partition": {"name": "dirichlet", "alpha": 0.3},
    "local": {"epochs": 2, "batch_size": 16},
}
METHODS = {"algorithm.name": ["fedavg", "scaffold"]}


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """How many runs each chunk held, computation by computation."""
    seen: list[list[int]] = []
    plain = JointComputation.compute

    def compute(self: JointComputation, works: Any) -> Any:
        outcomes = plain(self, works)
        seen.append(self.sizes)
        return outcomes

    monkeypatch.setattr(JointComputation, "compute", compute)
    return seen


def made(
    out: Path,
    keys: dict[str, Any],
    over: dict[str, list[Any]],
    seeds: list[int],
    jointly: bool = True,
    jobs: int = 32,
) -> tuple[list[TrainedRun], list[Failure]]:
    points = expand(Experiment(**keys), over, seeds)
    return run_points(
        points,
        [point.folder(out) for point in points],
        None,
        jobs=jobs if jointly else 1,
        jointly=jointly,
    )


def both(
    tmp_path: Path, keys: dict[str, Any], over: dict[str, list[Any]], seeds: list[int]
) -> Iterator[tuple[TrainedRun, TrainedRun]]:
    """Make the runs one after the other and together; yield the pairs."""
    alone, none_failed = made(tmp_path / "alone", keys, over, seeds, jointly=False)
    together, failed = made(tmp_path / "together", keys, over, seeds)
    assert not none_failed
    assert not failed
    for one, other in zip(alone, together, strict=True):
        assert one.meta["run_id"] == other.meta["run_id"]
        yield one, other


def assert_close(one: TrainedRun, other: TrainedRun, tolerance: float) -> None:
    """Weights and tables agree, what is counted exactly, other numbers to a relative tolerance."""
    weights, others = (load_file(run.directory / "model.safetensors") for run in (one, other))
    for name, weight in weights.items():
        assert float((weight - others[name]).abs().max()) <= tolerance * float(weight.abs().max())
    for table in EQUAL_TABLES:
        first, second = one.tables[table], other.tables[table]
        assert first.schema == second.schema
        for name in first.column_names:
            values, expected = second[name], first[name]
            if pa.types.is_floating(expected.type):
                np.testing.assert_allclose(
                    values.to_numpy(), expected.to_numpy(), rtol=tolerance, atol=tolerance
                )
            else:
                assert values.equals(expected), f"the columns {table}.{name} differ"


@pytest.mark.parametrize("engine", ["batched", "vmap"])
def test_full_batches_have_the_bits_of_each_run_alone(
    tmp_path: Path, sizes: list[list[int]], engine: str
) -> None:
    """Six runs of two methods in one chunk, each round. SCAFFOLD's corrections are nothing to
    FedAvg's clients beside."""
    keys = {**KEYS, "engine": {"name": engine, "threads": 1}}
    for one, other in both(tmp_path, keys, METHODS, [0, 1, 2]):
        assert_same(one, other)
        assert {**one.meta["numerics"], "joint": True} == other.meta["numerics"]
    assert sizes == [[6]] * 3


def test_batches_of_several_lengths_and_rates_agree_to_rounding(
    tmp_path: Path, sizes: list[list[int]]
) -> None:
    """A step adds up at most 64 terms, so that it errs by 64 units in the last place at most, and a
    model by those of all steps one after the other."""
    over = {"algorithm.name": ["fedavg", "fedprox", "scaffold"]}
    for one, other in both(tmp_path, {**UNEVEN, "dtype": "float64"}, over, [0, 1]):
        steps = 3 * int(one.column("clients", "local_steps").max())
        assert steps < 100
        assert_close(one, other, 64 * 2.0**-53 * steps)
    assert sizes == [[6]] * 3


@pytest.mark.parametrize(
    "keys",
    [
        {"local": {**KEYS["local"], "optimizer": {"name": "adam", "lr": 0.01}}},
        {"selector": "power_of_choice", "metrics": ["accuracy", "macro_f1"]},
        {"selector": "feel", "weights": "selector"},
        {"algorithm": {"name": "fine_tuned", "method": "fedavg", "steps": 2}, "cohort": 3},
        {"precision": "bfloat16"},
        {"drift": {"name": "swap", "start": 1.0, "share": 1.0}},
        {"algorithm": "fedlc"},
        {"algorithm": "fedrep", "split": {"test": "client"}},
    ],
    ids=lambda keys: "-".join(map(str, keys)),
)
def test_probes_phases_fine_tuning_and_drift(
    tmp_path: Path, sizes: list[list[int]], keys: dict[str, Any]
) -> None:
    for one, other in both(tmp_path, {**KEYS, "dtype": "float32", **keys}, {}, [0, 1]):
        assert_same(one, other)
    assert [2] in sizes


def test_runs_of_several_lengths_end_by_themselves_and_others_begin(
    tmp_path: Path, sizes: list[list[int]]
) -> None:
    """Two at a time: of 1 and 3 rounds, and then of 1 and 2 beside the longer one."""
    points = [
        point
        for rounds, seed in ((1, 0), (3, 1), (1, 2), (2, 3))
        for point in expand(Experiment(**{**KEYS, "stop": {"rounds": rounds}}), seeds=[seed])
    ]
    folders = [tmp_path / "together" / str(i) for i in range(4)]
    order: list[int] = []
    together, _ = run_points(
        points, folders, None, jobs=2, jointly=True, on_end=lambda run: order.append(run.seed)
    )
    assert sizes == [[2], [2], [2], [1]]
    assert order == [0, 2, 1, 3]
    alone, _ = run_points(points, [tmp_path / "alone" / str(i) for i in range(4)], None)
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


def test_models_that_differ_are_computed_apart_and_other_engines_alone(
    tmp_path: Path, sizes: list[list[int]]
) -> None:
    models = ["digits_mlp", "linear", {"name": "digits_mlp", "norm": "batch"}]
    for one, other in both(tmp_path, KEYS, {"task.model": models}, [0, 1]):
        assert_same(one, other)
        # BatchNorm is trained client by client
        assert other.meta["numerics"].get("joint", False) == (
            one.meta["numerics"]["engine"] != "threads"
        )
    assert sizes == [[2, 2]] * 3


def test_augmented_images_are_trained_run_by_run(tmp_path: Path, sizes: list[list[int]]) -> None:
    keys = {**KEYS, "task": {**KEYS["task"], "augment": "crop_flip"}}
    for one, other in both(tmp_path, keys, {}, [0, 1]):
        assert_same(one, other)
        assert "joint" not in other.meta["numerics"]
    assert sizes == []


# ------------------------------------------------------------------------------------------- errors


def _failing_step(monkeypatch: pytest.MonkeyPatch, action: Any, seed: int, version: int) -> None:
    """Let a run do something in place of a round."""
    plain = run_module.written_step

    def step(loop: Any, *args: Any) -> Any:
        if (loop.setting.streams.seed, loop.state.version) == (seed, version):
            action()
        return plain(loop, *args)

    monkeypatch.setattr(run_module, "written_step", step)


def test_an_error_ends_its_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {run.seed: run for run in made(tmp_path / "alone", KEYS, {}, [0, 2], False)[0]}

    def fail() -> None:
        raise ZeroDivisionError("in mid-way")

    with monkeypatch.context() as patched:
        _failing_step(patched, fail, seed=1, version=1)
        runs, failures = made(tmp_path / "together", KEYS, {}, [0, 1, 2])
    assert [(one.point.experiment.seed, str(one.error)) for one in failures] == [(1, "in mid-way")]
    assert [run.seed for run in runs] == [0, 2]
    for run in runs:
        assert_same(expected[run.seed], run)
    assert len(made(tmp_path / "together", KEYS, {}, [0, 1, 2])[0]) == 3


def test_what_cannot_be_computed_together_is_run_by_run_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four clients of each run; eight are too many here, as where memory ends, and those of seed 1
    fail by themselves, too."""
    plain = StackedLinear.run

    def run(self: StackedLinear, chunk: Chunk) -> Any:
        if len(chunk) > 4:
            raise MemoryError("eight clients")
        if chunk.setting.streams.seed == 1:
            raise ArithmeticError("seed 1")
        return plain(self, chunk)

    alone, _ = made(tmp_path / "alone", KEYS, {}, [0], False)
    monkeypatch.setattr(StackedLinear, "run", run)
    with pytest.warns(UserWarning, match="clients of 2 runs .* run by run: MemoryError: eight"):
        runs, failures = made(tmp_path / "together", KEYS, {}, [0, 1])
    assert "the local work of clients" in str(failures[0].error)
    assert str(failures[0].error.__cause__) == "seed 1"
    assert_same(alone[0], runs[0])


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell may have the signal ignored, as it does for what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def threads() -> set[threading.Thread]:
    """Those of the process before the test; another test's may be among them."""
    return set(threading.enumerate())


def _resumes(tmp_path: Path, folder: Path, threads: set[threading.Thread]) -> None:
    """The runs of a folder go on to what they are without an interruption; no thread is left."""
    assert set(threading.enumerate()) <= threads
    for one, other in zip(
        made(tmp_path / "alone", KEYS, METHODS, [0, 1], False)[0],
        made(folder, KEYS, METHODS, [0, 1])[0],
        strict=True,
    ):
        assert_same(one, other)


def test_an_interruption_of_the_computation_ends_all_runs_which_go_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: set[threading.Thread]
) -> None:
    keys = {**KEYS, "checkpoint": {"every_rounds": 1}}
    plain = JointComputation.compute
    count = iter(range(99))

    def compute(self: JointComputation, works: Any) -> Any:
        if next(count) == 2:
            raise KeyboardInterrupt
        return plain(self, works)

    with monkeypatch.context() as patched:
        patched.setattr(JointComputation, "compute", compute)
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path / "cut", keys, METHODS, [0, 1])
    cut = sorted((tmp_path / "cut").rglob("run.json"))
    assert len(cut) == 4
    assert not any('"finished": true' in path.read_text() for path in cut)
    _resumes(tmp_path, tmp_path / "cut", threads)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_runs_own_turn_ends_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: set[threading.Thread]
) -> None:
    """The signal is the main thread's, which waits; the run that computes is told of it."""
    ended: list[str] = []

    def stop() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(3_000):
                threading.Event().wait(0.01)
        except KeyboardInterrupt:
            ended.append(threading.current_thread().name)
            raise

    with monkeypatch.context() as patched:
        _failing_step(patched, stop, seed=1, version=1)
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path / "cut", KEYS, METHODS, [0, 1])
    assert len(ended) == 1
    assert ended != [threading.main_thread().name]
    _resumes(tmp_path, tmp_path / "cut", threads)


def test_an_error_in_on_end_ends_all_runs(tmp_path: Path, threads: set[threading.Thread]) -> None:
    def fail(run: TrainedRun) -> None:
        raise LookupError(str(run.seed))

    points = expand(Experiment(**KEYS), {"stop.rounds": [1, 3]}, seeds=[0])
    folders = [tmp_path / str(i) for i in range(2)]
    with pytest.raises(LookupError, match="0"):
        run_points(points, folders, None, jobs=2, jointly=True, on_end=fail)
    assert set(threading.enumerate()) <= threads
    assert len(run_points(points, folders, None, jobs=2, jointly=True)[0]) == 2


# ------------------------------------------------------------------------ what belongs to a process


def test_the_default_type_of_one_run_is_not_anothers() -> None:
    """Each work sets one, waits, and finds it again."""
    found: dict[int, torch.dtype] = {}
    kinds = (torch.float64, torch.float16)

    def work(experiment: Any, number: int, progress: Any) -> None:
        torch.set_default_dtype(kinds[number])
        executor = joining.get()(SimpleNamespace(), _setting())  # type: ignore[misc, arg-type]
        samples: Any = SimpleNamespace(x=torch.ones(1))
        executor.train(_setting(), samples, _clients(), False)
        found[number] = torch.get_default_dtype()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("motley.experiments.joint_runs.kind_of", lambda *_: "kind")
        patched.setattr(JointComputation, "compute", lambda _, works: [([], [])] * len(works))
        calls = [{"experiment": SimpleNamespace(privacy=None), "number": i} for i in range(2)]
        assert dict(run_jointly(2, work, calls)) == {0: None, 1: None}
    assert found == dict(enumerate(kinds))
    assert torch.get_default_dtype() == torch.float32


def _setting() -> Any:
    return SimpleNamespace()


def _clients() -> Any:
    return [SimpleNamespace()]


def test_private_runs_train_for_themselves() -> None:
    """The noise of a private run is made again when it is resumed, for the same bits."""
    joins = {}

    def work(experiment: Any, progress: Any) -> None:
        joins[experiment.privacy] = joining.get() is not None

    calls = [{"experiment": SimpleNamespace(privacy=privacy)} for privacy in (None, "table")]
    assert dict(run_jointly(2, work, calls)) == {0: None, 1: None}
    assert joins == {None: True, "table": False}


def test_no_device_is_mixed_and_no_step_of_several_runs_waits(tmp_path: Path) -> None:
    """On a device that is pretended on the CPU, whose modes are each thread's own."""
    with PretendDevice() as device:

        def work(progress: Any, **call: Any) -> None:
            with _Functions(device), _Operations(device):
                sweep._one(**call, progress=progress, groups=groups)

        keys = {**UNEVEN, "engine": {"name": "batched", "device": DEVICE}, "dtype": "float64"}
        over = {"algorithm.name": ["fedprox", "scaffold"]}
        points = expand(Experiment(**keys), over, [0, 1])
        folders = [point.folder(tmp_path / "device") for point in points]
        groups = {folder.resolve(): sweep.RunGroup(tmp_path, "x", False) for folder in folders}
        calls = [
            {"experiment": point.experiment, "folder": folder, "data": None}
            for point, folder in zip(points, folders, strict=True)
        ]
        with sweep.last_kept():
            errors = dict(run_jointly(4, work, calls))
    assert errors == dict.fromkeys(range(4))
    assert device.moved > 0
    assert not device.steps, device.steps


# ------------------------------------------------------------------------- who chooses it, and when


def _on(device: str, keys: dict[str, Any]) -> Any:
    from motley.experiments.build import check_build

    plan, engine = check_build(Experiment(**keys))
    return size_of(
        dataclasses.replace(plan, setting=dataclasses.replace(plan.setting, device=device)), engine
    )


def test_it_is_chosen_on_a_gpu_alone_as_far_as_its_memory_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = _on("cuda", KEYS)
    # 1,797 samples of 64 numbers of 4 bytes; targets twice and numbers of rows, 8 bytes each
    assert small.samples == {"cuda": 1797 * 64 * 4 + 8 * (2 * 1797 + 1797)}
    assert _on("cpu", KEYS).samples == {}
    assert _on("cuda", {**KEYS, "engine": {"name": "sequential"}}).samples == {}
    free = [7 * small.samples["cuda"]]
    monkeypatch.setattr(
        "motley.experiments.chosen_jobs.free_bytes", lambda device: free[0] * (device == "cuda")
    )
    assert joint_runs([small] * 9) == 3
    free[0] = 10**12
    assert joint_runs([small] * 9) == 9
    assert joint_runs([small] * 99) == MOST_JOINT == 32
    assert joint_runs([small, None, small]) == 3
    assert joint_runs([small, None]) == 1
    assert joint_runs([small, _on("cpu", KEYS)]) == 1


@pytest.mark.parametrize(("jobs", "used"), [(None, (2, True)), (1, (1, False))])
def test_compare_says_it_unless_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int | None, used: tuple[int, bool]
) -> None:
    given: list[tuple[int, bool]] = []

    def points(**options: Any) -> tuple[list[Any], list[Any]]:
        given.append((options["jobs"], options["jointly"]))
        return [], []

    lines: list[str] = []
    monkeypatch.setattr(sweep, "run_points", points)
    monkeypatch.setattr(sweep, "joint_runs", len)
    compare(KEYS, METHODS, seeds=[0], out=tmp_path, jobs=jobs, say=lines.append)
    assert given == [used]
    line = (
        "2 runs at a time in one process, whose clients train together on the GPU where they are "
        "alike (--jobs 1: one after the other)"
    )
    assert (line in lines) == (jobs is None)


# ------------------------------------------------------------------------------------- begun before


def interrupted(
    monkeypatch: pytest.MonkeyPatch, points: list[Any], folders: list[Path], jointly: bool
) -> None:
    """Begin the points and stop all of them after their first round."""
    plain = run_module.written_step

    def step(loop: Any, *arguments: Any) -> Any:
        if loop.state.version:
            raise KeyboardInterrupt
        return plain(loop, *arguments)

    monkeypatch.setattr(run_module, "written_step", step)
    with pytest.raises(KeyboardInterrupt):
        run_points(points, folders, None, jobs=4 if jointly else 1, jointly=jointly)
    monkeypatch.setattr(run_module, "written_step", plain)


@pytest.mark.parametrize("jointly", [True, False])
def test_a_run_goes_on_with_others_or_alone_as_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jointly: bool
) -> None:
    keys = {**UNEVEN, "checkpoint": {"every_rounds": 1}}
    points = expand(Experiment(**keys), {}, [0])
    folders = [point.folder(tmp_path) for point in points]
    interrupted(monkeypatch, points, folders, jointly)
    _, failures = run_points(points, folders, None, jobs=1, jointly=not jointly)
    mend = "leave --jobs out" if jointly else "give --jobs 1"
    assert [str(failure.error).partition("; ")[2] for failure in failures] == [
        f"{mend}, or give --allow-other-numerics"
    ]
    runs, failures = run_points(points, folders, None, jobs=1, jointly=jointly)
    assert not failures
    assert [run.meta["numerics"].get("joint", False) for run in runs] == [jointly]


@pytest.mark.parametrize("jointly", [True, False])
def test_a_comparison_that_chooses_goes_on_as_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jointly: bool
) -> None:
    """Two runs were interrupted; on a GPU, as here pretended, new ones would train together."""
    monkeypatch.setattr(sweep, "joint_runs", len)
    keys = {**UNEVEN, "checkpoint": {"every_rounds": 1}}
    points = expand(Experiment(**keys), {}, [0, 1])
    interrupted(monkeypatch, points, [point.folder(tmp_path) for point in points], jointly)
    done = compare(keys, seeds=[0, 1], out=tmp_path)
    assert not done.failures
    assert [run.meta["numerics"].get("joint", False) for run in done.runs] == [jointly] * 2
