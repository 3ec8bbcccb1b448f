"""Actors of a Ray cluster of two nodes: the reference's numbers, an actor and a node lost in
mid-round, a cluster by its address.

``make test-ray`` runs these in an environment of their own; elsewhere they are skipped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import subprocess
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import motley
from motley.algorithms.fedprox import Proximal
from motley.core.errors import ConfigError, EngineError
from motley.core.keys import Key
from motley.engines import ENGINES
from motley.engines.engine import MEASURED, REPORTED
from motley.engines.local import Sequential
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.tasks import from_arrays, own_task
from motley.tasks.task import ModelState
from motley_ray import actors
from motley_ray import cluster as ray_cluster
from motley_ray.cluster import RayCluster
from tests.motley.engines.test_engines_agree import MODELS, SOLVERS, mlp
from tests.motley.engines.test_signals import with_held_out
from tests.motley.resume.conftest import assert_same

HERE = importlib.util.find_spec("ray") is not None
NEEDS = [
    pytest.mark.ray,
    pytest.mark.skipif(not HERE, reason="needs Ray, which make test-ray installs"),
]
TINY = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 1},
}


def ray(test):
    """A test that needs a cluster; Ray's own warnings are not ours to mend."""
    for mark in (*NEEDS, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("cluster")):
        test = mark(test)
    return test


def patiently(add_node, **options):
    """Ray gives a node 30 seconds to come up, which a busy machine may miss; what it started then
    is ended, and begun again."""
    for left in (3, 2, 1, 0):
        before = set(psutil.Process().children(recursive=True))
        try:
            return add_node(**options)
        except Exception as late:
            if not left or "timed out" not in str(late):
                raise
            for process in set(psutil.Process().children(recursive=True)) - before:
                with contextlib.suppress(psutil.Error):
                    process.kill()
    raise AssertionError


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core each on this machine, and a connection to them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        import ray as package
        from ray.cluster_utils import Cluster

        made = Cluster()
        patiently(made.add_node, num_cpus=1, include_dashboard=False)
        patiently(made.add_node, num_cpus=1)
        ray_cluster.connect(made.address, None)
        yield made
        package.shutdown()
        made.shutdown()


@pytest.fixture
def engine_on_cluster(cluster):
    """Engines that are closed in the end."""
    made = []

    def make(s):
        made.append(RayCluster(s))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@ray
@pytest.mark.parametrize("model", MODELS)
def test_agrees_with_the_reference(setting, jobs, download, engine_on_cluster, model):
    factory, shape = MODELS[model]
    sgd, mu = SOLVERS["momentum"]
    s = setting(factory, shape, solver=sgd, local=Proximal(mu), threads=2)
    sent = download(s)
    engine = engine_on_cluster(s)
    assert engine.worker_shape == "2 x 1"
    want = REPORTED - {"val_loss"}
    for a, b in zip(
        Sequential(s).train(jobs(s), sent, {}, want),
        engine.train(jobs(s), sent, {}, want),
        strict=True,
    ):
        assert (a.client, a.steps) == (b.client, b.steps)
        assert b.signals == pytest.approx(a.signals, rel=1e-9)
        for name in a.parts:
            torch.testing.assert_close(
                b.parts[name].value, a.parts[name].value, rtol=1e-10, atol=1e-12
            )


@ray
def test_probes_and_evaluations_agree(setting, download, engine_on_cluster, monkeypatch):
    monkeypatch.setattr("motley.engines.distributed.SPREAD_FROM", 1)
    monkeypatch.setattr("motley.engines.distributed.CHUNK", {False: 20, True: 20})
    monkeypatch.setattr("motley.engines.client.CHUNK_NUMBERS", 1)
    s = with_held_out(setting(mlp))
    sent = download(s)
    engine = engine_on_cluster(s)
    key = Key(0).fold("probe")
    want = dict.fromkeys(MEASURED)
    wanted = Sequential(s).measure(np.arange(8), sent, {}, want, key)
    for name, found in engine.measure(np.arange(8), sent, {}, want, key).items():
        assert found == pytest.approx(wanted[name], rel=1e-9, abs=1e-12, nan_ok=True)
    state = ModelState(sent["x"], sent["buffers"], sent["counters"])
    for a, b in zip(
        Sequential(s).evaluate(state, np.arange(70)).values(),
        engine.evaluate(state, np.arange(70)).values(),
        strict=True,
    ):
        assert b == pytest.approx(a, rel=1e-12)


