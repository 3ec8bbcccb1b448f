"""Uploads that travel from workers as sums: the bits of every other engine, whatever the number of
workers; what asks for single updates; uploads that cannot be used; a worker that is killed."""

from __future__ import annotations

import threading

import numpy as np
import psutil
import pytest
import torch
from torch import nn

from motley.engines import distributed, placement
from motley.engines.processes import Processes
from motley.experiments.build import build
from motley.tasks import from_arrays, own_task
from tests.rows import Rows

from .test_engines_agree import mlp

CLIENTS = 40


def scaled():
    """Trained client by client, because of BatchNorm, whose buffers and counters are aggregated,
    too."""
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4))


@pytest.fixture
def built(monkeypatch):
    """Runs of two rounds of a small federation; engines are closed in the end. ``sums``: what
    travelled."""
    made = []
    sums = []
    train = distributed.Distributed.train_sums

    def spied(self, *given, **named):
        for one in train(self, *given, **named):
            sums.append(one.run)
            yield one

    monkeypatch.setattr(distributed.Distributed, "train_sums", spied)
    monkeypatch.setattr(Processes, "available_cores", classmethod(lambda cls, s: s.workers or 1))

    def make(engine="sequential", workers=None, model=scaled, rows=None, **keys):
        rng = np.random.default_rng(5)
        owner = np.repeat(np.arange(CLIENTS), rng.integers(2, 9, CLIENTS))
        x = rng.normal(size=(len(owner), 6)).astype(np.float32)
        federation = from_arrays(x, rng.integers(0, 4, len(owner)), owner, test_fraction=0.2)
        more = {} if workers is None else {"workers": workers}
        base = {
            "cohort": CLIENTS,
            "stop": {"rounds": 2},
            "local": {"epochs": 1, "batch_size": 4},
            "engine": {"name": engine, "threads": 1, **more},
            "evaluate": {"every": 2, "per_client": False},
        }
        made.append(build({"task": own_task(federation, model), **base, **keys}, writer=rows))
        return made[-1]

    make.sums = sums
    yield make
    for loop in made:
        loop.engine.close()


def run(loop):
    while not loop.done:
        loop.step()
    return loop


def state(loop):
    model = loop.state.server.model
    return [value.numpy().tobytes() for value in (model.x, model.buffers, model.counters)]


def same(first, second):
    """Two tables of all columns, to the bit."""
    assert first.tables.keys() == second.tables.keys()
    for name, steps in first.tables.items():
        for one, other in zip(steps, second.tables[name], strict=True):
            assert one.keys() == other.keys()
            for column in one:
                np.testing.assert_array_equal(one[column], other[column], f"{name}.{column}")


ALL = [(cohort, workers) for cohort in (1, 7, 8, 9, 17, 40) for workers in (1, 2, 3)]
FEW = [(9, 2), (40, 2)]


@pytest.mark.parametrize(
    ("cohort", "workers"),
    [pytest.param(*one, marks=[] if one in FEW else pytest.mark.slow) for one in ALL],
)
def test_bits_and_tables_are_those_of_one_process_whatever_the_workers(
    built, monkeypatch, cohort, workers
):
    monkeypatch.setattr(placement, "UNEVEN", np.inf)  # sums also where some workers wait for others
    rows = Rows()
    own = Rows()
    wanted = state(run(built(cohort=cohort, rows=rows)))
    assert state(run(built("processes", workers, cohort=cohort, rows=own))) == wanted
    assert built.sums
    same(rows, own)


