"""Worker processes: killed or stopped in mid-round, refused settings; data in memory once; nothing
left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import motley
from motley.algorithms.fedprox import Proximal
from motley.core.errors import ConfigError, EngineError
from motley.core.keys import Key
from motley.engines.engine import Setting
from motley.engines.local import Sequential
from motley.engines.processes import Processes
from motley.engines.workers import WorkerDied, WorkerPool
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.tasks import from_arrays, own_task
from motley.tasks.nn import Dropout
from motley.tasks.task import ModelState
from tests.motley.resume.conftest import assert_same, make

from .conftest import TwoProcesses
from .test_engines_agree import conv, mlp

TINY = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 1},
}


def dropping():
    return nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), Dropout(0.5), nn.Linear(9, 4))


def _same(first, second):
    for a, b in zip(first, second, strict=True):
        assert a.client == b.client
        assert a.signals == b.signals
        for name, part in a.parts.items():
            assert torch.equal(part.value, b.parts[name].value)


@pytest.mark.parametrize("model", [conv, dropping])
def test_client_by_client_the_bits_are_those_of_the_reference(setting, jobs, download, model):
    """The same operations on one thread; dropout and batches belong to the job."""
    shape = (1, 6, 6) if model is conv else (6,)
    s = setting(model, shape, threads=1, dtype=torch.float32, sizes=(7, 2, 23, 12, 4, 16, 5, 9))
    sent = download(s)
    engine = TwoProcesses(s)
    try:
        assert engine.worker_shape == "2 x 1"
        if model is dropping:
            _same(Sequential(s).train(jobs(s), sent, {}), engine.train(jobs(s), sent, {}))
        state = ModelState(sent["x"], sent["buffers"], sent["counters"])
        for a, b in zip(
            Sequential(s).evaluate(state, np.arange(70)).values(),
            engine.evaluate(state, np.arange(70)).values(),
            strict=True,
        ):
            assert np.array_equal(a, b)
    finally:
        engine.close()


def _workers():
    """The worker processes of this one: two in each of these tests."""
    return [p for p in psutil.Process().children() if "motley.engines.processes" in p.cmdline()]


def test_killed_in_mid_round_a_worker_is_replaced_and_the_bits_stay(setting, jobs, download):
    """One is stopped, so that it cannot have answered, and killed while the round waits for its
    chunk."""
    s = setting(mlp, local=Proximal(0.3), dtype=torch.float32, threads=2)
    sent = download(s)
    engine = TwoProcesses(s)
    try:
        whole = list(engine.train(jobs(s), sent, {}))
        victim = _workers()[0]
        victim.suspend()
        blow = threading.Timer(0.3, victim.kill)
        blow.start()
        _same(whole, engine.train(jobs(s), sent, {}))
        blow.join()
        for _ in range(100):  # a killed process is there until its parent has heard of it
            if not victim.is_running():
                break
            time.sleep(0.05)
        assert not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE
        for process in _workers():  # between rounds, all of them
            process.kill()
        _same(whole, engine.train(jobs(s), sent, {}))
    finally:
        engine.close()


def test_a_worker_that_does_nothing_is_given_up_after_a_while(setting, jobs, download, monkeypatch):
    """Stopped by a signal, it uses no processor time; its chunk is run again by a fresh one."""
    monkeypatch.setattr("motley.engines.processes.PATIENCE_S", 1.0)
    s = setting(mlp, dtype=torch.float32, threads=2)
    engine = TwoProcesses(s)
    try:
        whole = list(engine.train(jobs(s), download(s), {}))
        victim = _workers()[0]
        victim.suspend()
        _same(whole, engine.train(jobs(s), download(s), {}))
        gone, _ = psutil.wait_procs([victim], timeout=30)  # a killed process ends a moment later
        assert gone == [victim]
    finally:
        engine.close()


def test_an_engine_closed_in_mid_round_waits_for_nobody(setting, jobs, download):
    s = setting(mlp, threads=2)
    engine = TwoProcesses(s)
    results = engine.train(jobs(s), download(s), {})
    next(results)
    victims = _workers()
    for victim in victims:
        victim.suspend()
    stuck = engine.train(jobs(s), download(s), {})
    threading.Timer(0.5, engine.close).start()
    with pytest.raises(WorkerDied):
        next(stuck)
    assert _gone([victim.pid for victim in victims])


class Deadly(nn.Linear):
    """Takes its process with it where there are three samples."""

    def forward(self, x):
        if len(x) == 3:
            os._exit(7)
        return super().forward(x)


def deadly():
    return nn.Sequential(Deadly(6, 4), nn.BatchNorm1d(4))


@pytest.mark.slow
def test_who_kills_every_worker_ends_the_run_with_a_sentence(setting, jobs, download):
    s = setting(deadly, threads=1, work=motley.core.work.LocalWork(5, epochs=1))
    engine = TwoProcesses(s)
    try:
        with pytest.raises(
            EngineError,
            match=r"3 workers died one after the other over clients 2 \(the last one with exit "
            r"code 7\)",
        ):
            list(engine.train(jobs(s, clients=(2,)), download(s), {}))
    finally:
        engine.close()


def test_measuring_spread_is_measuring(setting, download, monkeypatch):
    monkeypatch.setattr("motley.engines.distributed.SPREAD_FROM", 1)
    monkeypatch.setitem(motley.engines.distributed.CHUNK, False, 20)
    monkeypatch.setitem(motley.engines.distributed.CHUNK, True, 20)
    monkeypatch.setattr("motley.engines.client.CHUNK_NUMBERS", 1)
    s = setting(mlp)
    sent = download(s)
    key = Key(0).fold("probe")
    engine = TwoProcesses(s)
    spread = []
    run = WorkerPool.run
    monkeypatch.setattr(
        WorkerPool,
        "run",
        lambda pool, calls, *rest: spread.append(len(calls)) or run(pool, calls, *rest),
    )
    try:
        wanted = Sequential(s).measure(np.arange(8), sent, {}, {"loss": 1, "gradient": None}, key)
        found = engine.measure(np.arange(8), sent, {}, {"loss": 1, "gradient": None}, key)
        for name in wanted:
            assert found[name] == pytest.approx(wanted[name], rel=1e-9, abs=1e-12)
        state = ModelState(sent["x"], sent["buffers"], sent["counters"])
        rows = np.random.default_rng(0).permutation(77)
        for a, b in zip(
            Sequential(s).evaluate(state, rows).values(),
            engine.evaluate(state, rows).values(),
            strict=True,
        ):
            assert b == pytest.approx(a, rel=1e-12)
        assert spread == [2, 2]
    finally:
        engine.close()


def test_the_data_lie_in_memory_once(setting, download, monkeypatch):
    """48 MB of samples: all workers map the same block, and none has a page of its own in its
    place."""
    monkeypatch.setattr("motley.engines.distributed.SPREAD_FROM", 1)
    s = setting(mlp, (6,), sizes=(500_000, 500_000))
    engine = TwoProcesses(s)
    sent = download(s)
    try:
        state = ModelState(sent["x"], sent["buffers"], sent["counters"])
        size = s.task.federation.x.numel() * 8
        for _ in range(100):  # on a busy machine the first worker that starts takes all calls
            engine.evaluate(state, np.tile(np.arange(1024), 2))
            mapped = [_blocks(process.pid) for process in _workers()]
            if all(any(block.bytes > size for block in blocks) for blocks in mapped):
                break
        largest = [max(blocks, key=lambda block: block.bytes) for blocks in mapped]
        assert len(largest) == 2
        assert all(block.bytes > size and block.copied == 0 for block in largest)
        assert len({block.inode for block in largest}) == 1
        for process in _workers():
            # which has the samples as float32 and as float64
            assert _anonymous(process.pid) < _anonymous(os.getpid())
    finally:
        engine.close()


class Block(NamedTuple):
    """A mapping of a memory file, as ``/proc/PID/smaps`` tells it."""

    inode: str
    bytes: int
    copied: int  # bytes of pages that are this process's own in place of the file's


def _blocks(pid: int) -> list[Block]:
    found = []
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{pid}/smaps").read_text()):
        head, *rows = mapping.splitlines()
        if "/memfd:motley" in head:
            _, _, _, _, inode, *_ = head.split()
            kilobytes = {row.split()[0]: int(row.split()[1]) for row in rows if row.endswith(" kB")}
            found.append(Block(inode, 1024 * kilobytes["Size:"], 1024 * kilobytes["Anonymous:"]))
    return found


def _anonymous(pid: int) -> int:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("RssAnon:"))


def _lambda_task():
    return own_task(
        from_arrays(np.zeros((20, 3)), np.arange(20) % 2, np.arange(20) % 4),
        lambda: nn.Linear(3, 2),
    )


def test_own_models_are_refused_with_the_way_out():
    keys = {"cohort": 2, "stop": {"rounds": 1}, "engine": "processes"}
    with pytest.raises(
        ConfigError, match="the function that makes the model cannot be sent to other processes"
    ):
        motley.run(keys, task=_lambda_task(), out="/nowhere")


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (
            {"name": "processes", "workers": 1000, "threads": 1},
            "engine.workers: got 1000, and this run may use 1 cores",
        ),
        (
            {"name": "batched", "workers": 2},
            "engine.workers: got 2, and 'batched' has no workers; name one of: processes",
        ),
        (
            {"name": "processes", "address": "auto"},
            "engine.address: got 'auto', and 'processes' has no address",
        ),
        ({"name": "auto", "workers": 2}, "engine.workers: got 2, and 'batched' has no workers"),
        ({"name": "processes", "workers": 0}, "engine.workers: got 0; expected at least 1"),
    ],
)
def test_options_that_cannot_be(engine, said):
    with pytest.raises(ConfigError) as caught:
        build(Experiment(**TINY, engine=engine))
    assert said in str(caught.value)


def test_the_run_id_does_not_change_with_the_engine():
    assert (
        Experiment(**TINY, engine={"name": "processes", "workers": 1}).run_id()
        == Experiment(**TINY).run_id()
    )


def test_workers_times_threads_are_never_more_than_there_are(setting, monkeypatch):
    monkeypatch.setattr("motley.engines.processes.cores", lambda limit: min(limit or 7, 7))
    for workers, threads, wanted in [
        (None, None, (7, 1)),
        (3, None, (3, 2)),
        (2, 5, (2, 2)),
        (1, 5, (1, 5)),
        (None, 2, (2, 1)),
    ]:
        s = setting(mlp, threads=threads)
        s = Setting(
            s.task, s.algorithm, s.solver, s.work, s.streams, threads=threads, workers=workers
        )
        assert Processes.worker_shares(s) == wanted


PROGRAM = "import sys; from motley.cli import call; sys.exit(call(sys.argv[1:]))"


def _children(parent: int) -> list[int]:
    """The worker processes that ``parent`` started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if b"motley.engines.processes" in words and str(parent).encode() in words:
            found.append(int(entry.name))
    return found


