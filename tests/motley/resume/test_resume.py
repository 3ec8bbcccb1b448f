"""Every point at which a run can break off, reached exactly; what is refused; what is repeated."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from motley.core.errors import NumericsError, StoreError
from motley.core.files import with_digest
from motley.engines import processes
from motley.engines.processes import workers_kept
from motley.experiments.config import Experiment
from motley.experiments.progress import OneRun
from motley.experiments.run import run
from motley.experiments.store import RunFolder
from motley.experiments.sweep import compare
from motley.results.load import Run
from motley.results.schema import EQUAL_TABLES
from motley.results.writer import Writer
from motley.rounds.checkpoint import Checkpoints
from motley.rounds.client_state import DiskClientStates
from motley.rounds.loop import RoundLoop
from motley.rounds.simulated import SimulatedBackend
from motley.rounds.stored_last_updates import DiskLastUpdates
from motley.tasks import from_clients, own_task
from tests.motley.resume.conftest import assert_same, make

Unbroken = Callable[[Experiment], Run]


class Crash(BaseException):
    """A blow from outside."""


def _crash_after(calls: int, method: Callable[..., Any], before: bool) -> Callable[..., Any]:
    """``method``, breaking off at its n-th call, just before or just after it does its work."""
    seen = [0]

    def broken(*args: Any, **kwargs: Any) -> Any:
        seen[0] += 1
        if seen[0] == calls and before:
            raise Crash
        out = method(*args, **kwargs)
        if seen[0] == calls:
            raise Crash
        return out

    return broken


POINTS = [
    pytest.param(RoundLoop, "step", 1, True, 0, id="before anything"),
    pytest.param(Writer, "flush", 2, False, 0, id="before the first checkpoint"),
    pytest.param(SimulatedBackend, "commit", 6, False, 5, id="server stepped, nothing written"),
    pytest.param(Writer, "flush", 6, True, 5, id="row lost"),
    pytest.param(Checkpoints, "save", 1, True, 0, id="checkpoint lost"),
    pytest.param(Checkpoints, "save", 2, False, 9, id="just after a checkpoint"),
    pytest.param(Writer, "finish", 1, True, 9, id="all rounds done, tables not compacted"),
    pytest.param(Writer, "finish", 1, False, 9, id="tables compacted, model not saved"),
    pytest.param(RunFolder, "write", 2, True, 0, id="model saved, run not marked finished"),
]


class Notes(OneRun):
    """What a run says of itself."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(("owner", "name", "calls", "before", "resumed_at"), POINTS)
def test_a_blow_at_any_point(
    owner: type,
    name: str,
    calls: int,
    before: bool,
    resumed_at: int,
    experiment: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Unbroken,
) -> None:
    whole = unbroken(experiment)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, _crash_after(calls, getattr(owner, name), before))
        with pytest.raises(Crash):
            run(experiment, out=tmp_path / "broken")
    notes = Notes()
    assert_same(whole, run(experiment, out=tmp_path / "broken", resume=True, progress=notes))
    assert notes.said == ([f"resumed at round {resumed_at} of 12"] if resumed_at else [])


