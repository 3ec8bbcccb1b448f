"""A comparison spread over a cluster is the comparison: the same runs in the same folders, each
once, failures told apart."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import motley
from motley.core.errors import ConfigError, StoreError, UserError
from motley.experiments.config import Experiment
from motley.experiments.sweep import compare
from motley_ray import spread_runs
from motley_ray.cluster_state import ClusterNode
from tests.motley.resume.conftest import assert_same
from tests.motley_ray.ray_nodes import RayNodes

HERE = importlib.util.find_spec("ray") is not None
KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 2},
    "engine": {"name": "auto", "threads": 1},
}


class _RayError(Exception):
    """Ray's own base of errors, in a Ray that a test makes up."""


class _RayTaskError(_RayError):
    """Raised by a call itself."""


class FakeRay:
    """A Ray of one node that executes a call when it is waited for; ``script``: what comes of the
    attempts, one after the other. ``SILENT``: nothing does, and the actor is given up."""

    exceptions = SimpleNamespace(RayError=_RayError, RayTaskError=_RayTaskError)

    def __init__(self, script: list[Any]) -> None:
        self.script = script
        self.begun: list[str] = []
        self.actors: list[FakeActor] = []

    def put(self, value: Any) -> Any:
        return value

    def wait(self, refs: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        done = [ref for ref in refs if ref == "node" or self.script[:1] != [SILENT]]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref: str) -> Any:
        answer = "id" if ref == "node" else self.script.pop(0)
        if isinstance(answer, _RayError):
            raise answer
        return answer


class FakeActor:
    """See :class:`RemoteActor`."""

    def __init__(self, ray: FakeRay) -> None:
        self.ray = ray
        self.killed = False
        self.methods = SimpleNamespace(
            node=SimpleNamespace(remote=lambda: "node"), attempt=SimpleNamespace(remote=self._begin)
        )
        ray.actors.append(self)

    def _begin(self, given: list[Any]) -> str:
        (_, _, folder, *_), *_ = given
        self.ray.begun.append(folder)
        return folder

    def listen(self) -> None:
        pass

    def silent_s(self) -> float:
        assert self.ray.script.pop(0) == SILENT
        return 46.0

    def give_up(self) -> None:
        pass

    def kill(self) -> None:
        self.killed = True


SILENT = "no answer"
USED = [StoreError("the folder is in use")]


@pytest.mark.filterwarnings("ignore:the worker of")
@pytest.mark.parametrize(
    ("script", "begun", "actors", "said"),
    [
        ([None], 1, 1, None),
        ([_RayError(), None], 2, 2, None),
        ([SILENT, None], 2, 2, None),
        # by the actor that was given up; the one in its place tries again
        ([SILENT, *USED, *USED, None], 4, 2, None),
        (USED, 1, 1, "the folder is in use"),
        ([_RayError(), ConfigError("no such thing", "x")], 2, 2, "no such thing"),
        ([_RayError(), SILENT, _RayError()], 3, 3, "its worker was lost 3 times"),
        ([_RayTaskError("in a line:\nNo module named 'x'")], 1, 1, "No module named 'x'"),
        ([ImportError("No module named 'x'")], 1, 1, "must be importable on every node"),
    ],
)
def test_a_run_whose_worker_is_lost_is_begun_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: list[Any],
    begun: int,
    actors: int,
    said: str | None,
) -> None:
    fake = FakeRay(list(script))
    node = ClusterNode("id", "10.0.0.1", cores=1, gpus=0, port=1)
    compared = SimpleNamespace(begin=lambda: None, name=lambda node: "10.0.0.1")
    for name, value in {
        "connect": lambda address, threads: False,
        "ray_package": lambda: fake,
        "ComparedNodes": lambda parts: compared,
        "usable_nodes": lambda compared: {"id": node},
        "RemoteActor": lambda kind, compared, cores, gpus: FakeActor(fake),
        "LOOK_S": 0.0,
        "_PAUSE_S": 0.0,
    }.items():
        monkeypatch.setattr(spread_runs, name, value)
    ((number, error),) = spread_runs.spread("auto", print, [Experiment(**KEYS)], [tmp_path], None)
    assert number == 0
    assert fake.begun == [str(tmp_path)] * begun
    assert [actor.killed for actor in fake.actors] == [True] * actors
    assert (error is None) if said is None else (said in str(error))
    assert error is None or isinstance(error, UserError)  # a sentence at the command line


def test_a_run_that_fits_on_no_node_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = ClusterNode("id", "10.0.0.1", cores=2, gpus=0, port=1)
    monkeypatch.setattr(spread_runs, "connect", lambda address, threads: False)
    monkeypatch.setattr(
        spread_runs, "ComparedNodes", lambda parts: SimpleNamespace(begin=lambda: None)
    )
    monkeypatch.setattr(spread_runs, "usable_nodes", lambda compared: {"id": node})
    large = Experiment(**{**KEYS, "engine": {"name": "auto", "threads": 4}})
    with pytest.raises(
        ConfigError,
        match=r"engine\.threads: got 4: a run of 4 cores fits on no node of the cluster "
        r"\(10\.0\.0\.1 has 2 cores\)",
    ):
        list(spread_runs.spread("auto", print, [large], [tmp_path], None))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not HERE, reason="needs Ray, which make test-ray installs")
