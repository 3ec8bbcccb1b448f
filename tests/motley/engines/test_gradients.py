"""Mean gradients of clients: every way of computing them gives the gradients of the reference,
client by client."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms.parts import Phase
from motley.algorithms.scaffold import ControlVariates, ControlVariatesAverage
from motley.core.keys import Key
from motley.engines import ENGINES, gradients
from motley.engines.gradients import BlockGradients, ModuleGradients, ThreadGradients
from motley.engines.local import Sequential
from motley.engines.trained_module import Batch, TrainedModule

KEY = Key(0).fold("probe", 1)
WANT = ("grad_norm", "gradient", "gradient_sketch")
SIZES = (7, 1, 0, 23, 12, 4, 16, 5)


def mlp():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(6, 5),
        nn.ReLU(),
        nn.Linear(5, 7, bias=False),
        nn.ReLU(),
        nn.Linear(7, 4),
    )


def conv():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(2 * 4 * 3, 4),
    )


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")


@pytest.mark.parametrize("name", ["batched", "threads", "vmap"])
@pytest.mark.parametrize("batches", [None, 1])
# clients in one block, in several, and cut in pieces
@pytest.mark.parametrize("block", [1024, 20, 3])
def test_gradients_are_those_of_the_reference(monkeypatch, setting, download, name, batches, block):
    monkeypatch.setattr(gradients, "BLOCK", block)
    s = setting(mlp, sizes=SIZES, threads=2)
    sent = download(s)
    clients = np.array([3, 1, 2, 7, 0, 4])
    engine = ENGINES.get(name)(s)
    want = dict.fromkeys(WANT, batches)
    found = engine.measure(clients, sent, {}, want, KEY)
    wanted = Sequential(s).measure(clients, sent, {}, want, KEY)
    engine.close()
    for signal in WANT:
        assert np.isnan(found[signal][2]).all()  # a client without samples
        np.testing.assert_allclose(found[signal], wanted[signal], rtol=1e-10, atol=1e-13)


def test_the_gradient_is_that_of_the_mean_over_the_clients_samples(setting, download):
    s = setting(mlp)
    sent = download(s)
    data = s.task.federation
    found = ENGINES.get("batched")(s).measure(np.array([5, 2]), sent, {}, {"gradient": None}, KEY)[
        "gradient"
    ]
    model = mlp().double()
    nn.utils.vector_to_parameters(sent["x"].clone(), model.parameters())
    for row, client in zip(found, (5, 2), strict=True):
        mine = slice(int(data.train.offsets[client]), int(data.train.offsets[client + 1]))
        loss = nn.functional.cross_entropy(
            model(data.x[torch.from_numpy(data.train[client])].double()), data.labels[mine]
        )
        wanted = torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]
        )
        np.testing.assert_allclose(row, wanted.numpy(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("block", [1024, 3])
def test_gradients_in_bfloat16_are_close(monkeypatch, setting, download, block):
    monkeypatch.setattr(gradients, "BLOCK", block)
    plain = setting(mlp, dtype=torch.float32)
    narrow = dataclasses.replace(plain, precision="bfloat16")
    found, wanted = (
        ENGINES.get("batched")(s).measure(np.arange(8), download(s), {}, {"gradient": None}, KEY)[
            "gradient"
        ]
        for s in (narrow, plain)
    )
    assert 0 < np.linalg.norm(found - wanted) < 0.03 * np.linalg.norm(wanted)  # 8 bits a number


def test_threads_take_batchnorm_and_dropout_in_eval_mode(setting, download):
    s = setting(conv, shape=(1, 6, 5), threads=2)
    sent = download(s)
    clients = np.arange(8)
    engine = ENGINES.get("threads")(s)
    for _ in range(2):  # no statistic changes
        found = engine.measure(clients, sent, {}, {"gradient": None}, KEY)["gradient"]
        wanted = Sequential(s).measure(clients, sent, {}, {"gradient": None}, KEY)["gradient"]
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-13)
    engine.close()


def test_gradients_keep_their_bits_whatever_the_number_of_threads(setting, download):
    found = []
    for threads in (1, 2):
        s = setting(mlp, threads=threads, dtype=torch.float32)
        engine = ENGINES.get("batched")(s)
        found.append(
            engine.measure(np.arange(8), download(s), {}, {"gradient": None}, KEY)["gradient"]
        )
        engine.close()
    assert np.array_equal(*found)


def test_each_engine_has_its_own_way(setting):
    ways = {
        "sequential": ModuleGradients,
        "batched": BlockGradients,
        "threads": ThreadGradients,
        "vmap": ThreadGradients,
    }
    for name, way in ways.items():
        engine = ENGINES.get(name)(setting(mlp))
        assert type(engine.prober.gradient_pass) is way
        engine.close()


@pytest.mark.parametrize("name", ["batched", "threads", "vmap"])
def test_option_one_of_scaffold_agrees_in_every_engine(setting, jobs, download, name):
    s = setting(mlp, local=ControlVariates("I"), server=ControlVariatesAverage(), threads=2)
    sent = {**download(s), "c": torch.zeros(s.task.layout.size, dtype=torch.float64)}
    engine = ENGINES.get(name)(s)
    found, wanted = (list(one.train(jobs(s), sent, {})) for one in (engine, Sequential(s)))
    engine.close()
    for a, b in zip(found, wanted, strict=True):
        for part in ("delta", "dc"):
            torch.testing.assert_close(
                a.parts[part].value, b.parts[part].value, rtol=1e-10, atol=1e-12
            )


@pytest.mark.parametrize("direct", [True, False])
def test_a_direction_of_a_phase_sees_the_gradient_of_what_moves(setting, direct):
    s = setting(mlp)
    trained = TrainedModule(s, direct)
    data = s.task.federation
    at = torch.full_like(trained.model.w, 0.1)
    batch = Batch(data.x[:3].double(), data.labels[:3], {})
    found = []
    for where in (None, frozenset({"3.weight"})):
        with trained.begin(
            Phase(where=where, direction=lambda gradient, *_: gradient(at)), trained.model.w.clone()
        ):
            loss, gradient = trained.gradient_at(at, batch, None)
            trained.turn(gradient)
            found.append(
                (loss, gradient, torch.cat([block.g.reshape(-1) for block in trained.blocks]))
            )
    (loss, whole, all_blocks), (same, part, block) = found
    moved = next(entry.slice for entry in trained.model.layout if entry.name == "3.weight")
    assert torch.equal(loss, same)
    assert torch.equal(all_blocks, whole)
    assert whole[moved].any()
    assert torch.equal(block, whole[moved])
    assert torch.equal(
        part,
        torch.zeros_like(whole).index_copy(0, torch.arange(moved.start, moved.stop), whole[moved]),
    )