@pytest.mark.parametrize(("keep", "kept"), [(True, ["checkpoint-00000012.mtly"]), (False, None)])
def test_a_blow_between_the_end_and_the_removal_of_checkpoints(
    keep: bool,
    kept: list[str] | None,
    experiment: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run is finished, so nothing is computed again; the next call removes what is left."""
    experiment = experiment.replace({"checkpoint.keep": keep})
    with monkeypatch.context() as patch:
        # after those of rounds 4, 8 and 12
        patch.setattr(Checkpoints, "prune", _crash_after(4, Checkpoints.prune, True))
        with pytest.raises(Crash):
            run(experiment, out=tmp_path)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2
    monkeypatch.setattr(RoundLoop, "step", _crash_after(1, RoundLoop.step, True))
    run(experiment, out=tmp_path, resume=True)
    checkpoints = tmp_path / "checkpoints"
    assert (
        sorted(path.name for path in checkpoints.iterdir()) if checkpoints.exists() else None
    ) == kept
    # all as the user's files are
    assert len({path.stat().st_mode for path in tmp_path.iterdir() if path.is_file()}) == 1


MEMORIES = [
    pytest.param(DiskClientStates, "put", 1, True, id="before the first row"),
    pytest.param(DiskClientStates, "put", 2, False, id="between two rows of the first round"),
    pytest.param(DiskClientStates, "put", 18, False, id="between two rows after a checkpoint"),
    pytest.param(DiskClientStates, "save", 1, False, id="rows durable, the first checkpoint lost"),
    pytest.param(DiskClientStates, "save", 2, False, id="rows durable, the second checkpoint lost"),
    pytest.param(Checkpoints, "save", 2, False, id="just after a checkpoint"),
]


@pytest.mark.parametrize(("owner", "name", "calls", "before"), MEMORIES)
@pytest.mark.parametrize(
    ("algorithm", "weights"), [("scaffold", "examples"), ("feddyn", None), ("moon", None)]
)
def test_a_blow_at_any_point_around_a_row(
    algorithm: str,
    weights: str | None,
    owner: type,
    name: str,
    calls: int,
    before: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Unbroken,
) -> None:
    """On disk it ends as a run in RAM that nothing happened to."""
    experiment = make(rounds=12, selector="uniform", algorithm=algorithm, weights=weights)
    whole = unbroken(experiment)
    on_disk = experiment.replace({"client_state": "disk"})
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, _crash_after(calls, getattr(owner, name), before))
        with pytest.raises(Crash):
            run(on_disk, out=tmp_path / "broken")
    assert_same(whole, run(on_disk, out=tmp_path / "broken", resume=True))
    kept = sorted(path.name for path in (tmp_path / "broken" / "checkpoints").iterdir())
    assert kept == ["checkpoint-00000012.mtly", "memories.rows"]


@pytest.mark.parametrize(
    ("owner", "name", "calls", "before"),
    [
        pytest.param(DiskLastUpdates, "_put", 2, True, id="between two files of the first round"),
        pytest.param(DiskLastUpdates, "_put", 19, False, id="between two files after a checkpoint"),
        pytest.param(
            DiskLastUpdates, "save", 2, False, id="files durable, the second checkpoint lost"
        ),
        pytest.param(Checkpoints, "save", 2, False, id="just after a checkpoint"),
    ],
)
def test_a_blow_at_any_point_around_a_last_update(
    owner: type,
    name: str,
    calls: int,
    before: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Unbroken,
) -> None:
    """On disk it ends as a run in RAM that nothing happened to, with one file for each
    participant."""
    experiment = make(rounds=12, **COMPRESSED["curvature"])
    whole = unbroken(experiment)
    on_disk = experiment.replace({"client_state": "disk"})
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, _crash_after(calls, getattr(owner, name), before))
        with pytest.raises(Crash):
            run(on_disk, out=tmp_path / "broken")
    assert_same(whole, run(on_disk, out=tmp_path / "broken", resume=True))


@pytest.mark.parametrize(("first", "second"), [("ram", "ram"), ("disk", "disk"), ("ram", "disk")])
def test_rows_of_the_checkpoint_before_are_there_when_the_newest_is_damaged(
    first: str, second: str, tmp_path: Path, unbroken: Unbroken
) -> None:
    """Three rounds after the checkpoint of round 8 that of round 8 is cut, so round 4's counts:
    whoever took part since has moved. A run may go on on disk that began in RAM (the other way
    round is refused, tests/motley/rounds/test_client_state.py)."""
    experiment = make(rounds=12, selector="uniform", algorithm="scaffold")
    whole = unbroken(experiment)
    out = tmp_path / "broken"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "flush", _crash_after(11, Writer.flush, False))
        with pytest.raises(Crash):
            run(experiment.replace({"client_state": first}), out=out)
    newest = max((out / "checkpoints").glob("*.mtly"))
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"checkpoint-00000008.mtly is damaged"):
        resumed = run(experiment.replace({"client_state": second}), out=out, resume=True)
    assert_same(whole, resumed)


TENTH = {"name": "constant", "average": 0.1}
COMPRESSED: dict[str, dict[str, Any]] = {
    "curvature": {
        "selector": "hetero_select",
        "weights": "score",
        "compressor": {"name": "topk", "criterion": "curvature"},
        "feedback": "adaptive",
        "allocator": "by_score",
        "budget": "cosine",
    },
    "ef21": {
        "selector": "uniform",
        "weights": "uniform",
        "compressor": "topk",
        "feedback": "ef21",
        "budget": TENTH,
    },
    "optrate": {
        "selector": "uniform",
        "compressor": "randomk",
        "quantizer": "qsgd",
        "allocator": "optrate",
        "budget": TENTH,
    },
    "flexcom": {
        "selector": "uniform",
        "compressor": "topk",
        "feedback": "fixed",
        "budget": TENTH,
        "allocator": {"name": "flexcom", "error": "last_update"},
    },
    "in the air": {
        "selector": "uniform",
        "compressor": {"name": "topk", "criterion": "curvature"},
        "feedback": "adaptive",
        "budget": TENTH,
        "algorithm": "fedavg",
        "synchrony": {"name": "buffered", "buffer": 2},
    },
    "exact directions in the air": {
        "selector": "hetero_select",
        "weights": "score",
        "compressor": "topk",
        "budget": TENTH,
        "algorithm": "fedavg",
        "synchrony": {"name": "buffered", "buffer": 2},
    },
    "two memories": {
        "selector": "uniform",
        "algorithm": "feddyn",
        "compressor": "topk",
        "feedback": "fixed",
        "budget": TENTH,
    },
}


@pytest.mark.parametrize("client_state", ["ram", "disk"])
@pytest.mark.parametrize("which", COMPRESSED)
def test_what_waits_at_clients_and_what_sets_their_shares_survive_a_blow(
    which: str,
    client_state: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Unbroken,
) -> None:
    """Two rounds after the checkpoint of round 4: residuals and masks of clients, EF21's mean, the
    allocator's state, flights."""
    whole = unbroken(make(rounds=9, **COMPRESSED[which]))
    assert whole.tables["rounds"].column("up_bits").to_pylist()[-1] > 0
    again = make(rounds=9, client_state=client_state, **COMPRESSED[which])
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "flush", _crash_after(7, Writer.flush, False))
        with pytest.raises(Crash):
            run(again, out=tmp_path / "broken")
    assert_same(whole, run(again, out=tmp_path / "broken", resume=True))