def test_spread_is_the_same_and_done_once(tmp_path: Path) -> None:
    over = {"selector.name": ["uniform", "power_of_choice"], "population": [6, 8]}
    alone = compare(KEYS, over, [0, 1], out=tmp_path / "alone")
    spread = compare(KEYS, over, [0, 1], out=tmp_path / "spread", on_ray="local")
    assert len(alone.runs) == len(spread.runs) == 8
    for one, other in zip(alone.runs, spread.runs, strict=True):
        assert one.directory.relative_to(tmp_path / "alone") == other.directory.relative_to(
            tmp_path / "spread"
        )
        assert_same(one, other)
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "spread").rglob("*.parquet")}
    assert len(times) >= 8
    again = compare(KEYS, over, [0, 1, 2], out=tmp_path / "spread", on_ray="local")
    assert len(again.runs) == 12
    assert all(file.stat().st_mtime_ns == time for file, time in times.items())
    # told where it is built
    refused = compare({**KEYS, "aggregator": "krum"}, out=tmp_path / "refused", on_ray="local")
    assert not refused.runs
    assert "Krum weighs all clients alike" in str(refused.failures[0].error)


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not HERE, reason="needs Ray, which make test-ray installs")
def test_a_node_that_dies_costs_a_study_the_run_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is begun again elsewhere; no other one is, and the study has the trials and bits of
    this machine."""
    keys = {**KEYS, "split": {"validation": 0.2}, "stop": {"rounds": 150}}
    options: dict[str, Any] = {
        "over": {"local.optimizer.lr": "log:0.01..1"},
        "trials": 4,
        "jobs": 2,
        "test_seeds": [5],
    }
    begun: list[str] = []

    class Noted(spread_runs._Place):
        def give(self, run: spread_runs._SpreadRun) -> None:
            super().give(run)
            begun.append(run.arguments[2])

    monkeypatch.setattr(spread_runs, "_Place", Noted)
    alone = motley.tune(keys, out=tmp_path / "alone", **options)
    with RayNodes() as cluster:
        node = cluster.add_node()

        def kill() -> None:
            while not node.actors():
                time.sleep(0.1)
            time.sleep(1.0)
            node.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        spread = motley.tune(keys, out=tmp_path / "spread", on_ray=cluster.address, **options)
        killer.join()
        cluster.nodes.remove(node)
    assert len(begun) == 4 + 1 + 1  # trials, the test, and the run of the node
    assert len(set(begun)) == 4 + 1
    (one,), (other,) = alone.methods, spread.methods
    assert one.trials == other.trials
    assert_same(one.test[0], other.test[0])


@pytest.mark.ray
@pytest.mark.skipif(not HERE, reason="needs Ray, which make test-ray installs")
def test_nodes_that_join_in_mid_sweep_are_compared_and_a_stopped_process_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node with other code joins and one without a difference; on the second, the process is
    stopped in mid-run, and goes on after two minutes at the latest. All runs have their bits."""
    monkeypatch.setattr(spread_runs, "GIVEN_UP_S", 8.0, raising=False)
    keys = {**KEYS, "stop": {"rounds": 200}}
    seeds = range(6)
    alone = compare(keys, seeds=seeds, out=tmp_path / "alone")
    shutil.copytree(Path(motley.__file__).parent, tmp_path / "old" / "motley")
    with (tmp_path / "old" / "motley" / "world" / "__init__.py").open("a") as file:
        file.write("# other code\n")
    others: set[str] = set()
    with RayNodes() as cluster:

        def disturb() -> None:
            while not cluster.head.actors():
                time.sleep(0.1)
            old = cluster.add_node(env={"PYTHONPATH": str(tmp_path / "old")})
            node = cluster.add_node()
            while not node.actors():
                others.update(names_of(old.actors()))
                time.sleep(0.1)
            time.sleep(3.0)
            for one in node.actors():
                one.suspend()
                stopped.append(one)
            late.start()
            while len(cluster.nodes) == 2:
                others.update(names_of(old.actors()))
                time.sleep(0.1)

        stopped: list[psutil.Process] = []
        late = threading.Timer(120.0, lambda: [one.resume() for one in stopped])
        disturber = threading.Thread(target=disturb, daemon=True)
        disturber.start()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            spread = compare(keys, seeds=seeds, out=tmp_path / "spread", on_ray=cluster.address)
        assert not others
        assert late.is_alive()
        late.cancel()
        _, node = cluster.nodes
        cluster.nodes.remove(node)
        disturber.join()
        node.kill()
    said = [str(one.message) for one in told]
    assert sum("is not used: other code in motley/world/__init__.py" in one for one in said) == 1
    assert sum("(given up after 8 s without an answer)" in one for one in said) == 1
    assert len(spread.runs) == 6
    for one, other in zip(alone.runs, spread.runs, strict=True):
        assert_same(one, other)


def names_of(processes: list[psutil.Process]) -> set[str]:
    """The names of processes, which say what Ray executes in each, but that of the comparison."""
    names = set()
    for one in processes:
        with contextlib.suppress(psutil.Error):
            names.add("".join(one.cmdline()[:1]))
    return names


def test_each_run_has_one_node(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"engine\.name: each run that is spread over a cluster has one node"
    ):
        compare({**KEYS, "engine": "ray"}, out=tmp_path, on_ray="auto")


@pytest.mark.skipif(HERE, reason="Ray is installed")
def test_without_ray_the_distribution_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pip install \./packages/motley-ray in a"):
        compare(KEYS, out=tmp_path, on_ray="auto")