def test_clients_that_are_trained_as_stacks_are_summed_up_to_rounding(built):
    """Two stacks in place of forty clients one by one; in float64."""
    wanted, found = (
        run(built(*engine, model=mlp, dtype="float64"))
        for engine in (("sequential",), ("processes", 2))
    )
    assert len(built.sums) >= 4
    one, other = (loop.state.server.model.x.numpy() for loop in (wanted, found))
    assert other == pytest.approx(one, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "keys",
    [
        {"algorithm": "scaffold"},
        {"weights": "examples", "algorithm": "scaffold"},
        {"synchrony": {"name": "deadline", "seconds": 1e9}},
        {"failures": {"name": "corrupted", "share": 0.3}},
    ],
    ids=lambda keys: next(iter(keys)),
)
def test_sums_have_the_bits_of_uploads_in_every_part(built, keys):
    wanted = run(built(**keys))
    found = run(built("processes", 2, **keys))
    assert state(found) == state(wanted)
    assert len(built.sums) >= 4
    for client in range(CLIENTS):
        one, other = (
            loop.state.clients.client_states.of([client]).get(client) or {}
            for loop in (wanted, found)
        )
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_an_upload_that_is_not_finite_is_dropped_in_its_worker(built):
    """Rejected in the tables, in no sum, and its position stays empty."""
    keys = {"failures": {"name": "non_finite", "rate": 0.4}}
    rows = Rows()
    own = Rows()
    wanted = state(run(built(rows=rows, **keys)))
    assert state(run(built("processes", 2, rows=own, **keys))) == wanted
    assert built.sums
    same(rows, own)
    assert 0 < own.tables["rounds"][0]["accepted"] < CLIENTS
    assert np.isfinite(np.frombuffer(wanted[0], np.float32)).all()


def test_no_upload_that_is_finite_leaves_the_model_as_it_was(built):
    loop = built("processes", 2, failures={"name": "non_finite", "rate": 1.0})
    before = state(loop)
    loop.step()
    assert built.sums
    assert state(loop) == before


@pytest.mark.slow
def test_a_worker_that_is_killed_in_mid_round_changes_no_bit(built):
    """It is stopped, so that it cannot have answered, and killed while the round waits for its
    sums."""
    wanted = state(run(built()))
    loop = built("processes", 2)
    loop.step()
    mine = [p for p in psutil.Process().children() if "motley.engines.processes" in p.cmdline()]
    busy = {worker._process.pid for worker in loop.engine._pool._workers}
    victim = next(process for process in mine if process.pid in busy)
    victim.suspend()
    blow = threading.Timer(0.3, victim.kill)
    blow.start()
    assert state(run(loop)) == wanted
    blow.join()
    assert not victim.is_running()


def test_seconds_that_were_measured_order_the_calls_and_change_no_bit(built):
    wanted = state(run(built()))
    loop = built("processes", 2)
    loop.step()
    known = loop.engine._seconds._each
    assert len(known) == CLIENTS
    assert min(known.values()) > 0
    known.update({client: 1000.0 ** (client % 3) for client in known})
    assert state(run(loop)) == wanted


SINGLE = {
    "the aggregator Median needs single updates": {"aggregator": "median", "weights": "uniform"},
    "sums of the aggregator ClusterMeans cannot be joined": {"algorithm": {"name": "ifca", "k": 2}},
    "the error feedback EF21 is taken at the server": {
        "compressor": "topk",
        "budget": {"name": "constant", "average": 0.5},
        "feedback": "ef21",
        "weights": "uniform",
    },
    "the compressor QSGD is undone at the server": {"compressor": "qsgd", "feedback": "none"},
    "under Buffered a step takes updates of several versions": {
        "synchrony": {"name": "buffered", "buffer": 20}
    },
    "diagnostics compare them": {"evaluate": {"diagnostics": True}},
    "10 updates are too few for sums of 8, with which some of 2 workers would wait for others": {
        "cohort": 10
    },
}


@pytest.mark.parametrize("reason", SINGLE)
def test_what_asks_for_single_updates_is_named_and_gets_them(built, reason):
    loop = built("processes", 2, **SINGLE[reason])
    assert loop.learning.sums.note() == f"every update travels: {reason}"
    loop.step()
    assert not built.sums


def test_where_sums_travel_and_where_nothing_does_there_is_no_note(built):
    assert built("processes", 2).learning.sums.note() is None
    assert built(aggregator="median", weights="uniform").learning.sums is None