def test_a_truncated_checkpoint_falls_back_to_the_one_before_and_says_so(
    experiment: Experiment, tmp_path: Path, unbroken: Unbroken
) -> None:
    whole = unbroken(experiment)
    out = tmp_path / "broken"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "finish", _crash_after(1, Writer.finish, True))
        with pytest.raises(Crash):
            run(experiment, out=out)
    newest = max((out / "checkpoints").glob("*.mtly"))
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(
        UserWarning,
        match=r"checkpoint-00000008.mtly is damaged .*going back to the checkpoint before it",
    ):
        resumed = run(experiment, out=out, resume=True)
    assert_same(whole, resumed)


def test_a_folder_in_place_of_a_checkpoint_is_passed_over_until_it_is_in_the_way(
    experiment: Experiment, tmp_path: Path, unbroken: Unbroken
) -> None:
    whole = unbroken(experiment)
    out = tmp_path / "broken"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "finish", _crash_after(1, Writer.finish, True))
        with pytest.raises(Crash):
            run(experiment, out=out)
    newest = max((out / "checkpoints").glob("*.mtly"))
    newest.unlink()
    newest.mkdir()
    in_the_way = pytest.raises(
        StoreError, match=r"cannot write the checkpoint of round 8 .*: Is a directory; mend that"
    )
    with (
        pytest.warns(UserWarning, match=r"checkpoint-00000008.mtly is damaged .*Is a directory"),
        in_the_way,
    ):
        run(experiment, out=out, resume=True)
    newest.rmdir()
    assert_same(whole, run(experiment, out=out, resume=True))