def _processes():
    """The actors' processes on the nodes of this test's cluster, which this process has started."""
    return [
        p
        for p in psutil.Process().children(recursive=True)
        if "".join(_words(p)[:1]).startswith("ray::_Actor")
    ]


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []


@ray
def test_an_actor_killed_in_mid_round_is_replaced_and_the_bits_stay(
    setting, jobs, download, engine_on_cluster
):
    """It is stopped, so that it cannot have answered, and killed while the round waits for its
    chunk."""
    s = setting(mlp, local=Proximal(0.3), dtype=torch.float32, threads=2)
    sent = download(s)
    engine = engine_on_cluster(s)
    whole = list(engine.train(jobs(s), sent, {}))
    engine_has_all(engine, 2)
    (victim, *_) = _processes()
    victim.suspend()
    blow = threading.Timer(1.0, victim.kill)
    blow.start()
    for a, b in zip(whole, engine.train(jobs(s), sent, {}), strict=True):
        assert a.signals == b.signals
        assert torch.equal(a.parts["delta"].value, b.parts["delta"].value)
    blow.join()
    assert not victim.is_running()


@ray
def test_an_actor_that_is_stopped_is_given_up_and_the_bits_stay(
    setting, jobs, download, engine_on_cluster
):
    """It stays stopped until the round is over; were the round to wait for it, it would be killed
    after a minute."""
    s = setting(mlp, dtype=torch.float32, threads=2)
    sent = download(s)
    engine = engine_on_cluster(s)
    whole = list(engine.train(jobs(s), sent, {}))
    engine_has_all(engine, 2)
    (victim, *_) = _processes()
    victim.suspend()
    late = threading.Timer(60.0, victim.kill)
    late.start()
    for a, b in zip(whole, engine.train(jobs(s), sent, {}), strict=True):
        assert torch.equal(a.parts["delta"].value, b.parts["delta"].value)
    assert late.is_alive()
    late.cancel()
    assert "unanswered" in [event.event for event in engine.take_events()]


def engine_has_all(engine, count):
    """Wait until so many workers are ready; a run begins with the first."""
    limit = time.monotonic() + 60
    while not engine.condition().startswith(f"{count} worker"):
        assert time.monotonic() < limit, engine.condition()
        time.sleep(0.1)


@ray
def test_a_lost_node_s_work_is_done_by_the_others(
    setting, jobs, download, engine_on_cluster, cluster
):
    """The cluster shrinks to one core; were the round to wait for another node, it would have one
    after a minute."""
    s = setting(mlp, threads=2)
    sent = download(s)
    engine = engine_on_cluster(s)
    whole = list(engine.train(jobs(s), sent, {}))
    engine_has_all(engine, 2)
    node = next(node for node in cluster.list_all_nodes() if node != cluster.head_node)
    cluster.remove_node(node, allow_graceful=False)
    late = threading.Timer(60.0, patiently, (cluster.add_node,), {"num_cpus": 1})
    late.start()
    for a, b in zip(whole, engine.train(jobs(s), sent, {}), strict=True):
        assert torch.equal(a.parts["delta"].value, b.parts["delta"].value)
    assert late.is_alive()
    late.cancel()
    assert "1 of 2 workers on 1 node" in engine.condition()
    patiently(cluster.add_node, num_cpus=1)
    engine_has_all(engine, 2)
    assert {"lost", "connected"} <= {event.event for event in engine.take_events()}


@ray
def test_a_run_waits_for_room_so_long_and_begins_when_there_is(
    setting, jobs, download, engine_on_cluster
):
    """Two runs on two cores: the second has none until the first ends."""
    s = setting(mlp, threads=2)
    sent = download(s)
    first = engine_on_cluster(s)
    whole = list(first.train(jobs(s), sent, {}))
    engine_has_all(first, 2)
    impatient = engine_on_cluster(dataclasses.replace(s, wait_s=2.0))
    with pytest.raises(
        ConfigError,
        match=r"engine.wait_s: got 2: no worker of 1 core was ready .* 0 of 2 cores free",
    ):
        list(impatient.train(jobs(s), sent, {}))
    impatient.close()
    second = engine_on_cluster(s)
    threading.Timer(3.0, first.close).start()
    for a, b in zip(whole, second.train(jobs(s), sent, {}), strict=True):
        assert torch.equal(a.parts["delta"].value, b.parts["delta"].value)