def _gone(pids: list[int]) -> bool:
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_stopped_a_run_leaves_nothing_behind_and_goes_on_to_the_same_bits(blow, tmp_path):
    engine = {"name": "processes", "workers": 2, "threads": 2}
    experiment = make(
        150,
        engine=engine,
        checkpoint={"every_rounds": 10, "every_s": 1000.0},
        evaluate={"every": 7},
    )
    file = tmp_path / "exp.toml"
    file.write_text(_toml(experiment))
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    shared = set(os.listdir("/dev/shm"))

    def motley_run(out: Path, *more: str) -> subprocess.Popen[bytes]:
        words = [
            sys.executable,
            "-c",
            PROGRAM,
            "run",
            str(file),
            "--out",
            str(out),
            "--no-report",
            *more,
        ]
        return subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    with motley_run(tmp_path / "whole") as whole:
        assert whole.wait() == 0, whole.stderr.read()
    out = tmp_path / "stopped"
    with motley_run(out) as child:
        while child.poll() is None and _size(out) < 20_000:
            time.sleep(0.002)
        workers = _children(child.pid)
        assert len(workers) == 2
        child.send_signal(blow)
        assert child.wait() == (130 if blow == signal.SIGINT else -signal.SIGKILL)
        assert _gone(workers)
    assert set(os.listdir("/dev/shm")) <= shared
    with motley_run(out, "--resume") as child:
        assert child.wait() == 0, child.stderr.read()
    assert_same(tmp_path / "whole", out)


def _toml(experiment: Experiment) -> str:
    keys = experiment.model_dump(mode="json", exclude_none=True, exclude_defaults=True)

    def say(value):
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{key} = {say(inner)}" for key, inner in value.items()) + " }"
        if isinstance(value, bool):
            return str(value).lower()
        return repr(value) if not isinstance(value, str) else f'"{value}"'

    return "\n".join(f"{key} = {say(value)}" for key, value in keys.items())


def _size(out: Path) -> int:
    try:
        return (out / "rounds.arrows").stat().st_size
    except FileNotFoundError:
        return 0