def test_resuming_a_finished_run_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = make(rounds=5)
    run(experiment, out=tmp_path / "r")
    before = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "r").iterdir() if path.name != ".lock"
    }
    monkeypatch.setattr(RoundLoop, "step", _crash_after(1, RoundLoop.step, True))
    run(experiment, out=tmp_path / "r", resume=True)
    assert {
        path: path.stat().st_mtime_ns for path in (tmp_path / "r").iterdir() if path.name != ".lock"
    } == before


def test_an_interrupted_run_is_not_begun_again_by_accident(
    experiment: Experiment, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "flush", _crash_after(3, Writer.flush, True))
        with pytest.raises(Crash):
            run(experiment, out=tmp_path / "r")
    with pytest.raises(StoreError, match="interrupted; go on with --resume"):
        run(experiment, out=tmp_path / "r")
    with pytest.raises(StoreError, match="holds another run"):
        run(make(rounds=12, seed=1), out=tmp_path / "r", resume=True)


def test_torch_s_precision_of_products_is_one_of_the_numerics(
    experiment: Experiment, tmp_path: Path
) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        held = run(experiment, out=tmp_path / "r")
        assert "float32_matmul_precision=medium" in held.meta["numerics"]["kernels"]
    finally:
        torch.set_float32_matmul_precision(before)
    record = RunFolder(tmp_path / "r").read()
    assert record is not None
    RunFolder(tmp_path / "r").write({**record, "finished": False})
    with pytest.raises(NumericsError, match=r"began with kernels = 'float32_matmul_precision=med"):
        run(experiment, out=tmp_path / "r", resume=True)