@ray
def test_one_worker_fits_on_one_of_two_nodes(setting, jobs, download, engine_on_cluster):
    s = dataclasses.replace(setting(mlp, threads=2), workers=1)
    engine = engine_on_cluster(s)
    assert engine.worker_shape == "1 x 1"
    assert len(list(engine.train(jobs(s), download(s), {}))) == 8


@ray
def test_a_node_that_joins_is_used_from_the_next_round(
    setting, jobs, download, engine_on_cluster, cluster
):
    factory, shape = MODELS["normed"]  # which is trained client by client
    s = setting(factory, shape)
    sent = download(s)
    engine = engine_on_cluster(s)
    assert engine.worker_shape == "2 x 1"
    whole = list(engine.train(jobs(s), sent, {}))
    node = patiently(cluster.add_node, num_cpus=1)
    try:
        list(engine.train(jobs(s), sent, {}))
        engine_has_all(engine, 3)
        for a, b in zip(whole, engine.train(jobs(s), sent, {}), strict=True):
            assert torch.equal(a.parts["delta"].value, b.parts["delta"].value)
    finally:
        cluster.remove_node(node)


PROGRAM = "import sys; from motley.cli import call; sys.exit(call(sys.argv[1:]))"


@ray
@pytest.mark.parametrize(
    "started", [True, False], ids=["a cluster by its address", "one of its own"]
)
def test_a_run_is_the_run_of_the_processes(tmp_path, cluster, started):
    """The same shape, two workers of one core, so the same bits; the address is nobody's result."""
    address = [f"engine.address={cluster.address}"] if started else []
    assert begun(tmp_path, "ray", "ray", "engine.threads=2", *address).wait() == 0
    assert begun(tmp_path, "processes", "processes", "engine.threads=2").wait() == 0
    assert_same(tmp_path / "ray", tmp_path / "processes")
    assert motley.load(tmp_path / "ray").meta["numerics"]["workers"] == "2 x 1"


def begun(folder, name, engine, *settings):
    """The process of a run in a folder of this name."""
    file = folder / "exp.toml"
    file.write_text(
        "population = 12\ncohort = 4\nstop = { rounds = 3 }\nselector = "
        '"power_of_choice"\nalgorithm = "scaffold"\ntask = { name = "image", data = "digits", '
        'model = "digits_mlp" }\n'
    )
    words = ["run", str(file), "--out", str(folder / name), "--no-report"]
    for one in (f"engine.name={engine}", *settings):
        words += ["--set", one]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        stdout=subprocess.DEVNULL,
    )


@ray
@pytest.mark.parametrize("count", [2, 3])
def test_runs_begun_together_end_although_each_asks_for_all_cores(tmp_path, cluster, count):
    """No run waits for a second worker to begin; so none can hold one core for ever, and wait for
    the one that another run holds."""
    settings = (f"engine.address={cluster.address}", "engine.workers=2")
    runs = [begun(tmp_path, f"ray{number}", "ray", *settings) for number in range(count)]
    try:
        assert [one.wait(timeout=240) for one in runs] == [0] * count
    finally:
        for one in runs:
            one.kill()
    assert begun(tmp_path, "processes", "processes", "engine.workers=2").wait() == 0
    for number in range(count):
        assert_same(tmp_path / f"ray{number}", tmp_path / "processes")


@ray
def test_options_that_cannot_be(cluster):
    with pytest.raises(ConfigError, match=r"engine.workers: got 3, and this run may use 2 cores"):
        build(Experiment(**TINY, engine={"name": "ray", "workers": 3}))
    task = own_task(
        from_arrays(np.zeros((20, 3)), np.arange(20) % 2, np.arange(20) % 4),
        lambda: nn.Linear(3, 2),
    )
    with pytest.raises(
        ConfigError, match="the function that makes the model cannot be sent to other processes"
    ):
        motley.run({"cohort": 2, "stop": {"rounds": 1}, "engine": "ray"}, task=task, out="/nowhere")


