"""A comparison spread over a cluster is the comparison: the same runs in the same folders, each
once, failures told apart."""

from __future__ import annotations

import importlib.util
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import motley
from motley.core.errors import ConfigError, StoreError, UserError
from motley.experiments import ray_runner
from motley.experiments.config import Experiment
from motley.experiments.sweep import compare
from tests.motley.engines.ray_nodes import RayNodes
from tests.motley.resume.conftest import assert_same

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


class FakeRay:
    """A Ray that executes a task when it is waited for; ``script``: what comes of the tasks, one
    after the other."""

    exceptions = SimpleNamespace(RayError=_RayError)

    def __init__(self, script: list[Any]) -> None:
        self.script = script
        self.begun = []

    def remote(self, function: Any) -> FakeRay:
        return self

    def options(self, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(remote=self._begin)

    def _begin(self, work: Any, experiment: Experiment, folder: str, *more: Any) -> int:
        self.begun.append(folder)
        return len(self.begun)

    def wait(self, waiting: list[int], num_returns: int) -> tuple[list[int], list[int]]:
        return waiting[:1], waiting[1:]

    def get(self, task: int) -> Any:
        answer = self.script.pop(0)
        if isinstance(answer, _RayError):
            raise answer
        return answer

    def cancel(self, task: int, force: bool) -> None:
        pass


@pytest.mark.parametrize(
    ("script", "begun", "said"),
    [
        ([None], 1, None),
        ([_RayError(), None], 2, None),
        # by the worker that Ray gave up
        ([_RayError(), StoreError("the folder is in use"), None], 3, None),
        ([StoreError("the folder is in use")], 1, "the folder is in use"),
        ([_RayError(), ConfigError("no such thing", "x")], 2, "no such thing"),
        ([_RayError()] * 3, 3, "its worker was lost 3 times"),
    ],
)
def test_a_run_whose_worker_is_lost_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[Any], begun: int, said: str | None
) -> None:
    fake = FakeRay(list(script))
    monkeypatch.setattr(ray_runner, "connect", lambda address, threads: False)
    monkeypatch.setattr(ray_runner, "importlib", SimpleNamespace(import_module=lambda name: fake))
    compared = SimpleNamespace(begin=lambda: None, labels_without_left_out=dict)
    monkeypatch.setattr(ray_runner, "ComparedNodes", lambda parts: compared)
    monkeypatch.setattr(ray_runner, "_PAUSE_S", 0.0)
    ((number, error),) = ray_runner.spread("auto", print, [Experiment(**KEYS)], [tmp_path], None)
    assert number == 0
    assert fake.begun == [str(tmp_path)] * begun
    assert (error is None) if said is None else (said in str(error))
    assert error is None or isinstance(error, UserError)  # a sentence at the command line


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
    begun_again: list[bool] = []  # of each attempt that has ended

    class Noted(ray_runner._SpreadRun):
        def outcome(self, ray: Any, done: Any) -> tuple[Exception | None, bool]:
            found = super().outcome(ray, done)
            begun_again.append(found[1])
            return found

    monkeypatch.setattr(ray_runner, "_SpreadRun", Noted)
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
    assert sum(begun_again) == 1
    assert len(begun_again) == 4 + 1 + 1  # trials, the test, and the run of the node
    (one,), (other,) = alone.methods, spread.methods
    assert one.trials == other.trials
    assert_same(one.test[0], other.test[0])


def test_each_run_has_one_node(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"engine\.name: each run that is spread over a cluster has one node"
    ):
        compare({**KEYS, "engine": "ray"}, out=tmp_path, on_ray="auto")


@pytest.mark.skipif(HERE, reason="Ray is installed")
def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pip install './packages/motley\[ray\]'"):
        compare(KEYS, out=tmp_path, on_ray="auto")