def of_precision(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return 0, 1 or 2 for each sample."""
    number = ["highest", "high", "medium"].index(torch.get_float32_matmul_precision())
    return 0 * outputs.sum(1) + number


@pytest.mark.parametrize("keys", [{"engine": {"name": "processes", "workers": 1}}, {}])
def test_worker_processes_have_torch_s_precision_of_products(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    """The loss is the precision's number, in a run with a worker and in two with processes of their
    own."""
    samples = [(np.zeros((8, 3), np.float32), np.zeros(8, np.int64)) for _ in range(4)]
    task = own_task(from_clients(samples, classes=2), partial(nn.Linear, 3, 2), loss=of_precision)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        runs = compare(
            {"cohort": 2, "stop": {"rounds": 1}, **keys},
            seeds=[0] if keys else [0, 1],
            task=task,
            out=tmp_path / "out",
            jobs=1 if keys else 2,
        ).runs
    finally:
        torch.set_float32_matmul_precision(before)
    assert [run.column("rounds", "train_loss").tolist() for run in runs] == [
        pytest.approx([2.0])
    ] * len(runs)
    assert {run.meta["numerics"]["kernels"] for run in runs} == {"float32_matmul_precision=medium"}


def test_other_numerics_are_refused_unless_allowed(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "flush", _crash_after(6, Writer.flush, False))
        with pytest.raises(Crash):
            run(experiment, out=tmp_path / "r")
    path = tmp_path / "r" / "run.json"
    record = json.loads(path.read_text())
    record["numerics"]["torch"] = "1.0"
    path.write_text(json.dumps(with_digest(record)))
    with pytest.raises(
        NumericsError, match=r"began with torch = '1.0' .* or give --allow-other-numerics"
    ):
        run(experiment, out=tmp_path / "r", resume=True)
    record["numerics"] |= {"torch": torch.__version__, "processor": "GenuineIntel 6 85 7"}
    path.write_text(json.dumps(with_digest(record)))
    with pytest.raises(NumericsError, match="began with processor = 'GenuineIntel 6 85 7'"):
        run(experiment, out=tmp_path / "r", resume=True)
    assert run(experiment, out=tmp_path / "r", resume=True, allow_other_numerics=True).finished


def test_twice_the_same_and_another_seed_is_another_run(
    experiment: Experiment, tmp_path: Path, unbroken: Unbroken
) -> None:
    first = unbroken(experiment)
    second = run(experiment, out=tmp_path / "2")
    assert_same(first, second)
    other = run(experiment.replace({"seed": 1}), out=tmp_path / "3")
    for table in EQUAL_TABLES:
        if table in ("claims", "privacy"):  # here nobody lies, and nothing is private
            assert first.tables[table].num_rows == other.tables[table].num_rows == 0
            continue
        assert not first.tables[table].equals(other.tables[table]), (
            f"the seed does not reach {table}"
        )


def test_one_purpose_can_be_pinned(tmp_path: Path) -> None:
    """Another seed with the data's purposes pinned: the same federation, another course."""
    pin = {"partition": 7, "split": 7, "shift": 7}
    runs = [run(make(rounds=3, seed=seed, pin=pin), out=tmp_path / str(seed)) for seed in (0, 1)]
    labels = [r.tables["federation"].column("labels").to_pylist() for r in runs]
    chosen = [r.tables["clients"].column("client").to_pylist() for r in runs]
    assert labels[0] == labels[1]
    assert chosen[0] != chosen[1]


BFLOAT16 = [
    pytest.param({"engine": {"name": "sequential", "threads": 1}}, id="sequential"),
    pytest.param({"engine": {"name": "threads", "threads": 2}}, id="threads"),
    pytest.param({"engine": {"name": "batched", "threads": 1}}, id="batched"),
    pytest.param({"engine": {"name": "vmap", "threads": 1}}, id="vmap"),
    pytest.param({"engine": {"name": "processes", "workers": 2, "threads": 2}}, id="processes"),
]


@pytest.mark.filterwarnings("ignore:.*has no instructions for bfloat16")
@pytest.mark.parametrize("keys", BFLOAT16)
def test_a_run_in_bfloat16_resumes_to_the_bit(
    keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    experiment = make(
        6, precision="bfloat16", task={"name": "image", "data": "digits", "model": "mlp"}, **keys
    )
    monkeypatch.setattr(processes, "_idle", None)  # whatever other tests keep
    with workers_kept():  # interpreters start once for the two runs
        whole = run(experiment, out=tmp_path / "whole")
        assert whole.meta["numerics"]["precision"] == "bfloat16"
        assert "products" in whole.meta["numerics"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Checkpoints, "save", _crash_after(1, Checkpoints.save, False))
            with pytest.raises(Crash):
                run(experiment, out=tmp_path / "broken")
    # in new ones: what only a worker remembered would be missing
    assert_same(whole, run(experiment, out=tmp_path / "broken", resume=True))


@pytest.mark.filterwarnings("ignore:.*has no instructions for bfloat16")
def test_a_run_in_bfloat16_is_another_run_near_that_in_float32(tmp_path: Path) -> None:
    """The final losses differ, by less than a tenth; the model and everything that was sent are
    float32."""
    runs = [
        run(make(6, precision=precision), out=tmp_path / precision)
        for precision in ("float32", "bfloat16")
    ]
    losses = [one.tables["evaluations"]["loss"].to_numpy()[-1] for one in runs]
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.1)
    weights = load_file(tmp_path / "bfloat16" / "model.safetensors").values()
    assert {value.dtype for value in weights} == {torch.float32}
    bits = [one.tables["rounds"]["up_bits"].to_pylist() for one in runs]
    assert bits[0] == bits[1]


def test_a_run_says_that_its_precision_is_slower_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("motley.tasks.precision.bfloat16_instructions", lambda device: None)
    with pytest.warns(UserWarning, match="this processor has no instructions for bfloat16"):
        assert run(make(1, precision="bfloat16"), out=tmp_path / "r").finished