@ray
def test_no_cluster_answers(tmp_path):
    words = [
        sys.executable,
        "-c",
        PROGRAM,
        "run",
        "--out",
        str(tmp_path / "x"),
        str(tmp_path / "exp.toml"),
    ]
    (tmp_path / "exp.toml").write_text(
        'population = 4\ncohort = 2\nstop = { rounds = 1 }\ntask = "image"\nengine = { name = '
        '"ray", address = "127.0.0.1:1" }\n'
    )
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "engine.address: got '127.0.0.1:1', and no cluster answers there" in done.stderr


@pytest.mark.parametrize(
    ("address", "kind", "said", "starts"),
    [
        (None, EngineError, "Ray does not start on this machine: it timed out", 3),
        ("local", EngineError, "Ray does not start on this machine: it timed out", 3),
        (
            "auto",
            ConfigError,
            "engine.address: got 'auto', and no cluster answers there (it timed out)",
            1,
        ),
    ],
)
def test_a_cluster_that_does_not_come_up_is_a_sentence(address, kind, said, starts, monkeypatch):
    tried = []

    class Late:
        def is_initialized(self):
            return False

        def init(self, address, **options):
            tried.append(address)
            raise Exception("it timed out\nand much more")

    monkeypatch.setattr(ray_cluster, "_installed", lambda: True)
    monkeypatch.setattr(ray_cluster, "ray_package", Late)
    with pytest.raises(kind) as told:
        ray_cluster.connect(address, None)
    assert said in str(told.value)
    assert "more" not in str(told.value)
    assert tried == [address or "local"] * starts


class Answers:
    """A Ray of one actor, in place of Ray; ``answers``: to questions after its health that have
    come."""

    def __init__(self):
        self.answers = []

        question = SimpleNamespace(remote=lambda: "question")
        self.node_stands = SimpleNamespace(options=lambda concurrency_group: question)

    def remote(self, **options):
        return lambda kind: SimpleNamespace(remote=lambda: self)

    def wait(self, refs, timeout):
        return (refs, []) if self.answers else ([], refs)

    def get(self, ref):
        return self.answers.pop(0)


def test_an_actor_is_silent_from_the_first_question_without_an_answer(monkeypatch):
    """Not while nobody asks: a driver may do something else for a minute. One whose node stands
    answers that its answers cannot leave, which counts as silence."""
    fake = Answers()
    now = [100.0]
    monkeypatch.setattr(actors, "ray_package", lambda: fake)
    monkeypatch.setattr(actors.time, "monotonic", lambda: now[0])
    actor = actors.RemoteActor(actors.ListeningActor, SimpleNamespace(labels=dict), cores=1, gpus=0)
    found = []
    for seconds, answers in ((60, []), (3, []), (60, [False]), (50, [True]), (0, [False])):
        now[0] += seconds
        fake.answers += answers
        found.append(actor.silent_s())
    assert found == [0.0, 3.0, 0.0, 50.0, 0.0]


@pytest.mark.parametrize("address", ["", ":", "10.0.0.1", "10.0.0.1:port", "a b:6379"])
def test_what_is_no_address_is_a_sentence(address, monkeypatch):
    monkeypatch.setattr(ray_cluster, "_installed", lambda: True)
    with pytest.raises(ConfigError) as told:
        ray_cluster.connect(address, None)
    assert str(told.value) == (
        f"engine.address: got {address!r}; expected host:port, as 10.0.0.1:6379, or auto"
    )


@pytest.mark.skipif(HERE, reason="Ray is installed")
def test_without_ray_the_distribution_is_named():
    with pytest.raises(
        ConfigError,
        match=r"Ray is not installed; get it with: pip install \./packages/motley-ray in a",
    ):
        build(Experiment(**TINY, engine="ray"))


def test_the_engine_is_found_by_its_name():
    assert ENGINES.get("ray") is RayCluster
    assert RayCluster.name == "ray"


def test_the_run_id_does_not_change_with_the_cluster():
    assert (
        Experiment(**TINY, engine={"name": "ray", "address": "auto"}).run_id()
        == Experiment(**TINY).run_id()
    )
